/* error.h - how everything in the library fails: one number, one sentence.
 *
 * Whoever first knows what went wrong records the sentence with gwi_fail();
 * everyone above passes the number on.                                       */
#ifndef GWI_BASE_ERROR_H
#define GWI_BASE_ERROR_H

#include <godwit/base.h>

/* Record the sentence for this thread and return `err`.  Without memory for the
 * sentence there is none, and the number remains. */
__attribute__((format(printf, 2, 3))) int gwi_fail(int err, const char *format, ...);

/* The same for a failed system call: appends what errno says and returns
 * GW_ESYS (or GW_ENOMEM for ENOMEM and ENOSPC). */
__attribute__((format(printf, 1, 2))) int gwi_fail_errno(const char *format, ...);

#endif
