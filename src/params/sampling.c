/* sampling.c - enabling sampling: looking at the wishes, agreeing, and the table of weights. */
#include "params/sampling.h"
#include "base/error.h"

#include <godwit/comm.h>

#include <math.h>
#include <stdlib.h>

#define MOST_POOL ((int64_t)1 << 24)
#define MOST_REUSE ((int64_t)1 << 32)

static const char *const scheme_names[] = {[GW_SAMPLING_NAIVE] = "naive",
                                           [GW_SAMPLING_PRELOC] = "preloc",
                                           [GW_SAMPLING_POOL] = "pool",
                                           [GW_SAMPLING_LOCAL] = "local"};

/* looking at the wishes */

static int check_range(const gw_params *params, int64_t min, int64_t max)
{
    int64_t n_keys = params->geometry.n_keys;

    if (max > n_keys)
        return gwi_fail(GW_ERANGE,
                        "max is %lld, but there are only %lld keys; max itself is not "
                        "drawn",
                        (long long)max, (long long)n_keys);
    if (min < 0)
        return gwi_fail(GW_ERANGE, "min is %lld; keys begin with 0", (long long)min);
    if (min >= max)
        return gwi_fail(GW_EINVAL,
                        "min is %lld and max is %lld, so no key is between them; max "
                        "itself is not drawn",
                        (long long)min, (long long)max);
    return 0;
}

static int check_pool(const gw_sampling_options *opt)
{
    if (opt->pool_size < 1 || opt->pool_size > MOST_POOL)
        return gwi_fail(GW_EINVAL, "pool_size is %lld; it must be from 1 to %lld",
                        (long long)opt->pool_size, (long long)MOST_POOL);
    if (opt->reuse < 1 || opt->reuse > MOST_REUSE)
        return gwi_fail(GW_EINVAL, "reuse is %lld; it must be from 1 to %lld",
                        (long long)opt->reuse, (long long)MOST_REUSE);
    if (opt->scheme == GW_SAMPLING_POOL && !opt->replacement)
        return gwi_fail(GW_EUNSUP, "replacement is off, but the scheme 'pool' uses keys several "
                                   "times; use 'preloc', 'naive' or 'local', or allow replacement");
    return 0;
}

static int check_choices(const gw_params *params, const gw_sampling_options *opt)
{
    if (opt == NULL)
        return gwi_fail(GW_EINVAL, "no options were given");
    if (opt->size_bytes < sizeof *opt)
        return gwi_fail(GW_EINVAL, "size_bytes is %zu; begin with GW_SAMPLING_OPTIONS_INIT",
                        opt->size_bytes);
    if (opt->scheme < GW_SAMPLING_NAIVE || opt->scheme > GW_SAMPLING_LOCAL)
        return gwi_fail(GW_EINVAL, "scheme is %d; it must be from %d to %d", opt->scheme,
                        GW_SAMPLING_NAIVE, GW_SAMPLING_LOCAL);
    if (opt->distribution < GW_DISTRIBUTION_UNIFORM || opt->distribution > GW_DISTRIBUTION_WEIGHTS)
        return gwi_fail(GW_EINVAL, "distribution is %d; it must be from %d to %d",
                        opt->distribution, GW_DISTRIBUTION_UNIFORM, GW_DISTRIBUTION_WEIGHTS);
    const gwi_sampling *had = atomic_load_explicit(&params->sampling, memory_order_acquire);
    if (had != NULL)
        return gwi_fail(GW_ESTATE,
                        "sampling is enabled already, with the scheme '%s'; open other "
                        "parameters for another",
                        scheme_names[had->scheme]);
    return check_pool(opt);
}

