/* plugin.c - finding, loading, starting and ending MPI. */
#include "fabric/mpi/plugin.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/option.h"
#include "base/thread.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name, *file;
} kinds[] = {
    [GWI_NO_MPI] = {"no MPI", ""},
    [GWI_OPENMPI] = {"Open MPI", "godwit-openmpi.so"},
    [GWI_MPICH] = {"MPICH", "godwit-mpich.so"},
};

const char *gwi_mpi_name(gwi_mpi_kind kind)
{
    return kinds[kind].name;
}

/* what is loaded already */

/* By name: libmpi.so.40 is Open MPI's, libmpich.so.12 Debian's MPICH, libmpi.so.12
 * MPICH elsewhere.  The first and the last are told apart by what is inside. */
static int look_at_library(struct dl_phdr_info *info, size_t size, void *ctx)
{
    gwi_mpi_loaded *loaded = ctx;
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *file = slash != NULL ? slash + 1 : info->dlpi_name;

    (void)size;
    if (strncmp(file, "libmpi.so", 9) != 0 && strncmp(file, "libmpich.so", 11) != 0)
        return 0;
    snprintf(loaded->path, sizeof loaded->path, "%s", info->dlpi_name);
    return 1;
}

static int ask(void *library, const char *function)
{
    int (*call)(int *) = NULL;
    int yes = 0;

    *(void **)&call = dlsym(library, function);
    return call != NULL && call(&yes) == 0 && yes;
}

gwi_mpi_loaded gwi_mpi_find_loaded(void)
{
    gwi_mpi_loaded loaded = {.kind = GWI_NO_MPI};

    if (dl_iterate_phdr(look_at_library, &loaded) == 0)
        return loaded;
    void *library = dlopen(loaded.path, RTLD_NOLOAD | RTLD_LAZY);
    if (library == NULL)
        return loaded;
    loaded.kind = dlsym(library, "ompi_mpi_comm_world") != NULL ? GWI_OPENMPI : GWI_MPICH;
    loaded.running = ask(library, "MPI_Initialized") && !ask(library, "MPI_Finalized");
    dlclose(library);
    return loaded;
}

/* the plugin */

/* Plugins lie beside the library, or in a directory of their own below. */
static int find_file(gwi_mpi_kind kind, char *path, size_t room)
{
    static const char *const below[] = {"", "godwit/"};
    const char *given;
    Dl_info us;

    if (gwi_option_text(GWI_OPTION_PLUGINS, &given) == 1) {
        snprintf(path, room, "%s/%s", given, kinds[kind].file);
        return access(path, R_OK) == 0;
    }
    if (dladdr((const void *)kinds, &us) == 0 || us.dli_fname == NULL)
        return 0;
    const char *slash = strrchr(us.dli_fname, '/');
    int dir_bytes = slash != NULL ? (int)(slash - us.dli_fname) + 1 : 0;
    for (size_t i = 0; i < sizeof below / sizeof below[0]; i++) {
        snprintf(path, room, "%.*s%s%s", dir_bytes, us.dli_fname, below[i], kinds[kind].file);
        if (access(path, R_OK) == 0)
            return 1;
    }
    return 0;
}

static int missing(gwi_mpi_kind kind, const char *path)
{
    return gwi_fail(
        GW_EUNSUP,
        "this process belongs to a job of %s, for which this Godwit has no plugin (%s); "
        "build Godwit where %s's mpicc is found",
        kinds[kind].name, path, kinds[kind].name);
}

int gwi_plugin_find(gwi_mpi_kind kind)
{
    char path[4096] = "";

    return find_file(kind, path, sizeof path) ? 0 : missing(kind, path);
}

int gwi_plugin_load(gwi_mpi_kind kind, const struct gwi_mpi_shim **ret_shim)
{
    char path[4096] = "";

    if (!find_file(kind, path, sizeof path))
        return missing(kind, path);
    /* Global, for the parts that MPI itself loads later and that expect its
     * symbols there.  Never closed: MPI does not survive that. */
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (library == NULL)
        return gwi_fail(
            GW_EUNSUP,
            "the plugin for %s cannot be loaded: %s; install the %s that Godwit was built "
            "with, or build Godwit again",
            kinds[kind].name, dlerror(), kinds[kind].name);
    const struct gwi_mpi_shim *shim = dlsym(library, "gw_mpi_shim");
    if (shim == NULL || shim->layout != GWI_MPI_SHIM_LAYOUT || shim->size_bytes != sizeof *shim)
        return gwi_fail(GW_EUNSUP,
                        "the plugin %s belongs to another version of Godwit; install both together",
                        path);
    *ret_shim = shim;
    return 0;
}

int gwi_mpi_failed(const struct gwi_mpi_shim *shim, int code, const char *doing)
{
    char text[512];

    shim->explain(code, text, sizeof text);
    return gwi_fail(GW_ESYS, "MPI failed while %s: %s", doing, text);
}

