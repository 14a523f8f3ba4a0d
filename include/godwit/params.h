/* params.h - keyed model parameters: vectors that the workers of a job read and change.
 *
 * Owning   gw_params_open() and gw_params_worker() give to the caller, their close takes
 *          back.  Arrays are borrowed for the call; those of a pull, push or set that is
 *          not done when it returns, until its ticket is waited for.
 * Failing  Results below zero are a gw_err.  A bad argument is refused before anything
 *          changes: GW_ERANGE a key, GW_EINVAL a number of values, GW_ETYPE a type.  If a
 *          wait fails (GW_EPEER, GW_ETIMEOUT, GW_EINTR), part of the call may be done.
 * Threads  A gw_params serves any thread; a gw_worker one thread at a time, not always
 *          the same.
 * Forking  Both are dead in a forked child, where calls fail with GW_ESTATE.          */
#ifndef GODWIT_PARAMS_H
#define GODWIT_PARAMS_H

#include <godwit/base.h>
#include <godwit/dtype.h>
#include <godwit/world.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_params gw_params;
typedef struct gw_worker gw_worker;

/* When something that was started is done.  A plain value, nothing to free. */
typedef struct gw_ticket {
    int64_t seq; /* -1: it was done when the call returned */
} gw_ticket;

/* Keys of a call, any number of times each. */
typedef struct gw_keys {
    const int64_t *key;
    size_t n;
} gw_keys;

/* How intents are met: by moving keys and by replicas, as fits; the others are for study. */
typedef enum gw_technique {
    GW_TECHNIQUE_ALL,
    GW_TECHNIQUE_REPLICATION,
    GW_TECHNIQUE_RELOCATION,
    GW_TECHNIQUE_STATIC
} gw_technique;

typedef struct gw_params_options {
    size_t size_bytes;      /* sizeof(gw_params_options), so that it can grow */
    int64_t num_keys;       /* keys are 0 to num_keys - 1 */
    const int64_t *lengths; /* of the vectors, in entries; with several nodes each is shorter than
                             * 2 GiB.  Borrowed for the call */
    size_t n_lengths;       /* 1: all have the first; else num_keys */
    gw_dtype dtype;         /* GW_F32 or GW_F64 */
    int workers;            /* of each process; barriers count them all from the start */
    int technique;          /* a gw_technique */
} gw_params_options;
/* clang-format off */
#define GW_PARAMS_OPTIONS_INIT {sizeof(gw_params_options), 0, NULL, 0, GW_F32, 1, GW_TECHNIQUE_ALL}
/* clang-format on */

/* Collective: every process of `world` calls it with the same arguments, or all get
 * GW_EDISAGREE.  All vectors are zero.  The world outlives the parameters. */
GW_API int gw_params_open(gw_world *world, const gw_params_options *opt, gw_params **ret_params);

/* Collective, after the workers of this process were closed; NULL is fine.  A process that
 * leaves the world without it counts as dead for those that go on.  It is closed even if
 * the wait for the others fails, as the result then says. */
GW_API int gw_params_close(gw_params *params);

/* Not collective: for a process that cannot wait for the others, because it failed or is
 * about to leave the world.  Those that wait for its workers do so until it has left.  NULL
 * is fine. */
GW_API void gw_params_abandon(gw_params *params);

GW_API int64_t gw_params_num_keys(const gw_params *params);
GW_API gw_dtype gw_params_dtype(const gw_params *params);

/* The length of a key's vector, or GW_ERANGE. */
GW_API int64_t gw_params_length(const gw_params *params, int64_t key);

/* How many entries the vectors of these keys have together, or an error: what a pull of
 * them needs. */
GW_API int64_t gw_params_entries(const gw_params *params, gw_keys keys);

/* What this process counted.  A number `index` from 0 on; GW_ERANGE past the last. */
typedef struct gw_params_stat {
    const char *name; /* "keys_pulled" */
    const char *help;
    int64_t value;
} gw_params_stat;

GW_API int gw_params_stat_get(gw_params *params, int index, gw_params_stat *ret_stat);

/* Its name alone, which is the same in all processes; NULL past the last. */
GW_API const char *gw_params_stat_name(int index);

/* All of these numbers, in this order, counted together: what the agent says is of one moment.  It
 * may wait for the agent's turn to end.  Fills up to `n`, and returns how many there are. */
GW_API int gw_params_stats_own(gw_params *params, int64_t *ret_values, int n);

/* The same over all processes: sums, but the largest of rates and times; what processes share
 * counts once.  Collective. */
GW_API int gw_params_stats_total(gw_params *params, int64_t *ret_values, int n);

/* The next worker of this process; GW_ESTATE if it has had all that it was opened with. */
GW_API int gw_params_worker(gw_params *params, gw_worker **ret_worker);

