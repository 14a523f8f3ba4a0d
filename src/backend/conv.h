/* conv.h - the loops around a convolution's products, once for float and once for double.
 *
 * Included by conv.c with REAL and NAME() defined.
 *
 * A *patch matrix* has a row for each entry (c, i, j) of a filter and a column for each output
 * place: the entries of x that this filter entry meets there.  Columns are a run of rows of one
 * output image, or several whole images (conv.c's `piece`).                            */

/* One row of the patch matrix for output rows [row, row + n_rows) of one image. */
static void NAME(patch_row)(const gw_conv2d *v, const REAL *channel, int64_t ki, int64_t kj,
                            int64_t row, int64_t n_rows, int64_t out_w, REAL *to)
{
    int64_t sx = v->stride[1], left = kj * v->dilation[1] - v->padding[1];
    span inside = span_inside(left, sx, v->w, out_w);

    for (int64_t r = row; r < row + n_rows; r++, to += out_w) {
        int64_t y = r * v->stride[0] + ki * v->dilation[0] - v->padding[0];
        if (y < 0 || y >= v->h) {
            memset(to, 0, (size_t)out_w * sizeof *to);
            continue;
        }
        const REAL *from = channel + y * v->w + left;
        for (int64_t j = 0; j < inside.from; j++)
            to[j] = 0;
        if (sx == 1)
            memcpy(to + inside.from, from + inside.from,
                   (size_t)(inside.to - inside.from) * sizeof *to);
        else
            for (int64_t j = inside.from; j < inside.to; j++)
                to[j] = from[j * sx];
        for (int64_t j = inside.to; j < out_w; j++)
            to[j] = 0;
    }
}

/* The way back: add a row of the patch matrix to where its entries came from. */
static void NAME(unpatch_row)(const gw_conv2d *v, REAL *channel, int64_t ki, int64_t kj,
                              int64_t row, int64_t n_rows, int64_t out_w, const REAL *from)
{
    int64_t sx = v->stride[1], left = kj * v->dilation[1] - v->padding[1];
    span inside = span_inside(left, sx, v->w, out_w);

    for (int64_t r = row; r < row + n_rows; r++, from += out_w) {
        int64_t y = r * v->stride[0] + ki * v->dilation[0] - v->padding[0];
        if (y < 0 || y >= v->h)
            continue;
        REAL *to = channel + y * v->w + left;
        for (int64_t j = inside.from; j < inside.to; j++)
            to[j * sx] += from[j];
    }
}

/* The patch matrix of a piece, for the channels of one group; `x` is of the group's first channel
 * in the piece's first image. */
static void NAME(patch)(const layer *l, const piece *p, const REAL *x, REAL *to)
{
    const gw_conv2d *v = &l->v;

    for (int64_t c = 0; c < l->c_group; c++)
        for (int64_t k = 0; k < v->kh * v->kw; k++)
            for (int64_t image = 0; image < p->n_images; image++) {
                NAME(patch_row)
                (v, x + (image * v->c_in + c) * v->h * v->w, k / v->kw, k % v->kw, p->row,
                 p->n_rows, l->out_w, to);
                to += p->n_rows * l->out_w;
            }
}

static void NAME(unpatch)(const layer *l, const piece *p, REAL *x, const REAL *from)
{
    const gw_conv2d *v = &l->v;

    for (int64_t c = 0; c < l->c_group; c++)
        for (int64_t k = 0; k < v->kh * v->kw; k++)
            for (int64_t image = 0; image < p->n_images; image++) {
                NAME(unpatch_row)
                (v, x + (image * v->c_in + c) * v->h * v->w, k / v->kw, k % v->kw, p->row,
                 p->n_rows, l->out_w, from);
                from += p->n_rows * l->out_w;
            }
}

/* Between images one after the other, each with its channels (y), and channels one after the other,
 * each with a piece's images (what a product over several images makes). */
static void NAME(regroup)(const layer *l, const piece *p, REAL *y, REAL *together, bool to_y)
{
    size_t run = (size_t)(p->n_rows * l->out_w);

    for (int64_t c = 0; c < l->f_group; c++)
        for (int64_t image = 0; image < p->n_images; image++, together += run) {
            REAL *mine = y + (image * l->v.c_out + c) * l->out_h * l->out_w;
            memcpy(to_y ? mine : together, to_y ? together : mine, run * sizeof *y);
        }
}

static void NAME(add_bias)(const layer *l, const REAL *bias, REAL *y)
{
    int64_t n = l->out_h * l->out_w;

    for (int64_t i = 0; i < l->v.n * l->v.c_out; i++)
        for (int64_t j = 0; j < n; j++)
            y[i * n + j] += bias[i % l->v.c_out];
}
