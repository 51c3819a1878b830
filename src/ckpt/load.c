// Opening and loading: nothing of a checkpoint is believed before root has checked the manifest and
// all ranks together the digests of the files.
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/agree.h"
#include "ckpt/manifest.h"
#include "ckpt/pieces.h"
#include "ckpt/shard.h"
#include "trireme/base/digest.h"
#include "trireme/base/file.h"
#include "trireme/base/memory.h"
#include "trireme/ckpt/ckpt.h"

struct tri_ckpt {
  char path[PATH_MAX];
  tri_manifest manifest;
};

// --- open

// Hands root's manifest to all; the others read the text that root has checked.
static tri_status share_manifest(tri_comm *comm, tri_ckpt *ckpt)
{
  tri_status status = TRI_OK;
  char *text = NULL;
  size_t used = 0;
  const bool is_root = tri_comm_rank(comm) == 0;
  const tri_status loaded =
      is_root ? tri_manifest_load(ckpt->path, &ckpt->manifest, &text, &used) : TRI_OK;
  TRI_CALL_GOTO(done, tri_comm_agree(comm, "checkpoint manifest", loaded));
  int64_t size_bytes = (int64_t)used;
  TRI_CALL_GOTO(done, tri_comm_broadcast(comm, "checkpoint manifest size", &size_bytes,
                                         sizeof size_bytes, 0));
  if (!is_root) text = tri_calloc(TRI_MODULE_CKPT, (size_t)size_bytes, 1);
  TRI_CALL_GOTO(done, tri_comm_agree(comm, "checkpoint manifest memory",
                                     text == NULL ? TRI_ERR_MEMORY : TRI_OK));
  TRI_CALL_GOTO(done, tri_comm_broadcast(comm, "checkpoint manifest", text, (size_t)size_bytes, 0));
  const tri_status read =
      is_root ? TRI_OK : tri_manifest_read(ckpt->path, text, (size_t)size_bytes, &ckpt->manifest);
  TRI_CALL_GOTO(done, tri_comm_agree(comm, "checkpoint manifest read", read));

done:
  tri_free(text);
  return status;
}

// The digests of every size-th file.
static tri_status check_files(const tri_ckpt *ckpt, int rank, int n_ranks)
{
  char path[PATH_MAX];
  for (int i = rank; i < ckpt->manifest.n_files; i += n_ranks) {
    const tri_manifest_file *file = &ckpt->manifest.files[i];
    tri_digest digest;
    int64_t size_bytes;
    TRI_CALL(tri_path_join(path, sizeof path, ckpt->path, file->name));
    TRI_CALL(tri_digest_of_file(path, &digest, &size_bytes));
    TRI_CHECK(size_bytes == file->bytes && memcmp(&digest, &file->digest, sizeof digest) == 0,
              TRI_ERR_FORMAT, "%s: is damaged: its digest is not that of the manifest", path);
  }
  return TRI_OK;
}

static tri_status take_path(const char *path, tri_ckpt *ckpt)
{
  TRI_CHECK(path[0] != '\0' && strlen(path) < sizeof ckpt->path, TRI_ERR_ARGUMENT,
            "'%.200s' is no path of a checkpoint", path);
  memcpy(ckpt->path, path, strlen(path) + 1);
  return TRI_OK;
}

static tri_status open_on_all(tri_comm *comm, const char *path, tri_ckpt *ckpt)
{
  TRI_CALL(tri_comm_agree(comm, "checkpoint path", take_path(path, ckpt)));
  TRI_CALL(share_manifest(comm, ckpt));
  return tri_comm_agree(comm, "checkpoint digests",
                        check_files(ckpt, tri_comm_rank(comm), tri_comm_size(comm)));
}

tri_status tri_ckpt_open(tri_comm *comm, const char *path, tri_ckpt **out)
{
  tri_ckpt *ckpt = NULL;
  const tri_status room = TRI_NEW(TRI_MODULE_CKPT, 1, &ckpt);
  tri_status status = tri_comm_agree(comm, "checkpoint memory", room);
  if (status == TRI_OK) status = open_on_all(comm, path, ckpt);
  if (status != TRI_OK) {
    tri_error_trace(__func__, __FILE__, __LINE__);
    tri_ckpt_close(&ckpt);
    return status;
  }
  *out = ckpt;
  return TRI_OK;
}

void tri_ckpt_close(tri_ckpt **ckpt)
{
  if (*ckpt == NULL) return;
  tri_manifest_clear(&(*ckpt)->manifest);
  TRI_FREE(ckpt);
}

const char *tri_ckpt_path(const tri_ckpt *ckpt)
{
  return ckpt->path;
}

int64_t tri_ckpt_step(const tri_ckpt *ckpt)
{
  return ckpt->manifest.step;
}

const char *tri_ckpt_attributes(const tri_ckpt *ckpt)
{
  return ckpt->manifest.attributes;
}

