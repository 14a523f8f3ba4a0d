/* adaptivity.c - does the protocol choose well?  Techniques against workloads.
 *
 *     adaptivity [--quick] [--seed 1] [--nodes 8] [--length 64] [--lead 20] [--notes]
 *                [--workload own|hot|wandering]
 *
 * On each workload the default technique, which chooses between moving a key and copying it, must
 * send at most 10 % more bytes per access than the better of the two that always do the same, and
 * over 99 % of the accesses, all of which are announced, must be local.  The exit code is 1 if it
 * misses that.  --notes shows what the bytes were.                                     */
#include "workload.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES 1.10 /* of the better technique's */
#define LEAST_LOCAL 0.99

static struct {
    int quick, notes, nodes, workload, lead, length;
    uint64_t seed;
} args = {.nodes = 8, .workload = -1, .lead = 20, .length = 64, .seed = 1};

static double per_access(const struct findings *f, uint64_t count)
{
    return (double)count / (double)f->stats.accesses;
}

static void print_line(enum workload workload, gwi_technique technique, const struct findings *f)
{
    const gwi_node_stats *s = &f->stats;

    printf("%-10s %-12s %9.1f %9.3f %9.3f %8.2f%% %9.4f %9.4f %9.2f\n", workload_name(workload),
           technique_name(technique), per_access(f, s->bytes), per_access(f, s->messages),
           (double)s->hops / (double)(s->requests > 0 ? s->requests : 1),
           100 * per_access(f, s->local), per_access(f, s->moves), per_access(f, s->grants),
           f->key_clocks / (double)s->accesses);
    for (int k = 0; k < GWI_N_NOTES && args.notes; k++)
        if (s->notes[k] > 0)
            printf("    %-9s %9.4f notes %9.1f bytes per access\n", gwi_note_name(k),
                   per_access(f, s->notes[k]), per_access(f, s->note_bytes[k]));
    fflush(stdout);
}

static int study(enum workload workload)
{
    struct findings f[GWI_N_TECHNIQUES];
    struct study s = {.workload = workload,
                      .seed = args.seed,
                      .nodes = args.nodes,
                      .workers = 1,
                      .n_keys = 8192,
                      .length = args.length,
                      .hot_keys = 128,
                      .batch = 32,
                      .lead = args.lead,
                      .clock_ns = 1000000,
                      .warm_up = args.quick ? 20 : 50,
                      .clocks = args.quick ? 40 : 200};

    for (int t = 0; t < GWI_N_TECHNIQUES; t++) {
        s.technique = (gwi_technique)t;
        if (run_study(&s, &f[t]) < 0) {
            fprintf(stderr, "%s\n", gw_last_error());
            return -1;
        }
        print_line(workload, s.technique, &f[t]);
    }
    double ours = per_access(&f[GWI_TECHNIQUE_ALL], f[GWI_TECHNIQUE_ALL].stats.bytes);
    double copies = per_access(&f[GWI_TECHNIQUE_REPLICATION],
                               f[GWI_TECHNIQUE_REPLICATION].stats.bytes);
    double moves = per_access(&f[GWI_TECHNIQUE_RELOCATION],
                              f[GWI_TECHNIQUE_RELOCATION].stats.bytes);
    double better = copies < moves ? copies : moves;
    double local = per_access(&f[GWI_TECHNIQUE_ALL], f[GWI_TECHNIQUE_ALL].stats.local);
    int good = ours <= MOST_BYTES * better && local > LEAST_LOCAL;
    printf("%s: %s sends %.2f times the bytes of the better technique, %.2f %% local: %s\n\n",
           workload_name(workload), technique_name(GWI_TECHNIQUE_ALL),
           better > 0 ? ours / better
           : ours > 0 ? 99
                      : 1,
           100 * local, good ? "good" : "MISSED");
    return !good;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"quick", 0, NULL, 'q'},  {"notes", 0, NULL, 'n'},
                                            {"nodes", 1, NULL, 'N'},  {"lead", 1, NULL, 'l'},
                                            {"length", 1, NULL, 'L'}, {"workload", 1, NULL, 'w'},
                                            {"seed", 1, NULL, 's'},   {0}};
    int missed = 0;

    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
        switch (c) {
        case 'q':
            args.quick = 1;
            break;
        case 'n':
            args.notes = 1;
            break;
        case 'N':
            args.nodes = atoi(optarg);
            break;
        case 'l':
            args.lead = atoi(optarg);
            break;
        case 'L':
            args.length = atoi(optarg);
            break;
        case 's':
            args.seed = strtoull(optarg, NULL, 10);
            break;
        case 'w':
            for (int w = 0; w < N_WORKLOADS; w++)
                if (strcmp(optarg, workload_name((enum workload)w)) == 0)
                    args.workload = w;
            break;
        default:
            return 2;
        }
    printf("per access: %21s %9s %9s %9s %9s %9s %9s\n", "bytes", "messages", "hops", "local",
           "moves", "replicas", "held");
    for (int w = OWN; w <= WANDERING; w++)
        if (args.workload < 0 || args.workload == w)
            missed |= study((enum workload)w);
    return missed != 0;
}
