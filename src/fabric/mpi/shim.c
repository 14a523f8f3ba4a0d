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

/* Tags of groups begin above all that messages use (post.c).  They keep groups apart
 * that several threads make at the same time. */
static int tag_of(MPI_Comm comm, uint64_t context)
{
    int yes = 0, *high = NULL;

    if (MPI_Comm_get_attr(comm, MPI_TAG_UB, &high, &yes) != MPI_SUCCESS || !yes || *high <= 32768)
        return 32767;
    return 32768 + (int)(context % (uint64_t)(*high - 32768));
}

static int make_group(gwi_mpi_comm comm, const int *ranks, int n, uint64_t context,
                      gwi_mpi_comm *ret_group)
{
    HANDLE(MPI_Comm, c, comm.word);
    MPI_Group all, some;
    MPI_Comm made;

    int err = MPI_Comm_group(c, &all);
    if (err != MPI_SUCCESS)
        return err;
    err = MPI_Group_incl(all, n, ranks, &some);
    if (err == MPI_SUCCESS) {
        err = MPI_Comm_create_group(c, some, tag_of(c, context), &made);
        MPI_Group_free(&some);
    }
    MPI_Group_free(&all);
    if (err != MPI_SUCCESS)
        return err;
    KEEP(made, ret_group->word);
    return MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
}

static int free_group(gwi_mpi_comm *group)
{
    HANDLE(MPI_Comm, c, group->word);

    return MPI_Comm_free(&c);
}

static MPI_Datatype type_of(gw_dtype dtype)
{
    switch (dtype) {
    case GW_I32:
        return MPI_INT32_T;
    case GW_I64:
        return MPI_INT64_T;
    case GW_F32:
        return MPI_FLOAT;
    case GW_F64:
        return MPI_DOUBLE;
    case GW_C64:
        return MPI_C_FLOAT_COMPLEX;
    case GW_C128:
        return MPI_C_DOUBLE_COMPLEX;
    default:
        return MPI_DATATYPE_NULL; /* not in the contract: MPI refuses it */
    }
}

static MPI_Op op_of(gw_op op)
{
    switch (op) {
    case GW_MAX:
        return MPI_MAX;
    case GW_MIN:
        return MPI_MIN;
    case GW_SUM:
        return MPI_SUM;
    case GW_PROD:
        return MPI_PROD;
    case GW_LAND:
        return MPI_LAND;
    case GW_BAND:
        return MPI_BAND;
    case GW_LOR:
        return MPI_LOR;
    case GW_BOR:
        return MPI_BOR;
    case GW_LXOR:
        return MPI_LXOR;
    case GW_BXOR:
        return MPI_BXOR;
    default:
        return MPI_OP_NULL;
    }
}

static int move(MPI_Comm c, const gwi_native_call *k, MPI_Request *r)
{
    switch (k->kind) {
    case GW_BCAST:
        return MPI_Ibcast(k->recv, k->n, MPI_BYTE, k->root, c, r);
    case GW_GATHER:
        return MPI_Igatherv(k->send, k->n, MPI_BYTE, k->recv, k->recv_counts, k->recv_at, MPI_BYTE,
                            k->root, c, r);
    case GW_ALLGATHER:
        if (k->recv_counts == NULL)
            return MPI_Iallgather(k->send, k->n, MPI_BYTE, k->recv, k->n, MPI_BYTE, c, r);
        return MPI_Iallgatherv(k->send, k->n, MPI_BYTE, k->recv, k->recv_counts, k->recv_at,
                               MPI_BYTE, c, r);
    case GW_SCATTER:
        return MPI_Iscatterv(k->send, k->send_counts, k->send_at, MPI_BYTE, k->recv, k->n, MPI_BYTE,
                             k->root, c, r);
    case GW_ALLTOALL:
        return MPI_Ialltoallv(k->send, k->send_counts, k->send_at, MPI_BYTE, k->recv,
                              k->recv_counts, k->recv_at, MPI_BYTE, c, r);
    default:
        return MPI_Ibarrier(c, r);
    }
}

static int combine(MPI_Comm c, const gwi_native_call *k, MPI_Request *r)
{
    MPI_Datatype type = type_of(k->dtype);
    MPI_Op op = op_of(k->op);

    switch (k->kind) {
    case GW_ALLREDUCE:
        return MPI_Iallreduce(k->send, k->recv, k->n, type, op, c, r);
    case GW_REDUCE:
        return MPI_Ireduce(k->send, k->recv, k->n, type, op, k->root, c, r);
    case GW_REDUCE_SCATTER:
        return MPI_Ireduce_scatter(k->send, k->recv, k->recv_counts, type, op, c, r);
    default:
        return MPI_Iscan(k->send, k->recv, k->n, type, op, c, r);
    }
}

static int collective(gwi_mpi_comm group, const gwi_native_call *call, gwi_mpi_request *ret_request)
{
    HANDLE(MPI_Comm, c, group.word);
    MPI_Request request;

    int combines = call->kind == GW_ALLREDUCE || call->kind == GW_REDUCE ||
                   call->kind == GW_REDUCE_SCATTER || call->kind == GW_SCAN;
    int err = combines ? combine(c, call, &request) : move(c, call, &request);
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
    .group = make_group,
    .collective = collective,
    .ungroup = free_group,
    .test = test,
    .forget = forget,
};
