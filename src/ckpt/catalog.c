// What a folder of checkpoints holds: the newest whole one, retention, a listing. Root looks, the
// others are told.
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "ckpt/folder.h"
#include "ckpt/manifest.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/base/memory.h"
#include "trireme/ckpt/ckpt.h"

// The manifest of a step, for which the files are there and the step is that of the folder's name.
static tri_status load_whole(const char *folder, int64_t step, tri_manifest *out)
{
  char path[PATH_MAX];
  TRI_CALL(tri_ckpt_step_path(folder, step, path, sizeof path));
  TRI_CALL(tri_manifest_load(path, out, NULL, NULL));
  if (out->step == step) return TRI_OK;
  const tri_status status = TRI_ERROR(TRI_ERR_FORMAT, "%s: its manifest is that of step %lld", path,
                                      (long long)out->step);
  tri_manifest_clear(out);
  return status;
}

static tri_status check_whole(const char *folder, int64_t step)
{
  tri_manifest manifest;
  TRI_CALL(load_whole(folder, step, &manifest));
  tri_manifest_clear(&manifest);
  return TRI_OK;
}

// The newest whole one of a step below `before`.
static tri_status find_latest(const char *folder, int64_t before, int64_t *step)
{
  tri_ckpt_folder scan;
  *step = -1;
  TRI_CALL(tri_ckpt_folder_scan(folder, &scan));
  for (int i = 0; i < scan.n_steps && *step < 0; i++) {
    if (scan.steps[i] >= before) continue;
    if (check_whole(folder, scan.steps[i]) == TRI_OK) {
      *step = scan.steps[i];
    } else {
      tri_log(TRI_LOG_WARN, "checkpoint of step %lld is passed over: %s", (long long)scan.steps[i],
              tri_error_message());
    }
  }
  const int n_steps = scan.n_steps;
  tri_ckpt_folder_clear(&scan);
  TRI_CHECK(*step >= 0 || n_steps == 0, TRI_ERR_FORMAT,
            "%s: none of its %d checkpoints is whole; move them away to begin anew: %s", folder,
            n_steps, tri_error_message());
  return TRI_OK;
}

static tri_status latest_before(tri_comm *comm, const char *folder, int64_t before, char *path,
                                size_t path_size, int64_t *step)
{
  int64_t found = -1;
  char full[PATH_MAX] = "";
  const tri_status looked = tri_comm_rank(comm) == 0 ? find_latest(folder, before, &found) : TRI_OK;
  TRI_CALL(tri_comm_agree(comm, "newest checkpoint", looked));
  TRI_CALL(tri_comm_broadcast(comm, "newest checkpoint", &found, sizeof found, 0));
  tri_status named = TRI_OK;
  if (found >= 0) named = tri_ckpt_step_path(folder, found, full, sizeof full);
  if (named == TRI_OK && strlen(full) >= path_size)
    named = TRI_ERROR(TRI_ERR_ARGUMENT, "no room for the path %s", full);
  TRI_CALL(tri_comm_agree(comm, "newest checkpoint path", named));
  memcpy(path, full, strlen(full) + 1);
  *step = found;
  return TRI_OK;
}

tri_status tri_ckpt_latest(tri_comm *comm, const char *folder, char *path, size_t path_size,
                           int64_t *step)
{
  return latest_before(comm, folder, INT64_MAX, path, path_size, step);
}

// --- the newest that opens

// TRI_OK when the ranks could not open a checkpoint because it is damaged, and for no other reason.
static tri_status agree_damaged(tri_comm *comm, tri_status opened)
{
  int64_t worst = 0;
  // Ranks that cannot talk have nothing to agree on.
  if (opened == TRI_ERR_COMM || opened == TRI_ERR_TIMEOUT) return opened;
  const bool stops = opened != TRI_ERR_PEER && opened != TRI_ERR_FORMAT;
  const int64_t own = stops ? 2 : opened == TRI_ERR_FORMAT;
  TRI_CALL(tri_comm_max(comm, "damaged checkpoint", own, &worst));
  return worst == 1 ? TRI_OK : opened;
}

// Those newer than `step`, the newest that opens, that look whole are those that did not open.
static tri_status set_aside(const char *folder, int64_t step)
{
  tri_ckpt_folder scan;
  char path[PATH_MAX];
  TRI_CALL(tri_ckpt_folder_scan(folder, &scan));
  tri_status status = TRI_OK;
  for (int i = 0; i < scan.n_steps && status == TRI_OK; i++) {
    if (scan.steps[i] <= step || check_whole(folder, scan.steps[i]) != TRI_OK) continue;
    status = tri_ckpt_folder_set_aside(folder, scan.steps[i], path, sizeof path);
    if (status == TRI_OK)
      tri_log(TRI_LOG_WARN, "the damaged checkpoint of step %lld is now %s",
              (long long)scan.steps[i], path);
  }
  tri_ckpt_folder_clear(&scan);
  return status;
}

