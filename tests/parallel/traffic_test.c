// ranks: 1 2 3 4
// Wire bytes: formulas against numbers computed by hand, against the papers' totals, against the
// messages of a schedule one by one, and against what ranks count when they exchange gradients and
// hidden states.
#include "trireme/parallel/traffic.h"

#include "parallel/buckets.h"
#include "test.h"
#include "trireme/base/memory.h"
#include "trireme/parallel/data_parallel.h"
#include "trireme/parallel/pipeline.h"
#include "trireme/parallel/pipeline_schedule.h"

static tri_comm *world;
static tri_device *device;
static tri_stream *stream;

// --- by hand ------------------------------------------------------------------------------------

TEST(pieces_are_as_by_hand)
{
  EXPECT(tri_traffic_all_gather(1, 100) == 0);
  EXPECT(tri_traffic_all_gather(4, 100) == 300);
  EXPECT(tri_traffic_reduce_scatter(1000, 1000) == 0);
  EXPECT(tri_traffic_reduce_scatter(1000, 334) == 666);
  EXPECT(tri_traffic_all_reduce(3, 999, 333) == 1332);
}

TEST(replicas_are_as_by_hand)
{
  // 1000 parameters on 3 ranks, of which this one owns 300: it sends 700 floats, and its 300 twice.
  tri_traffic_replicas t = {
      .n_ranks = 3, .n_elements = 1000, .n_owned = 300, .n_sums = 1, .weight_bytes = 2};
  EXPECT(tri_traffic_of_replicas(&t) == 2800 + 2400);
  t.n_sums = 2; // two partial sums of each slice
  EXPECT(tri_traffic_of_replicas(&t) == 5600 + 2400);
  t.n_sums = 0; // no data: what it owns it has from others
  EXPECT(tri_traffic_of_replicas(&t) == 2400);
  t.n_sums = 1;
  t.zero = 1; // weights in bf16 in place of gradients
  EXPECT(tri_traffic_of_replicas(&t) == 2800 + 1200);
  t.n_tied = 100; // gradients that are sent, but no weights of their own
  EXPECT(tri_traffic_of_replicas(&t) == 2800 + 800);
  t.tied_whole = true; // and sent to all
  EXPECT(tri_traffic_of_replicas(&t) == 2800 + 800 + 800);
  t.n_tied = 0;
  t.zero = 2;
  EXPECT(tri_traffic_of_replicas(&t) == 2800 + 1200);
  t.zero = 3; // forward and backward of 5 micro-batches
  t.n_gathered = 10 * 300;
  EXPECT(tri_traffic_of_replicas(&t) == 2800 + 12000);
  t.n_ranks = 1;
  t.n_owned = 1000;
  EXPECT(tri_traffic_of_replicas(&t) == 0);
}

TEST(pipelines_are_as_by_hand)
{
  // 4 stages, 8 micro-batches of 100 bytes: 8 activations on, 8 gradients back; ends have one side.
  tri_traffic_pipeline t = {
      .n_stages = 4, .n_virtual = 1, .n_microbatches = 8, .message_bytes = 100};
  const int64_t plain[] = {800, 1600, 1600, 800};
  // 2 chunks: the first stage sends 2 activations and 1 gradient of each micro-batch.
  const int64_t chunks[] = {2400, 3200, 3200, 2400};
  for (t.stage = 0; t.stage < 4; t.stage++) {
    t.n_virtual = 1;
    t.tied_bytes = 0;
    EXPECT(tri_traffic_of_pipeline(&t) == plain[t.stage]);
    t.tied_bytes = 7;
    EXPECT(tri_traffic_of_pipeline(&t) == plain[t.stage] + (t.stage % 3 == 0 ? 7 : 0));
    t.n_virtual = 2;
    t.tied_bytes = 0;
    EXPECT(tri_traffic_of_pipeline(&t) == chunks[t.stage]);
  }
  t = (tri_traffic_pipeline){
      .n_stages = 1, .n_virtual = 3, .n_microbatches = 8, .message_bytes = 100, .tied_bytes = 7};
  EXPECT(tri_traffic_of_pipeline(&t) == 0);
}

