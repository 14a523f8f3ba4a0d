/* group.c - communicators, and the order in which their collectives go. */
#include "comm/group.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/thread.h"
#include "comm/mail.h"
#include "comm/native.h"
#include "comm/reduce.h"
#include "comm/window.h"
#include "comm/world.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SETUP_CONTEXT 0 /* of messages by which groups are made */
#define WORLD_CONTEXT 1

const char *gwi_comm_doing(const gw_comm *comm)
{
    return gwi_collective_name(comm->call.kind);
}

/* making */

static void free_group(gw_comm *comm)
{
    if (comm == NULL)
        return;
    gwi_plan_fini(&comm->plan);
    pthread_mutex_destroy(&comm->lock);
    pthread_cond_destroy(&comm->free_again);
    free(comm->cards);
    free(comm->ranks);
    free(comm);
}

static int new_group(gw_world *world, const int *ranks, int size, gw_comm **ret_comm)
{
    gw_comm *comm = calloc(1, sizeof *comm);

    if (comm == NULL)
        return gwi_fail(GW_ENOMEM, "a communicator of %d ranks", size);
    pthread_mutex_init(&comm->lock, NULL);
    pthread_cond_init(&comm->free_again, NULL);
    comm->world = world;
    comm->size = size;
    comm->rank = -1;
    comm->ranks = calloc((size_t)size, sizeof *comm->ranks);
    comm->cards = calloc((size_t)size, sizeof *comm->cards);
    if (comm->ranks == NULL || comm->cards == NULL || gwi_plan_init(&comm->plan, size) < 0) {
        free_group(comm);
        return gwi_fail(GW_ENOMEM, "a communicator of %d ranks", size);
    }
    for (int r = 0; r < size; r++) {
        comm->ranks[r] = ranks[r];
        if (ranks[r] == world->fabric->place.rank)
            comm->rank = r;
    }
    *ret_comm = comm;
    return 0;
}

/* What the first rank of a new group tells the others.  Cards of machines of one kind. */
struct invitation {
    uint64_t context; /* 0: it could not be made */
    gwi_window_key window;
};

/* A number that no other process gives to a communicator. */
static uint64_t new_context(const gw_world *world)
{
    static _Atomic uint32_t last;

    return (uint64_t)(world->fabric->place.rank + 1) << 32 |
           (atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1);
}

/* Invitations to different groups do not get mixed up. */
static int64_t invitation_tag(const gw_comm *comm)
{
    uint64_t hash = gwi_hash_bytes(comm->ranks, (size_t)comm->size * sizeof *comm->ranks, 0);

    return (int64_t)(hash >> 2);
}

static int invite(gw_comm *comm, int windows)
{
    struct invitation card = {.context = comm->is_world ? WORLD_CONTEXT : new_context(comm->world)};
    int err = windows ? gwi_window_make(comm, &card.window) : 0;

    comm->context = card.context;
    if (err < 0)
        card.context = 0;
    for (int r = 1; r < comm->size; r++) {
        int posted = gwi_mail_post(comm->world, comm->ranks[r], SETUP_CONTEXT, invitation_tag(comm),
                                   &card, sizeof card);
        if (posted < 0 && err == 0)
            err = posted;
    }
    return err;
}

static int accept_invitation(gw_comm *comm, int windows)
{
    struct invitation card;
    int err = gwi_mail_take(comm->world, comm->ranks[0], SETUP_CONTEXT, invitation_tag(comm), &card,
                            sizeof card, "the making of a communicator");

    if (err < 0)
        return err;
    if (card.context == 0)
        return gwi_fail(GW_ENOMEM, "rank %d could not make the communicator of %d ranks",
                        comm->ranks[0], comm->size);
    comm->context = card.context;
    return windows ? gwi_window_map(comm, &card.window) : 0;
}

/* Collective for the group. */
static int set_up(gw_comm *comm)
{
    int windows = gwi_window_possible(comm->world, comm->ranks, comm->size);
    int err = comm->rank == 0 ? invite(comm, windows) : accept_invitation(comm, windows);

    if (err == 0 && !windows)
        err = gwi_native_open(comm);
    /* When all are through this, all have mapped the window. */
    return err == 0 ? gw_comm_barrier(comm) : err;
}

