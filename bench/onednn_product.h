// One matrix product of oneDNN, whole, to measure ours against.
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct onednn_product onednn_product;

// C (M, N) = A (M, K) B (K, N) in f32, C row-major, added to C when `add`; element (i, j) of A is
// at a_row * i + a_column * j. NULL when oneDNN refuses.
onednn_product *onednn_product_create(int64_t M, int64_t N, int64_t K, int64_t a_row,
                                      int64_t a_column, int64_t b_row, int64_t b_column, bool add);
bool onednn_product_run(onednn_product *product, float *c, float *a, float *b);
void onednn_product_destroy(onednn_product *product);
