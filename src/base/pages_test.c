/* pages_test.c - putting pages together goes on beside the program and harms nothing. */
#include "base/pages.h"
#include "base/clock.h"
#include "base/test.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define HUGE_PAGES 8

/* Shared memory as segments are: a file without a name, where huge pages fit. */
static unsigned char *share(size_t n_bytes)
{
    int fd = memfd_create("pages-test", MFD_CLOEXEC);
    void *memory = mmap(NULL, n_bytes + GWI_HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                        0);

    assert_true(fd >= 0 && ftruncate(fd, (off_t)n_bytes) == 0 && memory != MAP_FAILED);
    munmap(memory, n_bytes + GWI_HUGE_PAGE);
    uintptr_t fits = ((uintptr_t)memory + GWI_HUGE_PAGE - 1) & ~(GWI_HUGE_PAGE - 1);
    memory = mmap((void *)fits, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(memory != MAP_FAILED);
    close(fd);
    return memory;
}

static void zeros_are_a_stopped_one(void **state)
{
    (void)state;
    gwi_pages pages = {0};

    gwi_pages_stop(&pages);
    gwi_pages_stop(&pages);
    assert_int_equal(gwi_pages_done(&pages), 0);
}

static void memory_without_a_whole_huge_page_is_left_alone(void **state)
{
    (void)state;
    unsigned char *base = share(3 * GWI_HUGE_PAGE);
    gwi_pages pages = {0};

    assert_int_equal((uintptr_t)base % GWI_HUGE_PAGE, 0);
    gwi_pages_start(&pages, base, GWI_HUGE_PAGE - 1, 0);
    assert_int_equal(pages.n_bytes, 0);
    gwi_pages_start(&pages, base + 4096, GWI_HUGE_PAGE, 0);
    assert_int_equal(pages.n_bytes, 0);
    gwi_pages_start(&pages, base, 0, 0);
    assert_int_equal(pages.n_bytes, 0);
    gwi_pages_stop(&pages);
    munmap(base, 3 * GWI_HUGE_PAGE);
}

static void only_whole_huge_pages_of_the_range_are_asked_for(void **state)
{
    (void)state;
    size_t n_bytes = 4 * GWI_HUGE_PAGE;
    unsigned char *memory = share(n_bytes);

    for (size_t at = 0; at < GWI_HUGE_PAGE; at += GWI_HUGE_PAGE / 4) {
        gwi_pages pages = {0};
        gwi_pages_start(&pages, memory + at, n_bytes - 2 * at, 0);
        assert_true(pages.n_bytes >= GWI_HUGE_PAGE);
        assert_int_equal((uintptr_t)pages.base % GWI_HUGE_PAGE, 0);
        assert_int_equal(pages.n_bytes % GWI_HUGE_PAGE, 0);
        assert_true(pages.base >= memory + at);
        assert_true(pages.base + pages.n_bytes <= memory + n_bytes - at);
        gwi_pages_stop(&pages);
    }
    munmap(memory, n_bytes);
}

static void what_is_written_meanwhile_is_there_afterwards(void **state)
{
    (void)state;
    size_t n_bytes = (HUGE_PAGES + 1) * GWI_HUGE_PAGE;
    unsigned char *memory = share(n_bytes);
    gwi_pages pages = {0};

    for (size_t i = 0; i < n_bytes; i += 64)
        memory[i] = (unsigned char)(i / 64);
    gwi_pages_start(&pages, memory, n_bytes, 0);
    for (int turn = 1; turn <= 5; turn++)
        for (size_t i = 0; i < n_bytes; i += 64) {
            assert_int_equal(memory[i], (unsigned char)(i / 64 + (size_t)turn - 1));
            memory[i]++;
        }
    int64_t limit = gwi_deadline_ns(GWI_SECOND);
    while (gwi_pages_done(&pages) < n_bytes / 2 && gwi_now_ns() < limit)
        gwi_nap_ns(GWI_MS); /* many systems never do it */
    gwi_pages_stop(&pages);
    assert_true(gwi_pages_done(&pages) <= n_bytes);
    assert_int_equal(gwi_pages_done(&pages) % GWI_HUGE_PAGE, 0);
    for (size_t i = 0; i < n_bytes; i += 64)
        assert_int_equal(memory[i], (unsigned char)(i / 64 + 5));
    munmap(memory, n_bytes);
}

static void stopping_does_not_wait_for_all_pages(void **state)
{
    (void)state;
    size_t n_bytes = 64 * GWI_HUGE_PAGE;
    unsigned char *memory = share(n_bytes);
    gwi_pages pages = {0};

    for (size_t i = 0; i < n_bytes; i += 4096)
        memory[i] = 1;
    gwi_pages_start(&pages, memory, n_bytes, 0);
    gwi_pages_stop(&pages);
    gwi_pages_stop(&pages);
    assert_true(gwi_pages_done(&pages) < n_bytes);
    munmap(memory, n_bytes);
}

static void what_is_not_used_takes_no_memory(void **state)
{
    (void)state;
    size_t n_bytes = 4 * GWI_HUGE_PAGE;
    unsigned char *memory = share(n_bytes), there[GWI_HUGE_PAGE / 4096];
    gwi_pages pages = {0};

    memset(memory, 1, GWI_HUGE_PAGE);
    gwi_pages_start(&pages, memory, n_bytes, 1);
    int64_t limit = gwi_deadline_ns(GWI_SECOND / 2);
    while (gwi_pages_done(&pages) == 0 && gwi_now_ns() < limit)
        gwi_nap_ns(GWI_MS);
    assert_true(gwi_pages_done(&pages) <= GWI_HUGE_PAGE);
    for (size_t at = GWI_HUGE_PAGE; at < n_bytes; at += GWI_HUGE_PAGE) {
        assert_int_equal(mincore(memory + at, GWI_HUGE_PAGE, there), 0);
        for (size_t i = 0; i < sizeof there; i++)
            assert_int_equal(there[i] & 1, 0);
    }
    memset(memory + GWI_HUGE_PAGE, 1, GWI_HUGE_PAGE); /* it is looked at again */
    size_t before = gwi_pages_done(&pages);
    limit = gwi_deadline_ns(3 * GWI_SECOND);
    while (before > 0 && gwi_pages_done(&pages) == before && gwi_now_ns() < limit)
        gwi_nap_ns(GWI_MS);
    assert_true(before == 0 || gwi_pages_done(&pages) == 2 * GWI_HUGE_PAGE);
    gwi_pages_stop(&pages);
    munmap(memory, n_bytes);
}

static void stopping_does_nothing_in_a_forked_child(void **state)
{
    (void)state;
    size_t n_bytes = 16 * GWI_HUGE_PAGE;
    unsigned char *memory = share(n_bytes);
    gwi_pages pages = {0};
    int status = -1;

    gwi_pages_start(&pages, memory, n_bytes, 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(5); /* there is no thread to wait for */
        gwi_pages_stop(&pages);
        raise(SIGKILL); /* ThreadSanitizer misses the thread if it ends otherwise */
    }
    waitpid(child, &status, 0);
    gwi_pages_stop(&pages);
    assert_int_equal(status, SIGKILL);
    munmap(memory, n_bytes);
}

GWI_TESTS(cmocka_unit_test(zeros_are_a_stopped_one),
          cmocka_unit_test(memory_without_a_whole_huge_page_is_left_alone),
          cmocka_unit_test(only_whole_huge_pages_of_the_range_are_asked_for),
          cmocka_unit_test(what_is_written_meanwhile_is_there_afterwards),
          cmocka_unit_test(stopping_does_not_wait_for_all_pages),
          cmocka_unit_test(what_is_not_used_takes_no_memory),
          cmocka_unit_test(stopping_does_nothing_in_a_forked_child))
