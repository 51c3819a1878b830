// One HDF5 file of a checkpoint: for every array one contiguous dataset named after it, with the
// piece or the pieces of the array that this file holds (manifest.h says how they lie in it).
// Local; no MPI in it.
#pragma once

#include "ckpt/manifest.h"
#include "trireme/base/status.h"
#include "trireme/ckpt/ckpt.h"
#include "trireme/tensor/box.h"

typedef struct tri_shard_writer tri_shard_writer;
typedef struct tri_shard_reader tri_shard_reader;

// Makes a new file. TRI_ERR_IO when it cannot be made or is there. *out owned:
// tri_shard_writer_close.
TRI_MUST_CHECK tri_status tri_shard_writer_create(const char *path, tri_shard_writer **out);

// A piece of arrays[index] that is to be written.
typedef struct tri_shard_piece {
  int index;
  tri_box box; // not empty
} tri_shard_piece;

// Writes all pieces of one array that this file holds, n >= 1 of them in the order of their first
// elements, fetched in slabs through `staging` (TRI_STAGING_BYTES).
TRI_MUST_CHECK tri_status tri_shard_write(tri_shard_writer *writer, const tri_ckpt_state *state,
                                          const tri_shard_piece *pieces, int n, void *staging);

// Ends the file: flushes, fsyncs and closes it. Reports the first failed write of all; the file is
// whole only after TRI_OK. Nulls the pointer in any case; NULL-safe.
TRI_MUST_CHECK tri_status tri_shard_writer_close(tri_shard_writer **writer);

// Opens a file whose digest has been checked: HDF5 is not made for hostile files. TRI_ERR_FORMAT
// names the file. *out owned: tri_shard_reader_close.
TRI_MUST_CHECK tri_status tri_shard_reader_open(const char *path, tri_shard_reader **out);
void tri_shard_reader_close(tri_shard_reader **reader);

// Reads what `piece` of this file and arrays[index].box have in common and stores it, in slabs
// through `staging` (TRI_STAGING_BYTES). Fast when the pieces of an array are read in a row.
TRI_MUST_CHECK tri_status tri_shard_read(tri_shard_reader *reader, const tri_ckpt_state *state,
                                         int index, const tri_manifest_piece *piece, void *staging);
