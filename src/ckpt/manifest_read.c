// Every number and name of a manifest is distrusted until it is checked here: it sizes memory and
// names files.
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ckpt/cover.h"
#include "ckpt/manifest.h"
#include "ckpt/pieces.h"
#include "trireme/base/file.h"
#include "trireme/base/memory.h"

// What is being read, for messages: "PATH: PLACE: …".
typedef struct reader {
  const char *path;
  tri_manifest *manifest;
  int64_t version;
  int64_t *file_bytes; // bytes of array data that the pieces so far put into each file
} reader;

#define BAD(...) TRI_ERROR(TRI_ERR_FORMAT, __VA_ARGS__)

// The last line is the digest of all bytes before it, in the very letters that are written.
static tri_status check_digest(const char *path, const char *text, size_t size_bytes)
{
  enum { LINE = 80 };
  char line[LINE];
  const int length = snprintf(line, sizeof line, "\"digest\":\"%064d\"}\n", 0);
  TRI_CHECK(size_bytes > (size_t)length && memchr(text, '\0', size_bytes) == NULL, TRI_ERR_FORMAT,
            "%s: is cut short or no manifest (%zu bytes)", path, size_bytes);
  const size_t body = size_bytes - (size_t)length;
  tri_digest digest;
  char hex[TRI_DIGEST_HEX_BYTES];
  tri_digest_of(text, body, &digest);
  tri_digest_hex(&digest, hex);
  snprintf(line, sizeof line, "\"digest\":\"%s\"}\n", hex);
  TRI_CHECK(memcmp(text + body, line, (size_t)length) == 0, TRI_ERR_FORMAT,
            "%s: is damaged: its last line does not hold the digest of the lines before it", path);
  return TRI_OK;
}

// The object has the members of `names` and no others.
static tri_status check_members(const reader *r, const char *place, const json_t *object, int n,
                                const char *const *names)
{
  TRI_CHECK(json_is_object(object), TRI_ERR_FORMAT, "%s: %s is no object", r->path, place);
  for (int i = 0; i < n; i++)
    TRI_CHECK(json_object_get(object, names[i]) != NULL, TRI_ERR_FORMAT, "%s: %s has no \"%s\"",
              r->path, place, names[i]);
  TRI_CHECK(json_object_size(object) == (size_t)n, TRI_ERR_FORMAT,
            "%s: %s has members that are not known", r->path, place);
  return TRI_OK;
}

static tri_status read_number(const reader *r, const char *place, const json_t *value, int64_t min,
                              int64_t max, int64_t *out)
{
  TRI_CHECK(json_is_integer(value), TRI_ERR_FORMAT, "%s: %s: a number is missing", r->path, place);
  const int64_t number = json_integer_value(value);
  TRI_CHECK(number >= min && number <= max, TRI_ERR_FORMAT, "%s: %s: %lld is not from %lld to %lld",
            r->path, place, (long long)number, (long long)min, (long long)max);
  *out = number;
  return TRI_OK;
}

// A text of 1 to size-1 bytes.
static tri_status read_text(const reader *r, const char *place, const json_t *value, char *out,
                            size_t size)
{
  TRI_CHECK(json_is_string(value), TRI_ERR_FORMAT, "%s: %s: a text is missing", r->path, place);
  const size_t n = json_string_length(value);
  TRI_CHECK(n >= 1 && n < size && strlen(json_string_value(value)) == n, TRI_ERR_FORMAT,
            "%s: %s: a text of %zu bytes, not of 1 to %zu", r->path, place, n, size - 1);
  memcpy(out, json_string_value(value), n + 1);
  return TRI_OK;
}

static tri_status read_numbers(const reader *r, const char *place, const json_t *value, int n,
                               int64_t min, int64_t *out)
{
  TRI_CHECK(json_is_array(value) && json_array_size(value) == (size_t)n, TRI_ERR_FORMAT,
            "%s: %s: a list of %d numbers is missing", r->path, place, n);
  for (int i = 0; i < n; i++)
    TRI_CALL(read_number(r, place, json_array_get(value, (size_t)i), min, INT64_MAX, &out[i]));
  return TRI_OK;
}

