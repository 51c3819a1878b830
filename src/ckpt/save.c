// Saving: every rank writes its pieces to one file in a temporary folder; root, told what was
// written, writes the manifest and gives the folder its name.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/agree.h"
#include "ckpt/cover.h"
#include "ckpt/folder.h"
#include "ckpt/manifest.h"
#include "ckpt/pieces.h"
#include "ckpt/shard.h"
#include "trireme/base/digest.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/base/memory.h"
#include "trireme/ckpt/ckpt.h"

// One piece of one rank as root is told of it; or only its array.
typedef struct record {
  char name[96];
  int32_t dtype;
  int32_t rank; // set by root
  int32_t file; // set by root; -1: there is no piece
  tri_shape shape;
  tri_box piece;
} record;

// What a rank tells root: this, then `n_records` records.
typedef struct report {
  int64_t bytes; // of its file
  tri_digest digest;
  int32_t n_records, n_pieces; // no file when there are no pieces
} report;

// A box of this rank, and the piece of it that this rank writes.
typedef struct own_box {
  const tri_ckpt_array *array;
  bool writes;
  tri_shard_piece piece;
} own_box;

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

// By name, then what is written in the order in which the file holds it, then the rest.
static int compare_boxes(const void *a, const void *b)
{
  const own_box *p = a, *q = b;
  const int order = strcmp(p->array->name, q->array->name);
  if (order != 0) return order;
  if (p->writes != q->writes) return p->writes ? -1 : 1;
  return p->writes ? tri_ckpt_compare_starts(&p->piece.box, &q->piece.box) : 0;
}

static tri_status list_boxes(const tri_ckpt_state *state, own_box **out)
{
  TRI_CALL(TRI_NEW(TRI_MODULE_CKPT, state->n_arrays, out));
  for (int i = 0; i < state->n_arrays; i++) {
    own_box *box = &(*out)[i];
    *box = (own_box){.array = &state->arrays[i], .piece.index = i};
    box->writes = tri_ckpt_piece(box->array, &box->piece.box);
  }
  qsort(*out, (size_t)state->n_arrays, sizeof **out, compare_boxes);
  return TRI_OK;
}

// Boxes of the array with which `boxes` begins.
static int count_array(const own_box *boxes, int n)
{
  int end = 1;
  while (end < n && strcmp(boxes[end].array->name, boxes[0].array->name) == 0)
    end++;
  return end;
}

// An array is told of piece by piece; and, so that arrays without elements are known too, by a
// first replica that writes nothing.
static void fill_report(const own_box *boxes, int n, report *out)
{
  record *records = (record *)(out + 1);
  for (int i = 0; i < n; i++) {
    const tri_ckpt_array *array = boxes[i].array;
    record r = {.dtype = array->dtype, .file = -1, .shape = array->shape};
    if (!boxes[i].writes && array->replica != 0) continue;
    memcpy(r.name, array->name, sizeof r.name);
    if (boxes[i].writes) {
      r.piece = boxes[i].piece.box;
      r.file = 0;
      out->n_pieces++;
    } else if (out->n_records > 0 && strcmp(records[out->n_records - 1].name, r.name) == 0) {
      continue; // told already
    }
    records[out->n_records++] = r;
  }
}

static tri_status write_array(const tri_ckpt_state *state, const own_box *boxes, int n,
                              tri_shard_piece *pieces, tri_shard_writer *writer, void *staging)
{
  int n_pieces = 0;
  for (int i = 0; i < n && boxes[i].writes; i++)
    pieces[n_pieces++] = boxes[i].piece;
  return n_pieces == 0 ? TRI_OK : tri_shard_write(writer, state, pieces, n_pieces, staging);
}

static tri_status write_pieces(const tri_ckpt_state *state, const own_box *boxes,
                               tri_shard_writer *writer)
{
  tri_status status = TRI_OK;
  tri_shard_piece *pieces = NULL; // of one array at a time
  void *staging = tri_calloc(TRI_MODULE_CKPT, TRI_STAGING_BYTES, 1);
  if (staging == NULL) return TRI_ERR_MEMORY;
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_CKPT, state->n_arrays, &pieces));
  for (int first = 0, n; first < state->n_arrays; first += n) {
    n = count_array(boxes + first, state->n_arrays - first);
    TRI_CALL_GOTO(done, write_array(state, boxes + first, n, pieces, writer, staging));
  }

done:
  tri_free(pieces);
  tri_free(staging);
  return status;
}

