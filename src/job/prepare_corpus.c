#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "job/train_run.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/base/memory.h"

extern char **environ;

// argv is the job file's list plus a NULL; no shell sees it.
static tri_status spawn_into(char *const *argv, const char *path, int *wait_status)
{
  posix_spawn_file_actions_t actions;
  pid_t child;
  TRI_CHECK(posix_spawn_file_actions_init(&actions) == 0, TRI_ERR_MEMORY, "no memory to start %s",
            argv[0]);
  int failed = posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, path,
                                                O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (failed == 0) {
    failed = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  }
  if (failed == 0) failed = posix_spawnp(&child, argv[0], &actions, NULL, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  TRI_CHECK(failed == 0, TRI_ERR_IO,
            "data.text_command: %s cannot be started: %s; install it, or give data.text files",
            argv[0], strerror(failed));
  while (waitpid(child, wait_status, 0) < 0) {
    TRI_CHECK(errno == EINTR, TRI_ERR_IO, "data.text_command: waiting for %s: %s", argv[0],
              strerror(errno));
  }
  return TRI_OK;
}

static tri_status run_text_command(const tri_job_data *data, const char *path)
{
  char **argv = NULL;
  int wait_status = 0;
  TRI_CALL(TRI_NEW(TRI_MODULE_JOB, data->text_command_count + 1, &argv));
  for (unsigned i = 0; i < data->text_command_count; i++)
    argv[i] = data->text_command[i];
  const tri_status status = spawn_into(argv, path, &wait_status);
  TRI_FREE(&argv);
  TRI_CALL(status);
  TRI_CHECK(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0, TRI_ERR_IO,
            "data.text_command: %s failed with status %d", data->text_command[0], wait_status);
  return TRI_OK;
}

static tri_status build_from(const tri_job_data *data, const char *const *paths, int n_paths)
{
  tri_tokenizer *tokenizer = NULL;
  TRI_CALL(tri_tokenizer_open(data->tokenizer, &tokenizer));
  const tri_status status =
      tri_corpus_build(paths, n_paths, tokenizer, data->validation, data->corpus);
  tri_tokenizer_close(&tokenizer);
  return status;
}

static tri_status build_from_command(const tri_job_data *data)
{
  char path[PATH_MAX];
  const int n = snprintf(path, sizeof path, "%s.text-%ld", data->corpus, (long)getpid());
  TRI_CHECK(n > 0 && n < (int)sizeof path, TRI_ERR_CONFIG, "data.corpus: the path is too long");
  tri_status status = run_text_command(data, path);
  if (status == TRI_OK) {
    const char *const paths[] = {path};
    status = build_from(data, paths, 1);
  }
  unlink(path);
  return status;
}

tri_status tri_prepare_corpus(const tri_job_data *data)
{
  char folder[PATH_MAX];
  if (tri_file_exists(data->corpus)) return TRI_OK;
  TRI_CHECK(
      data->text_count > 0 || data->text_command_count > 0, TRI_ERR_IO,
      "data.corpus: %s is not there: make it with 'trireme data tokenize', or name its text in "
      "data.text",
      data->corpus);
  tri_log(TRI_LOG_INFO, "preparing %s", data->corpus);
  TRI_CALL(tri_path_folder(folder, sizeof folder, data->corpus));
  TRI_CALL(tri_file_make_folder(folder));
  if (data->text_count > 0) {
    return build_from(data, (const char *const *)data->text, (int)data->text_count);
  }
  return build_from_command(data);
}
