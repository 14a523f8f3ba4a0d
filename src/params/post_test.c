/* post_test.c - what a node makes of messages of a peer, good ones and broken ones.
 *
 * A node of two in a simulation; the other one is played by the test, which sends a question by
 * hand. */
#include "params/engine.h"
#include "base/error.h"
#include "base/test.h"
#include "fabric/sim/sim.h"

#include <stdlib.h>
#include <string.h>

#define N_KEYS 400
#define LENGTH 3

static gwi_geometry geometry;
static gwi_node *node;

/* What the peer sends, and gets. */
static struct peer {
    gwi_frame frame;
    gwi_outgoing out;
    int sent;
    unsigned char coming[1 << 16]; /* a message, in pieces */
    uint64_t n_done;               /* keys, by the answers; */
    int n_answers;                 /* with so many notes; */
    int64_t passed_on;             /* and the last key whose question came back to us, its home */
    double values[N_KEYS * LENGTH];
} peer;

static int set_up(void **state)
{
    static const int64_t length = LENGTH;
    gwi_node_options options = {.geometry = &geometry, .node = 0, .nodes = 2, .workers = 1};

    (void)state;
    peer = (struct peer){.n_done = 0};
    assert_int_equal(gwi_geometry_init(&geometry, N_KEYS, &length, 1, GW_F64), 0);
    assert_int_equal(gwi_node_new(&options, &node), 0);
    assert_int_equal(gwi_frame_begin(&peer.frame, options.opening), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    gwi_node_free(node);
    gwi_geometry_fini(&geometry);
    gwi_frame_fini(&peer.frame);
    return 0;
}

/* A question about key 0 and every second one after it: they are at home here. */
static gwi_note ask(unsigned flags, uint32_t n_more, int64_t *ret_keys)
{
    for (uint32_t i = 0; i < n_more; i++)
        ret_keys[i] = 2 * (i + 1);
    return (gwi_note){.kind = GWI_NOTE_ASK, .flags = (uint8_t)flags, .node = 1, .n = n_more};
}

static int take_answer(void *ctx, const gwi_piece *piece)
{
    const unsigned char *payload;
    gwi_note note;
    size_t at = sizeof(uint64_t);

    (void)ctx;
    assert_true(piece->total <= sizeof peer.coming);
    memcpy(peer.coming + piece->offset, piece->bytes, piece->n_bytes);
    if (piece->offset + piece->n_bytes < piece->total)
        return 0;
    while (gwi_frame_next(peer.coming, piece->total, &at, &note, &payload) > 0) {
        peer.n_done += 1 + note.n;
        if (note.kind == GWI_NOTE_ASK) {
            peer.passed_on = note.key;
            continue;
        }
        assert_int_equal(note.kind, GWI_NOTE_ANSWER);
        memcpy((unsigned char *)peer.values + note.number, payload, note.n_bytes);
        peer.n_answers++;
    }
    return 0;
}

static int step(void *state, gwi_fabric *f, int64_t now_ns)
{
    const uint64_t *expected = state;

    if (f->place.rank == 0) {
        int err = gwi_node_step(node, f, now_ns);
        return err < 0 ? err : peer.sent && peer.n_done == *expected;
    }
    if (!peer.sent)
        peer.sent = f->ops->send(f, &peer.out) == 1;
    int err = f->ops->poll(f, GWI_LANE_PARAMS, -1, take_answer, NULL);
    return err < 0 ? err : peer.n_done == *expected;
}

/* Returns what the node said, or 0 when so many keys were answered. */
static int run(gwi_note note, const void *payload, size_t n_bytes, uint64_t expected)
{
    gwi_sim_options options = {.seed = 3, .size = 2, .node_size = 1, .room_bytes = 1 << 20};
    void *states[] = {&expected, &expected};
    gwi_sim *sim;

    assert_int_equal(gwi_frame_add(&peer.frame, &note, payload, n_bytes, NULL, 0), 0);
    peer.out = (gwi_outgoing){.peer = 0,
                              .lane = GWI_LANE_PARAMS,
                              .bytes = peer.frame.bytes,
                              .n_bytes = peer.frame.n_bytes};
    assert_int_equal(gwi_sim_new(&options, &sim), 0);
    int err = gwi_sim_run(sim, step, states, 100000);
    gwi_node_abandon(node, gwi_sim_fabric(sim, 0));
    gwi_sim_free(sim);
    return err;
}

static void a_question_about_many_keys_is_answered_for_each(void **state)
{
    int64_t keys[GWI_ASK_KEYS];
    gwi_note note = ask(GWI_NOTE_READS, GWI_ASK_KEYS - 1, keys);

    (void)state;
    for (int64_t key = 0; key < 2 * GWI_ASK_KEYS; key += 2) {
        double values[LENGTH] = {(double)key, 1, 2};
        gwi_local_apply(gwi_node_local(node), key, GWI_ASSIGN, values);
    }
    keys[4] |= GWI_KEY_FOLLOWS; /* which changes nothing at the home */
    assert_int_equal(run(note, keys, (GWI_ASK_KEYS - 1) * sizeof *keys, GWI_ASK_KEYS), 0);
    for (int64_t i = 0; i < GWI_ASK_KEYS; i++)
        assert_true(peer.values[i * LENGTH] == (double)(2 * i) && peer.values[i * LENGTH + 2] == 2);
}

/* The answer to the keys before it was to be about all of them, and is made shorter. */
static void a_key_that_is_elsewhere_is_passed_on_between_those_that_are_answered(void **state)
{
    int64_t keys[6];
    gwi_note note = ask(GWI_NOTE_READS, 6, keys);

    (void)state;
    for (int64_t key = 0; key <= 12; key += 2) {
        double values[LENGTH] = {(double)key, 1, 2};
        gwi_local_apply(gwi_node_local(node), key, GWI_ASSIGN, values);
    }
    keys[2] = 201;
    peer.values[3 * LENGTH] = -1;
    assert_int_equal(run(note, keys, sizeof keys, 7), 0);
    assert_int_equal(peer.passed_on, 201);
    assert_int_equal(peer.n_answers, 2);
    for (int64_t i = 0; i < 7; i++)
        assert_true(peer.values[i * LENGTH] == (i == 3 ? -1 : (double)(2 * i)));
}

static void a_question_may_add_to_many_vectors(void **state)
{
    struct {
        int64_t keys[2];
        double values[3 * LENGTH];
    } payload;
    gwi_note note = ask(GWI_NOTE_ADDS, 2, payload.keys);
    double found[LENGTH];

    (void)state;
    for (int i = 0; i < 3 * LENGTH; i++)
        payload.values[i] = i;
    payload.keys[1] = 0; /* the first once more */
    assert_int_equal(run(note, &payload, sizeof payload, 3), 0);
    gwi_local_read(gwi_node_local(node), 0, found);
    assert_true(found[0] == 0 + 6 && found[2] == 2 + 8);
    gwi_local_read(gwi_node_local(node), 2, found);
    assert_true(found[0] == 3 && found[2] == 5);
}

static void check_refused(gwi_note note, const void *payload, size_t n_bytes, const char *why)
{
    assert_int_equal(run(note, payload, n_bytes, 1), GW_EBROKEN);
    assert_non_null(strstr(gw_last_error(), why));
}

static void a_question_about_too_many_keys_is_refused(void **state)
{
    int64_t keys[GWI_ASK_KEYS];
    gwi_note note = ask(GWI_NOTE_READS, GWI_ASK_KEYS, keys);

    (void)state;
    check_refused(note, keys, sizeof keys, "about 129 keys");
}

static void a_question_without_all_of_its_keys_is_refused(void **state)
{
    int64_t keys[8];
    gwi_note note = ask(GWI_NOTE_READS, 8, keys);

    (void)state;
    check_refused(note, keys, 7 * sizeof *keys, "56 bytes about 9 keys");
}

static void a_question_about_a_key_that_there_is_not_is_refused(void **state)
{
    int64_t keys[2];
    gwi_note note = ask(GWI_NOTE_READS, 2, keys);

    (void)state;
    keys[1] = N_KEYS;
    check_refused(note, keys, sizeof keys, "key 400; keys go from 0 to 399");
}

static void a_question_about_a_key_of_another_channel_is_refused(void **state)
{
    int64_t keys[2];
    gwi_note note = ask(GWI_NOTE_READS, 2, keys);

    (void)state;
    node->local.spread = gwi_spread_of(0, 2, 2); /* key 2 is of channel 1 */
    check_refused(note, keys, sizeof keys, "key 2, of channel 1, to channel 0");
}

static void a_question_without_all_of_its_vectors_is_refused(void **state)
{
    struct {
        int64_t keys[1];
        double values[2 * LENGTH];
    } payload = {.values = {0}};
    gwi_note note = ask(GWI_NOTE_ADDS, 1, payload.keys);

    (void)state;
    check_refused(note, &payload, sizeof payload - 8, "with 48 bytes, not 56");
}

static gwi_note failed(int err)
{
    return (gwi_note){.kind = GWI_NOTE_FAILED, .node = 1, .key = -1, .n = (uint32_t)err};
}

static void who_hears_of_a_failure_fails_with_the_same_words(void **state)
{
    static const char sentence[GWI_SENTENCE_BYTES] = "rank 1 has no memory";
    size_t n_bytes[] = {strlen(sentence), sizeof sentence};

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(run(failed(GW_ENOMEM), sentence, n_bytes[i], 1), GW_ENOMEM);
        assert_non_null(strstr(gw_last_error(), sentence));
        assert_true(gwi_node_was_told(node));
        tear_down(NULL);
        set_up(NULL);
    }
}

