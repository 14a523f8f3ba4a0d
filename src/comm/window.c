/* window.c - collectives through shared memory.
 *
 * A window, for n ranks:
 *
 *      0           header
 *      64          seats, a line a rank: how many steps it has done
 *      ...         desks, two a rank: a card and a small input behind it
 *      ...         slots, four a rank: two for what it hands out, two for what it has
 *                  combined
 *
 * Call k uses the desks k % 2: who writes its card for call k + 2 has seen everybody's
 * card for k + 1, and those were written when call k was over.
 *
 * Large data moves in steps, counted over all calls.  A rank begins step g when all have
 * done g - 1.  So in step g it may read what was written in g - 1, and write where others
 * read in g - 2 or before: two slots are enough.  All ranks make the same number of steps,
 * which follows from the cards.
 *
 * If a process dies here: the others wait for its card or its step, and that wait ends
 * with its name.  The window is freed when the last one unmaps it.               */
#include "comm/window.h"
#include "base/copy.h"
#include "base/error.h"
#include "base/platform.h"
#include "comm/mail.h"
#include "comm/reduce.h"
#include "comm/world.h"

#include <stdlib.h>
#include <string.h>

#define SMALL_BYTES ((size_t)64 << 10)      /* an input up to this lies on the desk ... */
#define SMALL_MANY_BYTES ((size_t)16 << 10) /* ... and less where many would read it */
#define FEW_RANKS 8
#define SLOT_BYTES ((size_t)256 << 10)    /* fits a processor's own cache, with its like */
#define SLOT_MIN_BYTES ((size_t)16 << 10) /* ... and shorter ones for many ranks: */
#define WINDOW_BYTES ((size_t)16 << 20)   /* about so much for all slots */
#define BLOCK_BYTES ((size_t)4096)        /* what is put together before it is combined */
#define TIME_BYTES ((size_t)4096)         /* from here on copies are worth timing */
#define MAGIC UINT64_C(0x676f647769740201)

struct header {
    /* set by the maker, then constant */
    uint64_t magic;
    uint32_t size, unused;
    uint64_t slot_bytes;
    /* rung when the last card is there or the last rank has done a step */
    _Alignas(GWI_LINE) gwi_bell bell;
};

/* Written by its rank, read by all. */
struct seat {
    _Alignas(GWI_LINE) _Atomic uint64_t steps; /* done, ever */
};

/* Written by its rank, the card's number last, with release. */
struct desk {
    _Alignas(GWI_LINE) gwi_card card;
    unsigned char input[]; /* as long as small_bytes_for() says */
};

_Static_assert(sizeof(gwi_card) % GWI_LINE == 0 && offsetof(gwi_card, number) == 56,
               "the number of a card lies in its first line, with what all compare");

/* This process's view. */
struct window {
    gwi_segment segment;
    struct header *header;
    struct seat *seats;
    unsigned char *desks; /* [number % 2 * size + rank], each small_bytes longer than its card */
    size_t small_bytes;
    unsigned char *slots; /* [(step % 2 * 2 + combined) * size + rank] */
    size_t slot_bytes;
    uint64_t calls;         /* begun */
    uint64_t steps;         /* done by us */
    uint64_t awaited_steps; /* what a wait is for; 0: cards */
    /* by rank, for the call under way */
    gwi_strip *streams;
    const void **in;
    unsigned char *scratch; /* a block each */
    gwi_copier copier;      /* into desks and slots */
};

static struct window *self(const gw_comm *comm)
{
    return comm->engine_data;
}

/* layout */

static size_t slot_bytes_for(int size)
{
    size_t fair = WINDOW_BYTES / (4 * (size_t)size) & ~(size_t)4095;

    return fair > SLOT_BYTES ? SLOT_BYTES : fair < SLOT_MIN_BYTES ? SLOT_MIN_BYTES : fair;
}

