/* arena_test.c - extents do not overlap, memory comes and goes, too much is refused. */
#include "fabric/host/arena.h"
#include "base/error.h"
#include "base/test.h"

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
          cmocka_unit_test(more_than_the_machine_has_is_refused_with_both_numbers),
          cmocka_unit_test(the_file_cannot_shrink_under_its_users))
