/* part.c - what a part of a checkpoint looks like. */
#include "params/part.h"
#include "base/error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FORMAT "godwit checkpoint part 1"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "so are the arrays of safetensors files");

/* writing */

static void place_arrays(gwi_part_file *part, size_t item_bytes)
{
    uint64_t at = part->head_bytes;

    for (size_t c = 0; c < part->n_classes; c++) {
        part->classes[c].keys_at = at;
        at += part->classes[c].n_keys * sizeof(int64_t);
    }
    for (size_t c = 0; c < part->n_classes; c++) {
        part->classes[c].values_at = at;
        at += part->classes[c].n_keys * part->classes[c].length * item_bytes;
    }
    part->n_bytes = at;
}

static void print_array(FILE *to, const gwi_part_class *class, const char *name, gw_dtype dtype,
                        int several)
{
    int is_keys = dtype == GW_I64;
    uint64_t at = is_keys ? class->keys_at : class->values_at;
    gwi_tensor t = {.dtype = dtype,
                    .n_dims = is_keys ? 1 : 2,
                    .shape = {(int64_t) class->n_keys, is_keys ? 1 : (int64_t) class->length},
                    .begin = at};

    t.end = at + class->n_keys * (is_keys ? 1 : class->length) * gwi_safetensors_item(dtype);
    if (several)
        snprintf(t.name, sizeof t.name, "%s.%llu", name, (unsigned long long)class->length);
    else
        snprintf(t.name, sizeof t.name, "%s", name);
    fputc(',', to);
    gwi_safetensors_print(to, &t);
}

