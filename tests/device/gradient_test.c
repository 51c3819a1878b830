// Gradients of the reference kernels against central differences of a second, naive statement of
// each forward formula, all in double.
//
// The loss is sum(out * r) with random r. Differences over 2 H have an error of H^2 times the third
// derivative and of 1e-16 / H times the loss, both below 1e-9 here, so what is left is the kernels'
// rounding when they store: TOLERANCE allows 16 half-ulps of f32 for gradients of size up to 1,
// times the size of larger ones.
#include <math.h>

#include "device/cpu/cpu.h"
#include "test.h"
#include "trireme/base/random.h"

static const double H = 1e-5;
static const double TOLERANCE = 16 * 0x1p-24;
static const tri_dtype F32 = TRI_DTYPE_F32;

static tri_kernels kernels;

static const tri_dropout no_dropout = {0};
static const tri_dropout some_dropout = {.p = 0.3f, .key = 99, .first_sample = 0xffffffffull};

// n numbers in [-1, 1], exact in f32: as the kernels get them and as the formulas do.
static void fill(uint64_t key, float *x, double *x_double, int n)
{
  for (int i = 0; i < n; i++) {
    x[i] = (float)(2.0 * tri_random_uniform(key, (uint64_t)i) - 1.0);
    if (x_double != NULL) x_double[i] = (double)x[i];
  }
}

// The contract of tri_dropout, restated.
static double keep(const tri_dropout *dropout, int sample, int e)
{
  const uint64_t s = dropout->first_sample + (uint64_t)sample;
  const uint32_t counter[4] = {(uint32_t)(e / 4), 0, (uint32_t)s, (uint32_t)(s >> 32)};
  uint32_t words[4];
  tri_random_philox(dropout->key, counter, words);
  const bool dropped = words[e % 4] < floor((double)dropout->p * 4294967296.0);
  return dropped ? 0.0 : 1.0 / (1.0 - (double)dropout->p);
}

static double weigh(const double *out, const float *r, int n)
{
  double loss = 0.0;
  for (int i = 0; i < n; i++)
    loss += out[i] * (double)r[i];
  return loss;
}

// d loss / d x against `slope`, element by element.
static void expect_gradient(double (*loss)(void), double *x, const float *slope, int n)
{
  for (int i = 0; i < n; i++) {
    const double here = x[i];
    x[i] = here + H;
    const double above = loss();
    x[i] = here - H;
    const double below = loss();
    x[i] = here;
    const double want = (above - below) / (2 * H);
    EXPECT_NEAR(slope[i], want, TOLERANCE * (1.0 + fabs(want)));
  }
}

static void expect_same(const float *got, const double *want, int n)
{
  for (int i = 0; i < n; i++)
    EXPECT_NEAR(got[i], want[i], TOLERANCE * (1.0 + fabs(want[i])));
}

// --- embedding: B T C V

enum { EB = 2, ET = 3, EC = 5, EV = 4, E_FIRST = 2, EN = EB * ET * EC };

static const int32_t e_tokens[EB * ET] = {1, 3, 1, 1, 0, 3};
static double e_wte[EV * EC], e_wpe[(E_FIRST + ET) * EC], e_out[EN];
static float e_r[EN];

static double embedding_loss(void)
{
  for (int i = 0; i < EN; i++) {
    const int b = i / (ET * EC), t = i / EC % ET, c = i % EC;
    e_out[i] = keep(&some_dropout, b, t * EC + c) *
               (e_wte[e_tokens[b * ET + t] * EC + c] + e_wpe[(E_FIRST + t) * EC + c]);
  }
  return weigh(e_out, e_r, EN);
}

TEST(embedding_gradient)
{
  float wte[EV * EC], wpe[(E_FIRST + ET) * EC], out[EN], dwte[EV * EC] = {0}, dwpe[ET * EC] = {0};
  fill(1, wte, e_wte, EV * EC);
  fill(2, wpe, e_wpe, (E_FIRST + ET) * EC);
  fill(3, e_r, NULL, EN);
  EXPECT_OK(kernels.embedding_forward(NULL, out, e_tokens, wte, wpe, EB, ET, EC, 0, EV, E_FIRST,
                                      F32, &some_dropout));
  EXPECT_OK(kernels.embedding_backward(NULL, dwte, dwpe, e_r, e_tokens, EB, ET, EC, 0, EV, F32,
                                       &some_dropout));
  (void)embedding_loss();
  expect_same(out, e_out, EN);
  expect_gradient(embedding_loss, e_wte, dwte, EV * EC);
  expect_gradient(embedding_loss, e_wpe + E_FIRST * EC, dwpe, ET * EC);
}

