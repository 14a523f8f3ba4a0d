/* inbox_test.c - pieces that are made up here, cut everywhere, meet receives that are
 * posted at any moment.                                                          */
#include "comm/inbox.h"
#include "base/test.h"

#include <stdlib.h>
#include <string.h>

enum { SIZE = 4, CONTEXT = 9 };

static int ranks[SIZE] = {0, 1, 2, 3};
static const gw_comm comm = {.rank = 0, .size = SIZE, .ranks = ranks, .context = CONTEXT};

static gw_request receive(int peer, int64_t tag, void *buffer, size_t n)
{
    return (gw_request){.comm = &comm,
                        .peer = peer,
                        .context = CONTEXT,
                        .tag = tag,
                        .n = n,
                        .dtype = GW_U8,
                        .buffer = buffer,
                        .n_bytes = n};
}

/* A message as it travels: one of the fabric, or two. */
struct parcel {
    gwi_envelope envelope;
    unsigned char bytes[256]; /* with the envelope in front */
    size_t n_bytes;
};

static struct parcel parcel(int source, int64_t tag, const char *text, uint32_t kind)
{
    struct parcel p = {.envelope = {.kind = kind,
                                    .dtype = GW_U8,
                                    .context = CONTEXT,
                                    .tag = tag,
                                    .number = 5,
                                    .n = strlen(text),
                                    .flags = 3,
                                    .source = source}};

    memcpy(p.bytes, &p.envelope, sizeof p.envelope);
    memcpy(p.bytes + sizeof p.envelope, text, strlen(text));
    p.n_bytes = sizeof p.envelope + strlen(text);
    return p;
}

/* One piece, which ends where its memory ends. */
static int deliver_piece(gwi_inbox *in, int source, size_t total, size_t offset, const void *bytes,
                         size_t n)
{
    unsigned char *copy = malloc(n > 0 ? n : 1);

    memcpy(copy, bytes, n);
    int err = gwi_inbox_deliver(
        in, &(gwi_piece){
                .source = source, .total = total, .offset = offset, .bytes = copy, .n_bytes = n});
    free(copy);
    return err;
}

static void abandon(gwi_inbox *in, int source)
{
    assert_int_equal(gwi_inbox_deliver(in, &(gwi_piece){.source = source, .abandoned = 1}), 0);
    assert_true(gwi_inbox_valid(in));
}

static void blank(gwi_inbox *in, int source)
{
    assert_int_equal(gwi_inbox_deliver(in, &(gwi_piece){.source = source}), 0);
    assert_true(gwi_inbox_valid(in));
}

/* Deliver bytes [from, to) of a parcel, as one piece or, over the end of an envelope that
 * comes apart, as two. */
static void deliver_part(gwi_inbox *in, const struct parcel *p, size_t from, size_t to)
{
    size_t cut = p->envelope.kind == GWI_APART ? sizeof p->envelope : p->n_bytes;

    for (size_t at = from, end; at < to; at = end) {
        size_t begin = at < cut ? 0 : cut; /* of its message */
        end = at < cut && to > cut ? cut : to;
        assert_int_equal(deliver_piece(in, p->envelope.source,
                                       (begin == 0 ? cut : p->n_bytes) - begin, at - begin,
                                       p->bytes + at, end - at),
                         0);
        assert_true(gwi_inbox_valid(in));
    }
}

static void deliver(gwi_inbox *in, int source, int64_t tag, const char *text)
{
    struct parcel p = parcel(source, tag, text, GWI_WHOLE);

    deliver_part(in, &p, 0, p.n_bytes);
}

static void open_inbox(gwi_inbox *in)
{
    assert_int_equal(gwi_inbox_init(in, SIZE), 0);
}

