// The keys of a job file: one table, from which the schema, the defaults, the checks, the written
// job, `trireme help job` and the reference page are made. Private to job.
#pragma once

#include <stddef.h>

#include "trireme/job/job.h"

typedef enum job_storage {
  JOB_INTEGER,         // int, int64_t or uint64_t, by size
  JOB_AUTO_OR_INTEGER, // the same; `auto` is 0
  JOB_NUMBER,          // float or double, by size
  JOB_BOOL,
  JOB_CHOICE, // an enum; its values are the places of the words in `type`
  JOB_TEXT,   // char *; one of the words in `type` unless that is "text"
  JOB_LIST    // char **, and its count
} job_storage;

typedef struct job_key {
  tri_job_key facts;
  job_storage storage;
  bool derived;    // default_value is words: defaults.c finds the value from other keys
  size_t offset;   // in tri_job
  size_t size;     // of the value there
  size_t n_offset; // JOB_LIST: of the count, an unsigned
} job_key;

enum { JOB_N_KEYS = 58 };
extern const job_key tri_job_table[JOB_N_KEYS];

// A part of the file, "train"; in tri_job a structure of the same name.
typedef struct job_section {
  const char *name;
  size_t offset;
  size_t size;
} job_section;

enum { JOB_N_SECTIONS = 9 };
extern const job_section tri_job_sections[JOB_N_SECTIONS];

int tri_job_key_find(const char *path);     // -1: no such key
int tri_job_section_find(const char *name); // -1: no such section

// The section of a key, -1 for those at the top.
int tri_job_key_section(const job_key *key);

// Where the key's value lies in a job.
void *tri_job_key_place(const job_key *key, tri_job *job);

// What the key takes, for messages: "an integer in [1, 4096]". Returns buffer.
enum { JOB_WANTED_BYTES = 128 };
const char *tri_job_key_wanted(const job_key *key, char buffer[JOB_WANTED_BYTES]);

// The known key or section nearest to `path` by edit distance, NULL when none is near.
const char *tri_job_key_nearest(const char *path);

// The place of `word` among the words of a type such as "a | b | c", -1 when it is not there.
int tri_job_choice_find(const char *type, const char *word);

// The word at `place`, into buffer.
void tri_job_choice_word(const char *type, int place, char *buffer, size_t size);
