/* The machine: one block at a time, its threads as fibers. A fiber runs until it waits; who runs next is the seed's
 * choice. Nothing here is shared between OS threads but the list of kernels, complete before main(). */
#include "emulation.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "fiber.h"
#include "meeting.h"
#include "numeric/half.h"
#include "poison.h"

__thread uint3 threadIdx;
__thread uint3 blockIdx;
__thread uint3 blockDim;
__thread uint3 gridDim;

namespace
{

enum { LANES = 32, WARPS = 32, THREADS = LANES * WARPS, SHARED_MOST = 227 * 1024 };

enum State { RUNS, WAITS_IN_BLOCK, WAITS_IN_WARP, DONE };

struct Copy {
    void *to;
    const void *from;
    unsigned bytes;
    int group;
};

struct Thread {
    uint3 index;
    State state;
    mo_emulated_collective kind; /* while it waits in its warp */
    unsigned mask;
    uint64_t value; /* what it brought, then what it gets */
    unsigned with, width;
    int groups; /* of copies, committed */
    std::vector<Copy> copies;
};

/* Lanes that came to the same collective. There may be several at once: a half of the warp each. */
struct Gathering {
    mo_emulated_collective kind;
    unsigned mask, arrived;
};

struct Warp {
    unsigned exists, ready, done;
    int gatherings;
    Gathering gathering[LANES];
};

struct Machine {
    mo_fiber home;
    mo_fiber fibers[THREADS];
    unsigned stacks; /* fibers that have one */
    Thread threads[THREADS];
    Warp warps[WARPS];
    unsigned ready_warps;
    unsigned count, done, at_barrier, current;
    mo_emulated_barrier barrier;
    int barrier_sum; /* of the predicates, as 0 or 1 */
    int barrier_result;
    const char *kernel;
    mo_emulated_entry entry;
    const void *args;
    uint8_t *shared;
    uint64_t seed, random;
    bool abandoned;

