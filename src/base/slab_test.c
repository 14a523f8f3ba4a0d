/* slab_test.c - a block has one owner at a time, whoever runs, stops or dies. */
#include "base/slab.h"
#include "base/random.h"
#include "base/test.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

/* Memory that forked children share, and a slab in it. */
static void *memory;
static size_t memory_bytes;
static gwi_slab slab;

static void make_slab(size_t block_bytes, uint32_t n_blocks)
{
    memory_bytes = gwi_slab_bytes(block_bytes, n_blocks);
    memory = mmap(NULL, memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    assert_int_equal(gwi_slab_init(&slab, memory, memory_bytes, block_bytes, n_blocks), 0);
}

static int drop_slab(void **state)
{
    (void)state;
    if (memory != NULL)
        munmap(memory, memory_bytes);
    memory = NULL;
    return 0;
}

static uint32_t take(void)
{
    uint32_t block = UINT32_MAX;

    assert_int_equal(gwi_slab_alloc(&slab, &block), 0);
    assert_true(block < slab.n_blocks);
    return block;
}

/* Take all that is left: each block comes once.  Returns how many. */
static uint32_t take_all(void)
{
    bool *seen = calloc(slab.n_blocks, sizeof *seen);
    uint32_t block, n = 0;

    assert_non_null(seen);
    while (gwi_slab_alloc(&slab, &block) == 0) {
        assert_true(block < slab.n_blocks && !seen[block]);
        seen[block] = true;
        n++;
    }
    free(seen);
    return n;
}

static void the_first_blocks_come_in_order(void **state)
{
    (void)state;
    make_slab(24, 1000);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(take(), i);
        assert_int_equal(gwi_slab_in_use(&slab), i + 1);
    }
    assert_true(gwi_slab_valid(&slab));
}

static void blocks_follow_each_other_and_fill_the_memory(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 4, 7, 64, 100, 4096};

    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        make_slab(sizes[s], 33);
        unsigned char *first = gwi_slab_block(&slab, 0);
        assert_int_equal((uintptr_t)first % GWI_LINE, 0);
        for (uint32_t i = 0; i < 33; i++) {
            unsigned char *block = gwi_slab_block(&slab, take());
            assert_true(block == first + i * sizes[s]);
            memset(block, (int)i, sizes[s]);
        }
        assert_true(first + 33 * sizes[s] == (unsigned char *)memory + memory_bytes);
        assert_true(gwi_slab_valid(&slab)); /* no block covers a link */
        for (uint32_t i = 0; i < 33; i++)
            assert_int_equal(*(unsigned char *)gwi_slab_block(&slab, i), i);
        drop_slab(state);
    }
}

static void free_blocks_are_those_that_were_given_back_or_never_out(void **state)
{
    (void)state;
    uint64_t bits[3] = {0};

    make_slab(8, 130);
    for (uint32_t i = 0; i < 70; i++)
        take();
    gwi_slab_free(&slab, 3);
    gwi_slab_free(&slab, 64);
    gwi_slab_mark_free(&slab, bits);
    for (uint32_t i = 0; i < 130; i++)
        assert_int_equal(bits[i / 64] >> i % 64 & 1, i == 3 || i == 64 || i >= 70);
}

static void a_full_slab_refuses_until_a_block_comes_back(void **state)
{
    (void)state;
    uint32_t block = 77;

    make_slab(8, 5);
    assert_int_equal(take_all(), 5);
    assert_int_equal(gwi_slab_alloc(&slab, &block), GW_ENOMEM);
    assert_int_equal(block, 77);
    assert_non_null(strstr(gw_last_error(), "all 5 blocks"));
    gwi_slab_free(&slab, 3);
    assert_int_equal(gwi_slab_in_use(&slab), 4);
    assert_int_equal(take(), 3);
    assert_int_equal(gwi_slab_alloc(&slab, &block), GW_ENOMEM);
    for (uint32_t i = 0; i < 5; i++)
        gwi_slab_free(&slab, i);
    assert_int_equal(gwi_slab_in_use(&slab), 0);
    assert_int_equal(take_all(), 5);
    assert_true(gwi_slab_valid(&slab));
}