static void a_message_may_be_cut_anywhere_and_its_receive_posted_anytime(void **state)
{
    (void)state;
    static const uint32_t kinds[] = {GWI_WHOLE, GWI_APART};

    for (int run = 0; run < 2 * 4; run++) {
        struct parcel p = parcel(2, 7, "swallows fly low", kinds[run % 2]);
        for (size_t i = 0; i <= p.n_bytes; i++)
            for (size_t j = i; j <= p.n_bytes; j++) {
                gwi_inbox in;
                char buffer[16] = "";
                gw_request r = receive(2, 7, buffer, 16);
                size_t cuts[] = {0, i, j, p.n_bytes};

                open_inbox(&in);
                for (int part = 0; part < 4; part++) {
                    if (run / 2 == part)
                        gwi_inbox_post(&in, &r);
                    if (part < 3)
                        deliver_part(&in, &p, cuts[part], cuts[part + 1]);
                }
                assert_int_equal(r.stage, GWI_DONE);
                assert_int_equal(r.err, 0);
                assert_memory_equal(buffer, "swallows fly low", 16);
                assert_int_equal(r.status.source, 2);
                assert_int_equal(r.status.number, 5);
                assert_int_equal(r.status.flags, 3);
                assert_int_equal(in.n_kept, 0);
                gwi_inbox_fini(&in);
            }
    }
}

/* A message is taken back after `cut` bytes; the next one gets its receive. */
static void take_back_at(uint32_t kind, size_t cut, int posted_first)
{
    struct parcel p = parcel(1, 7, "never mind", kind), next = parcel(1, 7, "keep this!", kind);
    char early[10] = "", late[10] = "";
    gw_request first = receive(GW_ANY_SOURCE, GW_ANY_TAG, early, 10);
    gw_request second = receive(1, 7, late, 10);
    gwi_inbox in;

    open_inbox(&in);
    if (posted_first)
        gwi_inbox_post(&in, &first);
    deliver_part(&in, &p, 0, cut);
    if (!posted_first)
        gwi_inbox_post(&in, &first);
    gwi_inbox_post(&in, &second);
    if (kind == GWI_APART && cut == sizeof p.envelope)
        blank(&in, 1);
    else if (cut > 0)
        abandon(&in, 1);
    blank(&in, 1);
    assert_int_equal(first.stage, GWI_POSTED);
    deliver_part(&in, &next, 0, next.n_bytes);
    assert_int_equal(first.stage, GWI_DONE);
    assert_int_equal(second.stage, GWI_POSTED);
    assert_memory_equal(early, "keep this!", 10);
    gwi_inbox_cancel(&in, &second);
    gwi_inbox_fini(&in);
}

static void a_message_taken_back_leaves_its_receive_in_its_turn(void **state)
{
    (void)state;
    for (size_t cut = 0; cut < sizeof(gwi_envelope) + 10; cut++)
        for (int posted_first = 0; posted_first < 2; posted_first++) {
            take_back_at(GWI_WHOLE, cut, posted_first);
            take_back_at(GWI_APART, cut, posted_first);
        }
}

static void a_receive_whose_message_was_taken_back_gets_one_that_came_meanwhile(void **state)
{
    (void)state;
    struct parcel p = parcel(1, 7, "gone", GWI_APART);
    char buffer[4];
    gw_request r = receive(GW_ANY_SOURCE, 7, buffer, 4);
    gwi_inbox in;

    open_inbox(&in);
    gwi_inbox_post(&in, &r);
    deliver_part(&in, &p, 0, 50);
    deliver(&in, 2, 7, "here");
    assert_int_equal(r.stage, GWI_FILLING);
    abandon(&in, 1);
    assert_int_equal(r.stage, GWI_DONE);
    assert_memory_equal(buffer, "here", 4);
    assert_int_equal(r.status.source, 2);
    gwi_inbox_fini(&in);
}

static void messages_that_match_come_in_order_and_receives_too(void **state)
{
    (void)state;
    char got[6];
    gw_request r[6];
    gwi_inbox in;

    open_inbox(&in);
    deliver(&in, 1, 5, "a");
    deliver(&in, 1, 6, "b");
    deliver(&in, 2, 5, "c");
    deliver(&in, 1, 5, "d");
    r[0] = receive(1, 5, &got[0], 1);
    r[1] = receive(GW_ANY_SOURCE, 5, &got[1], 1);
    r[2] = receive(GW_ANY_SOURCE, GW_ANY_TAG, &got[2], 1);
    r[3] = receive(1, GW_ANY_TAG, &got[3], 1);
    r[4] = receive(GW_ANY_SOURCE, 5, &got[4], 1);
    r[5] = receive(3, 5, &got[5], 1);
    for (int i = 0; i < 6; i++)
        gwi_inbox_post(&in, &r[i]);
    assert_memory_equal(got, "acbd", 4);
    deliver(&in, 3, 5, "e");
    deliver(&in, 3, 5, "f");
    assert_memory_equal(got, "acbdef", 6);
    assert_int_equal(in.n_done, 6);
    gwi_inbox_fini(&in);
}

