#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "data/tokenizer_parts.h"
#include "trireme/base/file.h"
#include "trireme/base/memory.h"

static const char *const vocab_names[] = {"vocab.json", "encoder.json", NULL};
static const char *const merges_names[] = {"merges.txt", "vocab.bpe", NULL};

static const char *base_name(const char *path)
{
  const char *slash = strrchr(path, '/');
  return slash == NULL ? path : slash + 1;
}

// The path of the first of `names` that lies in a folder, "" when none does.
static tri_status find_in(const char *folder, const char *const *names, char found[PATH_MAX])
{
  for (; *names != NULL; names++) {
    TRI_CALL(tri_path_join(found, PATH_MAX, folder, *names));
    if (tri_file_exists(found)) return TRI_OK;
  }
  found[0] = '\0';
  return TRI_OK;
}

static void folder_of(const char *path, char folder[PATH_MAX])
{
  const int n = (int)(base_name(path) - path);
  snprintf(folder, PATH_MAX, "%.*s", n == 0 ? 1 : n, n == 0 ? "." : path);
}

static bool is_in(const char *name, const char *const *names)
{
  for (; *names != NULL; names++) {
    if (strcmp(name, *names) == 0) return true;
  }
  return false;
}

static tri_status read_lists(const char *vocab_file, const char *merges_file, tri_bpe **out)
{
  tri_status status = TRI_OK;
  char *vocab = NULL, *merges = NULL;
  size_t vocab_bytes, merges_bytes;
  TRI_CALL_GOTO(done, tri_file_read(vocab_file, TRI_TOKENIZER_FILE_BYTES, &vocab, &vocab_bytes));
  TRI_CALL_GOTO(done, tri_file_read(merges_file, TRI_TOKENIZER_FILE_BYTES, &merges, &merges_bytes));
  TRI_CALL_GOTO(done, tri_bpe_from_lists(vocab_file, vocab, vocab_bytes, merges_file, merges,
                                         merges_bytes, out));
done:
  tri_free(vocab);
  tri_free(merges);
  return status;
}

static tri_status read_json(const char *file, tri_bpe **out)
{
  char *json = NULL;
  size_t size_bytes = 0;
  TRI_CALL(tri_file_read(file, TRI_TOKENIZER_FILE_BYTES, &json, &size_bytes));
  const tri_status status = tri_bpe_from_json(file, json, size_bytes, out);
  tri_free(json);
  TRI_CALL(status);
  return TRI_OK;
}

// A vocabulary and its merges, of which `path` names one.
static tri_status read_pair(const char *path, tri_bpe **out)
{
  char folder[PATH_MAX], other[PATH_MAX];
  const bool is_merges = is_in(base_name(path), merges_names);
  const char *const *other_names = is_merges ? vocab_names : merges_names;
  folder_of(path, folder);
  TRI_CALL(find_in(folder, other_names, other));
  TRI_CHECK(other[0] != '\0', TRI_ERR_IO, "%s: neither %s nor %s lies beside it", path,
            other_names[0], other_names[1]);
  return is_merges ? read_lists(other, path, out) : read_lists(path, other, out);
}

static tri_status read_file(const char *path, tri_bpe **out)
{
  const char *name = base_name(path);
  if (is_in(name, vocab_names) || is_in(name, merges_names)) return read_pair(path, out);
  return read_json(path, out);
}

tri_status tri_bpe_from_path(const char *path, char name[TRI_TOKENIZER_NAME_BYTES], tri_bpe **out)
{
  static const char *const any_names[] = {"tokenizer.json", "vocab.json", "encoder.json", NULL};
  char found[PATH_MAX];
  struct stat facts;
  if (stat(path, &facts) == 0 && S_ISDIR(facts.st_mode)) {
    TRI_CALL(find_in(path, any_names, found));
    TRI_CHECK(found[0] != '\0', TRI_ERR_IO,
              "%s: holds no tokenizer.json, vocab.json or encoder.json", path);
  } else {
    const int n = snprintf(found, sizeof found, "%s", path);
    TRI_CHECK(n >= 0 && (size_t)n < sizeof found, TRI_ERR_IO, "path %s is too long", path);
  }
  snprintf(name, TRI_TOKENIZER_NAME_BYTES, "bpe %s", base_name(found));
  return read_file(found, out);
}
