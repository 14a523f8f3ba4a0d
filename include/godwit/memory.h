/* memory.h - tensors that every rank of a group sees as one, wherever their rows lie.
 *
 * The first dimension is cut into parts, one for each rank, in the order of ranks.  A
 * row is what one index of the first dimension names; it is dense.
 *
 *   GW_CONTINUOUS   one mapping, the same bytes for all: an ordinary array
 *   GW_CHUNKED      one mapping for each rank, with a pointer to each
 *   GW_DISTRIBUTED  rows of ranks on other nodes are reached by messages
 *
 * Collective  Opening, fill, copy, load, store and step always; gather, scatter and
 *             scatter-add of a GW_DISTRIBUTED memory whose group spans nodes.  These are
 *             called by all ranks of the group, in one order with its other collectives;
 *             what an earlier one wrote a later one sees.  All else is done in place and
 *             waits for nobody: who needs an order between ranks calls gw_comm_barrier().
 * Owning      A gw_memory belongs to who opened it, and uses its communicator, which must
 *             live longer.  Pointers into it end with the last gw_memory of it, views
 *             included.  Arrays are borrowed for the call.
 * Failing     Results below zero are a gw_err.  What is refused has changed nothing: a
 *             scatter with one bad index writes no row, and if a collective is refused to
 *             one rank, it is refused to all.
 * Threads     Any thread may call anything; collective calls keep one order.  Rows written
 *             by one while another reads or writes them are undefined, but for scatter-add:
 *             additions made at the same time all count.
 * Forking     In a forked child what is done in place still works, on the same bytes; what
 *             is collective fails with GW_ESTATE, and close does nothing.              */
#ifndef GODWIT_MEMORY_H
#define GODWIT_MEMORY_H

#include <godwit/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_memory gw_memory;

typedef enum gw_memory_kind {
    GW_CONTINUOUS,
    GW_CHUNKED,
    GW_DISTRIBUTED,
    GW_N_MEMORY_KINDS
} gw_memory_kind;

/* "continuous", "chunked", "distributed"; "?" for others. */
GW_API const char *gw_memory_kind_name(gw_memory_kind kind);

typedef struct gw_memory_options {
    size_t size_bytes; /* sizeof(gw_memory_options) */
    gw_memory_kind kind;
    gw_dtype dtype;
    int n_dims; /* from 1 */
    const int64_t *shape;
    const int64_t *strides;       /* in entries; NULL: dense.  Only the first may be longer than
                                   * what a dense row needs */
    const int64_t *rows_per_rank; /* by rank; NULL: equal, rounded up, the last get less */
} gw_memory_options;

/* Collective.  New memory is zero.  Continuous and chunked ones need a group on one node. */
GW_API int gw_memory_open(gw_comm *comm, const gw_memory_options *opt, gw_memory **ret_memory);

/* Not collective; the memory goes when the last rank has closed the last of its views.  NULL
 * is fine. */
GW_API void gw_memory_close(gw_memory *memory);

/* A view of a part: entries starts[i] up to, not including, ends[i] along each dimension.
 * Only the first two may be cut.  Not collective.  Whoever uses it in a collective does so
 * with the same columns on all ranks. */
GW_API int gw_memory_sub(const gw_memory *memory, const int64_t *starts, const int64_t *ends,
                         gw_memory **ret_memory);

typedef struct gw_memory_info {
    size_t size_bytes; /* set to sizeof(gw_memory_info) by the caller */
    gw_memory_kind kind;
    gw_dtype dtype;
    int n_dims;
    const int64_t *shape;   /* of this view; borrowed from it */
    const int64_t *strides; /* in entries */
    int rank, size;         /* in the group */
    int spans_nodes;        /* the group does */
    size_t row_bytes;       /* of a dense row of this view */
    int is_view;            /* of a part */
} gw_memory_info;

GW_API int gw_memory_get_info(const gw_memory *memory, gw_memory_info *ret_info);

/* Which rows of this view are a rank's: the first, and how many. */
GW_API int gw_memory_part(const gw_memory *memory, int rank, int64_t *ret_start,
                          int64_t *ret_count);

/* Where a rank's rows begin, in this process; NULL if they lie on another node.  Rows follow
 * each other at the distance of strides[0]. */
GW_API void *gw_memory_chunk(const gw_memory *memory, int rank);

/* Where all rows begin; NULL unless the kind is GW_CONTINUOUS. */
GW_API void *gw_memory_global(const gw_memory *memory);

