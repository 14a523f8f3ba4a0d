/* params.c - opening and closing parameters, and what can be asked of them. */
#include "params/params.h"
#include "base/error.h"
#include "base/thread.h"
#include "params/agent.h"
#include "params/clerk.h"
#include "params/inside.h"
#include "params/remote.h"
#include "params/sample.h"

#include <godwit/comm.h>

#include <assert.h>
#include <stdlib.h>

#define MAX_CHANNELS 16
#define TRAY_BYTES ((size_t)256 << 10) /* for what a worker has with agents at a time */

/* Of a vector, with several nodes.  Orders and notes give their bytes in 32 bits: an order takes up
 * to half a tray, which is two of the longest; a note has one vector and a little more. */
#define MOST_ROW_BYTES (((size_t)1 << 31) - GWI_STORE_ALIGN)

_Static_assert(MOST_ROW_BYTES % GWI_STORE_ALIGN == 0 && 2 * MOST_ROW_BYTES <= UINT32_MAX,
               "half of any tray can be one order");

/* agreeing */

/* What the ranks must agree on.  `valid` is 0 where the arguments were refused.  The last two
 * are what each has of the world's; with agree() they become what all have. */
struct card {
    int64_t valid, num_keys, lengths, dtype, workers, technique;
    int64_t openings, lanes;
};

#define CARD_FIELDS (sizeof(struct card) / sizeof(int64_t))

static int differ(int rank, const struct card *mine, const struct card *theirs)
{
    if (!theirs->valid)
        return gwi_fail(GW_EDISAGREE, "rank %d was refused its arguments, so nobody opens", rank);
    if (theirs->num_keys != mine->num_keys)
        return gwi_fail(GW_EDISAGREE, "num_keys is %lld here and %lld on rank %d",
                        (long long)mine->num_keys, (long long)theirs->num_keys, rank);
    if (theirs->lengths != mine->lengths)
        return gwi_fail(GW_EDISAGREE, "lengths are not the same here and on rank %d", rank);
    if (theirs->dtype != mine->dtype)
        return gwi_fail(GW_EDISAGREE, "dtype is not the same here and on rank %d", rank);
    if (theirs->workers != mine->workers)
        return gwi_fail(GW_EDISAGREE, "workers is %lld here and %lld on rank %d",
                        (long long)mine->workers, (long long)theirs->workers, rank);
    if (theirs->technique != mine->technique)
        return gwi_fail(GW_EDISAGREE, "technique is not the same here and on rank %d", rank);
    return 0;
}

/* All ranks come here, also those whose arguments were refused with `refused`. */
static int agree(gw_comm *comm, struct card *mine, int refused)
{
    int size = gw_comm_size(comm);
    struct card *cards = calloc((size_t)size, sizeof *cards);

    if (cards == NULL)
        return gwi_fail(GW_ENOMEM, "opening parameters with %d processes", size);
    /* The refusal's sentence is kept by calling nothing that fails. */
    int err = gw_comm_allgather(comm, mine, cards, CARD_FIELDS, GW_I64);
    if (refused < 0)
        err = refused;
    for (int r = 0; r < size && err == 0; r++)
        err = differ(gw_comm_world_rank(comm, r), mine, &cards[r]);
    for (int r = 0; r < size && err == 0; r++) {
        mine->openings = cards[r].openings > mine->openings ? cards[r].openings : mine->openings;
        mine->lanes |= cards[r].lanes;
    }
    free(cards);
    return err;
}

/* All ranks come here with what became of their part; who failed keeps its own error. */
static int agree_on_result(gw_comm *comm, int err)
{
    int32_t mine = err, worst = 0;
    int wait_err = gw_comm_allreduce(comm, &mine, &worst, 1, GW_I32, GW_MIN);

    if (err < 0)
        return err;
    if (wait_err < 0)
        return wait_err;
    return worst < 0 ? gwi_fail(worst, "another rank could not open the parameters: %s",
                                gw_strerror(worst))
                     : 0;
}

