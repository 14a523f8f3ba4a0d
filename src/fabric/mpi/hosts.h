/* hosts.h - which ranks of an MPI world share a machine, and which a node.
 *
 * Hosts are numbered by their lowest rank.  The ranks of a host, in their order,
 * are cut into nodes of node_size; nodes are numbered host by host.  Ranks of one
 * host need not follow each other (mpirun --map-by node).                     */
#ifndef GWI_FABRIC_MPI_HOSTS_H
#define GWI_FABRIC_MPI_HOSTS_H

#include "fabric/fabric.h"

#include <stdint.h>

/* Processes with the same id can share memory and see each other's ends. */
typedef struct gwi_host_id {
    uint64_t word[2];
} gwi_host_id;

/* Set at init, then constant. */
typedef struct gwi_hosts {
    int size;   /* ranks */
    int n;      /* hosts */
    int *host;  /* by rank */
    int *index; /* by rank: its number among the ranks of its host */
    int *here;  /* the ranks of our host, by index */
    int n_here;
    gwi_place *places; /* by rank */
} gwi_hosts;

/* This process's id. */
gwi_host_id gwi_host_id_get(void);

/* `ids` by rank. */
int gwi_hosts_init(gwi_hosts *hosts, const gwi_host_id *ids, int size, int rank, int node_size);
void gwi_hosts_fini(gwi_hosts *hosts);

#endif
