#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "data/byte_alphabet.h"
#include "data/tokenizer_parts.h"
#include "trireme/base/memory.h"

// Jansson gives NULL and -1 where memory is short, and passes NULL on: one check at the end of each
// object is enough.

// A token as the vocabulary writes it. NULL: memory is short.
static char *written_form(const tri_bpe *bpe, int32_t id)
{
  const tri_bpe_token *token = &bpe->tokens[id];
  const char *bytes = bpe->text + token->at;
  char *written = tri_calloc(TRI_MODULE_DATA, 2 * (size_t)token->size_bytes + 1, 1);
  if (written == NULL) return NULL;
  if (token->added) {
    memcpy(written, bytes, (size_t)token->size_bytes);
    return written;
  }
  size_t n = 0;
  for (int32_t i = 0; i < token->size_bytes; i++)
    n += (size_t)tri_byte_alphabet_character((uint8_t)bytes[i], written + n);
  return written;
}

static json_t *written_string(const tri_bpe *bpe, int32_t id)
{
  char *written = written_form(bpe, id);
  json_t *string = written == NULL ? NULL : json_string(written);
  tri_free(written);
  return string;
}

static json_t *print_vocab(const tri_bpe *bpe)
{
  json_t *vocab = json_object();
  for (int32_t id = 0; id < bpe->n_tokens; id++) {
    if (!bpe->tokens[id].in_vocab) continue;
    char *written = written_form(bpe, id);
    const int failed =
        written == NULL || json_object_set_new(vocab, written, json_integer(id)) != 0;
    tri_free(written);
    if (failed) {
      json_decref(vocab);
      return NULL;
    }
  }
  return vocab;
}

static json_t *print_merges(const tri_bpe *bpe)
{
  json_t *merges = json_array();
  for (int32_t rank = 0; rank < bpe->n_merges; rank++) {
    const tri_bpe_merge *merge = &bpe->merges[rank];
    json_t *pair =
        json_pack("[o, o]", written_string(bpe, merge->left), written_string(bpe, merge->right));
    if (json_array_append_new(merges, pair) != 0) {
      json_decref(merges);
      return NULL;
    }
  }
  return merges;
}

static json_t *print_added(const tri_bpe *bpe)
{
  json_t *added = json_array();
  for (int32_t id = 0; id < bpe->n_tokens; id++) {
    if (!bpe->tokens[id].added) continue;
    json_t *entry = json_pack("{s:i, s:o, s:b, s:b, s:b, s:b, s:b}", "id", id, "content",
                              written_string(bpe, id), "single_word", false, "lstrip", false,
                              "rstrip", false, "normalized", false, "special", true);
    if (json_array_append_new(added, entry) != 0) {
      json_decref(added);
      return NULL;
    }
  }
  return added;
}

static json_t *print_level(void)
{
  return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", false,
                   "trim_offsets", true, "use_regex", true);
}

static json_t *print_bpe(const tri_bpe *bpe)
{
  json_t *model = json_pack(
      "{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout", "unk_token",
      "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", false, "byte_fallback", false,
      "ignore_merges", false, "vocab", print_vocab(bpe), "merges", print_merges(bpe));
  return json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:n, s:o, s:o}", "version", "1.0", "truncation",
                   "padding", "added_tokens", print_added(bpe), "normalizer", "pre_tokenizer",
                   print_level(), "post_processor", "decoder", print_level(), "model", model);
}

tri_status tri_bpe_to_json(const tri_bpe *bpe, char **json)
{
  json_t *root = bpe == NULL
                     ? json_pack("{s:s, s:{s:s}}", "version", "1.0", "model", "type", "bytes")
                     : print_bpe(bpe);
  char *text = root == NULL ? NULL : json_dumps(root, JSON_COMPACT);
  json_decref(root);
  TRI_CHECK(text != NULL, TRI_ERR_MEMORY, "a tokenizer's JSON text gets no memory");
  char *copy = tri_strdup(TRI_MODULE_DATA, text);
  free(text);
  TRI_CALL(copy == NULL ? TRI_ERR_MEMORY : TRI_OK);
  *json = copy;
  return TRI_OK;
}
