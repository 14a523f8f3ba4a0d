/* native.c - agreeing, moving and combining by collectives of the fabric.
 *
 * All memory that a collective of the fabric may touch lies in `struct native`.  When a
 * wait fails, the fabric keeps it for ever: nothing of it is then freed.          */
#include "comm/native.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/platform.h"
#include "comm/mail.h"
#include "comm/reduce.h"
#include "comm/world.h"

#include <stdlib.h>
#include <string.h>

#define ROOM_BYTES ((size_t)8 << 20)      /* for all streams of a step, each way, or ... */
#define STREAM_BYTES ((size_t)64 << 10)   /* so much for each if there are many ranks, but ... */
#define ROOM_MAX_BYTES ((size_t)64 << 20) /* not more for all */
#define LOOK_NS (10 * GWI_MS)             /* a look at the fates of all ranks takes some us */
#define LEFT_NS GWI_SECOND                /* who has left may have done its part before */
#define LAST_LOOKS 100                    /* after the time limit, of 100 us each */

/* What each rank gives to all: what it is about to do, and a small input. */
struct note {
    gwi_card card;
    unsigned char input[1024 - sizeof(gwi_card)];
};

#define SMALL_BYTES sizeof((struct note *)0)->input

_Static_assert(offsetof(struct note, input) % GWI_LINE == 0, "inputs are combined where they lie");

/* How a buffer is divided among the ranks. */
struct cut {
    int *n, *at; /* by rank */
};

struct native {
    /* set at open, then constant */
    gwi_native_group *group;
    size_t room;
    /* by the thread that is in a call; lent to the fabric while it does a collective */
    struct note *mine, *all;
    unsigned char *out, *in;
    struct cut out_cut, in_cut;
    /* never lent */
    const void **from; /* by rank: what is combined */
    int kept;          /* the fabric has what was lent, for ever */
};

static struct native *self(const gw_comm *comm)
{
    return comm->engine_data;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* waiting */

/* What can be seen of a rank: it is in the same call as we, it is not, or nothing. */
enum sight { THERE, AWAY, UNSEEN };

static enum sight look_at(const gw_comm *comm, int r)
{
    gwi_fabric *f = comm->world->fabric;
    const gwi_entry *theirs = f->ops->entry_of(f, comm->ranks[r]);

    if (r == comm->rank)
        return THERE;
    if (f->ops->fate(f, comm->ranks[r]) != GWI_HERE)
        return AWAY;
    if (theirs == NULL)
        return UNSEEN;
    return atomic_load_explicit(&theirs->inside, memory_order_relaxed) &&
                   atomic_load_explicit(&theirs->op, memory_order_relaxed) ==
                       atomic_load_explicit(&f->entry->op, memory_order_relaxed)
               ? THERE
               : AWAY;
}

static int list(const gw_comm *comm, enum sight sight, int *ret_ranks, int n_max)
{
    int n = 0;

    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank && look_at(comm, r) == sight) {
            if (n < n_max)
                ret_ranks[n] = comm->ranks[r];
            n++;
        }
    return n;
}

/* MPI does not tell who has not come.  Who is seen elsewhere is named; if nobody is, those
 * of whom nothing is seen; if all are in this call, as they say, then all. */
static int missing(void *ctx, int *ret_ranks, int n_max)
{
    int n = list(ctx, AWAY, ret_ranks, n_max);

    if (n == 0)
        n = list(ctx, UNSEEN, ret_ranks, n_max);
    return n > 0 ? n : list(ctx, THERE, ret_ranks, n_max);
}

/* When the fates were looked at last, and since when a rank is known to have left. */
struct watch {
    int64_t looked_ns, left_ns;
};

static int check_fates(const gw_comm *comm, struct watch *watch)
{
    gwi_fabric *f = comm->world->fabric;
    int64_t now = gwi_now_ns();
    int gone = -1;

    if (now - watch->looked_ns < LOOK_NS)
        return 0;
    watch->looked_ns = now;
    for (int r = 0; r < comm->size && gone < 0; r++)
        if (f->ops->fate(f, comm->ranks[r]) != GWI_HERE)
            gone = comm->ranks[r];
    if (gone < 0)
        return 0;
    if (watch->left_ns == 0)
        watch->left_ns = now;
    return now - watch->left_ns < LEFT_NS ? 0
                                          : gwi_check_fate(comm->world, gone, gwi_comm_doing(comm));
}

