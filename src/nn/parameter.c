#include "trireme/nn/parameter.h"

#include <string.h>

#include "trireme/base/random.h"

// Elements that one thread fills at a time. The values depend on the element alone, so this is
// about speed only.
enum { FILL_BLOCK = 1 << 16 };

tri_box tri_parameter_box(const tri_parameter *parameter, int k)
{
  tri_box box = parameter->box;
  box.start[0] += k * parameter->box_stride;
  return box;
}

// The global index of element `local` of the boxes, and in *run how many elements from there on are
// neighbours in the global array too (the rest of a row of the box).
static int64_t global_index(const tri_parameter *parameter, int64_t local, int64_t *run)
{
  const int64_t elements = tri_box_elements(&parameter->box);
  const tri_box box_of_local = tri_parameter_box(parameter, (int)(local / elements));
  const tri_box *box = &box_of_local;
  int64_t index = 0, stride = 1, rest = local % elements;
  *run = 1;
  for (int a = box->n_axes - 1; a >= 0; a--) {
    const int64_t position = rest % box->count[a];
    if (a == box->n_axes - 1) *run = box->count[a] - position;
    index += (box->start[a] + position) * stride;
    stride *= parameter->shape.extent[a];
    rest /= box->count[a];
  }
  return index;
}

// Elements [first, end) of the boxes.
static void fill_normal(const tri_parameter *parameter, uint64_t key, int64_t first, int64_t end,
                        float *out)
{
  while (first < end) {
    int64_t run;
    const int64_t index = global_index(parameter, first, &run);
    if (run > end - first) run = end - first;
    tri_random_normal(key, index, run, 0.0f, parameter->init_std, out + first);
    first += run;
  }
}

void tri_parameter_initialize(const tri_parameter *parameter, uint64_t seed, float *host_out)
{
  const int64_t held = parameter->n_boxes * tri_box_elements(&parameter->box);
  const uint64_t key = tri_random_key(seed, parameter->name);
  const int64_t n_blocks = (parameter->count + FILL_BLOCK - 1) / FILL_BLOCK;
#pragma omp parallel for schedule(static)
  for (int64_t block = 0; block < n_blocks; block++) {
    const int64_t first = block * FILL_BLOCK;
    const int64_t end =
        first + FILL_BLOCK < parameter->count ? first + FILL_BLOCK : parameter->count;
    const int64_t held_end = end < held ? end : held;
    for (int64_t i = first; i < end; i++)
      host_out[i] = parameter->init == TRI_INIT_ONE && i < held ? 1.0f : 0.0f;
    if (parameter->init == TRI_INIT_NORMAL) fill_normal(parameter, key, first, held_end, host_out);
  }
}

int64_t tri_parameters_gradient_count(const tri_parameters *parameters)
{
  return parameters->flat_count + parameters->tied_count;
}

int64_t tri_parameters_weight_count(const tri_parameters *parameters)
{
  return parameters->flat_count + (parameters->tied < 0 ? parameters->tied_count : 0);
}

int64_t tri_parameters_tied_offset(const tri_parameters *parameters)
{
  return parameters->tied < 0 ? parameters->flat_count : parameters->list[parameters->tied].offset;
}

const tri_parameter *tri_parameters_find(const tri_parameters *parameters, const char *name)
{
  for (int i = 0; i < parameters->n; i++) {
    if (strcmp(parameters->list[i].name, name) == 0) return &parameters->list[i];
  }
  return NULL;
}
