/* checkpoint_test.h - jobs that save and load: whose values are known from a number alone. */
#ifndef GWI_PARAMS_CHECKPOINT_TEST_H
#define GWI_PARAMS_CHECKPOINT_TEST_H

#include "base/hash.h"
#include "params/params_test.h"

#include <dirent.h>
#include <ftw.h>
#include <sys/stat.h>

#define MOST_VALUES 65536

/* Sanitizers make it slow, and get less to do. */
#if GWI_TSAN || defined(__SANITIZE_ADDRESS__)
#define LIGHT 1
#else
#define LIGHT 0
#endif

/* What the processes of a test need to know; set before they are forked. */
static struct setting {
    char dir[128];
    int node_size;
    int64_t n_keys;
    int64_t lengths[4]; /* key k has number k % n_lengths */
    int n_lengths;
    gw_dtype dtype;
    int state; /* of the values that are saved, or expected */
} setting;

static inline void new_directory(void)
{
    snprintf(setting.dir, sizeof setting.dir, "/tmp/gw-checkpoint-XXXXXX");
    assert_non_null(mkdtemp(setting.dir));
}

static inline int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

/* All files in it, and it. */
static inline void remove_directory(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* How many entries of a directory begin so. */
static inline int count_entries(const char *path, const char *prefix)
{
    DIR *list = opendir(path);
    int n = 0;

    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;)
        n += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    if (list != NULL)
        closedir(list);
    return n;
}

static inline gw_world *join_nodes(const struct processes *all, int rank)
{
    gw_world_options opt = GW_WORLD_OPTIONS_INIT;
    gw_world *world;

    opt.rank = rank;
    opt.size = all->n;
    opt.job = all->job;
    opt.node_size = setting.node_size;
    opt.timeout_s = 60;
    REQUIRE(gw_world_join(&opt, &world) == 0);
    return world;
}

static inline int64_t length_of(int64_t key)
{
    return setting.lengths[key % setting.n_lengths];
}

static inline gw_params *open_setting(gw_world *world)
{
    gw_params_options opt = GW_PARAMS_OPTIONS_INIT;
    int64_t *lengths = calloc((size_t)setting.n_keys, sizeof *lengths);
    gw_params *params;

    REQUIRE(lengths != NULL);
    for (int64_t key = 0; key < setting.n_keys; key++)
        lengths[key] = length_of(key);
    opt.num_keys = setting.n_keys;
    opt.lengths = lengths;
    opt.n_lengths = setting.n_lengths == 1 ? 1 : (size_t)setting.n_keys;
    opt.dtype = setting.dtype;
    REQUIRE(gw_params_open(world, &opt, &params) == 0);
    free(lengths);
    return params;
}

/* The entry `i` of a key in a state, as bits that are no round number. */
static inline double value_of(int64_t key, int64_t i, int state)
{
    double value = (double)(gwi_hash_u64((uint64_t)(key * 1000003 + i * 97 + state)) >> 11);

    return setting.dtype == GW_F32 ? (double)(float)(value * 1e-12) : value * 1e-12;
}

static inline void make_values(int64_t key, int state, void *ret_values)
{
    for (int64_t i = 0; i < length_of(key); i++)
        if (setting.dtype == GW_F32)
            ((float *)ret_values)[i] = (float)value_of(key, i, state);
        else
            ((double *)ret_values)[i] = value_of(key, i, state);
}

static inline size_t value_bytes(int64_t key)
{
    return (size_t)length_of(key) * (setting.dtype == GW_F32 ? 4 : 8);
}

#define MOST_KEYS 1024

/* As many keys as fit, from `*next` on, every `stride`-th; with their values in a state, or, if
 * it is 0, with zeros.  Keys one by one would mean a message each. */
struct batch {
    int64_t keys[MOST_KEYS];
    size_t n, n_values, n_bytes;
    _Alignas(8) unsigned char values[8 * MOST_VALUES];
};

static inline int next_batch(struct batch *b, int64_t *next, int64_t stride, int state)
{
    b->n = b->n_values = b->n_bytes = 0;
    for (; *next < setting.n_keys && b->n < MOST_KEYS &&
           b->n_values + (size_t)length_of(*next) <= MOST_VALUES;
         *next += stride) {
        if (state != 0)
            make_values(*next, state, b->values + b->n_bytes);
        else
            memset(b->values + b->n_bytes, 0, value_bytes(*next));
        b->keys[b->n++] = *next;
        b->n_values += (size_t)length_of(*next);
        b->n_bytes += value_bytes(*next);
    }
    return b->n > 0;
}

/* Each process a share of the keys. */
static inline int try_state(gw_worker *worker, const struct processes *all, int rank, int state)
{
    static struct batch b;
    int err = gw_worker_begin_setup(worker);

    for (int64_t next = rank; err == 0 && next_batch(&b, &next, all->n, state);)
        err = gw_worker_set(worker, (gw_keys){b.keys, b.n}, b.values, b.n_values, NULL);
    return err < 0 ? err : gw_worker_end_setup(worker);
}

static inline void set_state(gw_worker *worker, const struct processes *all, int rank, int state)
{
    REQUIRE(try_state(worker, all, rank, state) == 0);
}

/* Every process sees all of it, bit by bit; 0: as they were opened. */
static inline void expect_state(gw_worker *worker, int state)
{
    static struct batch b;
    static _Alignas(8) unsigned char found[8 * MOST_VALUES];

    for (int64_t next = 0; next_batch(&b, &next, 1, state);) {
        REQUIRE(gw_worker_pull(worker, (gw_keys){b.keys, b.n}, found, b.n_values, NULL) == 0);
        REQUIRE(memcmp(found, b.values, b.n_bytes) == 0);
    }
}

static inline int save_state(gw_params *params, int state)
{
    char meta[64];

    snprintf(meta, sizeof meta, "{\"state\": %d}", state);
    return gw_params_save(params, setting.dir, meta);
}

/* The state that was saved, by its meta data. */
static inline int loaded_state(const gw_checkpoint *checkpoint)
{
    int state = -1;

    REQUIRE(sscanf(gw_checkpoint_meta(checkpoint), "{\"state\": %d}", &state) == 1);
    return state;
}

#endif