/* A process that was stopped for long finds its time over, and everything there. */
static int last_looks(gw_comm *comm, gwi_native_request *request)
{
    gwi_fabric *f = comm->world->fabric;
    int done = 0;

    for (int i = 0; i < LAST_LOOKS && done == 0; i++) {
        gwi_nap_ns(100 * GWI_US);
        done = f->ops->native->test(f, request);
    }
    return done;
}

static int finish(gw_comm *comm, gwi_native_request *request)
{
    gwi_fabric *f = comm->world->fabric;
    gwi_wait wait = {.world = comm->world,
                     .call = gwi_comm_doing(comm),
                     .lane = GWI_LANE_MAIL,
                     .missing = missing,
                     .ctx = comm};
    struct watch watch = {0};
    int done, err = 0;

    while ((done = f->ops->native->test(f, request)) == 0 && err >= 0) {
        err = gwi_wait_pause(&wait);
        if (err > 0 && (err = gwi_mail_progress(comm->world)) >= 0)
            err = check_fates(comm, &watch);
    }
    gwi_wait_end(&wait);
    if (done == 0 && err == GW_ETIMEOUT)
        done = last_looks(comm, request);
    if (done > 0)
        return 0;
    f->ops->native->forget(f, request);
    self(comm)->kept = 1;
    return done < 0 ? done : err;
}

/* Do a collective of the fabric. */
static int perform(gw_comm *comm, const gwi_native_call *call)
{
    gwi_fabric *f = comm->world->fabric;
    gwi_native_request request;
    int err = f->ops->native->start(f, self(comm)->group, call, &request);

    return err < 0 ? err : finish(comm, &request);
}

/* cards */

static int native_agree(gw_comm *comm, const gwi_card *mine, const gw_call *call,
                        const gwi_card **ret_cards)
{
    struct native *n = self(comm);

    n->mine->card = *mine;
    if (mine->n_bytes > 0 && mine->n_bytes <= SMALL_BYTES)
        memcpy(n->mine->input, call->input.data, mine->n_bytes);
    int err = perform(comm, &(gwi_native_call){.kind = GW_ALLGATHER,
                                               .send = n->mine,
                                               .n = (int)sizeof *n->mine,
                                               .recv = n->all});
    if (err < 0)
        return err;
    for (int r = 0; r < comm->size; r++) {
        ret_cards[r] = &n->all[r].card;
        if (!gwi_card_valid(ret_cards[r], r, comm->size))
            return gwi_fail(GW_EBROKEN,
                            "what rank %d says of its part in %s makes no sense; use one version "
                            "of Godwit for all processes",
                            comm->ranks[r], gwi_comm_doing(comm));
    }
    return 0;
}

/* what all have in common */

static int gets_result(const gw_comm *comm, const gwi_plan *plan)
{
    return plan->kind != GW_REDUCE || comm->rank == plan->root;
}

/* Others than the root of Reduce get zeros, when nobody needs their input any more: it may
 * be the same memory. */
static void zero_if_nothing(const gw_comm *comm, const gwi_plan *plan)
{
    if (!gets_result(comm, plan) && plan->output != NULL)
        memset(plan->output, 0, plan->output_bytes);
}

/* How much of a stream belongs to the step at `offset`. */
static int piece(size_t n_bytes, size_t offset, size_t step)
{
    return offset < n_bytes ? (int)least(n_bytes - offset, step) : 0;
}

/* How much of each stream fits into a step; a whole number of lines, and so of entries. */
static size_t step_for(const struct native *n, int n_streams)
{
    size_t step = n->room / (size_t)n_streams;

    return step - step % GWI_LINE;
}

