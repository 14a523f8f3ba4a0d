/* thread.h - our own threads, and what threads must know of their process. */
#ifndef GWI_BASE_THREAD_H
#define GWI_BASE_THREAD_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/* A thread of the library.  It has a name (at most 15 characters, seen by top
 * and gdb) and takes no signals, so that the program's own handlers run where
 * the program expects them. */
typedef struct gwi_thread {
    pthread_t id;
} gwi_thread;

int gwi_thread_start(const char *name, void *(*run)(void *), void *arg, gwi_thread *ret_thread);
void gwi_thread_join(gwi_thread thread);

/* Let the calling thread in quickly when it is woken: among those who want a processor, who asks
 * for a short slice goes first (since Linux 6.12; older kernels ignore it).  Its share of the
 * processor stays the same.  Does nothing in a thread that serves. */
void gwi_thread_be_quick(int quick);

/* For a thread that serves others and sleeps in between: it is quick for good, and its short sleeps
 * end when they should, not up to 50 us later. */
void gwi_thread_serve(void);

/* The processor on which the calling thread is just now, or below zero. */
int gwi_cpu_now(void);

/* Let the calling thread go on on this processor, or on any other, if it may use such.  It is not
 * kept there. */
void gwi_thread_go_to_cpu(int cpu);
void gwi_thread_leave_cpu(void);

/* How many processors this process may use now (its affinity), at least 1. */
int gwi_cpu_count(void);

/* How many fork()s lie between this process and the one that loaded the
 * library.  An object that remembers the number knows that it was made on the
 * other side of a fork, at the cost of one load. */
uint32_t gwi_fork_generation(void);

/* Call `child(arg)` in every forked child, before fork() returns there.  It may
 * only do what a signal handler may.  At most 16 at a time; returns GW_ENOMEM
 * beyond.  Remove it before `arg` ends. */
int gwi_fork_hook_add(void (*child)(void *), void *arg);
void gwi_fork_hook_remove(void (*child)(void *), void *arg);

/* Whether the function given to gw_set_interrupt_check() wants waits to end. */
int gwi_interrupted(void);

/* Around a wait inside a call that rarely waits: what was given to gw_set_wait_hooks(). */
void gwi_before_wait(void);
void gwi_after_wait(void);

/* The function given to gw_set_where(), or NULL. */
typedef void gwi_where_function(unsigned long thread, char *ret_text, size_t room);
gwi_where_function *gwi_where_hook(void);

#endif
