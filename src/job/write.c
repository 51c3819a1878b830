// Values as YAML text, by libyaml's emitter: what it quotes, its parser reads back.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "job/document.h"
#include "trireme/base/memory.h"

typedef struct job_writer {
  yaml_emitter_t emitter;
  char *text;
  size_t used, room;
  bool failed; // an event could not be made or written
} job_writer;

static int append(void *user, unsigned char *data, size_t size)
{
  job_writer *writer = user;
  if (writer->used + size + 1 > writer->room) {
    const size_t room = 2 * (writer->used + size) + 4096;
    char *grown = tri_calloc(TRI_MODULE_JOB, room, 1);
    if (grown == NULL) return 0;
    if (writer->used > 0) memcpy(grown, writer->text, writer->used);
    tri_free(writer->text);
    writer->text = grown;
    writer->room = room;
  }
  memcpy(writer->text + writer->used, data, size);
  writer->used += size;
  return 1;
}

// Emits an event (`made`: what its initializer returned); after a failure only releases it.
static void emit(job_writer *writer, int made, yaml_event_t *event)
{
  if (made == 0) {
    writer->failed = true;
  } else if (writer->failed) {
    yaml_event_delete(event);
  } else if (yaml_emitter_emit(&writer->emitter, event) == 0) {
    writer->failed = true; // the emitter owns the event, also now
  }
}

static void emit_text(job_writer *writer, const char *text)
{
  yaml_event_t event;
  emit(writer,
       yaml_scalar_event_initialize(&event, NULL, NULL, (const yaml_char_t *)text,
                                    (int)strlen(text), 1, 1, YAML_ANY_SCALAR_STYLE),
       &event);
}

static void emit_mapping_start(job_writer *writer)
{
  yaml_event_t event;
  emit(writer, yaml_mapping_start_event_initialize(&event, NULL, NULL, 1, YAML_BLOCK_MAPPING_STYLE),
       &event);
}

static void emit_mapping_end(job_writer *writer)
{
  yaml_event_t event;
  emit(writer, yaml_mapping_end_event_initialize(&event), &event);
}

static void emit_value(job_writer *writer, const job_key *key, const job_value *value)
{
  yaml_event_t event;
  if (key->storage != JOB_LIST) {
    emit_text(writer, value->n_texts == 0 ? "" : value->texts[0]);
    return;
  }
  emit(writer,
       yaml_sequence_start_event_initialize(&event, NULL, NULL, 1, YAML_FLOW_SEQUENCE_STYLE),
       &event);
  for (int i = 0; i < value->n_texts; i++)
    emit_text(writer, value->texts[i]);
  emit(writer, yaml_sequence_end_event_initialize(&event), &event);
}

static void emit_document(job_writer *writer, const job_document *document)
{
  yaml_event_t event;
  emit(writer, yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING), &event);
  emit(writer, yaml_document_start_event_initialize(&event, NULL, NULL, NULL, 1), &event);
  emit_mapping_start(writer);
  int section = -1;
  for (int k = 0; k < JOB_N_KEYS; k++) {
    const job_key *key = &tri_job_table[k];
    const int next = tri_job_key_section(key);
    if (next != section) {
      if (section >= 0) emit_mapping_end(writer);
      emit_text(writer, tri_job_sections[next].name);
      emit_mapping_start(writer);
      section = next;
    }
    const char *dot = strchr(key->facts.path, '.');
    emit_text(writer, dot == NULL ? key->facts.path : dot + 1);
    emit_value(writer, key, &document->values[k]);
  }
  emit_mapping_end(writer);
  emit_mapping_end(writer);
  emit(writer, yaml_document_end_event_initialize(&event, 1), &event);
  emit(writer, yaml_stream_end_event_initialize(&event), &event);
}

