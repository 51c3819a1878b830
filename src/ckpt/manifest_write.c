#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/manifest.h"
#include "trireme/base/memory.h"

// A text that grows.
typedef struct growing_text {
  char *bytes;
  size_t used, room;
} growing_text;

static tri_status text_add(growing_text *t, const char *bytes, size_t n)
{
  if (t->used + n + 1 > t->room) {
    char *more;
    const size_t room = 2 * (t->used + n) + 4096;
    TRI_CALL(TRI_NEW(TRI_MODULE_CKPT, room, &more));
    if (t->used > 0) memcpy(more, t->bytes, t->used);
    tri_free(t->bytes);
    t->bytes = more;
    t->room = room;
  }
  memcpy(t->bytes + t->used, bytes, n);
  t->used += n;
  t->bytes[t->used] = '\0';
  return TRI_OK;
}

// One formatted bit; names of arrays and files hold nothing that JSON would have to escape.
TRI_PRINTF(2, 3) static tri_status text_print(growing_text *t, const char *format, ...)
{
  char bit[512];
  va_list arguments;
  va_start(arguments, format);
  const int n = vsnprintf(bit, sizeof bit, format, arguments);
  va_end(arguments);
  TRI_CHECK(n >= 0 && (size_t)n < sizeof bit, TRI_ERR_INTERNAL, "a line of %d bytes", n);
  return text_add(t, bit, (size_t)n);
}

static tri_status add_numbers(growing_text *t, int n, const int64_t *numbers)
{
  TRI_CALL(text_print(t, "["));
  for (int i = 0; i < n; i++)
    TRI_CALL(text_print(t, "%s%lld", i > 0 ? "," : "", (long long)numbers[i]));
  return text_print(t, "]");
}

static tri_status add_array(growing_text *t, const tri_manifest *manifest,
                            const tri_manifest_array *array)
{
  TRI_CALL(text_print(t, "{\"name\":\"%s\",\"dtype\":\"%s\",\"shape\":", array->name,
                      tri_dtype_name(array->dtype)));
  TRI_CALL(add_numbers(t, array->shape.n_axes, array->shape.extent));
  TRI_CALL(text_print(t, ",\"pieces\":["));
  for (int i = 0; i < array->n_pieces; i++) {
    const tri_manifest_piece *piece = &manifest->pieces[array->first_piece + i];
    TRI_CALL(text_print(t, "%s[%d,", i > 0 ? "," : "", piece->file));
    TRI_CALL(add_numbers(t, piece->box.n_axes, piece->box.start));
    TRI_CALL(text_print(t, ","));
    TRI_CALL(add_numbers(t, piece->box.n_axes, piece->box.count));
    TRI_CALL(text_print(t, "]"));
  }
  return text_print(t, "]}");
}

// Programs that know version 1 alone go on reading what it can say.
static int lowest_version(const tri_manifest *manifest)
{
  for (int i = 0; i < manifest->n_arrays; i++) {
    const tri_manifest_array *array = &manifest->arrays[i];
    const tri_manifest_piece *pieces = &manifest->pieces[array->first_piece];
    for (int k = 1; k < array->n_pieces; k++)
      if (pieces[k - 1].file == pieces[k].file) return TRI_MANIFEST_VERSION;
  }
  return 1;
}

static tri_status add_all(growing_text *t, const tri_manifest *manifest)
{
  char hex[TRI_DIGEST_HEX_BYTES];
  TRI_CALL(text_print(t, "{\"format\":\"trireme checkpoint\",\"version\":%d,\"step\":%lld,\n",
                      lowest_version(manifest), (long long)manifest->step));
  TRI_CALL(text_print(t, "\"attributes\":"));
  TRI_CALL(text_add(t, manifest->attributes, strlen(manifest->attributes)));
  TRI_CALL(text_print(t, ",\n\"files\":["));
  for (int i = 0; i < manifest->n_files; i++) {
    const tri_manifest_file *file = &manifest->files[i];
    tri_digest_hex(&file->digest, hex);
    TRI_CALL(text_print(t, "%s\n{\"name\":\"%s\",\"bytes\":%lld,\"digest\":\"%s\"}",
                        i > 0 ? "," : "", file->name, (long long)file->bytes, hex));
  }
  TRI_CALL(text_print(t, "],\n\"arrays\":["));
  for (int i = 0; i < manifest->n_arrays; i++) {
    TRI_CALL(text_print(t, "%s\n", i > 0 ? "," : ""));
    TRI_CALL(add_array(t, manifest, &manifest->arrays[i]));
  }
  TRI_CALL(text_print(t, "],\n"));
  tri_digest digest;
  tri_digest_of(t->bytes, t->used, &digest);
  tri_digest_hex(&digest, hex);
  return text_print(t, "\"digest\":\"%s\"}\n", hex);
}

tri_status tri_manifest_write(const tri_manifest *manifest, char **out, size_t *size_bytes)
{
  growing_text t = {0};
  tri_status status = add_all(&t, manifest);
  if (status == TRI_OK && t.used > TRI_MANIFEST_BYTES_MAX)
    status = TRI_ERROR(TRI_ERR_UNSUPPORTED,
                       "the manifest would have %zu bytes, more than the %d that are read: %d "
                       "arrays in %lld pieces",
                       t.used, TRI_MANIFEST_BYTES_MAX, manifest->n_arrays,
                       (long long)manifest->n_pieces);
  if (status != TRI_OK) {
    tri_free(t.bytes);
    return status;
  }
  *out = t.bytes;
  *size_bytes = t.used;
  return TRI_OK;
}

tri_status tri_manifest_attributes(const char *text, char **out)
{
  json_error_t reason;
  json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, &reason);
  TRI_CHECK(object != NULL, TRI_ERR_ARGUMENT, "the attributes are no JSON object: %s (byte %d)",
            reason.text, reason.position);
  char *dump = NULL;
  if (json_is_object(object)) dump = json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS);
  const bool is_object = json_is_object(object);
  json_decref(object);
  TRI_CHECK(is_object, TRI_ERR_ARGUMENT, "the attributes are JSON, but no object");
  TRI_CHECK(dump != NULL, TRI_ERR_MEMORY, "no memory for the attributes");
  char *copy = tri_strdup(TRI_MODULE_CKPT, dump);
  free(dump);
  if (copy == NULL) return TRI_ERR_MEMORY;
  *out = copy;
  return TRI_OK;
}

void tri_manifest_clear(tri_manifest *manifest)
{
  tri_free(manifest->attributes);
  tri_free(manifest->files);
  tri_free(manifest->arrays);
  tri_free(manifest->pieces);
  *manifest = (tri_manifest){0};
}
