// The NCCL double on 1 to 4 ranks: doubles_nccl_test CASE. Built and run by doubles_nccl.sh.
#include <mpi.h>
#include <nccl.h>

#include "doubles.h"
#include "test.h"

enum { N = 100 };

#define OK(call) \
  do { \
    const int code_ = (int)(call); \
    if (code_ != 0) { \
      fprintf(stderr, "%s gave %d\n", #call, code_); \
      MPI_Abort(MPI_COMM_WORLD, 1); \
    } \
  } while (0)

static int rank, size;
static ncclComm_t comm;
static cudaStream_t compute, reduce;
static cudaEvent_t event;
static float *from, *to, *host; // N, N * size, N * size

static void set_up(void)
{
  ncclUniqueId id;
  if (rank == 0) OK(ncclGetUniqueId(&id));
  OK(MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD));
  OK(ncclCommInitRankConfig(&comm, size, id, rank, NULL));
  OK(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithFlags(&reduce, cudaStreamNonBlocking));
  OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  OK(cudaMalloc((void **)&from, (size_t)size * N * sizeof(float)));
  OK(cudaMalloc((void **)&to, (size_t)size * N * sizeof(float)));
  OK(cudaMallocHost((void **)&host, (size_t)size * N * sizeof(float)));
}

static void tear_down(void)
{
  OK(cudaFree(from));
  OK(cudaFree(to));
  OK(cudaFreeHost(host));
  OK(cudaEventDestroy(event));
  OK(cudaStreamDestroy(compute));
  OK(cudaStreamDestroy(reduce));
  OK(ncclCommDestroy(comm));
}

// from[i] = 1000 rank + i, on the compute stream; the other waits for it unless told not to.
static void fill(bool wait)
{
  for (int i = 0; i < size * N; i++)
    host[i] = (float)(1000 * rank + i);
  OK(cudaMemcpyAsync(from, host, (size_t)size * N * sizeof(float), cudaMemcpyHostToDevice,
                     compute));
  OK(cudaEventRecord(event, compute));
  if (wait) OK(cudaStreamWaitEvent(reduce, event, 0));
}

static void fetch(void)
{
  OK(cudaMemcpyAsync(host, to, (size_t)size * N * sizeof(float), cudaMemcpyDeviceToHost, reduce));
  OK(cudaStreamSynchronize(reduce));
}

static float sum_of(int i)
{
  return (float)(1000 * size * (size - 1) / 2 + size * i);
}

TEST(all_reduce_sums)
{
  fill(true);
  OK(ncclAllReduce(from, to, N, ncclFloat32, ncclSum, comm, reduce));
  OK(MPI_Barrier(MPI_COMM_WORLD)); // the device goes on while the host is in MPI
  fetch();
  for (int i = 0; i < N; i++)
    EXPECT(host[i] == sum_of(i));
}

TEST(the_host_waits_for_what_a_collective_started_elsewhere_brings)
{
  fill(true);
  OK(ncclAllReduce(from, to, N, ncclFloat32, ncclSum, comm, reduce));
  if (rank == 0) fetch();
  int token = 0; // others learn from rank 0 that it has the sum: their queues must have gone on
  OK(MPI_Bcast(&token, 1, MPI_INT, 0, MPI_COMM_WORLD));
  if (rank != 0) fetch();
  for (int i = 0; i < N; i++)
    EXPECT(host[i] == sum_of(i));
}

TEST(blocks_are_gathered_and_scattered)
{
  fill(true);
  OK(ncclAllGather(from, to, N, ncclFloat32, comm, reduce));
  fetch();
  for (int i = 0; i < size * N; i++)
    EXPECT(host[i] == (float)(1000 * (i / N) + i % N));
  fill(true);
  OK(ncclReduceScatter(from, to, N, ncclFloat32, ncclSum, comm, reduce));
  fetch();
  for (int i = 0; i < N; i++)
    EXPECT(host[i] == sum_of(rank * N + i));
}

TEST(the_last_rank_broadcasts_and_collects)
{
  fill(true);
  OK(ncclBroadcast(from, to, N, ncclFloat32, size - 1, comm, reduce));
  fetch();
  for (int i = 0; i < N; i++)
    EXPECT(host[i] == (float)(1000 * (size - 1) + i));
  fill(true);
  OK(ncclReduce(from, to, N, ncclFloat32, ncclMax, size - 1, comm, reduce));
  fetch();
  for (int i = 0; i < N && rank == size - 1; i++)
    EXPECT(host[i] == (float)(1000 * (size - 1) + i));
}

