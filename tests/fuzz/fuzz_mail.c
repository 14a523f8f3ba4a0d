/* fuzz_mail.c - messages with tags: whatever arrives, every receive gets what is its own.
 *
 * The input is a list of steps: post a receive, begin a message of a rank, let some more
 * of it arrive, take it back, cancel a receive, close the communicator.  A message may be
 * spoilt: then its rank is not believed any more, and must do no harm to the others.
 * Pieces follow each other as fabric.h promises.                              */
#include "fuzz.h"

#include "comm/inbox.h"

enum { RANKS = 3, RECEIVES = 16, CONTEXT = 9, MAX_BYTES = 300 };

/* A message on its way: its envelope, and its payload with it or after it. */
struct sender {
    int under_way, spoilt, broken;
    uint64_t number;
    gwi_envelope envelope;
    uint8_t bytes[sizeof(gwi_envelope) + MAX_BYTES];
    size_t n_bytes; /* of it */
    size_t cut;     /* where the first message of the fabric ends */
    size_t sent;
};

struct receive {
    int used;
    gw_request request;
};

struct run {
    gwi_inbox inbox;
    struct sender senders[RANKS];
    struct receive receives[RECEIVES];
};

static int ranks[RANKS] = {0, 1, 2};
static const gw_comm comm = {.rank = 0, .size = RANKS, .ranks = ranks, .context = CONTEXT};

static uint8_t pattern(int source, uint64_t number, size_t i)
{
    return (uint8_t)(source * 77 + (int)number * 13 + (int)i * 7);
}

/* A receive is over: it has what its sender sent, in order, or says who failed. */
static void end_receive(struct run *run, struct receive *receive)
{
    gw_request *r = &receive->request;
    const gw_status *s = &r->status;
    const uint8_t *bytes = r->buffer;

    if (r->err < 0) {
        REQUIRE(r->err == GW_EDISAGREE || r->err == GW_EBROKEN || r->err == GW_ESTATE);
        REQUIRE(r->sentence != NULL);
    } else if (!run->senders[s->source].spoilt) {
        REQUIRE(s->n == r->n && (r->tag == s->tag || r->tag == GW_ANY_TAG));
        REQUIRE(r->peer < 0 || r->peer == s->source);
        REQUIRE(s->number < run->senders[s->source].number);
        for (size_t i = 0; i < s->n; i++)
            REQUIRE(bytes[i] == pattern(s->source, s->number, i));
    }
    free(r->sentence);
    free(r->buffer);
    receive->used = 0;
}

static void end_receives(struct run *run)
{
    for (int i = 0; i < RECEIVES; i++)
        if (run->receives[i].used && run->receives[i].request.stage == GWI_DONE)
            end_receive(run, &run->receives[i]);
}

static void post(struct run *run, struct input *in)
{
    struct receive *receive = run->receives;
    size_t n = (size_t)next_number(in, 1) % 3 * 100;
    int peer = (int)(next_number(in, 1) % (RANKS + 1)) - 1, tag = (int)(next_number(in, 1) % 3) - 1;

    while (receive < run->receives + RECEIVES && receive->used)
        receive++;
    if (receive == run->receives + RECEIVES)
        return;
    receive->used = 1;
    receive->request = (gw_request){.comm = &comm,
                                    .peer = peer,
                                    .context = CONTEXT,
                                    .tag = tag,
                                    .n = n,
                                    .dtype = GW_U8,
                                    .buffer = malloc(n > 0 ? n : 1),
                                    .n_bytes = n};
    gwi_inbox_post(&run->inbox, &receive->request);
}

static void cancel(struct run *run, struct input *in)
{
    struct receive *receive = &run->receives[next_number(in, 1) % RECEIVES];

    if (!receive->used)
        return;
    gwi_inbox_cancel(&run->inbox, &receive->request);
    free(receive->request.buffer);
    receive->used = 0;
}

/* The envelope as it is sent, which may be spoilt. */
static void begin(struct sender *s, int rank, struct input *in, int spoil)
{
    size_t n = (size_t)next_number(in, 1) % 3 * 100;
    int apart = n > 0 && next_number(in, 1) % 2;

    s->envelope = (gwi_envelope){.kind = apart ? GWI_APART : GWI_WHOLE,
                                 .dtype = GW_U8,
                                 .context = CONTEXT,
                                 .tag = (int)(next_number(in, 1) % 2),
                                 .number = s->number++,
                                 .n = n,
                                 .source = rank};
    memcpy(s->bytes, &s->envelope, sizeof s->envelope);
    for (size_t i = 0; i < n; i++)
        s->bytes[sizeof s->envelope + i] = pattern(rank, s->envelope.number, i);
    s->n_bytes = sizeof s->envelope + n;
    s->cut = apart ? sizeof s->envelope : s->n_bytes;
    s->sent = 0;
    s->under_way = 1;
    if (!spoil)
        return;
    s->bytes[next_number(in, 1) % sizeof s->envelope] ^= (uint8_t)next_number(in, 1);
    /* Not more than memory holds: whoever keeps a message believes its length. */
    memset(s->bytes + offsetof(gwi_envelope, n) + 2, 0, sizeof s->envelope.n - 2);
    s->n_bytes -= (size_t)next_number(in, 1) % s->n_bytes;
    s->cut = s->cut < s->n_bytes ? s->cut : s->n_bytes;
    s->spoilt = 1;
}

