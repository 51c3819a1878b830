// A job from text: libyaml finds what stands where (document.c), every value is checked (check.c),
// and libcyaml loads the checked text into tri_job by the schema that the table of keys gives.
#include <cyaml/cyaml.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "job/check.h"
#include "trireme/base/file.h"
#include "trireme/base/memory.h"

// The table as libcyaml wants it.
typedef struct job_schema {
  cyaml_schema_value_t top;
  cyaml_schema_value_t text; // an entry of a list
  cyaml_schema_field_t top_fields[JOB_N_KEYS + JOB_N_SECTIONS + 1];
  cyaml_schema_field_t fields[JOB_N_SECTIONS][JOB_N_KEYS + 1];
} job_schema;

static cyaml_schema_value_t value_schema(const job_schema *schema, const job_key *key)
{
  cyaml_schema_value_t value = {.flags = CYAML_FLAG_DEFAULT, .data_size = (uint32_t)key->size};
  switch (key->storage) {
  case JOB_INTEGER:
  case JOB_AUTO_OR_INTEGER:
  case JOB_CHOICE: value.type = CYAML_INT; break;
  case JOB_NUMBER: value.type = CYAML_FLOAT; break;
  case JOB_BOOL: value.type = CYAML_BOOL; break;
  case JOB_TEXT: value = schema->text; break;
  case JOB_LIST:
    value = (cyaml_schema_value_t){
        CYAML_VALUE_SEQUENCE(CYAML_FLAG_POINTER, char *, &schema->text, 0, JOB_MAX_LIST)};
    break;
  }
  return value;
}

static void build_schema(job_schema *schema)
{
  memset(schema, 0, sizeof *schema);
  schema->text =
      (cyaml_schema_value_t){CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 0, TRI_JOB_MAX_BYTES)};
  schema->top =
      (cyaml_schema_value_t){CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, tri_job, schema->top_fields)};
  int n_top = 0, n[JOB_N_SECTIONS] = {0};
  for (int k = 0; k < JOB_N_KEYS; k++) {
    const job_key *key = &tri_job_table[k];
    const int section = tri_job_key_section(key);
    cyaml_schema_field_t *field =
        section < 0 ? &schema->top_fields[n_top++] : &schema->fields[section][n[section]++];
    const size_t base = section < 0 ? 0 : tri_job_sections[section].offset;
    const char *dot = strchr(key->facts.path, '.');
    field->key = dot == NULL ? key->facts.path : dot + 1;
    field->data_offset = (uint32_t)(key->offset - base);
    field->value = value_schema(schema, key);
    if (key->storage == JOB_LIST) {
      field->count_offset = (uint32_t)(key->n_offset - base);
      field->count_size = sizeof(unsigned);
    }
  }
  for (int s = 0; s < JOB_N_SECTIONS; s++) {
    cyaml_schema_field_t *field = &schema->top_fields[n_top++];
    field->key = tri_job_sections[s].name;
    field->data_offset = (uint32_t)tri_job_sections[s].offset;
    field->value = (cyaml_schema_value_t){.type = CYAML_MAPPING,
                                          .flags = CYAML_FLAG_DEFAULT,
                                          .data_size = (uint32_t)tri_job_sections[s].size,
                                          .mapping = {.fields = schema->fields[s]}};
  }
}

typedef struct job_complaint {
  char text[512];
} job_complaint;

static void keep_complaint(cyaml_log_t level, void *user, const char *format, va_list arguments)
    TRI_PRINTF(3, 0);

static void keep_complaint(cyaml_log_t level, void *user, const char *format, va_list arguments)
{
  (void)level;
  job_complaint *complaint = user;
  const size_t used = strlen(complaint->text);
  vsnprintf(complaint->text + used, sizeof complaint->text - used, format, arguments);
}

// Gives `job`, a flat copy of a loaded one, texts of its own.
static tri_status own_texts(tri_job *job, const tri_job *loaded)
{
  tri_job theirs = *loaded;
  for (int k = 0; k < JOB_N_KEYS; k++) {
    const job_key *key = &tri_job_table[k];
    if (key->storage != JOB_TEXT && key->storage != JOB_LIST) continue;
    *(void **)tri_job_key_place(key, job) = NULL;
    if (key->storage == JOB_LIST) *(unsigned *)((char *)job + key->n_offset) = 0;
  }
  for (int k = 0; k < JOB_N_KEYS; k++) {
    const job_key *key = &tri_job_table[k];
    if (key->storage == JOB_TEXT) {
      char **text = tri_job_key_place(key, job);
      const char *from = *(char **)tri_job_key_place(key, &theirs);
      *text = tri_strdup(TRI_MODULE_JOB, from == NULL ? "" : from);
      if (*text == NULL) return TRI_ERR_MEMORY;
    } else if (key->storage == JOB_LIST) {
      char ***texts = tri_job_key_place(key, job);
      unsigned *n = (unsigned *)((char *)job + key->n_offset);
      char **from = *(char ***)tri_job_key_place(key, &theirs);
      const unsigned n_from = *(unsigned *)((char *)&theirs + key->n_offset);
      TRI_CALL(TRI_NEW(TRI_MODULE_JOB, n_from, texts));
      for (; *n < n_from; (*n)++) {
        (*texts)[*n] = tri_strdup(TRI_MODULE_JOB, from[*n]);
        if ((*texts)[*n] == NULL) return TRI_ERR_MEMORY;
      }
    }
  }
  return TRI_OK;
}

