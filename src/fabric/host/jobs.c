/* jobs.c - finding the jobs of this machine from outside.
 *
 * A job's shared file has no name, but every process of the job holds it open, so
 * it is found among the descriptors in /proc and opened through them.        */
#include <godwit/jobs.h>

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

struct search {
    void (*show)(void *ctx, const char *title, const char *table);
    void *ctx;
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

static void look_at(struct search *s, const char *path)
{
    gwi_host host = {.fd = open(path, O_RDWR | O_CLOEXEC)};
    struct stat st;

    if (host.fd < 0)
        return;
    if (fstat(host.fd, &st) == 0 && is_new(s, st.st_ino) && gwi_host_map(&host) == 0) {
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

int gw_jobs_show(void (*show)(void *ctx, const char *title, const char *table), void *ctx)
{
    struct search s = {.show = show, .ctx = ctx};
    struct dirent *entry;
    DIR *processes = opendir("/proc");

    if (processes == NULL)
        return gwi_fail_errno("looking for jobs in /proc");
    while ((entry = readdir(processes)) != NULL)
        if (isdigit((unsigned char)entry->d_name[0]))
            look_at_process(&s, entry->d_name);
    closedir(processes);
    free(s.seen);
    return s.n_seen;
}
