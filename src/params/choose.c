/* choose.c - drawing among some keys only: those that are here, or that were not drawn before. */
#include "params/distribution.h"
#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 128
#define TRIES 64 /* for each key that is drawn, and one for each that there is */

static int may_be_drawn(gwi_choice choice, int64_t key)
{
    return (choice.store == NULL || gwi_store_has(choice.store, key)) &&
           (choice.taken == NULL || !gwi_hash_get(choice.taken, (uint64_t)key, NULL));
}

/* trying */

static uint64_t most_tries(const gwi_distribution *d, size_t n)
{
    return TRIES * (uint64_t)n + d->n;
}

/* How many to draw at once for so many that are needed, if that many times as many had to be drawn
 * before. */
static size_t batch_for(size_t n, size_t times)
{
    return n < BATCH / times ? n * times : BATCH;
}

/* Half of them may be here, with no rule: so there is no branch that depends on it.  All words are
 * loaded before anything is written, so that the processor has many on their way from memory at a
 * time: a load does not wait for a place to write to that is not known yet. */
static size_t look(const gwi_store *store, const int64_t *drawn, size_t n, int64_t *ret_here)
{
    gwi_word *words = store->words;
    unsigned char is_here[BATCH];
    size_t n_here = 0;

    for (size_t i = 0; i < n; i++)
        is_here[i] = gwi_word_state(atomic_load_explicit(&words[drawn[i]], memory_order_relaxed)) !=
                     GWI_ABSENT;
    for (size_t i = 0; i < n; i++) {
        ret_here[n_here] = drawn[i];
        n_here += is_here[i];
    }
    return n_here;
}

/* Any of those that are here. */
static size_t draw_here(const gwi_distribution *d, gwi_random *random, const gwi_store *store,
                        int64_t *ret_keys, size_t n)
{
    int64_t drawn[BATCH], here[BATCH];
    uint64_t tries = 0, most = most_tries(d, n);
    size_t done = 0, times = 1;

    while (done < n && tries < most) {
        size_t n_drawn = batch_for(n - done, times);
        gwi_distribution_draw(d, random, drawn, n_drawn);
        size_t n_here = look(store, drawn, n_drawn, here);
        tries += n_drawn;
        times = 2 * n_here < n_drawn && times < BATCH ? 2 * times : times;
        n_here = n_here < n - done ? n_here : n - done;
        memcpy(ret_keys + done, here, n_here * sizeof *here);
        done += n_here;
    }
    return done;
}

/* Those that were not taken before, and now are. */
static int draw_others(const gwi_distribution *d, gwi_random *random, gwi_choice choice,
                       int64_t *ret_keys, size_t n, size_t *ret_n)
{
    uint64_t tries = 0, most = most_tries(d, n);
    size_t times = 1, *done = ret_n;
    int64_t drawn[BATCH];

    while (*done < n && tries < most) {
        size_t before = *done, n_drawn = batch_for(n - before, times);
        gwi_distribution_draw(d, random, drawn, n_drawn);
        for (size_t i = 0; i < n_drawn && *done < n; i++) {
            if (!may_be_drawn(choice, drawn[i]))
                continue;
            if (gwi_hash_put(choice.taken, (uint64_t)drawn[i], 0) < 0)
                return GW_ENOMEM;
            ret_keys[(*done)++] = drawn[i];
        }
        tries += n_drawn;
        times = 2 * (*done - before) < n_drawn && times < BATCH ? 2 * times : times;
    }
    return 0;
}

/* looking at all */

struct candidate {
    double when;
    int64_t key;
};

static int compare(const void *a, const void *b)
{
    double x = ((const struct candidate *)a)->when, y = ((const struct candidate *)b)->when;

    return x < y ? -1 : x > y;
}

static int too_few(const gwi_distribution *d, gwi_choice choice, uint64_t n_possible, size_t n)
{
    return gwi_fail(GW_ESTATE,
                    "%zu keys are to be drawn, and of keys %lld to %lld, %s%s, %llu are on this "
                    "node now; localize some, or use another scheme",
                    n, (long long)d->min, (long long)(d->min + (int64_t)d->n - 1),
                    d->n_possible < d->n ? "of those with weight" : "of all",
                    choice.taken != NULL ? " that the sample does not have yet" : "",
                    (unsigned long long)n_possible);
}

