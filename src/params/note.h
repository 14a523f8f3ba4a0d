/* note.h - what nodes say to each other about one key, and the frames that carry it.
 *
 * A frame is a message: a number that says which parameters it is about, and notes one
 * after the other, each a head and a payload that is padded to 8 bytes.  Notes to one node are
 * collected and leave together.
 *
 *   kind      from, to            says
 *   ASK       node -> owner       do this for a worker: change the vector, or several, or read them
 *   ANSWER    owner -> node       it is done, or several are; the vectors, if they were to be read
 *   WANT      node -> owner       workers here will need the key: give it or copy it to me
 *   GRANT     owner -> node       a replica
 *   TELL      holder -> owner     what was changed in my replica; with DROP the replica ends
 *   REFRESH   owner -> holder     told has arrived; the vector, if others have changed it
 *   DROPPED   owner -> holder     you are no holder any more
 *   LOCALIZE  node -> home        let me own it
 *   MOVE      owner -> home       let that node own it
 *   GIVE      home -> owner       hand the key over to that node
 *   TRANSFER  owner -> new owner  the key: vector, and who has replicas
 *   SYNC      node -> all         tell me what has changed in the replicas that I have
 *   SYNCED    node -> node        that was all
 *   ARRIVE    node -> parent      all workers here and below have come to the barrier
 *   RELEASE   parent -> node      and everywhere
 *   FAILED    node -> all         I serve keys no longer, and why; the last that I say */
#ifndef GWI_PARAMS_NOTE_H
#define GWI_PARAMS_NOTE_H

#include <godwit/base.h>

#include <stddef.h>
#include <stdint.h>

#define GWI_NOTES(X) \
    X(ASK)           \
    X(ANSWER)        \
    X(WANT)          \
    X(GRANT)         \
    X(TELL)          \
    X(REFRESH)       \
    X(DROPPED)       \
    X(LOCALIZE)      \
    X(MOVE)          \
    X(GIVE)          \
    X(TRANSFER)      \
    X(SYNC)          \
    X(SYNCED)        \
    X(ARRIVE)        \
    X(RELEASE)       \
    X(FAILED)

#define GWI_NOTE_ID(name) GWI_NOTE_##name,
typedef enum gwi_note_kind { GWI_NOTES(GWI_NOTE_ID) GWI_N_NOTES } gwi_note_kind;
#undef GWI_NOTE_ID

/* Flags. */
enum {
    GWI_NOTE_ADDS = 1,        /* the payload begins with something to add */
    GWI_NOTE_ASSIGNS = 2,     /* ... with a value to assign */
    GWI_NOTE_READS = 4,       /* ASK: read.  ANSWER, REFRESH: the payload is the vector */
    GWI_NOTE_BY_HOME = 8,     /* the home has looked up the owner */
    GWI_NOTE_DROPS = 16,      /* TELL: the replica ends */
    GWI_NOTE_QUIET = 32,      /* TELL: no DROPPED is wanted */
    GWI_NOTE_WAS_HOLDER = 64, /* TRANSFER: you had a replica, with `term` and `seq` */
    GWI_NOTE_FOLLOWS = 128,   /* ASK: one of the operation about this key may be under way */
};

#define GWI_SENTENCE_BYTES 512 /* at most, of the payload of FAILED, which no 0 ends */

#define GWI_KEY_FOLLOWS INT64_MIN /* the same of a key in the payload: its top bit */

typedef struct gwi_note {
    uint8_t kind, flags;
    uint16_t hops; /* how often it was passed on */
    int32_t node;  /* ASK, WANT, TELL: who began it; MOVE, GIVE: the new owner */
    int64_t key;   /* or -1 */
    uint64_t
        number; /* ASK, ANSWER: the asker's own; GRANT, REFRESH, TRANSFER: stamp; SYNC...: token */
    uint32_t term;    /* of a replica: chosen by the holder, no two alike */
    uint32_t seq;     /* TELL: which one; REFRESH: the last that arrived; TRANSFER, GIVE: tenure */
    uint32_t n_bytes; /* of the payload */
    uint32_t n;       /* TRANSFER: the last TELL of the new owner that arrived; ASK: so many more
                       * keys come first in the payload; ANSWER: so many more are done;
                       * FAILED: the error, below zero */
} gwi_note;

_Static_assert(sizeof(gwi_note) == 40, "notes travel between processes");

/* In the payload of a TRANSFER. */
typedef struct gwi_note_holder {
    int32_t node;
    uint32_t term, seq, granted;
} gwi_note_holder;

/* A frame that grows. */
typedef struct gwi_frame {
    unsigned char *bytes; /* owned */
    size_t n_bytes, capacity;
} gwi_frame;

/* Begin with which parameters it is about: the number of their opening. */
int gwi_frame_begin(gwi_frame *frame, uint64_t opening);

/* Add a note with a payload in up to two parts; sets its n_bytes. */
int gwi_frame_add(gwi_frame *frame, gwi_note *note, const void *part, size_t part_bytes,
                  const void *part2, size_t part2_bytes);

/* Add a note whose payload is yet to be written, to where this says; NULL: no memory. */
void *gwi_frame_room(gwi_frame *frame, gwi_note *note, size_t n_bytes);

/* Of the last note's room only so much is needed; the note is written again. */
void gwi_frame_cut(gwi_frame *frame, gwi_note *note, void *room, size_t n_bytes);

void gwi_frame_fini(gwi_frame *frame);

/* Of a note with a payload of so many bytes, in a frame. */
static inline size_t gwi_note_bytes(size_t payload_bytes)
{
    return sizeof(gwi_note) + ((payload_bytes + 7) & ~(size_t)7);
}

/* The next note of a frame, from `*at` on.  Returns 1; 0 at the end; GW_EBROKEN. */
int gwi_frame_next(const unsigned char *bytes, size_t n_bytes, size_t *at, gwi_note *ret_note,
                   const unsigned char **ret_payload);

const char *gwi_note_name(int kind);

#endif
