// What a job file and the overrides say, as text: one value for each key, and where it stands.
// Private to job.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "job/keys.h"

typedef struct job_value {
  bool given; // by the file or an override
  bool is_list;
  char **texts; // owned; one of a scalar
  int n_texts;
  int line;             // in the file, from 1
  const char *override; // "train.steps=5", borrowed; NULL: from the file
} job_value;

typedef struct job_document {
  const char *name; // of the file; borrowed
  job_value values[JOB_N_KEYS];
  int section_lines[JOB_N_SECTIONS]; // 0: not there
} job_document;

enum { JOB_PLACE_BYTES = 256, JOB_MAX_LIST = 4096 };

// Reads the file's text: TRI_ERR_CONFIG for what is not YAML, unknown and doubled keys, and values
// of the wrong shape. `document` begins zeroed and ends with tri_job_document_clear, also after an
// error.
TRI_MUST_CHECK tri_status tri_job_document_read(job_document *document, const char *yaml,
                                                size_t size_bytes);

// Puts "key.path=value" over what is there; the value is YAML.
TRI_MUST_CHECK tri_status tri_job_document_override(job_document *document, const char *override);

// Replaces the texts of one value by a single one.
TRI_MUST_CHECK tri_status tri_job_value_set(job_value *value, const char *text);

// Adds one text to those of a value.
TRI_MUST_CHECK tri_status tri_job_value_add(job_value *value, const char *text);

void tri_job_document_clear(job_document *document);

// "jobs/x.yaml:12", "override train.steps=x", or "jobs/x.yaml" for a value that is not given.
// Returns buffer.
const char *tri_job_place(const job_document *document, int key, char buffer[JOB_PLACE_BYTES]);

// All values, given or not, as YAML text in the order of the table. *yaml owned (tri_free).
TRI_MUST_CHECK tri_status tri_job_document_write(const job_document *document, char **yaml);