    ~Machine()
    {
        mo_fiber_free(fibers, stacks);
    }
};

thread_local std::unique_ptr<Machine> mine; /* this OS thread's, kept for its stacks */
__thread Machine *machine;                  /* the same, quickly */

const mo_emulated_kernel *kernels;
const mo_emulated_meeting *meetings;
bool abandon; /* atomic */

const char *const COLLECTIVES[] = {
    "__syncwarp",
    "__shfl_sync",
    "__shfl_up_sync",
    "__shfl_down_sync",
    "__shfl_xor_sync",
    "__ballot_sync",
    "__reduce_add_sync",
    "__reduce_max_sync",
    "__reduce_max_sync (unsigned)",
    "__reduce_min_sync",
    "__reduce_min_sync (unsigned)",
    "__reduce_or_sync",
    "__reduce_and_sync",
    "__match_any_sync",
    "mo_mma_s8",
    "mo_mma_bf16",
};
const char *const BARRIERS[] = {"__syncthreads", "__syncthreads_or", "__syncthreads_and",
                                "__syncthreads_count"};

/* ---- What a kernel did wrong ---- */

void say(const char *form, ...) __attribute__((format(printf, 1, 2)));
[[noreturn]] void wrong(const char *form, ...) __attribute__((format(printf, 1, 2)));

void say(const char *form, ...)
{
    va_list list;
    va_start(list, form);
    vfprintf(stderr, form, list);
    va_end(list);
}

[[noreturn]] void wrong(const char *form, ...)
{
    const Machine *m = machine;
    const uint3 t = m->threads[m->current].index;
    say("emulated kernel %s, block (%u,%u,%u), thread (%u,%u,%u), seed %llu: ", m->kernel, blockIdx.x,
        blockIdx.y, blockIdx.z, t.x, t.y, t.z, (unsigned long long)m->seed);
    va_list list;
    va_start(list, form);
    vfprintf(stderr, form, list);
    va_end(list);
    say("\n");
    abort();
}

/* Nobody can go on. Says where the first threads of each sort stand. */
[[noreturn]] void stuck()
{
    const Machine *m = machine;
    int lines = 0;
    for (unsigned i = 0; i < m->count && lines < 40; i++) {
        const Thread *t = &m->threads[i];
        const Thread *before = i % LANES ? t - 1 : NULL;
        if (before && before->state == t->state && before->kind == t->kind && before->mask == t->mask) {
            continue; /* as the lane before it */
        }
        lines++;
        say("  warp %u from lane %u: ", i / LANES, i % LANES);
        if (t->state == WAITS_IN_WARP) {
            say("waits in %s, mask %08x\n", COLLECTIVES[t->kind], t->mask);
        } else {
            say("%s\n", t->state == DONE ? "has ended" : "waits in __syncthreads");
        }
    }
    wrong("the threads wait for each other for ever (above: who waits where)");
}

/* ---- Who runs next ---- */

uint64_t random_word(Machine *m)
{
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    return m->random;
}

unsigned choose_bit(Machine *m, unsigned set)
{
    if (m->seed == 0) {
        return (unsigned)__builtin_ctz(set);
    }
    if (m->seed == 1) {
        return 31 - (unsigned)__builtin_clz(set);
    }
    const unsigned by = (unsigned)(random_word(m) >> 33) & 31;
    const unsigned turned = set >> by | set << ((32 - by) & 31);
    return ((unsigned)__builtin_ctz(turned) + by) & 31;
}

void set_ready(Machine *m, unsigned warp, unsigned lanes)
{
    m->warps[warp].ready |= lanes;
    if (lanes) {
        m->ready_warps |= 1u << warp;
    }
}

void clear_ready(Machine *m, unsigned thread)
{
    Warp *warp = &m->warps[thread / LANES];
    warp->ready &= ~(1u << thread % LANES);
    if (!warp->ready) {
        m->ready_warps &= ~(1u << thread / LANES);
    }
}

/* In order, a warp runs as long as it can: that is fastest. Shuffled, any warp may be next. */
unsigned choose_next(Machine *m)
{
    const unsigned here = m->current / LANES;
    const unsigned warp = m->seed < 2 && m->warps[here].ready ? here : choose_bit(m, m->ready_warps);
    return warp * LANES + choose_bit(m, m->warps[warp].ready);
}

void switch_to(Machine *m, unsigned next, bool leaving)
{
    const unsigned from = m->current;
    if (next == from && !leaving) {
        return;
    }
    m->current = next;
    threadIdx = m->threads[next].index;
    mo_fiber_switch(&m->fibers[from], &m->fibers[next], leaving);
}

/* The current thread waits or has ended; when it runs again this returns. */
void run_others(Machine *m, bool leaving)
{
    if (m->ready_warps) {
        switch_to(m, choose_next(m), leaving);
    } else if (m->done == m->count) {
        mo_fiber_switch(&m->fibers[m->current], &m->home, true);
    } else {
        stuck();
    }
}

/* ---- Barriers of the block ---- */

/* Threads that have ended count as arrived, as they do on the devices. */
void open_barrier_if_all_came(Machine *m)
{
    if (m->at_barrier == 0 || m->at_barrier + m->done < m->count) {
        return;
    }
    const int sum = m->barrier_sum;
    m->barrier_result = m->barrier == MO_EMULATED_SYNC_AND  ? sum == (int)m->at_barrier
                        : m->barrier == MO_EMULATED_SYNC_OR ? sum > 0
                                                            : sum;
    m->at_barrier = 0;
    for (unsigned w = 0; w * LANES < m->count; w++) {
        const unsigned lanes = m->warps[w].exists & ~m->warps[w].done;
        for (unsigned left = lanes; left; left &= left - 1) {
            m->threads[w * LANES + (unsigned)__builtin_ctz(left)].state = RUNS;
        }
        set_ready(m, w, lanes);
    }
}

void end_thread(Machine *m)
{
    Thread *t = &m->threads[m->current];
    t->state = DONE;
    m->done++;
    m->warps[m->current / LANES].done |= 1u << m->current % LANES;
    clear_ready(m, m->current);
    open_barrier_if_all_came(m);
    run_others(m, true);
    __builtin_unreachable();
}

void thread_main()
{
    mo_fiber_arrived();
    Machine *m = machine;
    m->entry(m->args);
    end_thread(m);
}

/* ---- Collectives of a warp ---- */

uint64_t shuffled(const Thread *lanes, unsigned mask, unsigned lane)
{
    const Thread *t = &lanes[lane];
    const unsigned width = t->width, first = lane & ~(width - 1);
    unsigned from = lane;
    switch (t->kind) {
    case MO_EMULATED_SHFL: from = first | (t->with & (width - 1)); break;
    case MO_EMULATED_SHFL_UP: from = lane - first >= t->with ? lane - t->with : lane; break;
    case MO_EMULATED_SHFL_DOWN: from = t->with < width - (lane - first) ? lane + t->with : lane; break;
    default:
        from = lane ^ t->with;
        from = from < first + width ? from : lane; /* an earlier group may be read, a later one not */
    }
    return mask >> from & 1 ? lanes[from].value : (uint64_t)MO_EMULATED_POISON << 32 | MO_EMULATED_POISON;
}

uint32_t reduced(const Thread *lanes, unsigned mask, mo_emulated_collective kind)
{
    uint32_t r = (uint32_t)lanes[__builtin_ctz(mask)].value;
    for (unsigned left = mask & (mask - 1); left; left &= left - 1) {
        const uint32_t v = (uint32_t)lanes[__builtin_ctz(left)].value;
        switch (kind) {
        case MO_EMULATED_ADD: r += v; break;
        case MO_EMULATED_MAX_S32: r = (int32_t)v > (int32_t)r ? v : r; break;
        case MO_EMULATED_MAX_U32: r = v > r ? v : r; break;
        case MO_EMULATED_MIN_S32: r = (int32_t)v < (int32_t)r ? v : r; break;
        case MO_EMULATED_MIN_U32: r = v < r ? v : r; break;
        case MO_EMULATED_OR: r |= v; break;
        default: r &= v;
        }
    }
    return r;
}

uint32_t matching(const Thread *lanes, unsigned mask, uint64_t value)
{
    uint32_t same = 0;
    for (unsigned left = mask; left; left &= left - 1) {
        const unsigned lane = (unsigned)__builtin_ctz(left);
        same |= (uint32_t)(lanes[lane].value == value) << lane;
    }
    return same;
}

struct Mma {
    int32_t *d;
    const uint32_t *a, *b;
};

/* Where the words of the lanes lie in the matrices, by the definition of mma.m16n8k32: with g = lane / 4 and
 * c = lane mod 4, a word of a is row g (+8 for the odd ones), columns 4c.. (+16 for the last two); a word of b is
 * column g, rows 4c.. (+16 for the second); d is row g (+8 for the last two), columns 2c and 2c + 1. */
void multiply(Thread *lanes)
{
    int8_t a[16][32], b[8][32];
    for (unsigned lane = 0; lane < LANES; lane++) {
        const Mma *part = (const Mma *)(uintptr_t)lanes[lane].value;
        const unsigned g = lane / 4, c = lane % 4;
        for (unsigned i = 0; i < 4; i++) {
            memcpy(&a[g + (i & 1) * 8][4 * c + (i >> 1) * 16], &part->a[i], 4);
        }
        for (unsigned i = 0; i < 2; i++) {
            memcpy(&b[g][4 * c + i * 16], &part->b[i], 4);
        }
    }
    for (unsigned lane = 0; lane < LANES; lane++) {
        const Mma *part = (const Mma *)(uintptr_t)lanes[lane].value;
        for (unsigned i = 0; i < 4; i++) {
            const int8_t *row = a[lane / 4 + (i >> 1) * 8], *column = b[lane % 4 * 2 + (i & 1)];
            int32_t sum = 0;
            for (unsigned k = 0; k < 32; k++) {
                sum += row[k] * column[k];
            }
            part->d[i] = (int32_t)((uint32_t)part->d[i] + (uint32_t)sum);
        }
    }
}

struct MmaBf16 {
    float *d;
    const uint32_t *a, *b;
};

/* The same of mma.m16n8k16, words of two: columns 2c.. (+8 for the last two) of a, rows 2c.. (+8) of b. */
void multiply_bf16(Thread *lanes)
{
    uint16_t a[16][16], b[8][16];
    for (unsigned lane = 0; lane < LANES; lane++) {
        const MmaBf16 *part = (const MmaBf16 *)(uintptr_t)lanes[lane].value;
        const unsigned g = lane / 4, c = lane % 4;
        for (unsigned i = 0; i < 4; i++) {
            memcpy(&a[g + (i & 1) * 8][2 * c + (i >> 1) * 8], &part->a[i], 4);
        }
        for (unsigned i = 0; i < 2; i++) {
            memcpy(&b[g][2 * c + i * 8], &part->b[i], 4);
        }
    }
    for (unsigned lane = 0; lane < LANES; lane++) {
        const MmaBf16 *part = (const MmaBf16 *)(uintptr_t)lanes[lane].value;
        for (unsigned i = 0; i < 4; i++) {
            const uint16_t *row = a[lane / 4 + (i >> 1) * 8], *column = b[lane % 4 * 2 + (i & 1)];
            float sum = part->d[i];
            for (unsigned k = 0; k < 16; k++) {
                sum += mo_bf16_to_f32(row[k]) * mo_bf16_to_f32(column[k]);
            }
            part->d[i] = sum;
        }
    }
}

/* All lanes of the mask are here: everybody gets a result. */
void finish(Thread *lanes, mo_emulated_collective kind, unsigned mask)
{
    uint64_t result[LANES] = {0};
    const uint32_t together = kind >= MO_EMULATED_ADD && kind <= MO_EMULATED_AND ? reduced(lanes, mask, kind)
                              : kind == MO_EMULATED_BALLOT                       ? matching(lanes, mask, 1)
                                                                                 : 0;
    if (kind == MO_EMULATED_MMA) {
        multiply(lanes);
    } else if (kind == MO_EMULATED_MMA_BF16) {
        multiply_bf16(lanes);
    }
    for (unsigned left = mask; left; left &= left - 1) {
        const unsigned lane = (unsigned)__builtin_ctz(left);
        result[lane] = kind >= MO_EMULATED_SHFL && kind <= MO_EMULATED_SHFL_XOR ? shuffled(lanes, mask, lane)
                       : kind == MO_EMULATED_MATCH_ANY ? matching(lanes, mask, lanes[lane].value)
                                                       : together;
    }
    for (unsigned left = mask; left; left &= left - 1) {
        const unsigned lane = (unsigned)__builtin_ctz(left);
        lanes[lane].value = result[lane];
        lanes[lane].state = RUNS;
    }
}

Gathering *gathering_for(Warp *warp, mo_emulated_collective kind, unsigned mask)
{
    for (int i = 0; i < warp->gatherings; i++) {
        if (warp->gathering[i].kind == kind && warp->gathering[i].mask == mask) {
            return &warp->gathering[i];
        }
    }
    Gathering *g = &warp->gathering[warp->gatherings++];
    *g = Gathering{kind, mask, 0};
    return g;
}

void check_mask(const Machine *m, const char *what, unsigned mask)
{
    const Warp *warp = &m->warps[m->current / LANES];
    if (!(mask >> m->current % LANES & 1)) {
        wrong("%s with mask %08x, which lacks the lane that calls (%u)", what, mask, m->current % LANES);
    }
    if (mask & ~warp->exists) {
        wrong("%s with mask %08x names lanes that the block does not have (it has %08x)", what, mask,
              warp->exists);
    }
    if (mask & warp->done) {
        wrong("%s with mask %08x names lanes that have ended (%08x)", what, mask, mask & warp->done);
    }
}

} // namespace

