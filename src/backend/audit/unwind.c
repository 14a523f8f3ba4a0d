/* unwind.c - call stacks, from the tables that compilers write for exceptions (.eh_frame).
 *
 * A table says, for every address of a function, where the frame of its caller is and where
 * registers were saved.  Kernels written in assembler often have none: then the stack is searched
 * for something that looks like a return address, that is, an address in code, behind a call
 * instruction.
 *
 * Everything read is checked to be readable, page by page: this runs in a signal handler, in the
 * middle of anything. */
#include "backend/audit/audit.h"

#include <string.h>
#include <ucontext.h>

enum { RBX = 3, RBP = 6, RSP = 7, R8 = 8, RIP = 16, N_REGISTERS = 17 };

typedef struct frame {
    uint64_t r[N_REGISTERS];
    uint64_t page; /* the last that was found readable */
} frame;

#define SEARCH_WORDS 1024
#define LARGEST_FRAME (UINT64_C(16) << 20)

/* Where code is, close together, because every frame of every sample is looked up here.  Written by
 * the loader's thread, under its lock; a library that is being closed has nobody inside. */
static struct {
    _Atomic uint64_t from, to;
} spans[MAX_OBJECTS];

void audit_span_set(uint32_t number, uint64_t from, uint64_t to)
{
    atomic_store_explicit(&spans[number].to, 0, memory_order_relaxed);
    atomic_store_explicit(&spans[number].from, from, memory_order_release);
    atomic_store_explicit(&spans[number].to, to, memory_order_release);
}

const object *audit_object_at(uint64_t address)
{
    uint32_t n = atomic_load_explicit(&audit->n_objects,
                                      memory_order_acquire); /* pairs with remember() */

    for (uint32_t i = 0; i < n && i < MAX_OBJECTS; i++)
        if (address < atomic_load_explicit(&spans[i].to, memory_order_acquire) &&
            address >= atomic_load_explicit(&spans[i].from, memory_order_relaxed))
            return &audit_objects()[i];
    return NULL;
}

static bool load(frame *f, uint64_t address, uint64_t *ret_word)
{
    if (address % 8 != 0)
        return false;
    if (address >> 12 != f->page) {
        if (!audit_readable(address))
            return false;
        f->page = address >> 12;
    }
    *ret_word = *(const uint64_t *)address;
    return true;
}

/* ---- reading a table --------------------------------------------------------------------------
 */

typedef struct reader {
    const uint8_t *at, *end;
} reader;

static uint64_t read_bytes(reader *r, unsigned n)
{
    uint64_t value = 0;

    if ((size_t)(r->end - r->at) < n) {
        r->at = r->end;
        return 0;
    }
    memcpy(&value, r->at, n);
    r->at += n;
    return value;
}

static uint64_t read_uleb(reader *r)
{
    uint64_t value = 0;

    for (unsigned shift = 0; r->at < r->end; shift += 7) {
        uint8_t byte = *r->at++;
        if (shift < 64)
            value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0)
            break;
    }
    return value;
}

static int64_t read_sleb(reader *r)
{
    uint64_t value = 0;
    unsigned shift = 0;
    uint8_t byte = 0;

    while (r->at < r->end) {
        byte = *r->at++;
        if (shift < 64)
            value |= (uint64_t)(byte & 0x7f) << shift;
        shift += 7;
        if ((byte & 0x80) == 0)
            break;
    }
    if (shift < 64 && (byte & 0x40) != 0)
        value |= ~UINT64_C(0) << shift;
    return (int64_t)value;
}

/* An address in one of the encodings that are in use; `data` is what "relative to data" means. */
static uint64_t read_encoded(reader *r, uint8_t encoding, uint64_t data)
{
    uint64_t here = (uint64_t)r->at, value;

    switch (encoding & 0x0f) {
    case 0x00:
    case 0x04:
    case 0x0c:
        value = read_bytes(r, 8);
        break;
    case 0x02:
        value = read_bytes(r, 2);
        break;
    case 0x03:
        value = read_bytes(r, 4);
        break;
    case 0x0a:
        value = (uint64_t)(int64_t)(int16_t)read_bytes(r, 2);
        break;
    case 0x0b:
        value = (uint64_t)(int64_t)(int32_t)read_bytes(r, 4);
        break;
    default:
        value = read_uleb(r);
        break;
    }
    if ((encoding & 0x70) == 0x10)
        value += here;
    else if ((encoding & 0x70) == 0x30)
        value += data;
    return value;
}

