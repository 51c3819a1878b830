// Shapes, counts, layout and initial values of GPT parameters.
#include <math.h>

#include "nn/gpt_rig.h"

// Published counts, the same with the vocabulary padded to 50,304, and the model flops per token at
// T = 1024 with padding, by 6N + 6LCT.
static const struct {
  const char *name;
  int64_t parameters, padded;
  double gflops;
} published[] = {
    {"gpt2-124M", 124439808, 124475904, 0.803479},
    {"gpt2-355M", 354823168, 354871296, 2.280223},
    {"gpt2-774M", 774030080, 774090240, 4.927657},
    {"gpt2-1558M", 1557611200, 1557686400, 9.817978},
};

TEST(published_counts_and_flops)
{
  for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
    tri_gpt_config config;
    tri_model *model = NULL;
    EXPECT(tri_gpt_named_shape(published[i].name, &config));
    EXPECT_OK(tri_gpt_create(&config, published[i].name, &model));
    if (model == NULL) continue;
    int64_t padded = 0;
    for (int p = 0; p < model->parameters.n; p++)
      padded += model->parameters.list[p].count;
    EXPECT(model->parameters.logical_count == published[i].parameters);
    EXPECT(padded == published[i].padded);
    const char *convention = NULL;
    const double flops = model->operations->flops_per_token(model, 1024, &convention);
    EXPECT_NEAR(flops * 1e-9, published[i].gflops, 0.5e-6);
    EXPECT(strstr(convention, "6N + 6LCT") != NULL);
    EXPECT(strcmp(model->name, published[i].name) == 0);
    tri_model_destroy(&model);
    EXPECT(model == NULL);
  }
  tri_gpt_config untouched = {.width = 7};
  EXPECT(!tri_gpt_named_shape("gpt2-125M", &untouched) && untouched.width == 7);
}

static const tri_gpt_config small = {.n_layers = 3,
                                     .n_heads = 4,
                                     .width = 20,
                                     .context = 11,
                                     .vocab_size = 65,
                                     .vocab_multiple = 64,
                                     .dtype = TRI_DTYPE_F32};

TEST(flat_space_is_in_block_order_and_aligned)
{
  tri_model *model = NULL;
  EXPECT_OK(tri_gpt_create(&small, "small", &model));
  EXPECT(model->n_blocks == 5 && model->width == 20 && model->max_context == 11);
  int64_t end = 0, logical = 0;
  int block = 0;
  for (int i = 0; i < model->parameters.n; i++) {
    const tri_parameter *p = &model->parameters.list[i];
    EXPECT(p->offset >= end && p->offset % TRI_PARAMETER_ALIGN == 0);
    EXPECT(p->block == block || p->block == block + 1);
    EXPECT(p->offset - end < (p->block == block ? TRI_PARAMETER_ALIGN : TRI_NORM_CHUNK));
    EXPECT(p->block == block || p->offset % TRI_NORM_CHUNK == 0);
    EXPECT(p->block == block || p->offset == model->parameters.offsets[p->block]);
    EXPECT(p->decay == (p->shape.n_axes == 2));
    EXPECT(p->count >= tri_box_elements(&p->box));
    EXPECT(tri_parameters_find(&model->parameters, p->name) == p);
    end = p->offset + p->count;
    block = p->block;
    logical += tri_shape_elements(&p->shape);
  }
  EXPECT(block == 4);
  EXPECT(logical == model->parameters.logical_count && end <= model->parameters.flat_count);
  const int64_t L = 3, C = 20, V = 65, T = 11;
  EXPECT(logical == V * C + T * C + L * (12 * C * C + 13 * C) + 2 * C);
  const tri_parameter *wte = tri_parameters_find(&model->parameters, "wte.weight");
  EXPECT(wte->block == 0 && wte->count == 128 * C && tri_shape_elements(&wte->shape) == V * C);
  const tri_parameter *fc = tri_parameters_find(&model->parameters, "h.2.mlp.c_fc.weight");
  EXPECT(fc->block == 3 && fc->shape.extent[0] == 4 * C && fc->shape.extent[1] == C);
  EXPECT(tri_parameters_find(&model->parameters, "h.3.mlp.c_fc.weight") == NULL);
  tri_model_destroy(&model);
}

