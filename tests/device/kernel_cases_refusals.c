#include "device/kernel_cases_common.h"

static const tri_dtype BAD = TRI_DTYPE_I32;
static const tri_dropout TOO_MUCH = {.p = 1.0f}, NEGATIVE = {.p = -0.1f}, NOT_A_NUMBER = {.p = NAN};
static const tri_dropout BEFORE = {.first = -1}, PART = {.first = 1};

// The call is refused. Every pointer is NULL, so a kernel that looks at memory first is caught.
#define REFUSED(call) \
  do { \
    TRI_CHECK((call) == TRI_ERR_ARGUMENT, TRI_ERR_INTERNAL, "%s: not refused: %s", side->name, \
              #call); \
    tri_error_clear(); \
  } while (0)

static tri_status refuse_elementwise(const kernel_side *side)
{
  const tri_kernels *k = side->kernels;
  tri_stream *s = side->stream;
  const tri_dtype F32 = TRI_DTYPE_F32;
  REFUSED(k->fill(s, NULL, 0.0f, -1));
  REFUSED(k->convert(s, NULL, F32, NULL, F32, -1));
  REFUSED(k->convert(s, NULL, BAD, NULL, F32, 0));
  REFUSED(k->convert(s, NULL, F32, NULL, BAD, 0));
  REFUSED(k->add(s, NULL, NULL, NULL, -1));
  REFUSED(k->sum_squares(s, NULL, NULL, -1));
  REFUSED(k->sum(s, NULL, NULL, -1));
  REFUSED(k->adamw(s, NULL, NULL, NULL, NULL, NULL, -1, 0, 0, 0, 0, 0, 0, 1, 1));
  REFUSED(k->cross_entropy_forward(s, NULL, NULL, NULL, -1, 1, 1, F32));
  REFUSED(k->cross_entropy_forward(s, NULL, NULL, NULL, 1, 2, 1, F32));
  REFUSED(k->cross_entropy_forward(s, NULL, NULL, NULL, 1, 1, 1, BAD));
  REFUSED(k->cross_entropy_backward(s, NULL, NULL, NULL, 1.0f, 1, 2, 1, F32));
  REFUSED(k->cross_entropy_backward(s, NULL, NULL, NULL, 1.0f, 1, 1, 1, BAD));
  REFUSED(k->cross_entropy_statistics(s, NULL, NULL, NULL, 1, 2, 1, 0, F32));
  REFUSED(k->cross_entropy_statistics(s, NULL, NULL, NULL, 1, 1, 1, -1, F32));
  REFUSED(k->cross_entropy_statistics(s, NULL, NULL, NULL, 1, 1, 1, 0, BAD));
  REFUSED(k->cross_entropy_combine(s, NULL, NULL, NULL, NULL, -1, 1));
  REFUSED(k->cross_entropy_combine(s, NULL, NULL, NULL, NULL, 1, -1));
  REFUSED(k->cross_entropy_gradient(s, NULL, NULL, NULL, 1.0f, 1, 2, 1, 0, F32));
  REFUSED(k->cross_entropy_gradient(s, NULL, NULL, NULL, 1.0f, 1, 1, 1, -1, F32));
  REFUSED(k->cross_entropy_gradient(s, NULL, NULL, NULL, 1.0f, 1, 1, 1, 0, BAD));
  return TRI_OK;
}

static tri_status refuse_rows(const kernel_side *side)
{
  const tri_kernels *k = side->kernels;
  tri_stream *s = side->stream;
  const tri_dtype F32 = TRI_DTYPE_F32;
  REFUSED(k->embedding_forward(s, NULL, NULL, NULL, NULL, 1, -1, 1, 0, 1, 0, F32, NULL));
  REFUSED(k->embedding_forward(s, NULL, NULL, NULL, NULL, 1, 1, 1, 0, 1, -1, F32, NULL));
  REFUSED(k->embedding_forward(s, NULL, NULL, NULL, NULL, 1, 1, 1, 0, 1, 0, BAD, NULL));
  REFUSED(k->embedding_forward(s, NULL, NULL, NULL, NULL, 1, 1, 1, 0, 1, 0, F32, &TOO_MUCH));
  REFUSED(k->embedding_forward(s, NULL, NULL, NULL, NULL, 1, 1, 1, 0, 1, 0, F32, &PART));
  REFUSED(k->embedding_backward(s, NULL, NULL, NULL, NULL, 1, 1, 1, 0, 1, F32, &PART));
  REFUSED(k->embedding_backward(s, NULL, NULL, NULL, NULL, 1, 1, -1, 0, 1, F32, NULL));
  REFUSED(k->embedding_backward(s, NULL, NULL, NULL, NULL, 1, 1, 1, 0, 1, BAD, NULL));
  REFUSED(k->embedding_backward(s, NULL, NULL, NULL, NULL, 1, 1, 1, 0, 1, F32, &NEGATIVE));
  REFUSED(k->embedding_forward(s, NULL, NULL, NULL, NULL, 1, 1, 1, -1, 1, 0, F32, NULL));
  REFUSED(k->embedding_backward(s, NULL, NULL, NULL, NULL, 1, 1, 1, 0, -1, F32, NULL));
  REFUSED(k->positions_forward(s, NULL, NULL, NULL, -1, 1, 1, 0, F32, NULL));
  REFUSED(k->positions_forward(s, NULL, NULL, NULL, 1, 0, 1, 0, F32, NULL));
  REFUSED(k->positions_forward(s, NULL, NULL, NULL, 1, 1, 1, -1, F32, NULL));
  REFUSED(k->positions_forward(s, NULL, NULL, NULL, 1, 1, 1, 0, BAD, NULL));
  REFUSED(k->positions_forward(s, NULL, NULL, NULL, 1, 1, 1, 0, F32, &BEFORE));
  REFUSED(k->positions_backward(s, NULL, NULL, NULL, 1, 1, -1, F32, NULL));
  REFUSED(k->positions_backward(s, NULL, NULL, NULL, 1, 1, 1, BAD, NULL));
  REFUSED(k->positions_backward(s, NULL, NULL, NULL, 1, 1, 1, F32, &TOO_MUCH));
  REFUSED(k->layernorm_forward(s, NULL, NULL, NULL, NULL, NULL, NULL, -1, 1, 0, F32));
  REFUSED(k->layernorm_forward(s, NULL, NULL, NULL, NULL, NULL, NULL, 1, 1, 0, BAD));
  REFUSED(k->layernorm_backward(s, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1, -1, F32));
  REFUSED(k->layernorm_backward(s, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1, 1, BAD));
  REFUSED(k->residual_layernorm_forward(s, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, -1, 1, 1,
                                        0, F32, NULL));
  REFUSED(k->residual_layernorm_forward(s, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1, 1, 1,
                                        0, F32, &NOT_A_NUMBER));
  REFUSED(k->residual_layernorm_forward(s, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1, 0, 1,
                                        0, F32, NULL));
  REFUSED(k->residual_forward(s, NULL, NULL, NULL, 1, 0, 1, F32, NULL));
  REFUSED(k->residual_backward(s, NULL, NULL, 1, 0, 1, F32, NULL));
  REFUSED(k->residual_forward(s, NULL, NULL, NULL, 1, 1, 1, F32, &BEFORE));
  REFUSED(k->residual_forward(s, NULL, NULL, NULL, 1, 1, -1, F32, NULL));
  REFUSED(k->residual_forward(s, NULL, NULL, NULL, 1, 1, 1, BAD, NULL));
  REFUSED(k->residual_forward(s, NULL, NULL, NULL, 1, 1, 1, F32, &TOO_MUCH));
  REFUSED(k->residual_backward(s, NULL, NULL, 1, -1, 1, F32, NULL));
  REFUSED(k->residual_backward(s, NULL, NULL, 1, 1, 1, F32, &NOT_A_NUMBER));
  return TRI_OK;
}

static tri_status refuse_matrix(const kernel_side *side)
{
  const tri_kernels *k = side->kernels;
  tri_stream *s = side->stream;
  const tri_dtype F32 = TRI_DTYPE_F32;
  REFUSED(k->linear_prepare(s, -1, 1, 1, F32));
  REFUSED(k->linear_prepare(s, 1, 1, 1, BAD));
  REFUSED(k->linear_forward(s, NULL, NULL, NULL, NULL, NULL, 1, -1, 1, F32));
  REFUSED(k->linear_forward(s, NULL, NULL, NULL, NULL, NULL, 1, 1, 1, BAD));
  REFUSED(k->linear_backward_input(s, NULL, NULL, NULL, NULL, 1, 1, -1, F32));
  REFUSED(k->linear_backward_input(s, NULL, NULL, NULL, NULL, 1, 1, 1, BAD));
  REFUSED(k->linear_backward_weight(s, NULL, NULL, NULL, NULL, -1, 1, 1, F32));
  REFUSED(k->linear_backward_weight(s, NULL, NULL, NULL, NULL, 1, 1, 1, BAD));
  REFUSED(k->attention_forward(s, NULL, NULL, NULL, 1, 1, 1, -1, F32, NULL));
  REFUSED(k->attention_forward(s, NULL, NULL, NULL, 1, 1, 1, 1, BAD, NULL));
  REFUSED(k->attention_forward(s, NULL, NULL, NULL, 1, 1, 1, 1, F32, &TOO_MUCH));
  REFUSED(k->attention_forward(s, NULL, NULL, NULL, 1, 1, 1, 1, F32, &BEFORE));
  REFUSED(k->attention_backward(s, NULL, NULL, NULL, NULL, NULL, NULL, 1, -1, 1, 1, F32, NULL));
  REFUSED(k->attention_backward(s, NULL, NULL, NULL, NULL, NULL, NULL, 1, 1, 1, 1, BAD, NULL));
  REFUSED(k->attention_backward(s, NULL, NULL, NULL, NULL, NULL, NULL, 1, 1, 1, 1, F32, &NEGATIVE));
  REFUSED(k->attention_decode(s, NULL, NULL, NULL, NULL, -1, 1, 4, 1, 1, F32));
  REFUSED(k->attention_decode(s, NULL, NULL, NULL, NULL, 4, 1, 4, 1, 1, F32));
  REFUSED(k->attention_decode(s, NULL, NULL, NULL, NULL, 0, 1, 4, 1, 1, BAD));
  return TRI_OK;
}

tri_status kernel_cases_refusals(const kernel_side *side)
{
  TRI_CALL(refuse_elementwise(side));
  TRI_CALL(refuse_rows(side));
  TRI_CALL(refuse_matrix(side));
  return TRI_OK;
}
