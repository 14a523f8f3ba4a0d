/* killed.c - saves that are killed, or meet a full disk: what is there afterwards is whole.
 *
 * Processes save one state after the other into a directory; a state is a number, of which every
 * entry of every vector follows.  They are killed
 *
 *   - before each of the operations on files that a save makes, one after the other, in the
 *     process that does the renaming and in another one.  The linker passes those operations
 *     through step() here (--wrap), which counts them;
 *   - at random moments, one of them or all: GODWIT_KILLS times (`make test-checkpoints`: 200).
 *
 * Afterwards another job loads, and must find a state complete, bit by bit: the last one whose
 * save returned, or the one after it.  In the same way each operation fails once because the
 * disk is full; and a disk that is really full, and a limit on the size of files, are tried.  */
#include "params/checkpoint_test.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* Of all processes of the test. */
static struct shared {
    _Atomic int completed; /* the last state whose save returned on rank 0 */
    _Atomic int begun;     /* saves */
    _Atomic int loaded;    /* the state that was found; 0: there was no checkpoint */
    _Atomic int n_steps;   /* of the victim */
    _Atomic int errors;    /* ranks whose save failed */
    _Atomic int broken;    /* checks in processes that may be killed */
} * shared;

static int kill_at, fail_at, victim; /* set before processes are forked */
static _Atomic int armed;
static struct rlimit largest_file; /* of rank 1 when it saves; 0: any */

/* ---- what the linker passes through here ----------------------------------------------- */

static int step(void)
{
    if (!atomic_load(&armed))
        return 0;
    int n = atomic_fetch_add(&shared->n_steps, 1) + 1;
    if (n == kill_at)
        kill(getpid(), SIGKILL);
    if (n != fail_at)
        return 0;
    errno = ENOSPC;
    return -1;
}

/* Bells and pipes are not what this is about. */
static int is_file(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

#define WRAP(type, name, parameters, arguments)           \
    type __real_##name parameters;                        \
    type __wrap_##name parameters;                        \
    type __wrap_##name parameters                         \
    {                                                     \
        return step() < 0 ? -1 : __real_##name arguments; \
    }

WRAP(int, fsync, (int fd), (fd))
WRAP(int, mkdirat, (int fd, const char *path, mode_t mode), (fd, path, mode))
WRAP(int, renameat, (int from, const char *old, int to, const char *new), (from, old, to, new))
WRAP(int, unlinkat, (int fd, const char *path, int flags), (fd, path, flags))
WRAP(int, fallocate, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n))
WRAP(int, fallocate64, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n))

ssize_t __real_write(int fd, const void *bytes, size_t n);
ssize_t __wrap_write(int fd, const void *bytes, size_t n);
ssize_t __wrap_write(int fd, const void *bytes, size_t n)
{
    return atomic_load(&armed) && is_file(fd) && step() < 0 ? -1 : __real_write(fd, bytes, n);
}

/* ---- jobs -------------------------------------------------------------------------------- */

/* Save states from the next one on, until somebody dies; or `setting.state` of them. */
static void save_on(const struct processes *all, int rank)
{
    gw_world *world = join_nodes(all, rank);
    gw_params *params = open_setting(world);
    gw_worker *worker = take_worker(params);
    int first = atomic_load(&shared->completed) + 1, err = 0;

    REQUIRE(gw_worker_barrier(worker) == 0); /* all have read where to begin */
    for (int state = first; state < first + setting.state && err == 0; state++) {
        err = try_state(worker, all, rank, state);
        if (err < 0)
            break;
        atomic_fetch_add(&shared->begun, rank == 0);
        atomic_store(&armed, rank == victim);
        signal(SIGXFSZ, SIG_IGN);
        if (rank == 1 && largest_file.rlim_cur > 0)
            REQUIRE(setrlimit(RLIMIT_FSIZE, &largest_file) == 0);
        err = save_state(params, state);
        atomic_store(&armed, 0);
        atomic_fetch_add(&shared->errors, err < 0);
        if (err == 0 && rank == 0)
            atomic_store(&shared->completed, state);
        if (err < 0 && err != GW_EPEER && err != GW_ESYS)
            atomic_fetch_add(&shared->broken, 1);
        if (err == GW_ESYS && strstr(gw_last_error(), "No space left") == NULL &&
            strstr(gw_last_error(), "too large") == NULL)
            atomic_fetch_add(&shared->broken, 1);
    }
    if (err == GW_EPEER) {
        gw_params_abandon(params);
    } else {
        err = gw_params_close(params); /* rank 0 may die when all others are done */
        REQUIRE(err == 0 || (err == GW_EPEER && kill_at > 0));
    }
    gw_world_close(world);
}

