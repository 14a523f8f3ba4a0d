/* crc32c.h - the checksum of files: CRC-32C (Castagnoli), as iSCSI, ext4 and Btrfs have it.
 *
 * Why this one: processors compute it by themselves, faster than memory is read; tools
 * everywhere can check it; and it is linear, so the sum of a file can be put together from
 * those of its pieces, which several processes have read.                            */
#ifndef GWI_BASE_CRC32C_H
#define GWI_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The sum of what had the sum `crc` (0: nothing) followed by these bytes. */
uint32_t gwi_crc32c(uint32_t crc, const void *bytes, size_t n_bytes);

/* The sum of two pieces, one behind the other; the second has `n_bytes`. */
uint32_t gwi_crc32c_join(uint32_t first, uint32_t second, uint64_t n_bytes);

/* As gwi_crc32c(), without the processor's help: for tests. */
uint32_t gwi_crc32c_plain(uint32_t crc, const void *bytes, size_t n_bytes);

#endif
