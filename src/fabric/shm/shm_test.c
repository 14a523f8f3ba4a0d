/* shm_test.c - what is special to this fabric: sleepers are woken.  A pause ends
 * by itself after 100 ms, so a bell that nobody rings shows as slowness only.
 * tests/conformance has all that fabrics have in common.                      */
#include "fabric/shm/shm.h"
#include "base/error.h"
#include "fabric/processes_test.h"

#include <time.h>

#define ROUNDS 40
#define LATE_NS (3 * GWI_MS)            /* long enough that who waits falls asleep */
#define LIMIT_NS (ROUNDS * 50 * GWI_MS) /* half of what it takes if nobody is woken */
#define LONG_BYTES ((size_t)3 << 20)    /* three times a ring */

static gwi_fabric *join(const struct processes *all, int rank)
{
    gwi_job job = job_of(all, rank, all->n);
    gwi_fabric *f;

    REQUIRE(gwi_shm_open(&job, &f) == 0);
    return f;
}

static void be_late(void)
{
    nanosleep(&(struct timespec){.tv_nsec = LATE_NS}, NULL);
}

static int count(void *ctx, const gwi_piece *piece)
{
    *(int *)ctx += piece->offset + piece->n_bytes == piece->total;
    return 0;
}

static void wait_for_message(gwi_fabric *f, int lane)
{
    gwi_patience p;
    int n = 0;

    gwi_patience_begin(&p, f, lane, GWI_FOREVER);
    for (;;) {
        REQUIRE(f->ops->poll(f, lane, -1, count, &n) >= 0);
        if (n > 0)
            break;
        REQUIRE(gwi_patience_pause(&p) >= 0);
    }
    gwi_patience_end(&p);
}

static void send_and_wait(gwi_fabric *f, int lane, const void *bytes, size_t n_bytes)
{
    gwi_outgoing out = {
        .peer = 1 - f->place.rank, .lane = lane, .bytes = bytes, .n_bytes = n_bytes};
    gwi_patience p;
    int done;

    gwi_patience_begin(&p, f, lane, GWI_FOREVER);
    while ((done = f->ops->send(f, &out)) == 0)
        REQUIRE(gwi_patience_pause(&p) >= 0);
    REQUIRE(done == 1);
    gwi_patience_end(&p);
}

/* Rank 0 sends `n_bytes` and waits for an answer, rank 1 is late every time. */
static void converse(const struct processes *all, int rank, int lane, size_t n_bytes)
{
    gwi_fabric *f = join(all, rank);
    unsigned char *bytes = calloc(n_bytes, 1);
    int64_t start = gwi_now_ns();

    for (int round = 0; round < ROUNDS; round++)
        if (rank == 0) {
            send_and_wait(f, lane, bytes, n_bytes);
            wait_for_message(f, lane);
        } else {
            be_late();
            wait_for_message(f, lane);
            be_late();
            send_and_wait(f, lane, bytes, 1);
        }
    REQUIRE(gwi_now_ns() - start < LIMIT_NS);
    free(bytes);
    f->ops->leave(f);
}

static void converse_briefly(const struct processes *all, int rank)
{
    converse(all, rank, 5, 8);
}

static void converse_at_length(const struct processes *all, int rank)
{
    converse(all, rank, 2, LONG_BYTES);
}

static void a_message_wakes_who_waits_for_it(void **state)
{
    (void)state;
    run_processes(2, converse_briefly);
}

static void room_wakes_who_waits_to_send(void **state)
{
    (void)state;
    run_processes(2, converse_at_length);
}

GWI_TESTS(cmocka_unit_test(a_message_wakes_who_waits_for_it),
          cmocka_unit_test(room_wakes_who_waits_to_send))
