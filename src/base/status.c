#include "trireme/base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_BYTES = 2048, STACK_BYTES = 2048 };

static _Thread_local char message_text[MESSAGE_BYTES];
static _Thread_local char stack_text[STACK_BYTES];

const char *tri_status_name(tri_status status)
{
  switch (status) {
  case TRI_OK: return "ok";
  case TRI_ERR_USAGE: return "bad command line";
  case TRI_ERR_CONFIG: return "bad job file";
  case TRI_ERR_IO: return "input/output error";
  case TRI_ERR_FORMAT: return "damaged file";
  case TRI_ERR_MEMORY: return "out of memory";
  case TRI_ERR_NUMERIC: return "not a finite number";
  case TRI_ERR_UNSUPPORTED: return "not supported";
  case TRI_ERR_COMM: return "communication error";
  case TRI_ERR_TIMEOUT: return "a rank did not arrive";
  case TRI_ERR_PEER: return "another rank failed";
  case TRI_ERR_ARGUMENT: return "bad argument";
  case TRI_ERR_INTERNAL: return "internal error";
  case TRI_ERR_DEVICE: return "device error";
  case TRI_ERR_INTERRUPTED: return "interrupted";
  }
  return "unknown status";
}

tri_status tri_error_set(tri_status code, const char *function, const char *file, int line,
                         const char *format, ...)
{
  // Formatted aside first: an argument may be the old message itself.
  char text[MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  memcpy(message_text, text, sizeof message_text);
  stack_text[0] = '\0';
  tri_error_trace(function, file, line);
  return code;
}

void tri_error_trace(const char *function, const char *file, int line)
{
  const size_t used = strlen(stack_text);
  snprintf(stack_text + used, STACK_BYTES - used, "  at %s (%s:%d)\n", function, file, line);
}

const char *tri_error_message(void)
{
  return message_text;
}

const char *tri_error_stack(void)
{
  return stack_text;
}

void tri_error_clear(void)
{
  message_text[0] = '\0';
  stack_text[0] = '\0';
}

_Noreturn void tri_assert_failed(const char *expression, const char *file, int line)
{
  fprintf(stderr, "trireme: %s:%d: assertion failed: %s\n", file, line, expression);
  abort();
}
