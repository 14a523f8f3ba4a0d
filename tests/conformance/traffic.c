/* traffic.c - sending and checking what a plan says. */
#include "traffic.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

#define PATTERN_BYTES 65521 /* a prime: frames that change places do not look the same */
#define TRIES 4             /* messages to one peer in a step */

/* One lane to one peer. */
struct stream {
    uint32_t next, count;
    gwi_outgoing out;
    unsigned char *bytes; /* of the message under way, or NULL */
};

/* One lane from one source. */
struct inflow {
    uint32_t next, count;
    size_t offset; /* of what comes next, in the message under way */
};

/* bytes */

uint64_t letter_hash(const struct run *run, const struct letter *letter)
{
    uint64_t hash = gwi_hash_u64(run->seed ^ (uint64_t)letter->from);

    hash = gwi_hash_u64(hash ^ (uint64_t)letter->to << 32 ^ (uint64_t)letter->lane);
    return gwi_hash_u64(hash ^ letter->number);
}

static const unsigned char *pattern(void)
{
    static unsigned char bytes[PATTERN_BYTES];
    static int there;
    gwi_random random;

    if (!there) {
        gwi_random_init(&random, 1, 0);
        gwi_random_fill(&random, bytes, sizeof bytes);
        there = 1;
    }
    return bytes;
}

void letter_write(const struct run *run, const struct letter *letter, size_t offset, size_t n,
                  void *bytes)
{
    unsigned char *to = bytes;
    size_t at = (letter_hash(run, letter) % PATTERN_BYTES + offset) % PATTERN_BYTES;

    while (n > 0) {
        size_t run_bytes = PATTERN_BYTES - at < n ? PATTERN_BYTES - at : n;
        memcpy(to, pattern() + at, run_bytes);
        to += run_bytes;
        n -= run_bytes;
        at = 0;
    }
}

int letter_matches(const struct run *run, const struct letter *letter, size_t offset, size_t n,
                   const void *bytes)
{
    const unsigned char *from = bytes;
    size_t at = (letter_hash(run, letter) % PATTERN_BYTES + offset) % PATTERN_BYTES;

    while (n > 0) {
        size_t run_bytes = PATTERN_BYTES - at < n ? PATTERN_BYTES - at : n;
        if (memcmp(from, pattern() + at, run_bytes) != 0)
            return 0;
        from += run_bytes;
        n -= run_bytes;
        at = 0;
    }
    return 1;
}

/* beginning and ending */

static int uses(const struct plan *plan, int lane)
{
    return plan->lanes >> lane & 1;
}

int traffic_begin(struct traffic *t, gwi_fabric *f, const struct plan *plan)
{
    size_t n = (size_t)GWI_N_LANES * (size_t)f->place.size;

    t->plan = plan;
    t->rank = f->place.rank;
    t->size = f->place.size;
    gwi_random_init(&t->random, t->actor.run->seed, 1000 + (uint64_t)t->rank);
    t->streams = calloc(n, sizeof *t->streams);
    t->inflows = calloc(n, sizeof *t->inflows);
    if (t->streams == NULL || t->inflows == NULL)
        return gwi_fail(GW_ENOMEM, "traffic of %d ranks", t->size);
    for (int lane = 0; lane < GWI_N_LANES; lane++)
        for (int peer = 0; uses(plan, lane) && peer < t->size; peer++) {
            struct stream *s = &t->streams[lane * t->size + peer];
            struct inflow *i = &t->inflows[lane * t->size + peer];
            s->count = plan->count(t->actor.run, &f->place, t->rank, peer);
            i->count = plan->count(t->actor.run, &f->place, peer, t->rank);
            t->out_left[lane] += s->count;
            t->in_left[lane] += i->count;
        }
    return 0;
}

void traffic_end(void *traffic)
{
    struct traffic *t = traffic;

    for (int i = 0; t->streams != NULL && i < GWI_N_LANES * t->size; i++)
        free(t->streams[i].bytes);
    free(t->streams);
    free(t->inflows);
}

/* sending */

static int open_letter(struct traffic *t, struct stream *s, const struct letter *letter)
{
    size_t n = t->plan->bytes(t->actor.run, letter);

    s->bytes = malloc(n + 1);
    if (s->bytes == NULL)
        return gwi_fail(GW_ENOMEM, "a message of %zu bytes", n);
    letter_write(t->actor.run, letter, 0, n, s->bytes);
    s->out = (gwi_outgoing){
        .peer = letter->to, .lane = letter->lane, .bytes = s->bytes, .n_bytes = n};
    return 0;
}