/* Independent draws: the sums of weights up to each key, among which a random one is looked up.
 * Takes the weights' place. */
static void draw_by_sums(const gwi_distribution *d, gwi_random *random, double *weights,
                         int64_t *ret_keys, size_t n)
{
    uint64_t last = 0; /* with weight: rounding shall not lead past it */
    double sum = 0;

    for (uint64_t i = 0; i < d->n; i++) {
        last = weights[i] > 0 ? i : last;
        weights[i] = sum += weights[i];
    }
    for (size_t i = 0; i < n; i++) {
        double where = gwi_random_double(random) * sum;
        uint64_t low = 0, high = last; /* the first whose sum is above is between them */
        while (low < high) {
            uint64_t middle = low + (high - low) / 2;
            if (weights[middle] > where)
                high = middle;
            else
                low = middle + 1;
        }
        ret_keys[i] = d->min + (int64_t)low;
    }
}

/* Draws one after the other from those that are left: a race, in which a key arrives after a time
 * that is exponential with its weight as rate.  The first, and of the others the first, and so on,
 * are who would be drawn. */
static int draw_by_race(const gwi_distribution *d, gwi_random *random, gwi_choice choice,
                        const double *weights, int64_t *ret_keys, size_t n)
{
    struct candidate *all = malloc(d->n * sizeof *all);
    size_t n_all = 0;
    int err = 0;

    if (all == NULL)
        return gwi_fail(GW_ENOMEM, "a sample of %zu keys", n);
    for (uint64_t i = 0; i < d->n; i++)
        if (weights[i] > 0)
            all[n_all++] = (struct candidate){-log1p(-gwi_random_double(random)) / weights[i],
                                              d->min + (int64_t)i};
    qsort(all, n_all, sizeof *all, compare);
    for (size_t i = 0; i < n && err == 0; i++) {
        ret_keys[i] = all[i].key;
        err = gwi_hash_put(choice.taken, (uint64_t)all[i].key, 0);
    }
    free(all);
    return err;
}

static int look_at_all(const gwi_distribution *d, gwi_random *random, gwi_choice choice,
                       int64_t *ret_keys, size_t n)
{
    double *weights = malloc(d->n * sizeof *weights);
    uint64_t n_possible = 0;
    int err = 0;

    if (weights == NULL)
        return gwi_fail(GW_ENOMEM, "a sample of %zu keys", n);
    gwi_distribution_weights(d, weights);
    for (uint64_t i = 0; i < d->n; i++) {
        if (weights[i] > 0 && !may_be_drawn(choice, d->min + (int64_t)i))
            weights[i] = 0;
        n_possible += weights[i] > 0;
    }
    if (n_possible == 0 || (choice.taken != NULL && n_possible < n))
        err = too_few(d, choice, n_possible, n);
    else if (choice.taken == NULL)
        draw_by_sums(d, random, weights, ret_keys, n);
    else
        err = draw_by_race(d, random, choice, weights, ret_keys, n);
    free(weights);
    return err;
}

int gwi_choose(const gwi_distribution *d, gwi_random *random, gwi_choice choice, int64_t *ret_keys,
               size_t n)
{
    gwi_random before = *random;
    size_t n_had = choice.taken != NULL ? choice.taken->count : 0, done = 0;
    int err = 0;

    if (choice.taken != NULL)
        err = draw_others(d, random, choice, ret_keys, n, &done);
    else if (choice.store != NULL)
        done = draw_here(d, random, choice.store, ret_keys, n);
    else
        gwi_distribution_draw(d, random, ret_keys, done = n);
    if (err == 0 && done < n)
        err = look_at_all(d, random, choice, ret_keys + done, n - done);
    if (err == 0)
        return 0;
    *random = before;
    /* Of those in the array, the first so many were added. */
    for (size_t i = 0; choice.taken != NULL && choice.taken->count > n_had; i++)
        gwi_hash_remove(choice.taken, (uint64_t)ret_keys[i], NULL);
    return err;
}