tri_status tri_job_document_write(const job_document *document, char **yaml)
{
  job_writer writer = {0};
  TRI_CHECK(yaml_emitter_initialize(&writer.emitter) != 0, TRI_ERR_MEMORY,
            "no memory to write the job");
  yaml_emitter_set_output(&writer.emitter, append, &writer);
  yaml_emitter_set_unicode(&writer.emitter, 1);
  yaml_emitter_set_width(&writer.emitter, -1);
  emit_document(&writer, document);
  if (yaml_emitter_flush(&writer.emitter) == 0) writer.failed = true;
  const char *problem = writer.emitter.problem;
  const tri_status status =
      writer.failed ? TRI_ERROR(TRI_ERR_INTERNAL, "the job cannot be written as YAML: %s",
                                problem == NULL ? "a value is not UTF-8, or no memory" : problem)
                    : TRI_OK;
  yaml_emitter_delete(&writer.emitter);
  if (status != TRI_OK) {
    tri_free(writer.text);
    return status;
  }
  writer.text[writer.used] = '\0';
  *yaml = writer.text;
  return TRI_OK;
}

// Fewest digits that read back to the same value; small whole numbers without an exponent.
static void format_number(double value, bool is_float, char *buffer, size_t size)
{
  if (value > -1e6 && value < 1e6 && value == (double)(int)value && !signbit(value)) {
    snprintf(buffer, size, "%d", (int)value);
    return;
  }
  const int most = is_float ? 9 : 17;
  for (int digits = 1; digits <= most; digits++) {
    snprintf(buffer, size, "%.*g", digits, value);
    if (is_float ? strtof(buffer, NULL) == (float)value : strtod(buffer, NULL) == value) return;
  }
}

static int64_t integer_at(const void *place, size_t size)
{
  if (size == sizeof(int)) return *(const int *)place;
  return *(const int64_t *)place;
}

// The text of a value that is neither text nor list.
static void format_value(const job_key *key, const void *place, char *buffer, size_t size)
{
  switch (key->storage) {
  case JOB_AUTO_OR_INTEGER:
  case JOB_INTEGER: {
    const int64_t value = integer_at(place, key->size);
    if (key->storage == JOB_AUTO_OR_INTEGER && value == 0)
      snprintf(buffer, size, "auto");
    else
      snprintf(buffer, size, "%lld", (long long)value);
    break;
  }
  case JOB_NUMBER:
    if (key->size == sizeof(float))
      format_number(*(const float *)place, true, buffer, size);
    else
      format_number(*(const double *)place, false, buffer, size);
    break;
  case JOB_BOOL: snprintf(buffer, size, "%s", *(const bool *)place ? "true" : "false"); break;
  case JOB_CHOICE: tri_job_choice_word(key->facts.type, *(const int *)place, buffer, size); break;
  case JOB_TEXT:
  case JOB_LIST: break;
  }
}

static tri_status value_of(const job_key *key, tri_job *job, job_value *value)
{
  void *place = tri_job_key_place(key, job);
  if (key->storage == JOB_TEXT) return tri_job_value_set(value, *(char *const *)place);
  if (key->storage == JOB_LIST) {
    char *const *texts = *(char **const *)place;
    const unsigned n = *(const unsigned *)((const char *)job + key->n_offset);
    for (unsigned i = 0; i < n; i++)
      TRI_CALL(tri_job_value_add(value, texts[i]));
    return TRI_OK;
  }
  char text[64];
  format_value(key, place, text, sizeof text);
  return tri_job_value_set(value, text);
}

tri_status tri_job_to_yaml(const tri_job *job, char **yaml)
{
  job_document document = {.name = job->name};
  tri_status status = TRI_OK;
  tri_job borrowed = *job; // values are only read; a place in it is not const
  for (int k = 0; k < JOB_N_KEYS; k++)
    TRI_CALL_GOTO(done, value_of(&tri_job_table[k], &borrowed, &document.values[k]));
  TRI_CALL_GOTO(done, tri_job_document_write(&document, yaml));

done:
  tri_job_document_clear(&document);
  return status;
}