static void find_state(const struct processes *all, int rank)
{
    gw_world *world = join_nodes(all, rank);
    gw_params *params = open_setting(world);
    gw_worker *worker = take_worker(params);
    gw_checkpoint *checkpoint = NULL;
    int err = gw_params_load(params, setting.dir, &checkpoint);

    if (err == 0) {
        int state = loaded_state(checkpoint);
        expect_state(worker, state);
        atomic_store(&shared->loaded, state);
    } else {
        REQUIRE(err == GW_ESYS && saw("there is no checkpoint"));
        expect_state(worker, 0);
        atomic_store(&shared->loaded, 0);
    }
    REQUIRE(gw_worker_barrier(worker) == 0);
    gw_checkpoint_close(checkpoint);
    close_all(params, world);
}

static void set_up(int64_t n_keys, int64_t length)
{
    setting = (struct setting){
        .n_keys = n_keys, .lengths = {length}, .n_lengths = 1, .dtype = GW_F32, .state = 1};
    new_directory();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    kill_at = fail_at = 0;
    victim = -1;
}

static void tear_down(void)
{
    assert_int_equal(atomic_load(&shared->broken), 0);
    munmap(shared, sizeof *shared);
    remove_directory(setting.dir);
}

/* A state is there, complete: the last that was saved, or the one after it. */
static void expect_whole(int n, int node_size)
{
    int completed = atomic_load(&shared->completed);

    setting.node_size = node_size;
    run_processes(n, find_state);
    int loaded = atomic_load(&shared->loaded);
    if (loaded != completed && loaded != completed + 1)
        fail_msg("state %d was saved, and %d is there", completed, loaded);
    atomic_store(&shared->completed, loaded);
}

/* Once; returns whether the victim was killed.  Nobody else may end badly. */
static int run_once(int n, int node_size)
{
    struct processes all;
    int was_killed = 0;

    setting.node_size = node_size;
    atomic_store(&shared->n_steps, 0);
    atomic_store(&shared->errors, 0);
    start_processes(&all, n, save_on);
    wait_for_processes(&all);
    for (int rank = 0; rank < n; rank++) {
        was_killed |= WIFSIGNALED(all.statuses[rank]) && rank == victim;
        if (rank != victim || !WIFSIGNALED(all.statuses[rank]))
            assert_int_equal(all.statuses[rank], 0);
    }
    return was_killed;
}

static void a_save_killed_before_any_operation_leaves_a_whole_checkpoint(void **state)
{
    (void)state;
    set_up(60, 4);
    for (victim = 0; victim < 2; victim++) {
        int was_killed = 1;
        for (kill_at = 1; was_killed; kill_at += LIGHT ? 3 : 1) {
            was_killed = run_once(2, 1 + kill_at % 2);
            expect_whole(1, 1);
        }
        assert_true(kill_at > (victim == 0 ? 10 : 4));
    }
    victim = -1;
    assert_false(run_once(3, 2)); /* which removes what was left over */
    assert_int_equal(count_entries(setting.dir, ".saving-"), 0);
    assert_int_equal(count_entries(setting.dir, ".checkpoint"), 0);
    assert_int_equal(count_entries(setting.dir, "save-"), 1);
    expect_whole(2, 1);
    tear_down();
}

static void a_disk_that_is_full_at_any_operation_is_an_error_on_all_ranks(void **state)
{
    (void)state;
    set_up(60, 4);
    assert_false(run_once(2, 2));
    for (victim = 0; victim < 2; victim++)
        for (fail_at = 1;; fail_at += LIGHT ? 3 : 1) {
            assert_false(run_once(2, 1 + fail_at % 2));
            int errors = atomic_load(&shared->errors);
            assert_true(errors == 0 || errors == 2);
            assert_int_equal(count_entries(setting.dir, ".saving-"), 0);
            assert_int_equal(count_entries(setting.dir, ".checkpoint"), 0);
            expect_whole(1, 1);
            if (atomic_load(&shared->n_steps) < fail_at)
                break;
        }
    tear_down();
}

/* ---- random moments ---------------------------------------------------------------------- */

