/* hello.c - writing and judging what is said while a job meets. */
#include "fabric/host/hello.h"
#include "base/error.h"
#include "fabric/host/process.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x676f647769740001)
#define OBITUARY_MAGIC UINT64_C(0x676f647769740002)

gwi_hello gwi_hello_of(const gwi_job *job, uint64_t layout)
{
    return (gwi_hello){
        MAGIC,
        layout,
        job->size,
        job->rank,
        job->node_size,
        (int32_t)getpid(),
        gwi_process_start(getpid()),
    };
}

gwi_obituary gwi_obituary_of(int rank, pid_t pid)
{
    return (gwi_obituary){OBITUARY_MAGIC, rank, (int32_t)pid};
}

int gwi_obituary_read(const gwi_hello *mine, const void *packet, size_t n_bytes,
                      gwi_obituary *ret_obituary)
{
    gwi_obituary o;

    if (n_bytes != sizeof o)
        return 0;
    memcpy(&o, packet, sizeof o);
    if (o.magic != OBITUARY_MAGIC || o.rank < 0 || o.rank >= mine->size)
        return 0;
    *ret_obituary = o;
    return 1;
}

int gwi_hello_read(const gwi_hello *mine, const void *packet, size_t n_bytes, pid_t sender,
                   gwi_hello *ret_hello, char why[GWI_HELLO_WHY_BYTES])
{
    const size_t room = GWI_HELLO_WHY_BYTES;
    gwi_hello h = {0};

    if (n_bytes == sizeof h)
        memcpy(&h, packet, sizeof h);
    if (h.magic != mine->magic || h.layout != mine->layout) {
        snprintf(why, room,
                 "it runs another version of Godwit than process %d, which gathers the job",
                 mine->pid);
        return 0;
    }
    *ret_hello = h;
    why[0] = '\0';
    if (h.pid != sender)
        snprintf(why, room,
                 "it lives in another PID namespace (container) than process %d; run the job "
                 "in one container",
                 mine->pid);
    else if (h.size != mine->size)
        snprintf(why, room, "it says that the job has %d processes, process %d says %d", h.size,
                 mine->pid, mine->size);
    else if (h.node_size != mine->node_size)
        snprintf(why, room, "it says that a node has %d processes, process %d says %d", h.node_size,
                 mine->pid, mine->node_size);
    else if (h.rank < -1 || h.rank >= mine->size)
        snprintf(why, room, "it says that it is rank %d; ranks go from 0 to %d", h.rank,
                 mine->size - 1);
    return why[0] == '\0';
}

static int broken(pid_t gatherer, const char *fault)
{
    return gwi_fail(
        GW_EBROKEN,
        "process %d, which gathers the job, gave an answer that makes no sense: %s; use one "
        "version of Godwit for all processes of a job",
        (int)gatherer, fault);
}

static int read_welcome(const gwi_hello *mine, const gwi_answer *a, int has_descriptor,
                        pid_t gatherer)
{
    if (a->rank < 0 || a->rank >= mine->size || (mine->rank >= 0 && a->rank != mine->rank))
        return broken(gatherer, "a rank that cannot be ours");
    return has_descriptor ? GWI_WELCOME : broken(gatherer, "a welcome without the shared file");
}

int gwi_answer_read(const gwi_hello *mine, const void *packet, size_t n_bytes, int has_descriptor,
                    pid_t gatherer, gwi_answer *ret_answer)
{
    gwi_answer a;

    if (n_bytes != sizeof a)
        return broken(gatherer, "its length");
    memcpy(&a, packet, sizeof a);
    a.text[sizeof a.text - 1] = '\0';

    int err = a.status;
    if (a.status == GWI_WELCOME)
        err = read_welcome(mine, &a, has_descriptor, gatherer);
    else if (a.status == GWI_NOTED && (a.rank < -1 || a.rank >= mine->size))
        err = broken(gatherer, "the rank that it says it has");
    else if (a.status != GWI_NOTED && (a.status >= 0 || gw_errname(a.status)[0] == '?'))
        err = broken(gatherer, "its status");
    else if (a.status < 0)
        err = gwi_fail(a.status, "%s", a.text[0] != '\0' ? a.text : gw_strerror(a.status));
    if (err > 0)
        *ret_answer = a;
    return err;
}
