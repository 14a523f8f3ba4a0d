/* safetensors.c - reading heads that anybody may have written. */
#include "params/safetensors.h"
#include "base/error.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    gw_dtype dtype;
    const char *name;
    size_t item_bytes;
} dtypes[] = {{GW_F32, "F32", 4}, {GW_F64, "F64", 8}, {GW_I64, "I64", 8}};

#define N_DTYPES (sizeof dtypes / sizeof *dtypes)

const char *gwi_safetensors_dtype(gw_dtype dtype)
{
    for (size_t i = 0; i < N_DTYPES; i++)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].name;
    return "?";
}

size_t gwi_safetensors_item(gw_dtype dtype)
{
    for (size_t i = 0; i < N_DTYPES; i++)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].item_bytes;
    return 0;
}

void gwi_safetensors_print(FILE *to, const gwi_tensor *t)
{
    fprintf(to, "\"%s\":{\"dtype\":\"%s\",\"shape\":[%lld", t->name,
            gwi_safetensors_dtype(t->dtype), (long long)t->shape[0]);
    if (t->n_dims == 2)
        fprintf(to, ",%lld", (long long)t->shape[1]);
    fprintf(to, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)t->begin,
            (unsigned long long)t->end);
}

/* reading */

static void read_metadata(gwi_json *j, const char *mark_name, char *ret_mark, size_t room)
{
    char name[64];

    for (int n = gwi_json_object(j); gwi_json_member(j, &n, name, sizeof name);)
        if (strcmp(name, mark_name) == 0)
            gwi_json_text(j, ret_mark, room);
        else if (j->at < j->end) { /* texts only, of any length */
            const char *value = NULL;
            if (gwi_json_skip(j, &value) > 0 && *value != '"')
                gwi_json_refuse(j, "metadata that is no text");
        }
}

static void read_dtype(gwi_json *j, gwi_tensor *t)
{
    char name[16];
    size_t i = 0;

    gwi_json_text(j, name, sizeof name);
    while (i < N_DTYPES && strcmp(name, dtypes[i].name) != 0)
        i++;
    if (i == N_DTYPES)
        gwi_json_refuse(j, "an array of another type than F32, F64 and I64");
    else
        t->dtype = dtypes[i].dtype;
}

/* Up to `most` numbers.  Returns how many. */
static int read_numbers(gwi_json *j, int most, int64_t *ret_numbers)
{
    int read = 0;

    for (int n = gwi_json_array(j); gwi_json_element(j, &n); read++) {
        if (read == most) {
            gwi_json_refuse(j, "too many numbers in a list");
            break;
        }
        ret_numbers[read] = gwi_json_number(j);
    }
    return read;
}

static void read_tensor(gwi_json *j, gwi_tensor *t)
{
    enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4 };
    int64_t offsets[2] = {0, 0};
    unsigned seen = 0, now;
    char name[16];

    for (int n = gwi_json_object(j); gwi_json_member(j, &n, name, sizeof name); seen |= now) {
        now = strcmp(name, "dtype") == 0          ? DTYPE
              : strcmp(name, "shape") == 0        ? SHAPE
              : strcmp(name, "data_offsets") == 0 ? OFFSETS
                                                  : 0;
        if (now == 0 || seen & now)
            gwi_json_refuse(j, now == 0 ? "an array has an entry of an unknown name"
                                        : "an array has an entry twice");
        else if (now == DTYPE)
            read_dtype(j, t);
        else if (now == SHAPE)
            t->n_dims = read_numbers(j, 2, t->shape);
        else if (read_numbers(j, 2, offsets) != 2)
            gwi_json_refuse(j, "data_offsets needs two numbers");
    }
    if (seen != (DTYPE | SHAPE | OFFSETS) || t->n_dims == 0)
        gwi_json_refuse(j, "an array lacks its type, shape or place");
    t->begin = (uint64_t)offsets[0];
    t->end = (uint64_t)offsets[1];
}

static int add_tensor(gwi_safetensors *st, size_t *capacity, const char *name)
{
    if (st->n == *capacity) {
        size_t more = *capacity == 0 ? 4 : 2 * *capacity;
        gwi_tensor *grown = realloc(st->tensors, more * sizeof *grown);
        if (grown == NULL)
            return gwi_fail(GW_ENOMEM, "a list of %zu arrays", more);
        st->tensors = grown;
        *capacity = more;
    }
    gwi_tensor *t = &st->tensors[st->n++];
    *t = (gwi_tensor){.shape = {0, 1}};
    snprintf(t->name, sizeof t->name, "%s", name);
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const gwi_tensor *s = a, *t = b;

    return s->begin != t->begin ? (s->begin < t->begin ? -1 : 1)
                                : (s->end > t->end) - (s->end < t->end);
}

/* Each array has as many bytes as its shape says, and begins where the one before ends. */
static int check_places(gwi_safetensors *st, uint64_t data_bytes)
{
    uint64_t at = 0;

    if (st->n > 0)
        qsort(st->tensors, st->n, sizeof *st->tensors, by_place);
    for (size_t i = 0; i < st->n; i++) {
        const gwi_tensor *t = &st->tensors[i];
        uint64_t entries;
        if (__builtin_mul_overflow((uint64_t)t->shape[0], (uint64_t)t->shape[1], &entries) ||
            entries > INT64_MAX / 8 || t->begin != at || t->end < t->begin ||
            t->end - t->begin != entries * gwi_safetensors_item(t->dtype))
            return gwi_fail(GW_EINVAL,
                            "the place of its array '%s' does not fit its shape, or the "
                            "array before it",
                            t->name);
        at = t->end;
    }
    if (at != data_bytes)
        return gwi_fail(GW_EINVAL, "its arrays have %llu bytes, but %llu follow its head",
                        (unsigned long long)at, (unsigned long long)data_bytes);
    return 0;
}

int gwi_safetensors_parse(const char *head, size_t head_bytes, uint64_t data_bytes,
                          const char *mark_name, gwi_safetensors *ret_st)
{
    gwi_safetensors st = {0};
    gwi_json j = gwi_json_of(head, head_bytes);
    size_t capacity = 0;
    char name[64];
    int err = 0;

    for (int n = gwi_json_object(&j); err == 0 && gwi_json_member(&j, &n, name, sizeof name);) {
        if (strcmp(name, "__metadata__") == 0)
            read_metadata(&j, mark_name, st.mark, sizeof st.mark);
        else if ((err = add_tensor(&st, &capacity, name)) == 0)
            read_tensor(&j, &st.tensors[st.n - 1]);
    }
    if (err == 0)
        gwi_json_end(&j);
    if (err == 0 && j.problem != NULL)
        err = gwi_fail(GW_EINVAL, "its head makes no sense at byte %zu: %s",
                       (size_t)(j.at - j.begin) + GWI_SAFETENSORS_HEAD, j.problem);
    if (err == 0)
        err = check_places(&st, data_bytes);
    if (err < 0) {
        gwi_safetensors_fini(&st);
        return err;
    }
    *ret_st = st;
    return 0;
}

void gwi_safetensors_fini(gwi_safetensors *st)
{
    free(st->tensors);
    *st = (gwi_safetensors){0};
}