/* How many weights are above 0, or an error. */
static int64_t check_weights(const gw_sampling_options *opt, int64_t n)
{
    int64_t n_possible = 0;

    if (opt->weights == NULL)
        return gwi_fail(GW_EINVAL, "weights is NULL");
    if (opt->n_weights != (size_t)n)
        return gwi_fail(GW_EINVAL,
                        "weights has %zu entries, but there are %lld keys from min to "
                        "max; give one for each",
                        opt->n_weights, (long long)n);
    if ((uint64_t)n > GWI_ALIAS_MOST)
        return gwi_fail(GW_EUNSUP, "weights has %lld entries, and at most %llu are possible",
                        (long long)n, (unsigned long long)GWI_ALIAS_MOST);
    for (int64_t i = 0; i < n; i++) {
        if (!(opt->weights[i] >= 0) || isinf(opt->weights[i]))
            return gwi_fail(GW_EINVAL, "weights[%lld] is %g; weights are finite and not below 0",
                            (long long)i, opt->weights[i]);
        n_possible += opt->weights[i] > 0;
    }
    if (n_possible == 0)
        return gwi_fail(GW_EINVAL, "weights: all %lld are 0, so there is nothing to draw",
                        (long long)n);
    return n_possible;
}

static void find_lengths(gwi_sampling *sampling, const gwi_geometry *g)
{
    const gwi_distribution *d = &sampling->distribution;

    sampling->shortest = UINT64_MAX;
    for (uint64_t i = 0; i < (g->class_of == NULL ? 1 : d->n); i++) {
        uint64_t length = gwi_geometry_class(g, d->min + (int64_t)i)->length;
        sampling->shortest = length < sampling->shortest ? length : sampling->shortest;
        sampling->longest = length > sampling->longest ? length : sampling->longest;
    }
}

static int look_at(const gw_params *params, const gw_sampling_options *opt, gwi_sampling *sampling)
{
    int err = check_choices(params, opt);

    if (err < 0)
        return err;
    int64_t min = opt->min, max = opt->max == -1 ? params->geometry.n_keys : opt->max;
    err = check_range(params, min, max);
    if (err < 0)
        return err;
    *sampling = (gwi_sampling){
        .scheme = (gw_sampling_scheme)opt->scheme,
        .distribution = gwi_distribution_of((gw_distribution)opt->distribution, min, max),
        .replacement = opt->replacement != 0,
        .pool_size = (size_t)opt->pool_size,
        .reuse = (uint64_t)opt->reuse,
        .seed = opt->seed};
    find_lengths(sampling, &params->geometry);
    if (opt->distribution != GW_DISTRIBUTION_WEIGHTS)
        return opt->weights == NULL
                   ? 0
                   : gwi_fail(GW_EINVAL, "weights were given, and a distribution that has none");
    int64_t n_possible = check_weights(opt, max - min);
    sampling->distribution.n_possible = (uint64_t)n_possible;
    return n_possible < 0 ? (int)n_possible : 0;
}

/* agreeing */

/* What the ranks must agree on.  `valid` is 0 where the arguments were refused. */
struct card {
    int64_t valid, scheme, distribution, min, n, replacement, pool_size, reuse, seed, weights;
};

#define CARD_FIELDS (sizeof(struct card) / sizeof(int64_t))

static struct card card_of(const gwi_sampling *s, const gw_sampling_options *opt)
{
    const gwi_distribution *d = &s->distribution;
    uint64_t hash = gwi_hash_bytes(opt->weights, opt->n_weights * sizeof *opt->weights, 1);

    return (struct card){1,
                         s->scheme,
                         d->kind,
                         d->min,
                         (int64_t)d->n,
                         s->replacement,
                         opt->pool_size,
                         opt->reuse,
                         (int64_t)s->seed,
                         d->kind == GW_DISTRIBUTION_WEIGHTS ? (int64_t)hash : 0};
}

static int differs(int rank, const char *name, int64_t here, int64_t there)
{
    return gwi_fail(GW_EDISAGREE, "%s is %lld here and %lld on rank %d", name, (long long)here,
                    (long long)there, rank);
}

