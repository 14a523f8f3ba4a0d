/* scale.c - what an access costs as the number of nodes grows.
 *
 *     scale [--nodes 8,64,256,1024] [--keys 65536] [--batch 32] [--clocks 40] [--technique all]
 *           [--csv FILE] [--notes]
 *
 * Every node has one worker that draws keys by Zipf's law with exponent 1 from the same keys,
 * announces each batch before it uses it, pulls it and pushes it.  Prints a table, and writes a
 * file for the picture in docs/scale.md (plot_scale.py).  The exit code is 1 if a cost per
 * access grows faster than the logarithm of the number of nodes.                        */
#include "workload.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SIZES = 16 };

static struct {
    int sizes[MAX_SIZES], n_sizes;
    struct study study;
    const char *csv;
    int notes;
} args = {.sizes = {8, 64, 256, 1024},
          .n_sizes = 4,
          .study = {.workload = ZIPF,
                    .seed = 1,
                    .workers = 1,
                    .n_keys = 65536,
                    .length = 64,
                    .hot_keys = 1,
                    .batch = 32,
                    .lead = 20,
                    .clock_ns = 1000000,
                    .warm_up = 20,
                    .clocks = 40}};

/* What is measured, from the findings `f`, its stats `s`, its memory `m` and the study `t`; and
 * whether it may not grow faster than the logarithm of the number of nodes. */
#define PER_ACCESS(what) ((double)(what) / (double)s->accesses)
#define PER_ROUND(what) ((double)(what) / (double)s->rounds)
#define PER_NODE(what) ((double)(what) / (double)t->nodes)
#define KIB(what) ((double)(what) / 1024)
#define FIGURES(X)                                                                       \
    X(bytes, 1, "bytes per access", PER_ACCESS(s->bytes))                                \
    X(notes, 1, "notes per access", PER_ACCESS(n_notes(s)))                              \
    X(messages, 1, "messages per access", PER_ACCESS(s->messages))                       \
    X(hops, 1, "hops per request", (double)s->hops / (double)s->requests)                \
    X(local, 0, "local share of accesses, %", 100 * PER_ACCESS(s->local))                \
    X(fetched, 1, "keys fetched per access", PER_ACCESS(s->moves + s->grants))           \
    X(moves, 0, "- moved", PER_ACCESS(s->moves))                                         \
    X(grants, 0, "- copied", PER_ACCESS(s->grants))                                      \
    X(round_access, 1, "keys looked at in rounds per access", PER_ACCESS(s->round_keys)) \
    X(round_keys, 1, "keys looked at in a round", PER_ROUND(s->round_keys))              \
    X(changes, 0, "- changes sent in it", PER_ROUND(s->tells + s->refreshes))            \
    X(replicas, 0, "- replicas that there are", PER_NODE(s->replicas))                   \
    X(memory, 1, "memory of a node, KiB",                                                \
      KIB(m->words + m->rows + m->directory + m->cache + m->items + m->post))            \
    X(words, 0, "- words", KIB(m->words))                                                \
    X(rows, 0, "- vectors", KIB(m->rows))                                                \
    X(directory, 0, "- directory", KIB(m->directory))                                    \
    X(cache, 0, "- location cache", KIB(m->cache))                                       \
    X(items, 0, "- items", KIB(m->items))                                                \
    X(post, 0, "- messages", KIB(m->post))                                               \
    X(busiest, 0, "busiest node's bytes over the mean", f->busiest)                      \
    X(resident, 0, "the whole simulation, MiB", f->resident_bytes / 1048576)             \
    X(wall, 0, "simulated in, s", f->wall_seconds)

enum figure {
#define ID(id, is_bounded, name, value) FIGURE_##id,
    FIGURES(ID)
#undef ID
        N_FIGURES
};

static const char *const names[] = {
#define NAME(id, is_bounded, name, value) name,
    FIGURES(NAME)
#undef NAME
};
static const char *const ids[] = {
#define NAME(id, is_bounded, name, value) #id,
    FIGURES(NAME)
#undef NAME
};
static const int bounded[] = {
#define BOUNDED(id, is_bounded, name, value) is_bounded,
    FIGURES(BOUNDED)
#undef BOUNDED
};

static uint64_t n_notes(const gwi_node_stats *s)
{
    uint64_t sum = 0;

    for (int k = 0; k < GWI_N_NOTES; k++)
        sum += s->notes[k];
    return sum;
}

