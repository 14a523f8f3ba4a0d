/* conv.c - 2-D convolutions as matrix products of a BLAS.
 *
 * With W the filters of a group (f_group x patch) and P the patch matrix of the input:
 *
 *   forward        Y = W P
 *   grad_input     add W^T dY, a matrix like P, back to where P's entries came from
 *   grad_weight    dW = dY P^T
 *
 * P can be far larger than the input, so it is made in pieces: some rows of an output image, or
 * several images together if they are small; a few hundred columns at least, because that is what
 * products need to be fast, and no more than stays in the caches.  Where filters are of one entry
 * and steps of one, P is the input itself. */
#include "backend/blas.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES (2 << 20) /* of a patch matrix */
#define LEAST_COLUMNS 384

/* A layer with what follows from it. */
typedef struct layer {
    gw_conv2d v;
    int64_t out_h, out_w;
    int64_t c_group, f_group; /* channels in and out of a group */
    int64_t patch;            /* entries of a filter */
    bool as_it_is;            /* the input is its own patch matrix */
    size_t item_bytes;
} layer;

/* Columns of the patch matrix: rows [row, row + n_rows) of images [image, image + n_images). */
typedef struct piece {
    int64_t image, n_images, row, n_rows;
} piece;

typedef struct span {
    int64_t from, to;
} span;

/* Which j in [0, n) have left + j * step in [0, width). */
static span span_inside(int64_t left, int64_t step, int64_t width, int64_t n)
{
    int64_t from = left >= 0 ? 0 : (-left + step - 1) / step;
    int64_t to = left >= width ? 0 : (width - left + step - 1) / step;

    from = from < n ? from : n;
    to = to < n ? to : n;
    return (span){from, to > from ? to : from};
}

#define REAL float
#define NAME(x) x##_f32
#include "backend/conv.h"
#undef REAL
#undef NAME
#define REAL double
#define NAME(x) x##_f64
#include "backend/conv.h"
#undef REAL
#undef NAME
int64_t gw_conv2d_out(const gw_conv2d *v, int axis)
{
    int64_t in = axis == 0 ? v->h : v->w, k = axis == 0 ? v->kh : v->kw;
    int64_t reach = v->dilation[axis] * (k - 1) + 1;

    if (v->stride[axis] < 1 || in + 2 * v->padding[axis] < reach)
        return -1;
    return (in + 2 * v->padding[axis] - reach) / v->stride[axis] + 1;
}

#define MOST (INT64_C(1) << 40) /* of any size: products of three do not overflow twice over */

static bool sane(int64_t x, int64_t least)
{
    return x >= least && x <= MOST;
}

/* The number of entries of an array of four dimensions, or -1 if there is no memory that large. */
static int64_t entries(int64_t a, int64_t b, int64_t c, int64_t d)
{
    int64_t n;

    if (__builtin_mul_overflow(a, b, &n) || __builtin_mul_overflow(n, c, &n) ||
        __builtin_mul_overflow(n, d, &n) || n > (INT64_C(1) << 50))
        return -1;
    return n;
}

static int lay_out(const gw_conv2d *v, layer *ret_layer)
{
    int real = gwi_blas_real(v->dtype);
    if (real < 0)
        return real;
    if (!sane(v->n, 0) || !sane(v->c_in, 1) || !sane(v->h, 1) || !sane(v->w, 1) ||
        !sane(v->c_out, 1) || !sane(v->kh, 1) || !sane(v->kw, 1) || !sane(v->groups, 1))
        return gwi_fail(GW_EINVAL,
                        "a convolution of %lld x %lld x %lld x %lld by %lld filters of %lld x %lld "
                        "in %lld groups",
                        (long long)v->n, (long long)v->c_in, (long long)v->h, (long long)v->w,
                        (long long)v->c_out, (long long)v->kh, (long long)v->kw,
                        (long long)v->groups);
    for (int i = 0; i < 2; i++)
        if (!sane(v->stride[i], 1) || !sane(v->padding[i], 0) || !sane(v->dilation[i], 1) ||
            v->dilation[i] > MOST / (i == 0 ? v->kh : v->kw))
            return gwi_fail(GW_EINVAL, "stride, padding and dilation are %lld, %lld, %lld",
                            (long long)v->stride[i], (long long)v->padding[i],
                            (long long)v->dilation[i]);
    if (v->c_in % v->groups != 0 || v->c_out % v->groups != 0)
        return gwi_fail(GW_EINVAL, "%lld channels in and %lld out cannot be cut into %lld groups",
                        (long long)v->c_in, (long long)v->c_out, (long long)v->groups);
    layer l = {.v = *v, .out_h = gw_conv2d_out(v, 0), .out_w = gw_conv2d_out(v, 1)};
    if (l.out_h < 1 || l.out_w < 1)
        return gwi_fail(GW_EINVAL,
                        "filters of %lld x %lld are larger than the input of %lld x %lld",
                        (long long)v->kh, (long long)v->kw, (long long)v->h, (long long)v->w);
    l.c_group = v->c_in / v->groups;
    l.f_group = v->c_out / v->groups;
    l.item_bytes = real ? sizeof(double) : sizeof(float);
    if (entries(v->n, v->c_in, v->h, v->w) < 0 || entries(v->n, v->c_out, l.out_h, l.out_w) < 0 ||
        entries(v->c_out, l.c_group, v->kh, v->kw) < 0)
        return gwi_fail(GW_ERANGE, "a convolution whose arrays fit into no memory");
    l.patch = l.c_group * v->kh * v->kw;
    l.as_it_is = v->kh == 1 && v->kw == 1 && v->stride[0] == 1 && v->stride[1] == 1 &&
                 v->padding[0] == 0 && v->padding[1] == 0;
    *ret_layer = l;
    return 0;
}