// The error text is that of the write, not of the close after it.
static tri_status close_after(tri_status written, tri_shard_writer **writer)
{
  if (written == TRI_OK) return tri_shard_writer_close(writer);
  char message[1024];
  snprintf(message, sizeof message, "%s", tri_error_message());
  const tri_status closed = tri_shard_writer_close(writer);
  if (closed == TRI_OK || strcmp(message, tri_error_message()) == 0) return written;
  return TRI_ERROR(written, "%s", message);
}

// The digest is taken from the file, read again after the fsync.
static tri_status write_boxes(const saving *s, const own_box *boxes, report *out)
{
  char name[TRI_CKPT_NAME_BYTES], path[PATH_MAX];
  tri_shard_writer *writer = NULL;
  fill_report(boxes, s->state->n_arrays, out);
  if (out->n_pieces == 0) return TRI_OK;
  snprintf(name, sizeof name, "rank-%05d.h5", tri_comm_rank(s->comm));
  TRI_CALL(tri_path_join(path, sizeof path, s->temporary, name));
  TRI_CALL(tri_shard_writer_create(path, &writer));
  TRI_CALL(close_after(write_pieces(s->state, boxes, writer), &writer));
  return tri_digest_of_file(path, &out->digest, &out->bytes);
}

static tri_status write_file(const saving *s, report *out)
{
  own_box *boxes = NULL;
  TRI_CALL(list_boxes(s->state, &boxes));
  const tri_status status = write_boxes(s, boxes, out);
  tri_free(boxes);
  return status;
}

// --- root

static int compare_records(const void *a, const void *b)
{
  const record *p = a, *q = b;
  const int order = strcmp(p->name, q->name);
  if (order != 0) return order;
  if (p->file != q->file) return p->file < q->file ? -1 : 1;
  return tri_ckpt_compare_starts(&p->piece, &q->piece);
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
    for (int i = 0; i < told->n_records; i++) {
      first[i].rank = rank;
      first[i].file = first[i].file < 0 ? -1 : manifest->n_files;
    }
    if (told->n_pieces == 0) continue;
    tri_manifest_file *file = &manifest->files[manifest->n_files++];
    snprintf(file->name, sizeof file->name, "rank-%05d.h5", rank);
    file->bytes = told->bytes;
    file->digest = told->digest;
  }
  return TRI_OK;
}

// Every element of an array is in exactly one of the pieces; else the ranks are named.
static tri_status check_records(const record *records, int64_t n)
{
  tri_status status = TRI_OK;
  tri_box *boxes = NULL;
  int *ranks = NULL;
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_CKPT, n, &boxes));
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_CKPT, n, &ranks));
  tri_cover cover = {records[0].name, &records[0].shape, boxes, ranks, "rank", 0};
  for (int64_t i = 0; i < n; i++) {
    if (records[i].file < 0) continue;
    ranks[cover.n_boxes] = records[i].rank;
    boxes[cover.n_boxes++] = records[i].piece;
  }
  status = tri_ckpt_check_cover(&cover);
  if (status == TRI_ERR_FORMAT) status = TRI_ERROR(TRI_ERR_ARGUMENT, "%s", tri_error_message());

done:
  tri_free(ranks);
  tri_free(boxes);
  return status;
}

// Adds one array: `n` records of one name.
static tri_status add_records(tri_manifest *manifest, const record *records, int64_t n)
{
  tri_manifest_array *array = &manifest->arrays[manifest->n_arrays++];
  memcpy(array->name, records[0].name, sizeof array->name);
  array->dtype = (tri_dtype)records[0].dtype;
  array->shape = records[0].shape;
  array->first_piece = manifest->n_pieces;
  for (int64_t i = 0; i < n; i++) {
    const record *r = &records[i];
    TRI_CHECK(r->dtype == records[0].dtype && tri_shape_equal(&r->shape, &records[0].shape),
              TRI_ERR_ARGUMENT, "array %s has another type or shape on rank %d than on rank %d",
              r->name, r->rank, records[0].rank);
    if (r->file < 0) continue;
    manifest->pieces[manifest->n_pieces++] = (tri_manifest_piece){.file = r->file, .box = r->piece};
    array->n_pieces++;
  }
  return check_records(records, n);
}

// Records of the array with which `records` begins.
static int64_t count_records(const record *records, int64_t n)
{
  int64_t end = 1;
  while (end < n && strcmp(records[end].name, records[0].name) == 0)
    end++;
  return end;
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
  for (int64_t first = 0, n; first < n_records; first += n) {
    n = count_records(records + first, n_records - first);
    TRI_CALL_GOTO(done, add_records(manifest, records + first, n));
  }

done:
  tri_free(records);
  return status;
}

// The text is read back by the reader that will meet it, before it is written; and the files are
// looked for, which must be seen from here.
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