static void figure_out(const struct study *t, const struct findings *f, double *ret_figures)
{
    const gwi_node_stats *s = &f->stats;
    const gwi_node_memory *m = &f->memory;
    const double values[] = {
#define VALUE(id, is_bounded, name, value) value,
        FIGURES(VALUE)
#undef VALUE
    };

    memcpy(ret_figures, values, sizeof values);
}

static void print_table(double figures[MAX_SIZES][N_FIGURES])
{
    printf("\n%-40s", "nodes");
    for (int i = 0; i < args.n_sizes; i++)
        printf(" %10d", args.sizes[i]);
    printf("\n");
    for (int k = 0; k < N_FIGURES; k++) {
        printf("%-40s", names[k]);
        for (int i = 0; i < args.n_sizes; i++)
            printf(" %10.4g", figures[i][k]);
        printf("\n");
    }
}

/* From the first size to the last, by more than the logarithms of the sizes do. */
static int grows_too_fast(double figures[MAX_SIZES][N_FIGURES], int k)
{
    int last = args.n_sizes - 1;

    return bounded[k] && last > 0 &&
           figures[last][k] / figures[0][k] >
               log((double)args.sizes[last]) / log((double)args.sizes[0]);
}

static int write_csv(double figures[MAX_SIZES][N_FIGURES])
{
    FILE *file = fopen(args.csv, "w");

    if (file == NULL) {
        perror(args.csv);
        return 1;
    }
    fprintf(file, "nodes");
    for (int k = 0; k < N_FIGURES; k++)
        fprintf(file, ",%s", ids[k]);
    for (int i = 0; i < args.n_sizes; i++) {
        fprintf(file, "\n%d", args.sizes[i]);
        for (int k = 0; k < N_FIGURES; k++)
            fprintf(file, ",%.6g", figures[i][k]);
    }
    fprintf(file, "\n");
    return fclose(file) != 0;
}

static void read_sizes(char *text)
{
    args.n_sizes = 0;
    for (char *one = strtok(text, ","); one != NULL && args.n_sizes < MAX_SIZES;
         one = strtok(NULL, ","))
        args.sizes[args.n_sizes++] = atoi(one);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"nodes", 1, NULL, 'n'},     {"keys", 1, NULL, 'k'},
                                            {"clocks", 1, NULL, 'c'},    {"csv", 1, NULL, 'C'},
                                            {"batch", 1, NULL, 'b'},     {"notes", 0, NULL, 'N'},
                                            {"technique", 1, NULL, 't'}, {0}};
    static double figures[MAX_SIZES][N_FIGURES];
    int bad = 0;

    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
        switch (c) {
        case 'n':
            read_sizes(optarg);
            break;
        case 'k':
            args.study.n_keys = atoll(optarg);
            break;
        case 'c':
            args.study.clocks = atoi(optarg);
            break;
        case 'C':
            args.csv = optarg;
            break;
        case 'b':
            args.study.batch = atoi(optarg);
            break;
        case 'N':
            args.notes = 1;
            break;
        case 't':
            for (int t = 0; t < GWI_N_TECHNIQUES; t++)
                if (strcmp(optarg, technique_name((gwi_technique)t)) == 0)
                    args.study.technique = (gwi_technique)t;
            break;
        default:
            return 2;
        }
    for (int i = 0; i < args.n_sizes; i++) {
        struct findings f;
        args.study.nodes = args.sizes[i];
        if (run_study(&args.study, &f) < 0) {
            fprintf(stderr, "%s\n", gw_last_error());
            return 1;
        }
        figure_out(&args.study, &f, figures[i]);
        printf("%d nodes: %.1f s\n", args.sizes[i], f.wall_seconds);
        for (int k = 0; k < GWI_N_NOTES && args.notes; k++)
            if (f.stats.notes[k] > 0)
                printf("    %-9s %9.4f notes %9.1f bytes per access\n", gwi_note_name(k),
                       (double)f.stats.notes[k] / (double)f.stats.accesses,
                       (double)f.stats.note_bytes[k] / (double)f.stats.accesses);
        fflush(stdout);
    }
    print_table(figures);
    for (int k = 0; k < N_FIGURES; k++)
        if (grows_too_fast(figures, k)) {
            printf("grows faster than the logarithm of the number of nodes: %s\n", names[k]);
            bad = 1;
        }
    if (args.csv != NULL)
        bad |= write_csv(figures);
    return bad;
}