/* How the columns are cut. */
static piece largest_piece(const layer *l)
{
    int64_t image = l->out_h * l->out_w;
    int64_t room = PIECE_BYTES / (int64_t)l->item_bytes / l->patch;
    piece p = {.n_images = 1, .n_rows = l->out_h};

    if (room < LEAST_COLUMNS)
        room = LEAST_COLUMNS;
    if (image >= LEAST_COLUMNS) {
        if (image > room && !l->as_it_is)
            p.n_rows = (room + l->out_w - 1) / l->out_w;
    } else {
        p.n_images = room / image < 1 ? 1 : room / image;
    }
    if (p.n_rows > l->out_h)
        p.n_rows = l->out_h;
    if (p.n_images > l->v.n)
        p.n_images = l->v.n > 0 ? l->v.n : 1;
    return p;
}

/* The piece after `p`, or false.  `most` is the largest; an empty p asks for the first. */
static bool next_piece(const layer *l, const piece *most, piece *p)
{
    if (p->n_images == 0)
        *p = (piece){0};
    else if (p->row + p->n_rows < l->out_h)
        p->row += p->n_rows;
    else {
        p->row = 0;
        p->image += p->n_images;
    }
    if (p->image >= l->v.n)
        return false;
    p->n_images = most->n_images < l->v.n - p->image ? most->n_images : l->v.n - p->image;
    p->n_rows = most->n_rows < l->out_h - p->row ? most->n_rows : l->out_h - p->row;
    return true;
}

/* Room for one patch matrix, and for one output regrouped. */
typedef struct room {
    void *patch, *together;
} room;

static int room_new(const layer *l, const piece *most, room *ret_room)
{
    size_t columns = (size_t)(most->n_images * most->n_rows * l->out_w);
    bool several = most->n_images > 1;
    room r = {NULL, NULL};

    if (!l->as_it_is || several)
        r.patch = malloc(columns * (size_t)l->patch * l->item_bytes);
    if (several)
        r.together = malloc(columns * (size_t)l->f_group * l->item_bytes);
    if (((!l->as_it_is || several) && r.patch == NULL) || (several && r.together == NULL)) {
        free(r.patch);
        free(r.together);
        return gwi_fail(GW_ENOMEM, "a convolution's patch matrix of %zu columns", columns);
    }
    *ret_room = r;
    return 0;
}

static void room_free(room *r)
{
    free(r->patch);
    free(r->together);
}

static char *at(const layer *l, const void *base, int64_t entry)
{
    return (char *)(uintptr_t)base + (size_t)entry * l->item_bytes;
}

/* Where a group's part of a piece begins in the input, the output and the filters. */
static char *in_x(const layer *l, const void *x, const piece *p, int64_t g)
{
    return at(l, x, (p->image * l->v.c_in + g * l->c_group) * l->v.h * l->v.w);
}

static char *in_y(const layer *l, const void *y, const piece *p, int64_t g)
{
    return at(l, y,
              (p->image * l->v.c_out + g * l->f_group) * l->out_h * l->out_w + p->row * l->out_w);
}

static char *in_w(const layer *l, const void *w, int64_t g)
{
    return at(l, w, g * l->f_group * l->patch);
}

/* A matrix: where it lies and how far its rows are apart. */
typedef struct matrix {
    void *at;
    int64_t row;
} matrix;

static int64_t columns_of(const layer *l, const piece *p)
{
    return p->n_images * p->n_rows * l->out_w;
}

/* The patch matrix of a piece: made, or the input as it is. */
static matrix patches(const layer *l, const piece *p, int64_t g, const void *x, const room *r)
{
    char *from = in_x(l, x, p, g);

    if (l->as_it_is && p->n_images == 1)
        return (matrix){from, l->out_h * l->out_w};
    if (l->v.dtype == GW_F32)
        patch_f32(l, p, (const float *)(void *)from, r->patch);
    else
        patch_f64(l, p, (const double *)(void *)from, r->patch);
    return (matrix){r->patch, columns_of(l, p)};
}

static void regroup(const layer *l, const piece *p, void *y, void *together, bool to_y)
{
    if (l->v.dtype == GW_F32)
        regroup_f32(l, p, y, together, to_y);
    else
        regroup_f64(l, p, y, together, to_y);
}