TEST(grouped_sends_make_a_ring)
{
  fill(true);
  OK(ncclGroupStart());
  for (int i = 0; i < 2; i++) { // two messages to one peer keep their order
    OK(ncclSend(from + i * 50, 50, ncclFloat32, (rank + 1) % size, comm, reduce));
    OK(ncclRecv(to + i * 50, 50, ncclFloat32, (rank + size - 1) % size, comm, reduce));
  }
  OK(ncclGroupEnd());
  fetch();
  for (int i = 0; i < N; i++)
    EXPECT(host[i] == (float)(1000 * ((rank + size - 1) % size) + i));
}

TEST(a_split_communicator_has_its_own_sum)
{
  ncclComm_t half = NULL;
  OK(ncclCommSplit(comm, rank % 2, -rank, &half, NULL));
  int n = 0, mine = -1, sum = 0, members = 0;
  for (int r = rank % 2; r < size; r += 2) {
    sum += 1000 * r;
    members++;
  }
  OK(ncclCommCount(half, &n));
  OK(ncclCommUserRank(half, &mine));
  EXPECT(n == members && mine == members - 1 - rank / 2);
  fill(true);
  OK(ncclAllReduce(from, to, N, ncclFloat32, ncclSum, half, reduce));
  fetch();
  for (int i = 0; i < N; i++)
    EXPECT(host[i] == (float)(sum + members * i));
  OK(ncclCommDestroy(half));
}

static void poll_until_done(ncclComm_t polled)
{
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress)
    OK(ncclCommGetAsyncError(polled, &state));
  OK(state);
}

static ncclComm_t split_non_blocking(void)
{
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t twin = NULL;
  config.blocking = 0;
  OK(ncclCommSplit(comm, 0, rank, &twin, &config));
  poll_until_done(twin);
  return twin;
}

// A non-blocking call is done when the communicator says so, not before.
TEST(a_non_blocking_communicator_is_polled)
{
  ncclComm_t twin = split_non_blocking();
  fill(true);
  EXPECT(ncclAllReduce(from, to, N, ncclFloat32, ncclSum, twin, reduce) == ncclInProgress);
  poll_until_done(twin);
  fetch();
  for (int i = 0; i < N; i++)
    EXPECT(host[i] == sum_of(i));
  EXPECT(ncclCommFinalize(twin) == ncclInProgress);
  poll_until_done(twin);
  OK(ncclCommDestroy(twin));
}

static void run_correct(void)
{
  TEST_RUN(all_reduce_sums);
  TEST_RUN(the_host_waits_for_what_a_collective_started_elsewhere_brings);
  TEST_RUN(blocks_are_gathered_and_scattered);
  TEST_RUN(the_last_rank_broadcasts_and_collects);
  TEST_RUN(grouped_sends_make_a_ring);
  TEST_RUN(a_split_communicator_has_its_own_sum);
  TEST_RUN(a_non_blocking_communicator_is_polled);
}

static void run_mistake(const char *what)
{
  const bool last = rank == size - 1;
  if (strcmp(what, "host_pointer") == 0)
    (void)!ncclAllReduce(host, to, N, ncclFloat32, ncclSum, comm, reduce);
  fill(strcmp(what, "missing_wait") != 0);
  if (strcmp(what, "not_polled") == 0) {
    ncclComm_t twin = split_non_blocking();
    (void)!ncclAllReduce(from, to, N, ncclFloat32, ncclSum, twin, reduce);
    (void)!ncclAllReduce(from, to, N, ncclFloat32, ncclSum, twin, reduce);
  }
  if (strcmp(what, "communicator") == 0) { // the last rank uses the parent, others the split one
    ncclComm_t half = NULL;
    OK(ncclCommSplit(comm, 0, rank, &half, NULL));
    ncclComm_t used = last ? comm : half;
    OK(ncclAllReduce(from, to, N, ncclFloat32, ncclSum, used, reduce));
  } else {
    const size_t count = strcmp(what, "count") == 0 && last ? N - 1 : N;
    OK(ncclAllReduce(from, to, count, ncclFloat32, ncclSum, comm, reduce));
  }
  fetch();
  bool right = true;
  for (int i = 0; i < N; i++)
    right = right && host[i] == sum_of(i);
  if (strcmp(what, "abort") == 0) {
    ncclResult_t state = ncclSuccess;
    OK(ncclCommGetAsyncError(comm, &state));
    if (state == ncclRemoteError) fprintf(stderr, "async error seen\n");
    OK(ncclCommAbort(comm));
  }
  fprintf(stderr, right ? "data right\n" : "data wrong\n");
  MPI_Abort(MPI_COMM_WORLD, 3);
}

int main(int argc, char **argv)
{
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
  set_up();
  if (argc > 1) run_mistake(argv[1]);
  run_correct();
  tear_down();
  OK(MPI_Finalize());
  return test_end();
}
