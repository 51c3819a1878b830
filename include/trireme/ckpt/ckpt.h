// Checkpoints: logical arrays by global name, the box each rank holds, one HDF5 file a rank, and a
// manifest.
//
// Folder CKPT/step-00000123/: rank-00000.h5 … and manifest.json, which lists every file (size,
// BLAKE2b digest), every array (name, type, shape, pieces: file, box), and the caller's attributes,
// and ends in a digest of itself. A checkpoint is written to a temporary folder, every file
// fsynced, the manifest last, the folder renamed, its parent fsynced: it is whole or it is not
// there. Files are read only after their digests are checked against the manifest. Nothing here
// depends on the layout of the ranks that wrote or read it.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "trireme/base/digest.h"
#include "trireme/comm/comm.h"
#include "trireme/tensor/box.h"
#include "trireme/tensor/dtype.h"

// One logical array as this rank holds it.
typedef struct tri_ckpt_array {
  char name[96]; // global, "parameter/h.0.ln_1.weight": printable ASCII, parts not "." or ".."
  tri_dtype dtype;
  tri_shape shape; // global
  tri_box box;     // held by this rank; may be empty
  int replica;     // this rank's place among the ranks that hold the same box …
  int n_replicas;  // … who share the work of writing and digesting it
} tri_ckpt_array;

// Moves part of an array between the caller's (device) memory and packed host memory. `part` lies
// in arrays[index].box and has at most 16 MiB.
typedef tri_status (*tri_ckpt_fetch)(void *user, int index, const tri_box *part, void *host_out);
typedef tri_status (*tri_ckpt_store)(void *user, int index, const tri_box *part,
                                     const void *host_in);

// The arrays of a rank with their access. A rank may give a name several times, with one type and
// shape and with disjoint boxes of the array, each with replicas of its own: a flat range is
// tri_box_cut_range of the whole (a ZeRO shard), a split of fused rows is a box for each part.
// Boxes may be as small as one element, or empty. The ranks need not give the same names, nor in
// the same order. Distinct boxes of an array are disjoint and together cover it; boxes are the same
// only as replicas of one another, numbered 0 to n_replicas - 1.
typedef struct tri_ckpt_state {
  const tri_ckpt_array *arrays;
  int n_arrays;
  tri_ckpt_fetch fetch;
  tri_ckpt_store store;
  void *user;
} tri_ckpt_state;

// Writes folder/step-%08d. Collective, errors agree; on an error the temporary folder is removed
// and older checkpoints are untouched. attributes: one JSON object as text, equal on all ranks.
// Existing checkpoint of that step: replaced by rename only after the new one is whole. Checks that
// every element of every array is written exactly once: else TRI_ERR_ARGUMENT names the array, a
// range of its elements and the ranks that hold them.
TRI_MUST_CHECK tri_status tri_ckpt_save(tri_comm *comm, const char *folder, int64_t step,
                                        const tri_ckpt_state *state, const char *attributes);

typedef struct tri_ckpt tri_ckpt;

// Opens folder/step-…: reads and checks the manifest on root, hands it to all, and checks the
// digests of all files, each rank a share. Collective, errors agree (TRI_ERR_FORMAT names the file
// and what is wrong). *out owned.
TRI_MUST_CHECK tri_status tri_ckpt_open(tri_comm *comm, const char *path, tri_ckpt **out);
void tri_ckpt_close(tri_ckpt **ckpt);

// Opens the newest checkpoint of a folder whose manifest, sizes and digests are right; *out is NULL
// when the folder has none or is missing. A newer one that is not right is named in a warning. When
// there are some and none is right: TRI_ERR_FORMAT. Collective, errors agree. *out owned.
TRI_MUST_CHECK tri_status tri_ckpt_open_newest(tri_comm *comm, const char *folder, tri_ckpt **out);

// Renames the checkpoints newer than `step` whose digests alone are wrong to damaged-step-…, so
// that a run that goes on from `step` neither keeps nor loads them for good ones. They are the
// user's to remove. Collective, errors agree.
TRI_MUST_CHECK tri_status tri_ckpt_set_aside(tri_comm *comm, const char *folder, int64_t step);

// Borrowed.
const char *tri_ckpt_path(const tri_ckpt *ckpt);
int64_t tri_ckpt_step(const tri_ckpt *ckpt);
// The attributes with keys sorted and without white space. Borrowed.
const char *tri_ckpt_attributes(const tri_ckpt *ckpt);

// What a checkpoint holds.
typedef struct tri_ckpt_facts {
  int n_files, n_arrays;
  int64_t n_pieces, elements, bytes;
} tri_ckpt_facts;
tri_ckpt_facts tri_ckpt_read_facts(const tri_ckpt *ckpt);

// Fills every array of `state` from the checkpoint, whatever layout wrote it; arrays that only the
// checkpoint holds are left alone. TRI_ERR_CONFIG when an array is missing or has another shape or
// type, naming it; nothing is stored before that is known on all ranks. Collective, errors agree.
TRI_MUST_CHECK tri_status tri_ckpt_load(tri_ckpt *ckpt, tri_comm *comm,
                                        const tri_ckpt_state *state);

// The newest whole checkpoint of a folder: path "" and step -1 when there is none (a missing folder
// is none). Whole is: its manifest is valid and every file is there with its size (digests are
// checked by tri_ckpt_open). One that is not whole is named in a warning and the next older is
// taken; when there are some and none is whole: TRI_ERR_FORMAT. Left-over temporary folders are
// ignored. Collective, errors agree.
TRI_MUST_CHECK tri_status tri_ckpt_latest(tri_comm *comm, const char *folder, char *path,
                                          size_t path_size, int64_t *step);

// Removes all checkpoints older than the newest `keep` whole ones (0: keep all), and temporary
// folders left by dead runs. Collective, errors agree.
TRI_MUST_CHECK tri_status tri_ckpt_prune(tri_comm *comm, const char *folder, int keep);

// One checkpoint of a folder, as tri_ckpt_latest sees it.
typedef struct tri_ckpt_entry {
  int64_t step;
  tri_status status; // TRI_OK: whole
  char message[256]; // what is wrong with it
  tri_ckpt_facts facts;
} tri_ckpt_entry;

// All checkpoints of a folder, newest first. Local. *out owned: tri_free.
TRI_MUST_CHECK tri_status tri_ckpt_list(const char *folder, tri_ckpt_entry **out, int *n_entries);

// The state digest: of every array by name and global index, in chunks, and of the attributes; the
// same for every layout, order of arrays and white space in the attributes. Boxes may be cut in any
// way: a chunk that several boxes share is put together on one rank. TRI_ERR_ARGUMENT, as by
// tri_ckpt_save, when the boxes do not cover an array exactly once. Collective, errors agree; *out
// is set on all ranks.
TRI_MUST_CHECK tri_status tri_ckpt_digest(tri_comm *comm, const tri_ckpt_state *state,
                                          const char *attributes, tri_digest *out);
