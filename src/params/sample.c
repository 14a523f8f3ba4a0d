/* sample.c - preparing, pulling and finishing samples. */
#include "params/sample.h"
#include "base/error.h"
#include "params/pool.h"
#include "params/remote.h"

#include <stdlib.h>
#include <string.h>

#define STREAM_SHIFT 40 /* streams of a worker: 0 its pool, then one a sample */
#define MOST_KEPT 65536 /* keys for which there is room from one sample to the next */

typedef struct sample {
    size_t n, used;
    gwi_random random; /* of keys that are drawn later */
    gwi_hash taken;    /* of those, without replacement: the keys that it has had */
    int64_t keys[];    /* if they were drawn at once */
} sample;

struct gwi_sampler {
    const gwi_sampling *sampling; /* borrowed */
    gwi_hash samples;             /* id -> sample *, those with keys left; owned */
    int64_t last;                 /* id that was given */
    gwi_pool pool;
    gwi_hash taken; /* for drawing without replacement; empty in between */
    int64_t *spare; /* room for keys that are announced; owned */
    size_t n_spare;
};

/* the sampler */

static void free_sample(sample *s)
{
    gwi_hash_fini(&s->taken);
    free(s);
}

void gwi_sampler_free(gw_worker *worker)
{
    gwi_sampler *sampler = worker->sampler;
    gwi_hash_cursor cursor;
    uint64_t id, at;

    if (sampler == NULL)
        return;
    cursor = gwi_hash_start(&sampler->samples);
    while (gwi_hash_next(&sampler->samples, &cursor, &id, &at))
        free_sample((sample *)(uintptr_t)at);
    gwi_hash_fini(&sampler->samples);
    gwi_hash_fini(&sampler->taken);
    gwi_pool_fini(&sampler->pool);
    free(sampler->spare);
    free(sampler);
    worker->sampler = NULL;
}

static gwi_random stream(const gw_worker *worker, const gwi_sampling *sampling, int64_t number)
{
    const gw_params *params = worker->params;
    uint64_t who = (uint64_t)params->world->fabric->place.rank * (uint64_t)params->workers_each +
                   (uint64_t)worker->number;
    gwi_random random;

    gwi_random_init(&random, sampling->seed, who << STREAM_SHIFT ^ (uint64_t)number);
    return random;
}

/* The first use makes it. */
static int find_sampler(gw_worker *worker, gwi_sampler **ret_sampler)
{
    const gwi_sampling *sampling = gwi_sampling_of(worker->params);
    int err = gwi_params_check_process(worker->params);

    if (err < 0)
        return err;
    if (sampling == NULL)
        return gwi_fail(GW_ESTATE, "sampling is not enabled; call enable_sampling first, in every "
                                   "process");
    if (worker->sampler == NULL) {
        gwi_sampler *sampler = calloc(1, sizeof *sampler);
        if (sampler == NULL)
            return gwi_fail(GW_ENOMEM, "the samples of a worker");
        sampler->sampling = sampling;
        if (sampling->scheme == GW_SAMPLING_POOL)
            err = gwi_pool_init(&sampler->pool, &sampling->distribution,
                                stream(worker, sampling, 0), sampling->pool_size, sampling->reuse);
        if (err < 0) {
            free(sampler);
            return err;
        }
        worker->sampler = sampler;
    }
    *ret_sampler = worker->sampler;
    return 0;
}

/* preparing */

static int draws_at_once(const gwi_sampling *sampling)
{
    return sampling->scheme == GW_SAMPLING_PRELOC || sampling->scheme == GW_SAMPLING_POOL ||
           (sampling->scheme == GW_SAMPLING_NAIVE && !sampling->replacement);
}

static int check_sample(const gwi_sampling *sampling, size_t n, const gw_clocks *when)
{
    const gwi_distribution *d = &sampling->distribution;

    if (when != NULL && when->end <= when->start)
        return gwi_fail(GW_EINVAL, "end is %lld; it must be after start, which is %lld",
                        (long long)when->end, (long long)when->start);
    if (n > (SIZE_MAX >> 1) / sizeof(int64_t) - sizeof(sample))
        return gwi_fail(GW_ENOMEM, "a sample of %zu keys", n);
    if (sampling->replacement || n <= d->n_possible)
        return 0;
    return gwi_fail(GW_EINVAL,
                    "n is %zu, but without replacement a sample has at most %llu keys: "
                    "as many as can be drawn",
                    n, (unsigned long long)d->n_possible);
}