/* Let up to `most` bytes arrive. */
static void go_on(struct run *run, struct sender *s, int rank, size_t most)
{
    size_t from = s->sent < s->cut ? 0 : s->cut, to = s->sent < s->cut ? s->cut : s->n_bytes;
    size_t n = most < to - s->sent ? most : to - s->sent;
    uint8_t *copy = malloc(n > 0 ? n : 1);
    gwi_piece piece = {
        .source = rank, .total = to - from, .offset = s->sent - from, .bytes = copy, .n_bytes = n};

    memcpy(copy, s->bytes + s->sent, n);
    int err = gwi_inbox_deliver(&run->inbox, &piece);
    REQUIRE(err == 0 || (err == GW_EBROKEN && s->spoilt));
    if (err == GW_EBROKEN) {
        char name[16];
        snprintf(name, sizeof name, "rank %d", rank);
        REQUIRE(strstr(gw_last_error(), name) != NULL);
        REQUIRE(gwi_inbox_deliver(&run->inbox, &piece) == GW_EBROKEN);
        s->broken = 1;
    }
    s->sent += n;
    s->under_way = s->sent < s->n_bytes;
    free(copy);
}

/* Between the two messages of the fabric a blank does it, inside one it is abandoned. */
static void take_back(struct run *run, struct sender *s, int rank)
{
    int inside = s->under_way && s->sent > 0 && s->sent != s->cut;
    gwi_piece piece = {.source = rank, .abandoned = inside};

    if (s->under_way && s->sent == 0)
        s->under_way = 0; /* nobody has seen anything */
    REQUIRE(gwi_inbox_deliver(&run->inbox, &piece) == 0);
    s->under_way = 0;
}

static void step(struct run *run, struct input *in)
{
    unsigned what = (unsigned)next_number(in, 1);
    int rank = (int)(what % RANKS);
    struct sender *s = &run->senders[rank];

    if (what >= 250)
        gwi_inbox_close(&run->inbox, CONTEXT);
    else if (what >= 230)
        cancel(run, in);
    else if (what >= 150)
        post(run, in);
    else if (s->broken)
        return;
    else if (what >= 140)
        take_back(run, s, rank);
    else if (!s->under_way)
        begin(s, rank, in, what < 10);
    else
        go_on(run, s, rank, what < 40 ? 1 + what : 1 + (size_t)next_number(in, 2) % 400);
    REQUIRE(gwi_inbox_valid(&run->inbox));
    end_receives(run);
}

static void try_envelope(struct input *in)
{
    size_t n, total = (size_t)next_number(in, 2), payload;
    uint8_t *bytes = next_bytes(in, (size_t)next_number(in, 1), &n);
    gwi_envelope e = {.kind = 99};
    int err = gwi_envelope_read(bytes, n, total, 1, RANKS, &e, &payload);

    if (err < 0) {
        REQUIRE(err == GW_EBROKEN && e.kind == 99 && strstr(gw_last_error(), "rank 1") != NULL);
    } else {
        REQUIRE(n >= sizeof e && memcmp(&e, bytes, sizeof e) == 0);
        REQUIRE(e.source >= 0 && e.source < RANKS && e.dtype < GW_N_DTYPES && e.tag >= 0);
        REQUIRE(payload <= PTRDIFF_MAX && payload >= e.n);
        REQUIRE(total == sizeof e + (e.kind == GWI_WHOLE ? payload : 0));
    }
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    struct input in = {bytes, n_bytes};
    static struct run run;

    run = (struct run){0};
    REQUIRE(gwi_inbox_init(&run.inbox, RANKS) == 0);
    if (next_number(&in, 1) == 255)
        try_envelope(&in);
    for (int steps = 0; in.left > 0 && steps < 500; steps++)
        step(&run, &in);
    for (int i = 0; i < RECEIVES; i++)
        if (run.receives[i].used)
            free(run.receives[i].request.buffer);
    gwi_inbox_fini(&run.inbox);
    return 0;
}

static void plant_seeds(void)
{
    gwi_envelope e = {.kind = GWI_WHOLE, .dtype = GW_F32, .tag = 5, .n = 2, .source = 1};
    char envelope[4 + sizeof e] = {(char)255, sizeof e + 8, 0, sizeof e};

    memcpy(envelope + 4, &e, sizeof e);
    plant(envelope, sizeof envelope);
    /* posted, then a message of 100 bytes, whole and apart, in two pieces */
    plant("\0\226\1\2\1\62\1\0\0\36\62\377\1", 13);
    plant("\0\226\1\2\1\62\1\1\0\62\57\0\62\377\1", 15);
    plant("\0\62\1\1\0\62\57\0\226\1\2\1\62\20\0\62\377\1", 18);      /* posted in the middle */
    plant("\0\62\1\1\0\62\57\0\226\1\2\1\217\62\1\0\0\62\377\1", 20); /* taken back, another */
    plant("\0\2\1\1\0\10\1\0\5\377\1", 11);                           /* spoilt */
    plant("\0\226\1\2\1\62\1\1\0\62\77\0\346\0\62\377\1\372", 18);    /* cancelled, closed */
}
