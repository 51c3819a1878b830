#include "device/check.h"

#include <stddef.h>

tri_status tri_kernel_check_sizes(const char *kernel, int n, const int64_t *sizes)
{
  for (int i = 0; i < n; i++)
    TRI_CHECK(sizes[i] >= 0, TRI_ERR_ARGUMENT, "%s: size %d of %d is %lld, below 0", kernel, i + 1,
              n, (long long)sizes[i]);
  return TRI_OK;
}

tri_status tri_kernel_check_dtype(const char *kernel, tri_dtype dtype)
{
  TRI_CHECK(dtype == TRI_DTYPE_F32 || dtype == TRI_DTYPE_BF16, TRI_ERR_ARGUMENT,
            "%s: element type %s, takes f32 or bf16", kernel, tri_dtype_name(dtype));
  return TRI_OK;
}

tri_status tri_kernel_check_dropout(const char *kernel, const tri_dropout *dropout)
{
  TRI_CHECK(dropout == NULL || (dropout->p >= 0.0f && dropout->p < 1.0f), TRI_ERR_ARGUMENT,
            "%s: dropout probability %g is not in [0, 1)", kernel, (double)dropout->p);
  TRI_CHECK(dropout == NULL || dropout->first >= 0, TRI_ERR_ARGUMENT,
            "%s: the first row or head has number %lld, below 0", kernel,
            (long long)dropout->first);
  return TRI_OK;
}

tri_status tri_kernel_check_rows(const char *kernel, int64_t N, int64_t T, int64_t C,
                                 tri_dtype dtype, const tri_dropout *dropout)
{
  TRI_CALL(tri_kernel_check_sizes(kernel, 3, (int64_t[]){N, T, C}));
  TRI_CHECK(N == 0 || T >= 1, TRI_ERR_ARGUMENT, "%s: %lld rows of samples that have none", kernel,
            (long long)N);
  TRI_CALL(tri_kernel_check_dtype(kernel, dtype));
  TRI_CALL(tri_kernel_check_dropout(kernel, dropout));
  return TRI_OK;
}

tri_status tri_kernel_check_embedding(const char *kernel, int64_t B, int64_t T, int64_t C,
                                      int64_t first_token, int64_t V, tri_dtype dtype,
                                      const tri_dropout *dropout)
{
  TRI_CALL(tri_kernel_check_sizes(kernel, 5, (int64_t[]){B, T, C, first_token, V}));
  TRI_CALL(tri_kernel_check_dtype(kernel, dtype));
  TRI_CALL(tri_kernel_check_dropout(kernel, dropout));
  TRI_CHECK(dropout == NULL || dropout->first == 0, TRI_ERR_ARGUMENT,
            "%s: takes whole samples, but the first row has number %lld: give 0", kernel,
            (long long)dropout->first);
  return TRI_OK;
}

tri_status tri_kernel_check_linear(const char *kernel, int64_t N, int64_t IC, int64_t OC,
                                   tri_dtype dtype)
{
  TRI_CALL(tri_kernel_check_sizes(kernel, 3, (int64_t[]){N, IC, OC}));
  TRI_CALL(tri_kernel_check_dtype(kernel, dtype));
  return TRI_OK;
}

tri_status tri_kernel_check_classifier(const char *kernel, int64_t N, int64_t V, int64_t Vp,
                                       tri_dtype dtype)
{
  TRI_CALL(tri_kernel_check_sizes(kernel, 3, (int64_t[]){N, V, Vp}));
  TRI_CALL(tri_kernel_check_dtype(kernel, dtype));
  TRI_CHECK(V <= Vp, TRI_ERR_ARGUMENT, "%s: vocabulary %lld is larger than its padded size %lld",
            kernel, (long long)V, (long long)Vp);
  return TRI_OK;
}

tri_status tri_kernel_check_classifier_part(const char *kernel, int64_t N, int64_t V, int64_t Vp,
                                            int64_t first_token, tri_dtype dtype)
{
  TRI_CALL(tri_kernel_check_classifier(kernel, N, V, Vp, dtype));
  TRI_CALL(tri_kernel_check_sizes(kernel, 1, &first_token));
  return TRI_OK;
}

tri_status tri_kernel_check_position(const char *kernel, int64_t position, int64_t T_max)
{
  TRI_CHECK(position >= 0 && position < T_max, TRI_ERR_ARGUMENT,
            "%s: position %lld is not in [0, %lld)", kernel, (long long)position, (long long)T_max);
  return TRI_OK;
}
