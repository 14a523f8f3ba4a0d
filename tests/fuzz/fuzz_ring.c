/* fuzz_ring.c - rings that are used well lose nothing; rings that are overwritten do no harm.
 *
 * The input is a list of steps for the two ends of one ring.  As long as only the
 * giver writes, every message must come out as it went in.  The first step that
 * writes into the ring by itself ends that: from there on only the taker works,
 * and every piece must lie inside the ring and belong where it says, or the taker
 * must refuse the frame for good.                                            */
#include "fuzz.h"

#include "fabric/shm/ring.h"

enum { SOURCE = 5, MAX_MESSAGES = 256, BROKEN_TAKES = 300 };

/* What must come out, in order. */
struct message {
    size_t n_bytes;
    int abandoned;
};

struct run {
    uint64_t capacity;
    gwi_ring_shared *ring;
    gwi_ring_giver giver;
    gwi_ring_taker taker;
    struct message messages[MAX_MESSAGES];
    int n_given, n_taken; /* messages begun, messages that came out */
    gwi_outgoing out;     /* the message under way; bytes NULL: none */
    int decline;          /* the next piece */
    int overwritten;      /* somebody else wrote into the ring */
    size_t total, filled; /* of the message that comes out */
};

/* Message i has bytes i, i + 1, ... of this. */
static uint8_t pattern[5 << 16];

static int deliver(void *ctx, const gwi_piece *piece)
{
    struct run *r = ctx;
    const uint8_t *bytes = piece->bytes;
    size_t at = (size_t)(bytes - r->ring->data);

    REQUIRE(piece->source == SOURCE);
    REQUIRE(at <= r->capacity && piece->n_bytes <= r->capacity - at);
    REQUIRE(piece->n_bytes + 8 <= r->capacity - GWI_LINE); /* R2 */
    REQUIRE(piece->total <= PTRDIFF_MAX);
    if (r->decline) {
        r->decline = 0;
        return GW_EAGAIN;
    }
    if (piece->abandoned) {
        REQUIRE(r->filled < r->total && piece->n_bytes == 0);
        REQUIRE(r->overwritten || r->messages[r->n_taken].abandoned);
        r->filled = r->total = 0;
        r->n_taken++;
        return 0;
    }
    REQUIRE((piece->offset == 0) == (r->filled == r->total));
    if (piece->offset == 0) {
        r->total = piece->total;
        r->filled = 0;
    }
    REQUIRE(piece->total == r->total && piece->offset == r->filled);
    REQUIRE(piece->n_bytes <= r->total - r->filled);
    REQUIRE(piece->n_bytes > 0 || r->total == 0);
    if (!r->overwritten) {
        REQUIRE(r->n_taken < r->n_given && r->total == r->messages[r->n_taken].n_bytes);
        REQUIRE(memcmp(bytes, pattern + r->n_taken + r->filled, piece->n_bytes) == 0);
    } else {
        volatile uint8_t sum = 0; /* AddressSanitizer looks at what is read */
        for (size_t i = 0; i < piece->n_bytes; i++)
            sum = (uint8_t)(sum + bytes[i]);
    }
    r->filled += piece->n_bytes;
    r->n_taken += r->filled == r->total;
    return 0;
}

static int take(struct run *r)
{
    int room = 0;
    int result = gwi_ring_take(&r->taker, SOURCE, deliver, r, &room);

    REQUIRE(gwi_ring_taker_valid(&r->taker));
    REQUIRE(r->overwritten ? result == GW_EBROKEN || result == 0 || result == 1
                           : result == 0 || result == 1);
    return result;
}

/* Put in as much of the message under way as there is room for. */
static gwi_ring_given give(struct run *r)
{
    gwi_ring_given given;
    int begun = r->out.begun;

    do
        given = gwi_ring_give(&r->giver, &r->out);
    while (given == GWI_RING_PART);
    if (!begun && r->out.begun)
        r->messages[r->n_given++] = (struct message){.n_bytes = r->out.n_bytes};
    if (given == GWI_RING_ALL)
        r->out.bytes = NULL;
    return given;
}

static void begin(struct run *r, size_t n_bytes)
{
    if (r->out.bytes == NULL && r->n_given < MAX_MESSAGES - 1)
        r->out = (gwi_outgoing){.bytes = pattern + r->n_given, .n_bytes = n_bytes};
    if (r->out.bytes != NULL)
        give(r);
}

static void abandon(struct run *r)
{
    if (r->out.bytes == NULL)
        return;
    gwi_ring_abandon(&r->giver, &r->out);
    if (r->out.begun)
        r->messages[r->n_given - 1].abandoned = 1;
    r->out.bytes = NULL;
}

/* Everything that was given comes out, the abandoned last one too. */
static void finish(struct run *r)
{
    r->decline = 0;
    while (r->out.bytes != NULL)
        if (give(r) == GWI_RING_FULL)
            REQUIRE(take(r) == 1);
    r->out = (gwi_outgoing){.bytes = pattern + r->n_given, .n_bytes = 1};
    while (give(r) == GWI_RING_FULL)
        REQUIRE(take(r) == 1);
    while (take(r) == 1)
        continue;
    REQUIRE(r->n_taken == r->n_given && r->filled == r->total);
}