uint64_t mo_emulated_warp(mo_emulated_collective kind, unsigned mask, uint64_t value, unsigned with,
                          unsigned width)
{
    Machine *m = machine;
    const unsigned lane = m->current % LANES, w = m->current / LANES;
    Thread *t = &m->threads[m->current];
    Warp *warp = &m->warps[w];
    check_mask(m, COLLECTIVES[kind], mask);
    if (width == 0 || width > LANES || (width & (width - 1))) {
        wrong("%s with width %u, which is no power of two up to 32", COLLECTIVES[kind], width);
    }
    t->state = WAITS_IN_WARP;
    t->kind = kind;
    t->mask = mask;
    t->value = value;
    t->with = with;
    t->width = width;
    Gathering *g = gathering_for(warp, kind, mask);
    g->arrived |= 1u << lane;
    if (g->arrived == mask) {
        *g = warp->gathering[--warp->gatherings];
        finish(m->threads + w * LANES, kind, mask);
        set_ready(m, w, mask);
        switch_to(m, choose_next(m), false);
    } else {
        clear_ready(m, m->current);
        run_others(m, false);
    }
    return t->value;
}

int mo_emulated_block(mo_emulated_barrier kind, int predicate)
{
    Machine *m = machine;
    if (m->at_barrier == 0) {
        m->barrier = kind;
        m->barrier_sum = 0;
    } else if (m->barrier != kind) {
        wrong("is in %s while other threads wait in %s", BARRIERS[kind], BARRIERS[m->barrier]);
    }
    m->at_barrier++;
    m->barrier_sum += predicate != 0;
    m->threads[m->current].state = WAITS_IN_BLOCK;
    clear_ready(m, m->current);
    open_barrier_if_all_came(m);
    run_others(m, false);
    return m->barrier_result; /* the next barrier cannot open before this thread comes to it */
}