static void a_failure_that_makes_no_sense_is_refused(void **state)
{
    static const char sentence[GWI_SENTENCE_BYTES + 1] = "rank 1";
    static const struct {
        int err;
        size_t n_bytes;
        const char *why;
    } bad[] = {{0, 6, "error 0 and 6 bytes"},
               {1, 6, "error 1 and"},
               {-1000, 6, "error -1000 and"},
               {INT32_MIN, 6, "error -2147483648 and"},
               {GW_ENOMEM, 0, "error -1 and 0 bytes"},
               {GW_ENOMEM, sizeof sentence, "error -1 and 513 bytes, not 1 to 512"}};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        check_refused(failed(bad[i].err), sentence, bad[i].n_bytes, bad[i].why);
        assert_false(gwi_node_was_told(node));
        tear_down(NULL);
        set_up(NULL);
    }
}

static int tell_of_death(void *ctx, int64_t key)
{
    (void)ctx;
    return gwi_fail(GW_EPEER, "rank 1 died with the latch of key %lld", (long long)key);
}

static void a_question_that_meets_the_latch_of_a_dead_process_takes_no_other(void **state)
{
    static gwi_hand hand;
    gwi_local *local = gwi_node_local(node);
    struct {
        int64_t keys[3];
        double values[4 * LENGTH];
    } payload = {.values = {0}};
    gwi_note note = ask(GWI_NOTE_ADDS, 3, payload.keys);
    uint64_t word;

    (void)state;
    local->hand = &hand;
    local->stuck = tell_of_death;
    assert_true(gwi_word_try_latch(&local->store.words[2], &word));
    assert_int_equal(run(note, &payload, sizeof payload, 4), GW_EPEER);
    assert_non_null(strstr(gw_last_error(), "the latch of key 2"));
    for (int64_t key = 0; key <= 6; key += 2)
        assert_int_equal(gwi_store_latched(&local->store, key), key == 2);
}