static size_t small_bytes_for(int size)
{
    return size <= FEW_RANKS ? SMALL_BYTES : SMALL_MANY_BYTES;
}

static size_t window_bytes(int size, size_t slot_bytes)
{
    size_t n = (size_t)size, desk = sizeof(struct desk) + small_bytes_for(size);

    return sizeof(struct header) + n * sizeof(struct seat) + 2 * n * desk + 4 * n * slot_bytes;
}

static struct desk *desk_of(const struct window *w, uint64_t number, int rank)
{
    uint64_t index = number % 2 * w->header->size + (uint64_t)rank;

    return (struct desk *)(void *)(w->desks + index * (sizeof(struct desk) + w->small_bytes));
}

static _Atomic uint64_t *number_of(const struct window *w, uint64_t number, int rank)
{
    return (_Atomic uint64_t *)(void *)&desk_of(w, number, rank)->card.number;
}

/* Where a rank's data of a step lies: what it hands out, or what it has combined. */
enum { GIVEN, COMBINED };

static unsigned char *slot_of(const struct window *w, uint64_t step, int what, int rank)
{
    uint64_t index = (step % 2 * 2 + (uint64_t)what) * w->header->size + (uint64_t)rank;

    return w->slots + index * w->slot_bytes;
}

/* waiting */

static int has_come(const struct window *w, int rank)
{
    if (w->awaited_steps > 0)
        return atomic_load_explicit(&w->seats[rank].steps, memory_order_seq_cst) >=
               w->awaited_steps;
    return atomic_load_explicit(number_of(w, w->calls, rank), memory_order_seq_cst) >= w->calls;
}

/* Who comes last wakes the others; nobody is woken in vain.  Everybody has announced itself
 * before it looks, in one order for all, so the last one sees all. */
static void wake_if_last(gw_comm *comm)
{
    struct window *w = self(comm);

    for (int r = 0; r < comm->size; r++)
        if (!has_come(w, r))
            return;
    gwi_bell_ring(&w->header->bell);
}

static int missing(void *ctx, int *ret_ranks, int n_max)
{
    gw_comm *comm = ctx;
    int n = 0;

    for (int r = 0; r < comm->size; r++)
        if (!has_come(self(comm), r)) {
            if (n < n_max)
                ret_ranks[n] = comm->ranks[r];
            n++;
        }
    return n;
}

/* A rank that has left or died will not come; but it may have come before it left. */
static int check_missing(gw_comm *comm, const char *call)
{
    int err = 0;

    for (int r = 0; r < comm->size && err == 0; r++)
        if (!has_come(self(comm), r)) {
            err = gwi_check_fate(comm->world, comm->ranks[r], call);
            if (err < 0 && has_come(self(comm), r))
                err = 0;
        }
    return err;
}

/* Until everybody's card or step is there. */
static int await_all(gw_comm *comm)
{
    struct window *w = self(comm);
    gwi_wait wait = {.world = comm->world,
                     .call = gwi_comm_doing(comm),
                     .lane = GWI_LANE_MAIL,
                     .bell = &w->header->bell,
                     .missing = missing,
                     .ctx = comm};
    int err = 0;

    for (int r = 0; r < comm->size && err >= 0; r++)
        while (!has_come(w, r) && err >= 0) {
            err = gwi_wait_pause(&wait);
            if (err > 0 && (err = gwi_mail_progress(comm->world)) >= 0)
                err = check_missing(comm, wait.call);
        }
    gwi_wait_end(&wait);
    return err < 0 ? err : 0;
}

/* A step begins when all have done the one before. */
static int begin_step(gw_comm *comm)
{
    struct window *w = self(comm);

    w->awaited_steps = w->steps;
    return w->steps == 0 ? 0 : await_all(comm);
}

static void end_step(gw_comm *comm)
{
    struct window *w = self(comm);

    w->awaited_steps = ++w->steps;
    /* What we wrote is seen by who sees this; pairs with has_come(). */
    atomic_store_explicit(&w->seats[comm->rank].steps, w->steps, memory_order_seq_cst);
    wake_if_last(comm);
}

