/* shim.c - the only file that knows mpi.h; see shim.h. */
#include "fabric/mpi/shim.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(MPI_Comm) <= 8 && sizeof(MPI_Request) <= 8 && sizeof(MPI_Message) <= 8,
               "handles are kept in words of 8 bytes");

/* Words and handles.  memcpy, since a handle is a number in one MPI and a pointer
 * in another. */
#define HANDLE(type, name, word_holder) \
    type name;                          \
    memcpy(&(name), &(word_holder), sizeof(name))

#define KEEP(name, word_holder) memcpy(&(word_holder), &(name), sizeof(name))

static void version(char *text, int room)
{
    char whole[MPI_MAX_LIBRARY_VERSION_STRING];
    int n = 0;

    if (MPI_Get_library_version(whole, &n) != MPI_SUCCESS)
        whole[0] = '\0';
    snprintf(text, (size_t)room, "%.*s", (int)strcspn(whole, "\n"), whole);
}

static void explain(int code, char *text, int room)
{
    char whole[MPI_MAX_ERROR_STRING];
    int n = 0;

    if (MPI_Error_string(code, whole, &n) != MPI_SUCCESS)
        snprintf(whole, sizeof whole, "error %d", code);
    snprintf(text, (size_t)room, "%s", whole);
}

static enum gwi_mpi_state state(void)
{
    int yes = 0;

    if (MPI_Initialized(&yes) != MPI_SUCCESS || !yes)
        return GWI_MPI_NOT_STARTED;
    return MPI_Finalized(&yes) == MPI_SUCCESS && yes ? GWI_MPI_FINISHED : GWI_MPI_RUNNING;
}

static int start(void)
{
    int level;

    return MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
}

static int finish(void)
{
    return MPI_Finalize();
}

/* What is attached to MPI_COMM_SELF goes first when MPI ends. */
static void (*last_call)(void);

static int call_last(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm;
    (void)key;
    (void)value;
    (void)extra;
    last_call();
    return MPI_SUCCESS;
}

static int before_finish(void (*call)(void))
{
    int key, err = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, call_last, &key, NULL);

    last_call = call;
    return err != MPI_SUCCESS ? err : MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
}

static int all_threads(int *ret_yes)
{
    int level = 0, err = MPI_Query_thread(&level);

    *ret_yes = level >= MPI_THREAD_MULTIPLE;
    return err;
}

static int world(int *ret_rank, int *ret_size)
{
    int err = MPI_Comm_rank(MPI_COMM_WORLD, ret_rank);

    return err != MPI_SUCCESS ? err : MPI_Comm_size(MPI_COMM_WORLD, ret_size);
}

/* MPI writes the communicator when the request is done, so it goes straight to
 * the word. */
static int open_comm(gwi_mpi_comm *comm, gwi_mpi_request *ret_request)
{
    MPI_Request request;

    comm->word = 0;
    int err = MPI_Comm_idup(MPI_COMM_WORLD, (MPI_Comm *)(void *)&comm->word, &request);
    KEEP(request, ret_request->word);
    return err;
}

static int opened(gwi_mpi_comm comm)
{
    HANDLE(MPI_Comm, c, comm.word);
    return MPI_Comm_set_errhandler(c, MPI_ERRORS_RETURN);
}

static int gather(gwi_mpi_comm comm, const void *mine, int n_bytes, void *all,
                  gwi_mpi_request *ret_request)
{
    HANDLE(MPI_Comm, c, comm.word);
    MPI_Request request;

    int err = MPI_Iallgather(mine, n_bytes, MPI_BYTE, all, n_bytes, MPI_BYTE, c, &request);
    KEEP(request, ret_request->word);
    return err;
}

static int barrier(gwi_mpi_comm comm, gwi_mpi_request *ret_request)
{
    HANDLE(MPI_Comm, c, comm.word);
    MPI_Request request;

    int err = MPI_Ibarrier(c, &request);
    KEEP(request, ret_request->word);
    return err;
}

static int send_bytes(gwi_mpi_comm comm, const void *bytes, int n_bytes, int peer, int tag,
                      int matched, gwi_mpi_request *ret_request)
{
    HANDLE(MPI_Comm, c, comm.word);
    MPI_Request request;

    int err = matched ? MPI_Issend(bytes, n_bytes, MPI_BYTE, peer, tag, c, &request)
                      : MPI_Isend(bytes, n_bytes, MPI_BYTE, peer, tag, c, &request);
    KEEP(request, ret_request->word);
    return err;
}

static int find(gwi_mpi_comm comm, int source, int tag, int *ret_yes, gwi_mpi_found *ret_found)
{
    HANDLE(MPI_Comm, c, comm.word);
    MPI_Message message;
    MPI_Status status;

    *ret_yes = 0;
    int err = MPI_Improbe(source == GWI_MPI_ANY ? MPI_ANY_SOURCE : source,
                          tag == GWI_MPI_ANY ? MPI_ANY_TAG : tag, c, ret_yes, &message, &status);
    if (err != MPI_SUCCESS || !*ret_yes)
        return err;
    KEEP(message, ret_found->word);
    ret_found->source = status.MPI_SOURCE;
    return MPI_Get_count(&status, MPI_BYTE, &ret_found->n_bytes);
}

static int receive(gwi_mpi_found *found, void *bytes, gwi_mpi_request *ret_request)
{
    HANDLE(MPI_Message, message, found->word);
    MPI_Request request;

    int err = MPI_Imrecv(bytes, found->n_bytes, MPI_BYTE, &message, &request);
    KEEP(request, ret_request->word);
    return err;
}

static int test(gwi_mpi_request *request, int *ret_done)
{
    HANDLE(MPI_Request, r, request->word);

    *ret_done = 0;
    int err = MPI_Test(&r, ret_done, MPI_STATUS_IGNORE);
    KEEP(r, request->word);
    return err;
}

static int forget(gwi_mpi_request *request)
{
    HANDLE(MPI_Request, r, request->word);

    return MPI_Request_free(&r);
}

extern const struct gwi_mpi_shim gw_mpi_shim;

__attribute__((visibility("default"))) const struct gwi_mpi_shim gw_mpi_shim = {
    .layout = GWI_MPI_SHIM_LAYOUT,
    .size_bytes = sizeof(struct gwi_mpi_shim),
    .version = version,
    .explain = explain,
    .state = state,
    .start = start,
    .finish = finish,
    .before_finish = before_finish,
    .all_threads = all_threads,
    .world = world,
    .open = open_comm,
    .opened = opened,
    .gather = gather,
    .barrier = barrier,
    .send = send_bytes,
    .find = find,
    .receive = receive,
    .test = test,
    .forget = forget,
};