/* The last thing that it would send to the peer: a question about three keys. */
static void look_at_question(gwi_note *ret_note, int64_t *ret_more)
{
    uint64_t value;
    const unsigned char *payload;
    size_t at = sizeof(uint64_t);

    assert_true(gwi_hash_get(&node->links, 1, &value));
    const gwi_frame *frame = &((const gwi_link *)(uintptr_t)value)->collecting;
    while (gwi_frame_next(frame->bytes, frame->n_bytes, &at, ret_note, &payload) > 0)
        ;
    assert_int_equal(ret_note->kind, GWI_NOTE_ASK);
    assert_int_equal(ret_note->n, 2);
    memcpy(ret_more, payload, 2 * sizeof *ret_more);
}

static void what_was_asked_for_long_ago_is_asked_for_again_on_the_short_way(void **state)
{
    /* How many operations there were; each asks for the same keys. */
    static const uint32_t n_before[] = {0, 0x80000005, UINT32_MAX, 0xfffffff0, 0x7ffffff0, 7};
    static const int64_t keys[] = {1, 3, 1};
    static double values[sizeof n_before / sizeof *n_before][3 * LENGTH];

    (void)state;
    for (size_t i = 0; i < sizeof n_before / sizeof *n_before; i++) {
        gwi_note note;
        int64_t more[2], seq;
        node->n_operations = n_before[i];
        assert_int_equal(gwi_node_access(node, 0, GWI_PULL, keys, 3, values[i], &seq), 0);
        look_at_question(&note, more);
        assert_int_equal(note.key, keys[0]);
        assert_int_equal(note.flags & GWI_NOTE_FOLLOWS, 0);
        assert_int_equal(more[0], keys[1]);
        assert_int_equal(more[1], keys[2] | GWI_KEY_FOLLOWS); /* the first once more */
    }
}