/* opening */

static int check_options(const gw_params_options *opt)
{
    if (opt->size_bytes < sizeof *opt)
        return gwi_fail(GW_EINVAL, "size_bytes is %zu; begin with GW_PARAMS_OPTIONS_INIT",
                        opt->size_bytes);
    if (opt->lengths == NULL)
        return gwi_fail(GW_EINVAL, "lengths is NULL; give one length, or one for each key");
    if (opt->workers < 1 || opt->workers > 4096)
        return gwi_fail(GW_EINVAL, "workers is %d; it must be from 1 to 4096", opt->workers);
    if (opt->technique < 0 || opt->technique >= GWI_N_TECHNIQUES)
        return gwi_fail(GW_EINVAL, "technique is %d; it must be from 0 to %d", opt->technique,
                        GWI_N_TECHNIQUES - 1);
    return 0;
}

static int has_agents(const gw_params *params)
{
    return params->world->fabric->place.nodes > 1;
}

static const gwi_length_class *longest_class(const gwi_geometry *g)
{
    const gwi_length_class *longest = g->classes;

    for (uint32_t c = 1; c < g->n_classes; c++)
        longest = g->classes[c].row_bytes > longest->row_bytes ? &g->classes[c] : longest;
    return longest;
}

static int check_rows(const gwi_geometry *g)
{
    const gwi_length_class *longest = longest_class(g);

    if (longest->row_bytes <= MOST_ROW_BYTES)
        return 0;
    return gwi_fail(GW_EINVAL,
                    "lengths has %llu; with several nodes a vector has at most %zu entries of %zu "
                    "bytes: give longer ones several keys",
                    (unsigned long long)longest->length, MOST_ROW_BYTES / g->item_bytes,
                    g->item_bytes);
}

static size_t round_up(size_t n)
{
    return (n + GWI_STORE_ALIGN - 1) / GWI_STORE_ALIGN * GWI_STORE_ALIGN;
}

static size_t hands_at(const gw_params *params)
{
    return sizeof(gwi_hall) + (size_t)gwi_all_seats(params) * sizeof(gwi_seat);
}

static size_t slots_at(const gw_params *params)
{
    return round_up(hands_at(params) + (size_t)params->n_channels * sizeof(gwi_hand));
}

static size_t trays_at(const gw_params *params)
{
    return slots_at(params) + round_up((size_t)params->n_channels * sizeof(gwi_slot));
}

static size_t store_at(const gw_params *params)
{
    return has_agents(params)
               ? trays_at(params) + (size_t)gwi_all_seats(params) * params->tray_bytes
               : slots_at(params);
}

static size_t vectors_bytes(const gw_params *params)
{
    return has_agents(params) ? gwi_local_bytes(&params->geometry, &params->spread)
                              : gwi_store_bytes(&params->geometry);
}

/* Half a tray holds any one vector. */
static void size_trays(gw_params *params)
{
    size_t longest = longest_class(&params->geometry)->row_bytes;

    params->tray_bytes = round_up(4 * longest > TRAY_BYTES ? 4 * longest : TRAY_BYTES);
}

/* A channel for each process that every node has. */
static void count_channels(gw_params *params)
{
    const gwi_fabric *f = params->world->fabric;
    int least = f->place.size;

    for (int r = 0; r < f->place.size; r++) {
        gwi_place place = gwi_fabric_place(f, r);
        least = place.local_size < least ? place.local_size : least;
    }
    params->n_channels = !has_agents(params) ? 0 : least < MAX_CHANNELS ? least : MAX_CHANNELS;
    params->spread = gwi_spread_of(f->place.node, f->place.nodes,
                                   params->n_channels > 0 ? params->n_channels : 1);
}

