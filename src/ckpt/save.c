// Saving: every rank writes its pieces to one file in a temporary folder; root, told what was
// written, writes the manifest and gives the folder its name.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/agree.h"
#include "ckpt/folder.h"
#include "ckpt/manifest.h"
#include "ckpt/pieces.h"
#include "ckpt/shard.h"
#include "trireme/base/digest.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/base/memory.h"
#include "trireme/ckpt/ckpt.h"

// One array of one rank as root is told of it.
typedef struct record {
  char name[96];
  int32_t dtype;
  int32_t file; // set by root; -1: the rank writes no piece of it
  tri_shape shape;
  tri_box piece;
} record;

// What a rank tells root: this, then `n_records` records.
typedef struct report {
  int64_t bytes; // of its file
  tri_digest digest;
  int32_t n_records, n_pieces; // no file when there are no pieces
} report;

typedef struct saving {
  tri_comm *comm;
  const char *folder;
  int64_t step;
  const tri_ckpt_state *state;
  char *attributes;
  char temporary[PATH_MAX];
  int lock; // root's hold on the temporary folder, -1 without
} saving;

// --- every rank

// The array is told of by its writers and, so that arrays without elements are known too, by the
// first replica.
static void fill_report(const tri_ckpt_state *state, report *out)
{
  record *records = (record *)(out + 1);
  for (int i = 0; i < state->n_arrays; i++) {
    const tri_ckpt_array *array = &state->arrays[i];
    record r = {.dtype = array->dtype, .file = -1, .shape = array->shape};
    const bool writes = tri_ckpt_piece(array, &r.piece);
    if (!writes && array->replica != 0) continue;
    memcpy(r.name, array->name, sizeof r.name);
    if (writes) r.file = 0;
    out->n_pieces += writes ? 1 : 0;
    records[out->n_records++] = r;
  }
}

static tri_status write_pieces(const tri_ckpt_state *state, tri_shard_writer *writer)
{
  void *staging = tri_calloc(TRI_MODULE_CKPT, TRI_STAGING_BYTES, 1);
  tri_status status = staging == NULL ? TRI_ERR_MEMORY : TRI_OK;
  for (int i = 0; i < state->n_arrays && status == TRI_OK; i++) {
    tri_box piece;
    if (tri_ckpt_piece(&state->arrays[i], &piece))
      status = tri_shard_write(writer, state, i, &piece, staging);
  }
  tri_free(staging);
  return status;
}

// The digest is taken from the file, read again after the fsync.
static tri_status write_file(const saving *s, report *out)
{
  char name[TRI_CKPT_NAME_BYTES], path[PATH_MAX];
  tri_shard_writer *writer = NULL;
  fill_report(s->state, out);
  if (out->n_pieces == 0) return TRI_OK;
  snprintf(name, sizeof name, "rank-%05d.h5", tri_comm_rank(s->comm));
  TRI_CALL(tri_path_join(path, sizeof path, s->temporary, name));
  TRI_CALL(tri_shard_writer_create(path, &writer));
  const tri_status written = write_pieces(s->state, writer);
  if (written != TRI_OK) {
    // The error text is that of the write, not of the close after it.
    char message[1024];
    snprintf(message, sizeof message, "%s", tri_error_message());
    const tri_status closed = tri_shard_writer_close(&writer);
    if (closed == TRI_OK || strcmp(message, tri_error_message()) == 0) return written;
    return TRI_ERROR(written, "%s", message);
  }
  TRI_CALL(tri_shard_writer_close(&writer));
  return tri_digest_of_file(path, &out->digest, &out->bytes);
}

// --- root

static int compare_records(const void *a, const void *b)
{
  const record *p = a, *q = b;
  const int order = strcmp(p->name, q->name);
  if (order != 0) return order;
  return p->file < q->file ? -1 : p->file > q->file ? 1 : 0;
}

