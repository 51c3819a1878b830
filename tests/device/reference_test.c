// The reference kernels against what their contracts say: restatements, known values, equalities.
#include <math.h>

#include "device/cpu/cpu.h"
#include "device/cpu/dropout.h"
#include "device/cpu/element.h"
#include "test.h"

static const tri_dtype F32 = TRI_DTYPE_F32, BF16 = TRI_DTYPE_BF16;

static tri_kernels kernels;

static void fill(uint64_t key, float *x, int n, float size)
{
  for (int i = 0; i < n; i++)
    x[i] = size * (float)(2.0 * tri_random_uniform(key, (uint64_t)i) - 1.0);
}

// --- rounding

// Of the two bf16 neighbours of a double the nearer one, the even one of a tie: all ties between
// neighbours, and the doubles just beside them.
TEST(doubles_round_once_to_bf16)
{
  for (uint32_t bits = 0x3f80; bits < 0x4100; bits++) {
    const double low = (double)tri_bf16_to_float((tri_bf16)bits);
    const double high = (double)tri_bf16_to_float((tri_bf16)(bits + 1));
    const double tie = (low + high) / 2;
    const tri_bf16 even = (tri_bf16)(bits % 2 == 0 ? bits : bits + 1);
    for (int sign = -1; sign <= 1; sign += 2) {
      const tri_bf16 mark = sign < 0 ? 0x8000 : 0;
      EXPECT(tri_cpu_bf16_from_double(sign * tie) == (even | mark));
      EXPECT(tri_cpu_bf16_from_double(sign * nextafter(tie, low)) == (bits | mark));
      EXPECT(tri_cpu_bf16_from_double(sign * nextafter(tie, high)) == ((bits + 1) | mark));
    }
  }
  EXPECT(tri_cpu_bf16_from_double(INFINITY) == 0x7f80);
  EXPECT(isnan(tri_bf16_to_float(tri_cpu_bf16_from_double(NAN))));
}

// --- sums

TEST(sums_are_of_the_right_elements)
{
  enum { N = 2 * TRI_NORM_CHUNK + 1 };
  static float x[N];
  for (int i = 0; i < N; i++)
    x[i] = (float)(i % 7);
  double chunks[3] = {-1, -1, -1}, want[3] = {0}, sum = 0.0, want_sum = 0.0;
  for (int i = 0; i < N; i++) {
    want[i / TRI_NORM_CHUNK] += (double)(i % 7) * (double)(i % 7);
    want_sum += i % 7;
  }
  EXPECT_OK(kernels.sum_squares(NULL, chunks, x, N));
  EXPECT_OK(kernels.sum(NULL, &sum, x, N));
  EXPECT(memcmp(chunks, want, sizeof want) == 0); // whole numbers: exact in any order
  EXPECT(sum == want_sum);
  sum = -1.0;
  EXPECT_OK(kernels.sum(NULL, &sum, x, 0));
  EXPECT(sum == 0.0);
}

// --- linear

// The tanh form at 1 and -1, by another libm in double.
TEST(gelu_known_values)
{
  const float x[2] = {1.0f, -1.0f}, w[1] = {1.0f};
  float out[2], gelu[2];
  EXPECT_OK(kernels.linear_forward(NULL, out, gelu, x, w, NULL, 2, 1, 1, F32));
  EXPECT_NEAR(gelu[0], 0.8411919906082768, 0x1p-24);
  EXPECT_NEAR(gelu[1], -0.15880800939172324, 0x1p-24);
}

// --- attention

