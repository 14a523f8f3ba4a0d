/* sim_test.c - what the simulation adds to a fabric: repeatable runs, deadlocks
 * that are named, fates, and speed.  tests/conformance has the rest.          */
#include "fabric/sim/sim.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/random.h"
#include "base/test.h"

#include <stdlib.h>
#include <string.h>

#define MAX_RANKS 64

static gwi_sim *sim_of(gwi_sim_options options)
{
    gwi_sim *sim = NULL;

    assert_int_equal(gwi_sim_new(&options, &sim), 0);
    return sim;
}

/* Everybody tosses numbers to everybody; `digest` depends on the order in which
 * a rank gets them. */
struct tosser {
    gwi_random random;
    int to_send, to_take;
    int stops_sending; /* one message early, so that somebody waits for ever */
    uint64_t digest;
    gwi_outgoing out;
    uint64_t word;
};

static int take_number(void *ctx, const gwi_piece *piece)
{
    struct tosser *t = ctx;
    uint64_t word;

    assert_true(piece->n_bytes == sizeof word && piece->total == sizeof word);
    memcpy(&word, piece->bytes, sizeof word);
    t->digest = gwi_hash_u64(t->digest ^ word ^ (uint64_t)piece->source);
    t->to_take--;
    return 0;
}

static int toss(void *state, gwi_fabric *f, int64_t now_ns)
{
    struct tosser *t = state;

    (void)now_ns;
    while (t->to_send > t->stops_sending) {
        if (!t->out.begun && t->out.bytes == NULL) {
            t->word = gwi_random_u64(&t->random);
            t->out = (gwi_outgoing){
                .peer = t->to_send % f->place.size, .bytes = &t->word, .n_bytes = sizeof t->word};
        }
        int done = f->ops->send(f, &t->out);
        if (done < 0)
            return done;
        if (done == 0)
            break;
        t->out = (gwi_outgoing){0};
        t->to_send--;
    }
    int err = f->ops->poll(f, 0, -1, take_number, t);
    return err < 0 ? err : t->to_send == 0 && t->to_take == 0;
}

static int run_tossers(gwi_sim *sim, int size, int n_each, int silent_rank, uint64_t *ret_digest)
{
    struct tosser tossers[MAX_RANKS];
    void *states[MAX_RANKS];

    for (int rank = 0; rank < size; rank++) {
        tossers[rank] = (struct tosser){.to_send = n_each * size, .to_take = n_each * size};
        tossers[rank].stops_sending = rank == silent_rank;
        gwi_random_init(&tossers[rank].random, 7, (uint64_t)rank);
        states[rank] = &tossers[rank];
    }
    int err = gwi_sim_run(sim, toss, states, 0);
    *ret_digest = 0;
    for (int rank = 0; rank < size; rank++)
        *ret_digest = gwi_hash_u64(*ret_digest ^ tossers[rank].digest);
    return err;
}

static uint64_t digest_of(uint64_t seed, FILE *trace)
{
    gwi_sim *sim = sim_of(
        (gwi_sim_options){.seed = seed, .size = 5, .node_size = 2, .trace = trace});
    uint64_t digest;

    assert_int_equal(run_tossers(sim, 5, 20, -1, &digest), 0);
    assert_true(gwi_sim_valid(sim));
    assert_int_equal(gwi_sim_delivered(sim), 5 * 5 * 20);
    gwi_sim_free(sim);
    return digest;
}

static void a_seed_repeats_the_run_and_another_gives_another(void **state)
{
    (void)state;
    uint64_t one = digest_of(1, NULL);
    int different = 0;

    assert_true(one == digest_of(1, NULL));
    for (uint64_t seed = 2; seed < 12; seed++)
        different += digest_of(seed, NULL) != one;
    assert_int_equal(different, 10);
}

