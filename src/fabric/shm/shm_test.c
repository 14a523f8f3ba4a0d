/* shm_test.c - messages, segments and virtual nodes on one machine. */
#include "fabric/shm/shm.h"
#include "base/error.h"
#include "fabric/processes_test.h"

static gwi_fabric *join(const struct processes *all, int rank, int node_size)
{
    gwi_job job = job_of(all, rank, node_size);
    gwi_fabric *f;

    REQUIRE(gwi_shm_open(&job, &f) == 0);
    return f;
}

/* Counts messages per source and checks that they come in order.  A message
 * holds its number, then that number's last byte over and over. */
struct inbox {
    uint64_t next[MAX_PROCESSES];
    uint64_t number[MAX_PROCESSES];
    unsigned char head[MAX_PROCESSES][8];
    int lane;
};

static int take(void *ctx, const gwi_piece *piece)
{
    struct inbox *in = ctx;
    const unsigned char *bytes = piece->bytes;
    int s = piece->source;

    REQUIRE(!piece->abandoned);
    for (size_t i = 0; i < piece->n_bytes; i++)
        if (piece->offset + i < 8)
            in->head[s][piece->offset + i] = bytes[i];
        else
            REQUIRE(bytes[i] == in->head[s][0]);
    if (piece->offset + piece->n_bytes == piece->total && piece->total >= 8) {
        memcpy(&in->number[s], in->head[s], 8);
        REQUIRE(in->number[s] == in->next[s]);
    }
    if (piece->offset + piece->n_bytes == piece->total)
        in->next[s]++;
    return 0;
}

static void send_or_take(gwi_fabric *f, gwi_outgoing *out, struct inbox *in)
{
    int done;

    while ((done = f->ops->send(f, out)) == 0)
        REQUIRE(f->ops->poll(f, out->lane, -1, take, in) >= 0);
    REQUIRE(done == 1);
}

static void fill(unsigned char *bytes, size_t n, uint64_t number)
{
    memset(bytes, (int)(number & 0xff), n);
    if (n >= 8)
        memcpy(bytes, &number, 8);
}

/* Everybody sends `count` messages to everybody (itself too) before it receives
 * any, then receives all. */
static void exchange(gwi_fabric *f, int lane, uint64_t count, size_t most)
{
    struct inbox in = {.lane = lane};
    unsigned char *bytes = malloc(most);
    gwi_random r;

    gwi_random_init(&r, 7, (uint64_t)f->place.rank);
    for (uint64_t number = 0; number < count; number++)
        for (int peer = 0; peer < f->place.size; peer++) {
            size_t n = gwi_random_below(&r, 4) == 0 ? gwi_random_below(&r, most + 1) : gwi_random_below(&r, 80);
            n = n > most ? most : n;
            fill(bytes, n, number);
            gwi_outgoing out = {.peer = peer, .lane = lane, .bytes = bytes, .n_bytes = n};
            send_or_take(f, &out, &in);
        }
    for (int peer = 0; peer < f->place.size; peer++)
        while (in.next[peer] < count)
            REQUIRE(f->ops->poll(f, lane, peer, take, &in) >= 0);
    free(bytes);
}

static void wait_for_all(gwi_fabric *f)
{
    gwi_patience p;

    f->ops->barrier_arrive(f);
    gwi_patience_begin(&p, f, GWI_LANE_WORLD, GWI_FOREVER);
    while (!f->ops->barrier_done(f))
        REQUIRE(gwi_patience_pause(&p) >= 0);
    gwi_patience_end(&p);
}

static void everybody_sends_first(const struct processes *all, int rank)
{
    gwi_fabric *f = join(all, rank, all->n);

    exchange(f, 0, all->n > 4 ? 30 : 300, 200000);
    exchange(f, 3, 50, 5000);
    wait_for_all(f);
    f->ops->leave(f);
}

static void all_may_send_before_any_receives(void **state)
{
    (void)state;
    run_processes(1, everybody_sends_first);
    run_processes(2, everybody_sends_first);
    run_processes(4, everybody_sends_first);
    run_processes(16, everybody_sends_first);
}

static void send_big(const struct processes *all, int rank)
{
    gwi_fabric *f = join(all, rank, all->n);
    size_t n = 64 << 20;
    unsigned char *bytes = malloc(n);
    struct inbox in = {0};

    fill(bytes, n, 0);
    gwi_outgoing out = {.peer = 1 - rank, .lane = 0, .bytes = bytes, .n_bytes = n};
    send_or_take(f, &out, &in);
    while (in.next[1 - rank] < 1)
        REQUIRE(f->ops->poll(f, 0, -1, take, &in) >= 0);
    free(bytes);
    wait_for_all(f);
    f->ops->leave(f);
}

static void messages_of_64_mb_cross_each_other(void **state)
{
    (void)state;
    run_processes(2, send_big);
}