TEST(attention_rows_are_naive_softmax)
{
  enum { B = 2, T = 33, H = 3, D = 16, N = B * T * H * D };
  static float qkv[3 * N], out[N], lse[B * H * T];
  fill(5, qkv, 3 * N, 2.0f);
  EXPECT_OK(kernels.attention_forward(NULL, out, lse, qkv, B, T, H, D, F32, NULL));
  for (int row = 0; row < B * T * H; row++) {
    const int b = row / (T * H), t = row / H % T, h = row % H;
    const float *q = qkv + (b * T + t) * 3 * H * D + h * D;
    double weights[T], sum = 0.0;
    for (int j = 0; j <= t; j++) {
      const float *k = qkv + (b * T + j) * 3 * H * D + H * D + h * D;
      double score = 0.0;
      for (int d = 0; d < D; d++)
        score += (double)q[d] * (double)k[d];
      weights[j] = exp(score / 4.0);
      sum += weights[j];
    }
    EXPECT_NEAR(lse[(b * H + h) * T + t], log(sum), 8 * 0x1p-24);
    for (int d = 0; d < D; d++) {
      double value = 0.0;
      for (int j = 0; j <= t; j++)
        value += weights[j] / sum * (double)qkv[(b * T + j) * 3 * H * D + 2 * H * D + h * D + d];
      EXPECT_NEAR(out[row * D + d], value, 2 * 0x1p-24);
    }
  }
}

// Positions fed one by one through the caches give the rows of the whole, bit by bit.
static void check_decode(tri_dtype dtype)
{
  enum { B = 2, T = 9, T_MAX = 12, H = 3, D = 70, N = B * T * H * D };
  static float source[3 * N], qkv[3 * N], out[N], lse[B * H * T], row[B * 3 * H * D];
  static float out_row[B * H * D], k_cache[B * T_MAX * H * D], v_cache[B * T_MAX * H * D];
  const size_t size = tri_dtype_size(dtype), row_bytes = 3 * H * D * size;
  fill(6, source, 3 * N, 1.0f);
  EXPECT_OK(kernels.convert(NULL, qkv, dtype, source, F32, 3 * N));
  EXPECT_OK(kernels.attention_forward(NULL, out, lse, qkv, B, T, H, D, dtype, NULL));
  for (int t = 0; t < T; t++) {
    for (int b = 0; b < B; b++)
      memcpy((char *)row + (size_t)b * row_bytes, (char *)qkv + (size_t)(b * T + t) * row_bytes,
             row_bytes);
    EXPECT_OK(
        kernels.attention_decode(NULL, out_row, k_cache, v_cache, row, t, B, T_MAX, H, D, dtype));
    for (int b = 0; b < B; b++)
      EXPECT(memcmp((char *)out_row + (size_t)(b * H * D) * size,
                    (char *)out + (size_t)((b * T + t) * H * D) * size, H * D * size) == 0);
  }
}

TEST(decode_is_the_last_row_of_attention)
{
  check_decode(F32);
  check_decode(BF16);
}

// --- cross entropy

// Whatever stands in the padding, the loss of equal logits is log(V), and padding has no slope.
TEST(padding_takes_no_part_in_the_loss)
{
  enum { N = 2, V = 5, VP = 8 };
  const int32_t targets[N] = {4, 0};
  float logits[N * VP], losses[N];
  for (int i = 0; i < N * VP; i++)
    logits[i] = i % VP < V ? 3.0f : 1e30f;
  EXPECT_OK(kernels.cross_entropy_forward(NULL, losses, logits, targets, N, V, VP, F32));
  EXPECT_NEAR(losses[0], log(5), 0x1p-23);
  EXPECT_OK(kernels.cross_entropy_backward(NULL, losses, logits, targets, 2.0f, N, V, VP, F32));
  for (int n = 0; n < N; n++) {
    double sum = 0.0;
    for (int v = 0; v < VP; v++) {
      const double want = v >= V ? 0.0 : 2.0 * (0.2 - (v == targets[n] ? 1.0 : 0.0));
      EXPECT_NEAR(logits[n * VP + v], want, 0x1p-23);
      sum += (double)logits[n * VP + v];
    }
    EXPECT_NEAR(sum, 0, V * 0x1p-24); // the slopes of a softmax sum to zero
  }
}

TEST(large_logits_do_not_overflow)
{
  const float logits[2] = {1e4f, -1e4f};
  const int32_t target = 1;
  float loss;
  EXPECT_OK(kernels.cross_entropy_forward(NULL, &loss, logits, &target, 1, 2, 2, F32));
  EXPECT(loss == 2e4f);
}

// Columns cut[k] … cut[k + 1] - 1 of logits, with `padding` columns of 1e30 behind them.
enum { SPLIT_N = 5, SPLIT_V = 29, SPLIT_PADDING = 3, SPLIT_VP = SPLIT_V + SPLIT_PADDING };

