/* npy.c - reads and writes the header of .npy files. */
#include "memory/npy.h"
#include "base/error.h"
#include "comm/reduce.h"

#include <stdio.h>
#include <string.h>

#define MAGIC "\x93NUMPY"
#define MAGIC_BYTES 6
#define ALIGN 64 /* as NumPy writes it */

/* By gw_dtype; "" if NumPy has none. */
static const char *const letters[GW_N_DTYPES] = {
    [GW_U8] = "u1",  [GW_I8] = "i1",   [GW_I16] = "i2", [GW_I32] = "i4",
    [GW_I64] = "i8", [GW_BOOL] = "b1", [GW_F16] = "f2", [GW_BF16] = "",
    [GW_F32] = "f4", [GW_F64] = "f8",  [GW_C64] = "c8", [GW_C128] = "c16",
};

static int is_little(void)
{
    const int one = 1;

    return *(const char *)&one == 1;
}

size_t gwi_npy_length(const unsigned char *bytes)
{
    size_t major = bytes[6], n = bytes[8] | (size_t)bytes[9] << 8;

    if (memcmp(bytes, MAGIC, MAGIC_BYTES) != 0 || major < 1 || major > 3)
        return 0;
    if (major == 1)
        return 10 + n;
    return 12 + (n | (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24);
}

/* reading: a text between `at` and `end` */

struct text {
    const char *at, *end;
};

static void skip_spaces(struct text *t)
{
    while (t->at < t->end && strchr(" \t\r\n", *t->at) != NULL && *t->at != '\0')
        t->at++;
}

/* Whether `word` comes next; then it is taken. */
static int take(struct text *t, const char *word)
{
    size_t n = strlen(word);

    skip_spaces(t);
    if ((size_t)(t->end - t->at) < n || memcmp(t->at, word, n) != 0)
        return 0;
    t->at += n;
    return 1;
}

/* A text in quotes, at most 31 characters. */
static int take_quoted(struct text *t, char ret_word[32])
{
    size_t n = 0;

    skip_spaces(t);
    if (t->at == t->end || (*t->at != '\'' && *t->at != '"'))
        return 0;
    char quote = *t->at++;
    while (t->at < t->end && *t->at != quote && n < 31)
        ret_word[n++] = *t->at++;
    ret_word[n] = '\0';
    return t->at < t->end && *t->at++ == quote;
}

static int take_number(struct text *t, int64_t *ret_number)
{
    const char *first;
    int64_t number = 0;

    skip_spaces(t);
    for (first = t->at; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++)
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, *t->at - '0', &number))
            return 0;
    *ret_number = number;
    return t->at > first;
}

static int read_descr(struct text *t, gwi_npy *npy)
{
    char word[32];

    if (!take_quoted(t, word))
        return gwi_fail(GW_EINVAL, "its entries are of a type made of several");
    char order = word[0];
    for (int d = 0; d < GW_N_DTYPES && strchr("<>|=", order) != NULL; d++)
        if (letters[d][0] != '\0' && strcmp(word + 1, letters[d]) == 0) {
            npy->dtype = (gw_dtype)d;
            if (order == (is_little() ? '>' : '<') && gwi_dtype_bytes(npy->dtype) > 1)
                return gwi_fail(GW_EINVAL,
                                "its entries are '%s', in another machine's order of "
                                "bytes",
                                word);
            return 0;
        }
    return gwi_fail(GW_EINVAL, "its entries are '%s', which is no type that Godwit knows", word);
}

static int read_shape(struct text *t, gwi_npy *npy)
{
    if (!take(t, "("))
        return gwi_fail(GW_EINVAL, "its shape cannot be read");
    while (!take(t, ")")) {
        if (npy->n_dims == GW_MAX_DIMS)
            return gwi_fail(GW_EINVAL, "it has more than %d dimensions", GW_MAX_DIMS);
        if (!take_number(t, &npy->shape[npy->n_dims]))
            return gwi_fail(GW_EINVAL, "its shape cannot be read");
        npy->n_dims++;
        take(t, "L"); /* as long numbers were written once */
        if (!take(t, ",") && (t->at == t->end || *t->at != ')'))
            return gwi_fail(GW_EINVAL, "its shape cannot be read");
    }
    return 0;
}

