/* messages.c - messages arrive once, in order and whole, in whatever way they are
 * sent and received. */
#include "traffic.h"

#include <stdlib.h>
#include <string.h>

#define MB ((size_t)1 << 20)

/* A case that is nothing but traffic. */
#define TRAFFIC_CASE(case_name, ranks, ...)                    \
    static const struct plan case_name##_plan = {__VA_ARGS__}; \
    static int case_name##_begin(void *state, gwi_fabric *f)   \
    {                                                          \
        return traffic_begin(state, f, &case_name##_plan);     \
    }                                                          \
    const struct conformance_case case_name = {                \
        .name = #case_name,                                    \
        .min_size = ranks,                                     \
        .state_bytes = sizeof(struct traffic),                 \
        .begin = case_name##_begin,                            \
        .step = traffic_step,                                  \
        .end = traffic_end,                                    \
    }

/* order */

static uint32_t some_to_all(const struct run *run, const gwi_place *place, int from, int to)
{
    (void)from, (void)to;
    return run->heavy ? place->size > 4 ? 40 : 300 : 12;
}

/* Mostly short, some up to 200 KB; under sim up to 4 KB. */
static size_t random_size(const struct run *run, const struct letter *letter)
{
    uint64_t hash = letter_hash(run, letter);
    size_t most = run->heavy ? 200000 : 4000;

    return hash % 4 == 0 ? (hash >> 8) % most : (hash >> 8) % 80;
}

TRAFFIC_CASE(messages_of_random_sizes_keep_their_order, 1, .lanes = 1 << 0 | 1 << 3 | 1 << 7,
             .count = some_to_all, .bytes = random_size);
TRAFFIC_CASE(all_may_send_before_any_receives, 1, .lanes = 1 << 0 | 1 << 5, .send_first = 1,
             .count = some_to_all, .bytes = random_size);
TRAFFIC_CASE(what_is_declined_is_offered_again, 1, .lanes = 1 << 0 | 1 << 1, .decline = 1,
             .count = some_to_all, .bytes = random_size);

/* floods */

static uint32_t many_to_rank_0(const struct run *run, const gwi_place *place, int from, int to)
{
    (void)place;
    return to == 0 && from != 0 ? run->heavy ? 5000 : 100 : 0;
}

static size_t short_size(const struct run *run, const struct letter *letter)
{
    return letter_hash(run, letter) % 24;
}

TRAFFIC_CASE(nothing_is_lost_when_many_flood_one, 2, .lanes = 1 << 0, .count = many_to_rank_0,
             .bytes = short_size);

/* sizes */

/* The lengths of frames, and those at which fabrics change their ways, with
 * their neighbours. */
static const size_t edges[] = {0,     8,     16,    48,    56,     64,     72,     128,
                               256,   512,   1008,  1024,  2048,   4096,   8192,   16384,
                               32752, 32760, 32768, 65536, 131072, 262144, 1 << 20};
#define N_EDGES (sizeof edges / sizeof edges[0])
#define LIGHT_EDGES 13 /* up to 2 KB */

static uint32_t edges_to_next(const struct run *run, const gwi_place *place, int from, int to)
{
    return to == (from + 1) % place->size ? 3 * (run->heavy ? N_EDGES : LIGHT_EDGES) : 0;
}

static size_t edge_size(const struct run *run, const struct letter *letter)
{
    size_t edge = edges[letter->number / 3];

    (void)run;
    return letter->number % 3 > 0 ? edge + letter->number % 3 - 1 : edge > 0 ? edge - 1 : 0;
}

TRAFFIC_CASE(sizes_around_frames_arrive_whole, 1, .lanes = 1 << 2, .count = edges_to_next,
             .bytes = edge_size);

static uint32_t one_each_way(const struct run *run, const gwi_place *place, int from, int to)
{
    (void)run, (void)place;
    return from + to == 1;
}

static size_t big_size(const struct run *run, const struct letter *letter)
{
    (void)letter;
    return run->heavy ? 64 * MB : MB / 8 + run->seed % 1000;
}

TRAFFIC_CASE(messages_of_64_mb_cross_each_other, 2, .lanes = 1 << 0, .count = one_each_way,
             .bytes = big_size);

/* lanes: an even rank floods lane 1 of the next one, which looks at it only after
 * it has got something on lane 6 */

#define FLOOD_LANE 1
#define NEWS_LANE 6
#define FLOOD_BYTES ((size_t)64 << 10)
#define MOST_FLOODS 64 /* a fabric may hold 4 MB and never be full */

struct lanes {
    struct actor actor;
    gwi_outgoing flood, news;
    int sending;                /* `flood` is not done */
    uint32_t n_floods, n_taken; /* in all; as the news tell */
    int has_news;
    size_t offset;
    unsigned char bytes[FLOOD_BYTES];
};

static int take_news(void *ctx, const gwi_piece *piece)
{
    struct lanes *s = ctx;

    CHECK(piece->total == sizeof s->n_floods && piece->offset + piece->n_bytes <= piece->total);
    memcpy((unsigned char *)&s->n_floods + piece->offset, piece->bytes, piece->n_bytes);
    s->has_news = piece->offset + piece->n_bytes == piece->total;
    return 0;
}

static int take_flood(void *ctx, const gwi_piece *piece)
{
    struct lanes *s = ctx;
    struct letter letter = {piece->source, piece->source + 1, FLOOD_LANE, 0};

    CHECK(piece->total == FLOOD_BYTES && piece->offset == s->offset);
    CHECK(letter_matches(s->actor.run, &letter, piece->offset, piece->n_bytes, piece->bytes));
    s->offset = (s->offset + piece->n_bytes) % FLOOD_BYTES;
    s->n_taken += s->offset == 0;
    return 0;
}

static int flood_and_tell(struct lanes *s, gwi_fabric *f)
{
    struct letter letter = {f->place.rank, f->place.rank + 1, FLOOD_LANE, 0};
    int done = 1;

    if (s->actor.phase == 0) { /* flood */
        letter_write(s->actor.run, &letter, 0, FLOOD_BYTES, s->bytes);
        for (; done == 1 && s->n_floods < MOST_FLOODS; s->n_floods++) {
            s->flood = (gwi_outgoing){
                .peer = letter.to, .lane = FLOOD_LANE, .bytes = s->bytes, .n_bytes = FLOOD_BYTES};
            done = f->ops->send(f, &s->flood);
        }
        s->sending = done == 0;
        s->news = (gwi_outgoing){.peer = letter.to,
                                 .lane = NEWS_LANE,
                                 .bytes = &s->n_floods,
                                 .n_bytes = sizeof s->n_floods};
        s->actor.phase = 1;
    }
    if (done >= 0 && s->actor.phase == 1) { /* tell */
        s->actor.lane = NEWS_LANE;
        done = f->ops->send(f, &s->news);
        s->actor.phase += done == 1;
    }
    if (done >= 0 && s->actor.phase == 2) { /* finish */
        s->actor.lane = FLOOD_LANE;
        done = s->sending ? f->ops->send(f, &s->flood) : 1;
    }
    return done < 0 ? done : s->actor.phase == 2 && done == 1;
}

static int hear_and_drain(struct lanes *s, gwi_fabric *f)
{
    int n = s->has_news ? f->ops->poll(f, FLOOD_LANE, f->place.rank - 1, take_flood, s)
                        : f->ops->poll(f, NEWS_LANE, f->place.rank - 1, take_news, s);

    s->actor.busy = n > 0;
    s->actor.lane = s->has_news ? FLOOD_LANE : NEWS_LANE;
    return n < 0 ? n : s->has_news && s->n_taken == s->n_floods;
}

static int lanes_step(void *state, gwi_fabric *f, int64_t now_ns)
{
    struct lanes *s = state;

    (void)now_ns;
    if (f->place.rank % 2 == 1)
        return hear_and_drain(s, f);
    return f->place.rank + 1 < f->place.size ? flood_and_tell(s, f) : 1;
}

const struct conformance_case a_full_lane_holds_up_no_other = {
    .name = "a_full_lane_holds_up_no_other",
    .min_size = 2,
    .state_bytes = sizeof(struct lanes),
    .step = lanes_step,
};

/* abandoning: each rank begins messages to the next one and gives up those that
 * do not go at once; after each it says whether that was sent */

#define ABANDON_LANE 2
#define N_ATTEMPTS 6

struct abandon {
    struct actor actor;
    gwi_outgoing out;
    unsigned char *bytes;
    uint32_t n_sent;     /* attempts and verdicts */
    uint32_t verdict;    /* of the last attempt: 1, it was sent whole */
    uint32_t heard;      /* the verdict coming in */
    uint32_t n_verdicts; /* received */
    size_t offset;       /* of what comes next in the message coming in */
    int under_way;       /* a message is coming in */
    int whole;           /* it came in whole and its verdict has not yet */
};

static size_t attempt_bytes(const struct run *run, const struct letter *letter)
{
    return 1000 + letter_hash(run, letter) % (run->heavy ? 4 * MB : 20000);
}

static int attempt(struct abandon *s, gwi_fabric *f, const struct letter *letter)
{
    size_t n = attempt_bytes(s->actor.run, letter);

    s->bytes = malloc(n);
    if (s->bytes == NULL)
        return gwi_fail(GW_ENOMEM, "a message of %zu bytes", n);
    letter_write(s->actor.run, letter, 0, n, s->bytes);
    gwi_outgoing out = {.peer = letter->to, .lane = ABANDON_LANE, .bytes = s->bytes, .n_bytes = n};
    int done = f->ops->send(f, &out);
    if (done == 0)
        f->ops->abandon(f, &out);
    memset(s->bytes, 0xee, n);
    free(s->bytes);
    s->bytes = NULL;
    s->verdict = done == 1;
    s->out = (gwi_outgoing){.peer = letter->to,
                            .lane = ABANDON_LANE,
                            .bytes = &s->verdict,
                            .n_bytes = sizeof s->verdict};
    return done < 0 ? done : 1;
}

static int attempt_next(struct abandon *s, gwi_fabric *f)
{
    struct letter letter = {f->place.rank, (f->place.rank + 1) % f->place.size, ABANDON_LANE,
                            s->n_sent / 2};
    int done = s->n_sent % 2 == 0 ? attempt(s, f, &letter) : f->ops->send(f, &s->out);

    s->n_sent += done == 1;
    s->actor.busy |= done == 1;
    return done < 0 ? done : 0;
}

static int take_verdict(struct abandon *s, const gwi_piece *piece)
{
    CHECK(!s->under_way && piece->offset + piece->n_bytes <= piece->total);
    memcpy((unsigned char *)&s->heard + piece->offset, piece->bytes, piece->n_bytes);
    if (piece->offset + piece->n_bytes < piece->total)
        return 0;
    /* What was given up may have been on its way already; then all of it comes. */
    CHECK(s->whole || !s->heard);
    s->whole = 0;
    s->n_verdicts++;
    return 0;
}

static int take_attempt(void *ctx, const gwi_piece *piece)
{
    struct abandon *s = ctx;
    int size = s->actor.phase;
    struct letter letter = {piece->source, (piece->source + 1) % size, ABANDON_LANE, s->n_verdicts};

    if (piece->abandoned) {
        s->under_way = 0;
        s->offset = 0;
        return 0;
    }
    if (piece->total == sizeof s->verdict)
        return take_verdict(s, piece);
    CHECK(piece->offset == s->offset && s->under_way == (s->offset > 0));
    CHECK(piece->total == attempt_bytes(s->actor.run, &letter));
    CHECK(letter_matches(s->actor.run, &letter, piece->offset, piece->n_bytes, piece->bytes));
    s->offset += piece->n_bytes;
    s->under_way = s->offset < piece->total;
    if (!s->under_way) {
        s->whole = 1;
        s->offset = 0;
    }
    return 0;
}

static int abandon_step(void *state, gwi_fabric *f, int64_t now_ns)
{
    struct abandon *s = state;
    int err = s->n_sent < 2 * N_ATTEMPTS ? attempt_next(s, f) : 0;

    (void)now_ns;
    s->actor.lane = ABANDON_LANE;
    s->actor.phase = f->place.size;
    if (err < 0)
        return err;
    int n = f->ops->poll(f, ABANDON_LANE, -1, take_attempt, s);
    s->actor.busy |= n > 0;
    return n < 0 ? n : s->n_sent == 2 * N_ATTEMPTS && s->n_verdicts == N_ATTEMPTS;
}

const struct conformance_case an_abandoned_message_arrives_whole_or_not_at_all = {
    .name = "an_abandoned_message_arrives_whole_or_not_at_all",
    .min_size = 1,
    .state_bytes = sizeof(struct abandon),
    .step = abandon_step,
};