// A copy that holds some blocks only has the arrays that a whole one has there, in the same order,
// and knows where they lie in the whole.
static void expect_part(const tri_model *whole, const bool *blocks)
{
  const tri_model_part part = {.blocks = blocks};
  tri_gpt_config config = small;
  config.part = &part;
  tri_model *model = NULL;
  EXPECT_OK(tri_gpt_create(&config, "part", &model));
  if (model == NULL) return;
  const tri_parameters *all = &whole->parameters, *own = &model->parameters;
  int held = 0;
  for (int i = 0; i < all->n; i++) {
    const tri_parameter *wanted = &all->list[i];
    if (!blocks[wanted->block]) continue;
    const tri_parameter *p = &own->list[held++];
    EXPECT(strcmp(p->name, wanted->name) == 0 && p->count == wanted->count);
    EXPECT(p->offset - own->offsets[p->block] == wanted->offset - all->offsets[p->block]);
  }
  EXPECT(own->n == held && own->logical_count == all->logical_count);
  for (int b = 0; b <= model->n_blocks; b++) {
    EXPECT(own->whole_offsets[b] == all->offsets[b] && own->offsets[b] % TRI_NORM_CHUNK == 0);
    if (b == model->n_blocks) break;
    const int64_t wanted = blocks[b] ? all->offsets[b + 1] - all->offsets[b] : 0;
    EXPECT(own->offsets[b + 1] - own->offsets[b] == wanted);
  }
  const int64_t tied = blocks[model->n_blocks - 1] ? all->list[all->tied].count : 0;
  EXPECT((own->tied >= 0) == blocks[0] && own->tied_count == tied);
  EXPECT(tri_parameters_gradient_count(own) == own->flat_count + tied);
  EXPECT(tri_parameters_weight_count(own) == own->flat_count + (blocks[0] ? 0 : tied));
  const char *convention = NULL;
  EXPECT(model->operations->flops_per_token(model, 7, &convention) ==
         whole->operations->flops_per_token(whole, 7, &convention));
  tri_model_destroy(&model);
}

TEST(a_part_holds_the_arrays_of_its_blocks)
{
  enum { N = 5 };
  tri_model *whole = NULL;
  EXPECT_OK(tri_gpt_create(&small, "whole", &whole));
  EXPECT(tri_gpt_blocks(small.n_layers) == N && whole->n_blocks == N);
  for (int bits = 0; bits < 1 << N; bits++) {
    bool blocks[N];
    for (int b = 0; b < N; b++)
      blocks[b] = (bits >> b & 1) != 0;
    expect_part(whole, blocks);
  }
  tri_model_destroy(&whole);
}

// Adds to `covered` where a share holds elements of an array, and checks their initial values
// against those of the whole (count).
static void expect_share(const tri_parameter *p, const tri_parameter *whole, const float *values,
                         int *covered)
{
  const int64_t columns = whole->shape.n_axes == 1 ? 1 : whole->shape.extent[1];
  float *held = malloc((size_t)p->count * sizeof *held);
  int64_t at = 0;
  int wrong = 0;
  tri_parameter_initialize(p, 3, held);
  for (int k = 0; k < p->n_boxes; k++) {
    const tri_box box = tri_parameter_box(p, k);
    const int64_t n = box.n_axes == 1 ? 1 : box.count[1],
                  first = box.n_axes == 1 ? 0 : box.start[1];
    for (int64_t i = 0; i < box.count[0]; i++) {
      for (int64_t j = 0; j < n; j++, at++) {
        const int64_t element = (box.start[0] + i) * columns + first + j;
        wrong += held[at] != values[element];
        covered[element]++;
      }
    }
  }
  for (; at < p->count; at++)
    wrong += held[at] != 0.0f;
  EXPECT(wrong == 0);
  free(held);
}

static tri_model *share_of(int share, int n_shares)
{
  const tri_model_part part = {.share = share, .n_shares = n_shares};
  tri_gpt_config config = small;
  config.part = &part;
  tri_model *model = NULL;
  EXPECT_OK(tri_gpt_create(&config, "share", &model));
  return model;
}

