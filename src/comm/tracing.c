/* tracing.c - who begins the file, who writes, who ends it. */
#include "comm/tracing.h"
#include "base/error.h"
#include "base/option.h"
#include "base/trace.h"
#include "base/trace_out.h"
#include "comm/world.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FORMAT 1
#define PER_NODE 10000 /* more than a node's processes: where things stand in a trace */

enum { NOT_YET, TRACING, NO_LONGER };

static const char *wanted(void)
{
    const char *path = NULL;

    gwi_option_text(GWI_OPTION_TRACE, &path);
    return path;
}

int gwi_tracing_check(void)
{
    const char *path = wanted(), *slash = path == NULL ? NULL : strrchr(path, '/');
    char dir[4096] = ".";
    struct stat st;

    if (path == NULL)
        return 0;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        errno = EISDIR;
    else if (access(path, W_OK) == 0)
        return 0;
    if (slash != NULL)
        snprintf(dir, sizeof dir, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    if (errno == ENOENT && access(dir, W_OK) == 0)
        return 0;
    return gwi_fail_errno("GODWIT_TRACE is '%s', which cannot be written", path);
}

static gwi_board *board_of(const gw_world *world, int rank)
{
    gwi_fabric *f = world->fabric;
    const gwi_entry *entry = f->ops->entry_of(f, rank);

    return entry == NULL ? NULL : (gwi_board *)(uintptr_t)&entry->board;
}

/* Of this machine. */
static int first_rank(const gw_world *world)
{
    int rank = 0;

    while (board_of(world, rank) == NULL)
        rank++;
    return rank;
}

static int is_writing(const gw_world *world, int rank)
{
    gwi_fabric *f = world->fabric;
    const gwi_board *board = board_of(world, rank);

    return board != NULL && f->ops->fate(f, rank) == GWI_HERE &&
           atomic_load_explicit(&board->tracing, memory_order_seq_cst) != NO_LONGER;
}

/* Of two that leave at once each may find itself the last: one of them ends the file. */
static int is_last(void *ctx)
{
    gw_world *world = ctx;
    gwi_fabric *f = world->fabric;
    uint32_t not_yet = 0;

    atomic_store_explicit(&f->entry->board.tracing, NO_LONGER, memory_order_seq_cst);
    f->ops->check(f); /* for deaths */
    for (int rank = 0; rank < f->place.size; rank++)
        if (rank != f->place.rank && is_writing(world, rank))
            return 0;
    return atomic_compare_exchange_strong(&board_of(world, first_rank(world))->trace_ended,
                                          &not_yet, 1);
}

/* What the first line says of the job. */
static void describe(const gw_world *world, gwi_trace_out *out)
{
    const gwi_place *place = &world->fabric->place;
    char host[256] = "";
    struct timespec now;

    gethostname(host, sizeof host - 1);
    clock_gettime(CLOCK_REALTIME, &now);
    gwi_trace_printf(out, "\"format\":%d,\"version\":\"%s\",\"job\":", FORMAT, gw_version());
    gwi_trace_text(out, world->job.name);
    gwi_trace_printf(out, ",\"ranks\":%d,\"nodes\":%d,\"fabric\":\"%s\",\"host\":", place->size,
                     place->nodes, world->fabric->ops->name);
    gwi_trace_text(out, host);
    gwi_trace_printf(out, ",\"unix_us\":");
    gwi_trace_us(out, (int64_t)now.tv_sec * GWI_SECOND + now.tv_nsec);
    gwi_trace_printf(out, ",\"monotonic_us\":");
    gwi_trace_us(out, gwi_now_ns());
}

static int open_file(const char *path, int first)
{
    char name[4200];

    snprintf(name, sizeof name, first == 0 ? "%s" : "%s.rank-%d", path, first);
    int fd = open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    return fd < 0 ? gwi_fail_errno("GODWIT_TRACE: '%s' cannot be written", name) : fd;
}

int gwi_tracing_begin(gw_world *world)
{
    const gwi_place *place = &world->fabric->place;
    const char *path = wanted();
    gwi_trace_out about = {0};
    char name[128];

    if (path == NULL)
        return 0;
    int first = first_rank(world), leads = first == place->rank, fd = open_file(path, first);
    if (fd < 0)
        return fd;
    describe(world, &about);
    gwi_trace_printf(&about, "%c", 0);
    snprintf(name, sizeof name, "rank %d (node %d)", place->rank, place->node);
    gwi_trace_options options = {.fd = fd,
                                 .process = place->rank + 1, /* 0 is special to viewers */
                                 .sort = place->node * PER_NODE + place->local_rank + 1,
                                 .name = name,
                                 .about = leads ? about.text : NULL,
                                 .is_begun = &board_of(world, first)->trace_begun,
                                 .is_last = is_last,
                                 .ctx = world};
    int err = leads && about.no_memory ? gwi_fail(GW_ENOMEM, "a trace") : gwi_trace_start(&options);
    gwi_trace_out_fini(&about);
    if (err < 0)
        return err;
    world->traces = gwi_tracing(); /* not in a child of a process that does */
    if (world->traces)
        atomic_store_explicit(&world->fabric->entry->board.tracing, TRACING, memory_order_seq_cst);
    return 0;
}

void gwi_tracing_end(gw_world *world)
{
    if (world->traces)
        gwi_trace_stop();
    world->traces = 0;
}
