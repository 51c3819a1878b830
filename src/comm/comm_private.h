// What the files of this module share: the communicator, the side channel, the wait loop.
#pragma once

#include <mpi.h>

#include "trireme/comm/comm.h"

enum { TRI_COMM_NAME_BYTES = 32, TRI_WHAT_BYTES = 48, TRI_HOST_BYTES = 64, TRI_TEXT_BYTES = 1024 };

// Tags above the user's belong to this module.
enum { TRI_TAG_END = 1 << 20, TRI_TAG_GATHER = TRI_TAG_END };

// Turns MPI's own text into ours: TRI_CALL_MPI(MPI_Isend(…)).
#define TRI_CALL_MPI(call) \
  do { \
    const int mpi_code_ = (call); \
    if (mpi_code_ != MPI_SUCCESS) \
      return tri_comm_mpi_error(mpi_code_, #call, __func__, __FILE__, __LINE__); \
  } while (0)

#define TRI_CALL_MPI_GOTO(label, call) \
  do { \
    const int mpi_code_ = (call); \
    if (mpi_code_ != MPI_SUCCESS) { \
      status = tri_comm_mpi_error(mpi_code_, #call, __func__, __FILE__, __LINE__); \
      goto label; \
    } \
  } while (0)

tri_status tri_comm_mpi_error(int code, const char *call, const char *function, const char *file,
                              int line);

// What a rank that waited too long, or heard that another did, tells the others on the side
// channel.
typedef struct tri_wait_note {
  uint64_t comm_id; // 0: said nothing
  int64_t late;     // it came when others had already given up
  int64_t number;
  char comm_name[TRI_COMM_NAME_BYTES];
  char what[TRI_WHAT_BYTES];
} tri_wait_note;

// A message of the side channel: where a rank waits (wait.comm_id != 0), or what it ends with.
typedef struct tri_note {
  tri_wait_note wait;
  int32_t status;
  char text[TRI_TEXT_BYTES]; // of the error it ends with
} tri_note;

enum { TRI_NOT_ENDED = -1 };

// How a rank comes to the end of the program.
typedef struct tri_end {
  int32_t status;
  int32_t broken; // it left an operation unfinished
} tri_end;

// The side channel: a communicator of the whole job on which nothing is sent as long as all is
// well. One for the job, so that a rank that waits in another communicator is heard too. Ranks here
// are ranks of the job. A rank in trouble writes to every other: size^2 short messages, once.
typedef struct tri_side {
  MPI_Comm mpi;
  int rank, size;
  char (*hosts)[TRI_HOST_BYTES];
  tri_wait_note *waits; // (size) heard from each rank, as the next
  int32_t *ends;        // the error of its own that it ended with, TRI_NOT_ENDED before
  int n_waits;          // heard
  int culprit;          // the lowest rank heard to end with an error, -1
  char culprit_text[TRI_TEXT_BYTES];
  double culprit_seconds; // when that was heard first
  // What this rank told: kept, since the sends may be under way for ever.
  bool told_wait, told_end;
  tri_note wait_note, end_note;
  MPI_Request *sends; // (2, size)
  tri_end own_end;
  tri_end *all_ends; // (size)
  bool broken;       // an operation failed: no other is begun
} tri_side;

// Small values under way. Not on the stack: after a failed wait MPI may still write to them.
typedef struct tri_said {
  int32_t status;
  char text[TRI_TEXT_BYTES];
} tri_said;

typedef struct tri_scratch {
  int64_t value, most;
  tri_said said;
} tri_scratch;

struct tri_comm {
  MPI_Comm mpi;
  tri_side *side; // owned by the world, borrowed by the others
  bool is_world;
  uint64_t id; // equal on the ranks of one communicator, different for others of the same name
  char name[TRI_COMM_NAME_BYTES];
  int rank, size, local_rank, local_size;
  int *job_ranks; // (size) of its ranks
  double limit_seconds;
  size_t chunk_bytes; // the most one MPI call is given; lowered by tests
  int64_t operations, bytes_sent;
  double wait_seconds;
  tri_scratch scratch;
  tri_request *requests; // the pool
  int n_requests, n_messages, n_open;
};

struct tri_request {
  tri_comm *comm;
  const char *what;
  int64_t number;
  bool open;
  int n, n_receives;     // receives come first
  MPI_Request *requests; // (n_messages); next: the same
  MPI_Status *statuses;
  size_t *sizes;
  int *peers;
};

// One numbered operation.
typedef struct tri_operation {
  const char *what;
  int64_t number;
  const tri_request *group; // NULL for collectives
} tri_operation;

// Takes the next number; TRI_ERR_COMM when an earlier operation of the job failed.
TRI_MUST_CHECK tri_status tri_comm_begin(tri_comm *comm, const char *what, tri_operation *out);

// Tests all n requests once: *done when all are complete and well.
TRI_MUST_CHECK tri_status tri_comm_test_all(const tri_operation *operation, int n,
                                            MPI_Request *requests, MPI_Status *statuses, int *done);

// Waits for all n requests within the limit. After an error the job's communicators are broken.
// statuses (n), set on success; or MPI_STATUSES_IGNORE.
TRI_MUST_CHECK tri_status tri_comm_wait_all(tri_comm *comm, const tri_operation *operation, int n,
                                            MPI_Request *requests, MPI_Status *statuses);

// The messages of a group name ranks and tags that are there.
TRI_MUST_CHECK tri_status tri_comm_check_messages(const tri_comm *comm, const char *what,
                                                  const char *kind, const tri_message *messages,
                                                  int n);

// Calls back the messages of open groups that MPI has not begun to move: after a failure their
// buffers may be released.
void tri_comm_cancel_groups(tri_comm *comm);

// One pause of a wait loop that has lasted `waited` seconds: nothing, a yield, or a short sleep.
void tri_comm_rest(double waited);

// Takes in what has arrived on the side channel; never waits.
void tri_side_listen(tri_side *side);

// Tells all other ranks, once, where this one waits; or the error of its own that it ends with.
void tri_side_tell_wait(const tri_comm *comm, const tri_operation *operation, bool late);
void tri_side_tell_end(tri_side *side, tri_status status);

// A wait of `waited` seconds looks at the side channel; `first`: for the first time in this wait.
// TRI_ERR_TIMEOUT when it is beyond the limit here or elsewhere, after the ranks compared notes;
// TRI_ERR_PEER when another rank ended with an error, or others had given up before this one came.
TRI_MUST_CHECK tri_status tri_comm_watch(const tri_comm *comm, const tri_operation *operation,
                                         double waited, bool first);

// Collective on MPI_COMM_WORLD. *out owned: tri_side_destroy.
TRI_MUST_CHECK tri_status tri_side_create(tri_side **out);
void tri_side_destroy(tri_side **side);

// The type and count that make size_bytes; *count is 1 and *owned is set when a type had to be made
// (then MPI_Type_free it after use).
TRI_MUST_CHECK tri_status tri_comm_type(const tri_comm *comm, size_t size_bytes, int *count,
                                        MPI_Datatype *type, bool *owned);
