#include "trireme/parallel/grid_comm.h"

#include <stdio.h>

#include "trireme/base/memory.h"
#include "trireme/telemetry/clock.h"

enum { TEXT_BYTES = 200 };

struct tri_grid_comms {
  tri_grid grid;
  tri_comm *axes[TRI_GRID_AXES]; // NULL: alone
  tri_comm *both;                // context x data where both have ranks to share, else NULL
  tri_comm *alone;               // NULL when every axis has more than one rank
  double seconds;
  char text[TEXT_BYTES];
};

static bool shares(const tri_grid *grid, int axis)
{
  return grid->size[axis] > 1;
}

static tri_status split(tri_comm *world, const tri_grid *grid, const char *name, unsigned axes,
                        tri_comm **out)
{
  const int rank = tri_comm_rank(world);
  return tri_comm_split(world, name, tri_grid_group(grid, axes, rank),
                        tri_grid_group_place(grid, axes, rank), out);
}

// All ranks make the same ones in the same order: it follows from the grid.
static tri_status make(tri_comm *world, tri_grid_comms *comms)
{
  const tri_grid *grid = &comms->grid;
  bool some_alone = false;
  for (int a = 0; a < TRI_GRID_AXES; a++) {
    some_alone = some_alone || !shares(grid, a);
    if (!shares(grid, a)) continue;
    TRI_CALL(
        split(world, grid, tri_grid_axis_name((tri_grid_axis)a), TRI_GRID_SET(a), &comms->axes[a]));
  }
  if (shares(grid, TRI_GRID_CONTEXT) && shares(grid, TRI_GRID_DATA))
    TRI_CALL(split(world, grid, "context x data", TRI_GRID_REPLICAS, &comms->both));
  if (some_alone) TRI_CALL(split(world, grid, "alone", 0, &comms->alone));
  return TRI_OK;
}

static void write_text(tri_grid_comms *comms, bool crossing)
{
  const tri_grid *grid = &comms->grid;
  const char *separator = "communicators: ";
  size_t n = 0;
  for (int a = 0; a < TRI_GRID_AXES; a++) {
    if (!shares(grid, a)) continue;
    n += (size_t)snprintf(comms->text + n, TEXT_BYTES - n, "%s%s %d", separator,
                          tri_grid_axis_name((tri_grid_axis)a), grid->size[a]);
    separator = ", ";
  }
  if (n == 0) {
    snprintf(comms->text, TEXT_BYTES, "communicators: none for one rank");
    return;
  }
  if (comms->both != NULL)
    n += (size_t)snprintf(comms->text + n, TEXT_BYTES - n, ", context x data %d",
                          tri_grid_group_size(grid, TRI_GRID_REPLICAS));
  snprintf(comms->text + n, TEXT_BYTES - n, ", made in %.1f ms%s", 1e3 * comms->seconds,
           crossing ? ", some tensor groups cross nodes" : "");
}

// What all ranks say alike: the longest time, and whether any tensor group crosses nodes.
static tri_status describe(tri_comm *world, double seconds, tri_grid_comms *comms)
{
  const tri_comm *tensor = tri_grid_comms_axis(comms, TRI_GRID_TENSOR);
  const bool crosses = tri_comm_local_size(tensor) < tri_comm_size(tensor);
  int64_t most_nanoseconds, any_crosses;
  TRI_CALL(
      tri_comm_max(world, "time of communicators", (int64_t)(1e9 * seconds), &most_nanoseconds));
  TRI_CALL(tri_comm_max(world, "nodes of tensor groups", crosses, &any_crosses));
  comms->seconds = 1e-9 * (double)most_nanoseconds;
  write_text(comms, any_crosses != 0);
  return TRI_OK;
}

tri_status tri_grid_comms_create(tri_comm *world, const tri_grid *grid, tri_grid_comms **out)
{
  TRI_CHECK(tri_grid_ranks(grid) == tri_comm_size(world), TRI_ERR_ARGUMENT,
            "a grid of %d ranks cannot be laid over %d ranks", tri_grid_ranks(grid),
            tri_comm_size(world));
  tri_status status;
  tri_grid_comms *comms = NULL;
  const double start = tri_clock_seconds();
  TRI_CALL(TRI_NEW(TRI_MODULE_PARALLEL, 1, &comms));
  comms->grid = *grid;
  TRI_CALL_GOTO(err_destroy, make(world, comms));
  TRI_CALL_GOTO(err_destroy, describe(world, tri_clock_seconds() - start, comms));
  *out = comms;
  return TRI_OK;

err_destroy:
  tri_grid_comms_destroy(&comms);
  return status;
}

void tri_grid_comms_destroy(tri_grid_comms **comms)
{
  if (*comms == NULL) return;
  tri_comm_destroy(&(*comms)->alone);
  tri_comm_destroy(&(*comms)->both);
  for (int a = TRI_GRID_AXES - 1; a >= 0; a--)
    tri_comm_destroy(&(*comms)->axes[a]);
  TRI_FREE(comms);
}

tri_comm *tri_grid_comms_axis(const tri_grid_comms *comms, tri_grid_axis axis)
{
  return comms->axes[axis] == NULL ? comms->alone : comms->axes[axis];
}

tri_comm *tri_grid_comms_replicas(const tri_grid_comms *comms)
{
  if (comms->both != NULL) return comms->both;
  return tri_grid_comms_axis(comms, shares(&comms->grid, TRI_GRID_CONTEXT) ? TRI_GRID_CONTEXT
                                                                           : TRI_GRID_DATA);
}

double tri_grid_comms_seconds(const tri_grid_comms *comms)
{
  return comms->seconds;
}

const char *tri_grid_comms_text(const tri_grid_comms *comms)
{
  return comms->text;
}
