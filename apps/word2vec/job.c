/* job.c - the processes of a job together: the world, the parameters, checkpoints.
 *
 * The order of things, which is that of any program with parameters: join the world, open the
 * parameters, enable sampling, take a worker, assign first values between begin_setup and
 * end_setup, train, save; then close worker, parameters and world. */
#define _GNU_SOURCE
#include "word2vec.h"

#include <godwit/comm.h>

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_AT_ONCE 1024 /* of a pull or set that goes over all words */

struct w2v_job {
    w2v_options options;
    gw_world *world;
    gw_world_info info;
    gw_comm *comm; /* lent by the world */
    gw_params *params;
    gw_worker *worker;
    gw_checkpoint *loaded;
    w2v_vocab vocab;
    w2v_corpus corpus;
    w2v_trainer *trainer;
};

/* ---- errors -------------------------------------------------------------------------------- */

static _Thread_local char sentence[2048];

const char *w2v_error(void)
{
    return sentence;
}

int w2v_fail(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    return -1;
}

int w2v_check(int result)
{
    return result < 0 ? w2v_fail("%s", gw_last_error()) : 0;
}

void *w2v_allocate(size_t n, size_t size)
{
    size_t n_bytes = (n * size + 63) / 64 * 64;
    void *memory = aligned_alloc(64, n_bytes > 0 ? n_bytes : 64);

    if (memory == NULL)
        w2v_fail("no memory for %zu times %zu bytes", n, size);
    else
        memset(memory, 0, n_bytes);
    return memory;
}

/* ---- the world ----------------------------------------------------------------------------- */

static int check_options(const w2v_options *o)
{
    if (o->dim < 1 || o->dim > 65536)
        return w2v_fail("vectors of %d entries: from 1 to 65536", o->dim);
    if (o->window < 1 || o->window > W2V_MOST_WINDOW)
        return w2v_fail("a window of %d words: from 1 to %d", o->window, W2V_MOST_WINDOW);
    if (o->negatives < 1 || o->negatives > W2V_MOST_NEGATIVES)
        return w2v_fail("%d negatives: from 1 to %d", o->negatives, W2V_MOST_NEGATIVES);
    if (o->block < 2 || o->block > 1 << 20)
        return w2v_fail("blocks of %d words: from 2 to %d", o->block, 1 << 20);
    if (o->share < 1 || o->ahead < 0 || o->epochs < 1)
        return w2v_fail(
            "%d words share a negative, %d blocks ahead, %d epochs: at least 1, 0 and 1", o->share,
            o->ahead, o->epochs);
    if (!(o->rate > 0) || !(o->least_rate >= 0) || !(o->sample >= 0))
        return w2v_fail("rate %g, least rate %g, sample %g: above 0, and not below 0", o->rate,
                        o->least_rate, o->sample);
    return 0;
}

int w2v_job_open(const w2v_options *options, w2v_job **ret_job)
{
    gw_world_options world = GW_WORLD_OPTIONS_INIT;

    if (check_options(options) < 0)
        return -1;
    w2v_job *job = w2v_allocate(1, sizeof *job);
    if (job == NULL)
        return -1;
    job->options = *options;
    job->info.size_bytes = sizeof job->info;
    if (w2v_check(gw_world_join(&world, &job->world)) < 0 ||
        w2v_check(gw_world_get_info(job->world, &job->info)) < 0 ||
        w2v_check(gw_comm_world(job->world, &job->comm)) < 0) {
        w2v_job_abandon(job);
        return -1;
    }
    *ret_job = job;
    return 0;
}

static void free_job(w2v_job *job)
{
    gw_checkpoint_close(job->loaded);
    w2v_trainer_free(job->trainer);
    w2v_vocab_fini(&job->vocab);
    w2v_corpus_fini(&job->corpus);
    gw_world_close(job->world);
    free(job);
}

int w2v_job_close(w2v_job *job)
{
    int err = w2v_check(gw_worker_close(job->worker));

    if (err == 0)
        err = w2v_check(gw_params_close(job->params));
    else
        gw_params_abandon(job->params);
    free_job(job);
    return err;
}

void w2v_job_abandon(w2v_job *job)
{
    gw_params_abandon(job->params);
    free_job(job);
}

int w2v_job_rank(const w2v_job *job)
{
    return job->info.rank;
}

int w2v_job_size(const w2v_job *job)
{
    return job->info.size;
}

int w2v_job_nodes(const w2v_job *job)
{
    return job->info.nodes;
}

int w2v_job_barrier(w2v_job *job)
{
    return w2v_check(gw_world_barrier(job->world));
}

