/* envelope.h - what goes before every message with a tag, and how it is read.
 *
 *      0        8        16       24       32       40       48
 *      +--------+--------+--------+--------+--------+--------+---- ...
 *      |kind|typ| context| tag    | number | n      |flag|src| payload
 *      +--------+--------+--------+--------+--------+--------+---- ...
 *
 * With a short payload both are one message of the fabric: with 8 bytes of payload it
 * and its frame's head fill one cache line.  A long payload follows APART, as the next
 * message to the same rank, and is sent from where it lies.
 *
 * A message of 0 bytes is a BLANK.  It says that the message before it, if that is not
 * complete, is taken back.                                                       */
#ifndef GWI_COMM_ENVELOPE_H
#define GWI_COMM_ENVELOPE_H

#include <godwit/comm.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers that a stray byte does not make. */
enum { GWI_WHOLE = 0x676d7701, GWI_APART = 0x676d7702 };

#define GWI_TAG_MAX (INT64_C(1) << 62)
#define GWI_LIBRARY_TAG (INT64_C(1) << 31) /* from here on GW_ANY_TAG does not match */

/* As it travels. */
typedef struct gwi_envelope {
    uint32_t kind; /* WHOLE or APART */
    uint32_t dtype;
    uint64_t context; /* the communicator's */
    int64_t tag;
    uint64_t number; /* among all messages of this context to this rank, from 0 */
    uint64_t n;      /* entries */
    uint32_t flags;  /* the sender's own */
    int32_t source;  /* the sender's rank in the communicator */
} gwi_envelope;

_Static_assert(sizeof(gwi_envelope) == 48, "envelopes travel between processes");

/* Bytes of `n` entries; false if no memory holds so many, or there is no such type. */
bool gwi_entries_bytes(uint64_t n, uint32_t dtype, size_t *ret_n_bytes);

/* "10 entries of float32", in `text`. */
const char *gwi_entries_text(uint64_t n, uint32_t dtype, char *text, size_t room);

/* Read the envelope at the start of a message of `total` bytes of which `n_bytes` are
 * here.  `rank` sent it, in a world of `size`.  GW_EBROKEN with a sentence that names the
 * rank if it cannot be one.  `ret_n_bytes`: of the payload. */
int gwi_envelope_read(const void *bytes, size_t n_bytes, size_t total, int rank, int size,
                      gwi_envelope *ret_envelope, size_t *ret_n_bytes);

#endif
