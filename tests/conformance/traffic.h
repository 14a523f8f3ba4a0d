/* traffic.h - planned messages between all ranks, sent, received and checked.
 *
 * A plan says how many messages go from one rank to another on each lane, and
 * how long each of them is.  Sender and receiver compute the same plan, so the
 * receiver knows the length and every byte of what must come next.           */
#ifndef CONFORMANCE_TRAFFIC_H
#define CONFORMANCE_TRAFFIC_H

#include "base/random.h"
#include "case.h"

/* A pair, a lane, a number. */
struct letter {
    int from, to, lane;
    uint32_t number;
};

struct plan {
    unsigned lanes; /* bit l: lane l is used */
    int send_first; /* receive only when there is no room to send */
    int decline;    /* decline pieces, and stop polls, now and then */
    uint32_t (*count)(const struct run *run, const gwi_place *place, int from, int to);
    size_t (*bytes)(const struct run *run, const struct letter *letter);
};

struct stream;
struct inflow;

struct traffic {
    struct actor actor;
    const struct plan *plan;
    gwi_random random;
    int rank, size;
    struct stream *streams;                               /* by lane and peer */
    struct inflow *inflows;                               /* by lane and source */
    uint64_t out_left[GWI_N_LANES], in_left[GWI_N_LANES]; /* messages */
    int refused;                                          /* no room to send in this step */
    int declined, stopped;                                /* in this poll */
};

int traffic_begin(struct traffic *t, gwi_fabric *f, const struct plan *plan);
void traffic_end(void *traffic);

/* Returns 1 when all is sent and received. */
int traffic_step(void *traffic, gwi_fabric *f, int64_t now_ns);

/* Its two halves; each returns an error or 0. */
int traffic_send(struct traffic *t, gwi_fabric *f);
int traffic_receive(struct traffic *t, gwi_fabric *f);
int traffic_all_sent(const struct traffic *t);
int traffic_all_received(const struct traffic *t);

/* The bytes of a letter, from an offset on. */
void letter_write(const struct run *run, const struct letter *letter, size_t offset, size_t n,
                  void *bytes);
int letter_matches(const struct run *run, const struct letter *letter, size_t offset, size_t n,
                   const void *bytes);

/* A number that depends on all of a letter, and on nothing else. */
uint64_t letter_hash(const struct run *run, const struct letter *letter);

#endif