/* What a function's entry says. */
typedef struct entry {
    uint64_t from, n; /* addresses */
    uint64_t code_unit;
    int64_t data_unit;
    uint64_t return_register;
    reader common, own; /* instructions */
    bool is_signal;
} entry;

/* The entry for `pc`, by the sorted table of the header (with 32-bit numbers, as every linker
 * writes it). */
static const uint8_t *find_entry(const object *o, uint64_t pc)
{
    const uint8_t *hdr = (const uint8_t *)o->eh_frame_hdr;

    if (hdr == NULL || hdr[0] != 1 || hdr[2] != 0x03 || hdr[3] != 0x3b)
        return NULL;
    unsigned skip = (hdr[1] & 0x0f) == 0x0b || (hdr[1] & 0x0f) == 0x03 ? 8 : 12;
    uint32_t n;
    memcpy(&n, hdr + skip, 4);
    const int32_t *table = (const int32_t *)(hdr + skip + 4);
    int64_t wanted = (int64_t)(pc - o->eh_frame_hdr);
    uint32_t low = 0, high = n;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (table[2 * middle] <= wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return low == 0 ? NULL : hdr + table[2 * (low - 1) + 1];
}

static bool read_common(const uint8_t *cie, entry *e, uint8_t *ret_encoding, bool *ret_augmented)
{
    uint32_t length;
    memcpy(&length, cie, 4);
    reader r = {cie + 8, cie + 4 + length};
    uint64_t version = read_bytes(&r, 1);
    const char *augmentation = (const char *)r.at;

    if (length == 0xffffffff || (version != 1 && version != 3))
        return false;
    while (r.at < r.end && *r.at != 0)
        r.at++;
    r.at++;
    e->code_unit = read_uleb(&r);
    e->data_unit = read_sleb(&r);
    e->return_register = version == 1 ? read_bytes(&r, 1) : read_uleb(&r);
    *ret_encoding = 0;
    *ret_augmented = augmentation[0] == 'z';
    if (augmentation[0] == 'z') {
        uint64_t bytes = read_uleb(&r);
        const uint8_t *after = r.at + bytes;
        for (const char *a = augmentation + 1; *a != '\0'; a++) {
            if (*a == 'R')
                *ret_encoding = (uint8_t)read_bytes(&r, 1);
            else if (*a == 'L')
                read_bytes(&r, 1);
            else if (*a == 'P') {
                uint8_t encoding = (uint8_t)read_bytes(&r, 1);
                read_encoded(&r, encoding, 0);
            } else if (*a == 'S')
                e->is_signal = true;
        }
        r.at = after;
    } else if (augmentation[0] != '\0') {
        return false;
    }
    e->common = r;
    return true;
}

static bool read_entry(const object *o, uint64_t pc, entry *e)
{
    const uint8_t *fde = find_entry(o, pc);
    uint32_t length, back;
    uint8_t encoding;
    bool augmented;

    if (fde == NULL)
        return false;
    memcpy(&length, fde, 4);
    memcpy(&back, fde + 4, 4);
    if (length == 0 || length == 0xffffffff || back == 0)
        return false;
    memset(e, 0, sizeof *e);
    if (!read_common(fde + 4 - back, e, &encoding, &augmented))
        return false;
    reader r = {fde + 8, fde + 4 + length};
    e->from = read_encoded(&r, encoding, 0);
    e->n = read_encoded(&r, encoding & 0x0f, 0);
    if (augmented) {
        uint64_t bytes = read_uleb(&r);
        r.at += bytes;
    }
    e->own = r;
    return pc >= e->from && pc < e->from + e->n && e->return_register == RIP;
}

/* ---- carrying it out ---------------------------------------------------------------------------
 */

enum { SAME, AT_CFA, IN_REGISTER, AT_EXPRESSION, UNKNOWN };

/* The small programs that say where a frame is when it was put on a round address, and in the
 * tables of calls (PLT): `push_cfa` is on the stack at the start, for registers.  False: something
 * that is not known here. */
static bool work_out(frame *f, reader r, uint64_t push_cfa, uint64_t *ret_value)
{
    uint64_t stack[16] = {push_cfa}, a;
    unsigned n = 1;

    while (r.at < r.end) {
        uint8_t op = *r.at++;
        if (n >= 15 || n == 0)
            return false;
        if (op >= 0x30 && op <= 0x4f) {
            stack[n++] = op - 0x30U;
        } else if (op >= 0x70 && op <= 0x80) { /* a register and an offset */
            stack[n++] = f->r[op - 0x70] + (uint64_t)read_sleb(&r);
        } else if (op == 0x06) {
            if (!load(f, stack[n - 1], &stack[n - 1]))
                return false;
        } else if (op == 0x08 || op == 0x09) {
            a = read_bytes(&r, 1);
            stack[n++] = op == 0x08 ? a : (uint64_t)(int64_t)(int8_t)a;
        } else if (op == 0x23) {
            stack[n - 1] += read_uleb(&r);
        } else if (n >= 2 && (op == 0x1a || op == 0x1c || op == 0x22 || op == 0x24 || op == 0x2a)) {
            a = stack[--n];
            uint64_t *top = &stack[n - 1];
            *top = op == 0x1a   ? *top & a
                   : op == 0x1c ? *top - a
                   : op == 0x22 ? *top + a
                   : op == 0x24 ? *top << (a & 63)
                                : (uint64_t)((int64_t)*top >= (int64_t)a);
        } else {
            return false;
        }
    }
    *ret_value = stack[n - 1];
    return n > 0;
}

typedef struct rules {
    uint64_t cfa_register;
    int64_t cfa_offset;
    bool cfa_unknown;      /* the tables say something that is not known here */
    reader cfa_expression; /* if there is one */
    reader expression[N_REGISTERS];
    uint8_t how[N_REGISTERS];
    int64_t offset[N_REGISTERS];
} rules;

static void set(rules *now, uint64_t which, uint8_t how, int64_t offset)
{
    if (which < N_REGISTERS) {
        now->how[which] = how;
        now->offset[which] = offset;
    }
}

static void carry_out(const entry *e, reader r, uint64_t pc, const rules *initial, rules *now)
{
    rules stack[3];
    unsigned depth = 0;
    uint64_t at = e->from, a;

    while (r.at < r.end && at <= pc) {
        uint8_t op = *r.at++;
        uint64_t low = op & 0x3f;
        switch (op & 0xc0) {
        case 0x40:
            at += low * e->code_unit;
            continue;
        case 0x80:
            set(now, low, AT_CFA, (int64_t)read_uleb(&r) * e->data_unit);
            continue;
        case 0xc0:
            if (low < N_REGISTERS)
                set(now, low, initial->how[low], initial->offset[low]);
            continue;
        default:
            break;
        }
        switch (op) {
        case 0x00:
            break; /* nop */
        case 0x01:
            at = read_bytes(&r, 8);
            break;
        case 0x02:
            at += read_bytes(&r, 1) * e->code_unit;
            break;
        case 0x03:
            at += read_bytes(&r, 2) * e->code_unit;
            break;
        case 0x04:
            at += read_bytes(&r, 4) * e->code_unit;
            break;
        case 0x05:
            a = read_uleb(&r);
            set(now, a, AT_CFA, (int64_t)read_uleb(&r) * e->data_unit);
            break;
        case 0x06:
            a = read_uleb(&r);
            if (a < N_REGISTERS)
                set(now, a, initial->how[a], initial->offset[a]);
            break;
        case 0x07:
            set(now, read_uleb(&r), UNKNOWN, 0);
            break;
        case 0x08:
            set(now, read_uleb(&r), SAME, 0);
            break;
        case 0x09:
            a = read_uleb(&r);
            set(now, a, IN_REGISTER, (int64_t)read_uleb(&r));
            break;
        case 0x0a:
            if (depth < sizeof stack / sizeof stack[0])
                stack[depth] = *now;
            depth++;
            break;
        case 0x0b:
            if (depth > 0 && --depth < sizeof stack / sizeof stack[0])
                *now = stack[depth];
            break;
        case 0x0c:
            now->cfa_register = read_uleb(&r);
            now->cfa_offset = (int64_t)read_uleb(&r);
            now->cfa_expression = (reader){NULL, NULL};
            break;
        case 0x0d:
            now->cfa_register = read_uleb(&r);
            now->cfa_expression = (reader){NULL, NULL};
            break;
        case 0x0e:
            now->cfa_offset = (int64_t)read_uleb(&r);
            break;
        case 0x0f:
            a = read_uleb(&r);
            now->cfa_expression = (reader){r.at, r.at + a};
            r.at += a;
            break;
        case 0x10:
        case 0x16: {
            uint64_t which = read_uleb(&r);
            a = read_uleb(&r);
            set(now, which, op == 0x10 ? AT_EXPRESSION : UNKNOWN, 0);
            if (which < N_REGISTERS)
                now->expression[which] = (reader){r.at, r.at + a};
            r.at += a;
            break;
        }
        case 0x11:
            a = read_uleb(&r);
            set(now, a, AT_CFA, read_sleb(&r) * e->data_unit);
            break;
        case 0x12:
            now->cfa_register = read_uleb(&r);
            now->cfa_offset = read_sleb(&r) * e->data_unit;
            now->cfa_expression = (reader){NULL, NULL};
            break;
        case 0x13:
            now->cfa_offset = read_sleb(&r) * e->data_unit;
            break;
        case 0x2e:
            read_uleb(&r);
            break; /* GNU_args_size */
        default:
            now->cfa_unknown = true;
            return;
        }
    }
}

/* The caller's frame by the tables; false if there is none, or it makes no sense. */
static bool step_by_table(frame *f, uint64_t pc)
{
    const object *o = audit_object_at(pc);
    entry e;
    rules initial = {0}, now;

    if (o == NULL || o->eh_frame_hdr == 0 || !read_entry(o, pc, &e) || e.is_signal)
        return false;
    carry_out(&e, e.common, UINT64_MAX, &initial, &initial);
    now = initial;
    carry_out(&e, e.own, pc, &initial, &now);
    uint64_t cfa, old_sp = f->r[RSP];
    if (now.cfa_unknown || now.cfa_register >= RIP)
        return false;
    if (now.cfa_expression.at == NULL)
        cfa = f->r[now.cfa_register] + (uint64_t)now.cfa_offset;
    else if (!work_out(f, now.cfa_expression, 0, &cfa))
        return false;
    if (cfa <= old_sp || cfa - old_sp > LARGEST_FRAME || cfa % 8 != 0)
        return false;
    frame next = *f;
    for (int i = 0; i < N_REGISTERS; i++) {
        if (now.how[i] == AT_CFA && !load(&next, cfa + (uint64_t)now.offset[i], &next.r[i]))
            return false;
        if (now.how[i] == AT_EXPRESSION) {
            uint64_t where;
            if (!work_out(f, now.expression[i], cfa, &where) || !load(&next, where, &next.r[i]))
                return false;
        }
        if (now.how[i] == IN_REGISTER && now.offset[i] >= 0 && now.offset[i] < N_REGISTERS)
            next.r[i] = f->r[now.offset[i]];
    }
    if (now.how[RIP] == UNKNOWN)
        next.r[RIP] = 0; /* the outermost function says so */
    else if (now.how[RIP] != AT_CFA || (next.r[RIP] != 0 && audit_object_at(next.r[RIP]) == NULL))
        return false;
    next.r[RSP] = cfa;
    *f = next;
    return true;
}

/* Whether the instruction before is a call. */
static bool behind_a_call(uint64_t address)
{
    const uint8_t *p = (const uint8_t *)address;

    if (p[-5] == 0xe8)
        return true;
    return (p[-2] == 0xff && (p[-1] & 0x38) == 0x10) || (p[-3] == 0xff && (p[-2] & 0x38) == 0x10) ||
           (p[-6] == 0xff && (p[-5] & 0x38) == 0x10) || (p[-7] == 0xff && (p[-6] & 0x38) == 0x10);
}

static bool step_by_search(frame *f)
{
    for (int i = 0; i < SEARCH_WORDS; i++) {
        uint64_t word, at = (f->r[RSP] & ~UINT64_C(7)) + 8 * (uint64_t)i;
        if (!load(f, at, &word))
            return false;
        const object *o = word > 4096 ? audit_object_at(word) : NULL;
        if (o == NULL || word - o->text < 8 || !behind_a_call(word))
            continue;
        f->r[RIP] = word;
        f->r[RSP] = at + 8;
        return true;
    }
    return false;
}

int audit_unwind(const void *context, uint64_t *ret_frame, int max)
{
    static const int order[N_REGISTERS] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
                                           REG_RBP, REG_RSP, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                           REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
    const ucontext_t *u = context;
    frame f = {.page = 0};
    int n = 0;

    for (int i = 0; i < N_REGISTERS; i++)
        f.r[i] = (uint64_t)u->uc_mcontext.gregs[order[i]];
    while (n < max && f.r[RIP] != 0) {
        uint64_t pc = n == 0 ? f.r[RIP]
                             : f.r[RIP] - 1; /* a return address may be past the function's end */
        ret_frame[n++] = pc;
        if (!step_by_table(&f, pc) && !step_by_search(&f))
            break;
    }
    return n;
}