/* A lane that no rank uses. */
static int take_lane(gw_params *params, const struct card *card)
{
    gw_world *world = params->world;
    int lane = GWI_LANE_PARAMS;

    while (lane < GWI_N_LANES && (card->lanes >> lane & 1))
        lane++;
    if (lane == GWI_N_LANES)
        return gwi_fail(GW_EUNSUP,
                        "%d parameters are open, and with several nodes that is all; close some",
                        GWI_N_LANES - GWI_LANE_PARAMS);
    params->lane = lane;
    atomic_fetch_or(&world->params_lanes, (int64_t)1 << lane);
    return 0;
}

/* After its agent has ended. */
static void give_lane_back(gw_params *params)
{
    atomic_fetch_and(&params->world->params_lanes, ~((int64_t)1 << params->lane));
}

/* Which rank of the world is which of the node. */
static void find_ranks(gw_params *params)
{
    const gwi_fabric *f = params->world->fabric;

    for (int r = 0; r < f->place.size; r++) {
        gwi_place place = gwi_fabric_place(f, r);
        if (place.node == f->place.node)
            params->ranks[place.local_rank] = r;
    }
}

static int share_memory(gw_params *params)
{
    gwi_fabric *f = params->world->fabric;
    size_t store_bytes = vectors_bytes(params);

    /* All ranks have the same numbers here, so all are refused or none. */
    if (store_bytes == 0 || store_bytes > PTRDIFF_MAX - store_at(params))
        return gwi_fail(GW_ENOMEM, "the vectors of %lld keys need more memory than there is",
                        (long long)params->geometry.n_keys);
    return gwi_fabric_segment_open(f, store_at(params) + store_bytes,
                                   store_at(params) + (has_agents(params) ? 0 : store_bytes),
                                   gwi_deadline_ns(params->world->job.timeout_ns),
                                   &params->segment);
}

/* With several nodes memory comes with the vectors. */
static int need(void *ctx, size_t at, size_t n_bytes)
{
    const gw_params *params = ctx;
    gwi_fabric *f = params->world->fabric;

    return f->ops->segment_need(f, &params->segment, store_at(params) + at, n_bytes);
}

static int make_vectors(gw_params *params, void *memory, size_t n_bytes)
{
    int err;

    if (!has_agents(params))
        return gwi_store_init(&params->store, &params->geometry, &params->spread, memory, n_bytes);
    err = gwi_local_needs(&params->geometry, &params->spread, need, params);
    if (err < 0)
        return err;
    err = gwi_local_init(&params->local, &params->geometry, &params->spread, memory, n_bytes);
    params->store = params->local.store;
    return err;
}

static int find_vectors(gw_params *params, void *memory, size_t n_bytes)
{
    int err;

    if (!has_agents(params))
        return gwi_store_attach(&params->store, &params->geometry, memory, n_bytes);
    err = gwi_local_attach(&params->local, &params->geometry, &params->spread, memory);
    params->store = params->local.store;
    return err;
}

static void forget_vectors(gw_params *params)
{
    if (has_agents(params))
        gwi_local_fini(&params->local);
    else
        gwi_store_fini(&params->store);
}

/* The first process of the node fills the memory, then the others look. */
static int fill_memory(gw_params *params, gw_comm *comm)
{
    gwi_fabric *f = params->world->fabric;
    unsigned char *base = params->segment.base;
    size_t at = store_at(params), n_bytes = params->segment.n_bytes - at;
    int err = 0;

    params->hall = (gwi_hall *)(void *)base;
    params->seats = (gwi_seat *)(void *)(base + sizeof(gwi_hall));
    params->agent_hands = (gwi_hand *)(void *)(base + hands_at(params));
    params->slots = (gwi_slot *)(void *)(base + slots_at(params));
    params->trays = base + trays_at(params);
    if (f->place.local_rank == 0) {
        gwi_clerk_seat_all(params);
        err = make_vectors(params, base + at, n_bytes);
    }
    err = agree_on_result(comm, err);
    if (err == 0 && f->place.local_rank != 0)
        err = find_vectors(params, base + at, n_bytes);
    err = agree_on_result(comm, err);
    if (err < 0)
        forget_vectors(params);
    return err;
}

