/* error.c - names and texts of errors, and this thread's last sentence. */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SENTENCE_BYTES 4096

static _Thread_local char sentence[SENTENCE_BYTES];

const char *gw_strerror(int err)
{
    switch (err) {
#define CASE(name, value, python, kind, text) \
    case GW_##name: \
        return text;
        GW_ERRORS(CASE)
#undef CASE
    case GW_OK:
        return "no error";
    default:
        return "unknown error";
    }
}

const char *gw_errname(int err)
{
    switch (err) {
#define CASE(name, value, python, kind, text) \
    case GW_##name: \
        return #name;
        GW_ERRORS(CASE)
#undef CASE
    case GW_OK:
        return "OK";
    default:
        return "?";
    }
}

const char *gw_last_error(void)
{
    return sentence;
}

int gwi_fail(int err, const char *format, ...)
{
    /* An argument may be the old sentence itself, so the new one is made aside. */
    char made[SENTENCE_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(made, sizeof made, format, args);
    va_end(args);
    memcpy(sentence, made, strlen(made) + 1);
    return err;
}

int gwi_fail_errno(const char *format, ...)
{
    int saved = errno;
    char made[SENTENCE_BYTES / 2];
    va_list args;

    va_start(args, format);
    vsnprintf(made, sizeof made, format, args);
    va_end(args);
    return gwi_fail(saved == ENOMEM || saved == ENOSPC ? GW_ENOMEM : GW_ESYS, "%s: %s", made,
                    strerror(saved));
}
