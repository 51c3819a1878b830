#include "ckpt/shard.h"

#include <hdf5.h>
#include <limits.h>
#include <string.h>

#include "ckpt/pieces.h"
#include "ckpt/steady_file.h"
#include "trireme/base/hdf5_error.h"
#include "trireme/base/memory.h"

struct tri_shard_writer {
  char path[PATH_MAX];
  tri_steady_file file;
  hid_t hdf5;
};

struct tri_shard_reader {
  char path[PATH_MAX];
  hid_t hdf5;
  hid_t dataset;                                   // that of array `name`, -1 without
  char name[sizeof((tri_ckpt_array *)NULL)->name]; // "" without
};

static hid_t type_in_file(tri_dtype dtype)
{
  switch (dtype) {
  case TRI_DTYPE_F32: return H5T_IEEE_F32LE;
  case TRI_DTYPE_F64: return H5T_IEEE_F64LE;
  case TRI_DTYPE_I32: return H5T_STD_I32LE;
  case TRI_DTYPE_BF16: // HDF5 1.10 has no such type: its bits, and the attribute "dtype"
  case TRI_DTYPE_U16: return H5T_STD_U16LE;
  }
  return -1;
}

static hid_t type_in_memory(tri_dtype dtype)
{
  switch (dtype) {
  case TRI_DTYPE_F32: return H5T_NATIVE_FLOAT;
  case TRI_DTYPE_F64: return H5T_NATIVE_DOUBLE;
  case TRI_DTYPE_I32: return H5T_NATIVE_INT32;
  case TRI_DTYPE_BF16:
  case TRI_DTYPE_U16: return H5T_NATIVE_UINT16;
  }
  return -1;
}

// The dataspace of `n` elements in a row.
static hid_t space_of_row(int64_t n)
{
  const hsize_t count = (hsize_t)n;
  return H5Screate_simple(1, &count, NULL);
}

// The dataspace of a packed box.
static hid_t space_of(const tri_box *box)
{
  hsize_t count[TRI_MAX_AXES];
  if (box->n_axes == 0) return H5Screate(H5S_SCALAR);
  for (int a = 0; a < box->n_axes; a++)
    count[a] = (hsize_t)box->count[a];
  return H5Screate_simple(box->n_axes, count, NULL);
}

// Selects `part` in the dataspace of a dataset that holds `piece`.
static herr_t select_part(hid_t space, const tri_box *piece, const tri_box *part)
{
  hsize_t start[TRI_MAX_AXES], count[TRI_MAX_AXES];
  if (piece->n_axes == 0) return 0;
  for (int a = 0; a < piece->n_axes; a++) {
    start[a] = (hsize_t)(part->start[a] - piece->start[a]);
    count[a] = (hsize_t)part->count[a];
  }
  return H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
}

static tri_status keep_path(char *to, size_t size, const char *path)
{
  TRI_CHECK(strlen(path) < size, TRI_ERR_IO, "%s: path is too long", path);
  memcpy(to, path, strlen(path) + 1);
  return TRI_OK;
}

// --- writing

tri_status tri_shard_writer_create(const char *path, tri_shard_writer **out)
{
  tri_status status = TRI_OK;
  tri_shard_writer *writer = NULL;
  hid_t access = -1;
  TRI_CALL(TRI_NEW(TRI_MODULE_CKPT, 1, &writer));
  TRI_CALL_GOTO(err_free, keep_path(writer->path, sizeof writer->path, path));
  TRI_CALL_GOTO(err_free, tri_steady_file_create(path, &writer->file, &access));
  writer->hdf5 = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
  if (writer->hdf5 < 0) status = TRI_ERROR_HDF5(TRI_ERR_IO, "%s: cannot be made", path);
  (void)H5Pclose(access);
  if (status != TRI_OK) goto err_close;
  *out = writer;
  return TRI_OK;

err_close:
  if (tri_steady_file_finish(path, &writer->file) != TRI_OK) status = TRI_ERR_IO;
err_free:
  tri_free(writer);
  return status;
}