/* The worker's operations are done first.  Barriers count it no longer.  It is closed even if
 * its wait fails, as the result then says.  NULL is fine. */
GW_API int gw_worker_close(gw_worker *worker);

/* Read, add to, or assign the vectors of `keys`.  `values` holds them in the order of the
 * keys, one after the other, `n_values` entries in all, dense.  A key that occurs several
 * times is read for each, added for each; of several assignments the last stays.  A pull
 * never shows part of a change.  Operations of one worker on one key take effect in the
 * order of the calls.  If `ret_ticket` is NULL the call returns when it is done. */
GW_API int gw_worker_pull(gw_worker *worker, gw_keys keys, void *values, size_t n_values,
                          gw_ticket *ret_ticket);
GW_API int gw_worker_push(gw_worker *worker, gw_keys keys, const void *values, size_t n_values,
                          gw_ticket *ret_ticket);
GW_API int gw_worker_set(gw_worker *worker, gw_keys keys, const void *values, size_t n_values,
                         gw_ticket *ret_ticket);

/* Bring keys to this worker's node.  Done when each has been here. */
GW_API int gw_worker_localize(gw_worker *worker, gw_keys keys, gw_ticket *ret_ticket);

/* Announce that this worker will use `keys` in clocks [start, end).  A hint: it moves data
 * earlier, it never changes what a later pull returns. */
GW_API int gw_worker_intent(gw_worker *worker, gw_keys keys, int64_t start, int64_t end);

/* Wait until all updates that were completed on this node are with their owners, replicas here
 * hold at least what their owners had at the call, and this worker's due intents have been
 * acted on. */
GW_API int gw_worker_wait_sync(gw_worker *worker);

/* Around initial assignments: wait_sync and barrier; and wait_sync, barrier, wait_sync, barrier
 * and barrier, between the last two of which statistics begin at 0. */
GW_API int gw_worker_begin_setup(gw_worker *worker);
GW_API int gw_worker_end_setup(gw_worker *worker);

/* Wait until what has this ticket is done, or all that this worker started. */
GW_API int gw_worker_wait(gw_worker *worker, gw_ticket ticket);
GW_API int gw_worker_wait_all(gw_worker *worker);

/* 1 if what has this ticket is done, else 0, without waiting. */
GW_API int gw_worker_is_done(gw_worker *worker, gw_ticket ticket);

/* The worker's clock, which starts at 0. */
GW_API int gw_worker_advance_clock(gw_worker *worker);
GW_API int64_t gw_worker_clock(const gw_worker *worker);

/* Collective: returns when every worker of every process has called it or was closed.  If it
 * fails, for example by time-out, this worker still counts as arrived: calling it again
 * continues the same wait. */
GW_API int gw_worker_barrier(gw_worker *worker);

/* `ret_local[i]` becomes 1 if a pull of key i needs no message now, else 0.  If some do, and
 * announced keys are on their way here, it helps them to come first, for about 0.2 ms.  If some
 * do and nobody serves this process's share of the keys any more, for example because a rank died,
 * it fails: they will not come. */
GW_API int gw_worker_is_local(gw_worker *worker, gw_keys keys, uint8_t *ret_local);

/* Sampling: pulling keys that chance chooses, such as the negatives of a training step.
 *
 * Every worker prepares a sample, pulls it, at once or in portions, and is done with it.  How
 * samples are drawn and brought here is a scheme, chosen once for all workers:
 *
 *   naive   The keys are pulled from wherever they are.
 *   preloc  They are drawn when the sample is prepared, and announced, so that they are here
 *           when they are pulled.
 *   pool    The same, from a pool of keys of which each is used several times.  So fewer have
 *           to come here, but draws depend on each other.
 *   local   Only keys are drawn that are on this node when they are pulled: nothing has to
 *           come here, but the others are never drawn. */
typedef enum gw_sampling_scheme {
    GW_SAMPLING_NAIVE,
    GW_SAMPLING_PRELOC,
    GW_SAMPLING_POOL,
    GW_SAMPLING_LOCAL
} gw_sampling_scheme;

/* Of the keys from `min` to `max` - 1: all alike; key min + i with probability
 * log((i + 2) / (i + 1)) / log(max - min + 1); or in proportion to weights. */
typedef enum gw_distribution {
    GW_DISTRIBUTION_UNIFORM,
    GW_DISTRIBUTION_LOG_UNIFORM,
    GW_DISTRIBUTION_WEIGHTS
} gw_distribution;

