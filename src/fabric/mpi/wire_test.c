/* wire_test.c - frames that are right arrive, frames that are wrong are refused. */
#include "fabric/mpi/wire.h"
#include "base/test.h"

#include <stdlib.h>
#include <string.h>

enum { SOURCE = 7 };

/* All frames of a message through a reader; the bytes must be the same. */
static void pass(gwi_wire *wire, size_t n_bytes)
{
    unsigned char *sent = malloc(n_bytes + 1), *got = malloc(n_bytes + 1),
                  *frame = malloc(GWI_WIRE_FRAME);
    gwi_outgoing out = {.bytes = sent, .n_bytes = n_bytes};
    size_t filled = 0;

    assert_true(sent != NULL && got != NULL && frame != NULL);
    for (size_t i = 0; i < n_bytes; i++)
        sent[i] = (unsigned char)(i * 31 + n_bytes);
    do {
        gwi_piece piece;
        size_t n = gwi_wire_next(&out);
        gwi_wire_write(&out, frame);
        assert_int_equal(gwi_wire_read(wire, SOURCE, frame, n, &piece), 0);
        assert_int_equal(piece.source, SOURCE);
        assert_int_equal(piece.total, n_bytes);
        assert_int_equal(piece.offset, filled);
        assert_false(piece.abandoned);
        memcpy(got + filled, piece.bytes, piece.n_bytes);
        filled += piece.n_bytes;
        gwi_wire_pass(wire, &piece);
    } while (out.sent < n_bytes);
    assert_int_equal(filled, n_bytes);
    assert_memory_equal(sent, got, n_bytes);
    free(sent);
    free(got);
    free(frame);
}

static void messages_of_every_length_arrive_as_they_were(void **state)
{
    static const size_t lengths[] = {
        0, 1, 8, 100, GWI_WIRE_PART - 1, GWI_WIRE_PART, GWI_WIRE_PART + 1, 3 * GWI_WIRE_PART, 0, 5,
    };
    gwi_wire wire = {0};

    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        pass(&wire, lengths[i]);
}

static void an_abandoned_message_makes_way_for_the_next(void **state)
{
    static unsigned char bytes[2 * GWI_WIRE_PART], frame[GWI_WIRE_FRAME];
    gwi_outgoing out = {.bytes = bytes, .n_bytes = sizeof bytes};
    gwi_wire wire = {0};
    gwi_piece piece;

    (void)state;
    gwi_wire_write(&out, frame);
    assert_int_equal(gwi_wire_read(&wire, SOURCE, frame, sizeof frame, &piece), 0);
    gwi_wire_pass(&wire, &piece);
    gwi_wire_write_abandon(frame);
    assert_int_equal(gwi_wire_read(&wire, SOURCE, frame, GWI_WIRE_HEAD, &piece), 0);
    assert_true(piece.abandoned);
    gwi_wire_pass(&wire, &piece);
    pass(&wire, 10);
}

/* A message of more than 4 GB is told by its head alone; nobody has to hold it. */
static void offsets_beyond_four_gigabytes_are_kept(void **state)
{
    static unsigned char frame[GWI_WIRE_HEAD + 5];
    uint64_t total = UINT64_C(5) << 32, offset = total - 5;
    gwi_wire wire = {.total = total, .offset = offset};
    gwi_piece piece;

    (void)state;
    memcpy(frame, &(uint64_t){total << 8 | 1}, 8);
    memcpy(frame + 8, &offset, 8);
    assert_int_equal(gwi_wire_read(&wire, SOURCE, frame, sizeof frame, &piece), 0);
    assert_int_equal(piece.total, total);
    assert_int_equal(piece.offset, offset);
    gwi_wire_pass(&wire, &piece);
    pass(&wire, 3);
}

static void a_frame_that_makes_no_sense_is_refused(void **state)
{
    static const struct {
        gwi_wire under_way;
        uint64_t kind, total, offset;
        size_t n_bytes;
        const char *word;
    } cases[] = {
        {{0, 0}, 0, 4, 0, GWI_WIRE_HEAD + 4, "kind is unknown"},
        {{0, 0}, 3, 4, 0, GWI_WIRE_HEAD + 4, "kind is unknown"},
        {{0, 0}, 1, 4, 0, GWI_WIRE_HEAD - 1, "shorter than its head"},
        {{0, 0}, 1, 4, 0, 0, "shorter than its head"},
        {{0, 0}, 1, 4, 0, GWI_WIRE_HEAD + 5, "does not fit"},
        {{0, 0}, 1, 4, 0, GWI_WIRE_HEAD, "does not fit"},
        {{0, 0}, 1, UINT64_MAX >> 8, 0, GWI_WIRE_FRAME + 1, "does not fit"},
        {{0, 0}, 1, 4, 1, GWI_WIRE_HEAD + 3, "never began"},
        {{9, 9}, 1, 9, 9, GWI_WIRE_HEAD, "never began"},
        {{0, 0}, 2, 0, 0, GWI_WIRE_HEAD, "never began"},
        {{9, 4}, 2, 0, 0, GWI_WIRE_HEAD + 1, "never began"},
        {{9, 4}, 1, 9, 5, GWI_WIRE_HEAD + 4, "does not go on"},
        {{9, 4}, 1, 8, 4, GWI_WIRE_HEAD + 4, "does not go on"},
        {{9, 4}, 1, 4, 0, GWI_WIRE_HEAD + 4, "does not go on"},
        {{9, 4}, 1, 9, 4, GWI_WIRE_HEAD + 6, "does not fit"},
        {{9, 4}, 1, 9, UINT64_MAX, GWI_WIRE_HEAD + 4, "does not go on"},
    };
    static unsigned char frame[GWI_WIRE_FRAME + 1];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gwi_piece piece = {.source = 42};
        memcpy(frame, &(uint64_t){cases[i].total << 8 | cases[i].kind}, 8);
        memcpy(frame + 8, &cases[i].offset, 8);
        assert_int_equal(
            gwi_wire_read(&cases[i].under_way, SOURCE, frame, cases[i].n_bytes, &piece),
            GW_EBROKEN);
        assert_non_null(strstr(gw_last_error(), cases[i].word));
        assert_non_null(strstr(gw_last_error(), "rank 7"));
        assert_int_equal(piece.source, 42);
    }
}

static void a_note_arrives_and_a_wrong_one_is_refused(void **state)
{
    gwi_note note = {.kind = GWI_NOTE_LEFT, .barrier = 3, .frames = {[7] = 9}}, got;

    (void)state;
    assert_int_equal(gwi_note_read(SOURCE, &note, sizeof note, &got), 0);
    assert_memory_equal(&note, &got, sizeof note);
    assert_int_equal(gwi_note_read(SOURCE, &note, sizeof note - 1, &got), GW_EBROKEN);
    assert_int_equal(gwi_note_read(SOURCE, &note, 0, &got), GW_EBROKEN);
    note.kind = 3;
    assert_int_equal(gwi_note_read(SOURCE, &note, sizeof note, &got), GW_EBROKEN);
    assert_non_null(strstr(gw_last_error(), "rank 7"));
}

GWI_TESTS(cmocka_unit_test(messages_of_every_length_arrive_as_they_were),
          cmocka_unit_test(an_abandoned_message_makes_way_for_the_next),
          cmocka_unit_test(offsets_beyond_four_gigabytes_are_kept),
          cmocka_unit_test(a_frame_that_makes_no_sense_is_refused),
          cmocka_unit_test(a_note_arrives_and_a_wrong_one_is_refused))
