#include "trireme/nn/model.h"

void tri_pass_set_arrays(tri_pass *pass, const tri_model *model, int block, const void *weights,
                         float *gradients)
{
  const tri_parameters *parameters = &model->parameters;
  const size_t size = tri_dtype_size(model->dtype);
  const char *array = weights;
  pass->weights = array + (size_t)parameters->offsets[block] * size;
  pass->tied_weights = array + (size_t)tri_parameters_tied_offset(parameters) * size;
  pass->gradients = gradients == NULL ? NULL : gradients + parameters->offsets[block];
  pass->tied_gradients = gradients == NULL ? NULL : gradients + parameters->flat_count;
}

void tri_model_destroy(tri_model **model)
{
  if (*model == NULL) return;
  (*model)->operations->destroy(*model);
  *model = NULL;
}