TEST(tensor_groups_are_as_by_hand)
{
  // 30 tokens of 8 channels on 3 ranks, 10 each, bf16 with sums in f32: a gather sends 10 * 8 * 2
  // bytes to 2 ranks, a sum 20 * 8 * 4; 2 blocks with four of each, for 5 micro-batches.
  tri_traffic_tensor t = {.n_ranks = 3,
                          .n_rows = 30,
                          .n_owned = 10,
                          .width = 8,
                          .gather_bytes = 2,
                          .sum_bytes = 4,
                          .n_blocks = 2,
                          .n_microbatches = 5};
  EXPECT(tri_traffic_of_tensor(&t) == 5 * 8 * (320 + 640));
  t.embedding = true;
  EXPECT(tri_traffic_of_tensor(&t) == 5 * 9 * (320 + 640));
  t.head = true; // and 3 floats of 30 tokens to 2 ranks
  EXPECT(tri_traffic_of_tensor(&t) == 5 * (10 * (320 + 640) + 720));
  t.n_owned = 12; // uneven
  EXPECT(tri_traffic_of_tensor(&t) == 5 * (10 * (384 + 576) + 720));
  t.n_ranks = 1;
  t.n_owned = 30;
  EXPECT(tri_traffic_of_tensor(&t) == 0);
}

TEST(rings_are_as_by_hand)
{
  // 16 tokens with keys and values of 6 numbers, 4 ranks: 3 hops forward, 3 again backward in
  // bf16, 4 hops of their gradients in f32; 2 blocks, 5 micro-batches.
  tri_traffic_context t = {.n_ranks = 4,
                           .n_rows = 16,
                           .width = 6,
                           .weight_bytes = 2,
                           .n_blocks = 2,
                           .n_microbatches = 5};
  EXPECT(tri_traffic_of_context(&t) == 10 * (3 * 192 + 3 * 192 + 4 * 384));
  t.n_ranks = 1;
  EXPECT(tri_traffic_of_context(&t) == 0);
}

// --- by the papers ------------------------------------------------------------------------------

// Over all ranks, with slices that do not divide: 2 (d - 1) P numbers for zero 0 to 2, as an
// all-reduce, and 3 (d - 1) P for zero 3 when weights are gathered twice.
TEST(replicas_send_what_the_zero_paper_says)
{
  for (int d = 1; d <= 9; d++) {
    for (int zero = 0; zero <= 3; zero++) {
      const int64_t P = 1234567;
      int64_t sent = 0;
      for (int r = 0; r < d; r++) {
        const int64_t n_owned = P / d + (r < P % d);
        const tri_traffic_replicas t = {.n_ranks = d,
                                        .n_elements = P,
                                        .n_owned = n_owned,
                                        .n_sums = 1,
                                        .zero = zero,
                                        .weight_bytes = 4,
                                        .n_gathered = 2 * n_owned};
        sent += tri_traffic_of_replicas(&t);
      }
      EXPECT(sent == (zero == 3 ? 3 : 2) * (d - 1) * P * 4);
    }
  }
}

// Narayanan et al. 2021, section 3: 8 b s h (t - 1) / t numbers a layer and micro-batch.
TEST(tensor_groups_send_what_megatron_says)
{
  for (int t = 1; t <= 8; t *= 2) {
    const int64_t b = 4, s = 1024, h = 1600;
    const tri_traffic_tensor layer = {.n_ranks = t,
                                      .n_rows = b * s,
                                      .n_owned = b * s / t,
                                      .width = (int)h,
                                      .gather_bytes = 2,
                                      .sum_bytes = 2,
                                      .n_blocks = 1,
                                      .n_microbatches = 1};
    EXPECT(tri_traffic_of_tensor(&layer) == 2 * 8 * b * s * h * (t - 1) / t);
  }
}

// --- message by message -------------------------------------------------------------------------

static int64_t messages_of(const tri_pipeline_schedule *schedule, int stage)
{
  int64_t n = 0;
  for (int k = 0; k < schedule->stages[stage].n_actions; k++) {
    tri_pipeline_transfer transfer;
    n += tri_pipeline_schedule_send(schedule, stage, &schedule->stages[stage].actions[k],
                                    &transfer) &&
         transfer.peer.stage != stage;
  }
  return n;
}