static void kill_some(struct processes *all, uint64_t chance)
{
    unsigned one_of = (unsigned)(chance % (unsigned)(all->n + 2));

    gwi_nap_ns((int64_t)(chance >> 8) % (60 * GWI_MS));
    for (int rank = 0; rank < all->n; rank++)
        if (one_of >= (unsigned)all->n || (int)one_of == rank)
            kill(all->pids[rank], SIGKILL);
}

static void a_save_killed_at_any_moment_leaves_a_whole_checkpoint(void **state)
{
    const char *given = getenv("GODWIT_KILLS");
    int runs = given != NULL ? atoi(given) : 10, left_over = 0, later = 0, saves = 0;
    uint64_t seed = 0;

    (void)state;
    assert_int_equal(gwi_random_entropy(&seed, sizeof seed), 0);
    if (getenv("GODWIT_FAULT_SEED") != NULL)
        seed = strtoull(getenv("GODWIT_FAULT_SEED"), NULL, 10);
    print_message("# seed %llu\n", (unsigned long long)seed);
    set_up(12000, 64); /* 3 MB */
    setting.state = 1 << 20;
    for (int i = 0; i < runs; i++) {
        uint64_t chance = gwi_hash_u64(seed + (uint64_t)i);
        int n = 2 + (int)(chance >> 60) % 3, begun = atomic_load(&shared->begun);
        struct processes all;
        setting.node_size = 1 << (chance >> 56) % 3;
        start_processes(&all, n, save_on);
        while (atomic_load(&shared->begun) == begun) /* until a save has begun */
            gwi_nap_ns(GWI_MS);
        kill_some(&all, chance);
        wait_for_processes(&all);
        saves += atomic_load(&shared->begun) - begun;
        left_over += count_entries(setting.dir, ".saving-") > 0;
        int completed = atomic_load(&shared->completed);
        expect_whole(1 + (int)(chance >> 40 & 0xff) % 3, 1 + (int)(chance >> 48 & 1));
        later += atomic_load(&shared->loaded) > completed;
    }
    print_message("# %d kills in %d saves: %d left files behind, %d came after the save had taken "
                  "effect but before it returned\n",
                  runs, saves, left_over, later);
    tear_down();
}

/* ---- full disks ---------------------------------------------------------------------------- */

static void a_file_that_may_not_grow_is_an_error_on_all_ranks(void **state)
{
    (void)state;
    set_up(1000, 16);
    assert_false(run_once(3, 3));
    largest_file = (struct rlimit){4096, 4096};
    assert_false(run_once(3, 3));
    largest_file = (struct rlimit){0, 0};
    assert_int_equal(atomic_load(&shared->errors), 3);
    assert_int_equal(count_entries(setting.dir, ".saving-"), 0);
    expect_whole(2, 2);
    assert_int_equal(atomic_load(&shared->loaded), 1);
    tear_down();
}

/* Room for one checkpoint and a half, in a mount that nobody else sees. */
static int mount_small_disk(void)
{
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", setting.dir, "tmpfs", 0, "size=112k") == 0;
}

static void a_full_disk_is_an_error_on_all_ranks(void **state)
{
    int status;

    (void)state;
    set_up(1000, 16); /* 72 KB, in whole pages 84 */
    pid_t child = fork();
    if (child == 0) {
        if (!mount_small_disk())
            _exit(77);
        int ok = !run_once(2, 2) && atomic_load(&shared->errors) == 0;
        for (int i = 0; i < 3; i++) {
            ok = ok && !run_once(2, 1 + i % 2) && atomic_load(&shared->errors) == 2 &&
                 count_entries(setting.dir, ".saving-") == 0 &&
                 count_entries(setting.dir, "save-") == 1;
            expect_whole(1, 1);
            ok = ok && atomic_load(&shared->loaded) == 1;
        }
        _exit(ok ? 0 : 1);
    }
    waitpid(child, &status, 0);
    tear_down();
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip(); /* only root may mount */
    assert_int_equal(status, 0);
}

GWI_TESTS(cmocka_unit_test(a_save_killed_before_any_operation_leaves_a_whole_checkpoint),
          cmocka_unit_test(a_disk_that_is_full_at_any_operation_is_an_error_on_all_ranks),
          cmocka_unit_test(a_save_killed_at_any_moment_leaves_a_whole_checkpoint),
          cmocka_unit_test(a_file_that_may_not_grow_is_an_error_on_all_ranks),
          cmocka_unit_test(a_full_disk_is_an_error_on_all_ranks))