/* One piece after the other; returns how many bytes in all. */
static int line_up(const struct cut *cut, int size)
{
    int at = 0;

    for (int r = 0; r < size; r++) {
        cut->at[r] = at;
        at += cut->n[r];
    }
    return at;
}

/* Let `from` point to the pieces that came in. */
static void point_at_pieces(struct native *n, int size)
{
    for (int r = 0; r < size; r++)
        n->from[r] = n->in + n->in_cut.at[r];
}

/* small data: it came with the cards */

static void move_small(gw_comm *comm, const gwi_plan *plan)
{
    for (int r = 0; r < comm->size; r++) {
        gwi_strip from = gwi_stream_at(comm->cards, plan, r, comm->rank, self(comm)->all[r].input);
        gwi_strip_copy(&plan->recv[r], &from, 0, plan->recv[r].n_bytes);
    }
}

static void combine_small(gw_comm *comm, const gwi_plan *plan)
{
    struct native *n = self(comm);
    int n_in = plan->kind == GW_SCAN ? comm->rank + 1 : comm->size;

    for (int r = 0; r < n_in; r++) {
        gwi_strip from = gwi_stream_at(comm->cards, plan, r, comm->rank, n->all[r].input);
        unsigned char *dense = n->in + (size_t)r * SMALL_BYTES;
        gwi_strip_read(&from, 0, dense, from.n_bytes);
        n->from[r] = dense;
    }
    if (gets_result(comm, plan) && plan->output_bytes > 0)
        gwi_reduce(plan->op, plan->dtype, plan->output, n->from, n_in,
                   plan->output_bytes / plan->unit);
    zero_if_nothing(comm, plan);
}

/* large data, moved */

/* Put together what this rank sends in the step at `offset`. */
static int pack(gw_comm *comm, const gwi_plan *plan, size_t offset, size_t step)
{
    struct native *n = self(comm);
    int n_streams = plan->each ? comm->size : 1;

    for (int d = 0; d < n_streams; d++)
        n->out_cut.n[d] = piece(plan->send[d].n_bytes, offset, step);
    int n_bytes = line_up(&n->out_cut, n_streams);
    for (int d = 0; d < n_streams; d++)
        gwi_strip_read(&plan->send[d], offset, n->out + n->out_cut.at[d], (size_t)n->out_cut.n[d]);
    return n_bytes;
}

static void unpack(gw_comm *comm, const gwi_plan *plan, size_t offset)
{
    struct native *n = self(comm);

    for (int r = 0; r < comm->size; r++)
        gwi_strip_write(&plan->recv[r], offset, n->in + n->in_cut.at[r], (size_t)n->in_cut.n[r], 0);
}

static int move_step(gw_comm *comm, const gwi_plan *plan, size_t offset, size_t step)
{
    struct native *n = self(comm);
    gwi_native_call call = {.kind = plan->kind,
                            .root = plan->root,
                            .send = n->out,
                            .send_counts = n->out_cut.n,
                            .send_at = n->out_cut.at,
                            .recv = n->in,
                            .recv_counts = n->in_cut.n,
                            .recv_at = n->in_cut.at};

    for (int r = 0; r < comm->size; r++)
        n->in_cut.n[r] = piece(plan->recv[r].n_bytes, offset, step);
    line_up(&n->in_cut, comm->size);
    call.n = pack(comm, plan, offset, step);
    if (plan->kind == GW_SCATTER)
        call.n = n->in_cut.n[plan->root];
    int err = perform(comm, &call);
    if (err == 0)
        unpack(comm, plan, offset);
    return err;
}

static int bcast_step(gw_comm *comm, const gwi_plan *plan, size_t offset, size_t step)
{
    struct native *n = self(comm);
    int n_bytes = piece(plan->longest, offset, step), err;

    if (comm->rank == plan->root)
        gwi_strip_read(&plan->send[0], offset, n->in, (size_t)n_bytes);
    err = perform(comm, &(gwi_native_call){
                            .kind = GW_BCAST, .root = plan->root, .recv = n->in, .n = n_bytes});
    if (err == 0 && !(comm->rank == plan->root && plan->output == plan->input))
        gwi_strip_write(&plan->recv[plan->root], offset, n->in, (size_t)n_bytes, 0);
    return err;
}

