#include "job/document.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "trireme/base/memory.h"

// One YAML text being read: the file, or the value of one override.
typedef struct job_reader {
  yaml_parser_t parser;
  job_document *document;
  const char *override; // NULL: the file
  const char *text;
  size_t size_bytes;
} job_reader;

const char *tri_job_place(const job_document *document, int key, char buffer[JOB_PLACE_BYTES])
{
  const job_value *value = &document->values[key];
  if (value->given && value->override != NULL) {
    snprintf(buffer, JOB_PLACE_BYTES, "override %.200s", value->override);
  } else if (value->given) {
    snprintf(buffer, JOB_PLACE_BYTES, "%s:%d", document->name, value->line);
  } else {
    snprintf(buffer, JOB_PLACE_BYTES, "%s", document->name);
  }
  return buffer;
}

static tri_status fail(const job_reader *reader, size_t line, const char *format, ...)
    TRI_PRINTF(3, 4);

static tri_status fail(const job_reader *reader, size_t line, const char *format, ...)
{
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (reader->override != NULL)
    return TRI_ERROR(TRI_ERR_CONFIG, "override %.200s: %s", reader->override, text);
  return TRI_ERROR(TRI_ERR_CONFIG, "%s:%zu: %s", reader->document->name, line, text);
}

static size_t line_of(const yaml_event_t *event)
{
  return event->start_mark.line + 1;
}

static tri_status yaml_failed(const job_reader *reader)
{
  const yaml_parser_t *parser = &reader->parser;
  const char *problem = parser->problem == NULL ? "unknown problem" : parser->problem;
  TRI_CHECK(parser->error != YAML_MEMORY_ERROR, TRI_ERR_MEMORY, "%s: no memory to read it",
            reader->document->name);
  if (parser->error == YAML_READER_ERROR) {
    // No mark: the text is not UTF-8 at this byte.
    size_t line = 1;
    for (size_t i = 0; i < parser->problem_offset && i < reader->size_bytes; i++)
      line += reader->text[i] == '\n';
    return fail(reader, line, "not valid YAML: %s (byte %zu)", problem, parser->problem_offset);
  }
  const size_t line = parser->problem_mark.line + 1;
  if (parser->context == NULL) return fail(reader, line, "not valid YAML: %s", problem);
  return fail(reader, line, "not valid YAML: %s, %s that began on line %zu", problem,
              parser->context, parser->context_mark.line + 1);
}

// The next event; what job files do not use is refused here. On success the caller deletes it.
static tri_status next_event(job_reader *reader, yaml_event_t *event)
{
  if (yaml_parser_parse(&reader->parser, event) == 0) return yaml_failed(reader);
  const yaml_char_t *anchor = NULL, *tag = NULL;
  switch (event->type) {
  case YAML_ALIAS_EVENT: anchor = event->data.alias.anchor; break;
  case YAML_SCALAR_EVENT:
    anchor = event->data.scalar.anchor;
    tag = event->data.scalar.tag;
    break;
  case YAML_SEQUENCE_START_EVENT:
    anchor = event->data.sequence_start.anchor;
    tag = event->data.sequence_start.tag;
    break;
  case YAML_MAPPING_START_EVENT:
    anchor = event->data.mapping_start.anchor;
    tag = event->data.mapping_start.tag;
    break;
  default: break;
  }
  tri_status status = TRI_OK;
  if (anchor != NULL)
    status = fail(reader, line_of(event),
                  "anchors and aliases (&%s, *%s) are not used in job files: write the value out",
                  (const char *)anchor, (const char *)anchor);
  else if (tag != NULL)
    status = fail(reader, line_of(event), "the tag %s is not used in job files: leave it out",
                  (const char *)tag);
  else if (event->type == YAML_SCALAR_EVENT &&
           strlen((const char *)event->data.scalar.value) != event->data.scalar.length)
    status = fail(reader, line_of(event), "a zero byte inside a value");
  if (status != TRI_OK) yaml_event_delete(event);
  return status;
}

static void clear_texts(job_value *value)
{
  for (int i = 0; i < value->n_texts; i++)
    tri_free(value->texts[i]);
  TRI_FREE(&value->texts);
  value->n_texts = 0;
}

tri_status tri_job_value_add(job_value *value, const char *text)
{
  // Room doubles at 0, 1, 2, 4, …
  if ((value->n_texts & (value->n_texts - 1)) == 0) {
    char **grown = NULL;
    TRI_CALL(TRI_NEW(TRI_MODULE_JOB, value->n_texts == 0 ? 1 : 2 * value->n_texts, &grown));
    if (value->n_texts > 0) memcpy(grown, value->texts, (size_t)value->n_texts * sizeof *grown);
    tri_free(value->texts);
    value->texts = grown;
  }
  char *copy = tri_strdup(TRI_MODULE_JOB, text);
  if (copy == NULL) return TRI_ERR_MEMORY;
  value->texts[value->n_texts++] = copy;
  return TRI_OK;
}

