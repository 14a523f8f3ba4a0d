/* arena.c - the shared file, its extents and the memory behind them. */
#include "fabric/host/arena.h"
#include "base/error.h"
#include "base/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FILE_BYTES (UINT64_C(1) << 50)
#define PAGE 4096

int gwi_arena_create(const char *label, size_t n_bytes, int *ret_fd)
{
    int err;

    int fd = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return gwi_fail_errno("making shared memory (memfd_create)");
    if (ftruncate(fd, (off_t)FILE_BYTES) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
        err = gwi_fail_errno(
            "setting up shared memory of the job; is the file size limited (ulimit -f)?");
        goto close_fd;
    }
    err = gwi_arena_allocate(fd, 0, n_bytes);
    if (err < 0)
        goto close_fd;
    *ret_fd = fd;
    return 0;

close_fd:
    close(fd);
    return err;
}

uint64_t gwi_arena_reserve(gwi_arena_shared *arena, uint64_t n_bytes)
{
    uint64_t rounded = (n_bytes + GWI_EXTENT_ALIGN - 1) & ~(GWI_EXTENT_ALIGN - 1);

    return atomic_fetch_add_explicit(&arena->next, rounded, memory_order_relaxed);
}

/* The kernel would start killing processes before it says no. */
static int check_available(uint64_t n_bytes)
{
    uint64_t available = gwi_memory_available();

    if (n_bytes <= available)
        return 0;
    return gwi_fail(GW_ENOMEM,
                    "%llu MB of shared memory were asked for, but only %llu MB are "
                    "available on this machine or in this container",
                    (unsigned long long)(n_bytes >> 20), (unsigned long long)(available >> 20));
}

static int allocate(int fd, uint64_t offset, uint64_t n_bytes)
{
    while (n_bytes > 0 && fallocate(fd, 0, (off_t)offset, (off_t)n_bytes) < 0)
        if (errno != EINTR)
            return gwi_fail_errno("allocating %llu KB of shared memory",
                                  (unsigned long long)(n_bytes >> 10));
    return 0;
}

int gwi_arena_allocate(int fd, uint64_t offset, uint64_t n_bytes)
{
    int err = check_available(n_bytes);

    return err < 0 ? err : allocate(fd, offset, n_bytes);
}

/* A first page, to which the rest of a huge one is added.  What that is refused for once is not
 * asked again, for it may have taken the system a while to find out. */
static int allocate_huge(int fd, uint64_t offset, void *at, int *tries)
{
    if (*tries) {
        int err = allocate(fd, offset, PAGE);
        if (err < 0)
            return err;
        *tries = gwi_pages_join(at) == 0;
    }
    return *tries ? 0 : allocate(fd, offset, GWI_HUGE_PAGE);
}

int gwi_arena_allocate_mapped(int fd, uint64_t offset, void *base, size_t n_bytes)
{
    size_t at = (size_t)(-offset % GWI_HUGE_PAGE); /* of the first huge page */
    int fits = ((uintptr_t)base - offset) % GWI_HUGE_PAGE == 0 && at < n_bytes;
    size_t n_huge = fits ? (n_bytes - at) / GWI_HUGE_PAGE : 0;
    int tries = 1, err = check_available(n_bytes);

    if (n_huge == 0)
        at = 0;
    if (err == 0)
        err = allocate(fd, offset, at);
    for (; n_huge > 0 && err == 0; n_huge--, at += GWI_HUGE_PAGE)
        err = allocate_huge(fd, offset + at, (unsigned char *)base + at, &tries);
    return err < 0 ? err : allocate(fd, offset + at, n_bytes - at);
}

void gwi_arena_release(int fd, uint64_t offset, uint64_t n_bytes)
{
    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)n_bytes);
}

/* Find an address for `n_bytes` at a multiple of GWI_EXTENT_ALIGN; NULL: the kernel shall choose.
 */
static void *huge_address(size_t n_bytes)
{
    size_t room = n_bytes + GWI_EXTENT_ALIGN;
    void *found = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (found == MAP_FAILED)
        return NULL;
    munmap(found, room);
    uintptr_t begin = ((uintptr_t)found + GWI_EXTENT_ALIGN - 1) & ~(GWI_EXTENT_ALIGN - 1);
    return (unsigned char *)found + (begin - (uintptr_t)found);
}

/* Without MAP_FIXED the address is a wish: another thread may have taken it meanwhile. */
int gwi_arena_map(int fd, uint64_t offset, size_t n_bytes, void **ret_base)
{
    void *wish = n_bytes < GWI_EXTENT_ALIGN ? NULL : huge_address(n_bytes);
    void *base = mmap(wish, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
                      (off_t)offset);

    if (base == MAP_FAILED)
        return gwi_fail_errno("mapping %zu MB of shared memory", n_bytes >> 20);
    *ret_base = base;
    return 0;
}

void gwi_arena_unmap(void *base, size_t n_bytes)
{
    if (base != NULL)
        munmap(base, n_bytes);
}

/* The books. */

static int read_text(const char *path, char *text, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, room - 1);
    close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    return 1;
}

static uint64_t read_number(const char *path, uint64_t otherwise)
{
    char text[64], *end;

    if (!read_text(path, text, sizeof text))
        return otherwise;
    uint64_t value = strtoull(text, &end, 10);
    return end == text ? otherwise : value; /* "max" is no number */
}

static uint64_t machine_available(void)
{
    char text[4096];
    const char *at;

    if (!read_text("/proc/meminfo", text, sizeof text) ||
        (at = strstr(text, "MemAvailable:")) == NULL)
        return UINT64_MAX;
    return strtoull(at + strlen("MemAvailable:"), NULL, 10) << 10;
}

/* Inside a container the own control group is the root of what one sees. */
static uint64_t group_available(const char *limit_path, const char *used_path)
{
    uint64_t limit = read_number(limit_path, UINT64_MAX), used = read_number(used_path, 0);

    return limit == UINT64_MAX ? UINT64_MAX : limit > used ? limit - used : 0;
}

uint64_t gwi_memory_available(void)
{
    uint64_t least = machine_available();
    uint64_t v2 = group_available("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current");
    uint64_t v1 = group_available("/sys/fs/cgroup/memory/memory.limit_in_bytes",
                                  "/sys/fs/cgroup/memory/memory.usage_in_bytes");

    least = v2 < least ? v2 : least;
    return v1 < least ? v1 : least;
}
