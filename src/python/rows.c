/* rows.c - the rows that a batch uses, each once: for embeddings whose rows are vectors in
 * Parameters.
 *
 * Before a row is pulled, and before its change is pushed, everything that a batch says about it is
 * brought together: look-ups name a row many times, and so do the gradients that come back.  The
 * functions write into arrays that the caller made large enough, and return how much they wrote.
 *
 * Threads  The GIL is released while rows are added up and spread; the arrays are the caller's
 * alone.   */
#include "module.h"
#include "refusal.h"

#include <stdlib.h>
#include <string.h>

#define BIT(dtype) GWI_DTYPE_BIT(GWI_##dtype)
#define FLOATS (BIT(F32) | BIT(F64))

#define WITHOUT_GIL(call)            \
    do {                             \
        Py_BEGIN_ALLOW_THREADS call; \
        Py_END_ALLOW_THREADS         \
    } while (0)

/* ---- numbers in order of their first use ---------------------------------------------- */

/* Keys that have a number; `keys` has them in its order.  Open addressing, at most half full. */
struct numbers {
    int64_t *keys;
    int64_t n;
    int32_t *places; /* number + 1; 0: empty */
    int shift;
};

static int numbers_init(const gwi_state *state, struct numbers *numbers, int64_t *keys,
                        int64_t most)
{
    int bits = 4;

    while (((int64_t)1 << bits) < 2 * most)
        bits++;
    *numbers = (struct numbers){.keys = keys, .shift = 64 - bits};
    numbers->places = calloc((size_t)1 << bits, sizeof *numbers->places);
    return numbers->places != NULL ? 0 : gwi_raise(state, GW_ENOMEM, "%lld rows", (long long)most);
}

static void numbers_fini(struct numbers *numbers)
{
    free(numbers->places);
}

static int64_t number_of(struct numbers *numbers, int64_t key)
{
    uint64_t mask = UINT64_MAX >> numbers->shift;
    uint64_t at = (uint64_t)key * 0x9E3779B97F4A7C15u >> numbers->shift;

    for (; numbers->places[at] != 0; at = (at + 1) & mask)
        if (numbers->keys[numbers->places[at] - 1] == key)
            return numbers->places[at] - 1;
    numbers->keys[numbers->n] = key;
    numbers->places[at] = (int32_t)++numbers->n;
    return numbers->n - 1;
}

/* ---- looking up ------------------------------------------------------------------------- */

struct once {
    gwi_intake ids, keys, which;
};

/* Returns the first id that is no row, or -1 if all are; then the rest was done. */
static int64_t number_ids(struct once *once, struct numbers *numbers, int64_t first_key,
                          int64_t n_rows)
{
    const int64_t *ids = once->ids.layout.data;
    int64_t n = once->ids.layout.n, *which = once->which.layout.data;

    for (int64_t i = 0; i < n; i++)
        if ((uint64_t)ids[i] >= (uint64_t)n_rows)
            return i;
    for (int64_t i = 0; i < n; i++)
        which[i] = number_of(numbers, ids[i] + first_key);
    return -1;
}

static PyObject *once_among(const gwi_state *state, struct once *once, int64_t first_key,
                            int64_t n_rows)
{
    struct numbers numbers;
    int64_t n = once->ids.layout.n, wrong;

    if (once->keys.layout.n < n || once->which.layout.n < n || n > INT32_MAX / 2) {
        gwi_raise(state, GW_EINVAL, "keys and which: %lld and %lld entries for %lld ids",
                  (long long)once->keys.layout.n, (long long)once->which.layout.n, (long long)n);
        return NULL;
    }
    if (numbers_init(state, &numbers, once->keys.layout.data, n) < 0)
        return NULL;
    wrong = number_ids(once, &numbers, first_key, n_rows);
    numbers_fini(&numbers);
    if (wrong >= 0) {
        PyErr_Format(PyExc_IndexError, "ids: %lld is no row; they go from 0 to %lld",
                     (long long)((const int64_t *)once->ids.layout.data)[wrong],
                     (long long)n_rows - 1);
        return NULL;
    }
    return PyLong_FromLongLong(numbers.n);
}

