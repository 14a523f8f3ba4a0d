/* remote_test.c - orders to agents that meet trouble. */
#include "params/params_test.h"

#define LONG 32768 /* of such vectors three fit into a tray, one an order */
#define MANY 4

static const int64_t long_length = LONG;
/* At home on the second of two nodes, and served by the first of its two processes. */
static const int64_t keys_elsewhere[MANY] = {1, 5, 9, 13};
static float values[MANY][LONG];

static const struct processes *everybody;
static const gw_worker *asker;

/* There is room in the tray from now on, but the wait for it ends by this. */
static int make_room_and_interrupt(void)
{
    const gwi_order *oldest = (const gwi_order *)(const void *)asker->tray.base;

    reach(everybody, 0);
    while (atomic_load(&oldest->done) == 0)
        usleep(1000);
    return 1;
}

/* Rank 2 has the latch of the first key that rank 1 asks for, by orders to the agent of rank 0. */
static void be_interrupted_at_a_full_tray(const struct processes *all, int rank)
{
    gw_world *world = join_in_nodes(all, rank, 2);
    gw_params_options opt = options(1);
    gw_params *params;
    gw_ticket ticket;

    opt.lengths = &long_length;
    REQUIRE(gw_params_open(world, &opt, &params) == 0);
    gw_worker *worker = take_worker(params);
    if (rank == 2) {
        for (int i = 0; i < MANY; i++)
            for (int j = 0; j < LONG; j++)
                values[i][j] = (float)(i + 1);
        REQUIRE(do_set(worker, (gw_keys){keys_elsewhere, MANY}, values, MANY * LONG, NULL) == 0);
        hold(worker, 0, keys_elsewhere[0]);
    }
    REQUIRE(gw_world_barrier(world) == 0);
    if (rank == 2) {
        await(all, 0, 1);
        let_go(worker, keys_elsewhere[0]);
    }
    if (rank == 1) {
        everybody = all;
        asker = worker;
        gw_set_interrupt_check(make_room_and_interrupt);
        for (int i = 0; i < MANY; i++)
            REQUIRE(gw_worker_pull(worker, one(&keys_elsewhere[i]), values[i], LONG, &ticket) ==
                    (i < MANY - 1 ? 0 : GW_EINTR));
        gw_set_interrupt_check(NULL);
        REQUIRE(gw_worker_wait_all(worker) == 0);
        for (int i = 0; i < MANY; i++)
            REQUIRE(values[i][0] == (float)(i < MANY - 1 ? i + 1 : 0));
        REQUIRE(worker->tray.head == worker->tray.tail); /* all of it is free */
        for (int n = 1; n <= MANY; n++) {
            REQUIRE(gw_worker_pull(worker, (gw_keys){keys_elsewhere, (size_t)n}, values,
                                   (size_t)n * LONG, NULL) == 0);
            REQUIRE(values[n - 1][0] == (float)n && values[n - 1][LONG - 1] == (float)n);
        }
    }
    close_all(params, world);
}

static void an_order_for_which_the_wait_for_room_failed_takes_none(void **state)
{
    (void)state;
    run_processes(4, be_interrupted_at_a_full_tray);
}

GWI_TESTS(cmocka_unit_test(an_order_for_which_the_wait_for_room_failed_takes_none))