// --- x + dropout(delta), then layer norm: both outputs count, as in a block of a model

enum { NB = 2, NT = 2, NC = 7, NR = NB * NT, NN = NR * NC };

static const float n_eps = 1e-3f;
static const tri_dropout *n_dropout;
static double n_x[NN], n_delta[NN], n_w[NC], n_b[NC], n_residual[NN], n_out[NN];
static float n_r[NN], n_r_residual[NN];

static double norm_loss(void)
{
  for (int i = 0; i < NN; i++) {
    const int sample = i / (NT * NC), e = i % (NT * NC);
    n_residual[i] = n_x[i] + keep(n_dropout, sample, e) * n_delta[i];
  }
  for (int n = 0; n < NR; n++) {
    double mean = 0.0, square = 0.0;
    for (int c = 0; c < NC; c++)
      mean += n_residual[n * NC + c] / NC;
    for (int c = 0; c < NC; c++)
      square += pow(n_residual[n * NC + c] - mean, 2) / NC;
    for (int c = 0; c < NC; c++)
      n_out[n * NC + c] =
          (n_residual[n * NC + c] - mean) / sqrt(square + (double)n_eps) * n_w[c] + n_b[c];
  }
  return weigh(n_out, n_r, NN) + weigh(n_residual, n_r_residual, NN);
}

static void check_norm(const tri_dropout *dropout)
{
  float x[NN], delta[NN], w[NC], b[NC], residual[NN], out[NN], mean[NR], rstd[NR];
  float dx[NN], ddelta[NN], dw[NC] = {0}, db[NC] = {0};
  n_dropout = dropout;
  fill(1, x, n_x, NN);
  fill(2, delta, n_delta, NN);
  fill(3, w, n_w, NC);
  fill(4, b, n_b, NC);
  fill(5, n_r, NULL, NN);
  fill(6, n_r_residual, NULL, NN);
  EXPECT_OK(kernels.residual_layernorm_forward(NULL, residual, out, mean, rstd, x, delta, w, b, NR,
                                               NT, NC, n_eps, F32, dropout));
  memcpy(dx, n_r_residual, sizeof dx);
  EXPECT_OK(
      kernels.layernorm_backward(NULL, dx, dw, db, n_r, residual, w, mean, rstd, NR, NC, F32));
  EXPECT_OK(kernels.residual_backward(NULL, ddelta, dx, NR, NT, NC, F32, dropout));
  (void)norm_loss();
  expect_same(residual, n_residual, NN);
  expect_same(out, n_out, NN);
  expect_gradient(norm_loss, n_x, dx, NN);
  expect_gradient(norm_loss, n_delta, ddelta, NN);
  expect_gradient(norm_loss, n_w, dw, NC);
  expect_gradient(norm_loss, n_b, db, NC);
}

TEST(residual_layernorm_gradient)
{
  check_norm(&some_dropout);
}

// The plain norm is the same formula with delta = 0 and no weight on the residual.
TEST(layernorm_gradient)
{
  float x[NN], w[NC], b[NC], out[NN], mean[NR], rstd[NR], dx[NN] = {0}, dw[NC] = {0}, db[NC] = {0};
  n_dropout = &no_dropout;
  fill(7, x, n_x, NN);
  fill(8, w, n_w, NC);
  fill(9, b, n_b, NC);
  fill(10, n_r, NULL, NN);
  memset(n_delta, 0, sizeof n_delta);
  memset(n_r_residual, 0, sizeof n_r_residual);
  EXPECT_OK(kernels.layernorm_forward(NULL, out, mean, rstd, x, w, b, NR, NC, n_eps, F32));
  EXPECT_OK(kernels.layernorm_backward(NULL, dx, dw, db, n_r, x, w, mean, rstd, NR, NC, F32));
  (void)norm_loss();
  expect_same(out, n_out, NN);
  expect_gradient(norm_loss, n_x, dx, NN);
  expect_gradient(norm_loss, n_w, dw, NC);
  expect_gradient(norm_loss, n_b, db, NC);
}

// --- two linear layers with GELU between: w2 gelu(w1 x + b1) + b2

enum { LN = 3, LI = 4, LH = 5, LO = 3 };

static double l_x[LN * LI], l_w1[LH * LI], l_b1[LH], l_w2[LO * LH], l_b2[LO];
static double l_gelu[LN * LH], l_out[LN * LO];
static float l_r[LN * LO];