TEST(pipelines_send_what_their_schedules_say)
{
  for (int kind = 0; kind < TRI_PIPELINE_KIND_COUNT; kind++) {
    for (int p = 1; p <= 5; p++) {
      for (int m = 1; m <= 9; m++) {
        const int v = kind == TRI_PIPELINE_INTERLEAVED ? 3 : 1;
        tri_pipeline_schedule *schedule = NULL;
        EXPECT_OK(tri_pipeline_schedule_create((tri_pipeline_kind)kind, p, v, m, &schedule));
        if (schedule == NULL) return;
        for (int s = 0; s < p; s++) {
          const tri_traffic_pipeline t = {
              .n_stages = p, .n_virtual = v, .stage = s, .n_microbatches = m, .message_bytes = 11};
          EXPECT(tri_traffic_of_pipeline(&t) == 11 * messages_of(schedule, s));
        }
        tri_pipeline_schedule_destroy(&schedule);
      }
    }
  }
}

// --- counted by ranks ---------------------------------------------------------------------------

enum { N_BLOCKS = 3 };

// Slices are whole multiples of TRI_NORM_CHUNK, so that ranks own different numbers of elements.
static void invent_model(tri_model *model, int64_t offsets[N_BLOCKS + 1])
{
  for (int b = 0; b <= N_BLOCKS; b++)
    offsets[b] = (int64_t)(b * b + b) * TRI_NORM_CHUNK;
  *model = (tri_model){.n_blocks = N_BLOCKS,
                       .parameters = {.flat_count = offsets[N_BLOCKS],
                                      .n_blocks = N_BLOCKS,
                                      .offsets = offsets,
                                      .tied_count = 1000,
                                      .tied = -1}};
}

static void run_data_step(tri_data_parallel *dp, void *weights, tri_dtype dtype)
{
  float *gradient, *tied;
  EXPECT_OK(tri_data_parallel_begin(dp));
  for (int i = 0; i < tri_data_parallel_count(dp); i++) {
    for (int block = N_BLOCKS - 1; block >= 0; block--) {
      EXPECT_OK(tri_data_parallel_gradients(dp, i, block, &gradient, &tied));
      EXPECT_OK(tri_data_parallel_block_done(dp, i, block));
    }
  }
  EXPECT_OK(tri_data_parallel_wait(dp, &gradient, &tied));
  EXPECT_OK(tri_data_parallel_gather_weights(dp, weights, dtype));
  EXPECT_OK(tri_stream_synchronize(stream));
}

static void check_data(const tri_model *model, int n_microbatches, int zero, int weight_bytes,
                       void *weights)
{
  const int rank = tri_comm_rank(world), size = tri_comm_size(world);
  const tri_data_parallel_options options = {.n_leaves = n_microbatches,
                                             .leaf_microbatches = 1,
                                             .n_microbatches = n_microbatches,
                                             .bucket_bytes = 5 * TRI_NORM_CHUNK * 4,
                                             .in_flight = 2,
                                             .zero = zero};
  tri_transport *transport = NULL;
  tri_data_parallel *dp = NULL;
  EXPECT_OK(tri_transport_create(world, device, "host", NULL, &transport));
  EXPECT_OK(tri_data_parallel_create(transport, stream, model, &options, &dp));
  if (dp == NULL) return;

  tri_traffic_replicas t = {.n_ranks = size,
                            .n_elements = tri_parameters_gradient_count(&model->parameters),
                            .tied_whole = model->parameters.tied < 0,
                            .zero = zero,
                            .weight_bytes = weight_bytes};
  static const int each_block[N_BLOCKS] = {0, 1, 2};
  const tri_sum_node share = tri_sum_tree_share(n_microbatches, size, rank);
  tri_sum_node nodes[TRI_SUM_TREE_MAX_NODES];
  const bool by_leaves = zero >= 2 && size > 1;
  t.n_sums = by_leaves ? share.end - share.first : tri_sum_tree_nodes(n_microbatches, share, nodes);
  tri_buckets buckets = {0};
  EXPECT_OK(tri_buckets_plan(model, by_leaves ? each_block : NULL, by_leaves ? N_BLOCKS : 0,
                             options.bucket_bytes, &buckets));
  for (int b = 0; b < buckets.n; b++) {
    int64_t first, end;
    tri_bucket_slice(&buckets.list[b], size, rank, &first, &end);
    t.n_owned += end - first;
    if (first >= model->parameters.flat_count) t.n_tied += end - first;
  }
  tri_buckets_free(&buckets);

  const int64_t before = tri_comm_bytes_sent(world);
  run_data_step(dp, weights, weight_bytes == 2 ? TRI_DTYPE_BF16 : TRI_DTYPE_F32);
  EXPECT(tri_comm_bytes_sent(world) - before == tri_traffic_of_replicas(&t));
  EXPECT_OK(tri_transport_finish(transport));
  tri_transport_destroy(&transport);
  tri_data_parallel_destroy(&dp);
}

