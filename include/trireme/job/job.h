// The job file: everything that defines a run, as one structure. docs/job-file.md documents every
// key; a test compares it with the schema. Local.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "trireme/base/status.h"
#include "trireme/optim/schedule.h"
#include "trireme/parallel/pipeline_schedule.h"
#include "trireme/tensor/dtype.h"

typedef enum tri_job_kind { TRI_JOB_TRAIN } tri_job_kind;
typedef enum tri_job_device { TRI_JOB_DEVICE_CPU, TRI_JOB_DEVICE_CUDA } tri_job_device;
typedef enum tri_job_reduce { TRI_JOB_REDUCE_EXACT, TRI_JOB_REDUCE_FAST } tri_job_reduce;

typedef struct tri_job_cpu {
  char *isa;     // cpu.isa: auto | avx512_bf16 | avx512 | avx2 | baseline
  char *kernels; // cpu.kernels: tuned | onednn | reference
  int threads;   // cpu.threads: 0 = those the rank is bound to
} tri_job_cpu;

typedef struct tri_job_cuda {
  bool share; // cuda.share: ranks of a host may take the same device
  bool graph; // cuda.graph: micro-batches are recorded once and launched from then on
} tri_job_cuda;

typedef struct tri_job_model {
  char *name; // model.name: gpt, or a published size (gpt2-124M, …) that fills the keys below
  int layers, heads, width, context;
  int vocab_size;     // 0: the corpus's
  int vocab_multiple; // rows of the embedding padded to a multiple
  float dropout;
} tri_job_model;

typedef struct tri_job_data {
  char *corpus; // data.corpus: HDF5 file of tokens; made from `text` when missing
  char **text;  // data.text: files to tokenize when the corpus is missing
  unsigned text_count;
  char *
      *text_command; // data.text_command: program and arguments whose output is the text (no shell)
  unsigned text_command_count;
  char *tokenizer;   // data.tokenizer: bytes, or a file
  double validation; // data.validation: fraction of the text held out
} tri_job_data;

typedef struct tri_job_train {
  int64_t steps;
  int global_batch; // samples a step
  int microbatch;   // samples at once on one rank
  int sum_group;    // micro-batches summed in order before the tree
  int context;      // tokens a sample; 0: model.context
  tri_dtype precision;
  tri_schedule_kind schedule;
  float lr, min_lr;
  int64_t warmup_steps;
  float beta1, beta2, eps, weight_decay, clip;
  int64_t validate_every; // steps; 0: only at the end
  int validate_samples;   // 0: the whole split
} tri_job_train;

typedef struct tri_job_parallel {
  int data;     // parallel.data: ranks, 0 = what the other axes leave
  int tensor;   // parallel.tensor: shares of each block
  int pipeline; // parallel.pipeline: stages
  tri_pipeline_kind schedule;
  int virtual_stages;
  int zero;        // parallel.zero: what data ranks share out
  char *transport; // parallel.transport: auto | host | nccl | staged
  tri_job_reduce reduce;
  bool overlap;
  double bucket_mib;
  int in_flight;
  double limit_seconds; // parallel.limit_seconds: longest wait for a rank in one operation
} tri_job_parallel;

typedef struct tri_job_checkpoint {
  char *dir;     // empty: RUN/checkpoints
  int64_t every; // steps; 0: none but at the end
  int keep;      // newest ones kept; 0: all
  char *resume;  // auto | never | a checkpoint folder
} tri_job_checkpoint;

typedef struct tri_job {
  tri_job_kind kind;
  char *name;
  tri_job_device device;
  uint64_t seed;
  struct {
    char *dir; // run.dir; empty: runs/<name>
  } run;
  struct {
    int64_t every; // log.every: steps a printed line
    double
        peak_gflops; // log.peak_gflops: peak of one rank for MFU; 0: measured by a matmul at start
  } log;
  tri_job_cpu cpu;
  tri_job_cuda cuda;
  tri_job_model model;
  tri_job_data data;
  tri_job_train train;
  tri_job_parallel parallel;
  tri_job_checkpoint checkpoint;
} tri_job;

// Reads `path`, applies `overrides` ("key.path=value", n of them), fills defaults (run.dir,
// train.context, published model sizes) and checks every value and the rules between values.
// TRI_ERR_CONFIG names file, line and key (or the override), what was wanted, and the nearest known
// key for an unknown one. Local. *out owned: tri_job_free.
TRI_MUST_CHECK tri_status tri_job_load(const char *path, const char *const *overrides,
                                       int n_overrides, tri_job **out);
void tri_job_free(tri_job **job);

// The job with every key and its value, as YAML that tri_job_load reads back to the same job. *yaml
// owned (tri_free).
TRI_MUST_CHECK tri_status tri_job_to_yaml(const tri_job *job, char **yaml);

// The same from text in memory; `name` stands for the file in messages, and its base name for a
// missing `name`.
TRI_MUST_CHECK tri_status tri_job_parse(const char *yaml, size_t size_bytes, const char *name,
                                        const char *const *overrides, int n_overrides,
                                        tri_job **out);

// Largest job file that is read.
enum { TRI_JOB_MAX_BYTES = 1 << 20 };

// One key of the schema, "train.steps" and so on, for `trireme help job` and the reference page.
typedef struct tri_job_key {
  const char *path;
  const char *type; // "integer", "auto | integer", "number", "text", "list of text", "true |
                    // false", or the words that it takes, "a | b | c"
  const char *default_value; // "" when required; words when it comes from other keys
  const char *range;         // as an interval, "[1, 65536]" or "(0, inf)"; "" for other types
  const char *meaning;
} tri_job_key;

// Key number `index` in the order of the reference page; false past the last one.
bool tri_job_get_key(int index, tri_job_key *out);