static bool file_name_is_plain(const char *name)
{
  if (name[0] == '.' || strcmp(name, TRI_MANIFEST_NAME) == 0) return false;
  for (const char *c = name; *c != '\0'; c++) {
    const bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z');
    if (!letter && !(*c >= '0' && *c <= '9') && *c != '.' && *c != '-' && *c != '_') return false;
  }
  return true;
}

static tri_status read_file(const reader *r, int index, const json_t *value)
{
  static const char *const members[] = {"name", "bytes", "digest"};
  tri_manifest_file *file = &r->manifest->files[index];
  char place[32], hex[TRI_DIGEST_HEX_BYTES];
  snprintf(place, sizeof place, "file %d", index);
  TRI_CALL(check_members(r, place, value, 3, members));
  TRI_CALL(read_text(r, place, json_object_get(value, "name"), file->name, sizeof file->name));
  TRI_CHECK(file_name_is_plain(file->name), TRI_ERR_FORMAT, "%s: %s: '%s' is no plain file name",
            r->path, place, file->name);
  TRI_CHECK(index == 0 || strcmp(file[-1].name, file->name) < 0, TRI_ERR_FORMAT,
            "%s: %s: '%s' is there twice or out of order", r->path, place, file->name);
  TRI_CALL(read_number(r, place, json_object_get(value, "bytes"), 0, INT64_MAX, &file->bytes));
  TRI_CALL(read_text(r, place, json_object_get(value, "digest"), hex, sizeof hex));
  if (tri_digest_parse(hex, &file->digest) != TRI_OK)
    return BAD("%s: %s: its digest is not 64 hex digits", r->path, place);
  return TRI_OK;
}

static tri_status read_dtype(const reader *r, const char *place, const json_t *value,
                             tri_dtype *out)
{
  static const tri_dtype all[] = {TRI_DTYPE_F32, TRI_DTYPE_BF16, TRI_DTYPE_F64, TRI_DTYPE_I32,
                                  TRI_DTYPE_U16};
  char name[16];
  TRI_CALL(read_text(r, place, value, name, sizeof name));
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    if (strcmp(name, tri_dtype_name(all[i])) == 0) {
      *out = all[i];
      return TRI_OK;
    }
  }
  return BAD("%s: %s: no type is called '%s'", r->path, place, name);
}

static tri_status read_shape(const reader *r, const char *place, const json_t *value,
                             size_t element_bytes, tri_shape *out)
{
  TRI_CHECK(json_is_array(value) && json_array_size(value) <= TRI_MAX_AXES, TRI_ERR_FORMAT,
            "%s: %s: a shape of at most %d axes is missing", r->path, place, TRI_MAX_AXES);
  *out = (tri_shape){.n_axes = (int)json_array_size(value)};
  TRI_CALL(read_numbers(r, place, value, out->n_axes, 0, out->extent));
  const tri_box all = tri_box_all(out);
  if (tri_box_check(&all, out, element_bytes) != TRI_OK)
    return BAD("%s: %s: %s", r->path, place, tri_error_message());
  return TRI_OK;
}

// The pieces of an array ascend by file and then, from version 2 on, by first element.
static bool is_in_order(const reader *r, const tri_manifest_piece *before,
                        const tri_manifest_piece *piece)
{
  if (before->file != piece->file) return before->file < piece->file;
  return r->version > 1 && tri_ckpt_compare_starts(&before->box, &piece->box) < 0;
}