int gwi_mpi_wait(const struct gwi_mpi_shim *shim, gwi_mpi_request *request, int64_t deadline_ns,
                 const char *doing)
{
    int done = 0, code;
    int64_t nap_ns = 10 * GWI_US;

    while ((code = shim->test(request, &done)) == 0 && !done) {
        if (gwi_interrupted())
            return gwi_fail(GW_EINTR, "interrupted by a signal while %s", doing);
        if (gwi_now_ns() >= deadline_ns)
            return GW_ETIMEOUT;
        gwi_nap_ns(nap_ns);
        nap_ns = nap_ns < GWI_MS ? 2 * nap_ns : nap_ns;
    }
    return code != 0 ? gwi_mpi_failed(shim, code, doing) : 0;
}

/* starting and ending */

static struct {
    pthread_mutex_t lock;
    /* under the lock, then constant: set if we started MPI */
    const struct gwi_mpi_shim *ours;
    uint32_t generation;
    /* under the lock, by one join at a time */
    const struct gwi_mpi_shim *shim; /* NULL: there is no communicator yet */
    gwi_mpi_comm comm;
    int epoch;
    _Atomic int died;
} engine = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* MPI_Finalize waits for the other processes.  One that failed must not do that:
 * they may be waiting for something that it will not do any more.  It ends without,
 * and the launcher, who sees that, ends the others. */
static void finish(int status, void *arg)
{
    (void)arg;
    if (status != 0 || atomic_load(&engine.died) || engine.generation != gwi_fork_generation())
        return;
    if (engine.ours->state() == GWI_MPI_RUNNING)
        engine.ours->finish();
}

static int start_locked(const struct gwi_mpi_shim *shim)
{
    int code = shim->start();

    if (code != 0)
        return gwi_mpi_failed(shim, code, "starting it");
    engine.ours = shim;
    engine.generation = gwi_fork_generation();
    if (on_exit(finish, NULL) != 0)
        return gwi_fail(GW_ENOMEM, "starting MPI");
    return 0;
}

int gwi_plugin_start(const struct gwi_mpi_shim *shim)
{
    int err = 0, all_threads = 0;

    pthread_mutex_lock(&engine.lock);
    enum gwi_mpi_state state = shim->state();
    if (state == GWI_MPI_FINISHED)
        err = gwi_fail(
            GW_ESTATE,
            "MPI was ended in this process and cannot be started again; join the job before");
    else if (state == GWI_MPI_NOT_STARTED)
        err = start_locked(shim);
    pthread_mutex_unlock(&engine.lock);
    if (err < 0)
        return err;
    int code = shim->all_threads(&all_threads);
    if (code != 0)
        return gwi_mpi_failed(shim, code, "asking for its threads");
    if (!all_threads)
        return gwi_fail(
            GW_EUNSUP,
            "MPI was started for calls of one thread only, but Godwit needs "
            "MPI_THREAD_MULTIPLE; start it with MPI_Init_thread(), or with mpi4py's default, "
            "mpi4py.rc.thread_level = 'multiple'");
    return 0;
}

/* Take in a message that nobody wants any more. */
static void discard(const struct gwi_mpi_shim *shim, gwi_mpi_found *found)
{
    gwi_mpi_request request;
    void *bytes = malloc((size_t)found->n_bytes + 1);
    int done = 0;

    if (bytes == NULL || shim->receive(found, bytes, &request) != 0)
        return;
    while (!done && shim->test(&request, &done) == 0)
        gwi_nap_ns(10 * GWI_US);
    if (done)
        free(bytes);
}

/* MPI ends.  Messages may still be under way to us, from ranks that left or that
 * did not know that we have left; some MPIs complain about those that nobody takes,
 * and some let their senders wait.  So take them in until everybody is as far. */
static void drain(void)
{
    const struct gwi_mpi_shim *shim = engine.shim;
    gwi_mpi_request all_here;
    gwi_mpi_found found;
    int done = 0, yes;

    if (atomic_load(&engine.died) || shim->barrier(engine.comm, &all_here) != 0)
        return;
    do {
        if (shim->find(engine.comm, GWI_MPI_ANY, GWI_MPI_ANY, &yes, &found) != 0)
            return;
        if (yes)
            discard(shim, &found);
        else if (shim->test(&all_here, &done) != 0)
            return;
        else if (!done)
            gwi_nap_ns(GWI_MS);
    } while (yes || !done);
}

static int make_comm_locked(const struct gwi_mpi_shim *shim, int64_t deadline_ns)
{
    gwi_mpi_request request;
    int code = shim->open(&engine.comm, &request);

    if (code != 0)
        return gwi_mpi_failed(shim, code, "making a communicator");
    int err = gwi_mpi_wait(shim, &request, deadline_ns, "joining");
    if (err < 0)
        return err;
    if ((code = shim->opened(engine.comm)) != 0 || (code = shim->before_finish(drain)) != 0)
        return gwi_mpi_failed(shim, code, "joining");
    engine.shim = shim;
    return 0;
}

int gwi_plugin_comm(const struct gwi_mpi_shim *shim, int64_t deadline_ns, gwi_mpi_comm *ret_comm,
                    int *ret_epoch)
{
    int err = 0;

    pthread_mutex_lock(&engine.lock);
    if (engine.shim == NULL)
        err = make_comm_locked(shim, deadline_ns);
    if (err == 0) {
        *ret_comm = engine.comm;
        *ret_epoch = engine.epoch++;
    }
    pthread_mutex_unlock(&engine.lock);
    return err;
}

void gwi_plugin_note_death(void)
{
    atomic_store(&engine.died, 1);
}
