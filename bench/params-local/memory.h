/* memory.h - memory with pages of a chosen size, and what the kernel says of it. */
#ifndef BENCH_MEMORY_H
#define BENCH_MEMORY_H

#include <stddef.h>

#define MEMORY_HUGE_PAGE ((size_t)2 << 20)

/* Zeros, shared like a store's, and in huge pages if `huge` and the system gives them. */
void *memory_map(size_t n_bytes, int huge);

/* From now on this process gets no huge pages. */
void memory_small_pages(void);

size_t memory_resident_bytes(void);

/* How much shared memory this process sees through huge pages. */
size_t memory_huge_bytes(void);

#endif
