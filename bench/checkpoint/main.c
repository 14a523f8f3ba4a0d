/* main.c - saving and loading parameters beside plainly writing and reading as many bytes.
 *
 *     checkpoint DIR PROCESSES NODES KEYS LENGTH ROUNDS
 *
 * In each round all four take turns, in all processes at the same time:
 *
 *   write  Each process writes its share of the bytes from an array in memory, 4 MB at a time, to
 *          a file of its own, fsync()s it, and renames it over the file of the round before.
 *   save   gw_params_save() over the checkpoint of the round before, which does the same at least.
 *   read   Each process reads its file, 4 MB at a time, into that array.
 *   load   gw_params_load(), after which the vectors are where they were.
 *
 * Before each, sync(); before reading and loading, the files' pages are dropped from the
 * system's cache (posix_fadvise), so that they come from the disk.  `read warm` and `load warm`
 * are the same again without dropping them.  Times are from the moment when all processes
 * have met to the moment when all are done.  A line of JSON for each figure.            */
#include <godwit/comm.h>
#include <godwit/params.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHUNK ((size_t)4 << 20)
#define BATCH 4096 /* keys */

struct bench {
    const char *dir;
    int rank, n_processes, n_nodes, rounds;
    int64_t n_keys, length;
    gw_world *world;
    gw_comm *comm;
    gw_params *params;
    gw_worker *worker;
    char *array; /* this process's share of the bytes, plainly */
    size_t n_bytes;
};

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s (%s)\n", what, gw_last_error(), strerror(errno));
    exit(1);
}