tri_status tri_job_value_set(job_value *value, const char *text)
{
  clear_texts(value);
  return tri_job_value_add(value, text);
}

void tri_job_document_clear(job_document *document)
{
  for (int k = 0; k < JOB_N_KEYS; k++)
    clear_texts(&document->values[k]);
}

static tri_status read_list(job_reader *reader, const job_key *key, job_value *value)
{
  for (;;) {
    yaml_event_t event;
    TRI_CALL(next_event(reader, &event));
    tri_status status = TRI_OK;
    const bool end = event.type == YAML_SEQUENCE_END_EVENT;
    if (!end && event.type != YAML_SCALAR_EVENT)
      status = fail(reader, line_of(&event), "%s wants a list of text, found a list in a list",
                    key->facts.path);
    else if (!end && value->n_texts == JOB_MAX_LIST)
      status = fail(reader, line_of(&event), "%s has more than %d entries", key->facts.path,
                    JOB_MAX_LIST);
    else if (!end)
      status = tri_job_value_add(value, (const char *)event.data.scalar.value);
    yaml_event_delete(&event);
    if (end || status != TRI_OK) return status;
  }
}

static bool is_empty(const yaml_event_t *event)
{
  return event->data.scalar.length == 0 && event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

// The value of one key, which begins with `event`.
static tri_status read_value(job_reader *reader, int index, const yaml_event_t *event)
{
  const job_key *key = &tri_job_table[index];
  job_value *value = &reader->document->values[index];
  clear_texts(value);
  value->given = true;
  value->line = (int)line_of(event);
  value->override = reader->override;
  value->is_list = event->type == YAML_SEQUENCE_START_EVENT;
  char buffer[JOB_WANTED_BYTES];
  const char *wanted = tri_job_key_wanted(key, buffer);
  if (event->type == YAML_MAPPING_START_EVENT)
    return fail(reader, line_of(event), "%s wants %s, found a section", key->facts.path, wanted);
  if (value->is_list && key->storage != JOB_LIST)
    return fail(reader, line_of(event), "%s wants %s, found a list", key->facts.path, wanted);
  if (!value->is_list && key->storage == JOB_LIST)
    return fail(reader, line_of(event), "%s wants a list of text: write [%s]", key->facts.path,
                (const char *)event->data.scalar.value);
  if (value->is_list) return read_list(reader, key, value);
  if (reader->override == NULL && is_empty(event))
    return fail(reader, line_of(event), "%s has no value: give one or leave the key out",
                key->facts.path);
  return tri_job_value_add(value, (const char *)event->data.scalar.value);
}

static tri_status unknown_key(const job_reader *reader, size_t line, const char *path)
{
  const char *nearest = tri_job_key_nearest(path);
  if (nearest == NULL)
    return fail(reader, line, "unknown key %.200s: `trireme help job` lists all keys", path);
  return fail(reader, line, "unknown key %.200s: did you mean %s?", path, nearest);
}

static tri_status read_section(job_reader *reader, int section);

// One key of a section (-1: of the top), whose name is `name`, and its value.
static tri_status read_member(job_reader *reader, int section, const char *name, size_t line)
{
  job_document *document = reader->document;
  char path[512];
  snprintf(path, sizeof path, "%s%s%.200s", section < 0 ? "" : tri_job_sections[section].name,
           section < 0 ? "" : ".", name);
  const int index = tri_job_key_find(path);
  const int inner = section < 0 ? tri_job_section_find(path) : -1;
  if (index < 0 && inner < 0) return unknown_key(reader, line, path);
  const int first = index >= 0 && document->values[index].given ? document->values[index].line
                    : inner >= 0                                ? document->section_lines[inner]
                                                                : 0;
  if (first > 0) return fail(reader, line, "%s is given twice, first on line %d", path, first);

  yaml_event_t event;
  TRI_CALL(next_event(reader, &event));
  tri_status status = TRI_OK;
  if (index >= 0) {
    status = read_value(reader, index, &event);
  } else {
    document->section_lines[inner] = (int)line;
    if (event.type == YAML_MAPPING_START_EVENT)
      status = read_section(reader, inner);
    else if (event.type != YAML_SCALAR_EVENT || !is_empty(&event))
      status = fail(reader, line_of(&event), "%s is a section: its keys follow, indented", path);
  }
  yaml_event_delete(&event);
  return status;
}

// The members of a section (-1: of the whole file) up to its end.
static tri_status read_section(job_reader *reader, int section)
{
  for (;;) {
    yaml_event_t event;
    TRI_CALL(next_event(reader, &event));
    tri_status status = TRI_OK;
    const bool end = event.type == YAML_MAPPING_END_EVENT;
    if (!end && event.type != YAML_SCALAR_EVENT)
      status = fail(reader, line_of(&event), "a key must be a word");
    else if (!end)
      status = read_member(reader, section, (const char *)event.data.scalar.value, line_of(&event));
    yaml_event_delete(&event);
    if (end || status != TRI_OK) return status;
  }
}

// Passes the event that the grammar of YAML says comes next.
static tri_status skip_event(job_reader *reader, yaml_event_type_t type)
{
  yaml_event_t event;
  TRI_CALL(next_event(reader, &event));
  const bool as_expected = event.type == type;
  const size_t line = line_of(&event);
  yaml_event_delete(&event);
  if (!as_expected && type == YAML_STREAM_END_EVENT)
    return fail(reader, line, "a second document begins here: a job file holds one");
  TRI_CHECK(as_expected, TRI_ERR_INTERNAL, "libyaml gave event %d at line %zu", (int)event.type,
            line);
  return TRI_OK;
}

// Passes stream and document start and gives the event with which the content begins; *empty when
// there is none.
static tri_status begin_content(job_reader *reader, yaml_event_t *event, bool *empty)
{
  *empty = false;
  TRI_CALL(skip_event(reader, YAML_STREAM_START_EVENT));
  TRI_CALL(next_event(reader, event));
  *empty = event->type == YAML_STREAM_END_EVENT;
  if (*empty) return TRI_OK;
  yaml_event_delete(event);
  TRI_CALL(next_event(reader, event));
  return TRI_OK;
}

static tri_status end_content(job_reader *reader)
{
  TRI_CALL(skip_event(reader, YAML_DOCUMENT_END_EVENT));
  TRI_CALL(skip_event(reader, YAML_STREAM_END_EVENT));
  return TRI_OK;
}

static tri_status open_reader(job_reader *reader)
{
  TRI_CHECK(yaml_parser_initialize(&reader->parser) != 0, TRI_ERR_MEMORY,
            "%s: no memory to read it", reader->document->name);
  yaml_parser_set_encoding(&reader->parser, YAML_UTF8_ENCODING);
  yaml_parser_set_input_string(&reader->parser, (const unsigned char *)reader->text,
                               reader->size_bytes);
  return TRI_OK;
}

static tri_status read_file(job_reader *reader)
{
  yaml_event_t event;
  bool empty = false;
  TRI_CALL(begin_content(reader, &event, &empty));
  tri_status status = TRI_OK;
  if (empty || (event.type == YAML_SCALAR_EVENT && is_empty(&event)))
    status = TRI_ERROR(TRI_ERR_CONFIG,
                       "%s: the job file is empty: `trireme help job` lists the "
                       "keys",
                       reader->document->name);
  else if (event.type != YAML_MAPPING_START_EVENT)
    status = fail(reader, line_of(&event), "a job file holds keys and values, as in `kind: train`");
  else
    status = read_section(reader, -1);
  yaml_event_delete(&event);
  TRI_CALL(status);
  return end_content(reader);
}

tri_status tri_job_document_read(job_document *document, const char *yaml, size_t size_bytes)
{
  job_reader reader = {.document = document, .text = yaml, .size_bytes = size_bytes};
  TRI_CALL(open_reader(&reader));
  const tri_status status = read_file(&reader);
  yaml_parser_delete(&reader.parser);
  TRI_CALL(status);
  return TRI_OK;
}

static tri_status read_override(job_reader *reader, int index)
{
  yaml_event_t event;
  bool empty = false;
  TRI_CALL(begin_content(reader, &event, &empty));
  if (empty) {
    yaml_event_delete(&event);
    return fail(reader, 1, "the value is a comment: quote it");
  }
  const tri_status status = read_value(reader, index, &event);
  yaml_event_delete(&event);
  TRI_CALL(status);
  return end_content(reader);
}

tri_status tri_job_document_override(job_document *document, const char *override)
{
  const char *equals = strchr(override, '=');
  TRI_CHECK(equals != NULL, TRI_ERR_CONFIG,
            "override %.200s has no '=': write key.path=value, as in train.steps=100", override);
  job_reader reader = {
      .document = document, .override = override, .text = equals[1] == '\0' ? "''" : equals + 1};
  reader.size_bytes = strlen(reader.text);
  char path[512];
  snprintf(path, sizeof path, "%.*s", (int)(equals - override < 500 ? equals - override : 500),
           override);
  const int index = tri_job_key_find(path);
  if (index < 0 && tri_job_section_find(path) >= 0)
    return fail(&reader, 1, "%s is a section: name one of its keys, as in train.steps=100", path);
  if (index < 0) return unknown_key(&reader, 1, path);
  TRI_CALL(open_reader(&reader));
  const tri_status status = read_override(&reader, index);
  yaml_parser_delete(&reader.parser);
  TRI_CALL(status);
  return TRI_OK;
}