static int open_group(gw_world *world, const int *ranks, int size, int is_world, gw_comm **ret_comm)
{
    gw_comm *comm = NULL;
    int err = new_group(world, ranks, size, &comm);

    if (err < 0)
        return err;
    comm->is_world = is_world;
    err = set_up(comm);
    if (err < 0) {
        if (comm->engine != NULL)
            comm->engine->close(comm);
        free_group(comm);
        return err;
    }
    *ret_comm = comm;
    return 0;
}

static int make_world_group(gw_world *world)
{
    int size = world->job.size;
    int *ranks = calloc((size_t)size, sizeof *ranks);

    if (ranks == NULL)
        return gwi_fail(GW_ENOMEM, "a communicator of %d ranks", size);
    for (int r = 0; r < size; r++)
        ranks[r] = r;
    int err = open_group(world, ranks, size, 1, &world->comm);
    free(ranks);
    return err;
}

int gw_comm_world(gw_world *world, gw_comm **ret_comm)
{
    int err = gwi_world_begin(world, GWI_OP_GROUP, -1);

    if (err < 0)
        return err;
    pthread_mutex_lock(&world->comm_lock);
    err = world->comm == NULL ? make_world_group(world) : 0;
    pthread_mutex_unlock(&world->comm_lock);
    if (err == 0)
        *ret_comm = world->comm;
    return gwi_world_end(world, err);
}

void gwi_comm_free_world(gw_world *world)
{
    gw_comm *comm = world->comm;

    if (comm == NULL)
        return;
    world->comm = NULL;
    comm->engine->close(comm);
    free_group(comm);
}

static int check_ranks(gw_world *world, const int *ranks, int n_ranks)
{
    int size = world->job.size, found = 0;

    if (n_ranks < 1 || n_ranks > size)
        return gwi_fail(GW_EINVAL, "a communicator of %d ranks; a job of %d can have 1 to %d",
                        n_ranks, size, size);
    for (int i = 0; i < n_ranks; i++) {
        if (ranks[i] < 0 || ranks[i] >= size)
            return gwi_fail(GW_ERANGE, "ranks[%d] is %d; ranks go from 0 to %d", i, ranks[i],
                            size - 1);
        for (int j = 0; j < i; j++)
            if (ranks[j] == ranks[i])
                return gwi_fail(GW_EINVAL, "ranks[%d] and ranks[%d] are both %d; list each once", j,
                                i, ranks[i]);
        found |= ranks[i] == world->fabric->place.rank;
    }
    return found ? 0
                 : gwi_fail(GW_EINVAL, "this is rank %d, which is not in the list of %d ranks",
                            world->fabric->place.rank, n_ranks);
}

int gw_comm_of_ranks(gw_world *world, const int *ranks, int n_ranks, gw_comm **ret_comm)
{
    int err = gwi_world_begin(world, GWI_OP_GROUP, -1);

    if (err < 0)
        return err;
    err = check_ranks(world, ranks, n_ranks);
    if (err == 0)
        err = open_group(world, ranks, n_ranks, 0, ret_comm);
    return gwi_world_end(world, err);
}

/* splitting */

struct wish {
    int64_t color, key, rank;
};

static int compare_wishes(const void *a, const void *b)
{
    const struct wish *x = a, *y = b;

    return x->key != y->key ? (x->key > y->key) - (x->key < y->key)
                            : (x->rank > y->rank) - (x->rank < y->rank);
}

/* The world ranks of those who wish the same color as we do. */
static int of_my_color(gw_comm *comm, struct wish *wishes, int color, int *ranks)
{
    int n = 0;

    qsort(wishes, (size_t)comm->size, sizeof *wishes, compare_wishes);
    for (int r = 0; r < comm->size; r++)
        if (wishes[r].color == color)
            ranks[n++] = comm->ranks[wishes[r].rank];
    return n;
}

int gw_comm_split(gw_comm *comm, int color, int key, gw_comm **ret_comm)
{
    struct wish mine = {color < 0 ? -1 : color, key, comm->rank};
    struct wish *all = calloc((size_t)comm->size, sizeof *all);
    int *ranks = calloc((size_t)comm->size, sizeof *ranks);
    gw_comm *made = NULL;
    int err = 0;

    if (all == NULL || ranks == NULL)
        err = gwi_fail(GW_ENOMEM, "splitting a communicator of %d ranks", comm->size);
    if (err == 0)
        err = gw_comm_allgather(comm, &mine, all, sizeof mine / sizeof(int64_t), GW_I64);
    if (err == 0 && color >= 0) {
        int n = of_my_color(comm, all, color, ranks);
        err = gw_comm_of_ranks(comm->world, ranks, n, &made);
    }
    if (err == 0)
        *ret_comm = made;
    free(all);
    free(ranks);
    return err;
}