// A list of numbers as an attribute, for people and tools; we read the manifest.
static herr_t add_numbers(hid_t dataset, const char *name, int n, const int64_t *numbers)
{
  if (n == 0) return 0;
  const hsize_t count = (hsize_t)n;
  const hid_t space = H5Screate_simple(1, &count, NULL);
  const hid_t attribute = H5Acreate2(dataset, name, H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT);
  herr_t result = attribute < 0 ? -1 : H5Awrite(attribute, H5T_NATIVE_INT64, numbers);
  if (attribute >= 0 && H5Aclose(attribute) < 0) result = -1;
  if (space >= 0) (void)H5Sclose(space);
  return result;
}

static herr_t add_text(hid_t dataset, const char *name, const char *text)
{
  const hid_t space = H5Screate(H5S_SCALAR);
  const hid_t type = H5Tcopy(H5T_C_S1);
  herr_t result = H5Tset_size(type, strlen(text));
  const hid_t attribute =
      result < 0 ? -1 : H5Acreate2(dataset, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  result = attribute < 0 ? -1 : H5Awrite(attribute, type, text);
  if (attribute >= 0 && H5Aclose(attribute) < 0) result = -1;
  if (type >= 0) (void)H5Tclose(type);
  if (space >= 0) (void)H5Sclose(space);
  return result;
}

// A contiguous dataset without fill and without time stamps, so that equal states give equal files;
// the parts of its name between slashes are groups. Takes `space`.
static hid_t make_dataset(hid_t file, const tri_ckpt_array *array, hid_t space)
{
  hid_t dataset = -1;
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  const hid_t link = H5Pcreate(H5P_LINK_CREATE);
  if (space >= 0 && H5Pset_layout(creation, H5D_CONTIGUOUS) >= 0 &&
      H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER) >= 0 &&
      H5Pset_obj_track_times(creation, 0) >= 0 && H5Pset_create_intermediate_group(link, 1) >= 0)
    dataset = H5Dcreate2(file, array->name, type_in_file(array->dtype), space, link, creation,
                         H5P_DEFAULT);
  if (link >= 0) (void)H5Pclose(link);
  if (creation >= 0) (void)H5Pclose(creation);
  if (space >= 0) (void)H5Sclose(space);
  return dataset;
}

// box NULL: the dataset holds several, which the manifest names.
static herr_t describe(hid_t dataset, const tri_ckpt_array *array, const tri_box *box)
{
  if (add_text(dataset, "dtype", tri_dtype_name(array->dtype)) < 0) return -1;
  if (box != NULL) {
    if (add_numbers(dataset, "box_start", box->n_axes, box->start) < 0) return -1;
    if (add_numbers(dataset, "box_count", box->n_axes, box->count) < 0) return -1;
  }
  return add_numbers(dataset, "global_shape", array->shape.n_axes, array->shape.extent);
}

// Between packed memory and the part of a dataset that is selected in `file`. Takes both spaces.
static herr_t transfer(hid_t dataset, tri_dtype dtype, hid_t memory, hid_t file, const void *from,
                       void *to)
{
  herr_t result = -1;
  const hid_t type = type_in_memory(dtype);
  if (memory >= 0 && file >= 0)
    result = to == NULL ? H5Dwrite(dataset, type, memory, file, H5P_DEFAULT, from)
                        : H5Dread(dataset, type, memory, file, H5P_DEFAULT, to);
  if (file >= 0) (void)H5Sclose(file);
  if (memory >= 0) (void)H5Sclose(memory);
  return result;
}

// A part of the piece that a dataset of its extents holds.
static herr_t transfer_part(hid_t dataset, tri_dtype dtype, const tri_box *piece,
                            const tri_box *part, const void *from, void *to)
{
  const hid_t file = H5Dget_space(dataset);
  if (file >= 0 && select_part(file, piece, part) < 0) {
    (void)H5Sclose(file);
    return -1;
  }
  return transfer(dataset, dtype, space_of(part), file, from, to);
}