static int move_large(gw_comm *comm, const gwi_plan *plan)
{
    int one = plan->kind == GW_BCAST;
    size_t step = step_for(self(comm), one ? 1 : comm->size);
    int err = 0;

    for (size_t offset = 0; offset < plan->longest && err == 0; offset += step)
        err = one ? bcast_step(comm, plan, offset, step) : move_step(comm, plan, offset, step);
    return err;
}

/* large data, combined by the fabric */

/* What is left to MPI.  Not MAX and MIN of floating numbers, where it may pass over a NaN,
 * and no short integers: Open MPI 4.1 does not wrap around their sums, and MPICH 4.0 takes
 * all of one byte for signed. */
static int fabric_combines(gw_op op, gw_dtype dtype)
{
    if (dtype == GW_I32 || dtype == GW_I64)
        return op != GW_MINLOC && op != GW_MAXLOC;
    if (dtype == GW_F32 || dtype == GW_F64 || dtype == GW_C64 || dtype == GW_C128)
        return op == GW_SUM || op == GW_PROD;
    return 0;
}

static gwi_native_call combining(const struct native *n, const gwi_plan *plan)
{
    return (gwi_native_call){.kind = plan->kind,
                             .op = plan->op,
                             .dtype = plan->dtype,
                             .root = plan->root,
                             .send = n->out,
                             .recv = n->in};
}

static int combine_by_fabric(gw_comm *comm, const gwi_plan *plan, size_t offset, size_t n_bytes)
{
    struct native *n = self(comm);
    gwi_native_call call = combining(n, plan);

    memcpy(n->out, (const unsigned char *)plan->input + offset, n_bytes);
    call.n = (int)(n_bytes / plan->unit);
    int err = perform(comm, &call);
    if (err == 0 && gets_result(comm, plan))
        memcpy((unsigned char *)plan->output + offset, n->in, n_bytes);
    return err;
}

static int scatter_by_fabric(gw_comm *comm, const gwi_plan *plan, size_t offset, size_t step)
{
    struct native *n = self(comm);
    gwi_native_call call = combining(n, plan);
    int own = piece(plan->output_bytes, offset, step);

    pack(comm, plan, offset, step);
    for (int r = 0; r < comm->size; r++)
        n->in_cut.n[r] = n->out_cut.n[r] / (int)plan->unit;
    call.recv_counts = n->in_cut.n;
    int err = perform(comm, &call);
    if (err == 0 && own > 0)
        memcpy((unsigned char *)plan->output + offset, n->in, (size_t)own);
    return err;
}

/* large data, combined here: each rank gets its slice from all */

/* `own` bytes from each. */
static int collect(gw_comm *comm, int own)
{
    struct native *n = self(comm);

    for (int r = 0; r < comm->size; r++)
        n->in_cut.n[r] = own;
    line_up(&n->in_cut, comm->size);
    point_at_pieces(n, comm->size);
    return perform(comm, &(gwi_native_call){.kind = GW_ALLTOALL,
                                            .send = n->out,
                                            .send_counts = n->out_cut.n,
                                            .send_at = n->out_cut.at,
                                            .recv = n->in,
                                            .recv_counts = n->in_cut.n,
                                            .recv_at = n->in_cut.at});
}

static int scatter_here(gw_comm *comm, const gwi_plan *plan, size_t offset, size_t step)
{
    int own = piece(plan->output_bytes, offset, step);

    pack(comm, plan, offset, step);
    int err = collect(comm, own);
    if (err == 0 && own > 0)
        gwi_reduce(plan->op, plan->dtype, (unsigned char *)plan->output + offset, self(comm)->from,
                   comm->size, (size_t)own / plan->unit);
    return err;
}