void gw_comm_close(gw_comm *comm)
{
    /* A forked child must not touch what it shares with its parent. */
    if (comm == NULL || comm->is_world || comm->world->generation != gwi_fork_generation())
        return;
    gwi_mail_close_context(comm->world, comm->context);
    comm->engine->close(comm);
    free_group(comm);
}

int gw_comm_rank(const gw_comm *comm)
{
    return comm->rank;
}

int gw_comm_size(const gw_comm *comm)
{
    return comm->size;
}

int gw_comm_world_rank(const gw_comm *comm, int rank)
{
    if (rank < 0 || rank >= comm->size)
        return gwi_fail(GW_ERANGE, "rank is %d; ranks go from 0 to %d", rank, comm->size - 1);
    return comm->ranks[rank];
}

/* collectives */

/* Take the communicator, when no other thread has it. */
static int claim(gw_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    while (comm->busy)
        pthread_cond_wait(&comm->free_again, &comm->lock);
    comm->busy = !comm->broken;
    pthread_mutex_unlock(&comm->lock);
    if (comm->broken)
        return gwi_fail(GW_ESTATE,
                        "an earlier collective of this communicator did not end well, so the ranks "
                        "may be at different places; make a new communicator, or end the job");
    return 0;
}

static void give_back(gw_comm *comm, int broken)
{
    pthread_mutex_lock(&comm->lock);
    comm->busy = 0;
    comm->broken |= broken;
    pthread_cond_signal(&comm->free_again);
    pthread_mutex_unlock(&comm->lock);
}

static int run_claimed(gw_comm *comm, void *output)
{
    gwi_plan_place(&comm->plan, comm->cards, comm->rank, comm->size, output);
    return comm->engine->run(comm, &comm->plan);
}

/* From where every rank calls, each in GWI_WHERE_BYTES; empty where that cannot be told. */
static int gather_places(gw_comm *comm, char *ret_places)
{
    char mine[GWI_WHERE_BYTES] = "";
    int64_t shape[1] = {GWI_WHERE_BYTES};
    gw_call call = {.size_bytes = sizeof call,
                    .kind = GW_ALLGATHER,
                    .input = {.data = mine, .dtype = GW_U8, .n_dims = 1, .shape = shape}};
    gwi_where_function *hook = gwi_where_hook();
    gwi_card card;
    int err;

    if (hook != NULL)
        hook(pthread_self(), mine, sizeof mine);
    mine[sizeof mine - 1] = '\0';
    if ((err = gwi_card_make(&call, comm->rank, comm->size, &card)) < 0 ||
        (err = comm->engine->agree(comm, &card, &call, comm->cards)) < 0 ||
        (err = gwi_cards_agree(comm->cards, comm->size, comm->ranks)) < 0 ||
        (err = gwi_plan_make(&comm->plan, &call, comm->cards, comm->rank, comm->size)) < 0)
        return err;
    return run_claimed(comm, ret_places);
}

static int with_places(const gw_comm *comm, const char *sentence, const char *places)
{
    char *text = NULL;
    size_t n_bytes;

    FILE *to = open_memstream(&text, &n_bytes);
    if (to == NULL)
        return gwi_fail(GW_EDISAGREE, "%s", sentence);
    fputs(sentence, to);
    for (int r = 0; r < comm->size; r++)
        if (places[r * GWI_WHERE_BYTES] != '\0')
            fprintf(to, "\n  rank %d is at %s", comm->ranks[r], places + r * GWI_WHERE_BYTES);
    fclose(to);
    int err = gwi_fail(GW_EDISAGREE, "%s", text != NULL ? text : sentence);
    free(text);
    return err;
}

/* All ranks have seen that they disagree, so all come here: each tells the others from
 * which line it calls. */
