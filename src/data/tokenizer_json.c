#include <jansson.h>
#include <string.h>

#include "trireme/base/memory.h"
#include "trireme/data/tokenizer.h"

tri_status tri_tokenizer_to_json(const tri_tokenizer *tokenizer, char **json)
{
  (void)tokenizer;
  char *text = tri_strdup(TRI_MODULE_DATA, "{\"version\":\"1.0\",\"model\":{\"type\":\"bytes\"}}");
  if (text == NULL) return TRI_ERR_MEMORY;
  *json = text;
  return TRI_OK;
}

tri_status tri_tokenizer_from_json(const char *json, size_t size_bytes, const char *name,
                                   tri_tokenizer **out)
{
  tri_status status = TRI_OK;
  json_error_t error;
  json_t *root = json_loadb(json, size_bytes, JSON_REJECT_DUPLICATES, &error);
  TRI_CHECK(root != NULL, TRI_ERR_FORMAT, "%s: line %d: %s", name, error.line, error.text);
  const char *type = json_string_value(json_object_get(json_object_get(root, "model"), "type"));
  TRI_CHECK_GOTO(done, type != NULL && strcmp(type, "bytes") == 0, TRI_ERR_FORMAT,
                 "%s: field model.type is '%s', wanted 'bytes'", name, type == NULL ? "" : type);
  TRI_CALL_GOTO(done, tri_tokenizer_open("bytes", out));

done:
  json_decref(root);
  return status;
}