void mo_mma_s8(int32_t d[4], const uint32_t a[4], const uint32_t b[2])
{
    const Mma part = {d, a, b};
    mo_emulated_warp(MO_EMULATED_MMA, 0xFFFFFFFFu, (uint64_t)(uintptr_t)&part, 0, 32);
}

void mo_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    const MmaBf16 part = {d, a, b};
    mo_emulated_warp(MO_EMULATED_MMA_BF16, 0xFFFFFFFFu, (uint64_t)(uintptr_t)&part, 0, 32);
}

/* ---- Copies that take their time ---- */

void mo_emulated_copy_later(void *shared, const void *global, unsigned bytes)
{
    Thread *t = &machine->threads[machine->current];
    if (((uintptr_t)shared | (uintptr_t)global) % bytes) {
        wrong("an asynchronous copy of %u bytes from %p to %p, which are not aligned to it", bytes, global,
              shared);
    }
    t->copies.push_back(Copy{shared, global, bytes, t->groups});
}

void mo_emulated_copy_commit()
{
    machine->threads[machine->current].groups++;
}

void mo_emulated_copy_wait(int groups_left)
{
    Thread *t = &machine->threads[machine->current];
    size_t kept = 0;
    for (const Copy &copy : t->copies) {
        if (copy.group < t->groups - groups_left) {
            memcpy(copy.to, copy.from, copy.bytes);
        } else {
            t->copies[kept++] = copy;
        }
    }
    t->copies.resize(kept);
}