/* cards */

static int window_agree(gw_comm *comm, const gwi_card *mine, const gw_call *call,
                        const gwi_card **ret_cards)
{
    struct window *w = self(comm);
    struct desk *desk = desk_of(w, ++w->calls, comm->rank);

    memcpy(&desk->card, mine, offsetof(gwi_card, number));
    memcpy(desk->card.shape, mine->shape, gwi_card_bytes(mine) - offsetof(gwi_card, shape));
    if (mine->n_bytes > 0 && mine->n_bytes <= w->small_bytes)
        gwi_copier_copy(&w->copier, desk->input, call->input.data, mine->n_bytes);
    w->awaited_steps = 0;
    atomic_store_explicit(number_of(w, w->calls, comm->rank), w->calls, memory_order_seq_cst);
    wake_if_last(comm);
    for (int r = 0; r < comm->size; r++)
        ret_cards[r] = &desk_of(w, w->calls, r)->card;
    return await_all(comm);
}

/* combining */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* How many ranks, from the first on, this one combines. */
static int n_combined(const gw_comm *comm, const gwi_plan *plan)
{
    return plan->kind == GW_SCAN ? comm->rank + 1 : comm->size;
}

/* Combine the first `n` bytes of w->streams.  What does not lie together in memory is put
 * together first, block by block. */
static void combine(gw_comm *comm, const gwi_plan *plan, size_t n, unsigned char *output)
{
    struct window *w = self(comm);
    int n_sources = n_combined(comm, plan);
    size_t block = 0;

    for (size_t done = 0; done < n; done += block) {
        int together = 1;
        block = n - done;
        for (int r = 0; r < n_sources; r++)
            together &= (w->in[r] = gwi_strip_view(&w->streams[r], done, block)) != NULL;
        if (!together) {
            block = least(block, BLOCK_BYTES);
            for (int r = 0; r < n_sources; r++) {
                unsigned char *to = w->scratch + (size_t)r * BLOCK_BYTES;
                gwi_strip_read(&w->streams[r], done, to, block);
                w->in[r] = to;
            }
        }
        gwi_reduce(plan->op, plan->dtype, output + done, w->in, n_sources, block / plan->unit);
    }
}

/* small data: all of it lies on the desks */

static gwi_strip small_stream(gw_comm *comm, const gwi_plan *plan, int source)
{
    struct window *w = self(comm);
    void *base = source == comm->rank ? plan->input : desk_of(w, w->calls, source)->input;

    return gwi_stream_at(comm->cards, plan, source, comm->rank, base);
}

static void combine_small(gw_comm *comm, const gwi_plan *plan)
{
    for (int r = 0; r < comm->size; r++)
        self(comm)->streams[r] = small_stream(comm, plan, r);
    combine(comm, plan, plan->output_bytes, plan->output);
}

static void move_small(gw_comm *comm, const gwi_plan *plan)
{
    for (int r = 0; r < comm->size; r++) {
        gwi_strip from = small_stream(comm, plan, r);
        if (plan->recv[r].n_bytes > 0 && !(from.base == plan->recv[r].base && r == comm->rank))
            gwi_strip_copy(&plan->recv[r], &from, 0, plan->recv[r].n_bytes);
    }
}

/* large data, moved: hand out chunk u, take in chunk u - 1 */

struct pace {
    size_t chunk; /* bytes of a stream in a step */
    size_t n;     /* steps that hand out */
};

/* A whole number of lines, and so of entries. */
static struct pace pace_of(const gw_comm *comm, const gwi_plan *plan)
{
    size_t chunk = self(comm)->slot_bytes / (plan->each ? (size_t)comm->size : 1);

    chunk -= chunk % GWI_LINE;
    return (struct pace){chunk, (plan->longest + chunk - 1) / chunk};
}