/* A frame by somebody else, near where the taker looks or anywhere. */
static void overwrite_frame(struct run *r, struct input *in)
{
    uint64_t line = next_number(in, 1), kind = next_number(in, 1), n = next_number(in, 2);
    uint64_t more = next_number(in, 1), total = next_number(in, 8);
    uint8_t *at = r->ring->data + ((r->taker.taken + line % 16 * GWI_LINE) & (r->capacity - 1));

    n = more == 255 ? total : n | more << 16;
    memcpy(at, &(uint64_t){n << 8 | (kind < 250 ? kind % 6 : kind)}, 8);
    memcpy(at + 8, &total, 8);
    r->overwritten = 1;
}

static void overwrite_bytes(struct run *r, struct input *in)
{
    uint64_t at = next_number(in, 3) & (r->capacity - 1);
    size_t n, most = (size_t)next_number(in, 1);
    uint8_t *bytes = next_bytes(in, most < r->capacity - at ? most : r->capacity - at, &n);

    memcpy(r->ring->data + at, bytes, n);
    free(bytes);
    r->overwritten = 1;
}

static void step(struct run *r, struct input *in)
{
    unsigned what = (unsigned)next_number(in, 1);

    if (what >= 250) {
        overwrite_bytes(r, in);
    } else if (what >= 240) {
        overwrite_frame(r, in);
    } else if (what >= 120) {
        for (unsigned i = 0; i < what % 8 && take(r) == 1; i++)
            continue;
    } else if (what >= 110) {
        r->decline = 1;
    } else if (!r->overwritten && what >= 100) {
        abandon(r);
    } else if (!r->overwritten) {
        begin(r, what < 50 ? what : (size_t)next_number(in, 2) % (4 * (size_t)r->capacity));
    }
}

/* Whatever is in the ring now: pieces that make sense, then nothing or an end. */
static void take_what_is_left(struct run *r)
{
    int result = 1;

    for (int i = 0; i < BROKEN_TAKES && result == 1; i++)
        result = take(r);
    if (result != GW_EBROKEN)
        return;
    gwi_ring_taker before = r->taker;
    REQUIRE(strstr(gw_last_error(), "rank 5") != NULL);
    REQUIRE(take(r) == GW_EBROKEN);
    REQUIRE(memcmp(&before, &r->taker, sizeof before) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    struct input in = {bytes, n_bytes};
    static struct run r;

    r = (struct run){.capacity = UINT64_C(1024) << next_number(&in, 1) % 4};
    r.ring = aligned_alloc(GWI_LINE, gwi_ring_bytes(r.capacity));
    memset(r.ring, 0, gwi_ring_bytes(r.capacity));
    gwi_ring_giver_init(&r.giver, r.ring, r.capacity);
    gwi_ring_taker_init(&r.taker, r.ring, r.capacity);
    for (size_t i = 0; pattern[1] == 0 && i < sizeof pattern; i++)
        pattern[i] = (uint8_t)(i * 31 + (i >> 8) + 1);
    while (in.left > 0)
        step(&r, &in);
    if (r.overwritten)
        take_what_is_left(&r);
    else
        finish(&r);
    free(r.ring);
    return 0;
}

static void plant_seeds(void)
{
    plant("\0\010\170\171", 4);                                  /* a short message, taken */
    plant("\0\074\377\017\173\173\173\173\173\173\173\173", 12); /* a long one, in frames */
    plant("\1\074\377\077\171\145\010\173\173", 9);              /* begun, taken back, another */
    plant("\0\010\156\171\171", 5);                              /* declined, then taken */
    for (char kind = 0; kind < 6; kind++) {
        char lone[] = {0, (char)240, 0, kind, 8, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0};
        char all[] = {0, (char)240, 0, kind, (char)0xf8, 3, 0, 0,
                      4, 0,         0, 0,    0,          0, 0}; /* the ring */
        char end[] = {0, 8, 121, (char)240, 0, kind, (char)0xb8, 3, 0,
                      0, 4, 0,   0,         0, 0,    0,          0}; /* its rest */
        char inside[] = {0, 60,  (char)255, 3, 121, (char)240, 0, kind, 8, 0,
                         0, 100, 0,         0, 0,   0,         0, 0,    0};
        plant(lone, sizeof lone);
        plant(all, sizeof all);
        plant(end, sizeof end);
        plant(inside, sizeof inside);
    }
    char skips[1 + 16 * 14] = {0}; /* one after the other, all around */
    for (char i = 0; i < 16; i++)
        memcpy(skips + 1 + i * 14, (char[]){(char)240, i, 4, GWI_LINE - 8}, 4);
    plant(skips, sizeof skips);
    plant("\2\372\0\0\0\100\1\10\0\0\0\0\0\0hello", 19);
}
