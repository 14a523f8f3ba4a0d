/* audit.c - what the dynamic loader asks, and the file. */
#include "backend/audit/audit.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

char *getenv(const char *name); /* not <stdlib.h>, whose inline functions want vector registers */

EXPORT unsigned la_version(unsigned version);
EXPORT unsigned la_objopen(struct link_map *map, Lmid_t lmid, uintptr_t *cookie);
EXPORT unsigned la_objclose(uintptr_t *cookie);
EXPORT void la_preinit(uintptr_t *cookie);
EXPORT uintptr_t la_symbind64(Elf64_Sym *sym, unsigned ndx, uintptr_t *refcook, uintptr_t *defcook,
                              unsigned *flags, const char *symname);

header *audit;

/* Set by la_version, then constant. */
static char directory[1024], wanted[1024];
static uint32_t hz;

#define COOKIE_LIBC (UINT64_C(1) << 40) /* beside the number of the object */
#define COOKIE_NONE UINT32_MAX

/* ---- small things ------------------------------------------------------------------------- */

long audit_call(long number, long a, long b, long c, long d, long e, long f)
{
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

uint64_t audit_now_ns(void)
{
    struct timespec t = {0, 0};

    audit_call(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&t, 0, 0, 0, 0);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

int audit_tid(void)
{
    return (int)audit_call(SYS_gettid, 0, 0, 0, 0, 0, 0);
}

void audit_copy(void *to, const void *from, size_t n)
{
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n)::"memory");
}

