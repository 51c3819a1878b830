// Opening and loading: nothing of a checkpoint is believed before root has checked the manifest and
// all ranks together the digests of the files.
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/agree.h"
#include "ckpt/manifest.h"
#include "ckpt/pieces.h"
#include "ckpt/read_plan.h"
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

static tri_status plan(const tri_ckpt *ckpt, const tri_ckpt_state *state, tri_read **reads,
                       int64_t *n_reads)
{
  TRI_CALL(tri_ckpt_check_state(state));
  return tri_read_plan(ckpt->path, &ckpt->manifest, state, reads, n_reads);
}

static tri_status read_all(const tri_ckpt *ckpt, const tri_ckpt_state *state, const tri_read *reads,
                           int64_t n_reads, void *staging)
{
  tri_status status = TRI_OK;
  tri_shard_reader *reader = NULL;
  char path[PATH_MAX];
  for (int64_t i = 0; i < n_reads; i++) {
    const tri_manifest_piece *piece = &ckpt->manifest.pieces[reads[i].piece];
    if (i == 0 || reads[i].file != reads[i - 1].file) {
      tri_shard_reader_close(&reader);
      TRI_CALL_GOTO(done, tri_path_join(path, sizeof path, ckpt->path,
                                        ckpt->manifest.files[reads[i].file].name));
      TRI_CALL_GOTO(done, tri_shard_reader_open(path, &reader));
    }
    TRI_CALL_GOTO(done, tri_shard_read(reader, state, reads[i].index, piece, staging));
  }

done:
  tri_shard_reader_close(&reader);
  return status;
}

tri_status tri_ckpt_load(tri_ckpt *ckpt, tri_comm *comm, const tri_ckpt_state *state)
{
  tri_status status = TRI_OK;
  tri_read *reads = NULL;
  int64_t n_reads = 0;
  void *staging = NULL;
  // Nothing is stored anywhere before all ranks know that it fits.
  TRI_CALL_GOTO(done, tri_comm_agree(comm, "checkpoint plan", plan(ckpt, state, &reads, &n_reads)));
  staging = tri_calloc(TRI_MODULE_CKPT, TRI_STAGING_BYTES, 1);
  TRI_CALL_GOTO(
      done, tri_comm_agree(comm, "checkpoint memory", staging == NULL ? TRI_ERR_MEMORY : TRI_OK));
  TRI_CALL_GOTO(done, tri_comm_agree(comm, "checkpoint load",
                                     read_all(ckpt, state, reads, n_reads, staging)));

done:
  tri_free(staging);
  tri_free(reads);
  return status;
}