static void freed_blocks_are_used_before_fresh_ones(void **state)
{
    (void)state;
    make_slab(8, 100);
    for (uint32_t i = 0; i < 10; i++)
        take();
    gwi_slab_free(&slab, 2);
    gwi_slab_free(&slab, 6);
    assert_int_equal(take() + take(), 8);
    assert_int_equal(take(), 10);
}

static void a_random_life_leaves_each_block_with_one_owner(void **state)
{
    (void)state;
    enum { BLOCKS = 50, STEPS = 50000 };
    uint32_t mine[BLOCKS], n = 0;
    bool used[BLOCKS] = {false};
    gwi_random random;

    make_slab(16, BLOCKS);
    gwi_random_init(&random, 1, 0);
    for (int step = 0; step < STEPS; step++) {
        uint32_t block;
        if (gwi_random_below(&random, 2) == 0) {
            int err = gwi_slab_alloc(&slab, &block);
            assert_int_equal(err, n < BLOCKS ? 0 : GW_ENOMEM);
            if (err == 0) {
                assert_false(used[block]);
                used[block] = true;
                mine[n++] = block;
            }
        } else if (n > 0) {
            uint64_t i = gwi_random_below(&random, n);
            gwi_slab_free(&slab, mine[i]);
            used[mine[i]] = false;
            mine[i] = mine[--n];
        }
        assert_int_equal(gwi_slab_in_use(&slab), n);
        if (step % 8 == 0)
            assert_true(gwi_slab_valid(&slab));
    }
}

static void the_tag_may_wrap_around(void **state)
{
    (void)state;
    make_slab(8, 4);
    atomic_store(&slab.header->head, (uint64_t)UINT32_MAX << 32 | GWI_SLAB_LAST);
    for (int i = 0; i < 4; i++)
        take();
    for (uint32_t i = 0; i < 4; i++)
        gwi_slab_free(&slab, i);
    assert_int_equal(take_all(), 4);
    assert_int_equal(atomic_load(&slab.header->head) >> 32, 3);
    assert_true(gwi_slab_valid(&slab));
}

static void a_slab_that_cannot_be_is_refused(void **state)
{
    (void)state;
    _Alignas(GWI_LINE) unsigned char room[4096];
    unsigned char before[sizeof room];
    gwi_slab other;

    memset(room, 0x5a, sizeof room);
    memcpy(before, room, sizeof room);
    assert_int_equal(gwi_slab_bytes(0, 1), 0);
    assert_int_equal(gwi_slab_bytes(1, 0), 0);
    assert_int_equal(gwi_slab_bytes(1, (uint64_t)GWI_SLAB_MAX_BLOCKS + 1), 0);
    assert_int_equal(gwi_slab_bytes(SIZE_MAX / 2, 2), 0);
    assert_int_equal(gwi_slab_bytes(SIZE_MAX / 4, 8), 0);
    assert_int_equal(gwi_slab_init(&other, room, sizeof room, 0, 1), GW_EINVAL);
    assert_int_equal(gwi_slab_init(&other, room, sizeof room, SIZE_MAX, 9), GW_EINVAL);
    assert_int_equal(gwi_slab_init(&other, room + 8, sizeof room - 8, 8, 1), GW_EINVAL);

    size_t need = gwi_slab_bytes(8, 10);
    assert_int_equal(gwi_slab_init(&other, room, need - 1, 8, 10), GW_EINVAL);
    assert_non_null(strstr(gw_last_error(), "it needs"));
    assert_memory_equal(room, before, sizeof room); /* nothing has changed */
    assert_int_equal(gwi_slab_init(&other, room, need, 8, 10), 0);
    assert_true(gwi_slab_valid(&other));
    assert_memory_equal(room + need, before, sizeof room - need);
}

