/* jobs.c - finding the jobs of this machine from outside.
 *
 * A job's shared file has no name, but every process of the job holds it open, so
 * it is found among the descriptors in /proc and opened through them.        */
#include <godwit/jobs.h>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/host/host.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LABEL "/memfd:godwit"

#define PATIENCE_NS (200 * GWI_MS)

/* Either of the two is wanted. */
struct search {
    void (*show)(void *ctx, const char *title, const char *table);
    void (*see)(void *ctx, const gw_job_rank *rank);
    void *ctx;
    ino_t file;  /* at which it looks */
    ino_t *seen; /* files that were shown already */
    int n_seen;
};

static int is_new(struct search *s, ino_t file)
{
    for (int i = 0; i < s->n_seen; i++)
        if (s->seen[i] == file)
            return 0;
    ino_t *more = realloc(s->seen, (size_t)(s->n_seen + 1) * sizeof *more);
    if (more == NULL)
        return 0;
    s->seen = more;
    s->seen[s->n_seen++] = file;
    return 1;
}

static void show_host(struct search *s, gwi_host *host)
{
    char title[300], *table = NULL;
    size_t n_bytes;
    FILE *to = open_memstream(&table, &n_bytes);

    if (to == NULL)
        return;
    host->place = gwi_place_of(0, host->header->size, host->header->node_size);
    gwi_host_print_ledger(host, to);
    fclose(to);
    snprintf(title, sizeof title, "job %.200s: %d %s here, %d %s", host->header->job,
             host->place.size, host->place.size == 1 ? "rank" : "ranks", host->place.nodes,
             host->place.nodes == 1 ? "node" : "nodes");
    s->show(s->ctx, title, table);
    free(table);
}

/* figures */

static uint32_t ask(gwi_seat *seat)
{
    uint32_t asked = atomic_fetch_add(&seat->entry.board.asked, 1) + 1;

    gwi_bell_ring_sleepers(&seat->entry.bell);
    return asked;
}

static int has_answered(const gwi_seat *seat, uint32_t asked)
{
    uint32_t answered = atomic_load_explicit(&seat->entry.board.answered, memory_order_acquire);

    return (int32_t)(answered - asked) >= 0;
}

static int is_here(const gwi_seat *seat)
{
    return atomic_load_explicit(&seat->fate, memory_order_acquire) == GWI_HERE &&
           atomic_load(&seat->entry.has_witness);
}

static void see_rank(const struct search *s, const gwi_host *host, const gwi_seat *seat,
                     int answers)
{
#define NAME(name, help) #name,
#define HELP(name, help) help,
    static const char *const names[] = {GWI_FIGURES(NAME)}, *const help[] = {GWI_FIGURES(HELP)};
#undef NAME
#undef HELP
    const gwi_board *board = &seat->entry.board;
    uint64_t figures[GWI_N_FIGURES];
    int n = 0;
    gw_job_rank rank = {.job = host->header->job,
                        .id = (uint64_t)s->file,
                        .size = host->header->size,
                        .rank = seat->rank,
                        .pid = seat->pid,
                        .fate = atomic_load_explicit(&seat->fate, memory_order_acquire),
                        .answers = answers,
                        .left_out = (int)atomic_load(&board->left_out),
                        .names = names,
                        .help = help,
                        .figures = figures};

    for (int i = 0; i < GWI_N_PANELS; i++)
        if (gwi_panel_read(&board->panels[i], figures)) {
            rank.n_figures = GWI_N_FIGURES;
            s->see(s->ctx, &rank);
            n++;
        }
    rank.n_figures = 0;
    if (n == 0)
        s->see(s->ctx, &rank);
}

/* All are asked before any is waited for. */
static void see_host(const struct search *s, gwi_host *host)
{
    int n = host->header->size;
    int64_t deadline_ns = gwi_deadline_ns(PATIENCE_NS);
    uint32_t *asked = calloc((size_t)n, sizeof *asked);

    if (asked == NULL)
        return;
    for (int i = 0; i < n; i++)
        if (is_here(&host->seats[i]))
            asked[i] = ask(&host->seats[i]);
    for (int i = 0; i < n; i++) {
        const gwi_seat *seat = &host->seats[i];
        while (is_here(seat) && !has_answered(seat, asked[i]) && gwi_now_ns() < deadline_ns)
            gwi_nap_ns(GWI_MS / 5);
        see_rank(s, host, seat, is_here(seat) && has_answered(seat, asked[i]));
    }
    free(asked);
}

static void look_at(struct search *s, const char *path)
{
    gwi_host host = {.fd = open(path, O_RDWR | O_CLOEXEC)};
    struct stat st;

    if (host.fd < 0)
        return;
    if (fstat(host.fd, &st) == 0 && is_new(s, st.st_ino) && gwi_host_map(&host) == 0) {
        s->file = st.st_ino;
        if (s->see != NULL)
            see_host(s, &host);
        else
            show_host(s, &host);
        gwi_arena_unmap(host.header, host.mapped_bytes);
    }
    close(host.fd);
}

/* All descriptors of a process that may be a job's file. */
static void look_at_process(struct search *s, const char *pid)
{
    char dir[300], path[600], target[64];
    struct dirent *entry;

    snprintf(dir, sizeof dir, "/proc/%s/fd", pid);
    DIR *fds = opendir(dir);
    if (fds == NULL)
        return;
    while ((entry = readdir(fds)) != NULL) {
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        ssize_t n = readlink(path, target, sizeof target - 1);
        if (n > 0 && strncmp(target, LABEL, strlen(LABEL)) == 0)
            look_at(s, path);
    }
    closedir(fds);
}

static int look(struct search *s)
{
    struct dirent *entry;
    DIR *processes = opendir("/proc");

    if (processes == NULL)
        return gwi_fail_errno("looking for jobs in /proc");
    while ((entry = readdir(processes)) != NULL)
        if (isdigit((unsigned char)entry->d_name[0]))
            look_at_process(s, entry->d_name);
    closedir(processes);
    free(s->seen);
    return s->n_seen;
}

int gw_jobs_show(void (*show)(void *ctx, const char *title, const char *table), void *ctx)
{
    return look(&(struct search){.show = show, .ctx = ctx});
}

int gw_jobs_look(void (*see)(void *ctx, const gw_job_rank *rank), void *ctx)
{
    return look(&(struct search){.see = see, .ctx = ctx});
}
