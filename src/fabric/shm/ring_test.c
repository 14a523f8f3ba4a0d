/* ring_test.c - what goes into a ring comes out of it, whole and in order. */
#include "fabric/shm/ring.h"
#include "base/random.h"
#include "base/test.h"
#include "base/thread.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CAPACITY = 4096 };

struct pair {
    gwi_ring_shared *ring;
    gwi_ring_giver giver;
    gwi_ring_taker taker;
};

/* Puts a message together and counts. */
struct sink {
    unsigned char *bytes; /* of the message under way */
    size_t total, filled;
    int n_whole, n_abandoned;
    int decline;
};

static struct pair make_pair(uint64_t capacity)
{
    struct pair p;

    p.ring = aligned_alloc(GWI_LINE, gwi_ring_bytes(capacity));
    memset(p.ring, 0, gwi_ring_bytes(capacity));
    gwi_ring_giver_init(&p.giver, p.ring, capacity);
    gwi_ring_taker_init(&p.taker, p.ring, capacity);
    return p;
}

static int receive(void *ctx, const gwi_piece *piece)
{
    struct sink *s = ctx;

    if (s->decline)
        return GW_EAGAIN;
    if (piece->abandoned) {
        s->n_abandoned++;
        s->filled = s->total = 0;
        return 0;
    }
    if (piece->offset == 0) {
        s->bytes = realloc(s->bytes, piece->total + 1);
        s->total = piece->total;
        s->filled = 0;
    }
    assert_int_equal(piece->offset, s->filled);
    assert_int_equal(piece->total, s->total);
    memcpy(s->bytes + s->filled, piece->bytes, piece->n_bytes);
    s->filled += piece->n_bytes;
    if (s->filled == s->total)
        s->n_whole++;
    return 0;
}

static int take(struct pair *p, struct sink *s)
{
    int room = 0;

    return gwi_ring_take(&p->taker, 3, receive, s, &room);
}

/* Send all of a message, taking when the ring is full. */
static void pass(struct pair *p, struct sink *s, const void *bytes, size_t n)
{
    gwi_outgoing out = {.bytes = bytes, .n_bytes = n};
    int whole = s->n_whole;
    gwi_ring_given given;

    while ((given = gwi_ring_give(&p->giver, &out)) != GWI_RING_ALL) {
        assert_true(gwi_ring_giver_valid(&p->giver));
        if (given == GWI_RING_FULL)
            assert_int_equal(take(p, s), 1);
    }
    while (take(p, s) == 1)
        assert_true(gwi_ring_taker_valid(&p->taker));
    assert_int_equal(s->n_whole, whole + 1);
    assert_int_equal(s->total, n);
    if (n > 0)
        assert_memory_equal(s->bytes, bytes, n);
}

static void messages_of_every_length_arrive_as_they_were(void **state)
{
    (void)state;
    struct pair p = make_pair(CAPACITY);
    struct sink s = {0};
    unsigned char *bytes = malloc(20000);

    for (size_t i = 0; i < 20000; i++)
        bytes[i] = (unsigned char)(i * 31 + 7);
    for (size_t n = 0; n < 20000; n += n < 300 ? 1 : 211)
        pass(&p, &s, bytes, n);
    free(bytes);
    free(s.bytes);
    free(p.ring);
}

static void a_full_ring_takes_no_more_and_nothing_is_lost(void **state)
{
    (void)state;
    struct pair p = make_pair(CAPACITY);
    struct sink s = {0};
    int n = 0;

    for (;; n++) {
        gwi_outgoing out = {.bytes = &n, .n_bytes = sizeof n};
        if (gwi_ring_give(&p.giver, &out) == GWI_RING_FULL)
            break;
    }
    assert_int_equal(n, CAPACITY / GWI_LINE - 1);
    for (int i = 0; i < n; i++) {
        assert_int_equal(take(&p, &s), 1);
        assert_memory_equal(s.bytes, &i, sizeof i);
    }
    assert_int_equal(take(&p, &s), 0);
    free(s.bytes);
    free(p.ring);
}

static void a_declined_piece_is_offered_again(void **state)
{
    (void)state;
    struct pair p = make_pair(CAPACITY);
    struct sink s = {.decline = 1};
    gwi_outgoing out = {.bytes = "hello", .n_bytes = 5};

    assert_int_equal(gwi_ring_give(&p.giver, &out), GWI_RING_ALL);
    assert_int_equal(take(&p, &s), 0);
    assert_int_equal(take(&p, &s), 0);
    s.decline = 0;
    assert_int_equal(take(&p, &s), 1);
    assert_memory_equal(s.bytes, "hello", 5);
    free(s.bytes);
    free(p.ring);
}