static void tags_of_libraries_are_not_any_tag(void **state)
{
    (void)state;
    char any, own;
    gw_request a = receive(1, GW_ANY_TAG, &any, 1), o = receive(1, GWI_LIBRARY_TAG, &own, 1);
    gwi_inbox in;

    open_inbox(&in);
    gwi_inbox_post(&in, &a);
    deliver(&in, 1, GWI_LIBRARY_TAG, "o");
    assert_int_equal(a.stage, GWI_POSTED);
    gwi_inbox_post(&in, &o);
    assert_true(o.stage == GWI_DONE && own == 'o');
    deliver(&in, 1, GWI_LIBRARY_TAG - 1, "a");
    assert_true(a.stage == GWI_DONE && any == 'a');
    gwi_inbox_fini(&in);
}

static void other_contexts_are_another_matter(void **state)
{
    (void)state;
    char byte = 0, kept = 0;
    gw_request other = receive(1, 5, &byte, 1), mine = receive(1, 5, &kept, 1);
    gwi_inbox in;

    other.context = 10;
    open_inbox(&in);
    gwi_inbox_post(&in, &other);
    deliver(&in, 1, 5, "x");
    assert_int_equal(in.n_kept, 1);
    gwi_inbox_close(&in, 10);
    assert_int_equal(other.err, GW_ESTATE);
    free(other.sentence);
    assert_int_equal(in.n_kept, 1);
    gwi_inbox_post(&in, &mine);
    assert_int_equal(kept, 'x');
    deliver(&in, 1, 5, "y");
    gwi_inbox_close(&in, CONTEXT);
    assert_int_equal(in.n_kept, 0);
    gwi_inbox_fini(&in);
}

static void closing_drops_what_is_still_coming(void **state)
{
    (void)state;
    struct parcel p = parcel(1, 7, "half of it", GWI_WHOLE),
                  q = parcel(2, 7, "the other", GWI_APART);
    char buffer[10];
    gw_request r = receive(1, 7, buffer, 10);
    gwi_inbox in;

    open_inbox(&in);
    gwi_inbox_post(&in, &r);
    deliver_part(&in, &p, 0, 50);
    deliver_part(&in, &q, 0, 50);
    gwi_inbox_close(&in, CONTEXT);
    assert_int_equal(r.err, GW_ESTATE);
    free(r.sentence);
    deliver_part(&in, &p, 50, p.n_bytes);
    deliver_part(&in, &q, 50, q.n_bytes);
    deliver(&in, 1, 7, "next");
    deliver(&in, 2, 7, "next");
    assert_int_equal(in.n_kept, 2);
    gwi_inbox_fini(&in);
}

static void a_message_of_another_kind_fails_its_receive_and_is_gone(void **state)
{
    (void)state;
    static const uint32_t kinds[] = {GWI_WHOLE, GWI_APART};

    for (int run = 0; run < 2 * 3; run++) {
        struct parcel p = parcel(1, 7, "eleven byte", kinds[run % 2]);
        char buffer[12] = "untouched..", next[2];
        gw_request r = receive(1, 7, buffer, 10), n = receive(1, 7, next, 2);
        gwi_inbox in;

        open_inbox(&in);
        size_t cut = run / 2 == 0 ? 0 : run / 2 == 1 ? 52 : p.n_bytes;
        deliver_part(&in, &p, 0, cut);
        gwi_inbox_post(&in, &r);
        deliver_part(&in, &p, cut, p.n_bytes);
        assert_int_equal(r.err, GW_EDISAGREE);
        assert_string_equal(r.sentence,
                            "rank 1 sent 11 entries of uint8 with tag 7, but 10 entries of uint8 "
                            "were to be received; the message is gone");
        assert_string_equal(buffer, "untouched..");
        free(r.sentence);
        deliver(&in, 1, 7, "ok");
        gwi_inbox_post(&in, &n);
        assert_int_equal(n.stage, GWI_DONE);
        gwi_inbox_fini(&in);
    }
}

