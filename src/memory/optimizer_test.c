/* optimizer_test.c - steps against the formulas by hand, with duplicates on several ranks. */
#include "memory/memory_test.h"

#include <math.h>

#define ROWS 11
#define COLUMNS 3
#define STEPS 20

/* What one process would have. */
struct model {
    double p[ROWS][COLUMNS], a[ROWS][COLUMNS], b[ROWS][COLUMNS];
    int64_t count[ROWS];
};

static void step_by_hand(struct model *m, const gw_optimizer *o, int r, const double *gradient)
{
    int64_t t = ++m->count[r];

    for (int c = 0; c < COLUMNS; c++) {
        double g = gradient[c] + o->weight_decay * m->p[r][c], *a = &m->a[r][c], *b = &m->b[r][c];
        switch (o->kind) {
        case GW_SGD:
            m->p[r][c] -= o->lr * g;
            break;
        case GW_ADAGRAD:
            *a += g * g;
            m->p[r][c] -= o->lr / (1 + (double)(t - 1) * o->lr_decay) * g / (sqrt(*a) + o->eps);
            break;
        case GW_RMSPROP:
            *a = o->alpha * *a + (1 - o->alpha) * g * g;
            m->p[r][c] -= o->lr * g / (sqrt(*a) + o->eps);
            break;
        default:
            *a = o->beta1 * *a + (1 - o->beta1) * g;
            *b = o->beta2 * *b + (1 - o->beta2) * g * g;
            m->p[r][c] -= o->lr * (*a / (1 - pow(o->beta1, (double)t))) /
                          (sqrt(*b / (1 - pow(o->beta2, (double)t))) + o->eps);
        }
    }
}

/* The gradients of all ranks in a step: of rank r, n of them, with duplicates. */
static int draw(gwi_random *random, int64_t *rows, double gradients[][COLUMNS])
{
    int n = (int)gwi_random_below(random, 9);

    for (int i = 0; i < n; i++) {
        rows[i] = (int64_t)gwi_random_below(random, ROWS);
        for (int c = 0; c < COLUMNS; c++)
            gradients[i][c] = gwi_random_double(random) - 0.5;
    }
    return n;
}

static void check_kind(gw_comm *comm, gw_memory_kind kind, gw_dtype dtype, gw_optimizer o)
{
    gw_memory *rows = open_memory(comm, kind, dtype, ROWS, COLUMNS);
    double tolerance = dtype == GW_F64 ? 1e-12 : 1e-5, out[ROWS][COLUMNS];
    int64_t all[ROWS], mine[8], theirs[8];
    double gradients[8][COLUMNS], sums[ROWS][COLUMNS];
    struct model model = {0};
    gwi_random random;

    gwi_random_init(&random, 7, 0);
    o.states[0] = open_memory(comm, kind, dtype, ROWS, COLUMNS);
    o.states[1] = open_memory(comm, kind, dtype, ROWS, COLUMNS);
    o.counts = open_memory(comm, kind, GW_I64, ROWS, 0);
    for (int step = 0; step < STEPS; step++) {
        int touched[ROWS] = {0}, n_mine = 0;
        double mine_values[8][COLUMNS];
        float narrow[8][COLUMNS];
        memset(sums, 0, sizeof sums);
        for (int r = 0; r < gw_comm_size(comm); r++) {
            int n = draw(&random, theirs, gradients);
            for (int i = 0; i < n; i++) {
                touched[theirs[i]] = 1;
                for (int c = 0; c < COLUMNS; c++)
                    sums[theirs[i]][c] += gradients[i][c];
            }
            if (r == gw_comm_rank(comm)) {
                n_mine = n;
                memcpy(mine, theirs, sizeof mine);
                memcpy(mine_values, gradients, sizeof gradients);
            }
        }
        for (int i = 0; i < n_mine; i++)
            for (int c = 0; c < COLUMNS; c++)
                narrow[i][c] = (float)mine_values[i][c];
        for (int r = 0; r < ROWS; r++)
            if (touched[r])
                step_by_hand(&model, &o, r, sums[r]);
        const void *values = dtype == GW_F64 ? (const void *)mine_values : (const void *)narrow;
        REQUIRE(gw_memory_step(rows, &o, (gw_indices){mine, (size_t)n_mine, GW_I64}, values) == 0);
    }
    REQUIRE(gw_memory_gather(rows, all_rows(all, ROWS), out, GW_F64) == 0);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++)
            REQUIRE(fabs(out[r][c] - model.p[r][c]) < tolerance);
    gw_memory_close(rows);
    gw_memory_close(o.states[0]);
    gw_memory_close(o.states[1]);
    gw_memory_close(o.counts);
}