/* How much of a stream belongs to chunk u. */
static size_t part(size_t n_bytes, size_t chunk, size_t u)
{
    return u * chunk < n_bytes ? least(chunk, n_bytes - u * chunk) : 0;
}

static void hand_out(gw_comm *comm, const gwi_plan *plan, size_t chunk, size_t u)
{
    struct window *w = self(comm);
    unsigned char *slot = slot_of(w, w->steps, GIVEN, comm->rank);

    if (plan->kind == GW_BCAST && comm->rank != plan->root)
        return;
    for (int d = 0; d < (plan->each ? comm->size : 1); d++)
        if (!plan->each || d != comm->rank)
            gwi_strip_read(&plan->send[d], u * chunk, slot + (size_t)d * chunk,
                           part(plan->send[d].n_bytes, chunk, u));
}

/* Where the chunk from `source` for us lies that was handed out in the step before. */
static unsigned char *chunk_from(const gw_comm *comm, const gwi_plan *plan, int source,
                                 size_t chunk)
{
    struct window *w = self(comm);

    return slot_of(w, w->steps - 1, GIVEN, source) + (plan->each ? (size_t)comm->rank * chunk : 0);
}

static void take_in(gw_comm *comm, const gwi_plan *plan, size_t chunk, size_t u)
{
    const gwi_strip *own = &plan->send[plan->each ? comm->rank : 0];

    /* Begin with the next rank, so that not all read from the same one at once. */
    for (int i = 1; i <= comm->size; i++) {
        int r = (comm->rank + i) % comm->size;
        size_t n = part(plan->recv[r].n_bytes, chunk, u);
        if (n == 0)
            continue;
        if (r != comm->rank)
            gwi_strip_write(&plan->recv[r], u * chunk, chunk_from(comm, plan, r, chunk), n, 1);
        else if (own->base != plan->recv[r].base)
            gwi_strip_copy(&plan->recv[r], own, u * chunk, n);
    }
}

/* The same where what is taken in is combined: Scan and Reduce_scatter. */
static void take_in_combined(gw_comm *comm, const gwi_plan *plan, size_t chunk, size_t u)
{
    gwi_strip *streams = self(comm)->streams;
    const gwi_strip *own = &plan->send[plan->each ? comm->rank : 0];
    size_t n = part(plan->output_bytes, chunk, u);

    for (int r = 0; r < comm->size; r++)
        streams[r] = gwi_strip_whole(chunk_from(comm, plan, r, chunk), n);
    const void *view = gwi_strip_view(own, u * chunk, n);
    if (view != NULL)
        streams[comm->rank].base = (unsigned char *)(uintptr_t)view;
    else /* our own place in our slot is free */
        gwi_strip_read(own, u * chunk, streams[comm->rank].base, n);
    combine(comm, plan, n, (unsigned char *)plan->output + u * chunk);
}

static int move_large(gw_comm *comm, const gwi_plan *plan)
{
    struct pace pace = pace_of(comm, plan);
    int err = 0;

    for (size_t u = 0; u <= pace.n && err == 0; u++) {
        err = begin_step(comm);
        if (err < 0)
            break;
        if (u < pace.n)
            hand_out(comm, plan, pace.chunk, u);
        if (u > 0 && gwi_combines(plan->kind))
            take_in_combined(comm, plan, pace.chunk, u - 1);
        else if (u > 0)
            take_in(comm, plan, pace.chunk, u - 1);
        end_step(comm);
    }
    return err;
}

/* large data, combined for all: every rank has a slice of each chunk.  In one step hand out
 * chunk u, combine the own slice of u - 1, and collect the slices of u - 2 */

struct slice {
    size_t from, n; /* bytes, from the beginning of the chunk */
};

