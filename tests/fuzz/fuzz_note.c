/* fuzz_note.c - frames of notes: what was written is read, what is made up is read or refused.
 *
 * The input begins with a byte: 0 to 127, the rest is a frame as it is; else it is a list of
 * notes to write, of which the last byte says where one bit of the frame is turned.          */
#include "fuzz.h"

#include "params/note.h"

enum { MAX_NOTES = 64 };

/* Whatever the frame is, no note reaches beyond it, and reading ends. */
static int read_all(const uint8_t *bytes, size_t n_bytes, gwi_note *ret_notes)
{
    const unsigned char *payload;
    gwi_note note;
    size_t at = 0, before;
    int n = 0, more;

    for (;; n++) {
        before = at;
        more = gwi_frame_next(bytes, n_bytes, &at, &note, &payload);
        if (more <= 0)
            break;
        REQUIRE(at > before && at <= n_bytes && note.kind < GWI_N_NOTES);
        REQUIRE(payload == bytes + before + sizeof note && payload + note.n_bytes <= bytes + at);
        if (n < MAX_NOTES)
            ret_notes[n] = note;
    }
    REQUIRE(more == 0 || more == GW_EBROKEN);
    REQUIRE(at == before && (more < 0 || at == n_bytes));
    return more < 0 ? more : n;
}

static void read_made_up(struct input *in)
{
    gwi_note notes[MAX_NOTES];
    size_t n;
    uint8_t *bytes = next_bytes(in, in->left, &n);

    read_all(bytes, n, notes);
    free(bytes);
}

static void write_and_read(struct input *in)
{
    gwi_note written[MAX_NOTES], read[MAX_NOTES];
    gwi_frame frame = {0};
    int n = 0;

    while (in->left > 4 && n < MAX_NOTES) {
        gwi_note note = {.kind = (uint8_t)(next_number(in, 1) % GWI_N_NOTES),
                         .flags = (uint8_t)next_number(in, 1),
                         .node = (int32_t)next_number(in, 1),
                         .key = (int64_t)next_number(in, 2)};
        size_t n_bytes, n_bytes2;
        uint8_t *part = next_bytes(in, (size_t)next_number(in, 1), &n_bytes);
        uint8_t *part2 = next_bytes(in, (size_t)next_number(in, 1) % 16, &n_bytes2);
        REQUIRE(gwi_frame_add(&frame, &note, part, n_bytes, part2, n_bytes2) == 0);
        written[n++] = note;
        free(part);
        free(part2);
    }
    REQUIRE(read_all(frame.bytes, frame.n_bytes, read) == n);
    REQUIRE(n == 0 || memcmp(read, written, (size_t)n * sizeof *read) == 0);
    if (frame.n_bytes > 0) {
        size_t at = (size_t)next_number(in, 2) % (8 * frame.n_bytes), n_bytes = frame.n_bytes;
        uint8_t *copy = malloc(n_bytes); /* ends where its memory ends */
        memcpy(copy, frame.bytes, n_bytes);
        copy[at / 8] ^= (uint8_t)(1 << at % 8);
        read_all(copy, n_bytes, read);
        free(copy);
    }
    gwi_frame_fini(&frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    struct input in = {bytes, n_bytes};

    if (next_number(&in, 1) < 128)
        read_made_up(&in);
    else
        write_and_read(&in);
    return 0;
}

static void plant_seeds(void)
{
    gwi_note note = {
        .kind = GWI_NOTE_TELL, .flags = GWI_NOTE_ADDS, .node = 2, .key = 9, .n_bytes = 8};
    char frame[1 + sizeof note + 8] = {0};

    memcpy(frame + 1, &note, sizeof note);
    memcpy(frame + 1 + sizeof note, "12345678", 8);
    plant(frame, sizeof frame);
    plant(frame, sizeof frame - 3);
    plant("\200\4\1\2\7\0\5hello\3abc\6\0\1\1\0\0\0\52\0", 23);
    plant("\200\12\4\1\3\0\20123456789012345\0\100\1", 25);
}
