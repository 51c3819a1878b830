// The argument checks that the kernels of all backends share. Each names the kernel and the
// argument that is wrong.
#pragma once

#include "trireme/device/kernels.h"

// Each of `n` sizes is at least 0: tri_kernel_check_sizes("linear_forward", 3, (int64_t[]){N, IC,
// OC}).
TRI_MUST_CHECK tri_status tri_kernel_check_sizes(const char *kernel, int n, const int64_t *sizes);

// The storage type is f32 or bf16.
TRI_MUST_CHECK tri_status tri_kernel_check_dtype(const char *kernel, tri_dtype dtype);

// NULL, or 0 <= p < 1 and first >= 0.
TRI_MUST_CHECK tri_status tri_kernel_check_dropout(const char *kernel, const tri_dropout *dropout);

// Sizes and type of a call on N rows of C elements, T rows to a sample, with dropout.
TRI_MUST_CHECK tri_status tri_kernel_check_rows(const char *kernel, int64_t N, int64_t T, int64_t C,
                                                tri_dtype dtype, const tri_dropout *dropout);

// The same of a call on whole samples, B * T rows of which the first is row 0, with the tokens
// first_token … first_token + V - 1.
TRI_MUST_CHECK tri_status tri_kernel_check_embedding(const char *kernel, int64_t B, int64_t T,
                                                     int64_t C, int64_t first_token, int64_t V,
                                                     tri_dtype dtype, const tri_dropout *dropout);

// Sizes and type of a linear layer's call.
TRI_MUST_CHECK tri_status tri_kernel_check_linear(const char *kernel, int64_t N, int64_t IC,
                                                  int64_t OC, tri_dtype dtype);

// Sizes and type of a classifier's call, V <= Vp.
TRI_MUST_CHECK tri_status tri_kernel_check_classifier(const char *kernel, int64_t N, int64_t V,
                                                      int64_t Vp, tri_dtype dtype);

// The same of a part of the vocabulary that begins at first_token >= 0.
TRI_MUST_CHECK tri_status tri_kernel_check_classifier_part(const char *kernel, int64_t N, int64_t V,
                                                           int64_t Vp, int64_t first_token,
                                                           tri_dtype dtype);

// 0 <= position < T_max.
TRI_MUST_CHECK tri_status tri_kernel_check_position(const char *kernel, int64_t position,
                                                    int64_t T_max);
