/* memory_test.c - whole memory of several processes, of every kind, on one node and on several. */
#include "memory/memory_test.h"
#include "memory/memory.h"
#include "memory/walk.h"

#include <fcntl.h>
#include <pthread.h>

#define ROWS 1003
#define COLUMNS 5

static float value_of(int64_t row, int column)
{
    return (float)(row * 100 + column);
}

static void write_own(gw_memory *m, int rank)
{
    int64_t start, count, rows[ROWS];
    float values[ROWS * COLUMNS];

    REQUIRE(gw_memory_part(m, rank, &start, &count) == 0);
    for (int64_t i = 0; i < count; i++) {
        rows[i] = start + i;
        for (int c = 0; c < COLUMNS; c++)
            values[i * COLUMNS + c] = value_of(start + i, c);
    }
    REQUIRE(gw_memory_scatter(m, (gw_indices){rows, (size_t)count, GW_I64}, values, GW_F32) == 0);
}

/* Every kind that the nodes allow. */
static void with_kinds(const struct processes *all, int rank,
                       void (*run)(gw_comm *, gw_memory_kind))
{
    gw_world *world = NULL;
    gw_comm *comm = join_processes(all, rank, &world);
    int many = node_size > 0 && node_size < all->n;

    for (int kind = many ? GW_DISTRIBUTED : GW_CONTINUOUS; kind <= GW_DISTRIBUTED; kind++)
        run(comm, (gw_memory_kind)kind);
    gw_world_close(world);
}