/* Without replacement.  What was put into the table is taken out again; one that is far too large
 * for that is given back, since to empty it takes time in proportion to its size. */
static int draw_distinct(gwi_sampler *sampler, gwi_random *random, int64_t *ret_keys, size_t n)
{
    gwi_choice choice = {.taken = &sampler->taken};
    int err = gwi_hash_reserve(&sampler->taken, n);

    if (err == 0)
        err = gwi_choose(&sampler->sampling->distribution, random, choice, ret_keys, n);
    if (sampler->taken.n_slots > MOST_KEPT || sampler->taken.n_slots / 16 > n)
        gwi_hash_fini(&sampler->taken);
    else
        gwi_hash_clear(&sampler->taken);
    return err;
}

/* Those of `keys` that are not here, to the spare room. */
static size_t find_away(const gw_worker *worker, gwi_sampler *sampler, const int64_t *keys,
                        size_t n)
{
    const gwi_store *store = &worker->params->store;
    size_t n_away = 0;

    for (size_t i = 0; i < n; i++) {
        sampler->spare[n_away] = keys[i];
        n_away += !gwi_store_has(store, keys[i]);
    }
    return n_away;
}

static int make_room(gwi_sampler *sampler, size_t n)
{
    if (n <= sampler->n_spare)
        return 0;
    int64_t *grown = realloc(sampler->spare, n * sizeof *grown);
    if (grown == NULL)
        return gwi_fail(GW_ENOMEM, "a sample of %zu keys", n);
    sampler->spare = grown;
    sampler->n_spare = n;
    return 0;
}

static void keep_little_room(gwi_sampler *sampler)
{
    if (sampler->n_spare <= MOST_KEPT)
        return;
    free(sampler->spare);
    sampler->spare = NULL;
    sampler->n_spare = 0;
}

/* Fetch keys now, and do not wait for that.  It begins nothing if all are here. */
static int fetch(gw_worker *worker, const int64_t *keys, size_t n)
{
    gwi_sampler *sampler = worker->sampler;
    size_t n_away = find_away(worker, sampler, keys, n);
    gw_ticket ticket;

    return n_away == 0 ? 0 : gw_worker_localize(worker, (gw_keys){sampler->spare, n_away}, &ticket);
}

/* Draw the keys of a sample, and see that they come here. */
static int draw_at_once(gw_worker *worker, sample *s, const gw_clocks *when)
{
    gwi_sampler *sampler = worker->sampler;
    const gwi_sampling *sampling = sampler->sampling;
    gw_keys announced = {s->keys, s->n};
    int64_t end = when != NULL ? when->end : 0;
    int err = 0;

    if (sampling->scheme == GW_SAMPLING_POOL || (when == NULL && worker->errands != NULL))
        err = make_room(sampler, s->n);
    if (err < 0)
        return err;
    if (sampling->scheme == GW_SAMPLING_POOL)
        announced = (gw_keys){sampler->spare, gwi_pool_draw(&sampler->pool, s->keys, s->n, when,
                                                            sampler->spare, &end)};
    else if (sampling->replacement)
        gwi_distribution_draw(&sampling->distribution, &s->random, s->keys, s->n);
    else
        err = draw_distinct(sampler, &s->random, s->keys, s->n);
    if (err < 0 || sampling->scheme == GW_SAMPLING_NAIVE || worker->errands == NULL)
        return err;
    if (when == NULL)
        return fetch(worker, s->keys, s->n);
    return announced.n == 0 ? 0 : gwi_remote_intent(worker, announced, when->start, end);
}

int gw_worker_prepare_sample(gw_worker *worker, size_t n, const gw_clocks *when,
                             gw_sample *ret_sample)
{
    gwi_sampler *sampler = NULL;
    int err = find_sampler(worker, &sampler);

    if (err == 0)
        err = check_sample(sampler->sampling, n, when);
    if (err < 0)
        return err;
    int at_once = draws_at_once(sampler->sampling);
    int64_t id = sampler->last + 1;
    sample *s = malloc(sizeof *s + (at_once ? n : 0) * sizeof(int64_t));
    if (s == NULL)
        return gwi_fail(GW_ENOMEM, "a sample of %zu keys", n);
    s->n = n;
    s->used = 0;
    s->random = stream(worker, sampler->sampling, id);
    gwi_hash_init(&s->taken);
    err = gwi_hash_put(&sampler->samples, (uint64_t)id, (uint64_t)(uintptr_t)s);
    if (err < 0) {
        free_sample(s);
        return err;
    }
    if (at_once) {
        err = draw_at_once(worker, s, when);
        keep_little_room(sampler);
    }
    if (err < 0) {
        gwi_hash_remove(&sampler->samples, (uint64_t)id, NULL);
        free_sample(s);
        return err;
    }
    sampler->last = id;
    ret_sample->id = id;
    return 0;
}

