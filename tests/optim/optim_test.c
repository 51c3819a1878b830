// AdamW over any partition of the flat space, its arithmetic against double, norms, clipping and
// schedules.
#include <math.h>

#include "nn/gpt_rig.h"
#include "trireme/optim/adamw.h"
#include "trireme/optim/schedule.h"

static const tri_adamw adamw = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f};
static const tri_gpt_config config = {.n_layers = 1,
                                      .n_heads = 1,
                                      .width = 12,
                                      .context = 5,
                                      .vocab_size = 33,
                                      .vocab_multiple = 16,
                                      .dtype = TRI_DTYPE_F32};

// The optimizer's arrays on a device, and their host copies.
typedef struct state {
  float *p, *m, *v, *g;
  tri_bf16 *p_bf16;
} state;

static void *filled(gpt_rig *rig, const char *name, float mean, float std)
{
  const int64_t flat = rig->model->parameters.flat_count;
  float *host = malloc((size_t)flat * sizeof *host);
  tri_random_normal(tri_random_key(1, name), 0, flat, mean, std, host);
  void *device = rig_alloc(rig, (size_t)flat * sizeof *host);
  EXPECT_OK(tri_stream_copy_to_device(rig->stream, device, host, (size_t)flat * sizeof *host));
  EXPECT_OK(tri_stream_synchronize(rig->stream));
  free(host);
  return device;
}

static state make_state(gpt_rig *rig)
{
  return (state){
      .p = filled(rig, "p", 0.0f, 0.1f),
      .m = filled(rig, "m", 0.0f, 0.01f),
      .v = filled(rig, "v", 0.01f, 0.001f),
      .g = filled(rig, "g", 0.0f, 0.1f),
      .p_bf16 = rig_alloc(rig, (size_t)rig->model->parameters.flat_count * sizeof(tri_bf16)),
  };
}

static void free_state(gpt_rig *rig, state *s)
{
  void *all[] = {s->p, s->m, s->v, s->g, s->p_bf16};
  for (int i = 0; i < 5; i++)
    tri_device_free(rig->device, &all[i]);
}

static void update(gpt_rig *rig, state *s, int64_t first, int64_t end)
{
  EXPECT_OK(tri_adamw_update(&adamw, rig->stream, &rig->model->parameters, first, end, s->p + first,
                             s->p_bf16 + first, s->m + first, s->v + first, s->g + first, 3, 1e-2f,
                             0.5f));
}

static bool same(gpt_rig *rig, const void *a, const void *b, size_t size)
{
  char *host = malloc(2 * size);
  EXPECT_OK(tri_stream_copy_to_host(rig->stream, host, a, size));
  EXPECT_OK(tri_stream_copy_to_host(rig->stream, host + size, b, size));
  EXPECT_OK(tri_stream_synchronize(rig->stream));
  const bool equal = memcmp(host, host + size, size) == 0;
  free(host);
  return equal;
}

static void any_partition(const char *kernels)
{
  gpt_rig rig;
  rig_open(&rig, &config, kernels, 1, 5);
  const int64_t flat = rig.model->parameters.flat_count;
  state whole = make_state(&rig);
  update(&rig, &whole, 0, flat);
  static const int64_t steps[] = {1, 7, 31, 64, 257, 1000};
  for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
    state parts = make_state(&rig);
    for (int64_t first = 0; first < flat; first += steps[i]) {
      update(&rig, &parts, first, first); // nothing
      update(&rig, &parts, first, first + steps[i] < flat ? first + steps[i] : flat);
    }
    EXPECT(same(&rig, whole.p, parts.p, (size_t)flat * sizeof(float)));
    EXPECT(same(&rig, whole.m, parts.m, (size_t)flat * sizeof(float)));
    EXPECT(same(&rig, whole.v, parts.v, (size_t)flat * sizeof(float)));
    EXPECT(same(&rig, whole.p_bf16, parts.p_bf16, (size_t)flat * sizeof(tri_bf16)));
    free_state(&rig, &parts);
  }
  free_state(&rig, &whole);
  rig_close(&rig);
}

TEST(adamw_does_not_depend_on_the_partition)
{
  any_partition("reference");
  any_partition("tuned");
}

// Algorithm 2 of Loshchilov and Hutter in double, on every element; norms and biases do not decay.
TEST(adamw_is_the_published_rule)
{
  gpt_rig rig;
  rig_open(&rig, &config, "tuned", 1, 5);
  const int64_t flat = rig.model->parameters.flat_count;
  state s = make_state(&rig);
  float *p = rig_fetch(&rig, s.p), *m = rig_fetch(&rig, s.m), *v = rig_fetch(&rig, s.v);
  float *g = rig_fetch(&rig, s.g);
  update(&rig, &s, 0, flat);
  float *p_new = rig_fetch(&rig, s.p);
  for (int i = 0; i < rig.model->parameters.n; i++) {
    const tri_parameter *parameter = &rig.model->parameters.list[i];
    const double decay = parameter->shape.n_axes == 2 ? 0.1 : 0.0;
    for (int64_t e = parameter->offset; e < parameter->offset + parameter->count; e++) {
      const double gradient = 0.5 * g[e];
      const double m_new = 0.9 * m[e] + 0.1 * gradient;
      const double v_new = 0.95 * v[e] + 0.05 * gradient * gradient;
      const double move = m_new / (1 - pow(0.9, 3)) / (sqrt(v_new / (1 - pow(0.95, 3))) + 1e-8);
      EXPECT_NEAR(p_new[e], p[e] - 1e-2 * (decay * p[e] + move), 1e-2 * 8 * 0x1p-24 + 0x1p-25);
    }
  }
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "flat space",
               tri_adamw_update(&adamw, rig.stream, &rig.model->parameters, 0, flat + 1, s.p, NULL,
                                s.m, s.v, s.g, 1, 1e-2f, 1.0f));
  EXPECT_ERROR(TRI_ERR_ARGUMENT, "at step 0",
               tri_adamw_update(&adamw, rig.stream, &rig.model->parameters, 0, flat, s.p, NULL, s.m,
                                s.v, s.g, 0, 1e-2f, 1.0f));
  float *all[] = {p, m, v, g, p_new};
  for (int i = 0; i < 5; i++)
    free(all[i]);
  free_state(&rig, &s);
  rig_close(&rig);
  EXPECT_OK(tri_memory_check_balance());
}