void tri_job_free(tri_job **job)
{
  if (*job == NULL) return;
  for (int k = 0; k < JOB_N_KEYS; k++) {
    const job_key *key = &tri_job_table[k];
    if (key->storage == JOB_TEXT) tri_free(*(char **)tri_job_key_place(key, *job));
    if (key->storage != JOB_LIST) continue;
    char **texts = *(char ***)tri_job_key_place(key, *job);
    const unsigned n = *(unsigned *)((char *)*job + key->n_offset);
    for (unsigned i = 0; i < n; i++)
      tri_free(texts[i]);
    tri_free(texts);
  }
  TRI_FREE(job);
}

// The values, all of them checked, as a job of our own memory.
static tri_status load_values(const job_document *document, tri_job **out)
{
  tri_status status = TRI_OK;
  char *yaml = NULL;
  tri_job *loaded = NULL, *job = NULL;
  job_schema schema;
  job_complaint complaint = {0};
  const cyaml_config_t config = {.log_fn = keep_complaint,
                                 .log_ctx = &complaint,
                                 .log_level = CYAML_LOG_ERROR,
                                 .mem_fn = cyaml_mem,
                                 .flags = CYAML_CFG_NO_ALIAS};
  build_schema(&schema);
  TRI_CALL_GOTO(done, tri_job_document_write(document, &yaml));
  cyaml_data_t *data = NULL;
  const cyaml_err_t error =
      cyaml_load_data((const uint8_t *)yaml, strlen(yaml), &config, &schema.top, &data, NULL);
  loaded = data;
  TRI_CHECK_GOTO(done, error == CYAML_OK && loaded != NULL,
                 error == CYAML_ERR_OOM ? TRI_ERR_MEMORY : TRI_ERR_INTERNAL,
                 "%s: libcyaml refuses a checked job: %s: %s", document->name,
                 cyaml_strerror(error), complaint.text);
  TRI_CALL_GOTO(done, TRI_NEW(TRI_MODULE_JOB, 1, &job));
  *job = *loaded;
  TRI_CALL_GOTO(done, own_texts(job, loaded));
  *out = job;
  job = NULL;

done:
  tri_job_free(&job);
  if (loaded != NULL) (void)cyaml_free(&config, &schema.top, loaded, 0);
  tri_free(yaml);
  return status;
}

tri_status tri_job_parse(const char *yaml, size_t size_bytes, const char *name,
                         const char *const *overrides, int n_overrides, tri_job **out)
{
  tri_status status = TRI_OK;
  tri_job *job = NULL;
  job_document document = {.name = name};
  TRI_CHECK(size_bytes <= TRI_JOB_MAX_BYTES, TRI_ERR_CONFIG,
            "%s: %zu bytes are too many for a job file (at most %d)", name, size_bytes,
            TRI_JOB_MAX_BYTES);
  TRI_CALL_GOTO(done, tri_job_document_read(&document, yaml, size_bytes));
  for (int i = 0; i < n_overrides; i++)
    TRI_CALL_GOTO(done, tri_job_document_override(&document, overrides[i]));
  TRI_CALL_GOTO(done, tri_job_check_values(&document));
  TRI_CALL_GOTO(done, load_values(&document, &job));
  TRI_CALL_GOTO(done, tri_job_derive(&document, job));
  TRI_CALL_GOTO(done, tri_job_check_rules(&document, job));
  *out = job;
  job = NULL;

done:
  tri_job_free(&job);
  tri_job_document_clear(&document);
  return status;
}

tri_status tri_job_load(const char *path, const char *const *overrides, int n_overrides,
                        tri_job **out)
{
  char *yaml = NULL;
  size_t size_bytes = 0;
  TRI_CALL(tri_file_read(path, TRI_JOB_MAX_BYTES, &yaml, &size_bytes));
  const tri_status status = tri_job_parse(yaml, size_bytes, path, overrides, n_overrides, out);
  tri_free(yaml);
  TRI_CALL(status);
  return TRI_OK;
}