// Takes apart what the ranks told: a file for every rank with pieces, all records in one list.
static tri_status collect(int n_ranks, const int64_t *sizes, const char *blocks,
                          tri_manifest *manifest, record **records, int64_t *n_records)
{
  int64_t n = 0;
  const char *block = blocks;
  for (int rank = 0; rank < n_ranks; block += sizes[rank++])
    n += ((const report *)block)->n_records;
  TRI_CALL(TRI_NEW(TRI_MODULE_CKPT, n, records));
  TRI_CALL(TRI_NEW(TRI_MODULE_CKPT, n_ranks, &manifest->files));
  block = blocks;
  for (int rank = 0; rank < n_ranks; block += sizes[rank++]) {
    const report *told = (const report *)block;
    record *first = *records + *n_records;
    if (told->n_records > 0) memcpy(first, told + 1, (size_t)told->n_records * sizeof *first);
    *n_records += told->n_records;
    for (int i = 0; i < told->n_records; i++)
      first[i].file = first[i].file < 0 ? -1 : manifest->n_files;
    if (told->n_pieces == 0) continue;
    tri_manifest_file *file = &manifest->files[manifest->n_files++];
    snprintf(file->name, sizeof file->name, "rank-%05d.h5", rank);
    file->bytes = told->bytes;
    file->digest = told->digest;
  }
  return TRI_OK;
}

static tri_status add_record(tri_manifest *manifest, const record *r)
{
  tri_manifest_array *array = &manifest->arrays[manifest->n_arrays - 1];
  if (manifest->n_arrays == 0 || strcmp(array->name, r->name) != 0) {
    array = &manifest->arrays[manifest->n_arrays++];
    memcpy(array->name, r->name, sizeof array->name);
    array->dtype = (tri_dtype)r->dtype;
    array->shape = r->shape;
    array->first_piece = manifest->n_pieces;
  }
  TRI_CHECK(array->dtype == (tri_dtype)r->dtype && tri_shape_equal(&array->shape, &r->shape),
            TRI_ERR_ARGUMENT, "array %s has another type or shape on another rank", r->name);
  if (r->file < 0) return TRI_OK;
  manifest->pieces[manifest->n_pieces++] = (tri_manifest_piece){.file = r->file, .box = r->piece};
  array->n_pieces++;
  return TRI_OK;
}

static tri_status build_manifest(const saving *s, const int64_t *sizes, const char *blocks,
                                 tri_manifest *manifest)
{
  tri_status status = TRI_OK;
  record *records = NULL;
  int64_t n_records = 0;
  manifest->step = s->step;
  manifest->attributes = tri_strdup(TRI_MODULE_CKPT, s->attributes);
  if (manifest->attributes == NULL) return TRI_ERR_MEMORY;
  TRI_CALL_GOTO(done,
                collect(tri_comm_size(s->comm), sizes, blocks, manifest, &records, &n_records));
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_CKPT, n_records, &manifest->arrays));
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_CKPT, n_records, &manifest->pieces));
  if (n_records > 0) qsort(records, (size_t)n_records, sizeof records[0], compare_records);
  for (int64_t i = 0; i < n_records; i++)
    TRI_CALL_GOTO(done, add_record(manifest, &records[i]));

done:
  tri_free(records);
  return status;
}

// The text is read back by the reader that will meet it, before it is written: that is the check
// that every element is in exactly one piece, and that the files are to be seen from here.
static tri_status check_manifest(const saving *s, const char *path, const char *text,
                                 size_t size_bytes)
{
  tri_manifest again;
  const tri_status status = tri_manifest_read(path, text, size_bytes, &again);
  if (status != TRI_OK)
    return TRI_ERROR(status == TRI_ERR_FORMAT ? TRI_ERR_ARGUMENT : status,
                     "step %lld cannot be saved: %s", (long long)s->step, tri_error_message());
  char file[PATH_MAX];
  tri_status seen = TRI_OK;
  for (int i = 0; i < again.n_files && seen == TRI_OK; i++) {
    seen = tri_path_join(file, sizeof file, s->temporary, again.files[i].name);
    if (seen == TRI_OK && !tri_file_exists(file))
      seen = TRI_ERROR(TRI_ERR_IO,
                       "%s: is not to be seen from rank 0: the checkpoint folder must be on a file "
                       "system that all ranks share",
                       file);
  }
  tri_manifest_clear(&again);
  return seen;
}

