/* crew.c - processes, threads, and a book that they have in common. */
#include "crew.h"
#include "base/error.h"
#include "base/option.h"
#include "fabric/processes_test.h"

#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <sys/mman.h>

#define MAX_CHOICES 8
#define PATIENCE_S 120 /* beyond the time that the test was given, on a machine full of them */

static struct crew *crew; /* of this program; processes that are started get no argument */

/* arguments */

static int take_int(const char *name, int least, int most, int *ret_value)
{
    return gwi_parse_int(name, optarg, least, most, ret_value);
}

static int take_choice(const struct choice *choice)
{
    if (choice->most > 0)
        return take_int(choice->name, 0, choice->most, choice->ret_value);
    *choice->ret_value = 1;
    return 0;
}

static int take_common(int key)
{
    return key == 'n'   ? take_int("-n", 1, MAX_WORKERS, &crew->n)
           : key == 't' ? take_int("-t", 1, MAX_WORKERS, &crew->threads)
           : key == 's' ? take_int("--seconds", 1, 100000, &crew->seconds)
           : key == 'r' ? take_int("--seed", 0, 1000000000, &crew->seed)
           : key == 'k' ? take_int("--node-size", 1, MAX_WORKERS, &crew->node_size)
                        : gwi_fail(GW_EINVAL, "there is no such argument");
}

static int parse_args(int argc, char **argv)
{
    enum { CHOICE = 256 }; /* above all letters */
    struct option options[3 + MAX_CHOICES + 1] = {
        {"seconds", required_argument, NULL, 's'},
        {"seed", required_argument, NULL, 'r'},
        {"node-size", required_argument, NULL, 'k'},
    };
    int key, err = 0;

    for (int i = 0; crew->choices[i].name != NULL; i++)
        options[3 + i] = (struct option){
            crew->choices[i].name, crew->choices[i].most > 0 ? required_argument : no_argument,
            NULL, CHOICE + i};
    while (err >= 0 && (key = getopt_long(argc, argv, "n:t:", options, NULL)) != -1)
        err = key >= CHOICE ? take_choice(&crew->choices[key - CHOICE]) : take_common(key);
    return err >= 0 && optind < argc ? gwi_fail(GW_EINVAL, "what is '%s'?", argv[optind]) : err;
}

/* the book */

/* Rank 0 makes it, and the others map the same.  It has no name, so nothing is left of it. */
static void *share_book(gw_world *world, int rank, int size)
{
    char path[64];
    size_t n_bytes;
    int fd;

    if (rank == 0) {
        fd = memfd_create("the book of a test", MFD_CLOEXEC);
        REQUIRE(fd >= 0 && ftruncate(fd, (off_t)crew->book_bytes) == 0);
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), fd);
        for (int peer = 1; peer < size; peer++)
            REQUIRE(gw_world_send(world, peer, path, sizeof path) == 0);
    } else {
        REQUIRE(gw_world_recv(world, 0, path, sizeof path, &n_bytes) == 0);
        fd = open(path, O_RDWR | O_CLOEXEC);
        REQUIRE(fd >= 0);
    }
    void *book = mmap(NULL, crew->book_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    REQUIRE(book != MAP_FAILED);
    REQUIRE(gw_world_barrier(world) == 0); /* then all have it */
    close(fd);
    return book;
}

/* processes and threads */

static void *one_thread(void *arg)
{
    crew->work(arg);
    return NULL;
}

static void run_threads(gw_params *params, int rank)
{
    struct hand hands[MAX_WORKERS];
    pthread_t threads[MAX_WORKERS];

    for (int t = 0; t < crew->threads; t++) {
        struct hand *hand = &hands[t];
        hand->params = params;
        hand->number = rank * crew->threads + t;
        gwi_random_init(&hand->random, (uint64_t)crew->seed, (uint64_t)hand->number);
        REQUIRE(gw_params_worker(params, &hand->worker) == 0);
        REQUIRE(pthread_create(&threads[t], NULL, one_thread, hand) == 0);
    }
    for (int t = 0; t < crew->threads; t++)
        pthread_join(threads[t], NULL);
}

static void run_process(gw_world_options *options)
{
    gw_params_options params_options = GW_PARAMS_OPTIONS_INIT;
    gw_world_info info = {.size_bytes = sizeof info};
    gw_params *params;
    gw_world *world;

    alarm((unsigned)crew->seconds + PATIENCE_S);
    options->node_size = crew->node_size;
    options->timeout_s = 60;
    REQUIRE(gw_world_join(options, &world) == 0 && gw_world_get_info(world, &info) == 0);
    crew->n_workers = info.size * crew->threads;
    crew->n_nodes = info.nodes;
    REQUIRE(crew->n_workers <= MAX_WORKERS);
    crew->book = share_book(world, info.rank, info.size);
    params_options.workers = crew->threads;
    crew->prepare(&params_options);
    REQUIRE(gw_params_open(world, &params_options, &params) == 0);
    run_threads(params, info.rank);
    REQUIRE(gw_params_close(params) == 0);
    if (info.rank == 0) {
        printf("%s, %d processes x %d threads on %d nodes, seed %d: ", info.fabric, info.size,
               crew->threads, info.nodes, crew->seed);
        REQUIRE(crew->report() && fflush(stdout) == 0);
    }
    gw_world_close(world);
}

static void one_process(const struct processes *all, int rank)
{
    gw_world_options options = GW_WORLD_OPTIONS_INIT;

    options.rank = rank;
    options.size = all->n;
    options.job = all->job;
    run_process(&options);
}

static int start_all(void)
{
    struct processes all;
    int n_failed = 0;

    start_processes(&all, crew->n, one_process);
    wait_for_processes(&all);
    for (int rank = 0; rank < all.n; rank++)
        n_failed += all.statuses[rank] != 0;
    return n_failed > 0;
}

int crew_main(struct crew *given, int argc, char **argv)
{
    gw_world_options found = GW_WORLD_OPTIONS_INIT;

    crew = given;
    crew->threads = 1;
    crew->seconds = 60;
    crew->seed = 1;
    if (parse_args(argc, argv) < 0) {
        fprintf(stderr, "%s (see the head of its source)\n", gw_last_error());
        return 2;
    }
    if (crew->n > 0)
        return start_all();
    run_process(&found);
    return 0;
}
