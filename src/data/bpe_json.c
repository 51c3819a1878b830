#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "data/tokenizer_parts.h"
#include "trireme/base/memory.h"

static tri_status load(const char *file, const char *text, size_t size_bytes, json_t **out)
{
  json_error_t error;
  json_t *root = json_loadb(text, size_bytes, JSON_REJECT_DUPLICATES, &error);
  TRI_CHECK(root != NULL, TRI_ERR_FORMAT, "%s: is not JSON: line %d: %s", file, error.line,
            error.text);
  *out = root;
  return TRI_OK;
}

// --- what a tokenizer.json may ask for

// null, false, "", 0 and absence all say that a feature is off.
static bool is_off(const json_t *value)
{
  return value == NULL || json_is_null(value) || json_is_false(value) ||
         (json_is_string(value) && json_string_length(value) == 0) ||
         (json_is_number(value) && json_number_value(value) == 0);
}

static bool is_in(const char *name, const char *const *names)
{
  for (; *names != NULL; names++) {
    if (strcmp(name, *names) == 0) return true;
  }
  return false;
}

// Every field that is on must be known: an unknown one might change the tokens.
static tri_status check_fields(const char *file, const char *object_name, json_t *object,
                               const char *const *known)
{
  const char *name;
  json_t *value;
  json_object_foreach(object, name, value)
  {
    TRI_CHECK(is_in(name, known) || is_off(value), TRI_ERR_UNSUPPORTED,
              "%s: field %s%.64s is not supported", file, object_name, name);
  }
  return TRI_OK;
}

static tri_status check_type(const char *file, const char *field, json_t *object, const char *want)
{
  const char *type = json_string_value(json_object_get(object, "type"));
  TRI_CHECK(type != NULL && strcmp(type, want) == 0, TRI_ERR_UNSUPPORTED,
            "%s: field %s.type is '%.64s', only '%s' is supported", file, field,
            type == NULL ? "" : type, want);
  return TRI_OK;
}

// The post-processor, truncation and padding shape what a model is asked, not what text means: an
// encoding that adds nothing of its own does not use them. With a token for every byte, the unknown
// token is never needed.
static tri_status check_features(const char *file, json_t *root, json_t *model)
{
  static const char *const root_fields[] = {"version",      "truncation",    "padding",
                                            "added_tokens", "pre_tokenizer", "post_processor",
                                            "decoder",      "model",         NULL};
  static const char *const model_fields[] = {"type",      "vocab",    "merges",
                                             "unk_token", "fuse_unk", NULL};
  static const char *const level_fields[] = {"type", "trim_offsets", "use_regex", NULL};
  json_t *pre_tokenizer = json_object_get(root, "pre_tokenizer");
  json_t *decoder = json_object_get(root, "decoder");
  TRI_CALL(check_fields(file, "", root, root_fields));
  if (json_object_get(model, "type") != NULL) TRI_CALL(check_type(file, "model", model, "BPE"));
  TRI_CALL(check_fields(file, "model.", model, model_fields));
  TRI_CALL(check_type(file, "pre_tokenizer", pre_tokenizer, "ByteLevel"));
  TRI_CALL(check_fields(file, "pre_tokenizer.", pre_tokenizer, level_fields));
  const json_t *rule = json_object_get(pre_tokenizer, "use_regex");
  TRI_CHECK(rule == NULL || json_is_true(rule), TRI_ERR_UNSUPPORTED,
            "%s: field pre_tokenizer.use_regex must be true: only the GPT-2 rule is supported",
            file);
  if (!is_off(decoder)) TRI_CALL(check_type(file, "decoder", decoder, "ByteLevel"));
  return TRI_OK;
}

// --- vocabulary and merges

static tri_status check_table(const char *file, const char *field, const json_t *value, bool right)
{
  TRI_CHECK(value != NULL && right, TRI_ERR_FORMAT, "%s: field %s is missing or of the wrong type",
            file, field);
  return TRI_OK;
}