static PyObject *rows_once(PyObject *module, PyObject *args)
{
    static const gwi_need ids_need = {"ids", GWI_CONTIGUOUS, BIT(I64)};
    static const gwi_need keys_need = {"keys", GWI_CONTIGUOUS | GWI_WRITABLE, BIT(I64)};
    static const gwi_need which_need = {"which", GWI_CONTIGUOUS | GWI_WRITABLE, BIT(I64)};
    gwi_state *state = gwi_state_of(module);
    PyObject *ids, *keys, *which, *n = NULL;
    long long first_key, n_rows;
    struct once once;

    if (!PyArg_ParseTuple(args, "OLLOO", &ids, &first_key, &n_rows, &keys, &which))
        return NULL;
    if (gwi_intake_open(state, ids, &ids_need, &once.ids) < 0)
        return NULL;
    if (gwi_intake_open(state, keys, &keys_need, &once.keys) == 0) {
        if (gwi_intake_open(state, which, &which_need, &once.which) == 0) {
            n = once_among(state, &once, first_key, n_rows);
            gwi_intake_close(&once.which);
        }
        gwi_intake_close(&once.keys);
    }
    gwi_intake_close(&once.ids);
    return n;
}

/* ---- adding up -------------------------------------------------------------------------- */

/* What one look-up gives: rows as they were pulled, and gradients of what was made of them. */
enum { KEYS, ROWS, GRADIENT, WHICH, N_GIVEN };

struct part {
    gwi_intake given[N_GIVEN];
    bool has_which; /* else gradient i is row i's */
};

/* The same of all of them; one type of entries. */
struct sums {
    gwi_intake given[3]; /* KEYS, ROWS, GRADIENT */
    struct numbers numbers;
    int64_t most, length, dim;
    int64_t skipped; /* entries at the beginning of rows that nobody will look at */
};

static const gwi_need part_needs[N_GIVEN] = {{"keys", GWI_CONTIGUOUS, BIT(I64)},
                                             {"rows", GWI_CONTIGUOUS, FLOATS},
                                             {"gradient", GWI_CONTIGUOUS, FLOATS},
                                             {"which", GWI_CONTIGUOUS, BIT(I64)}};
static const gwi_need sums_needs[3] = {{"all_keys", GWI_CONTIGUOUS | GWI_WRITABLE, BIT(I64)},
                                       {"all_rows", GWI_CONTIGUOUS | GWI_WRITABLE, FLOATS},
                                       {"sums", GWI_CONTIGUOUS | GWI_WRITABLE, FLOATS}};

static void close_all(gwi_intake *given, int n)
{
    while (n-- > 0)
        gwi_intake_close(&given[n]);
}

static int open_all(gwi_state *state, gwi_intake *given, int n, PyObject *const *objects,
                    const gwi_need *needs)
{
    for (int i = 0; i < n; i++)
        if (gwi_intake_open(state, objects[i], &needs[i], &given[i]) < 0) {
            close_all(given, i);
            return -1;
        }
    return 0;
}

static bool is_matrix(const gwi_layout *layout, uint8_t dtype, int64_t rows, int64_t columns)
{
    return layout->ndim == 2 && layout->dtype == dtype && layout->shape[0] == rows &&
           layout->shape[1] == columns;
}

/* Every number in `which` is one of a row; NULL: there are none. */
static int check_which(const gwi_state *state, const int64_t *which, int64_t n, int64_t n_rows)
{
    for (int64_t i = 0; which != NULL && i < n; i++)
        if ((uint64_t)which[i] >= (uint64_t)n_rows)
            return gwi_raise(state, GW_ERANGE, "which: %lld, of %lld rows", (long long)which[i],
                             (long long)n_rows);
    return 0;
}

/* Everything is as long as it has to be, and every number in `which` is one of a row. */
static int check_part(const gwi_state *state, const struct part *part, const struct sums *sums)
{
    const gwi_layout *gradient = &part->given[GRADIENT].layout;
    int64_t n_rows = part->given[KEYS].layout.n;
    int64_t n = part->has_which ? part->given[WHICH].layout.n : n_rows;
    uint8_t dtype = sums->given[ROWS].layout.dtype;
    const int64_t *which = part->has_which ? part->given[WHICH].layout.data : NULL;

    if (!is_matrix(&part->given[ROWS].layout, dtype, n_rows, sums->length) ||
        !is_matrix(gradient, dtype, n, sums->dim))
        return gwi_raise(state, GW_EINVAL, "a part: rows and gradient do not go with %lld keys",
                         (long long)n_rows);
    if (sums->numbers.n + n_rows > sums->most)
        return gwi_raise(state, GW_EINVAL, "all_keys: %lld entries are too few",
                         (long long)sums->most);
    return check_which(state, which, n, n_rows);
}

