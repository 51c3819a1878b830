// trireme checkpoint list FOLDER, trireme checkpoint verify PATH: what a folder of checkpoints
// holds, and whether one is what its manifest says.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "trireme/base/file.h"
#include "trireme/base/memory.h"
#include "trireme/ckpt/ckpt.h"

static const double limit_seconds = 60.0;

// --- list

// A run folder stands for the checkpoints in it.
static tri_status checkpoint_folder(const char *path, char *out, size_t size)
{
  TRI_CALL(tri_path_join(out, size, path, "checkpoints"));
  if (tri_file_exists(out)) return TRI_OK;
  TRI_CHECK((size_t)snprintf(out, size, "%s", path) < size, TRI_ERR_USAGE,
            "a path of %zu bytes is too long", strlen(path));
  return TRI_OK;
}

static void print_entry(const tri_ckpt_entry *entry)
{
  if (entry->status != TRI_OK) {
    printf("%12" PRId64 "  %s: %s\n", entry->step, tri_status_name(entry->status), entry->message);
    return;
  }
  printf("%12" PRId64 "  %d file%s, %.1f MiB, %d arrays, %" PRId64 " elements\n", entry->step,
         entry->facts.n_files, entry->facts.n_files == 1 ? "" : "s",
         (double)entry->facts.bytes / 1048576.0, entry->facts.n_arrays, entry->facts.elements);
}

static tri_status list(const char *path)
{
  char folder[4096];
  tri_ckpt_entry *entries = NULL;
  int n_entries = 0;
  TRI_CALL(checkpoint_folder(path, folder, sizeof folder));
  TRI_CALL(tri_ckpt_list(folder, &entries, &n_entries));
  printf("%d checkpoint%s in %s\n", n_entries, n_entries == 1 ? "" : "s", folder);
  for (int i = 0; i < n_entries; i++)
    print_entry(&entries[i]);
  tri_free(entries);
  return TRI_OK;
}

// --- verify

static void print_verified(const char *path, const tri_ckpt *ckpt)
{
  const tri_ckpt_facts facts = tri_ckpt_read_facts(ckpt);
  printf("checkpoint %s, step %" PRId64 "\n", path, tri_ckpt_step(ckpt));
  printf("manifest   its own digest is right; %zu bytes of attributes\n",
         strlen(tri_ckpt_attributes(ckpt)));
  printf("files      %d, %.1f MiB: all sizes and digests are right\n", facts.n_files,
         (double)facts.bytes / 1048576.0);
  printf("arrays     %d of %" PRId64 " elements in %" PRId64
         " pieces: every element is in exactly one\n",
         facts.n_arrays, facts.elements, facts.n_pieces);
}

static tri_status verify(tri_comm *comm, const char *path)
{
  tri_ckpt *ckpt = NULL;
  TRI_CALL(tri_ckpt_open(comm, path, &ckpt));
  if (tri_comm_rank(comm) == 0) print_verified(path, ckpt);
  tri_ckpt_close(&ckpt);
  return TRI_OK;
}

// --- both

static tri_status run_command(tri_comm *comm, const char *command, const char *path)
{
  if (strcmp(command, "verify") == 0) return verify(comm, path);
  return tri_comm_agree(comm, "checkpoint list", tri_comm_rank(comm) == 0 ? list(path) : TRI_OK);
}

tri_status tri_cli_checkpoint(int argc, char **argv)
{
  int n_words = 0;
  tri_runtime *runtime = NULL;
  TRI_CALL(tri_cli_parse(NULL, 0, argc, argv, &n_words));
  TRI_CHECK(n_words == 2 && (strcmp(argv[0], "list") == 0 || strcmp(argv[0], "verify") == 0),
            TRI_ERR_USAGE,
            "checkpoint wants `list FOLDER` or `verify PATH`: `trireme help checkpoint`");
  tri_status status = tri_runtime_start(limit_seconds, &runtime);
  if (status == TRI_OK) status = run_command(tri_runtime_world(runtime), argv[0], argv[1]);
  return tri_cli_finish(&runtime, status);
}