/* ---- The rest of what a kernel asks ---- */

uint8_t *mo_emulated_shared()
{
    return machine->shared;
}

void mo_emulated_abandon(bool now)
{
    __atomic_store_n(&abandon, now, __ATOMIC_SEQ_CST);
}

static int code_of_kernels = 90;

int mo_emulated_code(void)
{
    return __atomic_load_n(&code_of_kernels, __ATOMIC_RELAXED);
}

void mo_emulated_set_code(int code)
{
    __atomic_store_n(&code_of_kernels, code, __ATOMIC_RELAXED);
}

/* To the next thread that can run, in turn: nobody starves, whatever the seed says. */
void mo_emulated_yield()
{
    Machine *m = machine;
    if (__atomic_load_n(&abandon, __ATOMIC_RELAXED)) {
        m->abandoned = true;
        mo_fiber_switch(&m->fibers[m->current], &m->home, true);
    }
    for (unsigned i = 1; i < m->count; i++) {
        const unsigned other = (m->current + i) % m->count;
        if (m->warps[other / LANES].ready >> other % LANES & 1) {
            switch_to(m, other, false);
            return;
        }
    }
    sched_yield(); /* all wait for somebody outside */
}

uint64_t mo_emulated_nanoseconds()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- Launches ---- */

mo_emulated_kernel::mo_emulated_kernel(const char *kernel_name, mo_emulated_entry kernel_entry,
                                       size_t args_bytes)
    : name(kernel_name), entry(kernel_entry), bytes(args_bytes), next(kernels)
{
    kernels = this;
}