static void add_f32(float *restrict to, const float *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

static void add_f64(double *restrict to, const double *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

/* `numbered` has the number of each of the part's rows among all.  A row that is new there takes
 * its first gradient as it is; `begun` says which have one. */
static void add_part(const struct part *part, struct sums *sums, int64_t *numbered, bool *begun)
{
    const int64_t *keys = part->given[KEYS].layout.data;
    const int64_t *which = part->has_which ? part->given[WHICH].layout.data : NULL;
    const char *rows = part->given[ROWS].layout.data;
    const char *gradient = part->given[GRADIENT].layout.data;
    size_t item = sums->given[ROWS].layout.item_bytes;
    size_t row_bytes = (size_t)sums->length * item, sum_bytes = (size_t)sums->dim * item;
    size_t skipped = (size_t)sums->skipped * item;
    char *all_rows = sums->given[ROWS].layout.data, *all = sums->given[GRADIENT].layout.data;
    int64_t n_rows = part->given[KEYS].layout.n;
    int64_t n = which != NULL ? part->given[WHICH].layout.n : n_rows;

    for (int64_t j = 0; j < n_rows; j++) {
        int64_t known = sums->numbers.n;
        numbered[j] = number_of(&sums->numbers, keys[j]);
        if (numbered[j] == known) {
            memcpy(all_rows + (size_t)known * row_bytes + skipped,
                   rows + (size_t)j * row_bytes + skipped, row_bytes - skipped);
            begun[known] = false;
        }
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t number = numbered[which != NULL ? which[i] : i];
        char *to = all + (size_t)number * sum_bytes;
        const char *from = gradient + (size_t)i * sum_bytes;
        if (!begun[number])
            memcpy(to, from, sum_bytes);
        else if (item == sizeof(float))
            add_f32((float *)(void *)to, (const float *)(const void *)from, sums->dim);
        else
            add_f64((double *)(void *)to, (const double *)(const void *)from, sums->dim);
        begun[number] = true;
    }
}

static int take_part(gwi_state *state, PyObject *object, struct sums *sums, int64_t *numbered,
                     bool *begun)
{
    PyObject *objects[N_GIVEN];
    struct part part;

    if (!PyArg_ParseTuple(object, "OOOO", &objects[KEYS], &objects[WHICH], &objects[ROWS],
                          &objects[GRADIENT]))
        return -1;
    part.has_which = objects[WHICH] != Py_None;
    int n = part.has_which ? N_GIVEN : N_GIVEN - 1;
    if (open_all(state, part.given, n, objects, part_needs) < 0)
        return -1;
    int err = check_part(state, &part, sums);
    if (err == 0)
        WITHOUT_GIL(add_part(&part, sums, numbered, begun));
    close_all(part.given, n);
    return err;
}

static int take_parts(gwi_state *state, PyObject *parts, struct sums *sums)
{
    size_t most = (size_t)sums->most + 1;
    int64_t *numbered = malloc(most * sizeof *numbered);
    bool *begun = malloc(most * sizeof *begun);
    Py_ssize_t n = PyList_Size(parts);
    int err = n < 0 ? -1 : 0;

    if (numbered == NULL || begun == NULL)
        err = gwi_raise(state, GW_ENOMEM, "%lld rows", (long long)sums->most);
    for (Py_ssize_t i = 0; i < n && err == 0; i++)
        err = take_part(state, PyList_GetItem(parts, i), sums, numbered, begun);
    free(numbered);
    free(begun);
    return err;
}

static PyObject *add_up(gwi_state *state, PyObject *parts, struct sums *sums)
{
    const gwi_layout *rows = &sums->given[ROWS].layout, *all = &sums->given[GRADIENT].layout;

    sums->most = sums->given[KEYS].layout.n;
    sums->length = rows->ndim == 2 ? rows->shape[1] : 0;
    sums->dim = all->ndim == 2 ? all->shape[1] : 0;
    if (sums->skipped < 0 || sums->skipped > sums->length) {
        gwi_raise(state, GW_ERANGE, "skipped: %lld, of rows of %lld entries",
                  (long long)sums->skipped, (long long)sums->length);
        return NULL;
    }
    if (sums->most > INT32_MAX / 2 || !is_matrix(rows, all->dtype, sums->most, sums->length) ||
        !is_matrix(all, rows->dtype, sums->most, sums->dim)) {
        gwi_raise(state, GW_EINVAL, "all_rows and sums: not matrices of one type for %lld keys",
                  (long long)sums->most);
        return NULL;
    }
    if (numbers_init(state, &sums->numbers, sums->given[KEYS].layout.data, sums->most) < 0)
        return NULL;
    int err = take_parts(state, parts, sums);
    numbers_fini(&sums->numbers);
    return err == 0 ? PyLong_FromLongLong(sums->numbers.n) : NULL;
}

static PyObject *rows_add_up(PyObject *module, PyObject *args)
{
    gwi_state *state = gwi_state_of(module);
    PyObject *parts, *objects[3], *n;
    struct sums sums;
    long long skipped;

    if (!PyArg_ParseTuple(args, "OLOOO", &parts, &skipped, &objects[KEYS], &objects[ROWS],
                          &objects[GRADIENT]))
        return NULL;
    sums.skipped = skipped;
    if (open_all(state, sums.given, 3, objects, sums_needs) < 0)
        return NULL;
    n = add_up(state, parts, &sums);
    close_all(sums.given, 3);
    return n;
}

/* ---- spreading --------------------------------------------------------------------------- */

enum { FROM, TO, BY };

static void copy_rows(const gwi_layout *rows, const gwi_layout *out, const int64_t *which)
{
    size_t row_bytes = (size_t)rows->shape[1] * rows->item_bytes;
    size_t out_bytes = (size_t)out->shape[1] * out->item_bytes;
    const char *from = rows->data;
    char *to = out->data;

    for (int64_t i = 0; i < out->shape[0]; i++)
        memcpy(to + (size_t)i * out_bytes,
               from + (size_t)(which != NULL ? which[i] : i) * row_bytes, out_bytes);
}

static int spread(const gwi_state *state, const gwi_intake *given, bool has_which)
{
    const gwi_layout *rows = &given[FROM].layout, *out = &given[TO].layout;
    const int64_t *which = has_which ? given[BY].layout.data : NULL;
    int64_t n = has_which ? given[BY].layout.n : rows->ndim == 2 ? rows->shape[0] : 0;
    int64_t dim = out->ndim == 2 ? out->shape[1] : 0;

    if (rows->ndim != 2 || !is_matrix(out, rows->dtype, n, dim) || rows->shape[1] < dim)
        return gwi_raise(state, GW_EINVAL, "rows and out: matrices of one type are needed");
    if (check_which(state, which, n, rows->shape[0]) < 0)
        return -1;
    WITHOUT_GIL(copy_rows(rows, out, which));
    return 0;
}

static PyObject *rows_spread(PyObject *module, PyObject *args)
{
    static const gwi_need needs[3] = {{"rows", GWI_CONTIGUOUS, FLOATS},
                                      {"out", GWI_CONTIGUOUS | GWI_WRITABLE, FLOATS},
                                      {"which", GWI_CONTIGUOUS, BIT(I64)}};
    gwi_state *state = gwi_state_of(module);
    PyObject *objects[3];
    gwi_intake given[3];

    if (!PyArg_ParseTuple(args, "OOO", &objects[0], &objects[2], &objects[1]))
        return NULL;
    int n = objects[2] != Py_None ? 3 : 2;
    if (open_all(state, given, n, objects, needs) < 0)
        return NULL;
    int err = spread(state, given, n == 3);
    close_all(given, n);
    if (err < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"rows_once", rows_once, METH_VARARGS,
     "rows_once(ids, first_key, n_rows, keys, which)\n--\n\n"
     "The keys of ids, each once, and which of them each id is; returns how many keys."},
    {"rows_add_up", rows_add_up, METH_VARARGS,
     "rows_add_up(parts, skipped, all_keys, all_rows, sums)\n--\n\n"
     "Of parts (keys, which or None, rows, gradient): each key once, its row without the entries "
     "that are skipped at its beginning, and the sum of its gradients; returns how many keys."},
    {"rows_spread", rows_spread, METH_VARARGS,
     "rows_spread(rows, which, out)\n--\n\n"
     "The first entries of rows[which[i]], or of rows[i] if which is None, as many as out has."},
    {NULL, NULL, 0, NULL},
};

const gwi_part gwi_rows_part = {methods, NULL, NULL, NULL};
