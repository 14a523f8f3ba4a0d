/* pages.c - a thread that asks the kernel to put pages together. */
#include "base/pages.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define NICE 5
#define PAGE 4096
#define SAMPLES 8 /* pages of a huge one */
#define LOOK_S 1  /* between looks for what has come into use */

/* Whether most of it was ever touched, as far as some of its pages tell. */
static int is_used(unsigned char *at)
{
    int n = 0;

    for (size_t i = 0; i < SAMPLES; i++) {
        unsigned char there = 0;
        mincore(at + (i * GWI_HUGE_PAGE + GWI_HUGE_PAGE / 2) / SAMPLES, PAGE, &there);
        n += there & 1;
    }
    return n > SAMPLES / 2;
}

/* The kernel wants to find one of the pages mapped. */
int gwi_pages_join(void *at)
{
    (void)*(volatile unsigned char *)at;
    return madvise(at, GWI_HUGE_PAGE, MADV_COLLAPSE) == 0 ? 0 : -errno;
}

static int stops(gwi_pages *pages)
{
    return atomic_load_explicit(&pages->stop, memory_order_relaxed);
}

/* Go through all that is not done yet.  Returns how much is left, 0 if this system never does it.
 */
static size_t put_together(gwi_pages *pages, unsigned char *done)
{
    size_t left = 0;

    for (size_t i = 0; i < pages->n_bytes / GWI_HUGE_PAGE && !stops(pages); i++) {
        unsigned char *at = pages->base + i * GWI_HUGE_PAGE;
        if (done[i])
            continue;
        if (pages->only_used && !is_used(at)) {
            left++;
            continue;
        }
        if (madvise(at, GWI_HUGE_PAGE, MADV_COLLAPSE) == 0) {
            done[i] = 1;
            atomic_fetch_add_explicit(&pages->done, GWI_HUGE_PAGE, memory_order_relaxed);
        } else if (errno == EINVAL) {
            return 0;
        }
    }
    return left;
}

static void sleep_a_while(gwi_pages *pages)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LOOK_S;
    pthread_mutex_lock(&pages->lock);
    if (!stops(pages))
        pthread_cond_timedwait(&pages->bell, &pages->lock, &until);
    pthread_mutex_unlock(&pages->lock);
}

static void *run(void *arg)
{
    gwi_pages *pages = arg;
    unsigned char *done = calloc(pages->n_bytes / GWI_HUGE_PAGE, 1);

    /* For this thread alone.  A little less important than the program, but no more: it holds
     * locks on pages while it works, for which workers wait. */
    setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
    while (done != NULL && !stops(pages) && put_together(pages, done) > 0)
        sleep_a_while(pages);
    free(done);
    return NULL;
}

void gwi_pages_start(gwi_pages *pages, void *memory, size_t n_bytes, int only_used)
{
    uintptr_t begin = ((uintptr_t)memory + GWI_HUGE_PAGE - 1) & ~(GWI_HUGE_PAGE - 1);
    uintptr_t end = ((uintptr_t)memory + n_bytes) & ~(GWI_HUGE_PAGE - 1);

    if (end <= begin)
        return;
    pages->base = (unsigned char *)memory + (begin - (uintptr_t)memory);
    pages->n_bytes = end - begin;
    pages->only_used = only_used;
    pages->generation = gwi_fork_generation();
    pthread_mutex_init(&pages->lock, NULL);
    pthread_cond_init(&pages->bell, NULL);
    if (gwi_thread_start("gw-pages", run, pages, &pages->thread) < 0)
        pages->n_bytes = 0;
}

void gwi_pages_stop(gwi_pages *pages)
{
    if (pages->n_bytes == 0 || pages->generation != gwi_fork_generation())
        return;
    pthread_mutex_lock(&pages->lock);
    atomic_store_explicit(&pages->stop, 1, memory_order_relaxed);
    pthread_cond_signal(&pages->bell);
    pthread_mutex_unlock(&pages->lock);
    gwi_thread_join(pages->thread);
    pthread_mutex_destroy(&pages->lock);
    pthread_cond_destroy(&pages->bell);
    pages->n_bytes = 0;
}

void gwi_pages_map(void *at, size_t n_bytes)
{
    uintptr_t begin = (uintptr_t)at & ~(uintptr_t)(PAGE - 1);
    uintptr_t end = ((uintptr_t)at + n_bytes + PAGE - 1) & ~(uintptr_t)(PAGE - 1);

    madvise((unsigned char *)at - ((uintptr_t)at - begin), end - begin, MADV_POPULATE_WRITE);
}

size_t gwi_pages_done(const gwi_pages *pages)
{
    return atomic_load_explicit(&pages->done, memory_order_relaxed);
}
