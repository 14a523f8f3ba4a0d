/* json.h - reading JSON, strictly and bit by bit; for files that may be damaged.
 *
 *     gwi_json j = gwi_json_of(text, n_bytes);
 *     for (int n = gwi_json_object(&j); gwi_json_member(&j, &n, name, sizeof name);)
 *         if (strcmp(name, "rows") == 0)
 *             rows = gwi_json_number(&j);
 *         else
 *             gwi_json_skip(&j, NULL);
 *     gwi_json_end(&j);
 *     if (j.problem != NULL)
 *         it is not what was expected, at byte j.at - j.begin
 *
 * The first problem stays, and from then on everything returns nothing: so it is enough to
 * look once, at the end.  What is read is never longer than the caller allows, and never
 * deeper than GWI_JSON_DEPTH.  Texts must be valid UTF-8.                             */
#ifndef GWI_BASE_JSON_H
#define GWI_BASE_JSON_H

#include <stddef.h>
#include <stdint.h>

#define GWI_JSON_DEPTH 64

typedef struct gwi_json {
    const char *begin, *at, *end; /* borrowed */
    const char *problem;          /* NULL: none so far; static text */
} gwi_json;

gwi_json gwi_json_of(const void *bytes, size_t n_bytes);

/* An object or array begins.  Returns what member() and element() count from. */
int gwi_json_object(gwi_json *j);
int gwi_json_array(gwi_json *j);

/* Whether there is one more; of an object, its name is read, and the value is next. */
int gwi_json_member(gwi_json *j, int *n, char *ret_name, size_t room);
int gwi_json_element(gwi_json *j, int *n);

/* A text, without its escapes, with a 0 behind it.  A text that does not fit, or that has a
 * character 0, is a problem. */
void gwi_json_text(gwi_json *j, char *ret_text, size_t room);

/* A whole number from 0 to 2^63 - 1, without fraction or exponent. */
int64_t gwi_json_number(gwi_json *j);

/* Any value.  Returns its length; `ret_value` (or NULL) is where it begins. */
size_t gwi_json_skip(gwi_json *j, const char **ret_value);

/* Nothing may follow. */
void gwi_json_end(gwi_json *j);

/* It makes no sense where it is: what the caller found. */
void gwi_json_refuse(gwi_json *j, const char *problem);

#endif
