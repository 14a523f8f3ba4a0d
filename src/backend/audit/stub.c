/* stub.c - the code that counts a call and goes on, and the counters of threads.
 *
 * A binding gets a stub of its own, so a counter tells who was called and by which library.  A stub
 * is 128 bytes:
 *
 *          mov   %fs:gate, %r11       the thread's gate: where the address of its block is
 *          test  %r11, %r11
 *          jz    slow
 *          mov   (%r11), %r11         the block, or 0 after a fork
 *          test  %r11, %r11
 *          jz    slow
 *          incq  8 * number(%r11)
 *          ...                        the 1st, 65th, 129th... call of a thread:
 *          je    site                 from where?
 *          jmp   *target
 *
 * r11 is nobody's between a call and the function called; all else is as it was.  Counters have one
 * writer each, so they need no lock and no atomic instruction.
 *
 * Gates lie in memory that the kernel empties in a forked child (MADV_WIPEONFORK), whichever way it
 * was forked: so the child's first counted call goes the slow way, where it gets a file and blocks
 * of its own, and never touches its parent's.
 *
 * This file and audit.c are compiled without the vector registers, which may hold the arguments of
 * the call that is counted. */
#include "backend/audit/audit.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define STUB_BYTES 128
#define N_BUCKETS (2 * MAX_STUBS)

/* Set when prepared, then constant; what they point to is written under table_lock. */
static unsigned char *code;     /* of the stubs */
static uint32_t *buckets;       /* number of a stub + 1 */
static uintptr_t *targets;      /* address by stub */
static _Atomic(block *) *gates; /* by block; written by the block's owner */

static _Atomic int table_lock, block_lock;

static __thread _Atomic(block *) *gate __attribute__((tls_model("initial-exec")));