/* Send the next message of a stream.  Returns 1 if that is done. */
static int send_one(struct traffic *t, gwi_fabric *f, int lane, int peer)
{
    struct stream *s = &t->streams[lane * t->size + peer];
    struct letter letter = {t->rank, peer, lane, s->next};
    int err = s->bytes == NULL ? open_letter(t, s, &letter) : 0;

    if (err < 0)
        return err;
    int done = f->ops->send(f, &s->out);
    if (done < 0)
        return done;
    if (done == 0) {
        t->refused = 1;
        return 0;
    }
    /* The bytes are ours again: what we write there now must reach nobody. */
    memset(s->bytes, 0xee, s->out.n_bytes);
    free(s->bytes);
    s->bytes = NULL;
    s->next++;
    t->out_left[lane]--;
    t->actor.busy = 1;
    return 1;
}

int traffic_send(struct traffic *t, gwi_fabric *f)
{
    int first = (int)gwi_random_below(&t->random, (uint64_t)t->size);

    t->refused = 0;
    for (int lane = 0; lane < GWI_N_LANES; lane++)
        for (int i = 0; t->out_left[lane] > 0 && i < t->size; i++) {
            int peer = (first + i) % t->size, done = 1;
            const struct stream *s = &t->streams[lane * t->size + peer];
            for (int tries = 0; done == 1 && tries < TRIES && s->next < s->count; tries++)
                done = send_one(t, f, lane, peer);
            if (done < 0)
                return done;
        }
    return 0;
}

int traffic_all_sent(const struct traffic *t)
{
    for (int lane = 0; lane < GWI_N_LANES; lane++)
        if (t->out_left[lane] > 0)
            return 0;
    return 1;
}

/* receiving */

struct mail {
    struct traffic *traffic;
    int lane;
};

static int declines(struct traffic *t)
{
    if (!t->plan->decline)
        return 0;
    t->declined = gwi_random_below(&t->random, 2) == 0;
    t->stopped = t->declined && gwi_random_below(&t->random, 8) == 0;
    t->actor.busy |= t->declined;
    return t->stopped ? GW_EDISAGREE : t->declined ? GW_EAGAIN : 0;
}

static int take(void *ctx, const gwi_piece *piece)
{
    const struct mail *mail = ctx;
    struct traffic *t = mail->traffic;
    struct inflow *i = &t->inflows[mail->lane * t->size + piece->source];
    struct letter letter = {piece->source, t->rank, mail->lane, i->next};

    CHECK(!piece->abandoned);
    CHECK(i->next < i->count);
    CHECK(piece->total == t->plan->bytes(t->actor.run, &letter));
    CHECK(piece->offset == i->offset);
    CHECK(piece->n_bytes <= piece->total - piece->offset);
    CHECK(piece->n_bytes > 0 || piece->total == 0);
    CHECK(letter_matches(t->actor.run, &letter, piece->offset, piece->n_bytes, piece->bytes));
    int err = declines(t);
    if (err < 0)
        return err;
    i->offset += piece->n_bytes;
    if (i->offset == piece->total) {
        i->offset = 0;
        i->next++;
        t->in_left[mail->lane]--;
    }
    return 0;
}

static int poll_lane(struct traffic *t, gwi_fabric *f, int lane)
{
    struct mail mail = {t, lane};

    t->stopped = 0;
    int n = f->ops->poll(f, lane, -1, take, &mail);
    if (t->stopped)
        CHECK(n == GW_EDISAGREE);
    else if (n != 0)
        t->actor.busy = 1;
    return n < 0 && !t->stopped ? n : 0;
}

int traffic_receive(struct traffic *t, gwi_fabric *f)
{
    for (int lane = 0; lane < GWI_N_LANES; lane++)
        if (uses(t->plan, lane)) {
            int err = poll_lane(t, f, lane);
            if (err < 0)
                return err;
        }
    return 0;
}

int traffic_all_received(const struct traffic *t)
{
    for (int lane = 0; lane < GWI_N_LANES; lane++)
        if (t->in_left[lane] > 0)
            return 0;
    return 1;
}

/* The lowest lane with something left: then all ranks finish one lane after the
 * other, and nobody sleeps on one while another one needs it. */
static int waiting_lane(const struct traffic *t)
{
    for (int lane = 0; lane < GWI_N_LANES; lane++)
        if (t->in_left[lane] > 0 || t->out_left[lane] > 0)
            return lane;
    return 0;
}

int traffic_step(void *traffic, gwi_fabric *f, int64_t now_ns)
{
    struct traffic *t = traffic;
    int err = traffic_send(t, f);

    (void)now_ns;
    if (err == 0 && (!t->plan->send_first || t->refused || traffic_all_sent(t)))
        err = traffic_receive(t, f);
    t->actor.lane = waiting_lane(t);
    return err < 0 ? err : traffic_all_sent(t) && traffic_all_received(t);
}