static int tell_places(gw_comm *comm)
{
    char *sentence = strdup(gw_last_error());
    char *places = calloc((size_t)comm->size, GWI_WHERE_BYTES);
    int err = GW_EDISAGREE;

    if (sentence != NULL && places != NULL) {
        err = gather_places(comm, places);
        err = err < 0 ? err : with_places(comm, sentence, places);
    }
    free(places);
    free(sentence);
    return err;
}

/* After it the communicator is claimed, or it failed. */
static int agree(gw_comm *comm, const gw_call *call)
{
    gwi_card mine;
    int err = gwi_card_make(call, comm->rank, comm->size, &mine);

    if (err < 0 || (err = claim(comm)) < 0)
        return err;
    comm->call = *call;
    err = comm->engine->agree(comm, &mine, call, comm->cards);
    if (err == 0) {
        err = gwi_cards_agree(comm->cards, comm->size, comm->ranks);
        if (err == GW_EDISAGREE && (err = tell_places(comm)) == GW_EDISAGREE) {
            give_back(comm, 0);
            return err;
        }
    }
    if (err == 0)
        err = gwi_plan_make(&comm->plan, call, comm->cards, comm->rank, comm->size);
    if (err < 0)
        give_back(comm, 1);
    return err;
}

static int run(gw_comm *comm, void *output)
{
    int err = run_claimed(comm, output);

    give_back(comm, err < 0);
    return err;
}

_Static_assert(GWI_OP_COMM_BARRIER - GWI_OP_ALLREDUCE == GW_BARRIER, "one order in both lists");

static gwi_op ledger_op(const gw_call *call)
{
    return (unsigned)call->kind < GW_N_COLLECTIVES ? GWI_OP_ALLREDUCE + (gwi_op)call->kind
                                                   : GWI_OP_NOTHING;
}

int gw_comm_agree(gw_comm *comm, const gw_call *call, gw_agreed *ret_agreed)
{
    const gwi_plan *plan = &comm->plan;

    if (ret_agreed->size_bytes < sizeof *ret_agreed)
        return gwi_fail(GW_EINVAL, "size_bytes is %zu; set it to sizeof(gw_agreed)",
                        ret_agreed->size_bytes);
    int err = gwi_world_begin(comm->world, ledger_op(call), -1);
    if (err < 0)
        return err;
    err = agree(comm, call);
    if (err == 0)
        *ret_agreed = (gw_agreed){
            .size_bytes = sizeof *ret_agreed,
            .output = {.dtype = plan->dtype, .n_dims = plan->n_dims, .shape = plan->shape},
            .n_bytes = plan->output_bytes,
            .parts = plan->has_parts ? plan->parts : NULL,
            .parts2 = plan->has_parts2 ? plan->parts2 : NULL,
            .flags = plan->flags,
        };
    return gwi_world_end(comm->world, err);
}

int gw_comm_run(gw_comm *comm, void *output)
{
    int err = gwi_world_begin(comm->world, ledger_op(&comm->call), -1);

    if (err < 0)
        return err;
    return gwi_world_end(comm->world, run(comm, output));
}

void gw_comm_abandon(gw_comm *comm)
{
    /* The others may wait for our part, if there is any. */
    give_back(comm, comm->plan.longest > 0);
}

int gw_comm_call(gw_comm *comm, const gw_call *call, void *output, size_t output_bytes)
{
    int err = gwi_world_begin(comm->world, ledger_op(call), -1);

    if (err < 0)
        return err;
    err = agree(comm, call);
    if (err == 0 && comm->plan.output_bytes != output_bytes &&
        !(output == NULL && call->kind == GW_REDUCE)) {
        err = gwi_fail(GW_EINVAL, "%s: the output has %zu bytes, %zu are needed",
                       gwi_comm_doing(comm), output_bytes, comm->plan.output_bytes);
        gw_comm_abandon(comm);
    } else if (err == 0) {
        err = run(comm, output);
    }
    return gwi_world_end(comm->world, err);
}

/* by name */

int gw_comm_barrier(gw_comm *comm)
{
    gw_call call = {.size_bytes = sizeof call, .kind = GW_BARRIER};

    return gw_comm_call(comm, &call, NULL, 0);
}

/* A call on `rows` times `n` entries. */
static gw_call call_on(gw_collective kind, const void *input, const int64_t *shape, int n_dims,
                       gw_dtype dtype)
{
    return (gw_call){
        .size_bytes = sizeof(gw_call),
        .kind = kind,
        .input = {
            .data = (void *)(uintptr_t)input, .dtype = dtype, .n_dims = n_dims, .shape = shape}};
}