#define IN_PROCESSES(name)                                              \
    static void name##_main(const struct processes *all, int rank)      \
    {                                                                   \
        with_kinds(all, rank, name##_kind);                             \
    }                                                                   \
    static void name(void **state)                                      \
    {                                                                   \
        static const int cases[][2] = {{1, 0}, {3, 0}, {2, 1}, {4, 2}}; \
        (void)state;                                                    \
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {   \
            node_size = cases[i][1];                                    \
            run_processes(cases[i][0], name##_main);                    \
        }                                                               \
    }

static void every_rank_reads_what_others_wrote_kind(gw_comm *comm, gw_memory_kind kind)
{
    gw_memory *m = open_memory(comm, kind, GW_F32, ROWS, COLUMNS);
    int64_t rows[2 * ROWS];
    int32_t narrow[2 * ROWS];
    float out[2 * ROWS * COLUMNS];
    double wide[2 * ROWS * COLUMNS];

    write_own(m, gw_comm_rank(comm));
    REQUIRE(gw_comm_barrier(comm) == 0);
    for (int64_t i = 0; i < 2 * ROWS; i++)
        narrow[i] = (int32_t)(rows[i] = (i * 7919 + gw_comm_rank(comm)) % ROWS);
    REQUIRE(gw_memory_gather(m, (gw_indices){rows, 2 * ROWS, GW_I64}, out, GW_F32) == 0);
    REQUIRE(gw_memory_gather(m, (gw_indices){narrow, 2 * ROWS, GW_I32}, wide, GW_F64) == 0);
    for (int64_t i = 0; i < 2 * ROWS; i++)
        for (int c = 0; c < COLUMNS; c++) {
            REQUIRE(out[i * COLUMNS + c] == value_of(rows[i], c));
            REQUIRE(wide[i * COLUMNS + c] == (double)value_of(rows[i], c));
        }
    REQUIRE(gw_memory_gather(m, (gw_indices){NULL, 0, GW_I64}, NULL, GW_F32) == 0);
    gw_memory_close(m);
}
IN_PROCESSES(every_rank_reads_what_others_wrote)

static void additions_of_all_ranks_and_duplicates_count_kind(gw_comm *comm, gw_memory_kind kind)
{
    enum { N = 4000, HOT = 7 };
    gw_memory *m = open_memory(comm, kind, GW_I64, HOT, 3);
    int64_t rows[N], values[N * 3], out[HOT * 3], all[HOT], expected = 0;

    for (int i = 0; i < N; i++) {
        rows[i] = i % HOT;
        for (int c = 0; c < 3; c++)
            values[i * 3 + c] = c + 1;
    }
    for (int turn = 0; turn < 3; turn++)
        REQUIRE(gw_memory_scatter_add(m, (gw_indices){rows, N, GW_I64}, values, GW_I64) == 0);
    REQUIRE(gw_comm_barrier(comm) == 0);
    REQUIRE(gw_memory_gather(m, all_rows(all, HOT), out, GW_I64) == 0);
    for (int i = 0; i < HOT; i++)
        for (int c = 0; c < 3; c++) {
            expected = 3 * gw_comm_size(comm) * (int64_t)((N - i + HOT - 1) / HOT) * (c + 1);
            REQUIRE(out[i * 3 + c] == expected);
        }
    gw_memory_close(m);
}
IN_PROCESSES(additions_of_all_ranks_and_duplicates_count)

static void a_bad_index_is_refused_and_nothing_changes_kind(gw_comm *comm, gw_memory_kind kind)
{
    gw_memory *m = open_memory(comm, kind, GW_F32, 10, 2);
    const float ones[6] = {1, 1, 1, 1, 1, 1};
    int64_t good[3] = {1, 2, 3}, bad[3] = {1, 2, 10}, all[10];
    int32_t below[3] = {0, -1, 2};
    float out[20];
    int wrong = gw_comm_rank(comm) == 0;
    gw_memory_info info = {.size_bytes = sizeof info};

    REQUIRE(gw_memory_get_info(m, &info) == 0);
    int err = gw_memory_scatter(m, (gw_indices){wrong ? bad : good, 3, GW_I64}, ones, GW_F32);
    if (wrong) {
        REQUIRE(err == GW_ERANGE);
        REQUIRE(strstr(gw_last_error(), "indices[2] is 10; rows go from 0 to 9") != NULL);
    } else if (info.spans_nodes) {
        REQUIRE(err == GW_EDISAGREE && strstr(gw_last_error(), "rank 0 was refused") != NULL);
    } else {
        REQUIRE(err == 0);
    }
    err = gw_memory_scatter_add(m, (gw_indices){below, 3, GW_I32}, ones, GW_F32);
    REQUIRE(err == GW_ERANGE && strstr(gw_last_error(), "indices[1] is -1") != NULL);
    REQUIRE(gw_memory_gather(m, (gw_indices){ones, 3, GW_F32}, out, GW_F32) == GW_ETYPE);
    REQUIRE(gw_memory_gather(m, (gw_indices){good, 3, GW_I64}, NULL, GW_F32) == GW_EINVAL);
    REQUIRE(gw_comm_barrier(comm) == 0);
    if (info.spans_nodes || gw_comm_size(comm) == 1) {
        REQUIRE(gw_memory_gather(m, all_rows(all, 10), out, GW_F32) == 0);
        for (int i = 0; i < 20; i++)
            REQUIRE(out[i] == 0);
    }
    gw_memory_close(m);
}
IN_PROCESSES(a_bad_index_is_refused_and_nothing_changes)

static void views_show_rows_and_columns_kind(gw_comm *comm, gw_memory_kind kind)
{
    gw_memory *m = open_memory(comm, kind, GW_F32, ROWS, COLUMNS), *view = NULL, *inner = NULL;
    int64_t starts[] = {100, 1}, ends[] = {900, 4}, rows[] = {0, 799, 5, 5}, start, count, sum = 0;
    float out[12];

    write_own(m, gw_comm_rank(comm));
    REQUIRE(gw_comm_barrier(comm) == 0);
    REQUIRE(gw_memory_sub(m, starts, ends, &view) == 0);
    REQUIRE(gw_memory_gather(view, (gw_indices){rows, 4, GW_I64}, out, GW_F32) == 0);
    for (int i = 0; i < 4; i++)
        for (int c = 0; c < 3; c++)
            REQUIRE(out[i * 3 + c] == value_of(rows[i] + 100, c + 1));
    for (int r = 0; r < gw_comm_size(comm); r++) {
        REQUIRE(gw_memory_part(view, r, &start, &count) == 0);
        REQUIRE(start == sum);
        sum += count;
        float *at = gw_memory_chunk(view, r);
        if (at != NULL && count > 0)
            REQUIRE(at[0] == value_of(100 + start, 1));
    }
    REQUIRE(sum == 800);
    REQUIRE(gw_memory_sub(view, (int64_t[]){10, 2}, (int64_t[]){11, 3}, &inner) == 0);
    gw_memory_close(view); /* the inner one goes on */
    gw_memory_close(m);
    REQUIRE(gw_memory_gather(inner, (gw_indices){rows, 1, GW_I64}, out, GW_F32) == 0);
    REQUIRE(out[0] == value_of(110, 3));
    REQUIRE(gw_memory_gather(inner, (gw_indices){rows, 2, GW_I64}, out, GW_F32) == GW_ERANGE);
    REQUIRE(gw_memory_sub(inner, (int64_t[]){0, 0}, (int64_t[]){2, 1}, &m) == GW_ERANGE);
    gw_memory_close(inner);
}
IN_PROCESSES(views_show_rows_and_columns)

static void fill_and_copy_reach_every_row_kind(gw_comm *comm, gw_memory_kind kind)
{
    gw_memory *a = open_memory(comm, kind, GW_F32, ROWS, COLUMNS), *b = NULL;
    int64_t shape[] = {ROWS, COLUMNS}, strides[] = {COLUMNS + 3, 1}, parts[8] = {0}, all[ROWS];
    int16_t out[ROWS * COLUMNS];
    double half = 2.5;

    parts[gw_comm_size(comm) - 1] = ROWS; /* all rows are the last rank's */
    gw_memory_options opt = {.size_bytes = sizeof opt,
                             .kind = GW_DISTRIBUTED,
                             .dtype = GW_I16,
                             .n_dims = 2,
                             .shape = shape,
                             .strides = strides,
                             .rows_per_rank = parts};
    REQUIRE(gw_memory_open(comm, &opt, &b) == 0);
    REQUIRE(gw_memory_fill(a, &half, GW_F64) == 0);
    REQUIRE(gw_memory_copy(b, a) == 0);
    REQUIRE(gw_memory_gather(b, all_rows(all, ROWS), out, GW_I16) == 0);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        REQUIRE(out[i] == 2);
    gw_memory_close(b);
    gw_memory_close(a);
}
IN_PROCESSES(fill_and_copy_reach_every_row)

static void files_hold_what_the_memory_held_kind(gw_comm *comm, gw_memory_kind kind)
{
    gw_memory *a = open_memory(comm, kind, GW_F32, ROWS, COLUMNS);
    gw_memory *b = open_memory(comm, kind, GW_F32, ROWS, COLUMNS);
    static const char *const endings[] = {"raw", "npy"};
    int size = gw_comm_size(comm), rank = gw_comm_rank(comm);
    float one[ROWS * COLUMNS], two[ROWS * COLUMNS];
    char path[200], parts[8][260];
    const char *paths[8];
    int64_t all[ROWS];

    write_own(a, rank);
    for (int e = 0; e < 2; e++) {
        int32_t id = getpid();
        REQUIRE(gw_comm_bcast(comm, &id, 1, GW_I32, 0) == 0);
        snprintf(path, sizeof path, "/tmp/godwit-memory-%d.%s", (int)id, endings[e]);
        REQUIRE(gw_memory_store(a, path, GW_FILE_BY_NAME) == 0);
        REQUIRE(gw_memory_store_parts(a, path, GW_FILE_BY_NAME) == 0);
        for (int r = 0; r < size; r++) {
            REQUIRE(gw_memory_part_path(path, r, size, parts[r], sizeof parts[r]) == 0);
            paths[r] = parts[r];
        }
        for (int whole = 0; whole < 2; whole++) {
            float zero = 0;
            REQUIRE(gw_memory_fill(b, &zero, GW_F32) == 0);
            const char *single = path;
            REQUIRE(gw_memory_load(b, whole ? &single : paths, whole ? 1 : size, GW_FILE_BY_NAME) ==
                    0);
            REQUIRE(gw_memory_gather(a, all_rows(all, ROWS), one, GW_F32) == 0);
            REQUIRE(gw_memory_gather(b, all_rows(all, ROWS), two, GW_F32) == 0);
            REQUIRE(memcmp(one, two, sizeof one) == 0);
        }
        gw_file_info info = {.size_bytes = sizeof info};
        REQUIRE(gw_file_look(path, GW_FILE_BY_NAME, &info) == 0);
        REQUIRE(info.n_bytes == sizeof one && (e == 0 || info.shape[0] == ROWS));
        /* too short: refused by name, and b stays as it is */
        REQUIRE(gw_comm_barrier(comm) == 0);
        if (rank == 0)
            REQUIRE(truncate(path, ROWS * COLUMNS * 4 - 20) == 0);
        REQUIRE(gw_comm_barrier(comm) == 0);
        const char *single = path, *missing = "/tmp/godwit-there-is-no-such-file";
        REQUIRE(gw_memory_load(b, &single, 1, GW_FILE_BY_NAME) == GW_EINVAL);
        REQUIRE(strstr(gw_last_error(), path) != NULL);
        REQUIRE(gw_memory_load(b, &missing, 1, GW_FILE_BY_NAME) == GW_ESYS);
        REQUIRE(strstr(gw_last_error(), missing) != NULL);
        REQUIRE(gw_memory_gather(b, all_rows(all, ROWS), two, GW_F32) == 0);
        REQUIRE(memcmp(one, two, sizeof one) == 0);
        REQUIRE(gw_memory_store(a, "/tmp/no-such-directory/x", GW_FILE_RAW) < 0);
        unlink(parts[rank]);
        REQUIRE(gw_comm_barrier(comm) == 0);
        if (rank == 0)
            unlink(path);
    }
    gw_memory_close(a);
    gw_memory_close(b);
}
IN_PROCESSES(files_hold_what_the_memory_held)

/* ranks that disagree */

static void disagreements_main(const struct processes *all, int rank)
{
    gw_world *world = NULL;
    gw_comm *comm = join_processes(all, rank, &world);
    int64_t shape[] = {10, rank == 1 ? 3 : 2}, parts[] = {5, 4};
    gw_memory_options opt = {.size_bytes = sizeof opt,
                             .kind = GW_DISTRIBUTED,
                             .dtype = GW_F32,
                             .n_dims = 2,
                             .shape = shape};
    gw_memory *m = NULL;
    float values[2] = {0};
    int64_t row = 0;

    REQUIRE(gw_memory_open(comm, &opt, &m) == GW_EDISAGREE && m == NULL);
    REQUIRE(strstr(gw_last_error(), "shape is not the same") != NULL);
    shape[1] = 2;
    opt.rows_per_rank = rank == 0 ? parts : NULL;
    REQUIRE(gw_memory_open(comm, &opt, &m) == (rank == 0 ? GW_EINVAL : GW_EDISAGREE));
    opt.rows_per_rank = NULL;
    opt.kind = GW_CONTINUOUS;
    REQUIRE(gw_memory_open(comm, &opt, &m) == GW_EUNSUP);
    REQUIRE(strstr(gw_last_error(), "distributed") != NULL);
    opt.kind = GW_DISTRIBUTED;
    REQUIRE(gw_memory_open(comm, &opt, &m) == 0);
    gw_indices one = {&row, 1, GW_I64};
    int err = rank == 0 ? gw_memory_gather(m, one, values, GW_F32)
                        : gw_memory_scatter(m, one, values, GW_F32);
    REQUIRE(err == GW_EDISAGREE && strstr(gw_last_error(), "scatter") != NULL);
    REQUIRE(gw_memory_gather(m, one, values, GW_F32) == 0); /* it goes on */
    gw_memory_close(m);
    gw_world_close(world);
}

static void ranks_that_disagree_are_told_so(void **state)
{
    (void)state;
    node_size = 1;
    run_processes(2, disagreements_main);
}

/* threads, and a rank that dies with a latch */

static void *add_ones(void *arg)
{
    int32_t rows[64];
    float ones[64 * 2];

    for (int i = 0; i < 64; i++) {
        rows[i] = i % 3;
        ones[2 * i] = ones[2 * i + 1] = 1;
    }
    for (int turn = 0; turn < 200; turn++)
        if (gw_memory_scatter_add(arg, (gw_indices){rows, 64, GW_I32}, ones, GW_F32) < 0)
            return arg;
    return NULL;
}

static void threads_lose_no_addition(void **state)
{
    (void)state;
    gw_world_options opt = GW_WORLD_OPTIONS_INIT;
    gw_world *world;
    gw_comm *comm;
    pthread_t threads[4];
    void *failed;
    float out[6];
    int64_t all[3];

    opt.size = 1;
    assert_int_equal(gw_world_join(&opt, &world), 0);
    assert_int_equal(gw_comm_world(world, &comm), 0);
    gw_memory *m = open_memory(comm, GW_CONTINUOUS, GW_F32, 3, 2);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, add_ones, m);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(gw_memory_gather(m, all_rows(all, 3), out, GW_F32), 0);
    assert_true(out[0] == 22 * 800 && out[2] == 21 * 800 && out[4] == 21 * 800);
    gw_memory_close(m);
    gw_world_close(world);
}

static void dying_main(const struct processes *all, int rank)
{
    gw_world *world = NULL;
    gw_comm *comm = join_processes(all, rank, &world);
    gw_memory *m = open_memory(comm, GW_CONTINUOUS, GW_F32, 100, 2);
    int64_t row = 5;
    float ones[2] = {1, 1};

    if (rank == 1)
        REQUIRE(gwi_row_latch_take(m->whole, &m->whole->latches[0][5]) == 0);
    REQUIRE(gw_comm_barrier(comm) == 0);
    if (rank == 1)
        raise(SIGKILL);
    REQUIRE(gw_memory_scatter_add(m, (gw_indices){&row, 1, GW_I64}, ones, GW_F32) == GW_EPEER);
    REQUIRE(strstr(gw_last_error(), "rank 1") != NULL);
    _exit(0);
}

static void a_latch_of_a_dead_rank_is_an_error_that_names_it(void **state)
{
    (void)state;
    node_size = 0;
    expect_death(2, dying_main, 1);
}

/* Rank 1 has died, and rank 0 has a latch for longer than rank 2 waits before it looks for deaths.
 */
static void waiting_main(const struct processes *all, int rank)
{
    gw_world *world = NULL;
    gw_comm *comm = join_processes(all, rank, &world);
    gw_memory *m = open_memory(comm, GW_CONTINUOUS, GW_F32, 100, 2);
    gwi_row_latch *latch = &m->whole->latches[0][5];
    int64_t row = 5;
    float ones[2] = {1, 1};

    if (rank == 0)
        REQUIRE(gwi_row_latch_take(m->whole, latch) == 0);
    REQUIRE(gw_comm_barrier(comm) == 0);
    if (rank == 1)
        raise(SIGKILL);
    while (world->fabric->ops->check(world->fabric) == 0)
        usleep(1000);
    if (rank == 0) {
        await(all, 0, 1);
        sleep(1);
        gwi_row_latch_give(latch);
    } else {
        reach(all, 0);
        REQUIRE(gw_memory_scatter_add(m, (gw_indices){&row, 1, GW_I64}, ones, GW_F32) == 0);
    }
    gather(all, 1, 2);
    _exit(0);
}

static void a_latch_of_a_living_rank_is_waited_for_though_another_one_died(void **state)
{
    (void)state;
    node_size = 0;
    expect_death(3, waiting_main, 1);
}

static void forks_main(const struct processes *all, int rank)
{
    gw_world *world = NULL;
    gw_comm *comm = join_processes(all, rank, &world);
    gw_memory *m = open_memory(comm, GW_CHUNKED, GW_F32, ROWS, COLUMNS);
    int64_t rows[] = {0, ROWS - 1};
    float out[2 * COLUMNS];
    int status = -1;

    write_own(m, rank);
    REQUIRE(gw_comm_barrier(comm) == 0);
    pid_t child = fork();
    if (child == 0) {
        REQUIRE(gw_memory_gather(m, (gw_indices){rows, 2, GW_I64}, out, GW_F32) == 0);
        REQUIRE(out[COLUMNS] == value_of(ROWS - 1, 0));
        REQUIRE(gw_memory_fill(m, out, GW_F32) == GW_ESTATE);
        gw_memory_close(m);
        _exit(0);
    }
    waitpid(child, &status, 0);
    REQUIRE(status == 0);
    REQUIRE(gw_memory_gather(m, (gw_indices){rows, 2, GW_I64}, out, GW_F32) == 0);
    gw_memory_close(m);
    gw_world_close(world);
}

static void a_forked_child_can_read(void **state)
{
    (void)state;
    node_size = 0;
    run_processes(2, forks_main);
}

GWI_TESTS(cmocka_unit_test(every_rank_reads_what_others_wrote),
          cmocka_unit_test(additions_of_all_ranks_and_duplicates_count),
          cmocka_unit_test(a_bad_index_is_refused_and_nothing_changes),
          cmocka_unit_test(views_show_rows_and_columns),
          cmocka_unit_test(fill_and_copy_reach_every_row),
          cmocka_unit_test(files_hold_what_the_memory_held),
          cmocka_unit_test(ranks_that_disagree_are_told_so),
          cmocka_unit_test(threads_lose_no_addition),
          cmocka_unit_test(a_latch_of_a_dead_rank_is_an_error_that_names_it),
          cmocka_unit_test(a_latch_of_a_living_rank_is_waited_for_though_another_one_died),
          cmocka_unit_test(a_forked_child_can_read))