static tri_status commit(const saving *s, const int64_t *sizes, const char *blocks)
{
  tri_status status = TRI_OK;
  tri_manifest manifest = {0};
  char *text = NULL;
  size_t size_bytes = 0;
  char path[PATH_MAX];
  TRI_CALL_GOTO(done, build_manifest(s, sizes, blocks, &manifest));
  TRI_CALL_GOTO(done, tri_manifest_write(&manifest, &text, &size_bytes));
  TRI_CALL_GOTO(done, tri_path_join(path, sizeof path, s->temporary, TRI_MANIFEST_NAME));
  TRI_CALL_GOTO(done, check_manifest(s, path, text, size_bytes));
  TRI_CALL_GOTO(done, tri_file_write_atomic(path, text, size_bytes));
  TRI_CALL_GOTO(done, tri_ckpt_folder_commit(s->folder, s->temporary, s->step));

done:
  tri_free(text);
  tri_manifest_clear(&manifest);
  return status;
}

// --- the sequence

static tri_status begin(saving *s)
{
  tri_status status = TRI_OK;
  TRI_CHECK(s->step >= 0, TRI_ERR_ARGUMENT, "there is no step %lld", (long long)s->step);
  if (tri_comm_rank(s->comm) == 0)
    status = tri_ckpt_folder_begin(s->folder, s->step, s->temporary, sizeof s->temporary, &s->lock);
  return status;
}

static tri_status write_and_commit(saving *s)
{
  tri_status status = TRI_OK;
  const bool is_root = tri_comm_rank(s->comm) == 0;
  report *own = NULL;
  int64_t *sizes = NULL;
  void *blocks = NULL;
  const size_t room = sizeof *own + (size_t)s->state->n_arrays * sizeof(record);
  own = tri_calloc(TRI_MODULE_CKPT, 1, room);
  const tri_status written = own == NULL ? TRI_ERR_MEMORY : write_file(s, own);
  TRI_CALL_GOTO(done, tri_comm_agree(s->comm, "checkpoint files", written));
  TRI_CALL_GOTO(done, tri_comm_gather(s->comm, "checkpoint pieces", own,
                                      sizeof *own + (size_t)own->n_records * sizeof(record), 0,
                                      &sizes, &blocks));
  const tri_status committed = is_root ? commit(s, sizes, blocks) : TRI_OK;
  TRI_CALL_GOTO(done, tri_comm_agree(s->comm, "checkpoint commit", committed));

done:
  tri_free(blocks);
  tri_free(sizes);
  tri_free(own);
  return status;
}

// The error text that counts is the one that led here.
static void remove_temporary(const saving *s, tri_status status)
{
  char message[1024];
  snprintf(message, sizeof message, "%s", tri_error_message());
  if (tri_file_remove(s->temporary) != TRI_OK)
    tri_log(TRI_LOG_WARN, "left behind: %s", tri_error_message());
  if (strcmp(message, tri_error_message()) != 0) (void)TRI_ERROR(status, "%s", message);
}

tri_status tri_ckpt_save(tri_comm *comm, const char *folder, int64_t step,
                         const tri_ckpt_state *state, const char *attributes)
{
  tri_status status = TRI_OK;
  saving s = {.comm = comm, .folder = folder, .step = step, .state = state, .lock = -1};
  TRI_CALL(tri_ckpt_agree_on_state(comm, state, attributes, &s.attributes));
  TRI_CALL_GOTO(done, tri_comm_agree(comm, "checkpoint folder", begin(&s)));
  TRI_CALL_GOTO(done,
                tri_comm_broadcast(comm, "checkpoint folder", s.temporary, sizeof s.temporary, 0));
  TRI_CALL_GOTO(done, write_and_commit(&s));

done:
  if (status != TRI_OK && tri_comm_rank(comm) == 0 && s.temporary[0] != '\0')
    remove_temporary(&s, status);
  if (s.lock >= 0) close(s.lock);
  tri_free(s.attributes);
  return status;
}