// `n_runs` runs of `run` elements, `stride` from one to the next, of a dataset with one axis.
static herr_t transfer_runs(hid_t dataset, tri_dtype dtype, int64_t first, int64_t n_runs,
                            int64_t stride, int64_t run, const void *from, void *to)
{
  const hsize_t start = (hsize_t)first, step = (hsize_t)stride, count = (hsize_t)n_runs,
                block = (hsize_t)run;
  const hid_t file = H5Dget_space(dataset);
  if (file >= 0 && H5Sselect_hyperslab(file, H5S_SELECT_SET, &start, &step, &count, &block) < 0) {
    (void)H5Sclose(file);
    return -1;
  }
  return transfer(dataset, dtype, space_of_row(n_runs * run), file, from, to);
}

static tri_status write_one(tri_shard_writer *writer, hid_t dataset, const tri_ckpt_state *state,
                            const tri_shard_piece *piece, void *staging)
{
  const tri_ckpt_array *array = &state->arrays[piece->index];
  tri_slabs slabs;
  tri_box slab;
  tri_slabs_begin(&slabs, &piece->box, tri_dtype_size(array->dtype), TRI_STAGING_BYTES);
  while (tri_slabs_next(&slabs, &slab)) {
    TRI_CALL(state->fetch(state->user, piece->index, &slab, staging));
    TRI_CHECK_HDF5(transfer_part(dataset, array->dtype, &piece->box, &slab, staging, NULL) >= 0,
                   TRI_ERR_IO, "%s: %s", writer->path, array->name);
    TRI_CALL(tri_steady_file_check(writer->path, &writer->file));
  }
  return TRI_OK;
}

// Elements gathered in the staging buffer on their way into a dataset with one axis.
typedef struct row_writer {
  tri_shard_writer *writer;
  hid_t dataset;
  const tri_ckpt_array *array;
  char *staging;
  int64_t written, staged; // elements
} row_writer;

static tri_status write_staged(row_writer *row)
{
  if (row->staged == 0) return TRI_OK;
  TRI_CHECK_HDF5(transfer_runs(row->dataset, row->array->dtype, row->written, 1, row->staged,
                               row->staged, row->staging, NULL) >= 0,
                 TRI_ERR_IO, "%s: %s", row->writer->path, row->array->name);
  row->written += row->staged;
  row->staged = 0;
  return tri_steady_file_check(row->writer->path, &row->writer->file);
}

// Small pieces are written many at a time.
static tri_status write_row(row_writer *row, const tri_ckpt_state *state,
                            const tri_shard_piece *pieces, int n)
{
  const size_t element = tri_dtype_size(row->array->dtype);
  tri_slabs slabs;
  tri_box slab;
  for (int i = 0; i < n; i++) {
    tri_slabs_begin(&slabs, &pieces[i].box, element, TRI_STAGING_BYTES);
    while (tri_slabs_next(&slabs, &slab)) {
      const int64_t more = tri_box_elements(&slab);
      if ((size_t)(row->staged + more) * element > TRI_STAGING_BYTES) TRI_CALL(write_staged(row));
      TRI_CALL(state->fetch(state->user, pieces[i].index, &slab,
                            row->staging + (size_t)row->staged * element));
      row->staged += more;
    }
  }
  return write_staged(row);
}

tri_status tri_shard_write(tri_shard_writer *writer, const tri_ckpt_state *state,
                           const tri_shard_piece *pieces, int n, void *staging)
{
  tri_status status = TRI_OK;
  const tri_ckpt_array *array = &state->arrays[pieces[0].index];
  int64_t elements = 0;
  for (int i = 0; i < n; i++)
    elements += tri_box_elements(&pieces[i].box);
  const tri_box *alone = n == 1 ? &pieces[0].box : NULL;
  const hid_t space = alone != NULL ? space_of(alone) : space_of_row(elements);
  const hid_t dataset = make_dataset(writer->hdf5, array, space);
  TRI_CHECK_HDF5_GOTO(done, dataset >= 0, TRI_ERR_IO, "%s: %s", writer->path, array->name);
  TRI_CHECK_HDF5_GOTO(done, describe(dataset, array, alone) >= 0, TRI_ERR_IO, "%s: %s",
                      writer->path, array->name);
  row_writer row = {.writer = writer, .dataset = dataset, .array = array, .staging = staging};
  TRI_CALL_GOTO(done, alone != NULL ? write_one(writer, dataset, state, pieces, staging)
                                    : write_row(&row, state, pieces, n));

done:
  if (dataset >= 0 && H5Dclose(dataset) < 0 && status == TRI_OK)
    status = TRI_ERROR_HDF5(TRI_ERR_IO, "%s: %s", writer->path, array->name);
  return status;
}

