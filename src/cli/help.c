// What the program says about itself.
#include <cyaml/cyaml.h>
#include <hdf5.h>
#include <hwloc.h>
#include <jansson.h>
#include <oneapi/dnnl/dnnl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "cli/commands.h"
#include "config.h"
#include "trireme/base/words.h"
#include "trireme/comm/comm.h"
#include "trireme/job/job.h"

enum { MAX_COMMANDS = 32 };

tri_status tri_cli_known(const char *name, const tri_cli_command **out)
{
  const char *names[MAX_COMMANDS] = {"--help", "--version"};
  const bool is_option = name[0] == '-';
  int n = is_option ? 2 : 0;
  for (int i = 0; !is_option && tri_cli_at(i) != NULL && n < MAX_COMMANDS; i++) {
    if (strcmp(tri_cli_at(i)->name, name) == 0) {
      *out = tri_cli_at(i);
      return TRI_OK;
    }
    names[n++] = tri_cli_at(i)->name;
  }
  const int nearest = tri_word_nearest(name, names, n);
  const char *what = is_option ? "option" : "command";
  if (nearest < 0)
    return TRI_ERROR(TRI_ERR_USAGE, "unknown %s %s: `trireme help` lists the commands", what, name);
  return TRI_ERROR(TRI_ERR_USAGE, "unknown %s %s: did you mean %s?", what, name, names[nearest]);
}

void tri_cli_print_overview(void)
{
  printf("Trireme " PACKAGE_VERSION
         ": neural networks trained on many ranks, with the same bits on "
         "any number of them\n\nusage: trireme COMMAND …\n\n");
  for (int i = 0; tri_cli_at(i) != NULL; i++)
    printf("  %-10s %s\n", tri_cli_at(i)->name, tri_cli_at(i)->summary);
  printf(
      "\n`trireme help COMMAND` explains a command, `trireme help job` every key of the job file,\n"
      "`trireme --version` says what was compiled in. On many ranks: mpirun -n N trireme …\n");
}

void tri_cli_print_help(const tri_cli_command *command)
{
  printf("usage: trireme %s%s%s\n\n%s\n", command->name, command->arguments[0] == '\0' ? "" : " ",
         command->arguments, command->details);
}

// `text` in lines of at most 80 columns behind `indent` spaces.
static void print_wrapped(const char *text, int indent)
{
  const int width = 80 - indent;
  while (*text != '\0') {
    int n = (int)strlen(text);
    if (n > width) {
      n = width;
      while (n > 0 && text[n] != ' ')
        n--;
      if (n == 0) n = (int)strcspn(text, " ");
    }
    printf("%*s%.*s\n", indent, "", n, text);
    text += n;
    text += strspn(text, " ");
  }
}

static void print_job_keys(void)
{
  printf("Keys of a job file (YAML). `trireme run JOB.yaml key=value …` replaces values.\n\n");
  tri_job_key key;
  for (int i = 0; tri_job_get_key(i, &key); i++) {
    printf("%s\n", key.path);
    printf("    %s%s%s, %s%s\n", key.type, key.range[0] == '\0' ? "" : " in ", key.range,
           key.default_value[0] == '\0' ? "required" : "default ", key.default_value);
    print_wrapped(key.meaning, 4);
  }
}

tri_status tri_cli_help(int argc, char **argv)
{
  int n_words = 0;
  TRI_CHECK(argc < MAX_COMMANDS, TRI_ERR_USAGE, "help wants one command");
  TRI_CALL(tri_cli_parse(NULL, 0, argc, argv, &n_words));
  TRI_CHECK(n_words <= 1, TRI_ERR_USAGE, "help wants one command, found %d words", n_words);
  if (n_words == 0) {
    tri_cli_print_overview();
  } else if (strcmp(argv[0], "job") == 0) {
    print_job_keys();
  } else {
    const tri_cli_command *command = NULL;
    TRI_CALL(tri_cli_known(argv[0], &command));
    tri_cli_print_help(command);
  }
  return TRI_OK;
}

static void print_library(const char *name, const char *version)
{
  printf("  %-10s %s\n", name, version);
}

void tri_cli_print_version(void)
{
  char text[64];
  printf("trireme " PACKAGE_VERSION "\n");
  print_library("built for", TRI_BUILD_HOST);
  print_library("compiler", __VERSION__);
  print_library("options", TRI_BUILD_OPTIONS);

  print_library("MPI", tri_comm_library());
  unsigned major = 0, minor = 0, release = 0;
  const char *hdf5 = H5get_libversion(&major, &minor, &release) < 0 ? "unknown" : text;
  snprintf(text, sizeof text, "%u.%u.%u", major, minor, release);
  print_library("HDF5", hdf5);
  const dnnl_version_t *onednn = dnnl_version();
  snprintf(text, sizeof text, "%d.%d.%d", onednn->major, onednn->minor, onednn->patch);
  print_library("oneDNN", text);
  print_library("libcyaml", cyaml_version_str);
  print_library("libyaml", yaml_get_version_string());
  print_library("Jansson", jansson_version_str());
  if (pcre2_config(PCRE2_CONFIG_VERSION, NULL) > (int)sizeof text ||
      pcre2_config(PCRE2_CONFIG_VERSION, text) < 0)
    snprintf(text, sizeof text, "unknown");
  print_library("PCRE2", text);
  print_library("libsodium", sodium_version_string());
  const unsigned hwloc = hwloc_get_api_version();
  snprintf(text, sizeof text, "interface %u.%u", hwloc >> 16, hwloc >> 8 & 255);
  print_library("hwloc", text);
#ifdef _OPENMP
  snprintf(text, sizeof text, "%d", _OPENMP);
  print_library("OpenMP", text);
#endif
}