static void the_name_of_a_rank_tells_both_numbers_if_they_differ(void **state)
{
    (void)state;
    int some[] = {0, 3};
    gw_comm pair = {.rank = 0, .size = 2, .ranks = some, .context = CONTEXT};
    struct parcel p = parcel(1, 7, "x", GWI_WHOLE);
    float number;
    gw_request r = receive(3, 7, &number, 1);
    gwi_inbox in;

    open_inbox(&in);
    r.comm = &pair;
    r.dtype = GW_F32;
    gwi_inbox_post(&in, &r);
    assert_int_equal(deliver_piece(&in, 3, p.n_bytes, 0, p.bytes, p.n_bytes), 0);
    assert_int_equal(r.err, GW_EDISAGREE);
    assert_non_null(
        strstr(r.sentence, "rank 3 (rank 1 of the communicator) sent 1 entry of uint8"));
    assert_non_null(strstr(r.sentence, "1 entry of float32"));
    free(r.sentence);
    gwi_inbox_fini(&in);
}

static void a_cancelled_receive_loses_the_message_that_was_coming(void **state)
{
    (void)state;
    struct parcel p = parcel(1, 7, "half", GWI_APART);
    char buffer[4] = "----", next[4];
    gw_request r = receive(1, 7, buffer, 4), posted = receive(1, 7, buffer, 4),
               n = receive(1, 7, next, 4);
    gwi_inbox in;

    open_inbox(&in);
    gwi_inbox_post(&in, &posted);
    gwi_inbox_post(&in, &r);
    gwi_inbox_cancel(&in, &posted);
    deliver_part(&in, &p, 0, 49);
    assert_int_equal(r.stage, GWI_FILLING);
    gwi_inbox_cancel(&in, &r);
    deliver_part(&in, &p, 49, p.n_bytes);
    assert_memory_equal(buffer, "h---", 4);
    deliver(&in, 1, 7, "next");
    gwi_inbox_post(&in, &n);
    assert_memory_equal(next, "next", 4);
    gwi_inbox_fini(&in);
}

static void messages_of_no_entries_arrive(void **state)
{
    (void)state;
    gw_request before = receive(1, 7, NULL, 0), after = receive(1, 8, NULL, 0);
    gwi_inbox in;

    open_inbox(&in);
    gwi_inbox_post(&in, &before);
    deliver(&in, 1, 7, "");
    deliver(&in, 1, 8, "");
    gwi_inbox_post(&in, &after);
    assert_true(before.stage == GWI_DONE && after.stage == GWI_DONE);
    assert_int_equal(in.n_kept, 0);
    gwi_inbox_fini(&in);
}

/* An envelope that is changed a little is refused, again and again, and does no harm. */
static void refuse(void (*spoil)(gwi_envelope *e), uint32_t kind, size_t n_bytes)
{
    struct parcel p = parcel(2, 7, "four", kind);
    size_t total = n_bytes > 0 ? n_bytes : kind == GWI_APART ? sizeof p.envelope : p.n_bytes;
    gwi_inbox in;

    if (spoil != NULL)
        spoil((gwi_envelope *)(void *)p.bytes);
    open_inbox(&in);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(deliver_piece(&in, 2, total, 0, p.bytes, total), GW_EBROKEN);
        assert_non_null(strstr(gw_last_error(), "rank 2 sent"));
    }
    /* also if it comes in parts */
    if (total > 20) {
        assert_int_equal(deliver_piece(&in, 2, total, 0, p.bytes, 20), total < 48 ? GW_EBROKEN : 0);
        assert_int_equal(deliver_piece(&in, 2, total, 20, p.bytes + 20, total - 20), GW_EBROKEN);
        assert_int_equal(deliver_piece(&in, 2, total, 20, p.bytes + 20, total - 20), GW_EBROKEN);
    }
    assert_true(gwi_inbox_valid(&in) && in.n_kept == 0);
    gwi_inbox_fini(&in);
}