static void *map(size_t bytes, int protection)
{
    long at = audit_call(SYS_mmap, 0, (long)bytes, protection,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return at < 0 && at > -4096 ? NULL : (void *)at;
}

static block *block_number(uint32_t i)
{
    return (block *)((char *)audit + BLOCKS_AT) + i;
}

void audit_stubs_prepare(void)
{
    gates = map(MAX_BLOCKS * sizeof *gates, PROT_READ | PROT_WRITE);
    if (gates != NULL && audit_call(SYS_madvise, (long)gates, MAX_BLOCKS * sizeof *gates,
                                    MADV_WIPEONFORK, 0, 0, 0) < 0)
        gates = NULL; /* before Linux 4.14: rather nothing than wrong numbers */
    buckets = map(N_BUCKETS * sizeof *buckets, PROT_READ | PROT_WRITE);
    targets = map(MAX_STUBS * sizeof *targets, PROT_READ | PROT_WRITE);
    code = map((size_t)MAX_STUBS * STUB_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC);
    if (code != NULL)
        audit_object_add("[counting]", (uint64_t)code,
                         (uint64_t)code + (uint64_t)MAX_STUBS * STUB_BYTES);
}

/* ---- threads --------------------------------------------------------------------------------- */

/* A block of a thread that is gone: its numbers stay, a new thread adds to them. */
static block *take_over(uint32_t n, uint32_t tid)
{
    static uint32_t next; /* under block_lock */

    for (uint32_t tries = 0; tries < n && tries < 16; tries++) {
        block *b = block_number(next++ % n);
        uint32_t owner = b->owner;
        if (owner != tid &&
            audit_call(SYS_tgkill, (long)audit->pid, owner, 0, 0, 0, 0) != -3 /* ESRCH */)
            continue;
        if (b->timer >= 0)
            audit_timer_free(b->timer);
        b->timer = -1;
        return b;
    }
    return NULL;
}

/* Before the program begins there is nobody yet to take the ticks: its first thread gets its timer
 * when sampling has started, even if it has counted before. */
static void start_timer(block *b)
{
    if (b == NULL || b->timer >= 0 || !audit_is_sampling())
        return;
    b->timer = audit_timer_new((int)b->owner);
    if (b->timer < 0)
        atomic_fetch_add_explicit(&audit->lost_timers, 1, memory_order_relaxed);
}

static block *new_block(void)
{
    uint32_t tid = (uint32_t)audit_tid();
    guard g = audit_lock(&block_lock);
    uint32_t n = audit->n_blocks;
    block *b = n >= 4 ? take_over(n, tid) : NULL;

    if (b == NULL && n < MAX_BLOCKS) {
        b = block_number(n);
        b->timer = -1;
        audit->n_blocks = n + 1;
    }
    if (b != NULL) {
        uint32_t i = (uint32_t)(b - block_number(0));
        b->owner = tid;
        gate = &gates[i];
        atomic_store_explicit(&gates[i], b, memory_order_relaxed);
    } else {
        atomic_fetch_add_explicit(&audit->lost_threads, 1, memory_order_relaxed);
    }
    audit_unlock(&block_lock, g);
    start_timer(b);
    return b;
}

/* In a forked child, which has one thread: a file of its own.  If that cannot be made nothing is
 * counted here; above all, not into the parent's. */
static uint32_t broken_pid; /* of a process that has no file */

void audit_forked(void)
{
    uint32_t pid = (uint32_t)audit_call(SYS_getpid, 0, 0, 0, 0, 0, 0);

    if (audit->pid == pid || broken_pid == pid)
        return;
    atomic_store_explicit(
        &table_lock, 0, memory_order_relaxed); /* another thread of the parent may have had them */
    atomic_store_explicit(&block_lock, 0, memory_order_relaxed);
    if (audit_file_open(audit->pid) < 0)
        broken_pid = pid;
}

static block *my_block(void)
{
    block *b = gate != NULL ? atomic_load_explicit(gate, memory_order_relaxed) : NULL;

    if (b != NULL || gates == NULL)
        return b;
    audit_forked();
    return broken_pid == audit_call(SYS_getpid, 0, 0, 0, 0, 0, 0) ? NULL : new_block();
}

void audit_thread_begin(void)
{
    if (audit != NULL)
        start_timer(my_block());
}

/* ---- the slow way ---------------------------------------------------------------------------- */

static void note_site(uint32_t number, uint64_t address)
{
    site *sites = (site *)((char *)audit + SITES_AT) + (size_t)number * N_SITES;

    for (int i = 0; i < N_SITES; i++) {
        uint64_t there = atomic_load_explicit(&sites[i].address, memory_order_relaxed);
        if (there == 0 && atomic_compare_exchange_strong(&sites[i].address, &there, address))
            there = address;
        if (there == address) {
            atomic_fetch_add_explicit(&sites[i].n, 1, memory_order_relaxed);
            return;
        }
    }
}

/* Called by slow_entry, with the stub's number, whether the call is counted already, and where it
 * comes from. Returns where it wants to go. */
__attribute__((used)) uintptr_t audit_slow(uint64_t what, uint64_t from);
uintptr_t audit_slow(uint64_t what, uint64_t from)
{
    uint32_t number = (uint32_t)what;

    if (what >> 32 != 0) {
        note_site(number, from);
    } else {
        block *b = my_block();
        if (b != NULL) {
            if (b->n[number]++ % SITE_EVERY == 0)
                note_site(number, from);
        }
    }
    return targets[number];
}

void audit_slow_entry(void);
void audit_thread_entry(void);

/* r11 has the argument for audit_slow.  Everything that may carry an argument is kept. */
__asm__(".text\n"
        ".hidden audit_slow_entry\n"
        ".globl audit_slow_entry\n"
        ".type audit_slow_entry, @function\n"
        "audit_slow_entry:\n"
        "  push %rbp\n"
        "  mov  %rsp, %rbp\n"
        "  push %rax\n  push %rdi\n  push %rsi\n  push %rdx\n  push %rcx\n  push %r8\n  push %r9\n "
        " push %r10\n"
        "  mov  8(%rbp), %rsi\n"
        "  mov  %r11, %rdi\n"
        "  and  $-16, %rsp\n"
        "  call audit_slow\n"
        "  mov  %rax, %r11\n"
        "  lea  -64(%rbp), %rsp\n"
        "  pop  %r10\n  pop  %r9\n  pop  %r8\n  pop  %rcx\n  pop  %rdx\n  pop  %rsi\n  pop  %rdi\n "
        " pop  %rax\n"
        "  pop  %rbp\n"
        "  jmp  *%r11\n"
        ".size audit_slow_entry, .-audit_slow_entry\n");

/* ---- making stubs ---------------------------------------------------------------------------- */

static unsigned char *put(unsigned char *at, const void *bytes, size_t n)
{
    memcpy(at, bytes, n);
    return at + n;
}

#define PUT(at, ...)                                        \
    ((at) = put((at), (const unsigned char[]){__VA_ARGS__}, \
                sizeof((const unsigned char[]){__VA_ARGS__})))

/* movabs $what, %r11; jmp *where */
static unsigned char *put_slow(unsigned char *at, uint64_t what)
{
    uintptr_t where = (uintptr_t)audit_slow_entry;

    PUT(at, 0x49, 0xbb);
    at = put(at, &what, 8);
    PUT(at, 0xff, 0x25, 0, 0, 0, 0);
    return put(at, &where, 8);
}

static void write_stub(uint32_t number, uintptr_t target)
{
    unsigned char *start = code + (size_t)number * STUB_BYTES, *at = start;
    uintptr_t thread_pointer;
    __asm__("mov %%fs:0, %0" : "=r"(thread_pointer));
    int32_t offset = (int32_t)((intptr_t)&gate - (intptr_t)thread_pointer);
    int32_t counter = (int32_t)(offsetof(block, n) + 8 * (size_t)number);

    PUT(at, 0x64, 0x4c, 0x8b, 0x1c, 0x25); /* mov %fs:offset, %r11 */
    at = put(at, &offset, 4);
    PUT(at, 0x4d, 0x85, 0xdb); /* test %r11, %r11 */
    PUT(at, 0x74, 0);          /* jz slow */
    unsigned char *jump_1 = at;
    PUT(at, 0x4d, 0x8b, 0x1b, 0x4d, 0x85, 0xdb, 0x74, 0); /* mov (%r11), %r11; test; jz slow */
    unsigned char *jump_2 = at;
    PUT(at, 0x49, 0xff, 0x83); /* incq counter(%r11) */
    at = put(at, &counter, 4);
    PUT(at, 0x45, 0x8b, 0x9b); /* mov counter(%r11), %r11d */
    at = put(at, &counter, 4);
    PUT(at, 0x41, 0x83, 0xe3, SITE_EVERY - 1, 0x41, 0x83, 0xfb,
        1);           /* and $63, %r11d; cmp $1, %r11d */
    PUT(at, 0x74, 0); /* je site */
    unsigned char *jump_3 = at;
    PUT(at, 0xff, 0x25, 0, 0, 0, 0); /* jmp *target */
    at = put(at, &target, 8);
    jump_1[-1] = (unsigned char)(at - jump_1);
    jump_2[-1] = (unsigned char)(at - jump_2);
    at = put_slow(at, number);
    jump_3[-1] = (unsigned char)(at - jump_3);
    at = put_slow(at, number | UINT64_C(1) << 32);
    if (at > start + STUB_BYTES)
        __builtin_trap();
}

static uint32_t hash(uint32_t caller, uint32_t target, uintptr_t address)
{
    uint64_t h = (address ^ (uint64_t)caller << 40 ^ (uint64_t)target << 52) *
                 UINT64_C(0x9e3779b97f4a7c15);

    return (uint32_t)(h >> 40) % N_BUCKETS;
}

uintptr_t audit_stub_for(uint32_t caller, uint32_t target, uintptr_t address, const char *name,
                         bool is_dlsym)
{
    if (gates == NULL || buckets == NULL || targets == NULL || code == NULL)
        return address;
    audit_forked(); /* a child that binds before it calls */
    guard g = audit_lock(&table_lock);
    stub_record *records = audit_stubs();
    uint32_t n = atomic_load_explicit(&audit->n_stubs, memory_order_relaxed);
    uint32_t bucket = hash(caller, target, address), number = UINT32_MAX;

    for (; buckets[bucket] != 0; bucket = (bucket + 1) % N_BUCKETS) {
        const stub_record *r = &records[buckets[bucket] - 1];
        if (r->caller == caller && r->target == target && r->address == address &&
            strncmp(r->name, name, sizeof r->name - 1) == 0) {
            number = buckets[bucket] - 1;
            break;
        }
    }
    if (number == UINT32_MAX && n < MAX_STUBS - 1) { /* the last is for trials */
        number = n;
        stub_record *r = &records[n];
        r->caller = caller;
        r->target = target;
        r->address = address;
        r->is_dlsym = is_dlsym;
        strncpy(r->name, name, sizeof r->name - 1);
        targets[n] = address;
        write_stub(n, address);
        buckets[bucket] = n + 1;
        atomic_store_explicit(&audit->n_stubs, n + 1, memory_order_release);
    }
    audit_unlock(&table_lock, g);
    if (number == UINT32_MAX) {
        atomic_fetch_add_explicit(&audit->lost_stubs, 1, memory_order_relaxed);
        return address;
    }
    return (uintptr_t)(code + (size_t)number * STUB_BYTES);
}

/* For audit_calibrate(): a stub that is in no table, and its counter. */
uintptr_t audit_trial_stub(uintptr_t address)
{
    if (gates == NULL || code == NULL || targets == NULL)
        return 0;
    targets[MAX_STUBS - 1] = address;
    write_stub(MAX_STUBS - 1, address);
    return (uintptr_t)(code + (size_t)(MAX_STUBS - 1) * STUB_BYTES);
}

void audit_trial_end(void)
{
    block *b = my_block();

    if (b != NULL)
        b->n[MAX_STUBS - 1] = 0;
}

/* ---- threads and forks of the program ---------------------------------------------------------
 */

typedef int create_function(unsigned long *, const void *, void *(*)(void *), void *);
typedef int fork_function(void);

static create_function *real_create; /* the program's; set when first bound, the same ever after */
static fork_function *real_fork;

/* What a new thread is to do; in a slot of a table until it has begun. */
typedef struct start {
    _Atomic uintptr_t routine; /* 0: free */
    void *arg;
} start;
#define N_STARTS 256
static start starts[N_STARTS];

/* The new thread's first steps.  Returns the routine; audit_thread_entry goes on to it with its
 * argument, so that nothing of ours is on the stack when the thread is cancelled or unwound. */
__attribute__((used)) uintptr_t audit_thread_started(start *s, void **ret_arg);
uintptr_t audit_thread_started(start *s, void **ret_arg)
{
    *ret_arg = s->arg;
    uintptr_t routine = atomic_exchange_explicit(&s->routine, 0, memory_order_acq_rel);
    audit_thread_begin();
    return routine;
}

__asm__(".text\n"
        ".hidden audit_thread_entry\n"
        ".globl audit_thread_entry\n"
        ".type audit_thread_entry, @function\n"
        "audit_thread_entry:\n"
        "  sub  $24, %rsp\n"
        "  lea  8(%rsp), %rsi\n"
        "  call audit_thread_started\n"
        "  mov  8(%rsp), %rdi\n"
        "  add  $24, %rsp\n"
        "  jmp  *%rax\n"
        ".size audit_thread_entry, .-audit_thread_entry\n");

static int create(unsigned long *thread, const void *attributes, void *(*routine)(void *),
                  void *arg)
{
    void *(*entry)(void *) = NULL;

    *(uintptr_t *)&entry = (uintptr_t)audit_thread_entry;
    for (int i = 0; i < N_STARTS; i++) {
        uintptr_t expected = 0;
        if (!atomic_compare_exchange_strong(&starts[i].routine, &expected, 1))
            continue;
        starts[i].arg = arg;
        atomic_store_explicit(&starts[i].routine, (uintptr_t)routine, memory_order_release);
        int err = real_create(thread, attributes, entry, &starts[i]);
        if (err != 0)
            atomic_store_explicit(&starts[i].routine, 0, memory_order_release);
        return err;
    }
    return real_create(thread, attributes, routine,
                       arg); /* its first counted call will do the rest */
}

static int forked(void)
{
    int pid = real_fork();

    if (pid == 0 && audit != NULL) {
        memset(starts, 0, sizeof starts);
        audit_thread_begin();
    }
    return pid;
}

uintptr_t audit_wrap_thread_start(uintptr_t pthread_create)
{
    if (real_create == NULL)
        *(uintptr_t *)&real_create = pthread_create;
    return (uintptr_t)real_create == pthread_create ? (uintptr_t)create : pthread_create;
}

uintptr_t audit_wrap_fork(uintptr_t fork)
{
    if (real_fork == NULL)
        *(uintptr_t *)&real_fork = fork;
    return (uintptr_t)real_fork == fork ? (uintptr_t)forked : fork;
}