enum { DESCR = 1, ORDER = 2, SHAPE = 4, ALL = 7 };

static int read_field(struct text *t, gwi_npy *npy, int *found)
{
    char key[32];

    if (!take_quoted(t, key) || !take(t, ":"))
        return gwi_fail(GW_EINVAL, "its header cannot be read");
    if (strcmp(key, "descr") == 0) {
        *found |= DESCR;
        return read_descr(t, npy);
    }
    if (strcmp(key, "shape") == 0 && !(*found & SHAPE)) {
        *found |= SHAPE;
        return read_shape(t, npy);
    }
    if (strcmp(key, "fortran_order") != 0)
        return gwi_fail(GW_EINVAL, "its header has an entry '%s'", key);
    *found |= ORDER;
    if (take(t, "True"))
        return gwi_fail(GW_EINVAL, "it is stored column by column (fortran_order); save it with "
                                   "numpy.ascontiguousarray()");
    return take(t, "False") ? 0 : gwi_fail(GW_EINVAL, "its header cannot be read");
}

int gwi_npy_read(const unsigned char *bytes, size_t n, gwi_npy *ret_npy)
{
    size_t start = n >= GWI_NPY_START && bytes[6] == 1 ? 10 : GWI_NPY_START;
    gwi_npy npy = {.header_bytes = n};
    int found = 0, err;

    if (n < GWI_NPY_START || gwi_npy_length(bytes) != n)
        return gwi_fail(GW_EINVAL, "it is no .npy file");
    struct text t = {(const char *)bytes + start, (const char *)bytes + n};
    if (!take(&t, "{"))
        return gwi_fail(GW_EINVAL, "its header cannot be read");
    while (!take(&t, "}")) {
        if ((err = read_field(&t, &npy, &found)) < 0)
            return err;
        if (!take(&t, ",") && (t.at == t.end || *t.at != '}'))
            return gwi_fail(GW_EINVAL, "its header cannot be read");
    }
    if (found != ALL)
        return gwi_fail(GW_EINVAL, "its header lacks descr, fortran_order or shape");
    *ret_npy = npy;
    return 0;
}

/* writing */

int gwi_npy_write(gw_dtype dtype, int n_dims, const int64_t *shape, char *ret_bytes, size_t room)
{
    char text[64 + 24 * GW_MAX_DIMS];
    int n;

    if (letters[dtype][0] == '\0')
        return gwi_fail(GW_EUNSUP, "NumPy has no %s; store it as a raw file, or as another type",
                        gwi_dtype_name(dtype));
    n = snprintf(text, sizeof text, "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                 gwi_dtype_bytes(dtype) == 1 ? '|'
                 : is_little()               ? '<'
                                             : '>',
                 letters[dtype]);
    for (int i = 0; i < n_dims; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, i == 0 ? "%lld," : " %lld,",
                      (long long)shape[i]);
    if (n_dims > 1)
        n--; /* only a single one has a comma behind it */
    n += snprintf(text + n, sizeof text - (size_t)n, "), }");
    size_t whole = ((size_t)n + 1 + 10 + ALIGN - 1) / ALIGN * ALIGN, length = whole - 10;
    if (whole > room)
        return gwi_fail(GW_EINVAL, "a header of %zu bytes", whole);
    memset(ret_bytes, ' ', whole);
    memcpy(ret_bytes, MAGIC "\x01", MAGIC_BYTES + 2); /* with the 0 behind it */
    ret_bytes[8] = (char)(length & 255);
    ret_bytes[9] = (char)(length >> 8);
    memcpy(ret_bytes + 10, text, (size_t)n);
    ret_bytes[whole - 1] = '\n';
    return (int)whole;
}