TEST(ranks_count_what_the_formula_of_replicas_says)
{
  int64_t offsets[N_BLOCKS + 1];
  tri_model model;
  invent_model(&model, offsets);
  float *weights = NULL;
  // The array of the second use is held here, too, or by another stage of a pipeline.
  tri_parameter tied = {.offset = TRI_NORM_CHUNK, .count = 1000};
  EXPECT_OK(TRI_NEW(TRI_MODULE_PARALLEL, model.parameters.flat_count, &weights));
  for (int held = 0; held < 2; held++) {
    model.parameters.tied = held - 1;
    model.parameters.list = held ? &tied : NULL;
    for (int n = 1; n <= 9; n++) {
      check_data(&model, n, 0, 4, weights);
      check_data(&model, n, 1, 4, weights);
      check_data(&model, n, 1, 2, weights);
      check_data(&model, n, 2, 2, weights);
    }
  }
  TRI_FREE(&weights);
}

static tri_status compute_nothing(void *user, const tri_pipeline_call *call)
{
  (void)user;
  (void)call;
  return TRI_OK;
}

TEST(ranks_count_what_the_formula_of_pipelines_says)
{
  for (int kind = 0; kind < TRI_PIPELINE_KIND_COUNT; kind++) {
    const int v = kind == TRI_PIPELINE_INTERLEAVED ? 2 : 1;
    const tri_pipeline_options options = {.kind = (tri_pipeline_kind)kind,
                                          .n_virtual = v,
                                          .n_microbatches = 5,
                                          .message_bytes = 600,
                                          .transport = "host",
                                          .limit_seconds = 30};
    const tri_traffic_pipeline t = {.n_stages = tri_comm_size(world),
                                    .n_virtual = v,
                                    .stage = tri_comm_rank(world),
                                    .n_microbatches = 5,
                                    .message_bytes = 600};
    tri_pipeline *pipeline = NULL;
    EXPECT_OK(tri_pipeline_create(world, stream, &options, &pipeline));
    if (pipeline == NULL) return;
    const int64_t before = tri_pipeline_bytes_sent(pipeline);
    EXPECT_OK(tri_pipeline_run(pipeline, compute_nothing, NULL));
    EXPECT_OK(tri_stream_synchronize(stream));
    EXPECT_OK(tri_pipeline_finish(pipeline));
    EXPECT(tri_pipeline_bytes_sent(pipeline) - before == tri_traffic_of_pipeline(&t));
    tri_pipeline_destroy(&pipeline);
  }
}

TEST(ranks_count_what_the_formula_of_a_gather_says)
{
  char block[100] = {0}, all[400];
  const int64_t before = tri_comm_bytes_sent(world);
  EXPECT_OK(tri_comm_all_gather(world, "block", block, sizeof block, all));
  EXPECT(tri_comm_bytes_sent(world) - before ==
         tri_traffic_all_gather(tri_comm_size(world), sizeof block));
}

int main(void)
{
  const tri_device_options options = {.kernels = "tuned", .n_threads = 1};
  if (tri_comm_create_world(30, &world) != TRI_OK ||
      tri_device_open("cpu", &options, &device) != TRI_OK ||
      tri_stream_create(device, &stream) != TRI_OK) {
    printf("not ok set-up: %s\n", tri_error_message());
    return 1;
  }
  TEST_RUN(pieces_are_as_by_hand);
  TEST_RUN(replicas_are_as_by_hand);
  TEST_RUN(pipelines_are_as_by_hand);
  TEST_RUN(tensor_groups_are_as_by_hand);
  TEST_RUN(rings_are_as_by_hand);
  TEST_RUN(replicas_send_what_the_zero_paper_says);
  TEST_RUN(tensor_groups_send_what_megatron_says);
  TEST_RUN(pipelines_send_what_their_schedules_say);
  TEST_RUN(ranks_count_what_the_formula_of_replicas_says);
  TEST_RUN(ranks_count_what_the_formula_of_pipelines_says);
  TEST_RUN(ranks_count_what_the_formula_of_a_gather_says);
  tri_stream_destroy(&stream);
  tri_device_close(&device);
  tri_comm_destroy(&world);
  EXPECT_OK(tri_memory_check_balance());
  tri_comm_finish();
  return test_end();
}