tri_status tri_shard_writer_close(tri_shard_writer **writer)
{
  if (*writer == NULL) return TRI_OK;
  tri_shard_writer *w = *writer;
  tri_status status = TRI_OK;
  if (H5Fclose(w->hdf5) < 0) status = TRI_ERROR_HDF5(TRI_ERR_IO, "%s: cannot be closed", w->path);
  const tri_status finished = tri_steady_file_finish(w->path, &w->file);
  TRI_FREE(writer);
  return finished != TRI_OK ? finished : status;
}

// --- reading

tri_status tri_shard_reader_open(const char *path, tri_shard_reader **out)
{
  tri_status status = TRI_OK;
  tri_shard_reader *reader = NULL;
  hid_t access = -1;
  TRI_CALL(TRI_NEW(TRI_MODULE_CKPT, 1, &reader));
  reader->dataset = -1;
  TRI_CALL_GOTO(err_free, keep_path(reader->path, sizeof reader->path, path));
  tri_hdf5_quiet();
  access = H5Pcreate(H5P_FILE_ACCESS);
  TRI_CHECK_HDF5_GOTO(err_free, access >= 0, TRI_ERR_IO, "%s: no HDF5 access list", path);
  TRI_CHECK_HDF5_GOTO(done, H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) >= 0, TRI_ERR_IO,
                      "%s: no HDF5 access list", path);
  reader->hdf5 = H5Fopen(path, H5F_ACC_RDONLY, access);
  TRI_CHECK_HDF5_GOTO(done, reader->hdf5 >= 0, TRI_ERR_FORMAT,
                      "%s: is no HDF5 file that can be read", path);
  *out = reader;

done:
  (void)H5Pclose(access);
  if (status == TRI_OK) return TRI_OK;
err_free:
  tri_free(reader);
  return status;
}

static void close_dataset(tri_shard_reader *reader)
{
  if (reader->dataset >= 0) (void)H5Dclose(reader->dataset);
  reader->dataset = -1;
  reader->name[0] = '\0';
}

void tri_shard_reader_close(tri_shard_reader **reader)
{
  if (*reader == NULL) return;
  close_dataset(*reader);
  (void)H5Fclose((*reader)->hdf5);
  TRI_FREE(reader);
}

// Every link on the way to the dataset is a hard one: no other file is ever opened.
static bool links_are_hard(hid_t file, const char *name)
{
  char part[sizeof((tri_ckpt_array *)NULL)->name];
  for (size_t i = 1; i <= strlen(name); i++) {
    if (name[i] != '/' && name[i] != '\0') continue;
    memcpy(part, name, i);
    part[i] = '\0';
    H5L_info_t facts;
    if (H5Lget_info(file, part, &facts, H5P_DEFAULT) < 0 || facts.type != H5L_TYPE_HARD)
      return false;
  }
  return true;
}

// The piece has the dataset to itself.
static bool is_alone(const tri_manifest_piece *piece)
{
  return piece->total == tri_box_elements(&piece->box);
}

