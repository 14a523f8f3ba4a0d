/* workload.h - jobs that train, for studies of the protocol under the simulation.
 *
 * Every node has workers that go through batches: announce the keys of a batch some clocks
 * ahead; when its clock has come pull them, compute for a while, push them, advance the
 * clock.  All accesses are announced.  The nodes are the real ones (params/node.h), the fabric
 * is the simulation's.                                                               */
#ifndef GWI_TESTS_SIM_WORKLOAD_H
#define GWI_TESTS_SIM_WORKLOAD_H

#include "params/node.h"

#define WORKLOADS(X)                                                \
    X(ZIPF, "Zipf", "keys by Zipf's law, exponent 1, on all nodes") \
    X(OWN, "own", "each node its own keys")                         \
    X(HOT, "hot", "all nodes the same few keys")                    \
    X(WANDERING, "wandering", "all nodes the same few keys, others after a while")
#define WORKLOAD_ID(id, name, help) id,
enum workload { WORKLOADS(WORKLOAD_ID) N_WORKLOADS };
#undef WORKLOAD_ID

/* How long a worker computes, if `clock_ns` is the mean. */
#define PACES(X)                                                      \
    X(STEADY, "steady", "within 5 %")                                 \
    X(POISSON, "Poisson", "an exponential time")                      \
    X(BURSTY, "bursty", "20 batches ten times as fast, then a pause") \
    X(DRIFTING, "drifting", "from half the time to twice, and back")
#define PACE_ID(id, name, help) id,
enum pace { PACES(PACE_ID) N_PACES };
#undef PACE_ID

struct study {
    enum workload workload;
    enum pace pace;
    gwi_technique technique;
    uint64_t seed;
    int nodes, workers;
    int64_t n_keys, length; /* entries of a vector, of 4 bytes */
    int64_t hot_keys;       /* of HOT and WANDERING; of OWN, of each node */
    int batch;              /* keys */
    int lead;               /* clocks between announcing a batch and using it */
    int64_t clock_ns;       /* of a batch, mean */
    int warm_up, clocks;    /* batches of each worker: not counted, counted */
    gwi_node_ahead *ahead;  /* NULL: as the protocol does it */
};

/* Sums over all nodes of what happened after the warm-up. */
struct findings {
    gwi_node_stats stats;
    gwi_node_memory memory; /* at the end; mean of the nodes */
    double seconds;         /* of virtual time */
    double key_clocks;      /* how long replicas lay here, in clocks of a worker, in all */
    double busiest;         /* bytes sent by the busiest node, over the mean */
    double wall_seconds;
    double resident_bytes; /* of the whole simulation, at the end */
};

/* The node for which study.ahead() is called. */
int rank_of(const void *ahead_ctx);

/* Returns 0, or an error with its sentence. */
int run_study(const struct study *study, struct findings *ret_findings);

const char *workload_name(enum workload workload);
const char *workload_help(enum workload workload);
const char *pace_name(enum pace pace);
const char *pace_help(enum pace pace);
const char *technique_name(gwi_technique technique);

#endif