/* Rows by number, of type GW_I32 or GW_I64. */
typedef struct gw_indices {
    const void *data;
    size_t n;
    gw_dtype dtype;
} gw_indices;

/* Read rows into `out`, which holds n dense rows of entries of `dtype`; they are converted
 * if that is not the memory's. */
GW_API int gw_memory_gather(gw_memory *memory, gw_indices indices, void *out, gw_dtype dtype);

/* Write rows, or add to them; `values` holds n dense rows of `dtype`.  Of rows that are
 * written twice by one call the last one stays, of those written by several ranks any one.
 * All additions count, those of one call to one row in the order of the indices. */
GW_API int gw_memory_scatter(gw_memory *memory, gw_indices indices, const void *values,
                             gw_dtype dtype);
GW_API int gw_memory_scatter_add(gw_memory *memory, gw_indices indices, const void *values,
                                 gw_dtype dtype);

/* Collective: set every entry to the one at `value`, each rank its rows. */
GW_API int gw_memory_fill(gw_memory *memory, const void *value, gw_dtype dtype);

/* Collective: copy everything, converting types.  Both have the same shape and group; kinds
 * and parts may differ. */
GW_API int gw_memory_copy(gw_memory *to, gw_memory *from);

/* files */

typedef enum gw_file_format {
    GW_FILE_BY_NAME, /* GW_FILE_NPY if the path ends with ".npy", else GW_FILE_RAW */
    GW_FILE_RAW,     /* dense rows and nothing else */
    GW_FILE_NPY      /* as numpy.save() writes it */
} gw_file_format;

/* Collective: fill the memory with the rows of the files, one file after the other.  All
 * files are looked at first, by all ranks: if one is missing, or they do not hold exactly
 * these rows, nothing changes anywhere.  Each rank reads its rows. */
GW_API int gw_memory_load(gw_memory *memory, const char *const *paths, int n_paths,
                          gw_file_format format);

/* Collective: write everything to one file, each rank its rows; it appears when complete. */
GW_API int gw_memory_store(gw_memory *memory, const char *path, gw_file_format format);

/* Collective: each rank writes its rows to a file of its own, with the name that
 * gw_memory_part_path() tells: "dir/x.npy" becomes "dir/x.part-0-of-4.npy". */
GW_API int gw_memory_store_parts(gw_memory *memory, const char *path, gw_file_format format);
GW_API int gw_memory_part_path(const char *path, int rank, int size, char *ret_path, size_t room);

/* Not collective: what a file of that format holds.  `ret_shape` has room for GW_MAX_DIMS.
 * For GW_FILE_RAW only the number of bytes is known. */
typedef struct gw_file_info {
    size_t size_bytes; /* set to sizeof(gw_file_info) by the caller */
    gw_file_format format;
    uint64_t n_bytes; /* of rows */
    gw_dtype dtype;
    int n_dims;
    int64_t shape[GW_MAX_DIMS];
} gw_file_info;

GW_API int gw_file_look(const char *path, gw_file_format format, gw_file_info *ret_info);

/* optimizers of rows */

typedef enum gw_optimizer_kind {
    GW_SGD,     /* no state */
    GW_ADAGRAD, /* state 0: sum of squares; counts if lr_decay is not 0 */
    GW_RMSPROP, /* state 0: mean of squares */
    GW_ADAM,    /* states 0, 1: means of gradients and of squares; counts */
    GW_N_OPTIMIZERS
} gw_optimizer_kind;

/* As those of torch.optim are, for one row as if it were a parameter of its own that is
 * stepped only when it is touched. */
typedef struct gw_optimizer {
    size_t size_bytes; /* sizeof(gw_optimizer) */
    gw_optimizer_kind kind;
    double lr, weight_decay, eps;
    double lr_decay;      /* GW_ADAGRAD */
    double alpha;         /* GW_RMSPROP */
    double beta1, beta2;  /* GW_ADAM */
    gw_memory *states[2]; /* shape, type and parts of the rows */
    gw_memory *counts;    /* how often each row was stepped: GW_I64, one entry a row; or NULL */
} gw_optimizer;

/* Collective: gradients of a row are summed over all that name it, on all ranks, and then the
 * row is stepped once.  Rows are GW_F32 or GW_F64, and so are `gradients`: n dense rows. */
GW_API int gw_memory_step(gw_memory *rows, const gw_optimizer *optimizer, gw_indices indices,
                          const void *gradients);

#ifdef __cplusplus
}
#endif
#endif