static int copy_part(float *part, const float *logits, int from, int to)
{
  const int Vp = to - from + SPLIT_PADDING;
  for (int i = 0; i < SPLIT_N * Vp; i++)
    part[i] = i % Vp < to - from ? logits[i / Vp * SPLIT_VP + from + i % Vp] : 1e30f;
  return Vp;
}

// In parts, uneven, empty and padded, what the whole gives: sums in double are rounded to f32 once
// a part, exp of a largest taken down to the common one is exact to 2^-53, and the inverse sum is
// rounded; a loss of at most 16 is rounded once more.
static void check_parts(const int *cuts, int count)
{
  enum { N = SPLIT_N, V = SPLIT_V };
  static const int32_t targets[N] = {0, 28, -1, 11, 12};
  const float scale = 0.5f;
  float logits[N * SPLIT_VP], want[N], losses[N], softmax[2 * N], statistics[4 * 3 * N];
  float parts[4][N * SPLIT_VP];
  fill(9, logits, N * SPLIT_VP, 8.0f);
  for (int k = 0; k < count; k++) {
    const int Vp = copy_part(parts[k], logits, cuts[k], cuts[k + 1]);
    EXPECT_OK(kernels.cross_entropy_statistics(NULL, statistics + k * 3 * N, parts[k], targets, N,
                                               cuts[k + 1] - cuts[k], Vp, cuts[k], F32));
  }
  EXPECT_OK(kernels.cross_entropy_combine(NULL, losses, softmax, statistics, targets, count, N));
  EXPECT_OK(
      kernels.cross_entropy_backward(NULL, want, logits, targets, scale, N, V, SPLIT_VP, F32));
  for (int n = 0; n < N; n++)
    EXPECT_NEAR(losses[n], want[n], 16 * 0x1p-24 + 2 * 0x1p-24);
  EXPECT(losses[2] == 0.0f && softmax[4] == 0.0f && softmax[5] == 0.0f); // ignored
  for (int k = 0; k < count; k++) {
    const int n_columns = cuts[k + 1] - cuts[k], Vp = n_columns + SPLIT_PADDING;
    EXPECT_OK(kernels.cross_entropy_gradient(NULL, parts[k], softmax, targets, scale, N, n_columns,
                                             Vp, cuts[k], F32));
    for (int i = 0; i < N * Vp; i++) {
      const bool padding = i % Vp >= n_columns;
      const float slope = padding ? 0.0f : logits[i / Vp * SPLIT_VP + cuts[k] + i % Vp];
      EXPECT_NEAR(parts[k][i], slope, padding ? 0.0 : (double)scale * 4 * 0x1p-24);
    }
  }
}

TEST(cross_entropy_in_parts_is_that_of_the_whole)
{
  check_parts((const int[]){0, SPLIT_V}, 1);
  check_parts((const int[]){0, 12, SPLIT_V}, 2);
  check_parts((const int[]){0, 12, 12, SPLIT_V}, 3);
  check_parts((const int[]){0, 0, 1, 20, SPLIT_V}, 4);
  check_parts((const int[]){0, 11, 12, SPLIT_V, SPLIT_V}, 4);
}

// --- optimizer

// Three steps of algorithm 2 of Loshchilov and Hutter, restated for one number in double.
TEST(adamw_is_the_published_rule)
{
  const float lr = 0.01f, beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, decay = 0.1f, scale = 0.5f;
  const float slopes[3] = {0.3f, -2.0f, 0.01f};
  float p = 0.7f, m = 0.0f, v = 0.0f;
  double p_want = (double)p, m_want = 0.0, v_want = 0.0;
  for (int step = 1; step <= 3; step++) {
    const double g = (double)scale * (double)slopes[step - 1];
    m_want = (double)beta1 * m_want + (1 - (double)beta1) * g;
    v_want = (double)beta2 * v_want + (1 - (double)beta2) * g * g;
    const double correction1 = 1 - pow((double)beta1, step);
    const double correction2 = 1 - pow((double)beta2, step);
    p_want -= (double)lr * ((double)decay * p_want +
                            m_want / correction1 / (sqrt(v_want / correction2) + (double)eps));
    tri_bf16 copy = 0;
    EXPECT_OK(kernels.adamw(NULL, &p, &copy, &m, &v, &slopes[step - 1], 1, lr, beta1, beta2, eps,
                            decay, scale, (float)correction1, (float)correction2));
    EXPECT_NEAR(p, p_want, 4 * step * 0x1p-24);
    EXPECT_NEAR(m, m_want, 4 * step * 0x1p-24);
    EXPECT_NEAR(v, v_want, 4 * step * 0x1p-24);
    EXPECT(copy == tri_bf16_from_float(p));
  }
}

