/* note_test.c - frames give back the notes that were put in, and broken ones are refused. */
#include "params/note.h"
#include "base/test.h"

#include <stdlib.h>
#include <string.h>

static gwi_note note_of(int kind, int64_t key)
{
    return (gwi_note){
        .kind = (uint8_t)kind, .node = 3, .key = key, .number = 77, .term = 5, .seq = 6};
}

static void a_frame_gives_back_its_notes_in_order(void **state)
{
    (void)state;
    gwi_frame frame = {0};
    unsigned char bytes[200];
    const unsigned char *payload;
    gwi_note note;
    size_t at = 0;

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 7 + 1);
    for (int i = 0; i < 100; i++) {
        note = note_of(i % GWI_N_NOTES, i);
        assert_int_equal(gwi_frame_add(&frame, &note, bytes, (size_t)i, bytes + i, (size_t)(i % 9)),
                         0);
        assert_int_equal(note.n_bytes, i + i % 9);
        assert_int_equal(frame.n_bytes % 8, 0);
    }
    for (int i = 0; i < 100; i++) {
        assert_int_equal(gwi_frame_next(frame.bytes, frame.n_bytes, &at, &note, &payload), 1);
        assert_int_equal(note.kind, i % GWI_N_NOTES);
        assert_int_equal(note.key, i);
        assert_int_equal(note.number, 77);
        assert_int_equal(note.n_bytes, i + i % 9);
        assert_int_equal((payload - frame.bytes) % 8, 0);
        assert_memory_equal(payload, bytes, note.n_bytes);
    }
    assert_int_equal(gwi_frame_next(frame.bytes, frame.n_bytes, &at, &note, &payload), 0);
    gwi_frame_fini(&frame);
    gwi_frame_fini(&frame); /* a second time is fine */
}

static void an_empty_frame_has_no_note(void **state)
{
    (void)state;
    const unsigned char *payload;
    gwi_note note;
    size_t at = 0;

    assert_int_equal(gwi_frame_next(NULL, 0, &at, &note, &payload), 0);
}

static void a_frame_that_is_cut_anywhere_is_refused(void **state)
{
    (void)state;
    gwi_frame frame = {0};
    gwi_note note = note_of(GWI_NOTE_GRANT, 1);
    const unsigned char *payload;

    assert_int_equal(gwi_frame_add(&frame, &note, "payload!", 8, NULL, 0), 0);
    for (size_t n = 1; n < frame.n_bytes; n++) {
        unsigned char *cut = malloc(n); /* a look beyond is noticed */
        size_t at = 0;
        assert_non_null(cut);
        memcpy(cut, frame.bytes, n);
        assert_int_equal(gwi_frame_next(cut, n, &at, &note, &payload), GW_EBROKEN);
        free(cut);
    }
    gwi_frame_fini(&frame);
}

static void an_unknown_kind_or_a_wrong_length_is_refused(void **state)
{
    (void)state;
    gwi_frame frame = {0};
    gwi_note note = note_of(GWI_NOTE_ASK, 1), read;
    const unsigned char *payload;
    size_t at = 0;

    assert_int_equal(gwi_frame_add(&frame, &note, "12345678", 8, NULL, 0), 0);
    note.kind = GWI_N_NOTES;
    memcpy(frame.bytes, &note, sizeof note);
    assert_int_equal(gwi_frame_next(frame.bytes, frame.n_bytes, &at, &read, &payload), GW_EBROKEN);
    note.kind = GWI_NOTE_ASK;
    note.n_bytes = UINT32_MAX;
    memcpy(frame.bytes, &note, sizeof note);
    assert_int_equal(gwi_frame_next(frame.bytes, frame.n_bytes, &at, &read, &payload), GW_EBROKEN);
    assert_int_equal(at, 0);
    gwi_frame_fini(&frame);
}

static void every_kind_has_a_name(void **state)
{
    (void)state;
    assert_string_equal(gwi_note_name(GWI_NOTE_ASK), "ASK");
    assert_string_equal(gwi_note_name(GWI_NOTE_FAILED), "FAILED");
    assert_string_equal(gwi_note_name(GWI_N_NOTES), "?");
    assert_string_equal(gwi_note_name(-1), "?");
}

GWI_TESTS(cmocka_unit_test(a_frame_gives_back_its_notes_in_order),
          cmocka_unit_test(an_empty_frame_has_no_note),
          cmocka_unit_test(a_frame_that_is_cut_anywhere_is_refused),
          cmocka_unit_test(an_unknown_kind_or_a_wrong_length_is_refused),
          cmocka_unit_test(every_kind_has_a_name))