// [file, [start …], [count …]]
static tri_status read_piece(const reader *r, const tri_manifest_array *array, int index,
                             const json_t *value)
{
  tri_manifest_piece *piece = &r->manifest->pieces[array->first_piece + index];
  const char *place = array->name;
  const size_t element_bytes = tri_dtype_size(array->dtype);
  int64_t file = 0;
  TRI_CHECK(json_is_array(value) && json_array_size(value) == 3, TRI_ERR_FORMAT,
            "%s: %s: piece %d is no list of file, start and count", r->path, place, index);
  TRI_CALL(read_number(r, place, json_array_get(value, 0), 0, r->manifest->n_files - 1, &file));
  piece->file = (int)file;
  piece->box.n_axes = array->shape.n_axes;
  TRI_CALL(
      read_numbers(r, place, json_array_get(value, 1), piece->box.n_axes, 0, piece->box.start));
  TRI_CALL(
      read_numbers(r, place, json_array_get(value, 2), piece->box.n_axes, 1, piece->box.count));
  if (tri_box_check(&piece->box, &array->shape, element_bytes) != TRI_OK)
    return BAD("%s: %s: piece %d: %s", r->path, place, index, tri_error_message());
  TRI_CHECK(index == 0 || is_in_order(r, &piece[-1], piece), TRI_ERR_FORMAT,
            "%s: %s: piece %d: it or its file is there twice or out of order", r->path, place,
            index);
  int64_t *held = &r->file_bytes[file];
  TRI_CHECK(!__builtin_add_overflow(*held, tri_box_elements(&piece->box) * (int64_t)element_bytes,
                                    held) &&
                *held <= r->manifest->files[file].bytes,
            TRI_ERR_FORMAT, "%s: %s: file %s of %lld bytes is too small for its pieces", r->path,
            place, r->manifest->files[file].name, (long long)r->manifest->files[file].bytes);
  return TRI_OK;
}

static tri_status check_cover(const reader *r, const tri_manifest_array *array)
{
  tri_status status = TRI_OK;
  tri_box *boxes = NULL;
  int *files = NULL;
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_CKPT, array->n_pieces, &boxes));
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_CKPT, array->n_pieces, &files));
  for (int i = 0; i < array->n_pieces; i++) {
    const tri_manifest_piece *piece = &r->manifest->pieces[array->first_piece + i];
    boxes[i] = piece->box;
    files[i] = piece->file;
  }
  const tri_cover cover = {array->name, &array->shape, boxes, files, "file", array->n_pieces};
  status = tri_ckpt_check_cover(&cover);
  if (status == TRI_ERR_FORMAT) status = BAD("%s: %s", r->path, tri_error_message());

done:
  tri_free(files);
  tri_free(boxes);
  return status;
}

// Where in the datasets of their files the pieces of an array lie.
static void place_pieces(tri_manifest_piece *pieces, int n)
{
  for (int first = 0, end; first < n; first = end) {
    int64_t total = 0;
    for (end = first; end < n && pieces[end].file == pieces[first].file; end++) {
      pieces[end].before = total;
      total += tri_box_elements(&pieces[end].box);
    }
    for (int i = first; i < end; i++)
      pieces[i].total = total;
  }
}

static tri_status read_array(const reader *r, int index, const json_t *value)
{
  static const char *const members[] = {"name", "dtype", "shape", "pieces"};
  tri_manifest_array *array = &r->manifest->arrays[index];
  char place[32];
  snprintf(place, sizeof place, "array %d", index);
  TRI_CALL(check_members(r, place, value, 4, members));
  TRI_CALL(read_text(r, place, json_object_get(value, "name"), array->name, sizeof array->name));
  TRI_CHECK(tri_ckpt_name_is_plain(array->name), TRI_ERR_FORMAT,
            "%s: %s: its name is not made of plain parts", r->path, place);
  TRI_CHECK(index == 0 || strcmp(array[-1].name, array->name) < 0, TRI_ERR_FORMAT,
            "%s: array %s is there twice or out of order", r->path, array->name);
  TRI_CALL(read_dtype(r, array->name, json_object_get(value, "dtype"), &array->dtype));
  TRI_CALL(read_shape(r, array->name, json_object_get(value, "shape"), tri_dtype_size(array->dtype),
                      &array->shape));
  const json_t *pieces = json_object_get(value, "pieces");
  TRI_CHECK(json_is_array(pieces) && json_array_size(pieces) <= INT32_MAX, TRI_ERR_FORMAT,
            "%s: %s: a list of pieces is missing", r->path, array->name);
  array->first_piece = r->manifest->n_pieces;
  array->n_pieces = (int)json_array_size(pieces);
  for (int i = 0; i < array->n_pieces; i++)
    TRI_CALL(read_piece(r, array, i, json_array_get(pieces, (size_t)i)));
  place_pieces(&r->manifest->pieces[array->first_piece], array->n_pieces);
  r->manifest->n_pieces += array->n_pieces;
  return check_cover(r, array);
}

