/* checkpoint_test.c - what is saved is loaded, by any number of processes and nodes, and what is
 * not whole is refused.  tests/params/killed.c has saves that are killed. */
#include "base/hash.h"
#include "params/checkpoint_test.h"

#include <fcntl.h>
#include <sys/file.h>

static void set_up(int64_t n_keys, int several_lengths, gw_dtype dtype)
{
    setting = (struct setting){.n_keys = n_keys,
                               .lengths = {several_lengths ? 3 : 8, 1, 17, 4},
                               .n_lengths = several_lengths ? 4 : 1,
                               .dtype = dtype,
                               .state = 1};
    new_directory();
}

static void run_with(int n, int node_size, process_main *run)
{
    setting.node_size = node_size;
    run_processes(n, run);
}

/* saved by some, loaded by others */

static void save_it(const struct processes *all, int rank)
{
    gw_world *world = join_nodes(all, rank);
    gw_params *params = open_setting(world);
    gw_worker *worker = take_worker(params);

    set_state(worker, all, rank, setting.state);
    static struct batch b;
    int64_t next = rank;
    next_batch(&b, &next, all->n + 1, 0); /* some are not at home */
    REQUIRE(gw_worker_localize(worker, (gw_keys){b.keys, b.n}, NULL) == 0);
    next = 0;
    next_batch(&b, &next, 5, 0); /* and some are on several nodes */
    REQUIRE(gw_worker_intent(worker, (gw_keys){b.keys, b.n}, 0, 100) == 0);
    REQUIRE(gw_worker_wait_sync(worker) == 0);
    REQUIRE(save_state(params, setting.state) == 0);
    close_all(params, world);
}

static void load_it(const struct processes *all, int rank)
{
    gw_world *world = join_nodes(all, rank);
    gw_params *params = open_setting(world);
    gw_worker *worker = take_worker(params);
    gw_checkpoint *checkpoint = NULL;

    set_state(worker, all, rank, 99);
    static struct batch b;
    int64_t next = 0;
    next_batch(&b, &next, 3, 0);
    REQUIRE(gw_worker_intent(worker, (gw_keys){b.keys, b.n}, 0, 100) == 0);
    REQUIRE(gw_params_load(params, setting.dir, &checkpoint) == 0);
    REQUIRE(loaded_state(checkpoint) == setting.state);
    gw_checkpoint_close(checkpoint);
    expect_state(worker, setting.state);
    REQUIRE(gw_worker_barrier(worker) == 0);
    close_all(params, world);
}

static void what_four_ranks_saved_any_number_loads(void **state)
{
    static const int loads[][2] = {{1, 1}, {2, 1}, {2, 2}, {3, 1}, {3, 2},
                                   {3, 3}, {8, 1}, {8, 2}, {8, 8}};

    (void)state;
    for (int node_size = 1; node_size <= 4; node_size *= 2) {
        set_up(403, node_size == 2, node_size == 4 ? GW_F64 : GW_F32);
        run_with(4, node_size, save_it);
        assert_int_equal(count_entries(setting.dir, "."), 2);
        assert_int_equal(count_entries(setting.dir, "save-"), 1);
        for (size_t i = 0; i < sizeof loads / sizeof *loads; i += LIGHT ? 4 : 1)
            run_with(loads[i][0], loads[i][1], load_it);
        remove_directory(setting.dir);
    }
}

static void fewer_keys_than_ranks_and_vectors_larger_than_a_batch_are_saved(void **state)
{
    (void)state;
    set_up(3, 0, GW_F32);
    run_with(8, 2, save_it);
    run_with(5, 5, load_it);
    remove_directory(setting.dir);
    set_up(20, 0, GW_F64);
    setting.lengths[0] = MOST_VALUES; /* 512 KB */
    run_with(2, 1, save_it);
    run_with(3, 3, load_it);
    remove_directory(setting.dir);
}

static void save_often(const struct processes *all, int rank)
{
    gw_world *world = join_nodes(all, rank);
    gw_params *params = open_setting(world);
    gw_worker *worker = take_worker(params);

    for (int i = 1; i <= 5; i++) {
        set_state(worker, all, rank, i);
        REQUIRE(save_state(params, i) == 0);
        REQUIRE(gw_worker_barrier(worker) == 0);
        if (rank == 0)
            REQUIRE(count_entries(setting.dir, "save-") == 1);
    }
    for (int i = 0; i < 3; i++) {
        set_state(worker, all, rank, 77);
        REQUIRE(gw_params_load(params, setting.dir, NULL) == 0);
        expect_state(worker, 5);
        REQUIRE(gw_worker_barrier(worker) == 0);
    }
    close_all(params, world);
}