/* Slices of whole entries, about equally long. */
static void cut_slices(const struct cut *cut, int size, size_t n_bytes, size_t unit)
{
    size_t n = n_bytes / unit;

    for (int r = 0; r < size; r++) {
        size_t from = n * (size_t)r / (size_t)size, to = n * ((size_t)r + 1) / (size_t)size;
        cut->n[r] = (int)((to - from) * unit);
    }
    line_up(cut, size);
}

/* Give everybody, or the root, the slices that each has in `out`. */
static int share_results(gw_comm *comm, const gwi_plan *plan)
{
    struct native *n = self(comm);

    return perform(comm,
                   &(gwi_native_call){.kind = plan->kind == GW_REDUCE ? GW_GATHER : GW_ALLGATHER,
                                      .root = plan->root,
                                      .send = n->out,
                                      .n = n->out_cut.n[comm->rank],
                                      .recv = n->in,
                                      .recv_counts = n->out_cut.n,
                                      .recv_at = n->out_cut.at});
}

/* Each piece becomes that of the ranks up to it combined.  Halves are rounded once only,
 * so each of theirs begins anew, from the last one back. */
static void combine_up_to_each(gw_comm *comm, const gwi_plan *plan, size_t n_units)
{
    const void **from = self(comm)->from;

    if (plan->dtype == GW_F16 || plan->dtype == GW_BF16)
        for (int r = comm->size - 1; r > 0; r--)
            gwi_reduce(plan->op, plan->dtype, (void *)(uintptr_t)from[r], from, r + 1, n_units);
    else
        for (int r = 1; r < comm->size; r++)
            gwi_reduce(plan->op, plan->dtype, (void *)(uintptr_t)from[r], from + r - 1, 2, n_units);
}

/* The way back of collect(). */
static int hand_back(gw_comm *comm)
{
    struct native *n = self(comm);

    return perform(comm, &(gwi_native_call){.kind = GW_ALLTOALL,
                                            .send = n->in,
                                            .send_counts = n->in_cut.n,
                                            .send_at = n->in_cut.at,
                                            .recv = n->out,
                                            .recv_counts = n->out_cut.n,
                                            .recv_at = n->out_cut.at});
}

static int combine_here(gw_comm *comm, const gwi_plan *plan, size_t offset, size_t n_bytes)
{
    struct native *n = self(comm);
    int scan = plan->kind == GW_SCAN;

    memcpy(n->out, (const unsigned char *)plan->input + offset, n_bytes);
    cut_slices(&n->out_cut, comm->size, n_bytes, plan->unit);
    size_t n_units = (size_t)n->out_cut.n[comm->rank] / plan->unit;
    int err = collect(comm, n->out_cut.n[comm->rank]);
    if (err < 0)
        return err;
    if (scan)
        combine_up_to_each(comm, plan, n_units);
    else
        gwi_reduce(plan->op, plan->dtype, n->out, n->from, comm->size, n_units);
    err = scan ? hand_back(comm) : share_results(comm, plan);
    if (err == 0 && gets_result(comm, plan))
        memcpy((unsigned char *)plan->output + offset, scan ? n->out : n->in, n_bytes);
    return err;
}

static int combine_large(gw_comm *comm, const gwi_plan *plan)
{
    int by_fabric = fabric_combines(plan->op, plan->dtype);
    int scatters = plan->kind == GW_REDUCE_SCATTER, err = 0;
    size_t step = step_for(self(comm), scatters ? comm->size : 1);

    for (size_t offset = 0; offset < plan->longest && err == 0; offset += step) {
        size_t n_bytes = least(step, plan->longest - offset);
        err = scatters    ? by_fabric ? scatter_by_fabric(comm, plan, offset, step)
                                      : scatter_here(comm, plan, offset, step)
                 : by_fabric ? combine_by_fabric(comm, plan, offset, n_bytes)
                          : combine_here(comm, plan, offset, n_bytes);
    }
    if (err == 0)
        zero_if_nothing(comm, plan);
    return err;
}

static int native_run(gw_comm *comm, const gwi_plan *plan)
{
    if (plan->largest > SMALL_BYTES)
        return gwi_combines(plan->kind) ? combine_large(comm, plan) : move_large(comm, plan);
    if (gwi_combines(plan->kind))
        combine_small(comm, plan);
    else
        move_small(comm, plan);
    return 0;
}

