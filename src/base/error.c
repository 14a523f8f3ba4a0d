/* error.c - names and texts of errors, and this thread's last sentence. */
#include "base/error.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* This thread's sentence.  On the heap, since a table of all ranks may be long and
 * room for thread-local data is scarce in a library that is loaded at run time;
 * freed when the thread ends. */
static _Thread_local char *sentence;
static pthread_key_t sentence_key;

__attribute__((constructor)) static void free_sentences_of_ended_threads(void)
{
    pthread_key_create(&sentence_key, free);
}

const char *gw_strerror(int err)
{
    switch (err) {
#define CASE(name, value, python, kind, text) \
    case GW_##name:                           \
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
    case GW_##name:                           \
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
    return sentence != NULL ? sentence : "";
}

static void set_sentence(char *made)
{
    free(sentence);
    sentence = made;
    pthread_setspecific(sentence_key, made);
}

int gwi_fail(int err, const char *format, ...)
{
    /* An argument may be the old sentence itself, so that goes last. */
    char *made = NULL;
    va_list args;

    va_start(args, format);
    if (vasprintf(&made, format, args) < 0)
        made = NULL;
    va_end(args);
    set_sentence(made);
    return err;
}

int gwi_fail_errno(const char *format, ...)
{
    int saved = errno;
    char *made = NULL;
    va_list args;

    va_start(args, format);
    if (vasprintf(&made, format, args) < 0)
        made = NULL;
    va_end(args);
    int err = gwi_fail(saved == ENOMEM || saved == ENOSPC ? GW_ENOMEM : GW_ESYS, "%s: %s",
                       made != NULL ? made : "a system call", strerror(saved));
    free(made);
    return err;
}