static void an_abandoned_message_is_taken_back_even_when_the_ring_was_full(void **state)
{
    (void)state;
    struct pair p = make_pair(CAPACITY);
    struct sink s = {0};
    unsigned char *big = calloc(1, 3 * CAPACITY);
    gwi_outgoing out = {.bytes = big, .n_bytes = 3 * CAPACITY};

    while (gwi_ring_give(&p.giver, &out) != GWI_RING_FULL)
        continue;
    gwi_ring_abandon(&p.giver, &out);
    while (take(&p, &s) == 1)
        continue;
    assert_int_equal(s.n_whole, 0);
    pass(&p, &s, "next", 4);
    assert_int_equal(s.n_abandoned, 1);
    assert_int_equal(s.n_whole, 1);
    free(big);
    free(s.bytes);
    free(p.ring);
}

static void a_message_that_never_began_needs_no_taking_back(void **state)
{
    (void)state;
    struct pair p = make_pair(CAPACITY);
    struct sink s = {0};
    gwi_outgoing out = {.bytes = "x", .n_bytes = 1};

    gwi_ring_abandon(&p.giver, &out);
    pass(&p, &s, "next", 4);
    assert_int_equal(s.n_abandoned, 0);
    free(s.bytes);
    free(p.ring);
}

/* What a sender that has lost its mind may leave in a ring. */

enum kind { WHOLE = 1, FIRST, MORE, SKIP, ABANDON };

/* A frame by hand, at `position`; `total` is for FIRST. */
static void write_frame(const struct pair *p, uint64_t position, uint64_t kind, uint64_t n,
                        uint64_t total)
{
    unsigned char *at = p->ring->data + position;

    memcpy(at, &(uint64_t){n << 8 | kind}, 8);
    memcpy(at + 8, &total, 8);
}

/* The frame is refused as often as it is looked at, by a sentence with `word`. */
static void expect_broken(struct pair *p, const char *word)
{
    struct sink s = {.decline = 0};
    gwi_ring_taker before = p->taker;

    for (int i = 0; i < 3; i++) {
        assert_int_equal(take(p, &s), GW_EBROKEN);
        assert_non_null(strstr(gw_last_error(), "rank 3"));
        assert_non_null(strstr(gw_last_error(), word));
        assert_memory_equal(&p->taker, &before, sizeof before);
    }
    assert_null(s.bytes);
}

/* A ring of which the first 2 KB were taken, with or without a message of 100
 * bytes under way, of which 60 have come; the next frame is at NEXT. */
enum { NEXT = CAPACITY / 2 };

static struct pair make_used_pair(int under_way)
{
    struct pair p = make_pair(CAPACITY);
    struct sink s = {0};

    for (int i = 0; i < CAPACITY / 2 / GWI_LINE - 2; i++)
        pass(&p, &s, "used", 4);
    if (under_way) {
        write_frame(&p, NEXT - 2 * GWI_LINE, FIRST, 60, 100);
        assert_int_equal(take(&p, &s), 1);
    } else {
        pass(&p, &s, "used", 4);
        pass(&p, &s, "used", 4);
    }
    assert_int_equal(p.taker.taken, NEXT);
    free(s.bytes);
    return p;
}