typedef struct gw_sampling_options {
    size_t size_bytes;     /* sizeof(gw_sampling_options), so that it can grow */
    int scheme;            /* a gw_sampling_scheme */
    int distribution;      /* a gw_distribution */
    const double *weights; /* of weights: max - min of them; borrowed for the call */
    size_t n_weights;
    int64_t min, max;  /* `max` is not among them; -1: the number of keys */
    int replacement;   /* 0: the keys of a sample differ from each other; not with a pool */
    int64_t pool_size; /* of a pool: keys in it */
    int64_t reuse;     /* of a pool: how often each of them is used */
    uint64_t seed;
} gw_sampling_options;
/* clang-format off */
#define GW_SAMPLING_OPTIONS_INIT {sizeof(gw_sampling_options), GW_SAMPLING_PRELOC, GW_DISTRIBUTION_UNIFORM, NULL, 0, 0, -1, 1, 250, 16, 0}
/* clang-format on */

/* Collective, once: every process calls it with the same arguments, or all get GW_EDISAGREE.  Of
 * weights the node's processes share a table of 8 bytes each.  With `opt` NULL it is refused
 * everywhere: for a process that cannot take part. */
GW_API int gw_params_enable_sampling(gw_params *params, const gw_sampling_options *opt);

/* A sample of one worker.  A plain value; what it stands for is freed when all its keys have been
 * pulled, when it is finished, or with the worker. */
typedef struct gw_sample {
    int64_t id; /* from 1 on */
} gw_sample;

/* Clocks from `start` to `end` - 1. */
typedef struct gw_clocks {
    int64_t start, end;
} gw_clocks;

/* Prepare a sample of `n` keys.  With the schemes preloc and pool, they are announced for `when`,
 * as an intent is; if `when` is NULL they are brought here now, as localize does, without
 * waiting.  The keys of a sample depend on the seed, the worker (its process's rank and its
 * number there) and how many it has prepared before, in a pool also on how large these were; with
 * local on where keys are, and in which portions they are pulled. */
GW_API int gw_worker_prepare_sample(gw_worker *worker, size_t n, const gw_clocks *when,
                                    gw_sample *ret_sample);

/* Pull the next `n_keys` of it: writes the keys, and their vectors as a pull does.  If the vectors
 * from `min` to `max` differ in length, `values` has room for n_keys of the longest, and what is
 * not needed stays as it is.  With local it is GW_ESTATE if there are not enough keys here; then,
 * and if a wait fails, keys may have been written to. */
GW_API int gw_worker_pull_sample(gw_worker *worker, gw_sample sample, int64_t *ret_keys,
                                 size_t n_keys, void *values, size_t n_values,
                                 gw_ticket *ret_ticket);

/* What has not been pulled is not wanted.  Of a sample that is used up or finished, nothing
 * happens. */
GW_API int gw_worker_finish_sample(gw_worker *worker, gw_sample sample);
/* checkpoints
 *
 * A checkpoint is a directory: checkpoint.json, which lists and describes its parts, and in a
 * directory beside it the parts, safetensors files that any program can open.  docs/params.md
 * has the format. */

typedef struct gw_checkpoint gw_checkpoint;

/* Write all vectors into `dir`, which is made if there is none and which all nodes share.
 * Collective: all processes give the same arguments.  `meta` is a JSON object as text that is
 * kept with it (NULL: "{}").  Each key is saved as it was at one moment during the call; all
 * that was completed before it is in.  Until the new checkpoint is complete and on disk, the
 * one that was there stays, whoever is killed when.  If it fails, it fails everywhere, and the
 * one that was there is untouched.  GW_ESYS: a file could not be written, such as on a full
 * disk.  GW_ESTATE: another job saves there, or another thread of this process. */
GW_API int gw_params_save(gw_params *params, const char *dir, const char *meta);

/* Set all vectors to those of the checkpoint in `dir`, which may have been saved by any number
 * of processes and nodes.  Collective.  Everything is checked before anything is set:
 * GW_EINVAL says which file is damaged or truncated, or that the checkpoint is of other
 * parameters; GW_ESYS which one cannot be read.  Then nothing has changed on any rank.
 * `ret_checkpoint` (or NULL) is the caller's, to be asked for its meta data and closed. */
GW_API int gw_params_load(gw_params *params, const char *dir, gw_checkpoint **ret_checkpoint);

/* Look at a checkpoint, without parameters and by this process alone. */
GW_API int gw_checkpoint_open(const char *dir, gw_checkpoint **ret_checkpoint);
GW_API void gw_checkpoint_close(gw_checkpoint *checkpoint); /* NULL is fine */

/* checkpoint.json, and in it the `meta` that was given.  Borrowed until close. */
GW_API const char *gw_checkpoint_text(const gw_checkpoint *checkpoint);
GW_API const char *gw_checkpoint_meta(const gw_checkpoint *checkpoint);

/* Read a part, in the order of the list and from 0 on, and compare its checksum.  0 if it is
 * whole, else what is wrong with it; GW_ERANGE past the last. */
GW_API int gw_checkpoint_check(const gw_checkpoint *checkpoint, int part);

#ifdef __cplusplus
}
#endif
#endif