static void a_save_takes_the_place_of_the_one_before_and_other_files_stay(void **state)
{
    char path[256];

    (void)state;
    set_up(100, 0, GW_F32);
    snprintf(path, sizeof path, "%s/optimizer.pt", setting.dir);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    snprintf(path, sizeof path, "%s/.saving-20200101-000000-00000000", setting.dir);
    mkdir(path, 0700);
    strcat(path, "/part-00000.safetensors");
    close(open(path, O_CREAT | O_WRONLY, 0600));
    run_with(3, 2, save_often);
    assert_int_equal(count_entries(setting.dir, ".saving-"), 0);
    assert_int_equal(count_entries(setting.dir, "optimizer.pt"), 1);
    remove_directory(setting.dir);
}

/* what workers do meanwhile */

struct pusher {
    gw_worker *worker;
    _Atomic int stop;
    int moves;
};

static void *push_on(void *arg)
{
    struct pusher *p = arg;
    float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};

    while (!atomic_load(&p->stop)) {
        for (int64_t key = 0; key < setting.n_keys && !atomic_load(&p->stop); key++) {
            REQUIRE(gw_worker_push(p->worker, one(&key), ones, 8, NULL) == 0);
            if (p->moves && key % 3 == 0)
                REQUIRE(gw_worker_localize(p->worker, one(&key), NULL) == 0);
        }
    }
    return NULL;
}

static int pushed_before; /* by each rank, at least */

static void save_while_others_push(const struct processes *all, int rank)
{
    gw_world *world = join_nodes(all, rank);
    gw_params *params = open_setting(world);
    gw_worker *worker = take_worker(params);
    struct pusher pusher = {.worker = worker, .moves = setting.node_size < all->n};
    pthread_t thread;
    float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};

    for (int i = 0; i < pushed_before; i++)
        for (int64_t key = 0; key < setting.n_keys; key++)
            REQUIRE(gw_worker_push(worker, one(&key), ones, 8, NULL) == 0);
    REQUIRE(pthread_create(&thread, NULL, push_on, &pusher) == 0);
    for (int i = 0; i < 5; i++)
        REQUIRE(save_state(params, 0) == 0);
    atomic_store(&pusher.stop, 1);
    pthread_join(thread, NULL);
    close_all(params, world);
}

static void expect_whole_pushes(const struct processes *all, int rank)
{
    gw_world *world = join_nodes(all, rank);
    gw_params *params = open_setting(world);
    gw_worker *worker = take_worker(params);
    float values[8];

    REQUIRE(gw_params_load(params, setting.dir, NULL) == 0);
    for (int64_t key = 0; key < setting.n_keys; key++) {
        REQUIRE(gw_worker_pull(worker, one(&key), values, 8, NULL) == 0);
        for (int i = 1; i < 8; i++)
            REQUIRE(values[i] == values[0]);
        REQUIRE(values[0] >= 4 * (float)pushed_before);
    }
    close_all(params, world);
}

static void a_push_during_a_save_is_wholly_in_or_out_and_one_before_is_in(void **state)
{
    (void)state;
    pushed_before = 3;
    for (int node_size = 1; node_size <= 4; node_size *= 2) {
        set_up(300, 0, GW_F32);
        run_with(4, node_size, save_while_others_push);
        run_with(1, 1, expect_whole_pushes);
        remove_directory(setting.dir);
    }
}

/* what is refused */

static char expected_words[128];
static int expected_error;

static void load_is_refused(const struct processes *all, int rank)
{
    gw_world *world = join_nodes(all, rank);
    gw_params *params = open_setting(world);
    gw_worker *worker = take_worker(params);
    gw_checkpoint *checkpoint = NULL;

    set_state(worker, all, rank, 42);
    REQUIRE(gw_params_load(params, setting.dir, &checkpoint) == expected_error);
    REQUIRE(saw(expected_words) && checkpoint == NULL);
    expect_state(worker, 42);
    REQUIRE(gw_worker_barrier(worker) == 0);
    close_all(params, world);
}

