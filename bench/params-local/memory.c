/* memory.c - mapping memory, and asking the kernel about it. */
#include "memory.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define HUGE_PAGE MEMORY_HUGE_PAGE

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

void *memory_map(size_t n_bytes, int huge)
{
    size_t n = (n_bytes + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);

    int fd = memfd_create("bench", 0);
    if (fd < 0 || ftruncate(fd, (off_t)n) < 0)
        fail("memfd");
    unsigned char *room = mmap(NULL, n + HUGE_PAGE, PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        fail("mmap");
    room += -(uintptr_t)room & (HUGE_PAGE - 1);
    unsigned char *base = mmap(room, n, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0);
    if (base == MAP_FAILED)
        fail("mmap");
    close(fd);
    for (size_t at = 0; at < n && huge; at += HUGE_PAGE)
        madvise(base + at, HUGE_PAGE, MADV_COLLAPSE);
    return base;
}

void memory_small_pages(void)
{
    if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) < 0)
        fail("prctl");
}

size_t memory_resident_bytes(void)
{
    size_t total = 0, resident = 0;

    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%zu %zu", &total, &resident) != 2)
        fail("statm");
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

size_t memory_huge_bytes(void)
{
    char line[256];
    size_t kb = 0;

    FILE *sums = fopen("/proc/self/smaps_rollup", "r");
    if (sums == NULL)
        return 0;
    while (fgets(line, sizeof line, sums) != NULL &&
           sscanf(line, "ShmemPmdMapped: %zu kB", &kb) != 1)
        continue;
    fclose(sums);
    return kb << 10;
}