static void check(int err, const char *what)
{
    if (err < 0)
        fail(what);
}

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Of all cores, by this process. */
static double cpu_s(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* plainly */

static void plain_path(const struct bench *b, const char *end, char *ret_path)
{
    snprintf(ret_path, PATH_MAX, "%s/plain-%d%s", b->dir, b->rank, end);
}

static void plain_write(struct bench *b)
{
    char path[PATH_MAX], new_path[PATH_MAX];

    plain_path(b, "", path);
    plain_path(b, ".new", new_path);
    int fd = open(new_path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    check(fd, new_path);
    for (size_t at = 0; at < b->n_bytes;) {
        size_t n = b->n_bytes - at < CHUNK ? b->n_bytes - at : CHUNK;
        ssize_t done = write(fd, b->array + at, n);
        if (done <= 0)
            fail("write");
        at += (size_t)done;
    }
    check(fsync(fd), "fsync");
    close(fd);
    check(rename(new_path, path), "rename");
}

static void plain_read(struct bench *b)
{
    char path[PATH_MAX];

    plain_path(b, "", path);
    int fd = open(path, O_RDONLY);
    check(fd, path);
    for (size_t at = 0; at < b->n_bytes;) {
        size_t n = b->n_bytes - at < CHUNK ? b->n_bytes - at : CHUNK;
        ssize_t done = read(fd, b->array + at, n);
        if (done <= 0)
            fail("read");
        at += (size_t)done;
    }
    close(fd);
}

static void checkpoint_path(const struct bench *b, char *ret_path)
{
    snprintf(ret_path, PATH_MAX, "%s/checkpoint", b->dir);
}

static void save(struct bench *b)
{
    char path[PATH_MAX];

    checkpoint_path(b, path);
    check(gw_params_save(b->params, path, NULL), "save");
}

static void load(struct bench *b)
{
    char path[PATH_MAX];

    checkpoint_path(b, path);
    check(gw_params_load(b->params, path, NULL), "load");
}

/* measuring */

static void drop_file(const char *path)
{
    int fd = open(path, O_RDONLY);

    check(fd, path);
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

/* What is in a directory and those in it. */
static void drop_all(const char *dir)
{
    DIR *list = opendir(dir);

    if (list == NULL)
        fail(dir);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        char path[PATH_MAX];
        struct stat st;
        if (entry->d_name[0] == '.' ||
            snprintf(path, sizeof path, "%s/%s", dir, entry->d_name) >= (int)sizeof path)
            continue;
        check(stat(path, &st), path);
        if (S_ISDIR(st.st_mode))
            drop_all(path);
        else
            drop_file(path);
    }
    closedir(list);
}

static void meet(struct bench *b)
{
    check(gw_comm_barrier(b->comm), "barrier");
}

static void measure(struct bench *b, const char *name, void (*what)(struct bench *), int cold)
{
    if (b->rank == 0) {
        sync();
        if (cold)
            drop_all(b->dir);
    }
    meet(b);
    double begin = now_s(), used = cpu_s(), all_used = 0;
    what(b);
    used = cpu_s() - used;
    meet(b);
    double took = now_s() - begin;
    check(gw_comm_allreduce(b->comm, &used, &all_used, 1, GW_F64, GW_SUM), "allreduce");
    if (b->rank == 0) {
        printf("{\"case\": \"%s\", \"s\": %.6f, \"gb_per_s\": %.4f, \"cpu_s\": %.4f}\n", name, took,
               (double)b->n_bytes * b->n_processes / took * 1e-9, all_used);
        fflush(stdout);
    }
}

static void set_all(struct bench *b)
{
    size_t n_values = (size_t)BATCH * (size_t)b->length;
    float *values = malloc(n_values * sizeof *values);
    int64_t keys[BATCH];

    if (values == NULL)
        fail("memory");
    for (size_t i = 0; i < n_values; i++)
        values[i] = (float)(i * 2654435761u % 1000003u) * 1e-6f;
    check(gw_worker_begin_setup(b->worker), "begin_setup");
    for (int64_t key = b->rank; key < b->n_keys;) {
        size_t n = 0;
        for (; n < BATCH && key < b->n_keys; key += b->n_processes)
            keys[n++] = key;
        check(gw_worker_set(b->worker, (gw_keys){keys, n}, values, n * (size_t)b->length, NULL),
              "set");
    }
    check(gw_worker_end_setup(b->worker), "end_setup");
    free(values);
}

static void run(struct bench *b, const char *job)
{
    gw_world_options world = GW_WORLD_OPTIONS_INIT;
    gw_params_options opt = GW_PARAMS_OPTIONS_INIT;

    world.rank = b->rank;
    world.size = b->n_processes;
    world.node_size = b->n_processes / b->n_nodes;
    world.job = job;
    world.timeout_s = 100;
    check(gw_world_join(&world, &b->world), "join");
    check(gw_comm_world(b->world, &b->comm), "comm");
    opt.num_keys = b->n_keys;
    opt.lengths = &b->length;
    opt.n_lengths = 1;
    check(gw_params_open(b->world, &opt, &b->params), "open");
    check(gw_params_worker(b->params, &b->worker), "worker");
    set_all(b);
    /* As many bytes as the checkpoint has: vectors and keys. */
    b->n_bytes = (size_t)b->n_keys * ((size_t)b->length * sizeof(float) + sizeof(int64_t)) /
                 (size_t)b->n_processes;
    b->array = malloc(b->n_bytes);
    if (b->array == NULL)
        fail("memory");
    for (size_t i = 0; i < b->n_bytes; i++)
        b->array[i] = (char)(i * 2654435761u >> 13);
    plain_write(b); /* what is written for the first time takes longer */
    save(b);
    for (int i = 0; i < b->rounds; i++) {
        measure(b, "write", plain_write, 0);
        measure(b, "save", save, 0);
        measure(b, "read", plain_read, 1);
        measure(b, "read warm", plain_read, 0);
        measure(b, "load", load, 1);
        measure(b, "load warm", load, 0);
    }
    check(gw_worker_close(b->worker), "close");
    check(gw_params_close(b->params), "close");
    gw_world_close(b->world);
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    char job[64];
    int failed = 0;

    if (argc != 7) {
        fprintf(stderr, "usage: checkpoint DIR PROCESSES NODES KEYS LENGTH ROUNDS\n");
        return 2;
    }
    b.dir = argv[1];
    b.n_processes = atoi(argv[2]);
    b.n_nodes = atoi(argv[3]);
    b.n_keys = atoll(argv[4]);
    b.length = atoll(argv[5]);
    b.rounds = atoi(argv[6]);
    snprintf(job, sizeof job, "bench-checkpoint-%d", (int)getpid());
    for (b.rank = 0; b.rank < b.n_processes; b.rank++) {
        pid_t child = fork();
        if (child < 0)
            fail("fork");
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL); /* whoever ends the benchmark ends all of it */
            run(&b, job);
            exit(0);
        }
    }
    for (int i = 0, status; i < b.n_processes; i++)
        if (wait(&status) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
            failed = 1;
    return failed;
}