static double linear_loss(void)
{
  for (int n = 0; n < LN; n++) {
    for (int h = 0; h < LH; h++) {
      double y = l_b1[h];
      for (int i = 0; i < LI; i++)
        y += l_x[n * LI + i] * l_w1[h * LI + i];
      l_gelu[n * LH + h] = 0.5 * y * (1.0 + tanh(sqrt(2.0 / M_PI) * (y + 0.044715 * pow(y, 3))));
    }
    for (int o = 0; o < LO; o++) {
      l_out[n * LO + o] = l_b2[o];
      for (int h = 0; h < LH; h++)
        l_out[n * LO + o] += l_gelu[n * LH + h] * l_w2[o * LH + h];
    }
  }
  return weigh(l_out, l_r, LN * LO);
}

TEST(linear_gelu_gradient)
{
  float x[LN * LI], w1[LH * LI], b1[LH], w2[LO * LH], b2[LO];
  float pre[LN * LH], gelu[LN * LH], out[LN * LO];
  float dpre[LN * LH], dx[LN * LI], dw1[LH * LI] = {0}, db1[LH] = {0}, dw2[LO * LH] = {0};
  float db2[LO] = {0};
  fill(1, x, l_x, LN * LI);
  fill(2, w1, l_w1, LH * LI);
  fill(3, b1, l_b1, LH);
  fill(4, w2, l_w2, LO * LH);
  fill(5, b2, l_b2, LO);
  fill(6, l_r, NULL, LN * LO);
  EXPECT_OK(kernels.linear_forward(NULL, pre, gelu, x, w1, b1, LN, LI, LH, F32));
  EXPECT_OK(kernels.linear_forward(NULL, out, NULL, gelu, w2, b2, LN, LH, LO, F32));
  EXPECT_OK(kernels.linear_backward_weight(NULL, dw2, db2, l_r, gelu, LN, LH, LO, F32));
  EXPECT_OK(kernels.linear_backward_input(NULL, dpre, l_r, w2, pre, LN, LH, LO, F32));
  EXPECT_OK(kernels.linear_backward_weight(NULL, dw1, db1, dpre, x, LN, LI, LH, F32));
  EXPECT_OK(kernels.linear_backward_input(NULL, dx, dpre, w1, NULL, LN, LI, LH, F32));
  (void)linear_loss();
  expect_same(gelu, l_gelu, LN * LH);
  expect_same(out, l_out, LN * LO);
  expect_gradient(linear_loss, l_x, dx, LN * LI);
  expect_gradient(linear_loss, l_w1, dw1, LH * LI);
  expect_gradient(linear_loss, l_b1, db1, LH);
  expect_gradient(linear_loss, l_w2, dw2, LO * LH);
  expect_gradient(linear_loss, l_b2, db2, LO);
}

// --- attention, with the (T, T) matrix of one row written out

enum { AB = 2, AT = 5, AH = 2, AD = 3, AQ = AB * AT * 3 * AH * AD, AO = AB * AT * AH * AD };

static const tri_dropout *a_dropout;
static double a_qkv[AQ], a_out[AO], a_lse[AB * AH * AT];
static float a_r[AO];

static double attention_element(int b, int t, int which, int h, int d)
{
  return a_qkv[(((b * AT + t) * 3 + which) * AH + h) * AD + d];
}

static void attention_row(int b, int h, int t)
{
  double p[AT], sum = 0.0;
  for (int j = 0; j <= t; j++) {
    double score = 0.0;
    for (int d = 0; d < AD; d++)
      score += attention_element(b, t, 0, h, d) * attention_element(b, j, 1, h, d);
    p[j] = exp(score / sqrt(AD));
    sum += p[j];
  }
  a_lse[(b * AH + h) * AT + t] = log(sum);
  for (int d = 0; d < AD; d++) {
    double value = 0.0;
    for (int j = 0; j <= t; j++)
      value +=
          p[j] / sum * keep(a_dropout, b, (h * AT + t) * AT + j) * attention_element(b, j, 2, h, d);
    a_out[((b * AT + t) * AH + h) * AD + d] = value;
  }
}

static double attention_loss(void)
{
  for (int b = 0; b < AB; b++)
    for (int h = 0; h < AH; h++)
      for (int t = 0; t < AT; t++)
        attention_row(b, h, t);
  return weigh(a_out, a_r, AO);
}

static void check_attention(const tri_dropout *dropout)
{
  float qkv[AQ], out[AO], lse[AB * AH * AT], delta[AB * AH * AT], dqkv[AQ];
  a_dropout = dropout;
  fill(1, qkv, a_qkv, AQ);
  fill(2, a_r, NULL, AO);
  EXPECT_OK(kernels.attention_forward(NULL, out, lse, qkv, AB, AT, AH, AD, F32, dropout));
  EXPECT_OK(kernels.attention_backward(NULL, dqkv, delta, a_r, qkv, out, lse, AB, AT, AH, AD, F32,
                                       dropout));
  (void)attention_loss();
  expect_same(out, a_out, AO);
  expect_same(lse, a_lse, AB * AH * AT);
  expect_gradient(attention_loss, a_qkv, dqkv, AQ);
}