static int compare(int rank, const struct card *mine, const struct card *theirs)
{
    if (!theirs->valid)
        return gwi_fail(GW_EDISAGREE,
                        "rank %d was refused its arguments, so sampling is not "
                        "enabled",
                        rank);
    if (theirs->scheme != mine->scheme)
        return gwi_fail(GW_EDISAGREE, "scheme is '%s' here and '%s' on rank %d",
                        scheme_names[mine->scheme], scheme_names[theirs->scheme], rank);
    if (theirs->distribution != mine->distribution)
        return gwi_fail(GW_EDISAGREE, "distribution is not the same here and on rank %d", rank);
    if (theirs->min != mine->min)
        return differs(rank, "min", mine->min, theirs->min);
    if (theirs->n != mine->n)
        return differs(rank, "max", mine->min + mine->n, theirs->min + theirs->n);
    if (theirs->replacement != mine->replacement)
        return differs(rank, "replacement", mine->replacement, theirs->replacement);
    if (theirs->pool_size != mine->pool_size)
        return differs(rank, "pool_size", mine->pool_size, theirs->pool_size);
    if (theirs->reuse != mine->reuse)
        return differs(rank, "reuse", mine->reuse, theirs->reuse);
    if (theirs->seed != mine->seed)
        return differs(rank, "seed", mine->seed, theirs->seed);
    if (theirs->weights != mine->weights)
        return gwi_fail(GW_EDISAGREE, "weights are not the same here and on rank %d", rank);
    return 0;
}

/* All ranks come here, also those whose arguments were refused with `refused`. */
static int agree(gw_comm *comm, const struct card *mine, int refused)
{
    int size = gw_comm_size(comm);
    struct card *cards = calloc((size_t)size, sizeof *cards);

    if (cards == NULL)
        return gwi_fail(GW_ENOMEM, "enabling sampling with %d processes", size);
    /* The refusal's sentence is kept by calling nothing that fails. */
    int err = gw_comm_allgather(comm, mine, cards, CARD_FIELDS, GW_I64);
    if (refused < 0)
        err = refused;
    for (int r = 0; r < size && err == 0; r++)
        err = compare(gw_comm_world_rank(comm, r), mine, &cards[r]);
    free(cards);
    return err;
}

/* All ranks come here with what became of their part; who failed keeps its own error. */
static int agree_on_result(gw_comm *comm, int err)
{
    int32_t mine = err, worst = 0;
    int wait_err = gw_comm_allreduce(comm, &mine, &worst, 1, GW_I32, GW_MIN);

    if (err < 0 || wait_err < 0)
        return err < 0 ? err : wait_err;
    return worst < 0
               ? gwi_fail(worst, "another rank could not enable sampling: %s", gw_strerror(worst))
               : 0;
}

/* the table of weights */

/* On all ranks or on none: one node may lack memory that another has. */
static int make_table(gw_params *params, gwi_sampling *sampling, const double *weights,
                      gw_comm *comm)
{
    gwi_fabric *f = params->world->fabric;
    gwi_distribution *d = &sampling->distribution;
    size_t n_bytes = d->n * sizeof(gwi_alias_cell);
    int64_t deadline_ns = gwi_deadline_ns(params->world->job.timeout_ns);
    int err = gwi_fabric_segment_open(f, n_bytes, n_bytes, deadline_ns, &sampling->segment);

    if (err < 0)
        sampling->segment.base = NULL;
    d->cells = sampling->segment.base;
    if (err == 0 && f->place.local_rank == 0)
        err = gwi_alias_build(sampling->segment.base, weights, d->n);
    return agree_on_result(comm, err);
}

static void free_sampling(gw_params *params, gwi_sampling *sampling)
{
    gwi_fabric *f = params->world->fabric;

    if (sampling != NULL && sampling->segment.base != NULL)
        f->ops->segment_close(f, &sampling->segment);
    free(sampling);
}

int gw_params_enable_sampling(gw_params *params, const gw_sampling_options *opt)
{
    struct card card = {0};
    gw_comm *comm;
    int err = gwi_params_comm(params, &comm);

    if (err < 0)
        return err;
    gwi_sampling *sampling = calloc(1, sizeof *sampling);
    err = sampling != NULL ? look_at(params, opt, sampling)
                           : gwi_fail(GW_ENOMEM, "enabling sampling");
    if (err == 0)
        card = card_of(sampling, opt);
    err = agree(comm, &card, err);
    if (err == 0 && opt->distribution == GW_DISTRIBUTION_WEIGHTS)
        err = make_table(params, sampling, opt->weights, comm);
    if (err < 0) {
        free_sampling(params, sampling);
        return err;
    }
    /* pairs with gwi_sampling_of() */
    atomic_store_explicit(&params->sampling, sampling, memory_order_release);
    return 0;
}

void gwi_sampling_free(gw_params *params)
{
    free_sampling(params, atomic_exchange_explicit(&params->sampling, NULL, memory_order_relaxed));
}
