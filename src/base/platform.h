/* platform.h - the few things that depend on compiler and processor. */
#ifndef GWI_BASE_PLATFORM_H
#define GWI_BASE_PLATFORM_H

#include <stdint.h>

/* Fields with different writers keep this distance.  64 bytes is a line on
 * every x86-64 and most ARM; processors that fetch lines in pairs make two
 * lines the safer distance where it is cheap. */
#define GWI_LINE 64

/* What memory is mapped by, on most systems. */
#define GWI_PAGE 4096

/* Tell the processor that this is a loop that waits. */
static inline void gwi_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#endif
}

#define gwi_likely(x) __builtin_expect(!!(x), 1)
#define gwi_unlikely(x) __builtin_expect(!!(x), 0)

/* For functions that must become part of their callers: loops that are compiled once for
 * each value of an argument, and those that only prefetch, which GCC takes for useless
 * and leaves out where it does not inline them. */
#define GWI_INLINE static inline __attribute__((always_inline))

/* Get a line that another processor had last on its way to be written.  Of
 * __builtin_prefetch(at, 1) GCC makes a fetch to read, since the oldest processors
 * know no other: then the write waits until the other one has given up its copy. */
GWI_INLINE void gwi_fetch_to_write(const void *at)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)at));
#else
    __builtin_prefetch(at, 1, 3);
#endif
}

#if defined(__SANITIZE_THREAD__)
#define GWI_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GWI_TSAN 1
#endif
#endif
#ifndef GWI_TSAN
#define GWI_TSAN 0
#endif

#if defined(__SANITIZE_ADDRESS__)
#define GWI_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GWI_ASAN 1
#endif
#endif
#ifndef GWI_ASAN
#define GWI_ASAN 0
#endif

#endif