tri_ckpt_facts tri_ckpt_read_facts(const tri_ckpt *ckpt)
{
  return tri_manifest_facts(&ckpt->manifest);
}

// --- load

// A piece of a file that holds something of an array of this rank.
typedef struct task {
  int file;
  int array; // of the state
  int64_t piece;
} task;

static tri_status match(const tri_ckpt *ckpt, const tri_ckpt_array *array,
                        const tri_manifest_array **out)
{
  const tri_manifest_array *stored = tri_manifest_find(&ckpt->manifest, array->name);
  TRI_CHECK(stored != NULL, TRI_ERR_CONFIG, "%s: holds no array %s: it is of another model",
            ckpt->path, array->name);
  TRI_CHECK(stored->dtype == array->dtype, TRI_ERR_CONFIG, "%s: array %s is %s there, %s here",
            ckpt->path, array->name, tri_dtype_name(stored->dtype), tri_dtype_name(array->dtype));
  if (tri_shape_equal(&stored->shape, &array->shape)) {
    *out = stored;
    return TRI_OK;
  }
  char there[128], here[128];
  tri_ckpt_numbers_text(stored->shape.n_axes, stored->shape.extent, there, sizeof there);
  tri_ckpt_numbers_text(array->shape.n_axes, array->shape.extent, here, sizeof here);
  return TRI_ERROR(TRI_ERR_CONFIG, "%s: array %s has shape %s there, %s here", ckpt->path,
                   array->name, there, here);
}

static int by_file(const void *a, const void *b)
{
  const task *p = a, *q = b;
  if (p->file != q->file) return p->file < q->file ? -1 : 1;
  return p->array < q->array ? -1 : p->array > q->array ? 1 : 0;
}

// What to read, file by file, so that every file is opened once.
static tri_status plan(const tri_ckpt *ckpt, const tri_ckpt_state *state, task **tasks,
                       int64_t *n_tasks)
{
  const tri_manifest_array *stored;
  int64_t most = 0;
  TRI_CALL(tri_ckpt_check_state(state));
  for (int i = 0; i < state->n_arrays; i++) {
    TRI_CALL(match(ckpt, &state->arrays[i], &stored));
    most += stored->n_pieces;
  }
  TRI_CALL(TRI_NEW(TRI_MODULE_CKPT, most, tasks));
  for (int i = 0; i < state->n_arrays; i++) {
    TRI_CALL(match(ckpt, &state->arrays[i], &stored));
    for (int64_t p = stored->first_piece; p < stored->first_piece + stored->n_pieces; p++) {
      tri_box common;
      const tri_manifest_piece *piece = &ckpt->manifest.pieces[p];
      if (!tri_box_intersect(&piece->box, &state->arrays[i].box, &common)) continue;
      (*tasks)[(*n_tasks)++] = (task){.file = piece->file, .array = i, .piece = p};
    }
  }
  if (*n_tasks > 0) qsort(*tasks, (size_t)*n_tasks, sizeof **tasks, by_file);
  return TRI_OK;
}

static tri_status read_tasks(const tri_ckpt *ckpt, const tri_ckpt_state *state, const task *tasks,
                             int64_t n_tasks, void *staging)
{
  tri_status status = TRI_OK;
  tri_shard_reader *reader = NULL;
  char path[PATH_MAX];
  for (int64_t i = 0; i < n_tasks; i++) {
    const tri_manifest_piece *piece = &ckpt->manifest.pieces[tasks[i].piece];
    if (i == 0 || tasks[i].file != tasks[i - 1].file) {
      tri_shard_reader_close(&reader);
      TRI_CALL_GOTO(done, tri_path_join(path, sizeof path, ckpt->path,
                                        ckpt->manifest.files[tasks[i].file].name));
      TRI_CALL_GOTO(done, tri_shard_reader_open(path, &reader));
    }
    TRI_CALL_GOTO(done, tri_shard_read(reader, state, tasks[i].array, &piece->box, staging));
  }

done:
  tri_shard_reader_close(&reader);
  return status;
}

tri_status tri_ckpt_load(tri_ckpt *ckpt, tri_comm *comm, const tri_ckpt_state *state)
{
  tri_status status = TRI_OK;
  task *tasks = NULL;
  int64_t n_tasks = 0;
  void *staging = NULL;
  // Nothing is stored anywhere before all ranks know that it fits.
  TRI_CALL_GOTO(done, tri_comm_agree(comm, "checkpoint plan", plan(ckpt, state, &tasks, &n_tasks)));
  staging = tri_calloc(TRI_MODULE_CKPT, TRI_STAGING_BYTES, 1);
  TRI_CALL_GOTO(
      done, tri_comm_agree(comm, "checkpoint memory", staging == NULL ? TRI_ERR_MEMORY : TRI_OK));
  TRI_CALL_GOTO(done, tri_comm_agree(comm, "checkpoint load",
                                     read_tasks(ckpt, state, tasks, n_tasks, staging)));

done:
  tri_free(staging);
  tri_free(tasks);
  return status;
}