/* coming and going */

static void free_native(struct native *n)
{
    if (!n->kept) {
        free(n->mine);
        free(n->out);
        free(n->in);
        free(n->out_cut.n);
    }
    free(n->from);
    free(n);
}

static void native_close(gw_comm *comm)
{
    struct native *n = self(comm);
    gwi_fabric *f = comm->world->fabric;

    if (!n->kept)
        f->ops->native->close(f, n->group);
    free_native(n);
    comm->engine_data = NULL;
}

static const struct gwi_engine native_engine = {
    .agree = native_agree,
    .run = native_run,
    .close = native_close,
};

/* Slices of whole entries can be a line longer for each rank. */
static size_t buffer_bytes(const struct native *n, int size)
{
    return n->room + (size_t)size * GWI_LINE;
}

static struct native *new_native(int size)
{
    size_t count = (size_t)size;
    struct native *n = calloc(1, sizeof *n);

    if (n == NULL)
        return NULL;
    n->room = count * STREAM_BYTES > ROOM_BYTES ? least(count * STREAM_BYTES, ROOM_MAX_BYTES)
                                                : ROOM_BYTES;
    /* Memory that is not used yet costs nothing, so nobody runs out of it amid a call. */
    n->mine = aligned_alloc(GWI_LINE, (1 + count) * sizeof *n->mine);
    n->out = aligned_alloc(GWI_LINE, buffer_bytes(n, size));
    n->in = aligned_alloc(GWI_LINE, buffer_bytes(n, size));
    n->out_cut.n = calloc(4 * count, sizeof *n->out_cut.n);
    n->from = calloc(count, sizeof *n->from);
    if (n->mine == NULL || n->out == NULL || n->in == NULL || n->out_cut.n == NULL ||
        n->from == NULL) {
        free_native(n);
        return NULL;
    }
    memset(n->mine, 0, sizeof *n->mine);
    n->all = n->mine + 1;
    n->out_cut.at = n->out_cut.n + count;
    n->in_cut = (struct cut){n->out_cut.at + count, n->out_cut.at + 2 * count};
    return n;
}

/* The first rank hears from all, then all from it: everybody is here.  `able` is what this
 * rank has to say; returns whether all are. */
static int meet(gw_comm *comm, unsigned char able)
{
    int64_t tag = INT64_C(1) << 61 | (int64_t)comm->context; /* no invitation's, see group.c */
    const char *call = "the making of a communicator";
    unsigned char theirs = 0;
    int err = 0;

    for (int r = 1; comm->rank == 0 && r < comm->size && err == 0; r++) {
        err = gwi_mail_take(comm->world, comm->ranks[r], 0, tag, &theirs, 1, call);
        able &= theirs;
    }
    for (int r = 1; comm->rank == 0 && r < comm->size && err == 0; r++)
        err = gwi_mail_post(comm->world, comm->ranks[r], 0, tag, &able, 1);
    if (comm->rank > 0) {
        err = gwi_mail_post(comm->world, comm->ranks[0], 0, tag, &able, 1);
        if (err == 0)
            err = gwi_mail_take(comm->world, comm->ranks[0], 0, tag, &able, 1, call);
    }
    return err < 0 ? err : able;
}

int gwi_native_possible(const gw_world *world)
{
    return world->fabric->ops->native->able;
}

int gwi_native_open(gw_comm *comm)
{
    gwi_fabric *f = comm->world->fabric;
    struct native *n = new_native(comm->size);
    int able = meet(comm, n != NULL), err = able < 0 ? able : 0;

    if (able == 0)
        err = gwi_fail(GW_ENOMEM, "a communicator of %d ranks", comm->size);
    if (err == 0)
        err = f->ops->native->open(f, comm->ranks, comm->size, comm->context, &n->group);
    if (err < 0) {
        if (n != NULL)
            free_native(n);
        return err;
    }
    comm->engine = &native_engine;
    comm->engine_data = n;
    return 0;
}
