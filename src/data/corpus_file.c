#define _GNU_SOURCE
#include "data/corpus_file.h"

#include <errno.h>
#include <hdf5.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/hdf5_error.h"

static const char FORMAT[] = "trireme-corpus";
static const char *const group_names[2] = {"train", "validation"};

int tri_corpus_token_bytes(int vocab_size)
{
  return vocab_size <= 65536 ? 2 : 4;
}

static hid_t token_type(int token_bytes)
{
  return token_bytes == 2 ? H5T_STD_U16LE : H5T_STD_U32LE;
}

// --- writing

static tri_status write_attribute(const char *path, hid_t place, const char *name, hid_t type,
                                  hid_t memory_type, const void *value)
{
  tri_status status = TRI_OK;
  const hid_t space = H5Screate(H5S_SCALAR);
  const hid_t attribute = H5Acreate2(place, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  TRI_CHECK_HDF5_GOTO(done, attribute >= 0 && H5Awrite(attribute, memory_type, value) >= 0,
                      TRI_ERR_IO, "%s: attribute %s cannot be written", path, name);
done:
  if (attribute >= 0) H5Aclose(attribute);
  if (space >= 0) H5Sclose(space);
  return status;
}

static tri_status write_number(const char *path, hid_t place, const char *name, int64_t value)
{
  return write_attribute(path, place, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value);
}

// A UTF-8 string type of exactly `n` bytes; negative when HDF5 fails.
static hid_t text_type(int64_t n)
{
  const hid_t type = H5Tcopy(H5T_C_S1);
  if (type < 0) return type;
  if (H5Tset_size(type, n > 0 ? (size_t)n : 1) >= 0 && H5Tset_strpad(type, H5T_STR_NULLPAD) >= 0 &&
      H5Tset_cset(type, H5T_CSET_UTF8) >= 0)
    return type;
  H5Tclose(type);
  return -1;
}

static tri_status write_text(const char *path, hid_t place, const char *name, const char *value)
{
  tri_status status = TRI_OK;
  const hid_t type = text_type((int64_t)strlen(value));
  TRI_CHECK_HDF5_GOTO(done, type >= 0, TRI_ERR_IO, "%s: attribute %s cannot be written", path,
                      name);
  TRI_CALL_GOTO(done, write_attribute(path, place, name, type, type, value));
done:
  if (type >= 0) H5Tclose(type);
  return status;
}

// Space is given at once and never filled, so that the place is known and HDF5 writes no content.
static hid_t dataset_properties(void)
{
  const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
  if (properties < 0) return properties;
  if (H5Pset_layout(properties, H5D_CONTIGUOUS) >= 0 &&
      H5Pset_alloc_time(properties, H5D_ALLOC_TIME_EARLY) >= 0 &&
      H5Pset_fill_time(properties, H5D_FILL_TIME_NEVER) >= 0 &&
      H5Pset_obj_track_times(properties, false) >= 0)
    return properties;
  H5Pclose(properties);
  return -1;
}

static tri_status create_dataset(const char *path, hid_t place, const char *name, hid_t type,
                                 hid_t space, int64_t *at)
{
  tri_status status = TRI_OK;
  const hid_t properties = dataset_properties();
  const hid_t dataset = H5Dcreate2(place, name, type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
  TRI_CHECK_HDF5_GOTO(done, properties >= 0 && dataset >= 0, TRI_ERR_IO,
                      "%s: dataset %s cannot be made", path, name);
  const haddr_t offset = H5Dget_offset(dataset);
  *at = offset == HADDR_UNDEF ? 0 : (int64_t)offset;
done:
  if (dataset >= 0) H5Dclose(dataset);
  if (properties >= 0) H5Pclose(properties);
  return status;
}

static tri_status create_tokenizer(const char *path, hid_t file, tri_corpus_shape *shape)
{
  tri_status status = TRI_OK;
  const hid_t type = text_type(shape->tokenizer_bytes);
  const hid_t space = H5Screate(H5S_SCALAR);
  TRI_CHECK_HDF5_GOTO(done, type >= 0 && space >= 0, TRI_ERR_IO,
                      "%s: dataset tokenizer cannot be made", path);
  TRI_CALL_GOTO(done, create_dataset(path, file, "tokenizer", type, space, &shape->tokenizer_at));
done:
  if (space >= 0) H5Sclose(space);
  if (type >= 0) H5Tclose(type);
  return status;
}

static tri_status create_split(const char *path, hid_t file, tri_corpus_shape *shape, int split)
{
  tri_status status = TRI_OK;
  const hsize_t extent = (hsize_t)shape->facts.n_tokens[split];
  const hid_t space = H5Screate_simple(1, &extent, NULL);
  const hid_t group = H5Gcreate2(file, group_names[split], H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  TRI_CHECK_HDF5_GOTO(done, space >= 0 && group >= 0, TRI_ERR_IO, "%s: group %s cannot be made",
                      path, group_names[split]);
  TRI_CALL_GOTO(done, write_number(path, group, "n_bytes", shape->facts.n_bytes[split]));
  TRI_CALL_GOTO(done, create_dataset(path, group, "tokens", token_type(shape->token_bytes), space,
                                     &shape->tokens_at[split]));
done:
  if (group >= 0) H5Gclose(group);
  if (space >= 0) H5Sclose(space);
  return status;
}

static tri_status fill_file(const char *path, hid_t file, tri_corpus_shape *shape)
{
  const tri_corpus_facts *facts = &shape->facts;
  char hex[TRI_DIGEST_HEX_BYTES];
  tri_digest_hex(&facts->tokenizer_digest, hex);
  TRI_CALL(write_text(path, file, "format", FORMAT));
  TRI_CALL(write_number(path, file, "version", TRI_CORPUS_VERSION));
  TRI_CALL(write_text(path, file, "tokenizer_name", facts->tokenizer_name));
  TRI_CALL(write_text(path, file, "tokenizer_digest", hex));
  TRI_CALL(write_number(path, file, "vocab_size", facts->vocab_size));
  TRI_CALL(create_tokenizer(path, file, shape));
  TRI_CALL(create_split(path, file, shape, TRI_SPLIT_TRAIN));
  return create_split(path, file, shape, TRI_SPLIT_VALIDATION);
}

// The 1.8 format has a checksum in every header, so that HDF5 itself finds flipped bits. No lock:
// the file is private while it is made and never changes later, and many parallel file systems
// refuse locks.
static hid_t access_properties(void)
{
  const hid_t properties = H5Pcreate(H5P_FILE_ACCESS);
  if (properties < 0) return properties;
  if (H5Pset_libver_bounds(properties, H5F_LIBVER_V18, H5F_LIBVER_V18) >= 0 &&
      H5Pset_file_locking(properties, false, true) >= 0 &&
      H5Pset_fclose_degree(properties, H5F_CLOSE_STRONG) >= 0)
    return properties;
  H5Pclose(properties);
  return -1;
}

// HDF5 (1.10.8) keeps a file that it cannot flush, a full disk being enough, and crashes on it when
// the program ends. So it gets a file in memory under the descriptor it has just opened, before it
// writes anything.
static tri_status move_into_memory(const char *path, hid_t file, int fd)
{
  int *handle = NULL;
  TRI_CHECK(H5Fget_vfd_handle(file, H5P_DEFAULT, (void **)&handle) >= 0, TRI_ERR_INTERNAL,
            "%s: HDF5 gives no file descriptor", path);
  TRI_CHECK(dup2(fd, *handle) == *handle, TRI_ERR_IO, "%s: %s", path, strerror(errno));
  return TRI_OK;
}

static tri_status create_in_memory(const char *path, tri_corpus_shape *shape, int fd)
{
  tri_status status = TRI_OK;
  hid_t file = -1;
  tri_hdf5_quiet();
  const hid_t access = access_properties();
  TRI_CHECK_HDF5_GOTO(done, access >= 0, TRI_ERR_INTERNAL, "%s: HDF5 refuses its settings", path);
  file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
  TRI_CHECK_HDF5_GOTO(done, file >= 0, TRI_ERR_IO, "%s: cannot be made", path);
  TRI_CALL_GOTO(done, move_into_memory(path, file, fd));
  TRI_CALL_GOTO(done, fill_file(path, file, shape));
done:
  if (file >= 0 && H5Fclose(file) < 0 && status == TRI_OK)
    status = TRI_ERROR_HDF5(TRI_ERR_IO, "%s: its headers cannot be made", path);
  if (access >= 0) H5Pclose(access);
  return status;
}

tri_status tri_corpus_file_create(const char *path, tri_corpus_shape *shape, int *fd)
{
  const int memory = memfd_create("trireme-corpus", MFD_CLOEXEC);
  TRI_CHECK(memory >= 0, TRI_ERR_IO, "%s: no file in memory can be made: %s", path,
            strerror(errno));
  const tri_status status = create_in_memory(path, shape, memory);
  if (status != TRI_OK) close(memory);
  TRI_CALL(status);
  *fd = memory;
  return TRI_OK;
}

// --- reading

// An attribute with one value of the wanted class; its type and itself are given to the caller.
static tri_status open_attribute(const char *path, hid_t place, const char *name, H5T_class_t class,
                                 hid_t *attribute, hid_t *type)
{
  tri_status status = TRI_OK;
  hid_t space = -1;
  *type = -1;
  *attribute = H5Aopen(place, name, H5P_DEFAULT);
  TRI_CHECK_HDF5_GOTO(done, *attribute >= 0, TRI_ERR_FORMAT,
                      "%s: is not a corpus: attribute %s cannot be read", path, name);
  space = H5Aget_space(*attribute);
  *type = H5Aget_type(*attribute);
  TRI_CHECK_GOTO(done,
                 space >= 0 && *type >= 0 && H5Tget_class(*type) == class &&
                     H5Tis_variable_str(*type) <= 0 && H5Sget_simple_extent_npoints(space) == 1,
                 TRI_ERR_FORMAT, "%s: attribute %s is not one %s", path, name,
                 class == H5T_STRING ? "text" : "whole number");
done:
  if (space >= 0) H5Sclose(space);
  return status;
}

static void close_attribute(hid_t attribute, hid_t type)
{
  if (type >= 0) H5Tclose(type);
  if (attribute >= 0) H5Aclose(attribute);
}

static tri_status read_number(const char *path, hid_t place, const char *name, int64_t low,
                              int64_t high, int64_t *value)
{
  tri_status status = TRI_OK;
  hid_t attribute, type;
  TRI_CALL_GOTO(done, open_attribute(path, place, name, H5T_INTEGER, &attribute, &type));
  TRI_CHECK_HDF5_GOTO(done, H5Aread(attribute, H5T_NATIVE_INT64, value) >= 0, TRI_ERR_FORMAT,
                      "%s: attribute %s cannot be read", path, name);
  TRI_CHECK_GOTO(done, *value >= low && *value <= high, TRI_ERR_FORMAT,
                 "%s: attribute %s is %lld, wanted %lld to %lld", path, name, (long long)*value,
                 (long long)low, (long long)high);
done:
  close_attribute(attribute, type);
  return status;
}

// Text of less than `size` bytes, zero-terminated.
static tri_status read_text(const char *path, hid_t place, const char *name, char *text,
                            size_t size)
{
  tri_status status = TRI_OK;
  hid_t attribute, type;
  TRI_CALL_GOTO(done, open_attribute(path, place, name, H5T_STRING, &attribute, &type));
  const size_t n = H5Tget_size(type);
  TRI_CHECK_GOTO(done, n > 0 && n < size, TRI_ERR_FORMAT,
                 "%s: attribute %s has %zu bytes, wanted 1 to %zu", path, name, n, size - 1);
  memset(text, 0, size);
  TRI_CHECK_HDF5_GOTO(done, H5Aread(attribute, type, text) >= 0, TRI_ERR_FORMAT,
                      "%s: attribute %s cannot be read", path, name);
done:
  close_attribute(attribute, type);
  return status;
}

static tri_status check_inside(const char *path, const char *name, haddr_t at, int64_t n_elements,
                               int64_t element_bytes, int64_t file_bytes)
{
  TRI_CHECK(at != HADDR_UNDEF && at < (haddr_t)file_bytes &&
                n_elements <= (file_bytes - (int64_t)at) / element_bytes,
            TRI_ERR_FORMAT,
            "%s: is truncated: dataset %s needs %lld x %lld bytes from byte %lld on, the file has "
            "%lld: copy it again",
            path, name, (long long)n_elements, (long long)element_bytes,
            at == HADDR_UNDEF ? -1ll : (long long)at, (long long)file_bytes);
  return TRI_OK;
}

// The place of a contiguous, unfiltered dataset, inside the file.
static tri_status locate(const char *path, const char *name, hid_t dataset, int64_t n_elements,
                         int64_t element_bytes, int64_t file_bytes, int64_t *at)
{
  tri_status status = TRI_OK;
  const hid_t properties = H5Dget_create_plist(dataset);
  TRI_CHECK_HDF5_GOTO(done, properties >= 0, TRI_ERR_FORMAT, "%s: dataset %s", path, name);
  TRI_CHECK_GOTO(
      done, H5Pget_layout(properties) == H5D_CONTIGUOUS && H5Pget_external_count(properties) == 0,
      TRI_ERR_FORMAT, "%s: dataset %s is not contiguous in this file", path, name);
  *at = 0;
  if (n_elements == 0) goto done;
  const haddr_t offset = H5Dget_offset(dataset);
  TRI_CALL_GOTO(done, check_inside(path, name, offset, n_elements, element_bytes, file_bytes));
  *at = (int64_t)offset;
done:
  if (properties >= 0) H5Pclose(properties);
  return status;
}

static tri_status read_tokenizer(const char *path, hid_t file, int64_t file_bytes,
                                 tri_corpus_shape *shape)
{
  tri_status status = TRI_OK;
  hid_t type = -1, space = -1;
  const hid_t dataset = H5Dopen2(file, "tokenizer", H5P_DEFAULT);
  TRI_CHECK_HDF5_GOTO(done, dataset >= 0, TRI_ERR_FORMAT,
                      "%s: is not a corpus: dataset tokenizer cannot be opened", path);
  type = H5Dget_type(dataset);
  space = H5Dget_space(dataset);
  TRI_CHECK_GOTO(done,
                 type >= 0 && space >= 0 && H5Tget_class(type) == H5T_STRING &&
                     H5Tis_variable_str(type) <= 0 && H5Sget_simple_extent_npoints(space) == 1,
                 TRI_ERR_FORMAT, "%s: dataset tokenizer is not one text of fixed length", path);
  shape->tokenizer_bytes = (int64_t)H5Tget_size(type);
  TRI_CALL_GOTO(done, locate(path, "tokenizer", dataset, shape->tokenizer_bytes, 1, file_bytes,
                             &shape->tokenizer_at));
done:
  if (space >= 0) H5Sclose(space);
  if (type >= 0) H5Tclose(type);
  if (dataset >= 0) H5Dclose(dataset);
  return status;
}

static tri_status read_tokens(const char *path, const char *name, hid_t group, int64_t file_bytes,
                              int token_bytes, int64_t *n_tokens, int64_t *at)
{
  tri_status status = TRI_OK;
  hid_t type = -1, space = -1;
  const hid_t dataset = H5Dopen2(group, "tokens", H5P_DEFAULT);
  TRI_CHECK_HDF5_GOTO(done, dataset >= 0, TRI_ERR_FORMAT,
                      "%s: is not a corpus: dataset %s/tokens cannot be opened", path, name);
  type = H5Dget_type(dataset);
  space = H5Dget_space(dataset);
  TRI_CHECK_GOTO(done, type >= 0 && H5Tequal(type, token_type(token_bytes)) > 0, TRI_ERR_FORMAT,
                 "%s: dataset %s/tokens is not of %d-byte unsigned numbers, low byte first", path,
                 name, token_bytes);
  *n_tokens = space >= 0 && H5Sget_simple_extent_ndims(space) == 1
                  ? (int64_t)H5Sget_simple_extent_npoints(space)
                  : -1;
  TRI_CHECK_GOTO(done, *n_tokens >= 0, TRI_ERR_FORMAT, "%s: dataset %s/tokens is not a row", path,
                 name);
  TRI_CALL_GOTO(done, locate(path, name, dataset, *n_tokens, token_bytes, file_bytes, at));
done:
  if (space >= 0) H5Sclose(space);
  if (type >= 0) H5Tclose(type);
  if (dataset >= 0) H5Dclose(dataset);
  return status;
}

static tri_status read_split(const char *path, hid_t file, int64_t file_bytes,
                             tri_corpus_shape *shape, int split)
{
  tri_status status = TRI_OK;
  const hid_t group = H5Gopen2(file, group_names[split], H5P_DEFAULT);
  TRI_CHECK_HDF5_GOTO(done, group >= 0, TRI_ERR_FORMAT,
                      "%s: is not a corpus: group %s cannot be opened", path, group_names[split]);
  TRI_CALL_GOTO(done,
                read_number(path, group, "n_bytes", 0, INT64_MAX, &shape->facts.n_bytes[split]));
  TRI_CALL_GOTO(done, read_tokens(path, group_names[split], group, file_bytes, shape->token_bytes,
                                  &shape->facts.n_tokens[split], &shape->tokens_at[split]));
done:
  if (group >= 0) H5Gclose(group);
  return status;
}

static tri_status read_attributes(const char *path, hid_t file, tri_corpus_facts *facts)
{
  char format[sizeof FORMAT + 16], hex[TRI_DIGEST_HEX_BYTES];
  int64_t version, vocab_size;
  TRI_CALL(read_text(path, file, "format", format, sizeof format));
  TRI_CHECK(strcmp(format, FORMAT) == 0, TRI_ERR_FORMAT,
            "%s: is not a corpus: attribute format is '%s', wanted '%s'", path, format, FORMAT);
  TRI_CALL(read_number(path, file, "version", 1, INT64_MAX, &version));
  TRI_CHECK(version == TRI_CORPUS_VERSION, TRI_ERR_FORMAT,
            "%s: is corpus version %lld, this program reads version %d: make it again by 'trireme "
            "data tokenize'",
            path, (long long)version, TRI_CORPUS_VERSION);
  TRI_CALL(
      read_text(path, file, "tokenizer_name", facts->tokenizer_name, sizeof facts->tokenizer_name));
  TRI_CALL(read_text(path, file, "tokenizer_digest", hex, sizeof hex));
  TRI_CHECK(tri_digest_parse(hex, &facts->tokenizer_digest) == TRI_OK, TRI_ERR_FORMAT,
            "%s: attribute tokenizer_digest is '%s', not 64 hex digits", path, hex);
  TRI_CALL(read_number(path, file, "vocab_size", 1, INT_MAX, &vocab_size));
  facts->vocab_size = (int)vocab_size;
  return TRI_OK;
}

static tri_status read_file(const char *path, hid_t file, tri_corpus_shape *shape, int *fd)
{
  int *handle = NULL;
  struct stat facts;
  TRI_CHECK(H5Fget_vfd_handle(file, H5P_DEFAULT, (void **)&handle) >= 0, TRI_ERR_INTERNAL,
            "%s: HDF5 gives no file descriptor", path);
  TRI_CHECK(fstat(*handle, &facts) == 0, TRI_ERR_IO, "%s: %s", path, strerror(errno));
  TRI_CALL(read_attributes(path, file, &shape->facts));
  shape->token_bytes = tri_corpus_token_bytes(shape->facts.vocab_size);
  TRI_CALL(read_tokenizer(path, file, facts.st_size, shape));
  TRI_CALL(read_split(path, file, facts.st_size, shape, TRI_SPLIT_TRAIN));
  TRI_CALL(read_split(path, file, facts.st_size, shape, TRI_SPLIT_VALIDATION));
  const int copy = dup(*handle);
  TRI_CHECK(copy >= 0, TRI_ERR_IO, "%s: %s", path, strerror(errno));
  *fd = copy;
  return TRI_OK;
}

tri_status tri_corpus_file_open(const char *path, tri_corpus_shape *shape, int *fd)
{
  tri_status status = TRI_OK;
  hid_t file = -1;
  tri_hdf5_quiet();
  const hid_t access = access_properties();
  TRI_CHECK_HDF5_GOTO(done, access >= 0, TRI_ERR_INTERNAL, "%s: HDF5 refuses its settings", path);
  file = H5Fopen(path, H5F_ACC_RDONLY, access);
  TRI_CHECK_HDF5_GOTO(done, file >= 0, TRI_ERR_FORMAT, "%s: cannot be opened as a corpus", path);
  TRI_CALL_GOTO(done, read_file(path, file, shape, fd));
done:
  if (file >= 0) H5Fclose(file);
  if (access >= 0) H5Pclose(access);
  return status;
}
