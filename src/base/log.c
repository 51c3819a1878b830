#include "trireme/base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 4096 };

static _Atomic int max_level = TRI_LOG_INFO;
static _Atomic int own_rank = -1;
static _Atomic int tee_fd = -1;
static _Atomic int info_fd = STDERR_FILENO;

void tri_log_configure(tri_log_level level, int rank)
{
  max_level = (int)level;
  own_rank = rank;
}

void tri_log_info_to(int fd)
{
  info_fd = fd;
}

void tri_log_tee(int fd)
{
  tee_fd = fd;
}

// One write a line, so that lines of several ranks and threads do not mix.
static void write_line(int fd, const char *line, size_t size)
{
  while (size > 0) {
    const ssize_t written = write(fd, line, size);
    if (written <= 0) return; // a log line is never worth an error
    line += written;
    size -= (size_t)written;
  }
}

static void print_line(tri_log_level level, const char *prefix, const char *format,
                       va_list arguments)
{
  static const char *const marks[] = {"error: ", "warning: ", "", "debug: ", "trace: "};
  char line[LINE_BYTES];
  int used = snprintf(line, sizeof line, "%s%s", prefix, marks[level]);
  used += vsnprintf(line + used, sizeof line - (size_t)used, format, arguments);
  if (used > LINE_BYTES - 2) used = LINE_BYTES - 2;
  line[used++] = '\n';
  write_line(level >= TRI_LOG_INFO ? info_fd : STDERR_FILENO, line, (size_t)used);
  const int tee = tee_fd;
  if (tee >= 0) write_line(tee, line, (size_t)used);
}

void tri_log(tri_log_level level, const char *format, ...)
{
  if ((int)level > max_level || own_rank > 0) return;
  va_list arguments;
  va_start(arguments, format);
  print_line(level, "", format, arguments);
  va_end(arguments);
}

void tri_log_rank(tri_log_level level, const char *format, ...)
{
  if ((int)level > max_level) return;
  char prefix[32] = "";
  if (own_rank >= 0) snprintf(prefix, sizeof prefix, "rank %d: ", own_rank);
  va_list arguments;
  va_start(arguments, format);
  print_line(level, prefix, format, arguments);
  va_end(arguments);
}
