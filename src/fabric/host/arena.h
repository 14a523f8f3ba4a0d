/* arena.h - memory that the processes of one machine share: one file without a
 * name (memfd), cut into extents.
 *
 * The file is as long as numbers allow and takes memory only where an extent
 * was allocated.  Extents are allocated before they are touched, so that a lack
 * of memory is an error here and never a SIGBUS later.  Offsets are never used
 * twice: there are enough of them.
 *
 * If a process dies here: an extent that it had not told anybody of is lost
 * until the last process of the job ends; then the kernel frees everything.  */
#ifndef GWI_FABRIC_HOST_ARENA_H
#define GWI_FABRIC_HOST_ARENA_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define GWI_EXTENT_ALIGN (UINT64_C(2) << 20) /* a huge page */

/* In shared memory.  `next` is moved by any process that makes an extent. */
typedef struct gwi_arena_shared {
    _Atomic uint64_t next;
} gwi_arena_shared;

/* Make the file, with its first `n_bytes` allocated, sealed against any change
 * of length.  Returns the descriptor. */
int gwi_arena_create(const char *label, size_t n_bytes, int *ret_fd);

/* Reserve an extent of the file: offsets only, no memory. */
uint64_t gwi_arena_reserve(gwi_arena_shared *arena, uint64_t n_bytes);

/* Give memory to a range; GW_ENOMEM: the machine or the container has not enough. */
int gwi_arena_allocate(int fd, uint64_t offset, uint64_t n_bytes);

/* The same for a range that is mapped at `base`: in huge pages, where there are any. */
int gwi_arena_allocate_mapped(int fd, uint64_t offset, void *base, size_t n_bytes);

void gwi_arena_release(int fd, uint64_t offset, uint64_t n_bytes); /* take it back */

/* Map a range into this process; what is as large as a huge page, where huge pages fit. */
int gwi_arena_map(int fd, uint64_t offset, size_t n_bytes, void **ret_base);
void gwi_arena_unmap(void *base, size_t n_bytes);

/* How many bytes this process could still allocate, by the machine's and the
 * control group's books. */
uint64_t gwi_memory_available(void);

#endif