static void a_trace_changes_nothing_and_tells_time_rank_and_event(void **state)
{
    (void)state;
    char *text = NULL;
    size_t n = 0;
    FILE *trace = open_memstream(&text, &n);

    assert_true(digest_of(3, trace) == digest_of(3, NULL));
    fclose(trace);
    assert_non_null(strstr(text, " us  rank 4    sends 8 of 8 bytes to rank 0 on lane 0"));
    assert_non_null(strstr(text, "takes 8 of 8 bytes from rank 4 on lane 0"));
    free(text);
}

static void who_waits_in_vain_is_named(void **state)
{
    (void)state;
    gwi_sim *sim = sim_of((gwi_sim_options){.seed = 4, .size = 5});
    uint64_t digest;

    /* Rank 3 keeps its last message, which is for rank 1. */
    assert_int_equal(run_tossers(sim, 5, 20, 3, &digest), GW_ETIMEOUT);
    assert_non_null(strstr(gw_last_error(), "rank 1 waits for messages"));
    assert_non_null(strstr(gw_last_error(), "rank 3"));
    assert_null(strstr(gw_last_error(), "rank 2"));
    assert_non_null(strstr(gw_last_error(), "seed 4"));
    gwi_sim_free(sim);
}

static int barrier_without_rank_1(void *state, gwi_fabric *f, int64_t now_ns)
{
    (void)state, (void)now_ns;
    if (f->place.rank == 1)
        return 1;
    f->ops->barrier_arrive(f);
    return f->ops->barrier_done(f);
}

static void a_barrier_that_somebody_missed_is_named(void **state)
{
    (void)state;
    gwi_sim *sim = sim_of((gwi_sim_options){.seed = 1, .size = 3});
    void *states[3] = {0};

    assert_int_equal(gwi_sim_run(sim, barrier_without_rank_1, states, 0), GW_ETIMEOUT);
    assert_non_null(strstr(gw_last_error(), "rank 0 is at barrier 1 without rank 1"));
    assert_true(gwi_sim_now_ns(sim) >= 60 * GWI_SECOND);
    gwi_sim_free(sim);
}

static int wait_for_time(void *state, gwi_fabric *f, int64_t now_ns)
{
    (void)state, (void)f;
    return now_ns > 20 * GWI_SECOND;
}

static void a_rank_may_wait_for_time_to_pass(void **state)
{
    (void)state;
    gwi_sim *sim = sim_of((gwi_sim_options){.seed = 1, .size = 3});
    void *states[3] = {0};

    assert_int_equal(gwi_sim_run(sim, wait_for_time, states, 0), 0);
    gwi_sim_free(sim);
}

static int never_done(void *state, gwi_fabric *f, int64_t now_ns)
{
    (void)state, (void)now_ns;
    f->ops->nudge(f, f->place.rank, 0);
    return 0;
}

static void steps_can_be_limited(void **state)
{
    (void)state;
    gwi_sim *sim = sim_of((gwi_sim_options){.seed = 1, .size = 2});
    void *states[2] = {0};

    assert_int_equal(gwi_sim_run(sim, never_done, states, 1000), GW_ETIMEOUT);
    gwi_sim_free(sim);
}

static int fail_on_rank_1(void *state, gwi_fabric *f, int64_t now_ns)
{
    (void)state, (void)now_ns;
    return f->place.rank == 1 ? gwi_fail(GW_ESTATE, "the cat is out") : 0;
}

static void a_failed_step_ends_the_run_with_rank_time_and_seed(void **state)
{
    (void)state;
    gwi_sim *sim = sim_of((gwi_sim_options){.seed = 99, .size = 2});
    void *states[2] = {0};

    assert_int_equal(gwi_sim_run(sim, fail_on_rank_1, states, 0), GW_ESTATE);
    assert_non_null(strstr(gw_last_error(), "rank 1 failed at"));
    assert_non_null(strstr(gw_last_error(), "seed 99: the cat is out"));
    gwi_sim_free(sim);
}

/* All but the fated rank wait until they know its fate. */
struct mourner {
    int turns;
    gwi_fate known;
};

