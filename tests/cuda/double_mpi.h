// What the doubles take from MPI: see double_mpi.c.
#pragma once

#include <mpi.h>

// All processes, for the doubles' own messages.
MPI_Comm double_world(void);
// Waits for a request of the doubles while the queues go on; the lock is held, and given up
// between.
void double_wait(MPI_Request *request);