mo_emulated_entry mo_emulated_find(const char *kernel, size_t *bytes)
{
    for (const mo_emulated_kernel *k = kernels; k; k = k->next) {
        if (strcmp(k->name, kernel) == 0) {
            *bytes = k->bytes;
            return k->entry;
        }
    }
    return NULL;
}

namespace
{

thread_local bool seed_is_fixed;
thread_local uint64_t seed_fixed;
uint64_t seed_next; /* atomic */

uint64_t seed_of_launch()
{
    const char *text = getenv("MO_EMULATION_SEED");
    return seed_is_fixed ? seed_fixed
           : text        ? strtoull(text, NULL, 10)
                         : __atomic_fetch_add(&seed_next, 1, __ATOMIC_RELAXED);
}

void prepare_block(Machine *m, uint32_t shared_bytes)
{
    for (unsigned w = 0; w * LANES < m->count; w++) {
        const unsigned lanes = m->count - w * LANES;
        Warp *warp = &m->warps[w];
        warp->exists = lanes >= LANES ? 0xFFFFFFFFu : (1u << lanes) - 1;
        warp->ready = warp->done = 0;
        warp->gatherings = 0;
        set_ready(m, w, warp->exists);
    }
    for (unsigned i = 0; i < m->count; i++) {
        Thread *t = &m->threads[i];
        t->index = uint3{i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
        t->state = RUNS;
        t->groups = 0;
        t->copies.clear();
        mo_fiber_prepare(&m->fibers[i], thread_main);
    }
    m->done = m->at_barrier = 0;
    if (shared_bytes) {
        mo_poison_fill(m->shared, shared_bytes);
    }
    mo_poison_shared();
}

void run_block(Machine *m, uint32_t shared_bytes)
{
    prepare_block(m, shared_bytes);
    m->current = 0;
    m->current = choose_next(m);
    threadIdx = m->threads[m->current].index;
    mo_fiber_switch(&m->home, &m->fibers[m->current], false);
    if (m->abandoned) {
        mo_fiber_reclaim(m->fibers, m->count);
    }
}

/* The i-th block to run is (i + 1) * step mod blocks: all of them, in the seed's order, when the two have no factor in
 * common. */
uint64_t block_step(uint64_t seed, uint64_t blocks)
{
    for (uint64_t step = seed == 1 ? blocks - 1 : seed * 2654435761u % blocks;; step++) {
        uint64_t a = step, b = blocks;
        while (a) {
            const uint64_t rest = b % a;
            b = a;
            a = rest;
        }
        if (b == 1) {
            return step % blocks;
        }
    }
}

void check_launch(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes)
{
    const uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    if (threads == 0 || threads > THREADS || block[2] > 64) {
        wrong("a block of %ux%ux%u threads; 1 to 1024 can be launched", block[0], block[1], block[2]);
    }
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || grid[0] > INT32_MAX || grid[1] > 65535 ||
        grid[2] > 65535) {
        wrong("a grid of %ux%ux%u blocks, which no device launches", grid[0], grid[1], grid[2]);
    }
    if (shared_bytes > SHARED_MOST) {
        wrong("%u bytes of shared memory; no device has more than %d", shared_bytes, SHARED_MOST);
    }
}

} // namespace