static tri_status read_files(const reader *r, const json_t *list)
{
  TRI_CHECK(json_is_array(list) && json_array_size(list) <= TRI_MANIFEST_FILES_MAX, TRI_ERR_FORMAT,
            "%s: a list of at most %d files is missing", r->path, TRI_MANIFEST_FILES_MAX);
  const int n = (int)json_array_size(list);
  TRI_CALL(TRI_NEW(TRI_MODULE_CKPT, n, &r->manifest->files));
  r->manifest->n_files = n;
  for (int i = 0; i < n; i++)
    TRI_CALL(read_file(r, i, json_array_get(list, (size_t)i)));
  return TRI_OK;
}

static tri_status read_arrays(const reader *r, const json_t *list)
{
  TRI_CHECK(json_is_array(list) && json_array_size(list) <= TRI_MANIFEST_ARRAYS_MAX, TRI_ERR_FORMAT,
            "%s: a list of at most %d arrays is missing", r->path, TRI_MANIFEST_ARRAYS_MAX);
  const int n = (int)json_array_size(list);
  size_t n_pieces = 0;
  for (int i = 0; i < n; i++)
    n_pieces += json_array_size(json_object_get(json_array_get(list, (size_t)i), "pieces"));
  TRI_CALL(TRI_NEW(TRI_MODULE_CKPT, n, &r->manifest->arrays));
  TRI_CALL(TRI_NEW(TRI_MODULE_CKPT, n_pieces, &r->manifest->pieces));
  r->manifest->n_arrays = n;
  for (int i = 0; i < n; i++)
    TRI_CALL(read_array(r, i, json_array_get(list, (size_t)i)));
  return TRI_OK;
}

static tri_status read_root(reader *r, const json_t *root)
{
  static const char *const members[] = {"format", "version", "step",  "attributes",
                                        "files",  "arrays",  "digest"};
  char format[32];
  TRI_CHECK(json_is_object(root), TRI_ERR_FORMAT, "%s: is no JSON object", r->path);
  TRI_CALL(read_text(r, "format", json_object_get(root, "format"), format, sizeof format));
  TRI_CHECK(strcmp(format, "trireme checkpoint") == 0, TRI_ERR_FORMAT,
            "%s: its format is '%s', not 'trireme checkpoint'", r->path, format);
  TRI_CALL(read_number(r, "version", json_object_get(root, "version"), 1, INT64_MAX, &r->version));
  TRI_CHECK(r->version <= TRI_MANIFEST_VERSION, TRI_ERR_FORMAT,
            "%s: has version %lld of the format, this program reads versions 1 to %d", r->path,
            (long long)r->version, TRI_MANIFEST_VERSION);
  TRI_CALL(check_members(r, "the manifest", root, 7, members));
  TRI_CALL(read_number(r, "step", json_object_get(root, "step"), 0, INT64_MAX, &r->manifest->step));
  const json_t *attributes = json_object_get(root, "attributes");
  TRI_CHECK(json_is_object(attributes), TRI_ERR_FORMAT, "%s: its attributes are no object",
            r->path);
  char *dump = json_dumps(attributes, JSON_COMPACT | JSON_SORT_KEYS);
  TRI_CHECK(dump != NULL, TRI_ERR_FORMAT, "%s: its attributes cannot be read", r->path);
  r->manifest->attributes = tri_strdup(TRI_MODULE_CKPT, dump);
  free(dump);
  if (r->manifest->attributes == NULL) return TRI_ERR_MEMORY;
  TRI_CALL(read_files(r, json_object_get(root, "files")));
  return TRI_OK;
}