static int64_t text_bytes(json_t *vocab, json_t *added)
{
  int64_t n = 0;
  const char *written;
  json_t *value;
  size_t i;
  json_object_foreach(vocab, written, value) n += (int64_t)strlen(written);
  json_array_foreach(added, i, value)
  {
    n += (int64_t)json_string_length(json_object_get(value, "content"));
  }
  return n;
}

static tri_status add_added_tokens(tri_bpe *bpe, const char *file, json_t *added)
{
  size_t i;
  json_t *entry;
  json_array_foreach(added, i, entry)
  {
    const char *content = json_string_value(json_object_get(entry, "content"));
    const json_t *id = json_object_get(entry, "id");
    TRI_CHECK(content != NULL && json_is_integer(id), TRI_ERR_FORMAT,
              "%s: added_tokens[%zu] has no content or no id", file, i);
    TRI_CALL(tri_bpe_add_added_token(bpe, file, content, json_integer_value(id)));
  }
  return TRI_OK;
}

static tri_status add_vocab(tri_bpe *bpe, const char *file, json_t *vocab)
{
  const char *written;
  json_t *id;
  json_object_foreach(vocab, written, id)
  {
    TRI_CHECK(json_is_integer(id), TRI_ERR_FORMAT, "%s: the id of token '%.64s' is no whole number",
              file, written);
    TRI_CALL(tri_bpe_add_token(bpe, file, written, json_integer_value(id)));
  }
  return TRI_OK;
}

// The two parts of a merge: "a b" or ["a", "b"].
static tri_status add_json_merge(tri_bpe *bpe, const char *file, size_t number, const json_t *merge)
{
  char place[48];
  snprintf(place, sizeof place, "model.merges[%zu]", number);
  const json_t *right = json_array_get(merge, 1);
  if (json_array_size(merge) == 2 && json_is_string(json_array_get(merge, 0)) &&
      json_is_string(right)) {
    const json_t *left = json_array_get(merge, 0);
    return tri_bpe_add_merge(bpe, file, place, json_string_value(left), json_string_length(left),
                             json_string_value(right), json_string_length(right));
  }
  const char *text = json_string_value(merge);
  const char *space = text == NULL ? NULL : strchr(text, ' ');
  TRI_CHECK(space != NULL, TRI_ERR_FORMAT, "%s: %s is neither \"a b\" nor [\"a\", \"b\"]", file,
            place);
  return tri_bpe_add_merge(bpe, file, place, text, (size_t)(space - text), space + 1,
                           strlen(space + 1));
}

static tri_status fill_from_json(tri_bpe *bpe, const char *file, json_t *added, json_t *vocab,
                                 json_t *merges)
{
  size_t i;
  json_t *merge;
  TRI_CALL(add_added_tokens(bpe, file, added));
  TRI_CALL(add_vocab(bpe, file, vocab));
  TRI_CALL(tri_bpe_end_tokens(bpe, file));
  json_array_foreach(merges, i, merge) TRI_CALL(add_json_merge(bpe, file, i, merge));
  tri_bpe_end_merges(bpe);
  return TRI_OK;
}

static tri_status from_root(const char *file, json_t *root, tri_bpe **out)
{
  json_t *model = json_object_get(root, "model"), *added = json_object_get(root, "added_tokens");
  json_t *vocab = json_object_get(model, "vocab"), *merges = json_object_get(model, "merges");
  TRI_CALL(check_table(file, "model", model, json_is_object(model)));
  TRI_CALL(check_features(file, root, model));
  TRI_CALL(check_table(file, "model.vocab", vocab, json_is_object(vocab)));
  TRI_CALL(check_table(file, "model.merges", merges, json_is_array(merges)));
  if (json_is_null(added)) added = NULL;
  if (added != NULL) TRI_CALL(check_table(file, "added_tokens", added, json_is_array(added)));
  const int64_t n_tokens = (int64_t)(json_object_size(vocab) + json_array_size(added));
  tri_bpe *bpe = NULL;
  TRI_CALL(tri_bpe_create(file, n_tokens, text_bytes(vocab, added),
                          (int64_t)json_array_size(merges), &bpe));
  const tri_status status = fill_from_json(bpe, file, added, vocab, merges);
  if (status != TRI_OK) tri_bpe_destroy(&bpe);
  TRI_CALL(status);
  *out = bpe;
  return TRI_OK;
}