static void processes_use_it_at_different_addresses(void **state)
{
    (void)state;
    gwi_slab here, there;
    size_t bytes = gwi_slab_bytes(32, 20);
    int fd = memfd_create("slab", 0);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    void *a = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    void *b = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(a != MAP_FAILED && b != MAP_FAILED && a != b);

    assert_int_equal(gwi_slab_attach(&there, b, bytes), GW_ESTATE);
    assert_int_equal(gwi_slab_init(&here, a, bytes, 32, 20), 0);
    assert_int_equal(gwi_slab_attach(&there, b, bytes), 0);
    assert_int_equal(there.n_blocks, 20);
    assert_int_equal(there.block_bytes, 32);

    uint32_t x, y;
    assert_int_equal(gwi_slab_alloc(&here, &x), 0);
    assert_int_equal(gwi_slab_alloc(&there, &y), 0);
    assert_int_equal(x, 0);
    assert_int_equal(y, 1);
    strcpy(gwi_slab_block(&here, x), "written here");
    assert_string_equal(gwi_slab_block(&there, x), "written here");
    gwi_slab_free(&there, x);
    assert_int_equal(gwi_slab_in_use(&here), 1);
    assert_int_equal(gwi_slab_alloc(&here, &y), 0);
    assert_int_equal(x, y);
    assert_true(gwi_slab_valid(&there));
    munmap(a, bytes);
    munmap(b, bytes);
    close(fd);
}

static void a_stranger_is_not_attached_to(void **state)
{
    (void)state;
    gwi_slab other = {.n_blocks = 123};

    make_slab(8, 10);
    gwi_slab_header *header = memory;
    gwi_slab_header good = *header;

    assert_int_equal(gwi_slab_attach(&other, memory, sizeof good - 1), GW_EINVAL);
    assert_int_equal(gwi_slab_attach(&other, memory, memory_bytes - 1), GW_EINVAL);
    assert_int_equal(gwi_slab_attach(&other, (char *)memory + 8, memory_bytes - 8), GW_EINVAL);
    header->fingerprint ^= 1;
    assert_int_equal(gwi_slab_attach(&other, memory, memory_bytes), GW_EDISAGREE);
    assert_non_null(strstr(gw_last_error(), "another version"));
    assert_false(gwi_slab_valid(&slab));
    header->fingerprint ^= 1;
    header->n_blocks = UINT32_MAX;
    assert_int_equal(gwi_slab_attach(&other, memory, memory_bytes), GW_EINVAL);
    header->n_blocks = good.n_blocks;
    header->block_bytes = UINT64_MAX / 2;
    assert_int_equal(gwi_slab_attach(&other, memory, memory_bytes), GW_EINVAL);
    header->block_bytes = good.block_bytes;
    header->blocks_at += 64;
    assert_int_equal(gwi_slab_attach(&other, memory, memory_bytes), GW_EINVAL);
    header->blocks_at = good.blocks_at;
    atomic_store(&header->magic, 1);
    assert_int_equal(gwi_slab_attach(&other, memory, memory_bytes), GW_ESTATE);
    atomic_store(&header->magic, atomic_load(&good.magic));
    assert_int_equal(other.n_blocks, 123);
    assert_int_equal(gwi_slab_attach(&other, memory, memory_bytes), 0);
    assert_true(gwi_slab_valid(&other));
}

static void a_broken_slab_is_not_valid(void **state)
{
    (void)state;
    make_slab(8, 10);
    for (int i = 0; i < 6; i++)
        take();
    for (uint32_t i = 0; i < 4; i++)
        gwi_slab_free(&slab, i); /* the list is 3, 2, 1, 0 */
    assert_true(gwi_slab_valid(&slab));

    static const struct {
        uint32_t block, link;
    } broken[] = {
        {0, 4},  /* a circle: back to block 3 */
        {1, 2},  /* a circle of one */
        {2, 0},  /* in the list, and in use */
        {0, 7},  /* on to a block that was never used */
        {0, 11}, /* on to a block that does not exist */
        {8, 1},  /* a block that was never used, with a link */
    };
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        uint32_t good = atomic_exchange(&slab.link[broken[i].block], broken[i].link);
        assert_false(gwi_slab_valid(&slab));
        atomic_store(&slab.link[broken[i].block], good);
        assert_true(gwi_slab_valid(&slab));
    }
    atomic_store(&slab.header->fresh, 11);
    assert_false(gwi_slab_valid(&slab));
}

