/* arena_test.c - extents do not overlap, memory comes and goes, too much is refused. */
#include "fabric/host/arena.h"
#include "base/error.h"
#include "base/pages.h"
#include "base/test.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t resident(int fd)
{
    struct stat st;

    assert_int_equal(fstat(fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

static void extents_lie_apart_on_huge_page_boundaries(void **state)
{
    (void)state;
    gwi_arena_shared arena = {0};
    uint64_t a = gwi_arena_reserve(&arena, 1);
    uint64_t b = gwi_arena_reserve(&arena, GWI_EXTENT_ALIGN + 1);
    uint64_t c = gwi_arena_reserve(&arena, 1);

    assert_true(a % GWI_EXTENT_ALIGN == 0 && b % GWI_EXTENT_ALIGN == 0 &&
                c % GWI_EXTENT_ALIGN == 0);
    assert_true(b >= a + 1 && c >= b + GWI_EXTENT_ALIGN + 1);
}

static void memory_is_taken_when_allocated_and_given_back_when_released(void **state)
{
    (void)state;
    int fd;
    uint64_t at = 64 << 20, n = 8 << 20;
    void *base;

    assert_int_equal(gwi_arena_create("test", 4096, &fd), 0);
    uint64_t before = resident(fd);
    assert_int_equal(gwi_arena_allocate(fd, at, n), 0);
    assert_true(resident(fd) - before >= n);
    assert_int_equal(gwi_arena_map(fd, at, n, &base), 0);
    memset(base, 1, n);
    gwi_arena_unmap(base, n);
    gwi_arena_release(fd, at, n);
    assert_true(resident(fd) == before);
    close(fd);
}

/* What this process sees of shared memory through huge pages, in bytes. */
static size_t in_huge_pages(void)
{
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[512];
    size_t sum = 0, kb;

    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL)
        if (sscanf(line, "ShmemPmdMapped: %zu kB", &kb) == 1)
            sum += kb << 10;
    fclose(maps);
    return sum;
}

/* Whether the system gives huge pages at all. */
static int has_huge_pages(int fd)
{
    void *base;

    assert_int_equal(gwi_arena_allocate(fd, 0, 4096), 0);
    assert_int_equal(gwi_arena_map(fd, 0, GWI_HUGE_PAGE, &base), 0);
    int has = gwi_pages_join(base) == 0;
    gwi_arena_unmap(base, GWI_HUGE_PAGE);
    return has;
}

static void mapped_memory_comes_in_huge_pages_where_they_fit(void **state)
{
    (void)state;
    uint64_t at = 64 << 20, from = at + 8192, n = 3 * GWI_HUGE_PAGE;
    unsigned char *base;
    int fd;

    assert_int_equal(gwi_arena_create("test", 4096, &fd), 0);
    size_t expected = has_huge_pages(fd) ? 2 * GWI_HUGE_PAGE : 0;
    uint64_t before = resident(fd);
    assert_int_equal(gwi_arena_map(fd, at, 4 * GWI_HUGE_PAGE, (void **)&base), 0);
    base[8192] = base[3 * GWI_HUGE_PAGE] = 7; /* before a huge page, and behind the last */
    assert_int_equal(gwi_arena_allocate_mapped(fd, from, base + 8192, n), 0);
    assert_true(resident(fd) - before >= n);
    assert_int_equal(in_huge_pages(), expected);
    for (uint64_t i = 8192; i < 8192 + n; i++)
        assert_int_equal(base[i], i == 8192 || i == 3 * GWI_HUGE_PAGE ? 7 : 0);
    gwi_arena_unmap(base, 4 * GWI_HUGE_PAGE);
    close(fd);
}

static void mapped_memory_that_lies_askew_comes_in_small_pages(void **state)
{
    (void)state;
    uint64_t at = 64 << 20, n = 3 * GWI_HUGE_PAGE;
    unsigned char *base;
    int fd;

    assert_int_equal(gwi_arena_create("test", 4096, &fd), 0);
    assert_int_equal(gwi_arena_map(fd, at + 4096, n, (void **)&base), 0);
    assert_int_equal(gwi_arena_allocate_mapped(fd, at + 4096, base, n), 0);
    assert_true(resident(fd) >= n);
    assert_int_equal(in_huge_pages(), 0);
    gwi_arena_unmap(base, n);
    assert_int_equal(gwi_arena_map(fd, at + n, 8192, (void **)&base), 0);
    assert_int_equal(gwi_arena_allocate_mapped(fd, at + n, base, 8192), 0);
    assert_int_equal(base[8191], 0);
    gwi_arena_unmap(base, 8192);
    assert_int_equal(gwi_arena_allocate_mapped(fd, 0, base, (size_t)1 << 45), GW_ENOMEM);
    close(fd);
}

static void more_than_the_machine_has_is_refused_with_both_numbers(void **state)
{
    (void)state;
    int fd;

    assert_int_equal(gwi_arena_create("test", 4096, &fd), 0);
    assert_int_equal(gwi_arena_allocate(fd, 0, UINT64_C(1) << 45), GW_ENOMEM);
    assert_non_null(strstr(gw_last_error(), "33554432 MB"));
    assert_non_null(strstr(gw_last_error(), "available"));
    close(fd);
}

static void the_file_cannot_shrink_under_its_users(void **state)
{
    (void)state;
    int fd;

    assert_int_equal(gwi_arena_create("test", 4096, &fd), 0);
    assert_int_equal(ftruncate(fd, 0), -1);
    close(fd);
}

GWI_TESTS(cmocka_unit_test(extents_lie_apart_on_huge_page_boundaries),
          cmocka_unit_test(memory_is_taken_when_allocated_and_given_back_when_released),
          cmocka_unit_test(mapped_memory_comes_in_huge_pages_where_they_fit),
          cmocka_unit_test(mapped_memory_that_lies_askew_comes_in_small_pages),
          cmocka_unit_test(more_than_the_machine_has_is_refused_with_both_numbers),
          cmocka_unit_test(the_file_cannot_shrink_under_its_users))
