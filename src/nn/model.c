#include "trireme/nn/model.h"

void tri_model_destroy(tri_model **model)
{
  if (*model == NULL) return;
  (*model)->operations->destroy(*model);
  *model = NULL;
}