tri_status tri_manifest_read(const char *path, const char *text, size_t size_bytes,
                             tri_manifest *out)
{
  tri_status status = TRI_OK;
  tri_manifest manifest = {0};
  reader r = {.path = path, .manifest = &manifest};
  json_t *root = NULL;
  json_error_t reason;
  TRI_CHECK(size_bytes <= TRI_MANIFEST_BYTES_MAX, TRI_ERR_FORMAT,
            "%s: %zu bytes are more than the %d that are read", path, size_bytes,
            TRI_MANIFEST_BYTES_MAX);
  TRI_CALL(check_digest(path, text, size_bytes));
  root = json_loadb(text, size_bytes, JSON_REJECT_DUPLICATES, &reason);
  TRI_CHECK(root != NULL, TRI_ERR_FORMAT, "%s:%d: %s", path, reason.line, reason.text);
  TRI_CALL_GOTO(done, read_root(&r, root));
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_CKPT, manifest.n_files, &r.file_bytes));
  TRI_CALL_GOTO(done, read_arrays(&r, json_object_get(root, "arrays")));

done:
  tri_free(r.file_bytes);
  json_decref(root);
  if (status != TRI_OK) {
    tri_manifest_clear(&manifest);
    return status;
  }
  *out = manifest;
  return TRI_OK;
}

// Opening something else than a regular file could wait for ever (a pipe), so it is looked at
// first.
static tri_status check_regular(const char *path, int64_t *size_bytes)
{
  struct stat facts;
  if (stat(path, &facts) != 0) {
    const bool missing = errno == ENOENT || errno == ENOTDIR;
    return TRI_ERROR(missing ? TRI_ERR_FORMAT : TRI_ERR_IO, "%s: %s", path,
                     missing ? "is missing" : strerror(errno));
  }
  TRI_CHECK(S_ISREG(facts.st_mode), TRI_ERR_FORMAT, "%s: is not a regular file", path);
  *size_bytes = facts.st_size;
  return TRI_OK;
}

static tri_status check_sizes(const char *folder, const tri_manifest *manifest)
{
  char path[PATH_MAX];
  for (int i = 0; i < manifest->n_files; i++) {
    const tri_manifest_file *file = &manifest->files[i];
    int64_t size_bytes;
    TRI_CALL(tri_path_join(path, sizeof path, folder, file->name));
    TRI_CALL(check_regular(path, &size_bytes));
    TRI_CHECK(size_bytes == file->bytes, TRI_ERR_FORMAT,
              "%s: is damaged: has %lld bytes, the manifest says %lld", path, (long long)size_bytes,
              (long long)file->bytes);
  }
  return TRI_OK;
}

tri_status tri_manifest_load(const char *folder, tri_manifest *out, char **text, size_t *size_bytes)
{
  tri_status status = TRI_OK;
  char path[PATH_MAX];
  char *content = NULL;
  size_t used = 0;
  int64_t size_now;
  tri_manifest manifest = {0};
  TRI_CHECK(tri_file_exists(folder), TRI_ERR_IO, "%s: no such checkpoint", folder);
  TRI_CALL(tri_path_join(path, sizeof path, folder, TRI_MANIFEST_NAME));
  TRI_CALL(check_regular(path, &size_now));
  TRI_CALL(tri_file_read(path, TRI_MANIFEST_BYTES_MAX, &content, &used));
  TRI_CALL_GOTO(err_free, tri_manifest_read(path, content, used, &manifest));
  TRI_CALL_GOTO(err_clear, check_sizes(folder, &manifest));
  if (text != NULL) {
    *text = content;
    *size_bytes = used;
  } else {
    tri_free(content);
  }
  *out = manifest;
  return TRI_OK;

err_clear:
  tri_manifest_clear(&manifest);
err_free:
  tri_free(content);
  return status;
}

static int compare_name(const void *name, const void *array)
{
  return strcmp(name, ((const tri_manifest_array *)array)->name);
}

const tri_manifest_array *tri_manifest_find(const tri_manifest *manifest, const char *name)
{
  return bsearch(name, manifest->arrays, (size_t)manifest->n_arrays, sizeof manifest->arrays[0],
                 compare_name);
}