#define MANY 40

static int discard(void *ctx, const gwi_piece *piece)
{
    (void)ctx, (void)piece;
    return 0;
}

/* Node 0 has something for each of the others, a few times, who only listen. */
static int speak_or_listen(void *state, gwi_fabric *f, int64_t now_ns)
{
    gwi_note note = {.kind = GWI_NOTE_RELEASE, .number = 1};
    int *n_times = state;

    if (f->place.rank > 0) {
        int err = f->ops->poll(f, GWI_LANE_PARAMS, -1, discard, NULL);
        return err < 0 ? err : 1;
    }
    if (gwi_post_is_idle(node)) {
        for (int i = 1; i < MANY; i++)
            gwi_send(node, i, &note, NULL, 0, NULL, 0);
        assert_false(gwi_post_is_idle(node));
        --*n_times;
    }
    int err = gwi_node_step(node, f, now_ns);
    assert_true(!gwi_post_is_idle(node) || (node->links.count > 0 && node->links.count < MANY / 2));
    return err < 0 ? err : *n_times == 0 && gwi_post_is_idle(node);
}

static void who_has_spoken_with_many_is_idle_and_remembers_few(void **state)
{
    static const int64_t length = LENGTH;
    gwi_node_options options = {.geometry = &geometry, .node = 0, .nodes = MANY, .workers = 1};
    gwi_sim_options sim_options = {.seed = 5, .size = MANY, .node_size = 1, .room_bytes = 1 << 16};
    int n_times = 3;
    void *states[MANY] = {&n_times};
    gwi_sim *sim;

    (void)state;
    assert_int_equal(gwi_geometry_init(&geometry, N_KEYS, &length, 1, GW_F64), 0);
    assert_int_equal(gwi_node_new(&options, &node), 0);
    assert_int_equal(gwi_sim_new(&sim_options, &sim), 0);
    assert_int_equal(gwi_sim_run(sim, speak_or_listen, states, 100000), 0);
    assert_int_equal(n_times, 0);
    gwi_node_abandon(node, gwi_sim_fabric(sim, 0));
    gwi_sim_free(sim);
    gwi_node_free(node);
    gwi_geometry_fini(&geometry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_question_about_many_keys_is_answered_for_each, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            a_key_that_is_elsewhere_is_passed_on_between_those_that_are_answered, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(a_question_may_add_to_many_vectors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_question_about_too_many_keys_is_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_question_without_all_of_its_keys_is_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_question_about_a_key_that_there_is_not_is_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_question_about_a_key_of_another_channel_is_refused,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_question_without_all_of_its_vectors_is_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(who_hears_of_a_failure_fails_with_the_same_words, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_failure_that_makes_no_sense_is_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            a_question_that_meets_the_latch_of_a_dead_process_takes_no_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            what_was_asked_for_long_ago_is_asked_for_again_on_the_short_way, set_up, tear_down),
        cmocka_unit_test(who_has_spoken_with_many_is_idle_and_remembers_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