/* --- Many at once ----------------------------------------------------------- */

/* Take and free blocks at random.  The words of a block that is ours hold our
 * number, written and read as ordinary memory: if two had a block at once, they
 * would find each other's number, and the thread sanitizer would see a race. */
enum { HOLD = 6, BLOCK_WORDS = 4 };

static void mark(uint32_t block, uint64_t me)
{
    uint64_t *word = gwi_slab_block(&slab, block);

    for (int i = 0; i < BLOCK_WORDS; i++)
        word[i] = me;
}

static bool marked(uint32_t block, uint64_t me)
{
    const uint64_t *word = gwi_slab_block(&slab, block);

    for (int i = 0; i < BLOCK_WORDS; i++)
        if (word[i] != me)
            return false;
    return true;
}

/* Returns how often something was wrong; all blocks are free again. */
static uintptr_t live(uint64_t me, int n_steps)
{
    uint32_t mine[HOLD], n = 0;
    uintptr_t wrong = 0;
    gwi_random random;

    gwi_random_init(&random, 2, me);
    for (int step = 0; step < n_steps; step++) {
        if (n < HOLD && gwi_random_below(&random, 2) == 0) {
            if (gwi_slab_alloc(&slab, &mine[n]) == 0)
                mark(mine[n++], me);
        } else if (n > 0) {
            uint64_t i = gwi_random_below(&random, n);
            wrong += !marked(mine[i], me);
            mark(mine[i], UINT64_MAX);
            gwi_slab_free(&slab, mine[i]);
            mine[i] = mine[--n];
        }
    }
    while (n > 0) {
        wrong += !marked(mine[n - 1], me);
        gwi_slab_free(&slab, mine[--n]);
    }
    return wrong;
}

static void *live_in_a_thread(void *number)
{
    return (void *)live((uintptr_t)number, 40000);
}

static void threads_never_hold_the_same_block(void **state)
{
    (void)state;
    enum { N = 4 };
    pthread_t thread[N];
    void *wrong;

    /* Fewer blocks than they want, so that the slab is full at times. */
    make_slab(BLOCK_WORDS * 8, N * HOLD / 2);
    for (uintptr_t i = 0; i < N; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, live_in_a_thread, (void *)i), 0);
    for (int i = 0; i < N; i++) {
        assert_int_equal(pthread_join(thread[i], &wrong), 0);
        assert_null(wrong);
    }
    assert_true(gwi_slab_valid(&slab));
    assert_int_equal(gwi_slab_in_use(&slab), 0);
    assert_int_equal(take_all(), N * HOLD / 2);
}

static void *take_many(void *count)
{
    uint32_t block;

    while (gwi_slab_alloc(&slab, &block) == 0) {
        uint32_t *counter = gwi_slab_block(&slab, block);
        ++*counter; /* a race, if two get the block */
        ++*(uintptr_t *)count;
    }
    return NULL;
}

static void threads_share_out_the_fresh_blocks(void **state)
{
    (void)state;
    enum { N = 3, BLOCKS = 30000 };
    pthread_t thread[N];
    uintptr_t count[N] = {0}, total = 0;

    make_slab(4, BLOCKS);
    for (int i = 0; i < N; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, take_many, &count[i]), 0);
    for (int i = 0; i < N; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        total += count[i];
    }
    assert_int_equal(total, BLOCKS);
    for (uint32_t i = 0; i < BLOCKS; i++)
        assert_int_equal(*(uint32_t *)gwi_slab_block(&slab, i), 1);
}