// --- dropout

// The count of dropped elements is binomial: five standard deviations.
TEST(dropout_drops_its_share)
{
  enum { N = 1 << 16 };
  static const float rates[] = {0.0f, 0.1f, 0.5f, 0.9f};
  for (size_t r = 0; r < sizeof rates / sizeof rates[0]; r++) {
    const double p = (double)rates[r];
    const tri_dropout dropout = {.p = rates[r], .key = 8, .first_sample = 3};
    int dropped = 0;
    for (int e = 0; e < N; e++) {
      const double factor = tri_cpu_dropout_factor(&dropout, 0, e);
      EXPECT(factor == 0.0 || factor == 1.0 / (1.0 - p));
      dropped += factor == 0.0;
    }
    EXPECT_NEAR(dropped, p * N, 5 * sqrt(p * (1 - p) * N));
  }
}

// A batch of four and the same samples one by one, with their ordinals, over the 2^32 boundary:
// the same bits from every kernel that drops.
TEST(dropout_does_not_depend_on_the_cut)
{
  enum { B = 4, T = 5, H = 2, D = 3, C = H * D, N = B * T * C, ROW = T * C };
  static const int32_t tokens[B * T] = {0, 1, 2, 0, 1, 2, 2, 1, 0, 0, 1, 1, 2, 2, 0, 0, 1, 2, 1, 0};
  const tri_dropout whole = {.p = 0.4f, .key = 5, .first_sample = 0xfffffffeull};
  float wte[3 * C], wpe[T * C], x[N], qkv[3 * N], lse[B * H * T];
  float embedded[N], summed[N], slopes[N], attended[N], part[N], part_lse[H * T];
  fill(1, wte, 3 * C, 1.0f);
  fill(2, wpe, T * C, 1.0f);
  fill(3, x, N, 1.0f);
  fill(4, qkv, 3 * N, 1.0f);
  EXPECT_OK(
      kernels.embedding_forward(NULL, embedded, tokens, wte, wpe, B, T, C, 0, 3, 0, F32, &whole));
  EXPECT_OK(kernels.residual_forward(NULL, summed, x, x, B * T, T, C, F32, &whole));
  EXPECT_OK(kernels.residual_backward(NULL, slopes, x, B * T, T, C, F32, &whole));
  EXPECT_OK(kernels.attention_forward(NULL, attended, lse, qkv, B, T, H, D, F32, &whole));
  for (int b = 0; b < B; b++) {
    const tri_dropout one = {.p = 0.4f, .key = 5, .first_sample = whole.first_sample + (uint64_t)b};
    const size_t bytes = ROW * sizeof(float);
    EXPECT_OK(kernels.embedding_forward(NULL, part, tokens + b * T, wte, wpe, 1, T, C, 0, 3, 0, F32,
                                        &one));
    EXPECT(memcmp(part, embedded + b * ROW, bytes) == 0);
    EXPECT_OK(kernels.residual_forward(NULL, part, x + b * ROW, x + b * ROW, T, T, C, F32, &one));
    EXPECT(memcmp(part, summed + b * ROW, bytes) == 0);
    EXPECT_OK(kernels.residual_backward(NULL, part, x + b * ROW, T, T, C, F32, &one));
    EXPECT(memcmp(part, slopes + b * ROW, bytes) == 0);
    EXPECT_OK(
        kernels.attention_forward(NULL, part, part_lse, qkv + b * 3 * ROW, 1, T, H, D, F32, &one));
    EXPECT(memcmp(part, attended + b * ROW, bytes) == 0);
  }
}