int w2v_job_sum(w2v_job *job, double *values, size_t n)
{
    return w2v_check(gw_comm_allreduce(job->comm, values, values, n, GW_F64, GW_SUM));
}

int w2v_job_largest(w2v_job *job, double *values, size_t n)
{
    return w2v_check(gw_comm_allreduce(job->comm, values, values, n, GW_F64, GW_MAX));
}

/* ---- the parameters ------------------------------------------------------------------------ */

/* Negatives are outputs, the more frequent the more often, but not in proportion. */
static int enable_sampling(w2v_job *job)
{
    int64_t n = job->vocab.n;
    gw_sampling_options sampling = GW_SAMPLING_OPTIONS_INIT;
    double *weights = w2v_allocate((size_t)n, sizeof *weights);

    if (weights == NULL)
        return -1;
    for (int64_t w = 0; w < n; w++)
        weights[w] = pow((double)job->vocab.count[w], 0.75);
    sampling.scheme = job->options.scheme;
    sampling.distribution = GW_DISTRIBUTION_WEIGHTS;
    sampling.weights = weights;
    sampling.n_weights = (size_t)n;
    sampling.min = n;
    sampling.max = 2 * n;
    sampling.seed = job->options.seed;
    int err = w2v_check(gw_params_enable_sampling(job->params, &sampling));
    free(weights);
    return err;
}

/* Inputs begin with small random numbers, which depend on the word alone; outputs stay zero.  From
 * -1 to 1 over the length, as gensim has it.  With half of that, 2 epochs of a made-up text of
 * 500,000 words found 0.29 to 0.34 of the analogies instead of 0.51 to 0.53. */
static int set_first_values(w2v_job *job)
{
    size_t stride = (size_t)w2v_stride(job->options.dim);
    float *rows = w2v_allocate(ROWS_AT_ONCE * stride, sizeof *rows);
    int64_t keys[ROWS_AT_ONCE];
    int err = rows == NULL ? -1 : w2v_check(gw_worker_begin_setup(job->worker));
    int64_t w = job->info.rank;

    while (err == 0 && w < job->vocab.n) {
        size_t n = 0;
        for (; n < ROWS_AT_ONCE && w < job->vocab.n; n++, w += job->info.size) {
            uint64_t chance = job->options.seed ^ ((uint64_t)w << 20);
            keys[n] = w;
            for (int d = 0; d < job->options.dim; d++)
                rows[n * stride + (size_t)d] = ((float)(w2v_random(&chance) >> 40) * 0x1p-23f -
                                                1.0f) /
                                               (float)job->options.dim;
        }
        err = w2v_check(gw_worker_set(job->worker, (gw_keys){keys, n}, rows, n * stride, NULL));
    }
    if (err == 0)
        err = w2v_check(gw_worker_end_setup(job->worker));
    free(rows);
    return err;
}

int w2v_job_read(w2v_job *job, const char *path)
{
    gw_params_options params = GW_PARAMS_OPTIONS_INIT;
    int64_t length = w2v_stride(job->options.dim);

    if (w2v_corpus_read(job->world, path, job->options.min_count, job->options.most_words,
                        &job->vocab, &job->corpus) < 0)
        return -1;
    params.num_keys = 2 * job->vocab.n;
    params.lengths = &length;
    params.n_lengths = 1;
    if (w2v_check(gw_params_open(job->world, &params, &job->params)) < 0 ||
        enable_sampling(job) < 0 || w2v_check(gw_params_worker(job->params, &job->worker)) < 0 ||
        set_first_values(job) < 0)
        return -1;
    return w2v_trainer_new(&job->options, job->worker, &job->vocab, &job->corpus, job->info.rank,
                           &job->trainer);
}

int64_t w2v_job_words(const w2v_job *job)
{
    return job->vocab.n;
}

int64_t w2v_job_text_words(const w2v_job *job)
{
    return job->corpus.n_words_of_all;
}

uint64_t w2v_job_fingerprint(const w2v_job *job)
{
    return w2v_vocab_fingerprint(&job->vocab);
}

int w2v_job_counts(w2v_job *job, int total, const char **ret_names, int64_t *ret_values, int n)
{
    int n_all = total ? gw_params_stats_total(job->params, ret_values, n)
                      : gw_params_stats_own(job->params, ret_values, n);

    if (w2v_check(n_all) < 0)
        return -1;
    for (int i = 0; i < n_all && i < n; i++)
        ret_names[i] = gw_params_stat_name(i);
    return n_all;
}

/* ---- saving, and what came of it ----------------------------------------------------------- */

w2v_trainer *w2v_job_trainer(w2v_job *job)
{
    return job->trainer;
}