tri_status tri_ckpt_open_newest(tri_comm *comm, const char *folder, tri_ckpt **out)
{
  char path[PATH_MAX];
  tri_ckpt *ckpt = NULL;
  int64_t step = -1, before = INT64_MAX;
  while (ckpt == NULL) {
    TRI_CALL(latest_before(comm, folder, before, path, sizeof path, &step));
    if (step < 0) break;
    const tri_status opened = tri_ckpt_open(comm, path, &ckpt);
    if (opened == TRI_OK) continue;
    TRI_CALL(agree_damaged(comm, opened));
    if (opened == TRI_ERR_FORMAT)
      tri_log_rank(TRI_LOG_WARN, "checkpoint of step %lld is passed over: %s", (long long)step,
                   tri_error_message());
    before = step;
  }
  *out = ckpt;
  return TRI_OK;
}

tri_status tri_ckpt_set_aside(tri_comm *comm, const char *folder, int64_t step)
{
  const tri_status moved = tri_comm_rank(comm) == 0 ? set_aside(folder, step) : TRI_OK;
  return tri_comm_agree(comm, "damaged checkpoints", moved);
}

// --- retention

// Checkpoints that are not whole do not count; those among the kept ones stay for a look at them.
static tri_status prune_steps(const char *folder, const tri_ckpt_folder *scan, int keep)
{
  int whole = 0;
  for (int i = 0; i < scan->n_steps; i++) {
    if (whole == keep) {
      TRI_CALL(tri_ckpt_folder_remove(folder, scan->steps[i]));
    } else if (check_whole(folder, scan->steps[i]) == TRI_OK) {
      whole++;
    }
  }
  return TRI_OK;
}

static tri_status prune(const char *folder, int keep)
{
  tri_ckpt_folder scan;
  TRI_CHECK(keep >= 0, TRI_ERR_ARGUMENT, "%d checkpoints cannot be kept", keep);
  TRI_CALL(tri_ckpt_folder_scan(folder, &scan));
  tri_status status = tri_ckpt_folder_sweep(folder, &scan);
  if (status == TRI_OK && keep > 0) status = prune_steps(folder, &scan, keep);
  tri_ckpt_folder_clear(&scan);
  return status;
}

tri_status tri_ckpt_prune(tri_comm *comm, const char *folder, int keep)
{
  const tri_status pruned = tri_comm_rank(comm) == 0 ? prune(folder, keep) : TRI_OK;
  return tri_comm_agree(comm, "checkpoint retention", pruned);
}

tri_ckpt_facts tri_manifest_facts(const tri_manifest *manifest)
{
  tri_ckpt_facts facts = {
      .n_files = manifest->n_files, .n_arrays = manifest->n_arrays, .n_pieces = manifest->n_pieces};
  for (int i = 0; i < manifest->n_files; i++)
    facts.bytes += manifest->files[i].bytes;
  for (int i = 0; i < manifest->n_arrays; i++)
    facts.elements += tri_shape_elements(&manifest->arrays[i].shape);
  return facts;
}

tri_status tri_ckpt_list(const char *folder, tri_ckpt_entry **out, int *n_entries)
{
  tri_ckpt_folder scan;
  tri_ckpt_entry *entries = NULL;
  TRI_CHECK(tri_file_exists(folder), TRI_ERR_IO, "%s: no such folder", folder);
  TRI_CALL(tri_ckpt_folder_scan(folder, &scan));
  tri_status status = TRI_NEW(TRI_MODULE_CKPT, scan.n_steps, &entries);
  for (int i = 0; i < scan.n_steps && status == TRI_OK; i++) {
    tri_manifest manifest;
    entries[i].step = scan.steps[i];
    entries[i].status = load_whole(folder, scan.steps[i], &manifest);
    if (entries[i].status != TRI_OK) {
      snprintf(entries[i].message, sizeof entries[i].message, "%.255s", tri_error_message());
      continue;
    }
    entries[i].facts = tri_manifest_facts(&manifest);
    tri_manifest_clear(&manifest);
  }
  *n_entries = scan.n_steps;
  tri_ckpt_folder_clear(&scan);
  if (status != TRI_OK) return status;
  *out = entries;
  return TRI_OK;
}