static struct slice slice_of(size_t chunk_bytes, int rank, int size)
{
    size_t width = (chunk_bytes / (size_t)size + GWI_LINE) / GWI_LINE * GWI_LINE;
    size_t from = least((size_t)rank * width, chunk_bytes);

    return (struct slice){from, least(width, chunk_bytes - from)};
}

/* Everything but the own slice, which nobody else reads. */
static void hand_out_slices(gw_comm *comm, const gwi_plan *plan, size_t at, size_t n)
{
    struct window *w = self(comm);
    struct slice own = slice_of(n, comm->rank, comm->size);
    const unsigned char *from = (const unsigned char *)plan->input + at;
    unsigned char *slot = slot_of(w, w->steps, GIVEN, comm->rank);

    gwi_copier_copy(&w->copier, slot, from, own.from);
    gwi_copier_copy(&w->copier, slot + own.from + own.n, from + own.from + own.n,
                    n - own.from - own.n);
}

static int gets_result(const gw_comm *comm, const gwi_plan *plan)
{
    return plan->kind != GW_REDUCE || comm->rank == plan->root;
}

static void combine_slice(gw_comm *comm, const gwi_plan *plan, size_t at, size_t n)
{
    struct window *w = self(comm);
    struct slice own = slice_of(n, comm->rank, comm->size);
    unsigned char *result = slot_of(w, w->steps, COMBINED, comm->rank);

    for (int r = 0; r < comm->size; r++)
        w->in[r] = slot_of(w, w->steps - 1, GIVEN, r) + own.from;
    w->in[comm->rank] = (const unsigned char *)plan->input + at + own.from;
    gwi_reduce(plan->op, plan->dtype, result, w->in, comm->size, own.n / plan->unit);
    if (gets_result(comm, plan))
        gwi_copy_stream((unsigned char *)plan->output + at + own.from, result, own.n);
}

static void collect_slices(gw_comm *comm, const gwi_plan *plan, size_t at, size_t n)
{
    struct window *w = self(comm);

    for (int i = 1; i < comm->size && gets_result(comm, plan); i++) {
        int r = (comm->rank + i) % comm->size;
        struct slice slice = slice_of(n, r, comm->size);
        gwi_copy_stream((unsigned char *)plan->output + at + slice.from,
                        slot_of(w, w->steps - 1, COMBINED, r), slice.n);
    }
}

static int combine_large(gw_comm *comm, const gwi_plan *plan)
{
    struct pace pace = pace_of(comm, plan);
    size_t total = plan->input_bytes, chunk = pace.chunk;
    int err = 0;

    for (size_t u = 0; u < pace.n + 2 && err == 0; u++) {
        err = begin_step(comm);
        if (err < 0)
            break;
        if (u < pace.n)
            hand_out_slices(comm, plan, u * chunk, part(total, chunk, u));
        if (u >= 1 && u - 1 < pace.n)
            combine_slice(comm, plan, (u - 1) * chunk, part(total, chunk, u - 1));
        if (u >= 2)
            collect_slices(comm, plan, (u - 2) * chunk, part(total, chunk, u - 2));
        end_step(comm);
    }
    return err;
}

/* making and freeing */

static void free_window(struct window *w)
{
    if (w == NULL)
        return;
    free(w->streams);
    free(w->in);
    free(w->scratch);
    free(w);
}

static int new_window(gw_comm *comm, struct window **ret_window)
{
    size_t n = (size_t)comm->size;
    struct window *w = calloc(1, sizeof *w);

    if (w != NULL) {
        w->streams = calloc(n, sizeof *w->streams);
        w->in = calloc(n, sizeof *w->in);
        w->scratch = malloc(n * BLOCK_BYTES);
        w->copier.time_from = TIME_BYTES;
    }
    if (w == NULL || w->streams == NULL || w->in == NULL || w->scratch == NULL) {
        free_window(w);
        return gwi_fail(GW_ENOMEM, "a communicator of %d ranks", comm->size);
    }
    *ret_window = w;
    return 0;
}

