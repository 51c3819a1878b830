// MPI calls of the host beside a device that makes progress by itself.
//
// While a rank polls or blocks in MPI its GPU would go on with queued collectives, and other ranks
// may wait for them. So the calls a program waits with are defined here, over MPI's own PMPI names:
// each lets the queues go on first, and those that block poll.
#include "double_mpi.h"

#include "doubles.h"

static MPI_Comm world = MPI_COMM_NULL;

MPI_Comm double_world(void)
{
  if (world == MPI_COMM_NULL) double_die("NCCL before MPI_Init");
  return world;
}

void double_wait(MPI_Request *request)
{
  int done = 0;
  for (;;) {
    if (PMPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) double_die("MPI_Test failed");
    if (done) return;
    double_progress();
    double_pause();
  }
}

static void progress(void)
{
  __attribute__((cleanup(double_leave))) const char *entered = double_enter("MPI");
  (void)entered;
  double_progress();
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
  const int code = PMPI_Init_thread(argc, argv, required, provided);
  return code != MPI_SUCCESS ? code : PMPI_Comm_dup(MPI_COMM_WORLD, &world);
}

int MPI_Init(int *argc, char ***argv)
{
  const int code = PMPI_Init(argc, argv);
  return code != MPI_SUCCESS ? code : PMPI_Comm_dup(MPI_COMM_WORLD, &world);
}

int MPI_Test(MPI_Request *request, int *done, MPI_Status *status)
{
  progress();
  return PMPI_Test(request, done, status);
}

int MPI_Testall(int n, MPI_Request requests[], int *done, MPI_Status statuses[])
{
  progress();
  return PMPI_Testall(n, requests, done, statuses);
}

int MPI_Iprobe(int source, int tag, MPI_Comm comm, int *found, MPI_Status *status)
{
  progress();
  return PMPI_Iprobe(source, tag, comm, found, status);
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
  int done = 0, code = MPI_SUCCESS;
  while (code == MPI_SUCCESS && !done)
    code = MPI_Test(request, &done, status);
  return code;
}

int MPI_Waitall(int n, MPI_Request requests[], MPI_Status statuses[])
{
  int done = 0, code = MPI_SUCCESS;
  while (code == MPI_SUCCESS && !done)
    code = MPI_Testall(n, requests, &done, statuses);
  return code;
}

int MPI_Recv(void *to, int n, MPI_Datatype type, int source, int tag, MPI_Comm comm,
             MPI_Status *status)
{
  MPI_Request request;
  const int code = PMPI_Irecv(to, n, type, source, tag, comm, &request);
  return code != MPI_SUCCESS ? code : MPI_Wait(&request, status);
}

int MPI_Barrier(MPI_Comm comm)
{
  MPI_Request request;
  const int code = PMPI_Ibarrier(comm, &request);
  return code != MPI_SUCCESS ? code : MPI_Wait(&request, MPI_STATUS_IGNORE);
}

int MPI_Bcast(void *buffer, int n, MPI_Datatype type, int root, MPI_Comm comm)
{
  MPI_Request request;
  const int code = PMPI_Ibcast(buffer, n, type, root, comm, &request);
  return code != MPI_SUCCESS ? code : MPI_Wait(&request, MPI_STATUS_IGNORE);
}

int MPI_Allreduce(const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
  MPI_Request request;
  const int code = PMPI_Iallreduce(from, to, n, type, op, comm, &request);
  return code != MPI_SUCCESS ? code : MPI_Wait(&request, MPI_STATUS_IGNORE);
}

int MPI_Allgather(const void *from, int n, MPI_Datatype type, void *to, int n_to,
                  MPI_Datatype to_type, MPI_Comm comm)
{
  MPI_Request request;
  const int code = PMPI_Iallgather(from, n, type, to, n_to, to_type, comm, &request);
  return code != MPI_SUCCESS ? code : MPI_Wait(&request, MPI_STATUS_IGNORE);
}
