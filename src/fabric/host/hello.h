/* hello.h - what processes say to each other while they meet, and when to believe it.
 *
 *      guest                         gatherer
 *        | ------- gwi_hello --------> |     who I am, what I expect of the job
 *        | <--- gwi_answer, NOTED ---- |     at once
 *        |                             |     until all are there
 *        | <-- gwi_answer, WELCOME --- |     your rank, and a descriptor
 *
 * A launcher may come and tell that a rank has ended (gwi_obituary); it gets no
 * answer.
 *
 * Or, instead of either answer, a refusal: an error and its sentence.  Each is
 * one packet in the processor's own byte order, for both are on one machine.
 * The readers take any bytes whatever; what they let pass can be used without a
 * further look.                                                              */
#ifndef GWI_FABRIC_HOST_HELLO_H
#define GWI_FABRIC_HOST_HELLO_H

#include "fabric/job.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define GWI_HELLO_WHY_BYTES 256
#define GWI_ANSWER_TEXT_BYTES 1024

typedef struct gwi_hello {
    uint64_t magic, layout;
    int32_t size, rank, node_size, pid; /* rank -1: any */
    uint64_t start;                     /* as gwi_process_start() */
} gwi_hello;

/* What a launcher says instead: a rank has ended, so it need not be waited for. */
typedef struct gwi_obituary {
    uint64_t magic;
    int32_t rank, pid;
} gwi_obituary;

enum { GWI_NOTED = 1, GWI_WELCOME = 2 };

typedef struct gwi_answer {
    int32_t status; /* one of the above, or a gw_err */
    int32_t rank;   /* NOTED: the gatherer's, or -1; WELCOME: yours */
    char text[GWI_ANSWER_TEXT_BYTES];
} gwi_answer;

/* What this process says. */
gwi_hello gwi_hello_of(const gwi_job *job, uint64_t layout);

gwi_obituary gwi_obituary_of(int rank, pid_t pid);

/* Whether the packet is an obituary of a rank of this job. */
int gwi_obituary_read(const gwi_hello *mine, const void *packet, size_t n_bytes,
                      gwi_obituary *ret_obituary);

/* Read a hello that process `sender` sent to the one that says `mine`.  Returns 1,
 * or 0 and writes why it cannot take part into `why`; then `*ret_hello` is only
 * good for naming it, and as it was if the packet is no hello at all. */
int gwi_hello_read(const gwi_hello *mine, const void *packet, size_t n_bytes, pid_t sender,
                   gwi_hello *ret_hello, char why[GWI_HELLO_WHY_BYTES]);

/* Read an answer that process `gatherer` gave to `mine`, with or without a
 * descriptor.  Returns GWI_NOTED, GWI_WELCOME, or an error: the gatherer's own,
 * or GW_EBROKEN. */
int gwi_answer_read(const gwi_hello *mine, const void *packet, size_t n_bytes, int has_descriptor,
                    pid_t gatherer, gwi_answer *ret_answer);

#endif