static int open_on(gw_params *params, const gw_params_options *opt, gw_comm *comm)
{
    gwi_fabric *f = params->world->fabric;
    int err = check_options(opt);

    if (err == 0)
        err = gwi_geometry_init(&params->geometry, opt->num_keys, opt->lengths, opt->n_lengths,
                                opt->dtype);
    if (err == 0 && has_agents(params))
        err = check_rows(&params->geometry);
    struct card card = {0};
    if (err == 0)
        card = (struct card){1,
                             opt->num_keys,
                             (int64_t)params->geometry.hash,
                             (int64_t)opt->dtype,
                             opt->workers,
                             opt->technique,
                             atomic_load(&params->world->params_openings),
                             atomic_load(&params->world->params_lanes)};
    err = agree(comm, &card, err);
    if (err < 0)
        goto fini_geometry;

    params->opening = (uint64_t)card.openings + 1;
    atomic_store(&params->world->params_openings, card.openings + 1);
    if (has_agents(params) && (err = take_lane(params, &card)) < 0)
        goto fini_geometry;
    params->workers_each = opt->workers;
    params->n_seats = opt->workers * f->place.local_size;
    params->workers = calloc((size_t)opt->workers, sizeof(gw_worker *));
    params->ranks = calloc((size_t)f->place.local_size, sizeof *params->ranks);
    err = params->workers == NULL || params->ranks == NULL
              ? gwi_fail(GW_ENOMEM, "opening parameters for %d workers", opt->workers)
              : 0;
    err = agree_on_result(comm, err);
    if (err < 0)
        goto free_lists;
    find_ranks(params);
    size_trays(params);
    count_channels(params);
    err = share_memory(params);
    if (err < 0)
        goto free_lists;
    err = fill_memory(params, comm);
    if (err < 0)
        goto close_segment;
    return 0;

close_segment:
    f->ops->segment_close(f, &params->segment);
free_lists:
    free(params->ranks);
    free(params->workers);
    give_lane_back(params);
fini_geometry:
    gwi_geometry_fini(&params->geometry);
    return err;
}

/* Give back what this process has of it; its workers are closed or freed. */
static void free_params(gw_params *params)
{
    gwi_fabric *f = params->world->fabric;

    gwi_clerk_free(params);
    gwi_agent_join(params->agent);
    gwi_inside_close(params); /* with its last figures */
    gwi_agent_free(params->agent);
    give_lane_back(params);
    gwi_pages_stop(&params->pages);
    gwi_sampling_free(params);
    forget_vectors(params);
    f->ops->segment_close(f, &params->segment);
    pthread_mutex_destroy(&params->lock);
    free(params->ranks);
    free(params->workers);
    gwi_geometry_fini(&params->geometry);
    free(params);
}

int gw_params_open(gw_world *world, const gw_params_options *opt, gw_params **ret_params)
{
    gw_comm *comm;
    int err = gw_comm_world(world, &comm);

    if (err < 0)
        return err;
    gw_params *params = calloc(1, sizeof *params);
    if (params == NULL)
        return gwi_fail(GW_ENOMEM, "opening parameters");
    params->world = world;
    params->generation = gwi_fork_generation();
    err = open_on(params, opt, comm);
    if (err < 0) {
        free(params);
        return err;
    }
    pthread_mutex_init(&params->lock, NULL);
    err = gwi_agent_start(params, (gwi_technique)opt->technique);
    if (err == 0)
        err = gwi_inside_open(params);
    err = agree_on_result(comm, err);
    if (err < 0) {
        free_params(params);
        return err;
    }
    if (world->fabric->place.local_rank == 0)
        gwi_pages_start(&params->pages, params->segment.base, params->segment.n_bytes,
                        world->fabric->place.nodes > 1);
    *ret_params = params;
    return 0;
}