static size_t bytes_of(size_t n, gw_dtype dtype)
{
    return (unsigned)dtype < GW_N_DTYPES ? n * gwi_dtype_bytes(dtype) : 0;
}

/* MINLOC and MAXLOC: n counts pairs. */
static int shape_for(size_t n, gw_op op, int64_t *shape)
{
    shape[0] = (int64_t)n;
    shape[1] = 2;
    return op == GW_MINLOC || op == GW_MAXLOC ? 2 : 1;
}

static int combine(gw_comm *comm, gw_collective kind, const void *input, void *output, size_t n,
                   gw_dtype dtype, gw_op op, int root)
{
    int64_t shape[2];
    int n_dims = shape_for(n, op, shape);
    gw_call call = call_on(kind, input, shape, n_dims, dtype);

    call.op = op;
    call.root = root;
    return gw_comm_call(comm, &call, output, bytes_of(n * (size_t)n_dims, dtype));
}

int gw_comm_allreduce(gw_comm *comm, const void *input, void *output, size_t n, gw_dtype dtype,
                      gw_op op)
{
    return combine(comm, GW_ALLREDUCE, input, output, n, dtype, op, 0);
}

int gw_comm_reduce(gw_comm *comm, const void *input, void *output, size_t n, gw_dtype dtype,
                   gw_op op, int root)
{
    return combine(comm, GW_REDUCE, input, output, n, dtype, op, root);
}

int gw_comm_scan(gw_comm *comm, const void *input, void *output, size_t n, gw_dtype dtype, gw_op op)
{
    return combine(comm, GW_SCAN, input, output, n, dtype, op, 0);
}

int gw_comm_reduce_scatter(gw_comm *comm, const void *input, void *output, size_t n, gw_dtype dtype,
                           gw_op op)
{
    int64_t shape[2];
    int n_dims = shape_for(n * (size_t)comm->size, op, shape);
    gw_call call = call_on(GW_REDUCE_SCATTER, input, shape, n_dims, dtype);

    call.op = op;
    call.count = (int64_t)n;
    return gw_comm_call(comm, &call, output, bytes_of(n * (size_t)n_dims, dtype));
}

int gw_comm_bcast(gw_comm *comm, void *data, size_t n, gw_dtype dtype, int root)
{
    int64_t shape[1] = {(int64_t)n};
    gw_call call = call_on(GW_BCAST, data, shape, 1, dtype);

    call.root = root;
    return gw_comm_call(comm, &call, data, bytes_of(n, dtype));
}

int gw_comm_gather(gw_comm *comm, const void *input, void *output, size_t n, gw_dtype dtype,
                   int root)
{
    int64_t shape[1] = {(int64_t)n};
    gw_call call = call_on(GW_GATHER, input, shape, 1, dtype);

    call.root = root;
    return gw_comm_call(comm, &call, output,
                        comm->rank == root ? bytes_of(n * (size_t)comm->size, dtype) : 0);
}

int gw_comm_allgather(gw_comm *comm, const void *input, void *output, size_t n, gw_dtype dtype)
{
    int64_t shape[1] = {(int64_t)n};
    gw_call call = call_on(GW_ALLGATHER, input, shape, 1, dtype);

    return gw_comm_call(comm, &call, output, bytes_of(n * (size_t)comm->size, dtype));
}

int gw_comm_scatter(gw_comm *comm, const void *input, void *output, size_t n, gw_dtype dtype,
                    int root)
{
    int64_t shape[1] = {(int64_t)n * comm->size};
    gw_call call = call_on(GW_SCATTER, input, shape, 1, dtype);

    call.root = root;
    call.count = (int64_t)n;
    return gw_comm_call(comm, &call, output, bytes_of(n, dtype));
}

int gw_comm_alltoall(gw_comm *comm, const void *input, void *output, size_t n, gw_dtype dtype)
{
    int64_t shape[1] = {(int64_t)n * comm->size};
    gw_call call = call_on(GW_ALLTOALL, input, shape, 1, dtype);

    call.count = (int64_t)n;
    return gw_comm_call(comm, &call, output, bytes_of(n * (size_t)comm->size, dtype));
}