// Of every array the shares hold each element once if it is split, else each of them all.
static void expect_shares(int n_shares)
{
  tri_model *whole = share_of(0, 1), *shares[4];
  for (int s = 0; s < n_shares; s++) {
    shares[s] = share_of(s, n_shares);
    EXPECT(shares[s]->parameters.n == whole->parameters.n);
    EXPECT(shares[s]->parameters.flat_count == shares[0]->parameters.flat_count);
  }
  for (int i = 0; i < whole->parameters.n; i++) {
    const tri_parameter *p = &whole->parameters.list[i];
    const int64_t n = tri_shape_elements(&p->shape);
    float *values = malloc((size_t)p->count * sizeof *values);
    int *covered = calloc((size_t)n, sizeof *covered), wrong = 0;
    tri_parameter_initialize(p, 3, values);
    for (int s = 0; s < n_shares; s++)
      expect_share(&shares[s]->parameters.list[i], p, values, covered);
    const int wanted = shares[0]->parameters.list[i].split ? 1 : n_shares;
    for (int64_t e = 0; e < n; e++)
      wrong += covered[e] != wanted;
    EXPECT(wrong == 0);
    EXPECT(shares[0]->parameters.list[i].split ==
               (p->decay && strcmp(p->name, "wpe.weight") != 0) ||
           strstr(p->name, "c_attn.bias") != NULL || strstr(p->name, "c_fc.bias") != NULL);
    free(covered);
    free(values);
  }
  for (int s = 0; s < n_shares; s++)
    tri_model_destroy(&shares[s]);
  tri_model_destroy(&whole);
}

TEST(shares_make_the_whole)
{
  expect_shares(2);
  expect_shares(4);
  const tri_model_part part = {.share = 0, .n_shares = 3};
  tri_gpt_config config = small;
  config.part = &part;
  tri_model *model = NULL;
  EXPECT_ERROR(TRI_ERR_CONFIG, "the shares must divide the heads",
               tri_gpt_create(&config, "thirds", &model));
}

TEST(initial_values_are_as_published)
{
  tri_model *model = NULL;
  EXPECT_OK(tri_gpt_create(&small, "small", &model));
  for (int i = 0; i < model->parameters.n; i++) {
    const tri_parameter *p = &model->parameters.list[i];
    float *values = malloc((size_t)p->count * sizeof *values);
    memset(values, 0x42, (size_t)p->count * sizeof *values);
    tri_parameter_initialize(p, 5, values);
    const int64_t n = tri_shape_elements(&p->shape);
    double sum = 0.0, squares = 0.0;
    for (int64_t e = 0; e < n; e++) {
      sum += values[e];
      squares += (double)values[e] * values[e];
    }
    for (int64_t e = n; e < p->count; e++)
      EXPECT(values[e] == 0.0f);
    const bool residual = strstr(p->name, "c_proj.weight") != NULL;
    const double std = residual ? 0.02 / sqrt(6.0) : 0.02;
    if (p->shape.n_axes == 2) {
      // Five standard errors of a mean and of a variance.
      EXPECT_NEAR(sum / (double)n, 0.0, 5 * std / sqrt((double)n));
      EXPECT_NEAR(squares / (double)n, std * std, 5 * std * std * sqrt(2.0 / (double)n));
    } else {
      const double one = strstr(p->name, "ln_") != NULL && strstr(p->name, "weight") != NULL;
      EXPECT(sum == one * (double)n && squares == one * (double)n);
    }
    free(values);
  }
  tri_model_destroy(&model);
}

