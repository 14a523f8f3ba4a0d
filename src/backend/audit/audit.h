/* audit.h - what `godwit profile` puts into a program, and the file in which it writes down what it
 * saw.
 *
 * godwit-audit.so is an audit library of the dynamic loader (LD_AUDIT; man rtld-audit).  It lives
 * in a namespace of its own, with a C library of its own, links nothing else, and uses almost
 * nothing of that: most of it runs in the middle of the program's calls, in signal handlers, or
 * with the loader's locks held.
 *
 *   audit.c    the loader's questions: which library is this, who is bound to what
 *   stub.c     the code that counts, made at run time; threads and their counters
 *   sample.c   timers, and the call stacks at which they go off
 *   unwind.c   call stacks
 *
 * Every process image (also after exec, also a forked child) has one file, <pid>.<number>, mapped
 * shared: what is in it survives any end of the process, kill -9 and a crash included.
 *
 *   +----------+---------+-------+-------+--------------------------+---------+
 *   | header   | objects | stubs | sites | blocks, one for a thread | samples |
 *   +----------+---------+-------+-------+--------------------------+---------+
 *
 * The file is sparse; only what is used takes room.  python/godwit/backend/records.py reads it: the
 * numbers below are its numbers too.
 *
 * Who writes   header: fields say.  objects: the loader's thread (it holds its lock).  stubs:
 * whoever binds, under table_lock; constant once n_stubs includes them.  sites: any thread,
 * atomically.  A block: the thread that owns it.  samples: room is taken by an atomic addition,
 * then written by one thread; a record whose size is still 0 was never finished. If a process dies
 * here   everything written so far is in the file.  Nobody waits for anything. */
#ifndef GWI_BACKEND_AUDIT_H
#define GWI_BACKEND_AUDIT_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AUDIT_MAGIC UINT64_C(0x31464f5250574721) /* "!GWPROF1" */

#define MAX_OBJECTS 4096
#define MAX_STUBS 131072
#define MAX_BLOCKS 512
#define N_SITES 8 /* of a stub that are told apart */
#define SITE_EVERY 64
#define MAX_FRAMES 64

typedef struct object {
    uint64_t base;           /* what its symbols' addresses are relative to */
    uint64_t text, text_end; /* its code */
    uint64_t first, last;  /* numbers of samples between which it was loaded; last 0: it still is */
    uint64_t eh_frame_hdr; /* address; 0: none */
    uint32_t is_target;
    uint32_t path_bytes;
    char path[456];
} object;

typedef struct stub_record {
    uint32_t caller, target; /* objects */
    uint64_t address;        /* of the function */
    uint32_t is_dlsym;
    char name[108];
} stub_record;

typedef struct site {
    _Atomic uint64_t address; /* 0: free */
    _Atomic uint64_t n;
} site;

/* Counters of one thread, by stub. */
typedef struct block {
    _Atomic uint32_t owner; /* tid; who finds it dead may take the block over and count on */
    int32_t timer;          /* kernel's id, or -1 */
    uint64_t unused[7];
    uint64_t n[MAX_STUBS];
} block;

typedef struct sample {
    _Atomic uint32_t n_frames; /* written last */
    uint32_t tid;
    uint64_t frame[]; /* innermost first */
} sample;

typedef struct header {
    uint64_t magic;
    uint32_t header_bytes, object_bytes, stub_bytes, n_sites, max_objects, max_stubs, max_blocks;
    uint32_t pid, parent, forked_from; /* forked_from 0: began with exec */
    uint32_t hz;                       /* samples per second of processor time; 0: none */
    uint32_t x;
    uint64_t started_ns;
    double call_ns; /* what counting adds to a call, measured when the program started */
    char program[256];
    /* counted up */
    _Atomic uint32_t n_objects, n_stubs, n_blocks, lost_objects, lost_stubs, lost_threads,
        lost_timers;
    _Atomic uint32_t sampler_gone; /* the program took SIGPROF for itself */
    _Atomic uint64_t n_samples, lost_samples, sample_bytes, sampling_ns;
} header;

#define OBJECTS_AT UINT64_C(4096)
#define STUBS_AT (OBJECTS_AT + (uint64_t)MAX_OBJECTS * sizeof(object))
#define SITES_AT (STUBS_AT + (uint64_t)MAX_STUBS * sizeof(stub_record))
#define BLOCKS_AT (SITES_AT + (uint64_t)MAX_STUBS * N_SITES * sizeof(site))
#define SAMPLES_AT (BLOCKS_AT + (uint64_t)MAX_BLOCKS * sizeof(block))
#define SAMPLES_BYTES (UINT64_C(1) << 30)
#define FILE_BYTES (SAMPLES_AT + SAMPLES_BYTES)

static_assert(sizeof(object) == 512 && sizeof(stub_record) == 128 && sizeof(site) == 16,
              "records.py knows");
static_assert(sizeof(header) <= 4096 && sizeof(block) % 64 == 0, "header");

/* The mapped file; NULL: nothing is counted (the file could not be made).  Set before the program
 * starts; after a fork another file is mapped at the same address. */
extern header *audit;

/* ---- without the C library, whose functions may use the vector registers ------------------- */

/* A system call; below zero it is -errno. */
long audit_call(long number, long a, long b, long c, long d, long e, long f);
uint64_t audit_now_ns(void);
int audit_tid(void);
void audit_copy(void *to, const void *from, size_t n);

/* Locks are held with every signal blocked, so that a handler cannot wait for its own thread. */
typedef struct guard {
    uint64_t old_mask;
} guard;
guard audit_lock(_Atomic int *lock);
void audit_unlock(_Atomic int *lock, guard g);

/* Whether these 8 bytes can be read. */
bool audit_readable(uint64_t address);

/* ---- parts ---------------------------------------------------------------------------------- */

int audit_file_open(uint32_t forked_from);
void audit_object_add(const char *path, uint64_t text,
                      uint64_t text_end); /* code that is in no file */

object *audit_objects(void);
stub_record *audit_stubs(void);

/* stub.c: code that counts and goes on to `address`; `address` itself if there is no room. */
void audit_stubs_prepare(void);
uintptr_t audit_stub_for(uint32_t caller, uint32_t target, uintptr_t address, const char *name,
                         bool is_dlsym);
void audit_thread_begin(void); /* this thread has counters and a timer from now on */
uintptr_t audit_trial_stub(uintptr_t address);
void audit_trial_end(void);
uintptr_t audit_wrap_thread_start(uintptr_t pthread_create);
uintptr_t audit_wrap_fork(uintptr_t fork);
void audit_forked(void);

/* sample.c */
void audit_calibrate(void); /* what counting costs */
void audit_sampling_start(uint32_t hz);
bool audit_is_sampling(void); /* it has started */
int audit_timer_new(int tid);
void audit_timer_free(int timer);

/* unwind.c: the call stack of a signal's context, innermost first; returns how many. */
int audit_unwind(const void *ucontext, uint64_t *frame, int max);
const object *audit_object_at(uint64_t address);
void audit_span_set(uint32_t number, uint64_t from, uint64_t to);

#endif