// --- norms

// Pairs of neighbours, then pairs of pairs, and so on: the same tree from its leaves.
static double sum_pairs(double *sums, int n)
{
  for (int stride = 1; stride < n; stride *= 2) {
    for (int i = 0; i + stride < n; i += 2 * stride)
      sums[i] += sums[i + stride];
  }
  return n == 0 ? 0.0 : sums[0];
}

TEST(norm_is_a_fixed_binary_tree)
{
  static const int sizes[] = {0, 1, 2, 3, 5, 31, 32, 33, 257, 1000};
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    double sums[1000];
    const int n = sizes[s];
    for (int i = 0; i < n; i++)
      sums[i] = exp(30 * tri_random_uniform(4, (uint64_t)i));
    const double norm = tri_norm_of_chunks(sums, n);
    EXPECT(norm == sqrt(sum_pairs(sums, n)));
  }
  const double three[3] = {0x1p53, 1.0, 1.0};
  EXPECT(tri_norm_of_chunks(three, 3) == sqrt(0x1p53));
}

TEST(clipping)
{
  EXPECT(tri_clip_scale(5.0, 0.0f) == 1.0f);
  EXPECT(tri_clip_scale(0.0, 1.0f) == 1.0f);
  EXPECT(tri_clip_scale(1.0, 1.0f) == 1.0f);
  EXPECT(tri_clip_scale(4.0, 1.0f) == 0.25f);
  EXPECT(tri_clip_scale(INFINITY, 1.0f) == 0.0f);
  EXPECT(isnan(tri_clip_scale(NAN, 1.0f)));
}

// --- schedules

TEST(schedules_meet_their_corners)
{
  tri_schedule s = {TRI_SCHEDULE_COSINE, 1.0f, 0.1f, 10, 110};
  EXPECT(tri_schedule_rate(&s, 1) == 0.1f);
  EXPECT(tri_schedule_rate(&s, 5) == 0.5f);
  EXPECT(tri_schedule_rate(&s, 10) == 1.0f);
  EXPECT_NEAR(tri_schedule_rate(&s, 60), 0.55, 1e-7);
  EXPECT(tri_schedule_rate(&s, 110) == 0.1f);
  EXPECT(tri_schedule_rate(&s, 1000) == 0.1f);
  s.kind = TRI_SCHEDULE_LINEAR;
  EXPECT(tri_schedule_rate(&s, 10) == 1.0f);
  EXPECT_NEAR(tri_schedule_rate(&s, 35), 0.775, 1e-7);
  EXPECT(tri_schedule_rate(&s, 110) == 0.1f);
  s.kind = TRI_SCHEDULE_CONSTANT;
  EXPECT(tri_schedule_rate(&s, 2) == 0.2f);
  EXPECT(tri_schedule_rate(&s, 11) == 1.0f && tri_schedule_rate(&s, 1000) == 1.0f);
  // No warm-up, a warm-up as long as the run, one longer than the run.
  tri_schedule none = {TRI_SCHEDULE_LINEAR, 1.0f, 0.0f, 0, 4};
  EXPECT(tri_schedule_rate(&none, 1) == 0.75f && tri_schedule_rate(&none, 4) == 0.0f);
  tri_schedule all = {TRI_SCHEDULE_COSINE, 1.0f, 0.0f, 4, 4};
  EXPECT(tri_schedule_rate(&all, 4) == 1.0f && tri_schedule_rate(&all, 5) == 1.0f);
  tri_schedule longer = {TRI_SCHEDULE_COSINE, 1.0f, 0.0f, 8, 4};
  EXPECT(tri_schedule_rate(&longer, 4) == 0.5f && tri_schedule_rate(&longer, 9) == 0.5f);
}

TEST(schedules_fall_after_the_warm_up)
{
  for (int kind = TRI_SCHEDULE_LINEAR; kind <= TRI_SCHEDULE_COSINE; kind++) {
    const tri_schedule s = {(tri_schedule_kind)kind, 3e-4f, 3e-5f, 31, 1000};
    for (int64_t step = 1; step < 1000; step++) {
      const float now = tri_schedule_rate(&s, step), next = tri_schedule_rate(&s, step + 1);
      EXPECT(step < 31 ? now < next : now > next);
      EXPECT(now > 0.0f && now <= s.lr);
    }
  }
}

int main(void)
{
  TEST_RUN(adamw_does_not_depend_on_the_partition);
  TEST_RUN(adamw_is_the_published_rule);
  TEST_RUN(norm_is_a_fixed_binary_tree);
  TEST_RUN(clipping);
  TEST_RUN(schedules_meet_their_corners);
  TEST_RUN(schedules_fall_after_the_warm_up);
  return test_end();
}
