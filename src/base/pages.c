/* pages.c - a thread that asks the kernel to put pages together. */
#include "base/pages.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define NICE 5

static void *run(void *arg)
{
    gwi_pages *pages = arg;

    /* For this thread alone.  A little less important than the program, but no more: it holds
     * locks on pages while it works, for which workers wait. */
    setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
    for (size_t at = 0; at < pages->n_bytes; at += GWI_HUGE_PAGE) {
        if (atomic_load_explicit(&pages->stop, memory_order_relaxed))
            break;
        if (madvise(pages->base + at, GWI_HUGE_PAGE, MADV_COLLAPSE) == 0)
            atomic_fetch_add_explicit(&pages->done, GWI_HUGE_PAGE, memory_order_relaxed);
        else if (errno == EINVAL)
            break; /* this system never does it */
    }
    return NULL;
}

void gwi_pages_start(gwi_pages *pages, void *memory, size_t n_bytes)
{
    uintptr_t begin = ((uintptr_t)memory + GWI_HUGE_PAGE - 1) & ~(GWI_HUGE_PAGE - 1);
    uintptr_t end = ((uintptr_t)memory + n_bytes) & ~(GWI_HUGE_PAGE - 1);

    if (end <= begin)
        return;
    pages->base = (unsigned char *)memory + (begin - (uintptr_t)memory);
    pages->n_bytes = end - begin;
    pages->generation = gwi_fork_generation();
    if (gwi_thread_start("gw-pages", run, pages, &pages->thread) < 0)
        pages->n_bytes = 0;
}

void gwi_pages_stop(gwi_pages *pages)
{
    if (pages->n_bytes == 0 || pages->generation != gwi_fork_generation())
        return;
    atomic_store_explicit(&pages->stop, 1, memory_order_relaxed);
    gwi_thread_join(pages->thread);
    pages->n_bytes = 0;
}

size_t gwi_pages_done(const gwi_pages *pages)
{
    return atomic_load_explicit(&pages->done, memory_order_relaxed);
}
