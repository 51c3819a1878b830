// The manifest of a checkpoint: what every file and every array of it is. Local.
//
// The text is one JSON object, a line for every file and array; its last line is the digest of all
// lines before it, so that `head -n -1 manifest.json | b2sum -l 256` prints it
// (docs/checkpoint-format.md).
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "trireme/base/digest.h"
#include "trireme/base/status.h"
#include "trireme/ckpt/ckpt.h"
#include "trireme/tensor/box.h"
#include "trireme/tensor/dtype.h"

enum {
  TRI_MANIFEST_VERSION = 2, // 1: no file holds two pieces of an array
  TRI_MANIFEST_BYTES_MAX = 64 << 20,
  TRI_MANIFEST_FILES_MAX = 1 << 16,
  TRI_MANIFEST_ARRAYS_MAX = 1 << 20
};
#define TRI_MANIFEST_NAME "manifest.json"

typedef struct tri_manifest_file {
  char name[64]; // plain: no folder in it
  int64_t bytes;
  tri_digest digest;
} tri_manifest_file;

typedef struct tri_manifest_array {
  char name[96];
  tri_dtype dtype;
  tri_shape shape;
  int64_t first_piece; // its pieces are first_piece … first_piece + n_pieces - 1
  int n_pieces;
} tri_manifest_array;

// A piece that is alone in its file has a dataset of its own extents. Several of one array lie one
// behind the other, each packed row-major, in one dataset with a single axis.
typedef struct tri_manifest_piece {
  int file;
  tri_box box;
  int64_t before, total; // elements in the dataset before this piece, and in all; set by the reader
} tri_manifest_piece;

// All owned. Files ascend by name, arrays by name, the pieces of an array by file and then by first
// element.
typedef struct tri_manifest {
  int64_t step;
  char *attributes; // canonical text
  int n_files, n_arrays;
  int64_t n_pieces;
  tri_manifest_file *files;
  tri_manifest_array *arrays;
  tri_manifest_piece *pieces;
} tri_manifest;

// Releases what the manifest holds.
void tri_manifest_clear(tri_manifest *manifest);

// One JSON object as text, in the one form that is stored and digested: keys sorted, no white
// space. TRI_ERR_ARGUMENT when it is none. *out owned.
TRI_MUST_CHECK tri_status tri_manifest_attributes(const char *text, char **out);

// The text of a manifest, in the lowest version that can say it. *out owned.
TRI_MUST_CHECK tri_status tri_manifest_write(const tri_manifest *manifest, char **out,
                                             size_t *size_bytes);

// Reads and checks a text: digest, members, types, ranges, names, order, boxes, every element of
// every array in exactly one piece. TRI_ERR_FORMAT, the message begins with `path`. *out owned:
// tri_manifest_clear.
TRI_MUST_CHECK tri_status tri_manifest_read(const char *path, const char *text, size_t size_bytes,
                                            tri_manifest *out);

// Reads folder/manifest.json, checks it as above, and that every file is there with its size.
// *text (NULL: not wanted) is owned by the caller.
TRI_MUST_CHECK tri_status tri_manifest_load(const char *folder, tri_manifest *out, char **text,
                                            size_t *size_bytes);

tri_ckpt_facts tri_manifest_facts(const tri_manifest *manifest);

// The array of that name, NULL when there is none.
const tri_manifest_array *tri_manifest_find(const tri_manifest *manifest, const char *name);