/* pulling */

/* NULL with 0: it is used up or finished. */
static int find_sample(const gwi_sampler *sampler, gw_sample id, sample **ret_sample)
{
    uint64_t at = 0;

    if (id.id < 1 || id.id > sampler->last)
        return gwi_fail(GW_EINVAL, "sample %lld was not prepared by this worker", (long long)id.id);
    gwi_hash_get(&sampler->samples, (uint64_t)id.id, &at);
    *ret_sample = (sample *)(uintptr_t)at;
    return 0;
}

static int check_pull(const gwi_sampling *sampling, gw_sample id, const sample *s, size_t n_keys,
                      size_t n_values)
{
    size_t left = s != NULL ? s->n - s->used : 0;

    if (n_keys > left && s == NULL)
        return gwi_fail(GW_EINVAL, "keys has %zu entries, but sample %lld is used up or finished",
                        n_keys, (long long)id.id);
    if (n_keys > left)
        return gwi_fail(GW_EINVAL, "keys has %zu entries, but sample %lld has %zu left of its %zu",
                        n_keys, (long long)id.id, left, s->n);
    int alike = sampling->shortest == sampling->longest;
    uint64_t need;
    if (!__builtin_mul_overflow((uint64_t)n_keys, sampling->longest, &need) &&
        (alike ? n_values == need : n_values >= need))
        return 0;
    return gwi_fail(GW_EINVAL, "values has %zu entries, but %zu vectors of %s%llu need %s%llu",
                    n_values, n_keys, alike ? "" : "up to ", (unsigned long long)sampling->longest,
                    alike ? "" : "room for ", (unsigned long long)need);
}

/* The next keys of a sample. */
static int take_keys(const gw_worker *worker, sample *s, int64_t *ret_keys, size_t n)
{
    const gwi_sampling *sampling = worker->sampler->sampling;
    const gwi_distribution *d = &sampling->distribution;
    /* On one node all keys are here. */
    gwi_choice choice = {.store = worker->errands != NULL ? &worker->params->store : NULL,
                         .taken = sampling->replacement ? NULL : &s->taken};

    if (sampling->scheme == GW_SAMPLING_LOCAL)
        return gwi_choose(d, &s->random, choice, ret_keys, n);
    if (draws_at_once(sampling))
        memcpy(ret_keys, s->keys + s->used, n * sizeof *ret_keys);
    else
        gwi_distribution_draw(d, &s->random, ret_keys, n);
    return 0;
}

static void end_sample(gwi_sampler *sampler, gw_sample id, sample *s)
{
    gwi_hash_remove(&sampler->samples, (uint64_t)id.id, NULL);
    free_sample(s);
}

int gw_worker_pull_sample(gw_worker *worker, gw_sample id, int64_t *ret_keys, size_t n_keys,
                          void *values, size_t n_values, gw_ticket *ret_ticket)
{
    gwi_sampler *sampler = NULL;
    sample *s = NULL;
    int err = find_sampler(worker, &sampler);

    if (err == 0)
        err = find_sample(sampler, id, &s);
    if (err == 0)
        err = check_pull(sampler->sampling, id, s, n_keys, n_values);
    if (err == 0 && n_keys > 0 && (ret_keys == NULL || (values == NULL && n_values > 0)))
        err = gwi_fail(GW_EINVAL, "%s is NULL", ret_keys == NULL ? "keys" : "values");
    if (err == 0 && n_keys > 0)
        err = take_keys(worker, s, ret_keys, n_keys);
    if (err < 0)
        return err;
    if (s != NULL && (s->used += n_keys) == s->n)
        end_sample(sampler, id, s);
    if (sampler->sampling->shortest < sampler->sampling->longest)
        n_values = gwi_geometry_entries(&worker->params->geometry, ret_keys, n_keys);
    return gw_worker_pull(worker, (gw_keys){ret_keys, n_keys}, values, n_values, ret_ticket);
}

int gw_worker_finish_sample(gw_worker *worker, gw_sample id)
{
    gwi_sampler *sampler = NULL;
    sample *s = NULL;
    int err = find_sampler(worker, &sampler);

    if (err == 0)
        err = find_sample(sampler, id, &s);
    if (err == 0 && s != NULL)
        end_sample(sampler, id, s);
    return err;
}