/* No barrier waits for workers that were never taken. */
static void leave_seats(gw_params *params)
{
    gwi_seat *mine = &params->seats[params->world->fabric->place.local_rank * params->workers_each];

    for (int i = 0; i < params->workers_each; i++)
        atomic_store_explicit(&mine[i].barriers, GWI_SEAT_GONE, memory_order_seq_cst);
    gwi_bell_ring(&params->hall->bell);
}

int gw_params_close(gw_params *params)
{
    gw_comm *comm;
    int err;

    if (params == NULL)
        return 0;
    err = gwi_params_check_process(params);
    if (err < 0)
        return err; /* the parent's; leave it alone */
    for (int i = 0; i < params->workers_each; i++)
        gw_worker_close(params->workers[i]);
    leave_seats(params);
    gwi_pages_stop(&params->pages);
    assert(params->n_seats > 1 || has_agents(params) || gwi_store_valid(&params->store));
    err = gw_comm_world(params->world, &comm);
    if (err == 0)
        err = gw_comm_barrier(comm);
    free_params(params);
    return err;
}

void gw_params_abandon(gw_params *params)
{
    if (params == NULL || gwi_params_check_process(params) < 0)
        return;
    /* Their seats stay taken: who waits for them shall hear that they will not come. */
    for (int i = 0; i < params->workers_each; i++)
        if (params->workers[i] != NULL) {
            gwi_remote_close(params->workers[i]);
            gwi_sampler_free(params->workers[i]);
            gwi_track_close(params->workers[i]->track);
            free(params->workers[i]);
        }
    free_params(params);
}

/* asking */

int gwi_params_check_process(const gw_params *params)
{
    if (gwi_likely(params->generation == gwi_fork_generation()))
        return 0;
    return gwi_fail(GW_ESTATE, "these parameters belong to the process that forked this one; open "
                               "them in the child, in a job of its own");
}

int gwi_params_comm(const gw_params *params, gw_comm **ret_comm)
{
    int err = gwi_params_check_process(params);

    return err < 0 ? err : gw_comm_world(params->world, ret_comm);
}

static int bad_key(const gw_params *params, gw_keys keys)
{
    for (size_t i = 0; i < keys.n; i++)
        if (keys.key[i] < 0 || keys.key[i] >= params->geometry.n_keys)
            return gwi_fail(GW_ERANGE, "keys[%zu] is %lld; keys go from 0 to %lld", i,
                            (long long)keys.key[i], (long long)params->geometry.n_keys - 1);
    return gwi_fail(GW_ERANGE, "keys changed while they were looked at");
}

int gwi_params_check_keys(const gw_params *params, gw_keys keys)
{
    uint64_t n_keys = (uint64_t)params->geometry.n_keys;
    int bad = 0;

    if (gwi_unlikely(keys.key == NULL && keys.n > 0))
        return gwi_fail(GW_EINVAL, "keys is NULL, with n %zu", keys.n);
    for (size_t i = 0; i < keys.n; i++)
        bad |= (uint64_t)keys.key[i] >= n_keys;
    return gwi_likely(!bad) ? 0 : bad_key(params, keys);
}

int64_t gw_params_num_keys(const gw_params *params)
{
    return params->geometry.n_keys;
}

gw_dtype gw_params_dtype(const gw_params *params)
{
    return params->geometry.dtype;
}

int64_t gw_params_length(const gw_params *params, int64_t key)
{
    if (key < 0 || key >= params->geometry.n_keys)
        return gwi_fail(GW_ERANGE, "key is %lld; keys go from 0 to %lld", (long long)key,
                        (long long)params->geometry.n_keys - 1);
    return (int64_t)gwi_geometry_class(&params->geometry, key)->length;
}

int64_t gw_params_entries(const gw_params *params, gw_keys keys)
{
    int err = gwi_params_check_keys(params, keys);

    return err < 0 ? err : (int64_t)gwi_geometry_entries(&params->geometry, keys.key, keys.n);
}
