// The communicators of a grid of ranks: each rank's groups along the axes.
//
// One is made for each axis of more than one rank, and one for the ranks that hold the same
// parameters where they are more than an axis has: context x data, whose gradients are one sum. An
// axis of one rank has a communicator of this rank alone, the same for all such axes, so that
// callers need not ask; nothing is sent on it. Whatever goes over all axes (the norm, the loss, a
// decision) goes over the world. So there are at most five, whatever the number of ranks.
#pragma once

#include "trireme/comm/comm.h"
#include "trireme/parallel/grid.h"

// The ranks that hold the same parameters.
#define TRI_GRID_REPLICAS (TRI_GRID_SET(TRI_GRID_CONTEXT) | TRI_GRID_SET(TRI_GRID_DATA))

typedef struct tri_grid_comms tri_grid_comms;

// Makes them by split of `world`, of which rank r is the grid's rank r, with the limit that it has
// now. Collective on world. TRI_ERR_ARGUMENT on all ranks when the grid is one of another number
// of ranks; other errors are local, and world is broken then.
//   world    borrowed: must outlive the communicators
//   grid     copied
//   out      owned by the caller, release with tri_grid_comms_destroy; untouched on error
TRI_MUST_CHECK tri_status tri_grid_comms_create(tri_comm *world, const tri_grid *grid,
                                                tri_grid_comms **out);
// Collective on world, NULL-safe. Transports on the communicators go before.
void tri_grid_comms_destroy(tri_grid_comms **comms);

// This rank's group along one axis: rank in it is the coordinate. Borrowed. Local.
tri_comm *tri_grid_comms_axis(const tri_grid_comms *comms, tri_grid_axis axis);
// The replicas of this rank's parameters, context fastest: the group of TRI_GRID_REPLICAS. It is
// the communicator of the axis where only one of the two has more than one rank. Borrowed. Local.
tri_comm *tri_grid_comms_replicas(const tri_grid_comms *comms);

// Seconds that the slowest rank took to make them; the same number on all ranks. Local.
double tri_grid_comms_seconds(const tri_grid_comms *comms);
// "communicators: tensor 2, data 2, pipeline 2, made in 3.1 ms", and ", some tensor groups cross
// nodes" where MPI says so; "communicators: none for one rank" for one. Borrowed. The same on all
// ranks. Local.
const char *tri_grid_comms_text(const tri_grid_comms *comms);