static void expect_refusal(int err, const char *words)
{
    expected_error = err;
    snprintf(expected_words, sizeof expected_words, "%s", words);
    run_with(3, 2, load_is_refused);
}

/* The path of part `rank` of the checkpoint. */
static void find_part(int rank, char *ret_path, size_t room)
{
    DIR *list = opendir(setting.dir);

    for (struct dirent *entry; (entry = readdir(list)) != NULL;)
        if (strncmp(entry->d_name, "save-", 5) == 0)
            snprintf(ret_path, room, "%s/%s/part-%05d.safetensors", setting.dir, entry->d_name,
                     rank);
    closedir(list);
}

static void flip(const char *path, off_t at)
{
    int fd = open(path, O_RDWR);
    unsigned char byte = 0;

    assert_true(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 0x10;
    assert_true(pwrite(fd, &byte, 1, at) == 1);
    close(fd);
}

static void damaged_and_missing_files_are_named_and_nothing_changes(void **state)
{
    char path[512], hidden[520], list[256];
    struct stat st;

    (void)state;
    set_up(200, 1, GW_F32);
    run_with(4, 2, save_it);
    find_part(2, path, sizeof path);
    assert_int_equal(stat(path, &st), 0);
    for (int i = 0; i < 4; i++) { /* in the head, in keys, and in vectors */
        off_t at = (const off_t[]){100, st.st_size / 4, st.st_size / 2, st.st_size - 1}[i];
        flip(path, at);
        expect_refusal(GW_EINVAL, "part-00002.safetensors: ");
        flip(path, at);
    }
    assert_int_equal(truncate(path, st.st_size - 1), 0);
    expect_refusal(GW_EINVAL, "part-00002.safetensors: it has");
    assert_int_equal(truncate(path, st.st_size), 0);
    expect_refusal(GW_EINVAL, "part-00002.safetensors: it is damaged");
    snprintf(hidden, sizeof hidden, "%s.hidden", path);
    assert_int_equal(rename(path, hidden), 0);
    expect_refusal(GW_ESYS, "part-00002.safetensors");
    snprintf(list, sizeof list, "%s/checkpoint.json", setting.dir);
    flip(list, 40);
    expect_refusal(GW_EINVAL, "checkpoint.json: ");
    unlink(list);
    expect_refusal(GW_ESYS, "there is no checkpoint in");
    remove_directory(setting.dir);
}

static void a_checkpoint_of_other_parameters_is_refused(void **state)
{
    (void)state;
    set_up(200, 0, GW_F32);
    run_with(2, 2, save_it);
    setting.n_keys = 201;
    expect_refusal(GW_EINVAL, "it has 200 keys, and these have 201");
    setting.n_keys = 200;
    setting.lengths[0] = 9;
    expect_refusal(GW_EINVAL, "0 keys of length 9");
    setting.lengths[0] = 8;
    setting.dtype = GW_F64;
    expect_refusal(GW_EINVAL, "it is float32, and these are float64");
    remove_directory(setting.dir);
    /* As many of each length, but not of the same keys. */
    set_up(200, 1, GW_F32);
    run_with(2, 2, save_it);
    setting.lengths[0] = 1;
    setting.lengths[1] = 3;
    expect_refusal(GW_EINVAL, "in these parameters");
    remove_directory(setting.dir);
}

static void disagree(const struct processes *all, int rank)
{
    gw_world *world = join_nodes(all, rank);
    gw_params *params = open_setting(world);
    char other[160];

    snprintf(other, sizeof other, "%s/%d", setting.dir, rank);
    REQUIRE(gw_params_save(params, other, NULL) == GW_EDISAGREE && saw("dir is"));
    REQUIRE(gw_params_load(params, other, NULL) == GW_EDISAGREE && saw("dir is"));
    REQUIRE(gw_params_save(params, setting.dir, rank == 1 ? "{\"a\": 1}" : "{}") == GW_EDISAGREE);
    REQUIRE(gw_params_save(params, setting.dir, rank == 1 ? "{\"a\"}" : NULL) ==
            (rank == 1 ? GW_EINVAL : GW_EDISAGREE));
    REQUIRE(rank == 1 ? saw("meta is not JSON") : saw_first("rank 1 was refused"));
    REQUIRE(gw_params_save(params, setting.dir, "[]") == (rank == 0 ? GW_EINVAL : GW_EINVAL));
    REQUIRE(gw_params_save(params, rank == 1 ? NULL : setting.dir, NULL) ==
            (rank == 1 ? GW_EINVAL : GW_EDISAGREE));
    REQUIRE(gw_params_save(params, setting.dir, "{}") == 0); /* and life goes on */
    (void)all;
    close_all(params, world);
}

static void ranks_that_disagree_all_hear_of_it(void **state)
{
    (void)state;
    set_up(10, 0, GW_F32);
    run_with(3, 1, disagree);
    remove_directory(setting.dir);
}

static void save_beside_another_job(const struct processes *all, int rank)
{
    gw_world *world = join_nodes(all, rank);
    gw_params *params = open_setting(world);

    (void)all;
    REQUIRE(gw_params_save(params, setting.dir, NULL) == GW_ESTATE &&
            saw("another job saves into"));
    close_all(params, world);
}

static void two_jobs_do_not_save_into_one_directory_at_a_time(void **state)
{
    (void)state;
    set_up(10, 0, GW_F32);
    int fd = open(setting.dir, O_RDONLY | O_DIRECTORY);
    assert_true(fd >= 0 && flock(fd, LOCK_EX) == 0);
    run_with(2, 1, save_beside_another_job);
    close(fd);
    run_with(2, 1, save_it);
    remove_directory(setting.dir);
}

static void save_into_a_file(const struct processes *all, int rank)
{
    gw_world *world = join_nodes(all, rank);
    gw_params *params = open_setting(world);
    char path[160];

    (void)all;
    snprintf(path, sizeof path, "%s/file/sub", setting.dir);
    REQUIRE(gw_params_save(params, path, NULL) == GW_ESYS && saw("file/sub"));
    REQUIRE(rank == 0 || saw_first("rank 0"));
    snprintf(path, sizeof path, "%s/a/b/c", setting.dir); /* is made */
    REQUIRE(gw_params_save(params, path, NULL) == 0);
    close_all(params, world);
}

static void directories_are_made_where_that_is_possible(void **state)
{
    char path[160];

    (void)state;
    set_up(10, 0, GW_F32);
    snprintf(path, sizeof path, "%s/file", setting.dir);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    run_with(2, 2, save_into_a_file);
    remove_directory(setting.dir);
}

static void a_checkpoint_can_be_looked_at(void **state)
{
    gw_checkpoint *checkpoint = NULL;
    char path[512];

    (void)state;
    set_up(100, 0, GW_F32);
    assert_int_equal(gw_checkpoint_open(setting.dir, &checkpoint), GW_ESYS);
    run_with(2, 1, save_it);
    assert_int_equal(gw_checkpoint_open(setting.dir, &checkpoint), 0);
    assert_string_equal(gw_checkpoint_meta(checkpoint), "{\"state\": 1}");
    assert_non_null(strstr(gw_checkpoint_text(checkpoint), "\"num_keys\": 100,"));
    assert_int_equal(gw_checkpoint_check(checkpoint, 0), 0);
    assert_int_equal(gw_checkpoint_check(checkpoint, 1), 0);
    assert_int_equal(gw_checkpoint_check(checkpoint, 2), GW_ERANGE);
    find_part(1, path, sizeof path);
    flip(path, 1000);
    assert_int_equal(gw_checkpoint_check(checkpoint, 1), GW_EINVAL);
    assert_non_null(strstr(gw_last_error(), "damaged"));
    gw_checkpoint_close(checkpoint);
    gw_checkpoint_close(NULL);
    remove_directory(setting.dir);
}

GWI_TESTS(cmocka_unit_test(what_four_ranks_saved_any_number_loads),
          cmocka_unit_test(fewer_keys_than_ranks_and_vectors_larger_than_a_batch_are_saved),
          cmocka_unit_test(a_save_takes_the_place_of_the_one_before_and_other_files_stay),
          cmocka_unit_test(a_push_during_a_save_is_wholly_in_or_out_and_one_before_is_in),
          cmocka_unit_test(damaged_and_missing_files_are_named_and_nothing_changes),
          cmocka_unit_test(a_checkpoint_of_other_parameters_is_refused),
          cmocka_unit_test(ranks_that_disagree_all_hear_of_it),
          cmocka_unit_test(two_jobs_do_not_save_into_one_directory_at_a_time),
          cmocka_unit_test(directories_are_made_where_that_is_possible),
          cmocka_unit_test(a_checkpoint_can_be_looked_at))