// The dataset lies contiguous in this file, unfiltered, with this type and these extents.
static bool is_as_promised(hid_t dataset, const tri_ckpt_array *array,
                           const tri_manifest_piece *piece)
{
  const int n_axes = is_alone(piece) ? piece->box.n_axes : 1;
  const int64_t *counts = is_alone(piece) ? piece->box.count : &piece->total;
  hsize_t extent[TRI_MAX_AXES] = {0};
  const hid_t creation = H5Dget_create_plist(dataset);
  const hid_t type = H5Dget_type(dataset);
  const hid_t space = H5Dget_space(dataset);
  bool good = creation >= 0 && type >= 0 && space >= 0 &&
              H5Pget_layout(creation) == H5D_CONTIGUOUS && H5Pget_external_count(creation) == 0 &&
              H5Pget_nfilters(creation) == 0 && H5Tequal(type, type_in_file(array->dtype)) > 0 &&
              H5Sget_simple_extent_ndims(space) == n_axes &&
              H5Sget_simple_extent_dims(space, extent, NULL) == n_axes;
  for (int a = 0; good && a < n_axes; a++)
    good = extent[a] == (hsize_t)counts[a];
  if (space >= 0) (void)H5Sclose(space);
  if (type >= 0) (void)H5Tclose(type);
  if (creation >= 0) (void)H5Pclose(creation);
  return good;
}

static tri_status open_dataset(tri_shard_reader *reader, const tri_ckpt_array *array,
                               const tri_manifest_piece *piece)
{
  if (strcmp(reader->name, array->name) == 0) return TRI_OK;
  close_dataset(reader);
  TRI_CHECK(links_are_hard(reader->hdf5, array->name), TRI_ERR_FORMAT,
            "%s: holds no dataset '%s', or only a link to one", reader->path, array->name);
  reader->dataset = H5Dopen2(reader->hdf5, array->name, H5P_DEFAULT);
  TRI_CHECK_HDF5(reader->dataset >= 0, TRI_ERR_FORMAT, "%s: %s", reader->path, array->name);
  TRI_CHECK(is_as_promised(reader->dataset, array, piece), TRI_ERR_FORMAT,
            "%s: dataset '%s' has not the type, extents or layout that the manifest promises",
            reader->path, array->name);
  memcpy(reader->name, array->name, sizeof reader->name);
  return TRI_OK;
}

// Reads a part of a piece from the row of several: its last axis as runs, the one before it as
// their number, one read for every index of the axes before that.
static herr_t read_from_row(hid_t dataset, tri_dtype dtype, const tri_manifest_piece *piece,
                            const tri_box *part, char *to)
{
  const int n = part->n_axes;
  const int64_t run = part->count[n - 1], n_runs = n > 1 ? part->count[n - 2] : 1;
  const int64_t width = n > 1 ? piece->box.count[n - 1] : run;
  const int64_t n_reads = tri_box_elements(part) / (run * n_runs);
  for (int64_t i = 0; i < n_reads; i++) {
    int64_t at[TRI_MAX_AXES], rest = i, first = 0;
    memcpy(at, part->start, sizeof at);
    for (int a = n - 3; a >= 0; a--) {
      at[a] += rest % part->count[a];
      rest /= part->count[a];
    }
    for (int a = 0; a < n; a++)
      first = first * piece->box.count[a] + at[a] - piece->box.start[a];
    if (transfer_runs(dataset, dtype, piece->before + first, n_runs, width, run, NULL, to) < 0)
      return -1;
    to += (size_t)(run * n_runs) * tri_dtype_size(dtype);
  }
  return 0;
}

tri_status tri_shard_read(tri_shard_reader *reader, const tri_ckpt_state *state, int index,
                          const tri_manifest_piece *piece, void *staging)
{
  const tri_ckpt_array *array = &state->arrays[index];
  tri_box common, slab;
  if (!tri_box_intersect(&piece->box, &array->box, &common)) return TRI_OK;
  TRI_CALL(open_dataset(reader, array, piece));
  tri_slabs slabs;
  tri_slabs_begin(&slabs, &common, tri_dtype_size(array->dtype), TRI_STAGING_BYTES);
  while (tri_slabs_next(&slabs, &slab)) {
    const herr_t result =
        is_alone(piece)
            ? transfer_part(reader->dataset, array->dtype, &piece->box, &slab, NULL, staging)
            : read_from_row(reader->dataset, array->dtype, piece, &slab, staging);
    TRI_CHECK_HDF5(result >= 0, TRI_ERR_FORMAT, "%s: %s", reader->path, array->name);
    TRI_CALL(state->store(state->user, index, &slab, staging));
  }
  return TRI_OK;
}
