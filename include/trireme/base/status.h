// Status codes, the error text of the thread, and the macros that carry both upwards.
//
// Whatever can fail returns a tri_status; results come through the last argument and are written
// only on success. The message is written once, where the cause is known (TRI_ERROR, TRI_CHECK);
// every caller on the way up adds a line of trace (TRI_CALL). main alone prints it. All functions
// here are local and touch only this thread.
#pragma once

#include <stddef.h>

#define TRI_MUST_CHECK __attribute__((warn_unused_result))
#define TRI_PRINTF(text, first) __attribute__((format(printf, text, first)))

// The numbers are also the exit codes of the program (docs/exit-codes.md), so they never change.
typedef enum tri_status {
  TRI_OK = 0,
  TRI_ERR_USAGE = 2,       // the command line is wrong
  TRI_ERR_CONFIG = 3,      // the job file is wrong
  TRI_ERR_IO = 4,          // a file or folder cannot be read or written
  TRI_ERR_FORMAT = 5,      // a file is damaged, truncated or not what it should be
  TRI_ERR_MEMORY = 6,      // not enough memory
  TRI_ERR_NUMERIC = 7,     // a value is not finite
  TRI_ERR_UNSUPPORTED = 8, // not compiled in, or this machine cannot do it
  TRI_ERR_COMM = 9,        // the message layer failed
  TRI_ERR_TIMEOUT = 10,    // a rank did not arrive at a collective
  TRI_ERR_PEER = 11,       // this rank is fine, another one failed
  TRI_ERR_ARGUMENT = 12,   // a function was called with arguments it does not take
  TRI_ERR_INTERNAL = 13,   // our bug
  TRI_ERR_DEVICE = 14,     // a device (GPU) failed, or its library
  TRI_ERR_INTERRUPTED =
      75 // stopped by a signal at a step boundary, state saved: run again to go on
} tri_status;

// Short lower-case name of a status ("bad job file"), for the start of a message.
const char *tri_status_name(tri_status status);

// Replaces the error text of this thread and returns `code`. Used through TRI_ERROR.
tri_status tri_error_set(tri_status code, const char *function, const char *file, int line,
                         const char *format, ...) TRI_PRINTF(5, 6);

// Adds one line of trace to the error text of this thread. Used through TRI_CALL.
void tri_error_trace(const char *function, const char *file, int line);

// The message alone, without trace ("" when nothing failed). Borrowed: valid until the next error
// of this thread.
const char *tri_error_message(void);

// The trace alone, one "  at f (file:line)" a line. Borrowed as above.
const char *tri_error_stack(void);

// Forgets the error text, for a caller that has dealt with the error.
void tri_error_clear(void);

// Prints "file:line: assertion …" and aborts. Used through TRI_ASSERT.
void tri_assert_failed(const char *expression, const char *file, int line)
    __attribute__((noreturn));

#define TRI_ERROR(code, ...) tri_error_set((code), __func__, __FILE__, __LINE__, __VA_ARGS__)

// The user's or the world's fault: always on.
#define TRI_CHECK(condition, code, ...) \
  do { \
    if (!(condition)) return TRI_ERROR(code, __VA_ARGS__); \
  } while (0)

#define TRI_CHECK_GOTO(label, condition, code, ...) \
  do { \
    if (!(condition)) { \
      status = TRI_ERROR(code, __VA_ARGS__); \
      goto label; \
    } \
  } while (0)

#define TRI_CALL(call) \
  do { \
    const tri_status call_status_ = (call); \
    if (call_status_ != TRI_OK) { \
      tri_error_trace(__func__, __FILE__, __LINE__); \
      return call_status_; \
    } \
  } while (0)

// The same with a jump to the undo label; the function holds a variable `status`.
#define TRI_CALL_GOTO(label, call) \
  do { \
    status = (call); \
    if (status != TRI_OK) { \
      tri_error_trace(__func__, __FILE__, __LINE__); \
      goto label; \
    } \
  } while (0)

// Our own bugs: only in builds with --enable-debug.
#ifdef TRI_DEBUG
#define TRI_ASSERT(condition) \
  ((condition) ? (void)0 : tri_assert_failed(#condition, __FILE__, __LINE__))
#else
#define TRI_ASSERT(condition) ((void)sizeof(condition))
#endif