static void flood_one(const struct processes *all, int rank)
{
    gwi_fabric *f = join(all, rank, all->n);
    struct inbox in = {0};
    uint64_t count = 5000;

    if (rank == 0)
        for (int peer = 1; peer < all->n; peer++)
            while (in.next[peer] < count)
                REQUIRE(f->ops->poll(f, 0, -1, take, &in) >= 0);
    else
        for (uint64_t number = 0; number < count; number++) {
            gwi_outgoing out = {.peer = 0, .lane = 0, .bytes = &number, .n_bytes = sizeof number};
            send_or_take(f, &out, &in);
        }
    wait_for_all(f);
    f->ops->leave(f);
}

static void nothing_is_lost_when_many_flood_one(void **state)
{
    (void)state;
    run_processes(8, flood_one);
}

static void use_lanes(const struct processes *all, int rank)
{
    gwi_fabric *f = join(all, rank, all->n);
    struct inbox in = {0};
    uint64_t zero = 0;

    for (int lane = GWI_N_LANES - 1; lane >= 0; lane--) {
        gwi_outgoing out = {.peer = 1 - rank, .lane = lane, .bytes = &zero, .n_bytes = sizeof zero};
        send_or_take(f, &out, &in);
    }
    for (int lane = 0; lane < GWI_N_LANES; lane++) {
        memset(&in, 0, sizeof in);
        while (in.next[1 - rank] < 1)
            REQUIRE(f->ops->poll(f, lane, 1 - rank, take, &in) >= 0);
        REQUIRE(f->ops->poll(f, lane, -1, take, &in) == 0);
    }
    wait_for_all(f);
    f->ops->leave(f);
}

static void lanes_do_not_wait_for_each_other(void **state)
{
    (void)state;
    run_processes(2, use_lanes);
}

static void share_segments(const struct processes *all, int rank)
{
    gwi_fabric *f = join(all, rank, 2);
    gwi_segment a, b;

    REQUIRE(gwi_fabric_segment_open(f, 3 << 20, GWI_FOREVER, &a) == 0);
    REQUIRE(gwi_fabric_segment_open(f, 100, GWI_FOREVER, &b) == 0);
    REQUIRE(a.n_bytes == 3 << 20 && b.n_bytes == 4096 && a.base != b.base);
    int *ints = a.base;
    REQUIRE(ints[0] == 0 && ints[f->place.local_rank] == 0);
    wait_for_all(f);
    ints[f->place.local_rank] = 100 + rank;
    ((int *)b.base)[f->place.local_rank] = -rank;
    wait_for_all(f);
    /* We see our node's writes, and nobody else's. */
    for (int i = 0; i < f->place.local_size; i++) {
        int other = f->place.node * 2 + i;
        REQUIRE(ints[i] == 100 + other);
        REQUIRE(((int *)b.base)[i] == -other);
    }
    REQUIRE(ints[f->place.local_size] == 0);
    wait_for_all(f);
    f->ops->segment_close(f, &a);
    REQUIRE(a.base == NULL);
    f->ops->segment_close(f, &a);
    f->ops->segment_close(f, &b);
    wait_for_all(f);
    f->ops->leave(f);
}

static void segments_are_shared_by_a_virtual_node_only(void **state)
{
    (void)state;
    run_processes(5, share_segments);
}

static void keep_using(const struct processes *all, int rank)
{
    gwi_fabric *f = join(all, rank, all->n);
    gwi_segment s;

    REQUIRE(gwi_fabric_segment_open(f, 1 << 20, GWI_FOREVER, &s) == 0);
    memset((char *)s.base + 1000 * rank, 1 + rank, 1000);
    wait_for_all(f);
    if (rank == 0)
        f->ops->segment_close(f, &s);
    wait_for_all(f);
    if (rank != 0) {
        REQUIRE(((char *)s.base)[0] == 1);
        f->ops->segment_close(f, &s);
    }
    wait_for_all(f);
    f->ops->leave(f);
}

static void a_segment_lives_until_its_last_user_closes_it(void **state)
{
    (void)state;
    run_processes(3, keep_using);
}

static void ask_too_much(const struct processes *all, int rank)
{
    gwi_fabric *f = join(all, rank, all->n);
    gwi_segment s = {0};

    REQUIRE(gwi_fabric_segment_open(f, (size_t)1 << 45, GWI_FOREVER, &s) == GW_ENOMEM);
    REQUIRE(gwi_fabric_segment_open(f, rank == 1 ? 8192 : 4096, GWI_FOREVER, &s) == GW_EDISAGREE);
    REQUIRE(s.base == NULL);
    REQUIRE(gwi_fabric_segment_open(f, 4096, GWI_FOREVER, &s) == 0);
    f->ops->segment_close(f, &s);
    wait_for_all(f);
    f->ops->leave(f);
}

static void a_segment_that_cannot_be_made_fails_on_all(void **state)
{
    (void)state;
    run_processes(3, ask_too_much);
}

GWI_TESTS(cmocka_unit_test(all_may_send_before_any_receives),
          cmocka_unit_test(messages_of_64_mb_cross_each_other),
          cmocka_unit_test(nothing_is_lost_when_many_flood_one),
          cmocka_unit_test(lanes_do_not_wait_for_each_other),
          cmocka_unit_test(segments_are_shared_by_a_virtual_node_only),
          cmocka_unit_test(a_segment_lives_until_its_last_user_closes_it),
          cmocka_unit_test(a_segment_that_cannot_be_made_fails_on_all))