static int mourn(void *state, gwi_fabric *f, int64_t now_ns)
{
    struct mourner *m = state;

    (void)now_ns;
    m->turns++;
    m->known = f->ops->fate(f, 2);
    if (m->known == GWI_DEAD) {
        assert_int_equal(f->ops->check(f), GW_EPEER);
        assert_non_null(strstr(gw_last_error(), "rank 2"));
    } else {
        assert_int_equal(f->ops->check(f), 0);
    }
    return m->known != GWI_HERE;
}

static void a_rank_leaves_or_dies_at_a_moment_of_the_seed(void **state)
{
    (void)state;
    for (gwi_fate fate = GWI_LEFT; fate <= GWI_DEAD; fate++)
        for (uint64_t seed = 0; seed < 20; seed++) {
            gwi_sim *sim = sim_of(
                (gwi_sim_options){.seed = seed, .size = 4, .fate = fate, .fate_rank = 2});
            struct mourner mourners[4] = {0};
            void *states[4] = {&mourners[0], &mourners[1], &mourners[2], &mourners[3]};
            assert_int_equal(gwi_sim_run(sim, mourn, states, 0), 0);
            assert_int_equal(mourners[0].known, fate);
            assert_int_equal(mourners[3].known, fate);
            assert_int_equal(mourners[2].known, GWI_HERE);
            gwi_sim_free(sim);
        }
}

static void options_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    gwi_sim *sim = NULL;

    assert_int_equal(gwi_sim_new(&(gwi_sim_options){.size = 0}, &sim), GW_EINVAL);
    assert_non_null(strstr(gw_last_error(), "size is 0"));
    assert_int_equal(gwi_sim_new(&(gwi_sim_options){.size = 2, .node_size = -1}, &sim), GW_EINVAL);
    assert_int_equal(
        gwi_sim_new(&(gwi_sim_options){.size = 2, .delay_min_ns = 9, .delay_max_ns = 8}, &sim),
        GW_EINVAL);
    assert_int_equal(gwi_sim_new(&(gwi_sim_options){.size = 2, .room_bytes = 64}, &sim), GW_EINVAL);
    assert_int_equal(
        gwi_sim_new(&(gwi_sim_options){.size = 2, .fate = GWI_DEAD, .fate_rank = 2}, &sim),
        GW_EINVAL);
    assert_null(sim);
    gwi_sim_free(sim);
}

static void what_was_never_taken_is_freed(void **state)
{
    (void)state;
    gwi_sim *sim = sim_of((gwi_sim_options){.seed = 1, .size = 2, .room_bytes = 4096});
    gwi_fabric *f = gwi_sim_fabric(sim, 0);
    unsigned char bytes[1000] = {0};
    gwi_segment segment;

    gwi_outgoing out = {.peer = 1, .lane = 3, .bytes = bytes, .n_bytes = sizeof bytes};
    assert_int_equal(f->ops->send(f, &out), 1);
    assert_int_equal(f->ops->segment_open(f, 10, 10, &segment), 0);
    assert_int_equal(
        gwi_sim_fabric(sim, 1)->ops->segment_open(gwi_sim_fabric(sim, 1), 10, 10, &segment), 1);
    assert_true(gwi_sim_valid(sim));
    gwi_sim_free(sim);
}

GWI_TESTS(cmocka_unit_test(a_seed_repeats_the_run_and_another_gives_another),
          cmocka_unit_test(a_trace_changes_nothing_and_tells_time_rank_and_event),
          cmocka_unit_test(who_waits_in_vain_is_named),
          cmocka_unit_test(a_barrier_that_somebody_missed_is_named),
          cmocka_unit_test(a_rank_may_wait_for_time_to_pass),
          cmocka_unit_test(steps_can_be_limited),
          cmocka_unit_test(a_failed_step_ends_the_run_with_rank_time_and_seed),
          cmocka_unit_test(a_rank_leaves_or_dies_at_a_moment_of_the_seed),
          cmocka_unit_test(options_that_make_no_sense_are_refused),
          cmocka_unit_test(what_was_never_taken_is_freed))