tri_status tri_bpe_from_json(const char *file, const char *json, size_t size_bytes, tri_bpe **out)
{
  tri_status status = TRI_OK;
  json_t *root = NULL;
  TRI_CALL(load(file, json, size_bytes, &root));
  const char *type = json_string_value(json_object_get(json_object_get(root, "model"), "type"));
  if (type != NULL && strcmp(type, "bytes") == 0) {
    *out = NULL;
  } else {
    TRI_CALL_GOTO(done, from_root(file, root, out));
  }
done:
  json_decref(root);
  return status;
}

// --- vocab.json and merges.txt

static int64_t count_lines(const char *text, size_t size_bytes)
{
  int64_t n = 1;
  for (size_t i = 0; i < size_bytes; i++)
    n += text[i] == '\n';
  return n;
}

static tri_status add_merge_lines(tri_bpe *bpe, const char *file, const char *text,
                                  size_t size_bytes)
{
  const char *line = text, *end = text + size_bytes;
  for (int number = 1; line < end; number++) {
    const char *stop = memchr(line, '\n', (size_t)(end - line));
    const char *next = stop == NULL ? end : stop + 1;
    size_t n = (size_t)((stop == NULL ? end : stop) - line);
    if (n > 0 && line[n - 1] == '\r') n--;
    const char *space = memchr(line, ' ', n);
    const bool is_header = number == 1 && n >= 8 && memcmp(line, "#version", 8) == 0;
    char place[32];
    snprintf(place, sizeof place, "line %d", number);
    TRI_CHECK(space != NULL || is_header || n == 0, TRI_ERR_FORMAT,
              "%s: %s is not two tokens with a space between them", file, place);
    if (space != NULL && !is_header) {
      TRI_CALL(tri_bpe_add_merge(bpe, file, place, line, (size_t)(space - line), space + 1,
                                 n - (size_t)(space - line) - 1));
    }
    line = next;
  }
  return TRI_OK;
}

static tri_status fill_from_lists(tri_bpe *bpe, const char *vocab_file, json_t *vocab,
                                  const char *merges_file, const char *merges, size_t merges_bytes)
{
  TRI_CALL(add_vocab(bpe, vocab_file, vocab));
  TRI_CALL(tri_bpe_end_tokens(bpe, vocab_file));
  TRI_CALL(add_merge_lines(bpe, merges_file, merges, merges_bytes));
  tri_bpe_end_merges(bpe);
  return TRI_OK;
}

tri_status tri_bpe_from_lists(const char *vocab_file, const char *vocab, size_t vocab_bytes,
                              const char *merges_file, const char *merges, size_t merges_bytes,
                              tri_bpe **out)
{
  tri_status status = TRI_OK;
  tri_bpe *bpe = NULL;
  json_t *root = NULL;
  TRI_CALL(load(vocab_file, vocab, vocab_bytes, &root));
  TRI_CHECK_GOTO(done, json_is_object(root), TRI_ERR_FORMAT,
                 "%s: is not an object of tokens and their ids", vocab_file);
  TRI_CALL_GOTO(done,
                tri_bpe_create(vocab_file, (int64_t)json_object_size(root), text_bytes(root, NULL),
                               count_lines(merges, merges_bytes), &bpe));
  TRI_CALL_GOTO(done, fill_from_lists(bpe, vocab_file, root, merges_file, merges, merges_bytes));
done:
  json_decref(root);
  if (status != TRI_OK) {
    tri_bpe_destroy(&bpe);
    return status;
  }
  *out = bpe;
  return TRI_OK;
}