static void steps_main(const struct processes *all, int rank)
{
    static const gw_dtype dtypes[] = {GW_F32, GW_F64};
    gw_world *world = NULL;
    gw_comm *comm = join_processes(all, rank, &world);
    int many = node_size > 0 && node_size < all->n;

    for (int kind = GW_SGD; kind < GW_N_OPTIMIZERS; kind++)
        for (int d = 0; d < 2; d++)
            check_kind(comm, many ? GW_DISTRIBUTED : GW_CONTINUOUS, dtypes[d],
                       (gw_optimizer){.size_bytes = sizeof(gw_optimizer),
                                      .kind = (gw_optimizer_kind)kind,
                                      .lr = 0.05,
                                      .weight_decay = 0.01,
                                      .eps = 1e-8,
                                      .lr_decay = 0.1,
                                      .alpha = 0.9,
                                      .beta1 = 0.9,
                                      .beta2 = 0.99});
    gw_world_close(world);
}

static void rows_step_once_with_the_sum_of_all_gradients(void **state)
{
    (void)state;
    static const int cases[][2] = {{1, 0}, {3, 0}, {4, 2}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        node_size = cases[i][1];
        run_processes(cases[i][0], steps_main);
    }
}

static void refusals_main(const struct processes *all, int rank)
{
    gw_world *world = NULL;
    gw_comm *comm = join_processes(all, rank, &world);
    gw_memory *rows = open_memory(comm, GW_CONTINUOUS, GW_F32, ROWS, COLUMNS);
    gw_memory *halves = open_memory(comm, GW_CONTINUOUS, GW_F16, ROWS, COLUMNS);
    gw_optimizer o = {.size_bytes = sizeof o, .kind = GW_SGD, .lr = 1};
    int64_t row = rank == 1 ? ROWS : 0, all_of_them[ROWS];
    float ones[COLUMNS] = {1, 1, 1}, out[ROWS][COLUMNS];

    REQUIRE(gw_memory_step(rows, &o, (gw_indices){&row, 1, GW_I64}, ones) ==
            (rank == 1 ? GW_ERANGE : GW_EDISAGREE));
    row = 0;
    REQUIRE(gw_memory_step(halves, &o, (gw_indices){&row, 1, GW_I64}, ones) == GW_ETYPE);
    o.kind = GW_ADAGRAD;
    REQUIRE(gw_memory_step(rows, &o, (gw_indices){&row, 1, GW_I64}, ones) == GW_EINVAL);
    REQUIRE(strstr(gw_last_error(), "states[0] is NULL") != NULL);
    o.kind = GW_SGD;
    o.lr = -1;
    REQUIRE(gw_memory_step(rows, &o, (gw_indices){&row, 1, GW_I64}, ones) == GW_EINVAL);
    REQUIRE(gw_memory_gather(rows, all_rows(all_of_them, ROWS), out, GW_F32) == 0);
    for (int r = 0; r < ROWS; r++)
        REQUIRE(out[r][0] == 0);
    gw_memory_close(rows);
    gw_memory_close(halves);
    gw_world_close(world);
}

static void a_step_that_is_refused_to_one_changes_nothing(void **state)
{
    (void)state;
    node_size = 0;
    run_processes(2, refusals_main);
}

GWI_TESTS(cmocka_unit_test(rows_step_once_with_the_sum_of_all_gradients),
          cmocka_unit_test(a_step_that_is_refused_to_one_changes_nothing))
