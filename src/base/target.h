/* target.h - loops compiled more than once, for processors of different ages.
 *
 * A file that has such loops defines them from GWI_TARGETS and asks gwi_target()
 * at run time which of them this processor can run.                            */
#ifndef GWI_BASE_TARGET_H
#define GWI_BASE_TARGET_H

/* Number by number: a name, the attribute of its functions, and what the caller
 * adds.  Number 0 runs on every processor of this architecture.  There is no "fma" among them: it
 * rounds otherwise, and results would depend on who computes them. */
#if defined(__x86_64__)
#define GWI_TARGETS(X, ...) \
    X(any, , __VA_ARGS__) X(avx2, __attribute__((target("avx2,f16c"))), __VA_ARGS__)
#define GWI_N_TARGETS 2

static inline int gwi_target(void)
{
    return __builtin_cpu_supports("avx2") ? 1 : 0; /* no processor has it without f16c */
}
#else
#define GWI_TARGETS(X, ...) X(any, , __VA_ARGS__)
#define GWI_N_TARGETS 1

static inline int gwi_target(void)
{
    return 0;
}
#endif

/* Before a loop: what one turn writes no other turn reads, so turns may be done
 * side by side.  Memory that a turn both reads and writes is fine. */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* it is a wish, not an order */
#define GWI_SIDE_BY_SIDE _Pragma("clang loop vectorize(assume_safety)")
#else
#define GWI_SIDE_BY_SIDE _Pragma("GCC ivdep")
#endif

#endif