guard audit_lock(_Atomic int *lock)
{
    uint64_t all = UINT64_MAX;
    guard g = {0};
    int expected = 0;

    audit_call(SYS_rt_sigprocmask, 0 /* SIG_BLOCK */, (long)&all, (long)&g.old_mask, 8, 0, 0);
    while (!atomic_compare_exchange_weak_explicit(lock, &expected, 1, memory_order_acquire,
                                                  memory_order_relaxed)) {
        expected = 0;
        audit_call(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
    }
    return g;
}

void audit_unlock(_Atomic int *lock, guard g)
{
    atomic_store_explicit(lock, 0, memory_order_release); /* pairs with audit_lock */
    audit_call(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, (long)&g.old_mask, 0, 8, 0, 0);
}

/* The kernel reads the mask before it looks at the first argument, which is nonsense. */
bool audit_readable(uint64_t address)
{
    return audit_call(SYS_rt_sigprocmask, 77, (long)address, 0, 8, 0, 0) != -14 /* EFAULT */;
}

object *audit_objects(void)
{
    return (object *)((char *)audit + OBJECTS_AT);
}

stub_record *audit_stubs(void)
{
    return (stub_record *)((char *)audit + STUBS_AT);
}

/* ---- the file ------------------------------------------------------------------------------- */

static char *put_number(char *to, uint64_t n)
{
    char digits[24];
    int k = 0;

    do
        digits[k++] = (char)('0' + n % 10);
    while ((n /= 10) != 0);
    while (k > 0)
        *to++ = digits[--k];
    *to = '\0';
    return to;
}

static int create(int pid)
{
    char path[1100], *at = path;

    for (const char *from = directory; *from != '\0';)
        *at++ = *from++;
    *at++ = '/';
    at = put_number(at, (uint64_t)pid);
    *at++ = '.';
    for (uint64_t number = 0; number < 100000; number++) { /* every exec makes one more */
        put_number(at, number);
        long fd = audit_call(SYS_openat, AT_FDCWD, (long)path,
                             O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600, 0, 0);
        if (fd >= 0 || fd != -17 /* EEXIST */)
            return (int)fd;
    }
    return -1;
}

/* Make this process's file and map it: anywhere, or, in a forked child, over that of its parent,
 * whose tables it takes along. */
int audit_file_open(uint32_t forked_from)
{
    int pid = (int)audit_call(SYS_getpid, 0, 0, 0, 0, 0, 0);
    int fd = create(pid);

    if (fd < 0)
        return -1;
    long at = -1;
    if (audit_call(SYS_ftruncate, fd, (long)FILE_BYTES, 0, 0, 0, 0) == 0)
        at = audit_call(SYS_mmap, 0, (long)FILE_BYTES, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_NORESERVE, fd, 0);
    audit_call(SYS_close, fd, 0, 0, 0, 0, 0);
    if (at < 0 && at > -4096)
        return -1;
    header *fresh = (header *)at;
    if (audit != NULL) {
        audit_copy(fresh, audit, OBJECTS_AT + sizeof(object) * audit->n_objects);
        audit_copy((char *)fresh + STUBS_AT, audit_stubs(), sizeof(stub_record) * audit->n_stubs);
        long moved = audit_call(SYS_mremap, at, (long)FILE_BYTES, (long)FILE_BYTES,
                                MREMAP_MAYMOVE | MREMAP_FIXED, (long)audit, 0);
        if (moved < 0 && moved > -4096)
            return -1;
        fresh = audit;
        fresh->n_blocks = 0;
        fresh->lost_threads = fresh->lost_timers = 0;
        fresh->n_samples = fresh->lost_samples = fresh->sample_bytes = fresh->sampling_ns = 0;
        for (uint32_t i = 0; i < fresh->n_objects && i < MAX_OBJECTS; i++)
            audit_objects()[i].first = 0;
    } else {
        *fresh = (header){.magic = AUDIT_MAGIC,
                          .header_bytes = 4096,
                          .object_bytes = sizeof(object),
                          .stub_bytes = sizeof(stub_record),
                          .n_sites = N_SITES,
                          .max_objects = MAX_OBJECTS,
                          .max_stubs = MAX_STUBS,
                          .max_blocks = MAX_BLOCKS,
                          .hz = hz};
        audit_call(SYS_readlink, (long)"/proc/self/exe", (long)fresh->program,
                   sizeof fresh->program - 1, 0, 0, 0);
    }
    fresh->pid = (uint32_t)pid;
    fresh->parent = (uint32_t)audit_call(SYS_getppid, 0, 0, 0, 0, 0, 0);
    fresh->forked_from = forked_from;
    fresh->started_ns = audit_now_ns();
    atomic_thread_fence(memory_order_release);
    audit = fresh;
    return 0;
}

/* ---- libraries ------------------------------------------------------------------------------ */

static const char *file_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

/* Whether one of the names that are looked for, "libopenblas:libtorch_python", begins this file's
 * name. */
static bool is_wanted(const char *path)
{
    const char *file = file_of(path);

    for (const char *name = wanted; *name != '\0';) {
        size_t n = strcspn(name, ":");
        bool whole = memchr(name, '/', n) != NULL;
        if (n > 0 && strncmp(whole ? path : file, name, n) == 0 && (!whole || path[n] == '\0'))
            return true;
        name += n + (name[n] == ':');
    }
    return false;
}

/* Where the code is, from the program headers, which lie at the beginning of every usual library.
 */
static void find_code(object *o, const struct link_map *map)
{
    const Elf64_Phdr *phdr = NULL;
    size_t n = 0;
    const Elf64_Ehdr *ehdr = (const Elf64_Ehdr *)map->l_addr;

    if (map->l_name == NULL || map->l_name[0] == '\0') { /* the program itself */
        const Elf64_auxv_t *aux;                         /* it follows the environment */
        char **end = environ;

        while (end != NULL && *end != NULL)
            end++;
        if (end != NULL)
            for (aux = (const Elf64_auxv_t *)(end + 1); aux->a_type != AT_NULL; aux++) {
                if (aux->a_type == AT_PHDR)
                    phdr = (const Elf64_Phdr *)aux->a_un.a_val;
                else if (aux->a_type == AT_PHNUM)
                    n = aux->a_un.a_val;
            }
    } else if (map->l_addr != 0 && audit_readable(map->l_addr) &&
               memcmp(ehdr->e_ident, ELFMAG, SELFMAG) == 0) {
        phdr = (const Elf64_Phdr *)(map->l_addr + ehdr->e_phoff);
        n = ehdr->e_phnum;
    }
    if (phdr == NULL || !audit_readable((uint64_t)phdr))
        return;
    for (size_t i = 0; i < n; i++) {
        uint64_t from = map->l_addr + phdr[i].p_vaddr, to = from + phdr[i].p_memsz;
        if (phdr[i].p_type == PT_GNU_EH_FRAME)
            o->eh_frame_hdr = from;
        if (phdr[i].p_type != PT_LOAD || (phdr[i].p_flags & PF_X) == 0)
            continue;
        if (o->text == 0 || from < o->text)
            o->text = from;
        if (to > o->text_end)
            o->text_end = to;
    }
}

/* The number of an object: that of the same file at the same place if it was here before, so that
 * programs that open and close all day do not fill the table. */
static uint32_t remember(const struct link_map *map, const char *path)
{
    object *objects = audit_objects();
    uint32_t n = atomic_load_explicit(&audit->n_objects, memory_order_relaxed);

    for (uint32_t i = 0; i < n; i++)
        if (objects[i].base == map->l_addr && objects[i].last != 0 &&
            strncmp(objects[i].path, path, sizeof objects[i].path - 1) == 0) {
            find_code(&objects[i], map);
            objects[i].last = 0;
            audit_span_set(i, objects[i].text, objects[i].text_end);
            return i;
        }
    if (n >= MAX_OBJECTS) {
        atomic_fetch_add_explicit(&audit->lost_objects, 1, memory_order_relaxed);
        return COOKIE_NONE;
    }
    object *o = &objects[n];
    o->base = map->l_addr;
    o->first = atomic_load_explicit(&audit->n_samples, memory_order_relaxed);
    o->is_target = is_wanted(path);
    o->path_bytes = (uint32_t)strlen(path);
    strncpy(o->path, path, sizeof o->path - 1);
    find_code(o, map);
    audit_span_set(n, o->text, o->text_end);
    atomic_store_explicit(&audit->n_objects, n + 1,
                          memory_order_release); /* pairs with audit_object_at */
    return n;
}

void audit_object_add(const char *path, uint64_t text, uint64_t text_end)
{
    uint32_t n = audit->n_objects;
    object *o = &audit_objects()[n];

    o->base = o->text = text;
    o->text_end = text_end;
    strncpy(o->path, path, sizeof o->path - 1);
    audit_span_set(n, text, text_end);
    audit->n_objects = n + 1;
}

unsigned la_version(unsigned version)
{
    const char *text;

    (void)version;
    if ((text = getenv("GODWIT_PROFILE_DIR")) == NULL || strlen(text) >= sizeof directory)
        return 0; /* this library is then not used */
    strcpy(directory, text);
    text = getenv("GODWIT_PROFILE_LIBS");
    if (text == NULL || strlen(text) >= sizeof wanted)
        return 0;
    strcpy(wanted, text);
    text = getenv("GODWIT_PROFILE_HZ");
    for (; text != NULL && *text >= '0' && *text <= '9' && hz < 100000; text++)
        hz = 10 * hz + (uint32_t)(*text - '0');
    if (audit_file_open(0) < 0)
        return 0;
    audit_stubs_prepare();
    return LAV_CURRENT;
}

unsigned la_objopen(struct link_map *map, Lmid_t lmid, uintptr_t *cookie)
{
    const char *path = map->l_name != NULL && map->l_name[0] != '\0' ? map->l_name : audit->program;
    uint32_t number = remember(map, path);
    bool libc = strncmp(file_of(path), "libc.so", 7) == 0 ||
                strncmp(file_of(path), "libpthread", 10) == 0;

    (void)lmid;
    *cookie = number | (libc ? COOKIE_LIBC : 0);
    if (number == COOKIE_NONE)
        return 0;
    return LA_FLG_BINDFROM | (libc || audit_objects()[number].is_target ? LA_FLG_BINDTO : 0);
}

unsigned la_objclose(uintptr_t *cookie)
{
    uint32_t number = (uint32_t)*cookie;

    if (number < MAX_OBJECTS) {
        object *o = &audit_objects()[number];
        o->eh_frame_hdr = 0; /* before it is unmapped: samples do not look there any more */
        audit_span_set(number, 0, 0);
        o->last = atomic_load_explicit(&audit->n_samples, memory_order_relaxed) + 1;
    }
    return 0;
}

void la_preinit(uintptr_t *cookie)
{
    (void)cookie;
    if (hz > 0)
        audit_sampling_start(hz);
    audit_calibrate();
    audit_thread_begin();
}

uintptr_t la_symbind64(Elf64_Sym *sym, unsigned ndx, uintptr_t *refcook, uintptr_t *defcook,
                       unsigned *flags, const char *symname)
{
    uint32_t caller = (uint32_t)*refcook, target = (uint32_t)*defcook;
    unsigned char type = ELF64_ST_TYPE(sym->st_info);
    uintptr_t address = sym->st_value;

    (void)ndx;
    *flags |= LA_SYMB_NOPLTENTER | LA_SYMB_NOPLTEXIT;
    if (address == 0 || (type != STT_FUNC && type != STT_GNU_IFUNC)) /* dlsym finds data, too */
        return address;
    if (*defcook & COOKIE_LIBC) {
        if (strcmp(symname, "pthread_create") == 0)
            address = audit_wrap_thread_start(address);
        else if (strcmp(symname, "fork") == 0)
            address = audit_wrap_fork(address);
    }
    if (target >= MAX_OBJECTS || !audit_objects()[target].is_target)
        return address;
    return audit_stub_for(caller, target, address, symname, (*flags & LA_SYMB_DLSYM) != 0);
}