void mo_emulated_seed(uint64_t seed)
{
    seed_is_fixed = true;
    seed_fixed = seed;
}

namespace
{

/* What a launch is, for every OS thread that runs blocks of it. */
struct Grid {
    const char *kernel;
    mo_emulated_entry entry;
    const void *args;
    const uint32_t *grid, *block;
    uint32_t shared_bytes;
    uint64_t seed, blocks, step;
    std::atomic<uint64_t> next;
    std::atomic<bool> abandoned;
};

/* Blocks that nobody runs yet, one after the other, until there are none. */
void run_blocks(Grid *g)
{
    if (!mine) {
        mine.reset(new Machine());
    }
    Machine *m = machine = mine.get();
    m->kernel = g->kernel;
    m->entry = g->entry;
    m->args = g->args;
    m->seed = g->seed;
    m->random = m->seed * 0x9E3779B97F4A7C15u | 1;
    m->current = 0;
    check_launch(g->grid, g->block, g->shared_bytes);
    m->count = g->block[0] * g->block[1] * g->block[2];
    if (m->stacks < m->count) {
        mo_fiber_stacks(m->fibers + m->stacks, m->count - m->stacks);
        m->stacks = m->count;
    }
    m->shared = NULL;
    if (g->shared_bytes && posix_memalign((void **)&m->shared, 128, g->shared_bytes) != 0) {
        wrong("no memory for %u bytes of shared memory", g->shared_bytes);
    }
    gridDim = uint3{g->grid[0], g->grid[1], g->grid[2]};
    blockDim = uint3{g->block[0], g->block[1], g->block[2]};
    m->abandoned = false;
    for (uint64_t i; !g->abandoned && (i = g->next++) < g->blocks;) {
        const uint64_t b = g->seed == 0 ? i : (i + 1) * g->step % g->blocks;
        blockIdx = uint3{(unsigned)(b % g->grid[0]), (unsigned)(b / g->grid[0] % g->grid[1]),
                         (unsigned)(b / g->grid[0] / g->grid[1])};
        run_block(m, g->shared_bytes);
        if (m->abandoned) {
            g->abandoned = true;
        }
    }
    free(m->shared);
}

/* As many blocks at once as a small device holds: whoever waits for another block must find it there, in whatever order they come. */
enum { TOGETHER = 40 };

bool meets(const char *kernel)
{
    for (const mo_emulated_meeting *k = meetings; k; k = k->next) {
        if (strcmp(k->name, kernel) == 0) {
            return true;
        }
    }
    return false;
}

} // namespace

mo_emulated_meeting::mo_emulated_meeting(const char *kernel_name) : name(kernel_name), next(meetings)
{
    meetings = this;
}

void mo_emulated_launch(const char *kernel, mo_emulated_entry entry, const void *args, const uint32_t grid[3],
                        const uint32_t block[3], uint32_t shared_bytes)
{
    Grid g = {.kernel = kernel,
              .entry = entry,
              .args = args,
              .grid = grid,
              .block = block,
              .shared_bytes = shared_bytes,
              .seed = seed_of_launch(),
              .blocks = (uint64_t)grid[0] * grid[1] * grid[2],
              .step = 0,
              .next = {0},
              .abandoned = {false}};
    g.step = g.blocks ? block_step(g.seed, g.blocks) : 0;
    std::vector<std::thread> others;
    for (uint64_t i = 1; meets(kernel) && i < g.blocks && i < TOGETHER; i++) {
        others.emplace_back(run_blocks, &g);
    }
    run_blocks(&g);
    for (std::thread &other : others) {
        other.join();
    }
}