// Rows cut anywhere, with the number of the first: the same bits as all of them at once.
TEST(dropout_of_rows_does_not_depend_on_the_cut)
{
  enum { B = 3, T = 5, C = 7, ROWS = B * T, N = ROWS * C };
  static const int cuts[] = {0, 1, 7, 7, 12, ROWS};
  const tri_dropout whole = {.p = 0.4f, .key = 5, .first_sample = 0xfffffffeull};
  float x[N], w[C], summed[N], slopes[N], normed[N], mean[ROWS], rstd[ROWS], part[N], other[N];
  fill(1, x, N, 1.0f);
  fill(2, w, C, 1.0f);
  EXPECT_OK(kernels.residual_backward(NULL, slopes, x, ROWS, T, C, F32, &whole));
  EXPECT_OK(kernels.residual_layernorm_forward(NULL, summed, normed, mean, rstd, x, x, w, w, ROWS,
                                               T, C, 1e-5f, F32, &whole));
  for (size_t k = 0; k + 1 < sizeof cuts / sizeof cuts[0]; k++) {
    const int row = cuts[k], rows = cuts[k + 1] - row, at = row * C;
    const size_t bytes = (size_t)(rows * C) * sizeof(float);
    tri_dropout cut = whole;
    cut.first = row;
    EXPECT_OK(kernels.residual_forward(NULL, part, x + at, x + at, rows, T, C, F32, &cut));
    EXPECT(memcmp(part, summed + at, bytes) == 0);
    EXPECT_OK(kernels.residual_backward(NULL, part, x + at, rows, T, C, F32, &cut));
    EXPECT(memcmp(part, slopes + at, bytes) == 0);
    EXPECT_OK(kernels.residual_layernorm_forward(NULL, part, other, mean, rstd, x + at, x + at, w,
                                                 w, rows, T, C, 1e-5f, F32, &cut));
    EXPECT(memcmp(part, summed + at, bytes) == 0);
    EXPECT(memcmp(other, normed + at, bytes) == 0);
  }
}

// Of a layer of three heads the last two, with the number of the first: the bits of the layer's.
TEST(dropout_of_heads_does_not_depend_on_the_cut)
{
  enum { B = 2, T = 5, H = 3, D = 3, N = B * T * H * D, FIRST = 1, PART = H - FIRST };
  const tri_dropout whole = {.p = 0.4f, .key = 5, .first_sample = 7};
  const tri_dropout cut = {.p = 0.4f, .key = 5, .first_sample = 7, .first = FIRST};
  float qkv[3 * N], dout[N], out[N], lse[B * H * T], delta[B * H * T], dqkv[3 * N];
  float part_qkv[3 * N], part_dout[N], part_out[N], part_dqkv[3 * N];
  fill(4, qkv, 3 * N, 1.0f);
  fill(5, dout, N, 1.0f);
  const size_t bytes = PART * D * sizeof(float);
  for (int row = 0; row < 3 * B * T; row++)
    memcpy(part_qkv + row * PART * D, qkv + (row * H + FIRST) * D, bytes);
  for (int row = 0; row < B * T; row++)
    memcpy(part_dout + row * PART * D, dout + (row * H + FIRST) * D, bytes);
  EXPECT_OK(kernels.attention_forward(NULL, out, lse, qkv, B, T, H, D, F32, &whole));
  EXPECT_OK(
      kernels.attention_backward(NULL, dqkv, delta, dout, qkv, out, lse, B, T, H, D, F32, &whole));
  EXPECT_OK(kernels.attention_forward(NULL, part_out, lse, part_qkv, B, T, PART, D, F32, &cut));
  EXPECT_OK(kernels.attention_backward(NULL, part_dqkv, delta, part_dout, part_qkv, part_out, lse,
                                       B, T, PART, D, F32, &cut));
  for (int row = 0; row < B * T; row++)
    EXPECT(memcmp(part_out + row * PART * D, out + (row * H + FIRST) * D, bytes) == 0);
  for (int row = 0; row < 3 * B * T; row++)
    EXPECT(memcmp(part_dqkv + row * PART * D, dqkv + (row * H + FIRST) * D, bytes) == 0);
}