/* Places count from the end of the head, which therefore is 0 for now. */
static char *print_head(const gwi_part_file *part, gw_dtype dtype, int several, const char *save,
                        size_t *ret_bytes)
{
    char *text = NULL;
    FILE *to = open_memstream(&text, ret_bytes);

    if (to == NULL)
        return NULL;
    fwrite("\0\0\0\0\0\0\0\0", 1, GWI_SAFETENSORS_HEAD, to);
    fprintf(to, "{\"__metadata__\":{\"format\":\"%s\",\"save\":\"%s\"}", FORMAT, save);
    for (size_t c = 0; c < part->n_classes; c++)
        print_array(to, &part->classes[c], "keys", GW_I64, several);
    for (size_t c = 0; c < part->n_classes; c++)
        print_array(to, &part->classes[c], "values", dtype, several);
    fputc('}', to);
    fflush(to);
    while (*ret_bytes % 64 != 0 && !ferror(to)) { /* so that the arrays are aligned */
        fputc(' ', to);
        fflush(to);
    }
    int failed = ferror(to);
    if (fclose(to) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}

static void store_number(char *at, uint64_t number)
{
    for (int i = 0; i < 8; i++)
        at[i] = (char)(number >> 8 * i & 0xff);
}

static uint64_t load_number(const char *at)
{
    uint64_t number = 0;

    for (int i = 0; i < 8; i++)
        number |= (uint64_t)(unsigned char)at[i] << 8 * i;
    return number;
}

int gwi_part_plan(gwi_part_file *part, gw_dtype dtype, int several_lengths, const char *save,
                  char **ret_head)
{
    size_t head_bytes = 0;

    part->dtype = dtype;
    part->head_bytes = 0;
    place_arrays(part, gwi_safetensors_item(dtype));
    char *head = print_head(part, dtype, several_lengths, save, &head_bytes);
    if (head == NULL)
        return gwi_fail(GW_ENOMEM, "the head of a part with %zu lengths", part->n_classes);
    store_number(head, head_bytes - GWI_SAFETENSORS_HEAD);
    part->head_bytes = head_bytes;
    place_arrays(part, gwi_safetensors_item(dtype));
    part->n_keys = 0;
    for (size_t c = 0; c < part->n_classes; c++)
        part->n_keys += part->classes[c].n_keys;
    *ret_head = head;
    return 0;
}

/* reading */

/* What an array's name says: keys or values, and the length behind the dot (0: none).  Returns 0
 * if it says nothing of the kind. */
static int read_name(const char *name, int *ret_is_keys, uint64_t *ret_length)
{
    const char *dot = strchr(name, '.');
    size_t n = dot == NULL ? strlen(name) : (size_t)(dot - name);
    char *end = NULL;

    *ret_is_keys = n == 4 && memcmp(name, "keys", 4) == 0;
    if (!*ret_is_keys && !(n == 6 && memcmp(name, "values", 6) == 0))
        return 0;
    *ret_length = 0;
    if (dot == NULL)
        return 1;
    if (dot[1] < '1' || dot[1] > '9')
        return 0;
    errno = 0;
    *ret_length = strtoull(dot + 1, &end, 10);
    return errno == 0 && *end == 0;
}

struct named {
    uint64_t length;
    int is_keys;
    const gwi_tensor *tensor;
};

static int by_length(const void *a, const void *b)
{
    const struct named *s = a, *t = b;

    return s->length != t->length ? (s->length < t->length ? -1 : 1) : t->is_keys - s->is_keys;
}

/* Keys and the values that belong to them. */
static int join(const struct named *keys, const struct named *values, uint64_t head_bytes,
                gwi_part_file *part)
{
    const gwi_tensor *k = keys->tensor, *v = values->tensor;

    if (!keys->is_keys || values->is_keys || keys->length != values->length || k->dtype != GW_I64 ||
        v->dtype == GW_I64 || k->n_dims != 1 || v->n_dims != 2 || k->shape[0] != v->shape[0] ||
        v->shape[1] < 1 || v->shape[1] > GWI_MAX_LENGTH ||
        (values->length != 0 && values->length != (uint64_t)v->shape[1]) ||
        (part->n_classes > 0 && part->dtype != v->dtype))
        return gwi_fail(GW_EINVAL, "its arrays '%s' and '%s' do not belong together", k->name,
                        v->name);
    part->dtype = v->dtype;
    part->n_keys += (uint64_t)k->shape[0];
    part->classes[part->n_classes++] = (gwi_part_class){.length = (uint64_t)v->shape[1],
                                                        .n_keys = (uint64_t)k->shape[0],
                                                        .keys_at = head_bytes + k->begin,
                                                        .values_at = head_bytes + v->begin};
    return 0;
}

static int by_keys_place(const void *a, const void *b)
{
    const gwi_part_class *s = a, *t = b;

    return (s->keys_at > t->keys_at) - (s->keys_at < t->keys_at);
}

/* As this library writes it: all keys, then all values in the same order. */
static int check_order(gwi_part_file *part)
{
    uint64_t keys_end = part->head_bytes + part->n_keys * sizeof(int64_t);

    qsort(part->classes, part->n_classes, sizeof *part->classes, by_keys_place);
    for (size_t c = 0; c < part->n_classes; c++)
        if (part->classes[c].keys_at > keys_end || part->classes[c].values_at < keys_end ||
            (c > 0 && part->classes[c].values_at < part->classes[c - 1].values_at))
            return gwi_fail(GW_EINVAL, "its arrays are in another order than a checkpoint's");
    return 0;
}

static int find_classes(const gwi_safetensors *st, gwi_part_file *part)
{
    struct named *named = calloc(st->n + 1, sizeof *named);
    int err = 0;

    part->classes = calloc(st->n / 2 + 1, sizeof *part->classes);
    if (named == NULL || part->classes == NULL)
        err = gwi_fail(GW_ENOMEM, "a list of %zu arrays", st->n);
    for (size_t i = 0; i < st->n && err == 0; i++) {
        named[i].tensor = &st->tensors[i];
        if (!read_name(st->tensors[i].name, &named[i].is_keys, &named[i].length))
            err = gwi_fail(GW_EINVAL, "it has an array '%s', which no checkpoint has",
                           st->tensors[i].name);
    }
    if (err == 0 && (st->n == 0 || st->n % 2 != 0))
        err = gwi_fail(GW_EINVAL, "it has %zu arrays, and not one of keys for each of values",
                       st->n);
    if (err == 0)
        qsort(named, st->n, sizeof *named, by_length);
    for (size_t i = 0; i < st->n && err == 0; i += 2)
        err = join(&named[i], &named[i + 1], part->head_bytes, part);
    free(named);
    return err < 0 ? err : check_order(part);
}

int gwi_part_parse(const char *head, size_t head_bytes, uint64_t n_bytes, const char *save,
                   gwi_part_file *ret_part)
{
    gwi_safetensors st = {0};
    gwi_part_file part = {.head_bytes = GWI_SAFETENSORS_HEAD + head_bytes, .n_bytes = n_bytes};
    int err = gwi_safetensors_parse(head, head_bytes, n_bytes - part.head_bytes, "save", &st);

    if (err == 0 && strcmp(st.mark, save) != 0)
        err = gwi_fail(GW_EINVAL, "it belongs to another save than the rest ('%s', not '%s')",
                       st.mark, save);
    if (err == 0)
        err = find_classes(&st, &part);
    gwi_safetensors_fini(&st);
    if (err < 0) {
        gwi_part_fini(&part);
        return err;
    }
    *ret_part = part;
    return 0;
}

/* Say of which file it was. */
static int name_file(int err, const char *path)
{
    return gwi_fail(err, "%s: %s", path, gw_last_error());
}

static int read_head(int fd, const char *path, uint64_t n_bytes, char **ret_head, uint64_t *ret_n)
{
    char length[GWI_SAFETENSORS_HEAD];

    if (n_bytes < sizeof length || pread(fd, length, sizeof length, 0) != sizeof length)
        return gwi_fail(GW_EINVAL, "%s: it is too short for a safetensors file", path);
    uint64_t n = load_number(length);
    if (n > GWI_SAFETENSORS_MOST || n > n_bytes - sizeof length)
        return gwi_fail(GW_EINVAL,
                        "%s: its head would have %llu bytes; it is damaged, or no "
                        "safetensors file",
                        path, (unsigned long long)n);
    char *head = malloc(n + 1);
    if (head == NULL)
        return gwi_fail(GW_ENOMEM, "the head of %s, %llu bytes", path, (unsigned long long)n);
    for (uint64_t done = 0; done < n;) {
        ssize_t got = pread(fd, head + done, n - done, (off_t)(sizeof length + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            int err = got < 0 ? gwi_fail_errno("reading %s", path)
                              : gwi_fail(GW_EINVAL, "%s: it ends within its head", path);
            free(head);
            return err;
        }
        done += (uint64_t)got;
    }
    *ret_head = head;
    *ret_n = n;
    return 0;
}

int gwi_part_read(int fd, const char *path, uint64_t n_bytes, const char *save,
                  gwi_part_file *ret_part)
{
    off_t there = lseek(fd, 0, SEEK_END);
    char *head = NULL;
    uint64_t n = 0;

    if (there < 0)
        return gwi_fail_errno("reading %s", path);
    if ((uint64_t)there != n_bytes)
        return gwi_fail(GW_EINVAL, "%s: it has %lld bytes instead of %llu, so it is %s", path,
                        (long long)there, (unsigned long long)n_bytes,
                        (uint64_t)there < n_bytes ? "truncated" : "damaged");
    int err = read_head(fd, path, n_bytes, &head, &n);
    if (err < 0)
        return err;
    err = gwi_part_parse(head, n, n_bytes, save, ret_part);
    free(head);
    return err < 0 ? name_file(err, path) : 0;
}

void gwi_part_fini(gwi_part_file *part)
{
    free(part->classes);
    *part = (gwi_part_file){0};
}
