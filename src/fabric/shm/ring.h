/* ring.h - a one-way stream of messages between two processes.
 *
 *      0        64       128                                     128 + capacity
 *      +--------+--------+--------+--------+--------+-- ... --+--------+
 *      | taken  |  (pad) | frame  | frame           | 0       |        |
 *      +--------+--------+--------+--------+--------+-- ... --+--------+
 *                                                     ^ where the taker looks
 *
 * Frames begin at multiples of 64 bytes and never wrap around: a SKIP frame
 * fills the end of the ring.  The first 8 bytes of a frame are its head; 0 there
 * means that nothing is here yet.  The giver first clears the head that will
 * follow, then writes the payload, then the head, so a taker that waits looks
 * at the very line in which a short message arrives.
 *
 *      head       bits 0..7 kind, bits 8..63 payload bytes in this frame
 *      FIRST      8 more bytes: total bytes of a message in several frames
 *      payload    up to the next multiple of 64
 *
 * R1  Only the sending process writes frames, only the receiving one `taken`.
 * R2  The giver overwrites only what lies before `taken` + capacity, and always
 *     leaves room for one line, the head that follows.
 * R3  The taker tells `taken` at least every eighth of the ring, so a giver
 *     that waits for half a ring is served once the taker has seen everything.
 * R4  A message that was begun is finished or taken back by ABANDON.
 *
 * A fresh ring is all zero bytes.  If a process dies here: the other end finds
 * no more frames, or no more room; its wait ends when the death is noticed.  A
 * message that was not finished is never delivered whole.                    */
#ifndef GWI_FABRIC_SHM_RING_H
#define GWI_FABRIC_SHM_RING_H

#include "fabric/fabric.h"
#include "base/copy.h"
#include "base/platform.h"

#include <stdatomic.h>
#include <stdint.h>

typedef struct gwi_ring_shared {
    _Alignas(
        GWI_LINE) _Atomic uint64_t taken;  /* written by the taker: bytes taken since the start */
    _Alignas(GWI_LINE) uint64_t unused[8]; /* keeps a fetched pair of lines apart */
    _Alignas(GWI_LINE) unsigned char data[];
} gwi_ring_shared;

_Static_assert(offsetof(gwi_ring_shared, data) == 128, "rings are shared between processes");

/* The sender's end.  Private to its process; one thread at a time. */
typedef struct gwi_ring_giver {
    gwi_ring_shared *ring; /* NULL: not open yet */
    uint64_t capacity;     /* a power of two, at least 1024 */
    uint64_t given;        /* bytes given since the start */
    uint64_t limit;        /* what `given` may reach, as far as we know */
    int abandon;           /* R4: the message under way is to be taken back */
    gwi_copier copier;
    unsigned char *aside; /* room for a message that is copied in when it is done; owned, or NULL */
    int is_aside;         /* there is one */
} gwi_ring_giver;

/* The receiver's end.  Private to its process; one thread at a time. */
typedef struct gwi_ring_taker {
    gwi_ring_shared *ring; /* NULL: not open yet */
    uint64_t capacity;
    uint64_t taken; /* bytes taken since the start */
    uint64_t told;  /* what the giver knows of it */
    size_t total;   /* of the message under way */
    size_t offset;  /* how much of it was delivered */
} gwi_ring_taker;

/* Bytes of memory for a ring. */
static inline size_t gwi_ring_bytes(uint64_t capacity)
{
    return sizeof(gwi_ring_shared) + capacity;
}

void gwi_ring_giver_init(gwi_ring_giver *g, gwi_ring_shared *ring, uint64_t capacity);
void gwi_ring_giver_fini(gwi_ring_giver *g); /* zeros are fine */
void gwi_ring_taker_init(gwi_ring_taker *t, gwi_ring_shared *ring, uint64_t capacity);

/* Put the next frame of `out` in.  Unless there was no room, its last store to
 * the ring is sequentially consistent, so a bell may be rung after it. */
typedef enum gwi_ring_given { GWI_RING_FULL, GWI_RING_PART, GWI_RING_ALL } gwi_ring_given;
gwi_ring_given gwi_ring_give(gwi_ring_giver *g, gwi_outgoing *out);

/* Room for a message that is written in place, and how long it may be; NULL: there is none now.
 * It is given by the next call of commit; giving something else before gives it up.  Between
 * processors that share no cache it is written aside, and copied past the cache; and now and then
 * between others, to see how far they are. */
void *gwi_ring_reserve(gwi_ring_giver *g, size_t *ret_n_bytes);
void gwi_ring_commit(gwi_ring_giver *g, size_t n_bytes);

/* Take the message that `out` began back.  Never fails: without room it happens
 * before the next message. */
void gwi_ring_abandon(gwi_ring_giver *g, const gwi_outgoing *out);

/* Deliver the next frame, if there is one.  Returns 1 if one was delivered, 0 if
 * there is none or the receiver declined it, or the receiver's error (the frame
 * stays).  What lies in the ring is believed only as far as it makes sense: a
 * frame that does not is GW_EBROKEN, now and at every further call, and nobody
 * gets it.  `*ret_room` is set to 1 when the giver was told of new room (R3). */
int gwi_ring_take(gwi_ring_taker *t, int source, gwi_deliver *deliver, void *ctx, int *ret_room);

/* Check the rules that can be checked from one end. */
int gwi_ring_giver_valid(const gwi_ring_giver *g);
int gwi_ring_taker_valid(const gwi_ring_taker *t);

#endif