static void spoil_kind(gwi_envelope *e)
{
    e->kind ^= 0x100;
}

static void spoil_tag(gwi_envelope *e)
{
    e->tag = -1;
}

static void spoil_high_tag(gwi_envelope *e)
{
    e->tag = GWI_TAG_MAX + 1;
}

static void spoil_source(gwi_envelope *e)
{
    e->source = SIZE;
}

static void spoil_low_source(gwi_envelope *e)
{
    e->source = -1;
}

static void spoil_dtype(gwi_envelope *e)
{
    e->dtype = GW_N_DTYPES;
}

static void spoil_n(gwi_envelope *e)
{
    e->n = UINT64_MAX;
}

static void spoil_n_by_one(gwi_envelope *e)
{
    e->n++;
}

static void empty(gwi_envelope *e)
{
    e->n = 0;
}

static void envelopes_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    refuse(spoil_kind, GWI_WHOLE, 0);
    refuse(spoil_tag, GWI_WHOLE, 0);
    refuse(spoil_high_tag, GWI_APART, 0);
    refuse(spoil_source, GWI_WHOLE, 0);
    refuse(spoil_low_source, GWI_APART, 0);
    refuse(spoil_dtype, GWI_WHOLE, 0);
    refuse(spoil_n, GWI_APART, 0);
    refuse(spoil_n_by_one, GWI_WHOLE, 0);
    refuse(empty, GWI_APART, 0);
    refuse(NULL, GWI_APART, 50);
    refuse(NULL, GWI_WHOLE, 48);
    refuse(NULL, GWI_WHOLE, 47);
    refuse(NULL, GWI_WHOLE, 1);
}

static void a_payload_of_another_length_is_refused(void **state)
{
    (void)state;
    struct parcel p = parcel(2, 7, "four", GWI_APART);
    gwi_inbox in;

    open_inbox(&in);
    deliver_part(&in, &p, 0, 48);
    assert_int_equal(deliver_piece(&in, 2, 5, 0, "fours", 5), GW_EBROKEN);
    assert_non_null(strstr(gw_last_error(), "rank 2 sent 5 bytes where 4 were due"));
    assert_int_equal(deliver_piece(&in, 2, 4, 0, "four", 4), 0);
    assert_int_equal(in.n_kept, 1);
    gwi_inbox_fini(&in);
}

static void a_message_that_lies_about_its_sender_fails_its_receive(void **state)
{
    (void)state;
    struct parcel p = parcel(1, 7, "x", GWI_WHOLE);
    char byte = 'u';
    gw_request r = receive(2, 7, &byte, 1);
    gwi_inbox in;

    open_inbox(&in);
    gwi_inbox_post(&in, &r);
    assert_int_equal(deliver_piece(&in, 2, p.n_bytes, 0, p.bytes, p.n_bytes), 0);
    assert_true(r.err == GW_EBROKEN && byte == 'u');
    assert_non_null(strstr(r.sentence, "rank 2 sent"));
    free(r.sentence);
    gwi_inbox_fini(&in);
}

GWI_TESTS(cmocka_unit_test(a_message_may_be_cut_anywhere_and_its_receive_posted_anytime),
          cmocka_unit_test(a_message_taken_back_leaves_its_receive_in_its_turn),
          cmocka_unit_test(a_receive_whose_message_was_taken_back_gets_one_that_came_meanwhile),
          cmocka_unit_test(messages_that_match_come_in_order_and_receives_too),
          cmocka_unit_test(tags_of_libraries_are_not_any_tag),
          cmocka_unit_test(other_contexts_are_another_matter),
          cmocka_unit_test(closing_drops_what_is_still_coming),
          cmocka_unit_test(a_message_of_another_kind_fails_its_receive_and_is_gone),
          cmocka_unit_test(the_name_of_a_rank_tells_both_numbers_if_they_differ),
          cmocka_unit_test(a_cancelled_receive_loses_the_message_that_was_coming),
          cmocka_unit_test(messages_of_no_entries_arrive),
          cmocka_unit_test(envelopes_that_make_no_sense_are_refused),
          cmocka_unit_test(a_payload_of_another_length_is_refused),
          cmocka_unit_test(a_message_that_lies_about_its_sender_fails_its_receive))