/* the engine */

static int window_run(gw_comm *comm, const gwi_plan *plan)
{
    if (plan->kind == GW_REDUCE && comm->rank != plan->root && plan->output != NULL &&
        plan->output != plan->input)
        memset(plan->output, 0, plan->output_bytes);
    if (plan->largest <= self(comm)->small_bytes) {
        if (!gwi_combines(plan->kind))
            move_small(comm, plan);
        else if (gets_result(comm, plan))
            combine_small(comm, plan);
    } else {
        int err = plan->kind == GW_ALLREDUCE || plan->kind == GW_REDUCE ? combine_large(comm, plan)
                                                                        : move_large(comm, plan);
        if (err < 0)
            return err;
    }
    if (plan->kind == GW_REDUCE && comm->rank != plan->root && plan->output != NULL &&
        plan->output == plan->input)
        memset(plan->output, 0, plan->output_bytes);
    return 0;
}

static void window_close(gw_comm *comm)
{
    struct window *w = self(comm);
    gwi_fabric *f = comm->world->fabric;

    if (w == NULL)
        return;
    f->ops->segment_close(f, &w->segment);
    free_window(w);
    comm->engine_data = NULL;
}

static const struct gwi_engine engine = {window_agree, window_run, window_close};

int gwi_window_possible(const gw_world *world, const int *ranks, int size)
{
    for (int i = 0; i < size; i++)
        if (!world->fabric->ops->shares(world->fabric, ranks[i]))
            return 0;
    return 1;
}

/* Find everything in a window that is mapped. */
static void find_parts(struct window *w, int size)
{
    unsigned char *at = w->segment.base;

    w->header = (void *)at;
    at += sizeof(struct header);
    w->seats = (void *)at;
    at += (size_t)size * sizeof(struct seat);
    w->desks = at;
    w->small_bytes = small_bytes_for(size);
    at += 2 * (size_t)size * (sizeof(struct desk) + w->small_bytes);
    w->slots = at;
    w->slot_bytes = w->header->slot_bytes;
}

static void use_window(gw_comm *comm, struct window *w)
{
    find_parts(w, comm->size);
    comm->engine = &engine;
    comm->engine_data = w;
}

int gwi_window_make(gw_comm *comm, gwi_window_key *ret_key)
{
    gwi_fabric *f = comm->world->fabric;
    size_t slot_bytes = slot_bytes_for(comm->size);
    struct window *w;

    int err = new_window(comm, &w);
    if (err < 0)
        return err;
    size_t n_bytes = window_bytes(comm->size, slot_bytes);
    err = f->ops->segment_make(f, n_bytes, n_bytes, &w->segment);
    if (err < 0) {
        free_window(w);
        return err;
    }
    struct header *h = w->segment.base;
    h->magic = MAGIC;
    h->size = (uint32_t)comm->size;
    h->slot_bytes = slot_bytes;
    use_window(comm, w);
    *ret_key = (gwi_window_key){w->segment.offset, w->segment.n_bytes};
    return 0;
}

int gwi_window_map(gw_comm *comm, const gwi_window_key *key)
{
    gwi_fabric *f = comm->world->fabric;
    struct window *w;

    int err = new_window(comm, &w);
    if (err < 0)
        return err;
    err = f->ops->segment_map(f, key->offset, key->n_bytes, &w->segment);
    if (err < 0) {
        free_window(w);
        return err;
    }
    const struct header *h = w->segment.base;
    if (h->magic != MAGIC || h->size != (uint32_t)comm->size) {
        err = gwi_fail(GW_EDISAGREE, "rank %d made a window for %u ranks, rank %d wants one of %d",
                       comm->ranks[0], h->size, comm->ranks[comm->rank], comm->size);
        f->ops->segment_close(f, &w->segment);
        free_window(w);
        return err;
    }
    use_window(comm, w);
    return 0;
}