// The embedding as ranks share it: each holds a range of the vocabulary (one of them nothing), the
// rows are summed, and each adds positions and drops out on rows of its own. The bits are those of
// one call, since a token's row meets only zeros.
static void check_embedding_in_parts(const tri_dropout *whole)
{
  enum { B = 3, T = 5, C = 7, ROWS = B * T, N = ROWS * C, V = 11, POSITION = 2 };
  static const int ranges[] = {0, 4, 4, 5, V}, cuts[] = {0, 2, 9, ROWS};
  int32_t tokens[ROWS];
  float wte[V * C], wpe[(POSITION + T) * C], want[N], part[N], sum[N] = {0};
  fill(1, wte, V * C, 1.0f);
  fill(2, wpe, (POSITION + T) * C, 1.0f);
  for (int i = 0; i < ROWS; i++)
    tokens[i] = i * 3 % V;
  EXPECT_OK(
      kernels.embedding_forward(NULL, want, tokens, wte, wpe, B, T, C, 0, V, POSITION, F32, whole));
  for (int k = 0; k < 4; k++) {
    EXPECT_OK(kernels.embedding_forward(NULL, part, tokens, wte + ranges[k] * C, NULL, B, T, C,
                                        ranges[k], ranges[k + 1] - ranges[k], 0, F32, NULL));
    EXPECT_OK(kernels.add(NULL, sum, sum, part, N));
  }
  for (int k = 0; k < 3; k++) {
    tri_dropout cut = *whole;
    cut.first = cuts[k];
    float *rows = sum + cuts[k] * C;
    EXPECT_OK(kernels.positions_forward(NULL, rows, rows, wpe, cuts[k + 1] - cuts[k], T, C,
                                        POSITION, F32, &cut));
  }
  EXPECT(memcmp(sum, want, sizeof want) == 0);
}

TEST(embedding_in_parts_has_the_bits_of_the_whole)
{
  check_embedding_in_parts(&(tri_dropout){.p = 0.4f, .key = 5, .first_sample = 0xfffffffeull});
  check_embedding_in_parts(&(tri_dropout){.p = 0.0f});
}

// And its gradient: positions of each one's rows, then tokens of each one's range. What dx is
// rounded to before it is added, and the order in dwpe, are all that differs: of sums of at most 15
// terms below 2, three roundings a term.
TEST(embedding_gradient_in_parts_is_that_of_the_whole)
{
  enum { B = 3, T = 5, C = 7, ROWS = B * T, N = ROWS * C, V = 11 };
  static const int ranges[] = {0, 4, 4, 5, V}, cuts[] = {0, 2, 9, ROWS};
  const tri_dropout whole = {.p = 0.4f, .key = 5, .first_sample = 0xfffffffeull};
  int32_t tokens[ROWS];
  float dout[N], dx[N], dwte[V * C] = {0}, dwpe[T * C] = {0}, dwte_sum[V * C] = {0};
  float dwpe_sum[T * C] = {0};
  fill(3, dout, N, 1.0f);
  for (int i = 0; i < ROWS; i++)
    tokens[i] = i * i % V;
  EXPECT_OK(kernels.embedding_backward(NULL, dwte, dwpe, dout, tokens, B, T, C, 0, V, F32, &whole));
  for (int k = 0; k < 3; k++) {
    tri_dropout cut = whole;
    cut.first = cuts[k];
    const int at = cuts[k] * C;
    EXPECT_OK(kernels.positions_backward(NULL, dx + at, dwpe_sum, dout + at, cuts[k + 1] - cuts[k],
                                         T, C, F32, &cut));
  }
  for (int k = 0; k < 4; k++)
    EXPECT_OK(kernels.embedding_backward(NULL, dwte_sum + ranges[k] * C, NULL, dx, tokens, B, T, C,
                                         ranges[k], ranges[k + 1] - ranges[k], F32, NULL));
  EXPECT(memcmp(dwpe_sum, dwpe, sizeof dwpe) == 0); // the rows came in the same order
  for (int i = 0; i < V * C; i++)
    EXPECT_NEAR(dwte_sum[i], dwte[i], 3 * ROWS * 2 * 0x1p-24);
}