// Any part of an array, wherever it lies in the flat space, has the bits that the whole has there.
TEST(initial_values_do_not_depend_on_box_or_offset)
{
  enum { ROWS = 1000, COLUMNS = 257 };
  tri_parameter whole = {.name = "h.0.mlp.c_fc.weight",
                         .shape = tri_shape_2d(ROWS, COLUMNS),
                         .n_boxes = 1,
                         .count = ROWS * COLUMNS,
                         .init = TRI_INIT_NORMAL,
                         .init_std = 0.02f};
  whole.box = tri_box_all(&whole.shape);
  float *all = malloc(ROWS * COLUMNS * sizeof *all);
  float *part = malloc((ROWS + 3) * COLUMNS * sizeof *part);
  tri_parameter_initialize(&whole, 9, all);
  static const int64_t boxes[][4] = {{0, 0, 1000, 257}, {1, 0, 999, 257},  {0, 3, 1000, 31},
                                     {31, 32, 33, 1},   {999, 256, 1, 1},  {0, 0, 0, 257},
                                     {5, 7, 500, 250},  {257, 0, 600, 257}};
  for (size_t b = 0; b < sizeof boxes / sizeof boxes[0]; b++) {
    tri_parameter held = whole;
    held.box = (tri_box){2, {boxes[b][0], boxes[b][1]}, {boxes[b][2], boxes[b][3]}};
    held.offset = 64 * (int64_t)b;
    held.count = (boxes[b][2] + 2) * boxes[b][3]; // two rows of padding
    memset(part, 0x42, (ROWS + 3) * COLUMNS * sizeof *part);
    const float guard = part[held.count];
    tri_parameter_initialize(&held, 9, part);
    EXPECT(part[held.count] == guard);
    for (int64_t i = 0; i < held.count; i++) {
      const int64_t row = i / boxes[b][3], column = i % boxes[b][3];
      const int64_t index = (boxes[b][0] + row) * COLUMNS + boxes[b][1] + column;
      const float want = row < boxes[b][2] ? all[index] : 0.0f;
      if (memcmp(&part[i], &want, sizeof want) != 0) EXPECT(part[i] == want);
    }
  }
  tri_parameter renamed = whole;
  strcpy(renamed.name, "h.1.mlp.c_fc.weight");
  tri_parameter_initialize(&renamed, 9, part);
  EXPECT(part[0] != all[0]);
  tri_parameter_initialize(&whole, 10, part);
  EXPECT(part[0] != all[0]);
  free(all);
  free(part);
}

TEST(bad_configurations_are_named)
{
  static const struct {
    tri_gpt_config config;
    const char *message;
  } bad[] = {
      {{.n_layers = 1,
        .n_heads = 3,
        .width = 20,
        .context = 8,
        .vocab_size = 5,
        .vocab_multiple = 1},
       "3 heads do not divide the width 20"},
      {{.n_layers = 0,
        .n_heads = 1,
        .width = 20,
        .context = 8,
        .vocab_size = 5,
        .vocab_multiple = 1},
       "0 layers"},
      {{.n_layers = 1, .n_heads = 1, .width = 20, .context = 8, .vocab_size = 5}, "multiple of 0"},
      {{.n_layers = 1,
        .n_heads = 1,
        .width = 20,
        .context = 8,
        .vocab_size = 5,
        .vocab_multiple = 1,
        .dropout = 1.0f},
       "dropout 1 is not in [0, 1)"},
      {{.n_layers = 1,
        .n_heads = 1,
        .width = 20,
        .context = 8,
        .vocab_size = 5,
        .vocab_multiple = 1,
        .dtype = TRI_DTYPE_F64},
       "f32 and bf16"},
      {{.n_layers = 1,
        .n_heads = 1,
        .width = 21,
        .context = 8,
        .vocab_size = 5,
        .vocab_multiple = 1,
        .dtype = TRI_DTYPE_BF16},
       "even width"},
      {{.n_layers = 1,
        .n_heads = 1,
        .width = 20,
        .context = 8,
        .vocab_size = INT32_MAX,
        .vocab_multiple = 2},
       "2^31"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    tri_model *model = NULL;
    EXPECT_ERROR(TRI_ERR_CONFIG, bad[i].message, tri_gpt_create(&bad[i].config, "bad", &model));
    EXPECT(model == NULL);
  }
  tri_model *none = NULL;
  tri_model_destroy(&none);
  EXPECT_OK(tri_memory_check_balance());
}

int main(void)
{
  TEST_RUN(published_counts_and_flops);
  TEST_RUN(flat_space_is_in_block_order_and_aligned);
  TEST_RUN(a_part_holds_the_arrays_of_its_blocks);
  TEST_RUN(shares_make_the_whole);
  TEST_RUN(initial_values_are_as_published);
  TEST_RUN(initial_values_do_not_depend_on_box_or_offset);
  TEST_RUN(bad_configurations_are_named);
  return test_end();
}