/* A child must not outlive the test, nor return into it. */
static pid_t start(void (*work)(uint64_t), uint64_t argument)
{
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        work(argument);
        _exit(0);
    }
    return child;
}

static int end_of(pid_t child)
{
    int status = -1;

    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

static void live_in_a_process(uint64_t number)
{
    gwi_slab mine;

    /* As a process that was not forked would do it. */
    if (gwi_slab_attach(&mine, memory, memory_bytes) < 0)
        _exit(2);
    slab = mine;
    _exit(live(number, 100000) == 0 ? 0 : 1);
}

static void processes_never_hold_the_same_block(void **state)
{
    (void)state;
    enum { N = 3 };
    pid_t child[N];

    make_slab(BLOCK_WORDS * 8, N * HOLD / 2);
    for (uint64_t i = 0; i < N; i++)
        child[i] = start(live_in_a_process, i);
    for (int i = 0; i < N; i++)
        assert_int_equal(end_of(child[i]), 0);
    assert_true(gwi_slab_valid(&slab));
    assert_int_equal(gwi_slab_in_use(&slab), 0);
    assert_int_equal(take_all(), N * HOLD / 2);
}

/* --- Dying ------------------------------------------------------------------ */

/* Shared with the children: how far each has come, and when to stop. */
struct progress {
    _Alignas(GWI_LINE) _Atomic uint64_t steps;
    _Alignas(GWI_LINE) _Atomic uint64_t survivor_steps;
    _Atomic int stop;
    _Atomic uint32_t got; /* the block that a watched child took, plus 1; it is through */
};
static struct progress *progress;

static int make_progress(void **state)
{
    (void)state;
    progress = mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                    0);
    return progress == MAP_FAILED ? -1 : 0;
}

static int drop_both(void **state)
{
    munmap(progress, sizeof *progress);
    return drop_slab(state);
}

/* For ever: one block in the hands at most. */
static void take_and_free(uint64_t me)
{
    uint32_t block;

    for (;;) {
        if (gwi_slab_alloc(&slab, &block) != 0)
            _exit(1);
        mark(block, me);
        gwi_slab_free(&slab, block);
        atomic_fetch_add(&progress->steps, 1);
    }
}

static void live_until_told(uint64_t me)
{
    uintptr_t wrong = 0;

    while (!atomic_load(&progress->stop)) {
        wrong += live(me, 50);
        atomic_fetch_add(&progress->survivor_steps, 1);
    }
    _exit(wrong == 0 ? 0 : 1);
}

/* Wait until a counter has passed `goal`, while the child is there to move it. */
static bool passes(_Atomic uint64_t *counter, uint64_t goal, pid_t child)
{
    while (atomic_load(counter) < goal) {
        if (waitpid(child, NULL, WNOHANG) != 0)
            return false;
        sched_yield();
    }
    return true;
}

static void a_killed_process_loses_at_most_the_block_in_its_hands(void **state)
{
    (void)state;
    enum { ROUNDS = 60, BLOCKS = ROUNDS + 2 * HOLD };
    gwi_random random;

    make_slab(BLOCK_WORDS * 8, BLOCKS);
    gwi_random_init(&random, 3, 0);
    pid_t survivor = start(live_until_told, 1000);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t goal = atomic_load(&progress->steps) + gwi_random_below(&random, 300);
        pid_t victim = start(take_and_free, round);
        assert_true(passes(&progress->steps, goal, victim));
        assert_int_equal(kill(victim, SIGKILL), 0);
        assert_true(WIFSIGNALED(end_of(victim)));
        /* The other goes on, whatever the dead one was doing. */
        assert_true(passes(&progress->survivor_steps, atomic_load(&progress->survivor_steps) + 2,
                           survivor));
    }
    atomic_store(&progress->stop, 1);
    assert_int_equal(end_of(survivor), 0);
    assert_true(gwi_slab_valid(&slab));
    uint32_t lost = gwi_slab_in_use(&slab);
    assert_true(lost <= ROUNDS);
    assert_int_equal(take_all(), BLOCKS - lost);
}