// --- bf16

// The same numbers in f32 and in bf16: the outputs differ by the last rounding alone, half an ulp
// of bf16 (and half an ulp of f32).
static void expect_rounded(const float *f32, const tri_bf16 *bf16, int n)
{
  for (int i = 0; i < n; i++) {
    const double want = (double)f32[i];
    EXPECT_NEAR(tri_bf16_to_float(bf16[i]), want, (0x1p-8 + 0x1p-22) * fabs(want) + 1e-38);
  }
}

TEST(bf16_is_f32_rounded_once)
{
  enum { B = 2, T = 6, H = 2, D = 5, C = H * D, N = B * T * C };
  float x[3 * N], w[C * C], bias[C], out[N], more[N], lse[B * H * T], mean[B * T], rstd[B * T];
  tri_bf16 x16[3 * N], w16[C * C], bias16[C], out16[N], more16[N];
  fill(1, x, 3 * N, 1.0f);
  fill(2, w, C * C, 1.0f);
  fill(3, bias, C, 1.0f);
  EXPECT_OK(kernels.convert(NULL, x16, BF16, x, F32, 3 * N));
  EXPECT_OK(kernels.convert(NULL, w16, BF16, w, F32, C * C));
  EXPECT_OK(kernels.convert(NULL, bias16, BF16, bias, F32, C));
  EXPECT_OK(kernels.convert(NULL, x, F32, x16, BF16, 3 * N));
  EXPECT_OK(kernels.convert(NULL, w, F32, w16, BF16, C * C));
  EXPECT_OK(kernels.convert(NULL, bias, F32, bias16, BF16, C));

  EXPECT_OK(kernels.layernorm_forward(NULL, out, mean, rstd, x, w, bias, B * T, C, 1e-5f, F32));
  EXPECT_OK(
      kernels.layernorm_forward(NULL, out16, mean, rstd, x16, w16, bias16, B * T, C, 1e-5f, BF16));
  expect_rounded(out, out16, N);
  EXPECT_OK(kernels.linear_forward(NULL, out, NULL, x, w, bias, B * T, C, C, F32));
  EXPECT_OK(kernels.linear_forward(NULL, out16, more16, x16, w16, bias16, B * T, C, C, BF16));
  expect_rounded(out, out16, N);
  EXPECT_OK(kernels.linear_backward_input(NULL, more, x, w, x + N, B * T, C, C, F32));
  EXPECT_OK(kernels.linear_backward_input(NULL, more16, x16, w16, x16 + N, B * T, C, C, BF16));
  expect_rounded(more, more16, N);
  EXPECT_OK(kernels.attention_forward(NULL, out, lse, x, B, T, H, D, F32, NULL));
  EXPECT_OK(kernels.attention_forward(NULL, out16, lse, x16, B, T, H, D, BF16, NULL));
  expect_rounded(out, out16, N);
}

int main(void)
{
  tri_cpu_reference_kernels(&kernels);
  TEST_RUN(doubles_round_once_to_bf16);
  TEST_RUN(sums_are_of_the_right_elements);
  TEST_RUN(gelu_known_values);
  TEST_RUN(attention_rows_are_naive_softmax);
  TEST_RUN(decode_is_the_last_row_of_attention);
  TEST_RUN(padding_takes_no_part_in_the_loss);
  TEST_RUN(large_logits_do_not_overflow);
  TEST_RUN(cross_entropy_in_parts_is_that_of_the_whole);
  TEST_RUN(adamw_is_the_published_rule);
  TEST_RUN(dropout_drops_its_share);
  TEST_RUN(dropout_does_not_depend_on_the_cut);
  TEST_RUN(dropout_of_rows_does_not_depend_on_the_cut);
  TEST_RUN(dropout_of_heads_does_not_depend_on_the_cut);
  TEST_RUN(embedding_in_parts_has_the_bits_of_the_whole);
  TEST_RUN(embedding_gradient_in_parts_is_that_of_the_whole);
  TEST_RUN(bf16_is_f32_rounded_once);
  return test_end();
}
