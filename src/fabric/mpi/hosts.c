/* hosts.c - grouping ranks by machine. */
#include "fabric/mpi/hosts.h"
#include "base/hash.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void read_line(const char *path, char *text, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, room - 1) : 0;

    text[n > 0 ? n : 0] = '\0';
    if (fd >= 0)
        close(fd);
}

static void read_link(const char *path, char *text, size_t room)
{
    ssize_t n = readlink(path, text, room - 1);

    text[n > 0 ? n : 0] = '\0';
}

gwi_host_id gwi_host_id_get(void)
{
    char boot[64], pids[64], net[64], name[256] = "", all[512];

    /* Containers of one machine that cannot see each other's processes, or cannot
     * meet over a socket, are hosts of their own. */
    read_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    read_link("/proc/self/ns/pid", pids, sizeof pids);
    read_link("/proc/self/ns/net", net, sizeof net);
    gethostname(name, sizeof name - 1);
    int n = snprintf(all, sizeof all, "%s %s %s %s %u", boot, name, pids, net, (unsigned)geteuid());
    return (gwi_host_id){{gwi_hash_bytes(all, (size_t)n, 1), gwi_hash_bytes(all, (size_t)n, 2)}};
}

/* Number the hosts, and the ranks inside them. */
static int number(gwi_hosts *h, const gwi_host_id *ids)
{
    int *count = calloc((size_t)h->size, sizeof *count),
        *first = calloc((size_t)h->size, sizeof *first);

    if (count != NULL && first != NULL)
        for (int rank = 0; rank < h->size; rank++) {
            int host = 0;
            while (host < h->n && memcmp(&ids[first[host]], &ids[rank], sizeof *ids) != 0)
                host++;
            if (host == h->n)
                first[h->n++] = rank;
            h->host[rank] = host;
            h->index[rank] = count[host]++;
        }
    int ok = count != NULL && first != NULL;
    free(count);
    free(first);
    return ok;
}

/* The places, once all hosts are known. */
static void give_places(gwi_hosts *h, int node_size)
{
    int first_node = 0;

    for (int host = 0; host < h->n; host++) {
        int n = 0;
        for (int rank = 0; rank < h->size; rank++)
            n += h->host[rank] == host;
        for (int rank = 0; rank < h->size; rank++)
            if (h->host[rank] == host) {
                h->places[rank] = gwi_place_of(h->index[rank], n, node_size);
                h->places[rank].node += first_node;
            }
        first_node += gwi_place_of(0, n, node_size).nodes;
    }
    for (int rank = 0; rank < h->size; rank++) {
        h->places[rank].rank = rank;
        h->places[rank].size = h->size;
        h->places[rank].nodes = first_node;
    }
}

int gwi_hosts_init(gwi_hosts *h, const gwi_host_id *ids, int size, int rank, int node_size)
{
    *h = (gwi_hosts){.size = size};
    h->host = calloc((size_t)size, sizeof *h->host);
    h->index = calloc((size_t)size, sizeof *h->index);
    h->here = calloc((size_t)size, sizeof *h->here);
    h->places = calloc((size_t)size, sizeof *h->places);
    if (h->host == NULL || h->index == NULL || h->here == NULL || h->places == NULL ||
        !number(h, ids)) {
        gwi_hosts_fini(h);
        return gwi_fail(GW_ENOMEM, "joining a job of %d processes", size);
    }
    for (int r = 0; r < size; r++)
        if (h->host[r] == h->host[rank])
            h->here[h->n_here++] = r;
    give_places(h, node_size);
    return 0;
}

void gwi_hosts_fini(gwi_hosts *h)
{
    free(h->host);
    free(h->index);
    free(h->here);
    free(h->places);
    *h = (gwi_hosts){0};
}
