/* params_test.h - jobs with parameters of 50 keys, and what tests do with them. */
#ifndef GWI_PARAMS_PARAMS_TEST_H
#define GWI_PARAMS_PARAMS_TEST_H

#include "base/thread.h"
#include "fabric/processes_test.h"
#include "params/params.h"

#define N_KEYS 50
#define LENGTH 4

static inline gw_world *join_in_nodes(const struct processes *all, int rank, int node_size)
{
    gw_world_options opt = GW_WORLD_OPTIONS_INIT;
    gw_world *world;

    opt.rank = rank;
    opt.size = all->n;
    opt.node_size = node_size;
    opt.job = all->job;
    opt.timeout_s = 60;
    REQUIRE(gw_world_join(&opt, &world) == 0);
    return world;
}

static inline gw_world *join(const struct processes *all, int rank)
{
    return join_in_nodes(all, rank, 0);
}

/* Each process is a node of its own. */
static inline gw_world *join_as_node(const struct processes *all, int rank)
{
    return join_in_nodes(all, rank, 1);
}

static const int64_t common_length = LENGTH;

static inline gw_params_options options(int workers)
{
    gw_params_options opt = GW_PARAMS_OPTIONS_INIT;

    opt.num_keys = N_KEYS;
    opt.lengths = &common_length;
    opt.n_lengths = 1;
    opt.workers = workers;
    return opt;
}

static inline gw_params *open_params(gw_world *world, int workers)
{
    gw_params_options opt = options(workers);
    gw_params *params;

    REQUIRE(gw_params_open(world, &opt, &params) == 0);
    return params;
}

static inline gw_worker *take_worker(gw_params *params)
{
    gw_worker *worker;

    REQUIRE(gw_params_worker(params, &worker) == 0);
    return worker;
}

static inline void close_all(gw_params *params, gw_world *world)
{
    REQUIRE(gw_params_close(params) == 0);
    gw_world_close(world);
}

static inline int saw(const char *words)
{
    return strstr(gw_last_error(), words) != NULL;
}

/* The words are in the first line. */
static inline int saw_first(const char *words)
{
    const char *found = strstr(gw_last_error(), words), *line = strchr(gw_last_error(), '\n');

    return found != NULL && (line == NULL || found < line);
}

static inline gw_keys one(const int64_t *key)
{
    return (gw_keys){key, 1};
}

static inline int push(gw_worker *worker, int64_t key, float value)
{
    const float values[LENGTH] = {value, value, value, value};

    return gw_worker_push(worker, one(&key), values, LENGTH, NULL);
}

static inline int set(gw_worker *worker, int64_t key, float value)
{
    const float values[LENGTH] = {value, value, value, value};

    return gw_worker_set(worker, one(&key), values, LENGTH, NULL);
}

/* The value of a key all of whose entries are equal. */
static inline float pull(gw_worker *worker, int64_t key)
{
    float values[LENGTH];

    REQUIRE(gw_worker_pull(worker, one(&key), values, LENGTH, NULL) == 0);
    for (int i = 1; i < LENGTH; i++)
        REQUIRE(values[i] == values[0]);
    return values[0];
}

static inline void meet(gw_worker *worker)
{
    REQUIRE(gw_worker_barrier(worker) == 0);
}

/* Take the latch of a key as a walk does. */
static inline void hold(gw_worker *worker, uint32_t i, int64_t key)
{
    uint64_t word;

    gwi_hand_note(&worker->seat->hand, i, key);
    REQUIRE(gwi_word_try_latch(&worker->params->store.words[key], &word));
}

static inline void let_go(gw_worker *worker, int64_t key)
{
    gwi_word *at = &worker->params->store.words[key];

    gwi_word_release(at, gwi_word_next_version(gwi_word_look(at) & ~GWI_WORD_LATCH));
    gwi_hand_empty(&worker->seat->hand);
}

typedef int operation(gw_worker *worker, gw_keys keys, void *values, size_t n_values,
                      gw_ticket *ret_ticket);

static inline int do_push(gw_worker *worker, gw_keys keys, void *values, size_t n, gw_ticket *ret)
{
    return gw_worker_push(worker, keys, values, n, ret);
}

static inline int do_set(gw_worker *worker, gw_keys keys, void *values, size_t n, gw_ticket *ret)
{
    return gw_worker_set(worker, keys, values, n, ret);
}

static inline int64_t stat_of(gw_params *params, const char *name)
{
    gw_params_stat stat;

    for (int i = 0; gw_params_stat_get(params, i, &stat) == 0; i++)
        if (strcmp(stat.name, name) == 0)
            return stat.value;
    return -1;
}

#endif
