// One HDF5 file of a checkpoint: pieces of arrays, each a contiguous dataset named after its array.
// Local; no MPI in it.
#pragma once

#include "trireme/base/status.h"
#include "trireme/ckpt/ckpt.h"
#include "trireme/tensor/box.h"

typedef struct tri_shard_writer tri_shard_writer;
typedef struct tri_shard_reader tri_shard_reader;

// Makes a new file. TRI_ERR_IO when it cannot be made or is there. *out owned:
// tri_shard_writer_close.
TRI_MUST_CHECK tri_status tri_shard_writer_create(const char *path, tri_shard_writer **out);

// Writes the part `piece` of an array, fetched in slabs through `staging` (TRI_STAGING_BYTES).
TRI_MUST_CHECK tri_status tri_shard_write(tri_shard_writer *writer, const tri_ckpt_state *state,
                                          int index, const tri_box *piece, void *staging);

// Ends the file: flushes, fsyncs and closes it. Reports the first failed write of all; the file is
// whole only after TRI_OK. Nulls the pointer in any case; NULL-safe.
TRI_MUST_CHECK tri_status tri_shard_writer_close(tri_shard_writer **writer);

// Opens a file whose digest has been checked: HDF5 is not made for hostile files. TRI_ERR_FORMAT
// names the file. *out owned: tri_shard_reader_close.
TRI_MUST_CHECK tri_status tri_shard_reader_open(const char *path, tri_shard_reader **out);
void tri_shard_reader_close(tri_shard_reader **reader);

// Reads what `piece` (the box of the dataset in this file) and arrays[index].box have in common
// and stores it, in slabs through `staging` (TRI_STAGING_BYTES).
TRI_MUST_CHECK tri_status tri_shard_read(tri_shard_reader *reader, const tri_ckpt_state *state,
                                         int index, const tri_box *piece, void *staging);
