/* base.h - what every part of Godwit shares: errors, the version, the options.
 *
 * Owning   Every string that these functions return lives as long as the
 *          library, but for gw_last_error(), which lives until the thread's
 *          next failing call.
 * Failing  A Godwit function that can fail returns an int: below zero it is
 *          one of the gw_err values, and gw_last_error() holds one sentence
 *          that says what was wrong, with the value, and what to do.
 * Threads  All functions here may be called by any thread at any time.
 * Forking  All functions here work in a forked child.                       */
#ifndef GODWIT_BASE_H
#define GODWIT_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define GW_API __attribute__((visibility("default")))
#else
#define GW_API
#endif

/* Every way to fail, once.  From this list come the enum below, the names, the
 * texts, and Python's exceptions: class godwit.<python> derives from
 * godwit.Error and from Python's own <kind>.
 *
 *   name      value  python            kind                 text            */
/* clang-format off */
#define GW_ERRORS(X)                                                                               \
    X(ENOMEM,    -1,  OutOfMemory,      MemoryError,         "out of memory")                      \
    X(EINVAL,    -2,  InvalidValue,     ValueError,          "invalid value")                      \
    X(ETYPE,     -3,  InvalidType,      TypeError,           "wrong type")                         \
    X(ERANGE,    -4,  OutOfRange,       IndexError,          "out of range")                       \
    X(ETIMEOUT,  -5,  TimedOut,         TimeoutError,        "a wait passed its time limit")       \
    X(EPEER,     -6,  RankLost,         ConnectionError,     "a rank died, left or is missing")    \
    X(ESTATE,    -7,  WrongState,       RuntimeError,        "not possible in this state")         \
    X(ESYS,      -8,  SystemFailure,    OSError,             "the operating system refused")       \
    X(EUNSUP,    -9,  Unsupported,      NotImplementedError, "not supported here")                 \
    X(EINTR,     -10, Interrupted,      InterruptedError,    "interrupted by a signal")            \
    X(EDISAGREE, -11, RanksDisagree,    RuntimeError,        "the ranks disagree")                 \
    X(EAGAIN,    -12, NotNow,           BlockingIOError,     "not possible right now")             \
    X(EBROKEN,   -13, BrokenMessage,    ConnectionError,     "what a rank sent makes no sense")
/* clang-format on */

#define GW_ERROR_ENUM(name, value, python, kind, text) GW_##name = (value),
typedef enum gw_err { GW_OK = 0, GW_ERRORS(GW_ERROR_ENUM) } gw_err;
#undef GW_ERROR_ENUM

/* The text of an error ("a wait passed its time limit") and its name
 * ("ETIMEOUT").  A number that is no error gives "unknown error", "?". */
GW_API const char *gw_strerror(int err);
GW_API const char *gw_errname(int err);

/* The sentence recorded by the last call that failed in this thread, or "". */
GW_API const char *gw_last_error(void);

/* The version of the library that is running, such as "0.1.0". */
GW_API const char *gw_version(void);

/* One setting that the environment can give, for tables such as that of
 * `godwit check`.  `value` is what is in force, `given` is not 0 if the
 * environment says so; a value that cannot be read has `problem` set. */
typedef struct gw_option_info {
    size_t size; /* set to sizeof(gw_option_info) by the caller */
    const char *name;
    const char *help;
    char value[256];
    char problem[512];
    int given;
} gw_option_info;

/* Fill `ret_info` with option number `index`, from 0.  Returns 0, or GW_ERANGE
 * past the last one. */
GW_API int gw_option_get(int index, gw_option_info *ret_info);

/* Why the trace that GODWIT_TRACE asked for is not whole, for example because the disk was full;
 * "" if nothing is known.  Borrowed, until the next job is joined. */
GW_API const char *gw_trace_problem(void);

/* A function that long waits call about every 100 ms, to find out whether the
 * caller still wants to wait.  If it returns something else than 0 the wait
 * ends with GW_EINTR.  The Python module uses it for Ctrl-C.  NULL: none. */
GW_API void gw_set_interrupt_check(int (*check)(void));

/* Functions to call before and after a wait inside a call that rarely waits (for example a pull of
 * a local key), in the thread that waits.  The Python module lets go of the interpreter there.
 * NULL: none. */
GW_API void gw_set_wait_hooks(void (*before)(void), void (*after)(void));

/* A function that tells at which line of the program a thread is ("train.py:12 in
 * main"), for tables of what the ranks are doing.  `thread` is a pthread_t.  It is
 * called in a thread of the library, and only when somebody asks.  To be set
 * before joining; NULL: none. */
GW_API void gw_set_where(void (*where)(unsigned long thread, char *ret_text, size_t room));

#ifdef __cplusplus
}
#endif
#endif