static void a_frame_that_makes_no_sense_is_refused_and_stays(void **state)
{
    (void)state;
    static const struct {
        int under_way;
        uint64_t kind, n, total;
        const char *word;
    } cases[] = {
        {0, 0, 1, 0, "kind is unknown"},
        {0, 6, 8, 0, "kind is unknown"},
        {0, 255, 8, 0, "kind is unknown"},
        {0, WHOLE, CAPACITY / 2 - 8 + 1, 0, "over the end"},
        {0, WHOLE, UINT64_MAX >> 8, 0, "over the end"},
        {0, FIRST, CAPACITY / 2 - 16 + 1, 10000, "over the end"},
        {0, FIRST, 0, 100, "does not fit"},
        {0, FIRST, 40, 40, "does not fit"},
        {0, FIRST, 40, 39, "does not fit"},
        {0, FIRST, 40, UINT64_MAX, "does not fit"},
        {0, MORE, 40, 0, "never began"},
        {0, ABANDON, 0, 0, "never began"},
        {0, SKIP, CAPACITY / 2 - 8 - GWI_LINE, 0, "skips"},
        {0, SKIP, CAPACITY / 2 - 8 - 1, 0, "skips"},
        {0, SKIP, CAPACITY / 2 - 8 + CAPACITY, 0, "over the end"},
        {0, SKIP, 0, 0, "skips"},
        {1, WHOLE, 4, 0, "inside another"},
        {1, FIRST, 40, 100, "inside another"},
        {1, MORE, 0, 0, "does not fit"},
        {1, MORE, 41, 0, "does not fit"},
        {1, ABANDON, 1, 0, "takes back"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pair p = make_used_pair(cases[i].under_way);
        write_frame(&p, NEXT, cases[i].kind, cases[i].n, cases[i].total);
        expect_broken(&p, cases[i].word);
        free(p.ring);
    }
}

static void a_frame_that_fills_the_whole_ring_is_refused(void **state)
{
    (void)state;
    struct pair p = make_pair(CAPACITY);

    /* R2 leaves a line free; a skip from here to the end would lead here again. */
    write_frame(&p, 0, SKIP, CAPACITY - 8, 0);
    expect_broken(&p, "room");
    write_frame(&p, 0, WHOLE, CAPACITY - 8, 0);
    expect_broken(&p, "room");
    free(p.ring);
}

static void the_longest_frame_that_makes_sense_is_taken(void **state)
{
    (void)state;
    struct pair p = make_used_pair(0);
    struct sink s = {0};

    write_frame(&p, NEXT, WHOLE, CAPACITY / 2 - 8, 0);
    assert_int_equal(take(&p, &s), 1);
    assert_int_equal(s.total, CAPACITY / 2 - 8);
    free(s.bytes);
    free(p.ring);
}

/* Two threads, as two processes would be. */

enum { N_MESSAGES = 20000 };

static size_t length_of(gwi_random *r)
{
    uint64_t kind = gwi_random_below(r, 100);

    return kind < 60   ? gwi_random_below(r, 60)
           : kind < 95 ? gwi_random_below(r, 3000)
                       : gwi_random_below(r, 30000);
}

static void *give_all(void *arg)
{
    struct pair *p = arg;
    static unsigned char bytes[30000];
    gwi_random r;

    gwi_random_init(&r, 1, 0);
    for (int i = 0; i < N_MESSAGES; i++) {
        size_t n = length_of(&r);
        memset(bytes, i & 0xff, n);
        gwi_outgoing out = {.bytes = bytes, .n_bytes = n};
        gwi_ring_given given;
        while ((given = gwi_ring_give(&p->giver, &out)) != GWI_RING_ALL)
            if (given == GWI_RING_FULL)
                sched_yield();
    }
    return NULL;
}

static void two_threads_exchange_messages_of_random_lengths(void **state)
{
    (void)state;
    struct pair p = make_pair(CAPACITY);
    struct sink s = {0};
    gwi_thread thread;
    gwi_random r;

    gwi_random_init(&r, 1, 0);
    assert_int_equal(gwi_thread_start("giver", give_all, &p, &thread), 0);
    for (int i = 0; i < N_MESSAGES; i++) {
        size_t n = length_of(&r);
        while (s.n_whole == i)
            if (take(&p, &s) == 0)
                sched_yield();
        assert_int_equal(s.total, n);
        for (size_t k = 0; k < n; k += 1 + n / 16)
            assert_int_equal(s.bytes[k], i & 0xff);
    }
    gwi_thread_join(thread);
    free(s.bytes);
    free(p.ring);
}

static void what_is_written_in_place_arrives_whole_and_in_order(void **state)
{
    (void)state;
    struct pair p = make_pair(CAPACITY);
    struct sink s = {0};
    size_t room = 0;

    for (int i = 0; i < 200; i++) {
        unsigned char *at = gwi_ring_reserve(&p.giver, &room);
        assert_non_null(at);
        assert_int_equal((uintptr_t)at % 8, 0);
        assert_true(room >= CAPACITY / 8);
        size_t n = 1 + (size_t)i * 37 % room;
        memset(at, i, n);
        assert_int_equal(take(&p, &s), 0); /* it is not given yet */
        gwi_ring_commit(&p.giver, n);
        assert_int_equal(take(&p, &s), 1); /* in one piece */
        assert_int_equal(s.n_whole, 2 * i + 1);
        assert_int_equal(s.total, n);
        for (size_t k = 0; k < n; k++)
            assert_int_equal(s.bytes[k], i);
        pass(&p, &s, "between", 7); /* the usual way goes on */
    }
    gwi_ring_giver_fini(&p.giver);
    free(s.bytes);
    free(p.ring);
}

static void what_is_written_in_place_is_given_up_by_what_is_given_instead(void **state)
{
    (void)state;
    struct pair p = make_pair(CAPACITY);
    struct sink s = {0};
    size_t room = 0;

    for (int i = 0; i < 50; i++) {
        unsigned char *at = gwi_ring_reserve(&p.giver, &room);
        assert_non_null(at);
        memset(at, 0xff, room);
        pass(&p, &s, "instead", 8);
        assert_int_equal(take(&p, &s), 0);
        assert_int_equal(s.n_whole, i + 1);
        assert_int_equal(s.total, 8);
        assert_memory_equal(s.bytes, "instead", 8);
    }
    gwi_ring_giver_fini(&p.giver);
    free(s.bytes);
    free(p.ring);
}

static void what_is_written_aside_arrives_as_what_is_written_in_place(void **state)
{
    (void)state;
    struct pair p = make_pair(1 << 20);
    struct sink s = {0};
    size_t room = 0;

    for (int i = 0; i < 300; i++) {
        int far = i % 3 != 0;
        p.giver.copier.stream = far ? 2 : 0; /* as if copies by the cache had been slow */
        p.giver.copier.slow = 0;
        p.giver.copier.n_timable = 0;
        unsigned char *at = gwi_ring_reserve(&p.giver, &room);
        assert_non_null(at);
        assert_int_equal((uintptr_t)at % 8, 0);
        int in_place = at >= p.ring->data && at < p.ring->data + (1 << 20);
        assert_int_equal(in_place, !far);
        size_t n = 1 + (size_t)i * 1237 % room;
        for (size_t k = 0; k < n; k++)
            at[k] = (unsigned char)(i + (int)(k % 251));
        gwi_ring_commit(&p.giver, n);
        assert_int_equal(take(&p, &s), 1);
        assert_int_equal(s.n_whole, i + 1);
        assert_int_equal(s.total, n);
        for (size_t k = 0; k < n; k++)
            assert_int_equal(s.bytes[k], (unsigned char)(i + (int)(k % 251)));
    }
    gwi_ring_giver_fini(&p.giver);
    gwi_ring_giver_fini(&p.giver);
    free(s.bytes);
    free(p.ring);
}

static void a_full_ring_has_no_room_to_write_in(void **state)
{
    (void)state;
    struct pair p = make_pair(CAPACITY);
    struct sink s = {0};
    size_t room = 0;
    int n = 0;

    while (gwi_ring_reserve(&p.giver, &room) != NULL) {
        gwi_ring_commit(&p.giver, room);
        n++;
    }
    assert_true(n >= 2 && n <= 8);
    while (s.n_whole < n)
        assert_true(take(&p, &s) >= 0);
    assert_non_null(gwi_ring_reserve(&p.giver, &room));
    gwi_ring_giver_fini(&p.giver);
    free(s.bytes);
    free(p.ring);
}

GWI_TESTS(cmocka_unit_test(what_is_written_in_place_arrives_whole_and_in_order),
          cmocka_unit_test(what_is_written_in_place_is_given_up_by_what_is_given_instead),
          cmocka_unit_test(what_is_written_aside_arrives_as_what_is_written_in_place),
          cmocka_unit_test(a_full_ring_has_no_room_to_write_in),
          cmocka_unit_test(messages_of_every_length_arrive_as_they_were),
          cmocka_unit_test(a_full_ring_takes_no_more_and_nothing_is_lost),
          cmocka_unit_test(a_declined_piece_is_offered_again),
          cmocka_unit_test(an_abandoned_message_is_taken_back_even_when_the_ring_was_full),
          cmocka_unit_test(a_message_that_never_began_needs_no_taking_back),
          cmocka_unit_test(a_frame_that_makes_no_sense_is_refused_and_stays),
          cmocka_unit_test(a_frame_that_fills_the_whole_ring_is_refused),
          cmocka_unit_test(the_longest_frame_that_makes_sense_is_taken),
          cmocka_unit_test(two_threads_exchange_messages_of_random_lengths))
