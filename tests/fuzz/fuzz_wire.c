/* fuzz_wire.c - frames between nodes: what was written is read, what was not is refused.
 *
 * The input is a list of steps: write the next frame of a message, spoil some of
 * its bytes or its length, or make a frame or a note up.  What the reader lets
 * pass must go on where the message under way stopped.                       */
#include "fuzz.h"

#include "fabric/mpi/wire.h"

enum { SOURCE = 5, MAX_BYTES = 3 << 18 };

struct run {
    gwi_wire wire;
    gwi_outgoing out;
    int spoilt; /* the reader has seen something that the writer did not write */
};

static uint8_t message[MAX_BYTES];

/* The piece is what the writer put there. */
static void check_content(const struct run *r, const gwi_piece *piece)
{
    REQUIRE(piece->abandoned || piece->total == r->out.n_bytes);
    REQUIRE(piece->abandoned || piece->offset + piece->n_bytes == r->out.sent);
    REQUIRE(memcmp(piece->bytes, message + piece->offset, piece->n_bytes) == 0);
}

static void read_frame(struct run *r, const uint8_t *frame, size_t n_bytes)
{
    gwi_piece p = {.source = -3};
    gwi_wire before = r->wire;
    size_t missing = before.total - before.offset;
    int err = gwi_wire_read(&r->wire, SOURCE, frame, n_bytes, &p);

    REQUIRE(memcmp(&before, &r->wire, sizeof before) == 0);
    REQUIRE(err == 0 || err == GW_EBROKEN);
    if (err < 0) {
        REQUIRE(r->spoilt && p.source == -3 && strstr(gw_last_error(), "rank 5") != NULL);
        return;
    }
    REQUIRE(p.source == SOURCE && (const uint8_t *)p.bytes == frame + GWI_WIRE_HEAD);
    REQUIRE(p.n_bytes == n_bytes - GWI_WIRE_HEAD && p.n_bytes <= GWI_WIRE_PART);
    REQUIRE(p.offset <= p.total && p.n_bytes <= p.total - p.offset && p.total <= PTRDIFF_MAX);
    if (p.abandoned)
        REQUIRE(missing > 0 && p.n_bytes == 0 && p.total == 0);
    else if (missing > 0)
        REQUIRE(p.offset == before.offset && p.total == before.total && p.n_bytes > 0);
    else
        REQUIRE(p.offset == 0 && (p.n_bytes > 0 || p.total == 0));
    if (!r->spoilt)
        check_content(r, &p);
    gwi_wire_pass(&r->wire, &p);
    REQUIRE(r->wire.offset <= r->wire.total);
}

/* The next frame of the message under way, or of one that begins. */
static uint8_t *write_frame(struct run *r, struct input *in, size_t *ret_n)
{
    if (!r->out.begun || r->out.sent == r->out.n_bytes) {
        size_t n = (size_t)next_number(in, 2);
        r->out = (gwi_outgoing){.bytes = message, .n_bytes = n < 65000 ? n : n * 11};
    }
    *ret_n = gwi_wire_next(&r->out);
    uint8_t *frame = malloc(*ret_n);
    gwi_wire_write(&r->out, frame);
    return frame;
}

static void spoil(struct run *r, struct input *in, uint8_t *frame, size_t *n_bytes)
{
    size_t at = (size_t)next_number(in, 1) % GWI_WIRE_HEAD;

    frame[at] ^= (uint8_t)next_number(in, 1);
    *n_bytes -= (size_t)next_number(in, 1) % *n_bytes;
    r->spoilt = 1;
}

static void try_note(struct input *in)
{
    size_t n;
    size_t length = (size_t)next_number(in, 1);
    uint8_t *bytes = next_bytes(in, length, &n);
    gwi_note note = {.kind = 99};
    int err = gwi_note_read(SOURCE, bytes, n, &note);

    REQUIRE(err == 0 || (err == GW_EBROKEN && note.kind == 99));
    if (err == 0)
        REQUIRE(n == sizeof note && memcmp(&note, bytes, n) == 0 &&
                (note.kind == GWI_NOTE_BARRIER || note.kind == GWI_NOTE_LEFT));
    free(bytes);
}

static void step(struct run *r, struct input *in)
{
    unsigned what = (unsigned)next_number(in, 1);
    uint8_t *frame;
    size_t n;

    if (what >= 240) {
        try_note(in);
        return;
    }
    if (what >= 200) {
        frame = next_bytes(in, what - 200, &n);
        r->spoilt = 1;
    } else if (what >= 180 && r->out.begun && r->out.sent < r->out.n_bytes) {
        n = GWI_WIRE_HEAD;
        frame = malloc(n);
        gwi_wire_write_abandon(frame);
        r->out.begun = 0;
    } else {
        frame = write_frame(r, in, &n);
        if (what >= 150)
            spoil(r, in, frame, &n);
    }
    read_frame(r, frame, n);
    free(frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    struct input in = {bytes, n_bytes};
    struct run r = {.spoilt = 0};

    for (size_t i = 0; message[1] == 0 && i < sizeof message; i++)
        message[i] = (uint8_t)(i * 31 + (i >> 8) + 1);
    for (int steps = 0; in.left > 0 && steps < 64; steps++)
        step(&r, &in);
    return 0;
}

static void plant_seeds(void)
{
    char note[1 + 1 + sizeof(gwi_note)] = {(char)250, (char)sizeof(gwi_note), GWI_NOTE_BARRIER};

    plant("\1\0\0\1\1\0\1\377\0", 9);             /* messages of 0, 1 and 255 bytes */
    plant("\1\377\377\1\1\1", 6);                 /* a long one, in frames */
    plant("\1\377\377\264\1\5\0", 7);             /* taken back, another */
    plant("\226\10\0\0\1\0\226\10\0\10\1\0", 12); /* spoilt heads */
    plant("\330\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 17);
    plant(note, sizeof note);
    note[2] = GWI_NOTE_LEFT;
    plant(note, sizeof note);
}