int w2v_job_in_step(w2v_job *job)
{
    if (w2v_check(gw_worker_wait_sync(job->worker)) < 0 ||
        w2v_check(gw_worker_barrier(job->worker)) < 0)
        return -1;
    return w2v_check(gw_worker_wait_sync(job->worker));
}

int w2v_job_save(w2v_job *job, const char *dir, const char *meta)
{
    return w2v_check(gw_params_save(job->params, dir, meta));
}

int w2v_job_load(w2v_job *job, const char *dir, const char **ret_meta)
{
    gw_checkpoint *loaded;

    if (w2v_check(gw_params_load(job->params, dir, &loaded)) < 0)
        return -1;
    gw_checkpoint_close(job->loaded);
    job->loaded = loaded;
    *ret_meta = gw_checkpoint_meta(loaded);
    return 0;
}

int w2v_job_vectors(w2v_job *job, int64_t n, float *ret_vectors)
{
    size_t stride = (size_t)w2v_stride(job->options.dim), dim = (size_t)job->options.dim;
    float *rows = w2v_allocate(ROWS_AT_ONCE * stride, sizeof *rows);
    int64_t keys[ROWS_AT_ONCE];
    int err = rows == NULL ? -1 : 0;

    for (int64_t first = 0; err == 0 && first < n; first += ROWS_AT_ONCE) {
        size_t part = (size_t)(n - first < ROWS_AT_ONCE ? n - first : ROWS_AT_ONCE);
        for (size_t i = 0; i < part; i++)
            keys[i] = first + (int64_t)i;
        err = w2v_check(
            gw_worker_pull(job->worker, (gw_keys){keys, part}, rows, part * stride, NULL));
        for (size_t i = 0; err == 0 && i < part; i++)
            memcpy(ret_vectors + ((size_t)first + i) * dim, rows + i * stride, dim * sizeof *rows);
    }
    free(rows);
    return err;
}

int w2v_job_write(w2v_job *job, const char *path, int binary)
{
    double failed = 0;

    if (job->info.rank == 0) {
        w2v_vectors vectors = {.vocab = job->vocab, .dim = job->options.dim};
        vectors.row = w2v_allocate((size_t)job->vocab.n * (size_t)vectors.dim, sizeof *vectors.row);
        failed = vectors.row == NULL || w2v_job_vectors(job, job->vocab.n, vectors.row) < 0 ||
                 w2v_vectors_write(&vectors, path, binary) < 0;
        free(vectors.row);
    }
    if (w2v_job_largest(job, &failed, 1) < 0)
        return -1;
    if (failed != 0 && job->info.rank != 0)
        w2v_fail("rank 0 could not write %s", path);
    return failed != 0 ? -1 : 0;
}

int w2v_job_analogies(w2v_job *job, const char *path, int64_t among, int64_t *ret_asked,
                      int64_t *ret_found)
{
    int64_t n = among > 0 && among < job->vocab.n ? among : job->vocab.n;
    int dim = job->options.dim;
    float *row = w2v_allocate((size_t)n * (size_t)dim, sizeof *row);
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    double counts[2] = {0, 0};
    int err = row == NULL    ? -1
              : file == NULL ? w2v_fail("cannot read %s: %s", path, strerror(errno))
                             : 0;

    if (err == 0)
        err = w2v_job_vectors(job, n, row);
    if (err == 0)
        w2v_normalize(row, n, dim);
    for (int64_t number = 1; err == 0 && getline(&line, &room, file) >= 0; number++) {
        int64_t word[5], n_words = 0;
        char *rest = line, *text;
        if (line[0] == ':')
            continue;
        while (n_words < 5 && (text = strsep(&rest, " \t\r\n")) != NULL)
            if (*text != '\0')
                word[n_words++] = w2v_vocab_find(&job->vocab, text, strlen(text));
        if (n_words == 0)
            continue;
        if (n_words != 4) {
            err = w2v_fail("%s, line %lld: not four words with blanks between them", path,
                           (long long)number);
            break;
        }
        int known = 1;
        for (int i = 0; i < 4; i++)
            known &= word[i] >= 0 && word[i] < n;
        if (!known || number % job->info.size != job->info.rank)
            continue;
        counts[0]++;
        counts[1] += w2v_analogy(row, n, dim, word[0], word[1], word[2]) == word[3];
    }
    if (file != NULL)
        fclose(file);
    free(line);
    free(row);
    if (err < 0 || w2v_job_sum(job, counts, 2) < 0)
        return -1;
    *ret_asked = (int64_t)counts[0];
    *ret_found = (int64_t)counts[1];
    return 0;
}