/* The same at every single instruction: a child is led through alloc and free
 * step by step, and between two steps it is as good as dead. */
#if defined(__x86_64__)

/* Calls into other libraries are long the first time, while they are bound. */
static void warm_up(void)
{
    static _Alignas(GWI_LINE) unsigned char room[1024];
    gwi_slab spare;
    uint32_t block;

    gwi_slab_init(&spare, room, sizeof room, 8, 4);
    for (int i = 0; i < 2 && gwi_slab_alloc(&spare, &block) == 0; i++)
        gwi_slab_free(&spare, block);
}

static void watched(uint64_t also_free)
{
    uint32_t block = 0;

    warm_up();
    atomic_store(&progress->got, 0);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
        _exit(77);
    __asm__ volatile("int3" ::: "memory"); /* the parent takes over */
    if (gwi_slab_alloc(&slab, &block) != 0)
        _exit(1);
    if (also_free)
        gwi_slab_free(&slab, block);
    atomic_store(&progress->got, block + 1);
    _exit(0);
}

/* A child that stands before its alloc, or -1 where tracing is not allowed. */
static pid_t start_watched(bool also_free)
{
    int status;
    pid_t child = start(watched, also_free);

    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSTOPPED(status) ? child : -1;
}

/* Lead it on by one instruction; false if it is through. */
static bool step(pid_t child)
{
    int status;

    assert_int_equal(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
    return atomic_load(&progress->got) == 0;
}

static void let_go(pid_t child)
{
    assert_int_equal(ptrace(PTRACE_CONT, child, NULL, NULL), 0);
    assert_int_equal(end_of(child), 0);
}

/* How many instructions to go on between two tries, so that there are at most
 * TRIES of them; a plain build tries each.  -1 where tracing is not allowed. */
#define TRIES (GWI_TSAN ? 30 : 200) /* its code is thousands of instructions long */

static long stride_for(bool also_free)
{
    pid_t child = start_watched(also_free);
    long n = 0;

    if (child < 0)
        return -1;
    while (step(child))
        n++;
    let_go(child);
    return n / TRIES + 1;
}

/* Block 2 is in use, 3 is fresh, the list is 0, 1. */
static void make_list(void)
{
    make_slab(BLOCK_WORDS * 8, 4);
    for (int i = 0; i < 3; i++)
        take();
    gwi_slab_free(&slab, 1);
    gwi_slab_free(&slab, 0);
}

static void watch_every_instruction(void)
{
    uint32_t in_use = gwi_slab_in_use(&slab), most = 0;
    pid_t child = start_watched(true);

    if (child < 0)
        skip();
    while (step(child)) {
        uint32_t missing = gwi_slab_in_use(&slab) - in_use;
        assert_true(gwi_slab_valid(&slab));
        assert_true(missing <= 1);
        most = missing > most ? missing : most;
    }
    let_go(child);
    assert_int_equal(most, 1); /* we did see it in the middle */
    assert_int_equal(gwi_slab_in_use(&slab), in_use);
}

static void at_every_instruction_at_most_one_block_is_missing(void **state)
{
    (void)state;
    make_list();
    watch_every_instruction(); /* a block from the list */
    take();
    take();
    watch_every_instruction(); /* the fresh one */
}

static void killed_at_any_instruction_it_leaves_the_rest_usable(void **state)
{
    (void)state;
    uint32_t lost_in_all = 0;
    bool more = true;

    make_list();
    long stride = stride_for(true);
    if (stride < 0)
        skip();
    for (long stop = 0; more; stop += stride) {
        drop_slab(state);
        make_list();
        pid_t child = start_watched(true);
        for (long i = 0; i < stop && more; i++)
            more = step(child);
        kill(child, SIGKILL);
        end_of(child);
        uint32_t lost = gwi_slab_in_use(&slab) - 1;
        assert_true(lost <= 1);
        assert_true(gwi_slab_valid(&slab));
        assert_int_equal(take_all(), 3 - lost);
        lost_in_all += lost;
    }
    assert_true(lost_in_all > 0);
}

/* The classic trap: while one is about to take the first block, another takes
 * the first and the second and gives the first back.  The list begins as
 * before, but goes on differently. */
static void one_that_is_overtaken_does_not_take_a_block_of_another(void **state)
{
    (void)state;
    bool more = true;

    make_list();
    long stride = stride_for(false);
    if (stride < 0)
        skip();
    for (long stop = 0; more; stop += stride) {
        drop_slab(state);
        make_list();
        pid_t child = start_watched(false);
        for (long i = 0; i < stop && more; i++)
            more = step(child);
        uint32_t first = take(), second = take();
        gwi_slab_free(&slab, first);
        let_go(child);
        uint32_t got = atomic_load(&progress->got) - 1;
        assert_true(got < 4 && got != second && got != 2);
        assert_true(gwi_slab_valid(&slab));
        assert_int_equal(gwi_slab_in_use(&slab), 3); /* block 2, ours, the child's */
        assert_int_equal(take_all(), 1);
    }
}

/* There is a free block at all times, first a fresh one, then one that comes
 * back; another process, which had found the list empty before that, takes the
 * fresh one meanwhile. */
static void a_slab_that_was_never_full_does_not_say_so(void **state)
{
    (void)state;
    bool more = true;

    make_list();
    long stride = stride_for(false);
    if (stride < 0)
        skip();
    for (long stop = 0; more; stop += stride) {
        drop_slab(state);
        make_slab(BLOCK_WORDS * 8, 2);
        take();
        pid_t child = start_watched(false);
        for (long i = 0; i < stop && more; i++)
            more = step(child);
        gwi_slab_free(&slab, 0);
        uint64_t fresh = 1; /* the other's alloc, from there on */
        bool others = atomic_compare_exchange_strong(&slab.header->fresh, &fresh, 2);
        let_go(child);
        assert_int_equal(atomic_load(&progress->got) - 1, others ? 0 : 1);
        assert_true(gwi_slab_valid(&slab));
        assert_int_equal(take_all(), others ? 0 : 1);
    }
}

#define STEPPED                                                        \
    DYING(at_every_instruction_at_most_one_block_is_missing),          \
        DYING(killed_at_any_instruction_it_leaves_the_rest_usable),    \
        DYING(one_that_is_overtaken_does_not_take_a_block_of_another), \
        DYING(a_slab_that_was_never_full_does_not_say_so)
#else
/* Elsewhere single steps may never get past an exclusive load and store. */
static void stepping_needs_another_processor(void **state)
{
    (void)state;
    skip();
}
#define STEPPED cmocka_unit_test(stepping_needs_another_processor)
#endif

#define TEST(name) cmocka_unit_test_teardown(name, drop_slab)
#define DYING(name) cmocka_unit_test_setup_teardown(name, make_progress, drop_both)

GWI_TESTS(TEST(the_first_blocks_come_in_order), TEST(blocks_follow_each_other_and_fill_the_memory),
          TEST(a_full_slab_refuses_until_a_block_comes_back),
          TEST(freed_blocks_are_used_before_fresh_ones),
          TEST(free_blocks_are_those_that_were_given_back_or_never_out),
          TEST(a_random_life_leaves_each_block_with_one_owner), TEST(the_tag_may_wrap_around),
          TEST(a_slab_that_cannot_be_is_refused), TEST(processes_use_it_at_different_addresses),
          TEST(a_stranger_is_not_attached_to), TEST(a_broken_slab_is_not_valid),
          TEST(threads_never_hold_the_same_block), TEST(threads_share_out_the_fresh_blocks),
          TEST(processes_never_hold_the_same_block),
          DYING(a_killed_process_loses_at_most_the_block_in_its_hands), STEPPED)
