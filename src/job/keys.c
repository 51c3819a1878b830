#include "job/keys.h"

#include <stdio.h>
#include <string.h>

#include "trireme/base/words.h"
#include "trireme/optim/schedule.h"

// JOB_CHOICE stores the place of a word in the type text, so the texts follow the enums.
_Static_assert(TRI_JOB_TRAIN == 0, "kind");
_Static_assert(TRI_JOB_DEVICE_CPU == 0 && TRI_JOB_DEVICE_CUDA == 1, "device");
_Static_assert(TRI_JOB_REDUCE_EXACT == 0 && TRI_JOB_REDUCE_FAST == 1, "reduce");
_Static_assert(TRI_DTYPE_F32 == 0 && TRI_DTYPE_BF16 == 1, "precision");
_Static_assert(TRI_SCHEDULE_CONSTANT == 0 && TRI_SCHEDULE_LINEAR == 1 && TRI_SCHEDULE_COSINE == 2,
               "schedule");
_Static_assert(sizeof(tri_job_kind) == sizeof(int) && sizeof(tri_dtype) == sizeof(int), "enums");

#define PLACE(member) .offset = offsetof(tri_job, member), .size = sizeof(((tri_job *)NULL)->member)
#define KEY(path, storage_, type, default_, range, member, meaning) \
  { \
    .facts = {path, type, default_, range, meaning}, .storage = (storage_), PLACE(member) \
  }
// The default is said in words, and found by defaults.c.
#define KEY_DERIVED(path, storage_, type, default_, range, member, meaning) \
  { \
    .facts = {path, type, default_, range, meaning}, .storage = (storage_), .derived = true, \
    PLACE(member) \
  }