TEST(attention_gradient)
{
  check_attention(&no_dropout);
}

TEST(attention_gradient_with_dropout)
{
  check_attention(&some_dropout);
}

// --- cross entropy: row 1 is ignored, columns 6 and 7 are padding

enum { CN = 3, CV = 6, CP = 8 };

static const int32_t c_targets[CN] = {2, -1, 5};
static double c_logits[CN * CP], c_losses[CN];

static double cross_entropy_loss(void)
{
  double loss = 0.0;
  for (int n = 0; n < CN; n++) {
    double sum = 0.0;
    for (int v = 0; v < CV; v++)
      sum += exp(c_logits[n * CP + v]);
    c_losses[n] = c_targets[n] == -1 ? 0.0 : log(sum) - c_logits[n * CP + c_targets[n]];
    loss += 0.25 * c_losses[n];
  }
  return loss;
}

TEST(cross_entropy_gradient)
{
  float logits[CN * CP], losses[CN], losses_again[CN];
  fill(1, logits, c_logits, CN * CP);
  EXPECT_OK(kernels.cross_entropy_forward(NULL, losses, logits, c_targets, CN, CV, CP, F32));
  EXPECT_OK(kernels.cross_entropy_backward(NULL, losses_again, logits, c_targets, 0.25f, CN, CV, CP,
                                           F32));
  (void)cross_entropy_loss();
  expect_same(losses, c_losses, CN);
  EXPECT(memcmp(losses, losses_again, sizeof losses) == 0);
  expect_gradient(cross_entropy_loss, c_logits, logits, CN * CP);
}

// --- what "adds" means: the same call again doubles the sum, and rounds once more

static void expect_doubled(const float *once, const float *twice, int n)
{
  for (int i = 0; i < n; i++)
    EXPECT_NEAR(twice[i], 2 * (double)once[i], 2 * 0x1p-24 * fabs((double)twice[i]));
}

TEST(gradients_are_added)
{
  enum { N = 3, C = 4, OC = 5 };
  static const int32_t tokens[N] = {1, 0, 1};
  float x[N * C], w[C], dout[N * OC], mean[N], rstd[N], out[N * C];
  float dx[2][N * C] = {0}, dw[2][C] = {0}, db[2][C] = {0};
  float dwte[2][2 * C] = {0}, dwpe[2][N * C] = {0}, dweight[2][OC * C] = {0}, dbias[2][OC] = {0};
  fill(1, x, NULL, N * C);
  fill(2, w, NULL, C);
  fill(3, dout, NULL, N * OC);
  EXPECT_OK(kernels.layernorm_forward(NULL, out, mean, rstd, x, w, w, N, C, n_eps, F32));
  for (int call = 0; call < 3; call++) {
    const int k = call > 0;
    EXPECT_OK(
        kernels.layernorm_backward(NULL, dx[k], dw[k], db[k], dout, x, w, mean, rstd, N, C, F32));
    EXPECT_OK(
        kernels.embedding_backward(NULL, dwte[k], dwpe[k], dout, tokens, 1, N, C, 0, 2, F32, NULL));
    EXPECT_OK(kernels.linear_backward_weight(NULL, dweight[k], dbias[k], dout, x, N, C, OC, F32));
  }
  expect_doubled(dx[0], dx[1], N * C);
  expect_doubled(dw[0], dw[1], C);
  expect_doubled(db[0], db[1], C);
  expect_doubled(dwpe[0], dwpe[1], N * C);
  expect_doubled(dweight[0], dweight[1], OC * C);
  expect_doubled(dbias[0], dbias[1], OC);
  // Row 0 of dwte has one term; row 1 has two, whose sum is rounded between.
  expect_doubled(dwte[0], dwte[1], C);
}

int main(void)
{
  tri_cpu_reference_kernels(&kernels);
  TEST_RUN(embedding_gradient);
  TEST_RUN(layernorm_gradient);
  TEST_RUN(residual_layernorm_gradient);
  TEST_RUN(linear_gelu_gradient);
  TEST_RUN(attention_gradient);
  TEST_RUN(attention_gradient_with_dropout);
  TEST_RUN(cross_entropy_gradient);
  TEST_RUN(gradients_are_added);
  return test_end();
}