/* A piece of the output, to be read. */
static matrix outputs(const layer *l, const piece *p, int64_t g, const void *y, const room *r)
{
    char *from = in_y(l, y, p, g);

    if (p->n_images == 1)
        return (matrix){from, l->out_h * l->out_w};
    regroup(l, p, from, r->together, false);
    return (matrix){r->together, columns_of(l, p)};
}

typedef int one_piece(gw_blas *, const layer *, const piece *, int64_t g, const room *,
                      const void *const array[3]);

/* Call `f` for every piece and group. */
static int over_pieces(gw_blas *blas, const layer *l, one_piece *f, const void *const array[3])
{
    piece most = largest_piece(l), p = {0};
    room r = {NULL, NULL};
    int err = room_new(l, &most, &r);

    if (err < 0)
        return err;
    while (err == 0 && next_piece(l, &most, &p))
        for (int64_t g = 0; g < l->v.groups && err == 0; g++)
            err = f(blas, l, &p, g, &r, array);
    room_free(&r);
    return err;
}

static int forward(gw_blas *blas, const layer *l, const piece *p, int64_t g, const room *r,
                   const void *const array[3])
{
    matrix patch = patches(l, p, g, array[0], r);
    char *y = in_y(l, array[2], p, g);
    bool several = p->n_images > 1;

    int err = gw_blas_gemm(blas,
                           &(gw_gemm){.dtype = l->v.dtype,
                                      .m = l->f_group,
                                      .n = columns_of(l, p),
                                      .k = l->patch,
                                      .alpha = 1,
                                      .beta = 0,
                                      .a = in_w(l, array[1], g),
                                      .lda = l->patch,
                                      .b = patch.at,
                                      .ldb = patch.row,
                                      .c = several ? r->together : y,
                                      .ldc = several ? columns_of(l, p) : l->out_h * l->out_w});
    if (err == 0 && several)
        regroup(l, p, y, r->together, true);
    return err;
}

int gw_blas_conv2d(gw_blas *blas, const gw_conv2d *conv, const void *x, const void *weight,
                   const void *bias, void *y)
{
    layer l;
    int err = lay_out(conv, &l);

    if (err == 0)
        err = over_pieces(blas, &l, forward, (const void *[3]){x, weight, y});
    if (err == 0 && bias != NULL) {
        if (conv->dtype == GW_F32)
            add_bias_f32(&l, bias, y);
        else
            add_bias_f64(&l, bias, y);
    }
    return err;
}

static int grad_input(gw_blas *blas, const layer *l, const piece *p, int64_t g, const room *r,
                      const void *const array[3])
{
    char *x = in_x(l, array[2], p, g);
    bool in_place = l->as_it_is && p->n_images == 1;
    matrix grad = outputs(l, p, g, array[0], r);

    int err = gw_blas_gemm(blas,
                           &(gw_gemm){.dtype = l->v.dtype,
                                      .a_transposed = 1,
                                      .m = l->patch,
                                      .n = columns_of(l, p),
                                      .k = l->f_group,
                                      .alpha = 1,
                                      .beta = 0,
                                      .a = in_w(l, array[1], g),
                                      .lda = l->patch,
                                      .b = grad.at,
                                      .ldb = grad.row,
                                      .c = in_place ? x : r->patch,
                                      .ldc = in_place ? l->out_h * l->out_w : columns_of(l, p)});
    if (err < 0 || in_place)
        return err;
    if (l->v.dtype == GW_F32)
        unpatch_f32(l, p, (float *)(void *)x, r->patch);
    else
        unpatch_f64(l, p, (double *)(void *)x, r->patch);
    return 0;
}

int gw_blas_conv2d_grad_input(gw_blas *blas, const gw_conv2d *conv, const void *grad_y,
                              const void *weight, void *grad_x)
{
    layer l;
    int err = lay_out(conv, &l);

    if (err < 0)
        return err;
    memset(grad_x, 0, (size_t)(conv->n * conv->c_in * conv->h * conv->w) * l.item_bytes);
    return over_pieces(blas, &l, grad_input, (const void *[3]){grad_y, weight, grad_x});
}

static int grad_weight(gw_blas *blas, const layer *l, const piece *p, int64_t g, const room *r,
                       const void *const array[3])
{
    matrix patch = patches(l, p, g, array[0], r), grad = outputs(l, p, g, array[1], r);

    return gw_blas_gemm(blas, &(gw_gemm){.dtype = l->v.dtype,
                                         .b_transposed = 1,
                                         .m = l->f_group,
                                         .n = l->patch,
                                         .k = columns_of(l, p),
                                         .alpha = 1,
                                         .beta = 1,
                                         .a = grad.at,
                                         .lda = grad.row,
                                         .b = patch.at,
                                         .ldb = patch.row,
                                         .c = in_w(l, array[2], g),
                                         .ldc = l->patch});
}

int gw_blas_conv2d_grad_weight(gw_blas *blas, const gw_conv2d *conv, const void *x,
                               const void *grad_y, void *grad)
{
    layer l;
    int err = lay_out(conv, &l);

    if (err < 0)
        return err;
    memset(grad, 0, (size_t)(conv->c_out * l.patch) * l.item_bytes);
    return over_pieces(blas, &l, grad_weight, (const void *[3]){x, grad_y, grad});
}