#define KEY_LIST(path, member, meaning) \
  { \
    .facts = {path, "list of text", "[]", "", meaning}, .storage = JOB_LIST, PLACE(member), \
    .n_offset = offsetof(tri_job, member##_count) \
  }

#define SIZES "gpt | gpt2-124M | gpt2-355M | gpt2-774M | gpt2-1558M"
#define OF_MODEL "that of a published model.name; required for gpt"

const job_key tri_job_table[JOB_N_KEYS] = {
    KEY("kind", JOB_CHOICE, "train", "", "", kind, "what the job does"),
    KEY_DERIVED("name", JOB_TEXT, "text", "the job file's base name", "", name,
                "name of the run; names its folder"),
    KEY("device", JOB_CHOICE, "cpu | cuda", "cpu", "", device, "what computes"),
    KEY("seed", JOB_INTEGER, "integer", "1337", "[0, 9223372036854775807]", seed,
        "seed of the initial weights, the order of the samples and dropout"),

    KEY_DERIVED("run.dir", JOB_TEXT, "text", "runs/NAME", "", run.dir,
                "folder of the run: resolved job, metrics, log, pictures"),

    KEY("log.every", JOB_INTEGER, "integer", "10", "[1, 1000000000]", log.every,
        "steps from one printed line to the next; metrics.jsonl has every step"),
    KEY("log.peak_gflops", JOB_NUMBER, "number", "0", "[0, inf)", log.peak_gflops,
        "peak of one rank in GFLOP/s, against which MFU is stated; 0: measured by a matrix product "
        "at start"),

    KEY("cpu.isa", JOB_TEXT, "auto | avx512_bf16 | avx512 | avx2 | baseline", "auto", "", cpu.isa,
        "widest instruction set that kernels use; auto: the machine's widest"),
    KEY("cpu.kernels", JOB_TEXT, "tuned | onednn | reference", "tuned", "", cpu.kernels,
        "onednn: oneDNN's matrix products, whose bits may depend on cpu.threads; reference: the "
        "plain kernels that accumulate in double, slow, for checks"),
    KEY("cpu.threads", JOB_INTEGER, "integer", "0", "[0, 4096]", cpu.threads,
        "kernel threads of a rank; 0: one for each processing unit that the rank may use"),

    KEY("cuda.share", JOB_BOOL, "true | false", "false", "", cuda.share,
        "ranks of a host may take the same GPU when it has fewer than ranks; false: each has its "
        "own, or the run ends with an error"),
    KEY("cuda.graph", JOB_BOOL, "true | false", "false", "", cuda.graph,
        "the work of a micro-batch is recorded once as a CUDA graph and launched from then on, "
        "which "
        "helps small models; needs model.dropout 0; never changes a bit"),

    KEY("model.name", JOB_TEXT, SIZES, "gpt", "", model.name,
        "gpt: a GPT of the shape below; a published size fills the shape itself"),
    KEY_DERIVED("model.layers", JOB_INTEGER, "integer", OF_MODEL, "[1, 4096]", model.layers,
                "transformer blocks"),
    KEY_DERIVED("model.heads", JOB_INTEGER, "integer", OF_MODEL, "[1, 4096]", model.heads,
                "attention heads; divides model.width"),
    KEY_DERIVED("model.width", JOB_INTEGER, "integer", OF_MODEL, "[1, 1048576]", model.width,
                "channels of the hidden state"),
    KEY_DERIVED("model.context", JOB_INTEGER, "integer", OF_MODEL, "[1, 1048576]", model.context,
                "positions that the model knows"),
    KEY_DERIVED("model.vocab_size", JOB_INTEGER, "integer",
                "that of a published model.name; 0 for gpt", "[0, 16777216]", model.vocab_size,
                "tokens in the vocabulary; 0: the corpus's"),
    KEY("model.vocab_multiple", JOB_INTEGER, "integer", "64", "[1, 65536]", model.vocab_multiple,
        "the embedding's rows are padded to a multiple of this; padding never gets probability"),
    KEY("model.dropout", JOB_NUMBER, "number", "0", "[0, 1)", model.dropout,
        "dropout after the embedding, in attention and on residuals"),

    KEY("data.corpus", JOB_TEXT, "text", "", "", data.corpus,
        "corpus file (HDF5) of tokens; made from data.text or data.text_command when missing"),
    KEY_LIST("data.text", data.text, "text files that the corpus is made from, in this order"),
    KEY_LIST("data.text_command", data.text_command,
             "program and arguments whose output is the text, run without a shell"),
    KEY("data.tokenizer", JOB_TEXT, "text", "bytes", "", data.tokenizer,
        "bytes, or a tokenizer.json or vocab.json file, for a corpus that is made"),
    KEY("data.validation", JOB_NUMBER, "number", "0.05", "[0, 1)", data.validation,
        "fraction of the text held out for validation in a corpus that is made"),

    KEY("train.steps", JOB_INTEGER, "integer", "", "[1, 1000000000000]", train.steps,
        "optimizer steps of the whole run"),
    KEY("train.global_batch", JOB_INTEGER, "integer", "", "[1, 1073741824]", train.global_batch,
        "samples of a step, over all ranks"),
    KEY("train.microbatch", JOB_INTEGER, "integer", "", "[1, 1048576]", train.microbatch,
        "samples that go through the model at once; divides train.global_batch; part of the "
        "definition of the gradient, so it changes bits where the number of ranks does not"),
    KEY("train.sum_group", JOB_INTEGER, "integer", "1", "[1, 1048576]", train.sum_group,
        "micro-batches whose gradients are added in order before the tree of sums; also part of "
        "the definition"),
    KEY_DERIVED("train.context", JOB_INTEGER, "integer", "model.context", "[0, 1048576]",
                train.context, "tokens of a sample, at most model.context; 0: model.context"),
    KEY("train.precision", JOB_CHOICE, "f32 | bf16", "f32", "", train.precision,
        "type of weights and hidden states in the model; bf16 keeps f32 master weights"),
    KEY("train.schedule", JOB_CHOICE, "constant | linear | cosine", "cosine", "", train.schedule,
        "how the learning rate falls from train.lr to train.min_lr after warm-up"),
    KEY("train.lr", JOB_NUMBER, "number", "6e-4", "(0, 1000]", train.lr, "peak learning rate"),
    KEY_DERIVED("train.min_lr", JOB_NUMBER, "number", "train.lr / 10", "[0, 1000]", train.min_lr,
                "learning rate of the last step, at most train.lr; not used by constant"),
    KEY("train.warmup_steps", JOB_INTEGER, "integer", "0", "[0, 1000000000000]", train.warmup_steps,
        "steps in which the rate rises to train.lr; at most train.steps"),
    KEY("train.beta1", JOB_NUMBER, "number", "0.9", "[0, 1)", train.beta1,
        "AdamW: decay of the mean of gradients"),
    KEY("train.beta2", JOB_NUMBER, "number", "0.95", "[0, 1)", train.beta2,
        "AdamW: decay of the mean of squared gradients"),
    KEY("train.eps", JOB_NUMBER, "number", "1e-8", "(0, 1]", train.eps,
        "AdamW: added to the root of the mean of squares"),
    KEY("train.weight_decay", JOB_NUMBER, "number", "0.1", "[0, 1000]", train.weight_decay,
        "AdamW: decoupled weight decay; none on norms and biases"),
    KEY("train.clip", JOB_NUMBER, "number", "1", "[0, 1e30]", train.clip,
        "largest norm of the global gradient; 0: no clipping"),
    KEY("train.validate_every", JOB_INTEGER, "integer", "0", "[0, 1000000000000]",
        train.validate_every, "steps from one validation to the next; 0: only after the last step"),
    KEY("train.validate_samples", JOB_INTEGER, "integer", "0", "[0, 2147483647]",
        train.validate_samples, "samples of a validation; 0: the whole split"),

    KEY("parallel.data", JOB_AUTO_OR_INTEGER, "auto | integer", "auto", "[0, 1048576]",
        parallel.data,
        "data-parallel ranks, which share the micro-batches of a step; those beyond their number "
        "have none; auto: the ranks started / (tensor x pipeline); never changes a bit"),
    KEY("parallel.tensor", JOB_INTEGER, "integer", "1", "[1, 4096]", parallel.tensor,
        "ranks that share each block of the model, heads and columns and vocabulary, with the "
        "tokens split in between; neighbours, best inside a node; sums of another order than with "
        "1 (docs/reproducibility.md)"),
    KEY("parallel.pipeline", JOB_INTEGER, "integer", "1", "[1, 1048576]", parallel.pipeline,
        "stages into which the blocks of the model are cut, each on ranks of its own; the ranks "
        "started are tensor x data x pipeline; never changes a bit"),
    KEY("parallel.schedule", JOB_CHOICE, "gpipe | 1f1b | interleaved | zb-h1", "1f1b", "",
        parallel.schedule,
        "order of the forward and backward passes of a pipeline (docs/pipeline.md); never changes "
        "a bit"),
    KEY("parallel.virtual_stages", JOB_INTEGER, "integer", "1", "[1, 1024]",
        parallel.virtual_stages,
        "pieces of the model that each stage holds: 2 or more for interleaved, 1 for 1f1b and "
        "zb-h1; never "
        "changes a bit"),
    KEY("parallel.zero", JOB_INTEGER, "integer", "0", "[0, 3]", parallel.zero,
        "what is shared out to the data ranks, each of which updates its part (ZeRO): 1: the "
        "optimizer's state, and f32 parameters of a bf16 model; 2: and gradients; 3: and weights, "
        "which are gathered block by block; never changes a bit"),
    KEY("parallel.transport", JOB_TEXT, "auto | host | nccl | staged", "auto", "",
        parallel.transport,
        "how gradients travel between ranks; host: MPI takes device memory, which is host memory "
        "on a CPU; nccl: NVIDIA's library, each rank on a GPU of its own; staged: pinned host "
        "memory and MPI, on any device; never changes a bit"),
    KEY("parallel.reduce", JOB_CHOICE, "exact | fast", "exact", "", parallel.reduce,
        "exact: gradients are added in the fixed order of the tree; fast: by NCCL's all-reduce, "
        "less traffic, but other bits on another number of ranks"),
    KEY("parallel.overlap", JOB_BOOL, "true | false", "true", "", parallel.overlap,
        "exchange gradients during the backward pass; never changes a bit"),
    KEY("parallel.bucket_mib", JOB_NUMBER, "number", "8", "(0, 1048576]", parallel.bucket_mib,
        "MiB of gradients in one exchange; never changes a bit"),
    KEY("parallel.in_flight", JOB_INTEGER, "integer", "4", "[1, 1024]", parallel.in_flight,
        "exchanges that may be under way at once"),
    KEY("parallel.limit_seconds", JOB_NUMBER, "number", "60", "(0, 1e9]", parallel.limit_seconds,
        "seconds that ranks wait for one that does not arrive before the run ends"),

    KEY_DERIVED("checkpoint.dir", JOB_TEXT, "text", "checkpoints in run.dir", "", checkpoint.dir,
                "folder of the checkpoints"),
    KEY("checkpoint.every", JOB_INTEGER, "integer", "0", "[0, 1000000000000]", checkpoint.every,
        "steps from one checkpoint to the next; 0: only after the last step or a signal"),
    KEY("checkpoint.keep", JOB_INTEGER, "integer", "2", "[0, 1000000000]", checkpoint.keep,
        "newest checkpoints that are kept; 0: all"),
    KEY("checkpoint.resume", JOB_TEXT, "text", "auto", "", checkpoint.resume,
        "auto: go on from the newest checkpoint when there is one; never; or a checkpoint folder"),
};

#define SECTION(member) \
  { \
#member, offsetof(tri_job, member), sizeof(((tri_job *)NULL)->member) \
  }

const job_section tri_job_sections[JOB_N_SECTIONS] = {
    SECTION(run),  SECTION(log),   SECTION(cpu),      SECTION(cuda),       SECTION(model),
    SECTION(data), SECTION(train), SECTION(parallel), SECTION(checkpoint),
};

bool tri_job_get_key(int index, tri_job_key *out)
{
  if (index < 0 || index >= JOB_N_KEYS) return false;
  *out = tri_job_table[index].facts;
  return true;
}

int tri_job_key_find(const char *path)
{
  for (int k = 0; k < JOB_N_KEYS; k++) {
    if (strcmp(tri_job_table[k].facts.path, path) == 0) return k;
  }
  return -1;
}

int tri_job_section_find(const char *name)
{
  for (int s = 0; s < JOB_N_SECTIONS; s++) {
    if (strcmp(tri_job_sections[s].name, name) == 0) return s;
  }
  return -1;
}

int tri_job_key_section(const job_key *key)
{
  const char *dot = strchr(key->facts.path, '.');
  if (dot == NULL) return -1;
  for (int s = 0; s < JOB_N_SECTIONS; s++) {
    const size_t n = strlen(tri_job_sections[s].name);
    if ((size_t)(dot - key->facts.path) == n &&
        strncmp(tri_job_sections[s].name, key->facts.path, n) == 0)
      return s;
  }
  return -1;
}

void *tri_job_key_place(const job_key *key, tri_job *job)
{
  return (char *)job + key->offset;
}

const char *tri_job_key_wanted(const job_key *key, char buffer[JOB_WANTED_BYTES])
{
  const char *article = key->storage == JOB_INTEGER  ? "an "
                        : key->storage == JOB_NUMBER ? "a "
                        : key->storage == JOB_LIST   ? "a "
                                                     : "";
  snprintf(buffer, JOB_WANTED_BYTES, "%s%s%s%s", article, key->facts.type,
           key->facts.range[0] == '\0' ? "" : " in ", key->facts.range);
  return buffer;
}

static const char *last_part(const char *path)
{
  const char *dot = strrchr(path, '.');
  return dot == NULL ? path : dot + 1;
}

// A key in the wrong section counts as two edits, so that "steps" leads to train.steps.
static int key_distance(const char *given, const char *known)
{
  const int whole = tri_word_distance(given, known);
  const int part = 2 + tri_word_distance(last_part(given), last_part(known));
  return whole < part ? whole : part;
}

const char *tri_job_key_nearest(const char *path)
{
  const char *nearest = NULL;
  int best = 3 + (int)strlen(last_part(path)) / 3;
  for (int s = 0; s < JOB_N_SECTIONS; s++) {
    const int distance = tri_word_distance(path, tri_job_sections[s].name);
    if (distance >= best) continue;
    best = distance;
    nearest = tri_job_sections[s].name;
  }
  for (int k = 0; k < JOB_N_KEYS; k++) {
    const int distance = key_distance(path, tri_job_table[k].facts.path);
    if (distance >= best) continue;
    best = distance;
    nearest = tri_job_table[k].facts.path;
  }
  return nearest;
}

// The word of `type` at `place` as a span, NULL past the last one.
static const char *choice_at(const char *type, int place, size_t *size)
{
  const char *word = type;
  for (int i = 0; i < place; i++) {
    word = strstr(word, " | ");
    if (word == NULL) return NULL;
    word += strlen(" | ");
  }
  *size = strcspn(word, " ");
  return word;
}

int tri_job_choice_find(const char *type, const char *word)
{
  size_t size = 0;
  const char *choice = NULL;
  for (int place = 0; (choice = choice_at(type, place, &size)) != NULL; place++) {
    if (strlen(word) == size && strncmp(choice, word, size) == 0) return place;
  }
  return -1;
}

void tri_job_choice_word(const char *type, int place, char *buffer, size_t size)
{
  size_t n = 0;
  const char *word = choice_at(type, place, &n);
  snprintf(buffer, size, "%.*s", (int)n, word == NULL ? "" : word);
}
