/* The pool owns its threads and one job: the open phase.

   Claiming a chunk. `unclaimed` is the number of unclaimed chunks of the open phase. A thread claims one by a
   decrement that found a positive number, and reads the job only after that. The claimed chunk keeps the
   phase from ending, so the job cannot change meanwhile. A late thread therefore claims a chunk of the
   current phase or nothing; it can never run a chunk with another phase's function. Decrements that found
   nothing leave a small negative number, which the next phase overwrites.

   Shares. A phase may give every thread its own share: then each worker's `left` counts its unclaimed chunks
   by the same rule, and `unclaimed` is unused. A thread whose share is empty takes from the worker with the
   most chunks left. Empty shares stay empty until the next phase, which increments `opened`, so a thread
   searches them once. If some chunks are later ones, each share has two parts, and a thread takes from a
   second part only after it found all first parts empty. (A thread that found those of the previous phase
   empty may take from a second part of the next phase at once, and wait: the thread that opened the phase
   takes the rest of the first.)

   Prefetching by idle threads. A phase lists the memory that later phases read. The thread that opens it
   copies the list to `ahead`, and idle threads prefetch their parts step by step, looking for work in
   between. There is no lock: a thread that reads the list while it is written may prefetch the wrong memory,
   which only costs a little time.

   Ending a phase. `unfinished` counts chunks that are not finished. The thread that decrements it to zero is
   the only one: it opens the next phase or closes the region, so no phase waits for the calling thread.

   Sleeping. A thread increments `sleepers`, sets `parked` of its worker, looks for work once more, and waits.
   The thread that opens a phase stores `unclaimed` first and reads `sleepers` afterwards. All accesses are
   sequentially consistent, so one of the two sees the other. A missed wake-up would only cost speed, because
   the thread that opens a phase also works on it. */
#include "base/pool.h"

#include "base/clock.h"
#include "base/host.h"
#include "base/machine.h"
#include "base/status.h"
#include "base/thread.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Two lines: x86 prefetches lines in pairs. */
#define LINE_BYTES  128
#define MAX_THREADS 1024
#define MAX_CORES   CPU_SETSIZE /* other cores are used, but not tracked */
/* About the cost of a sleep and a wake-up together, so that waiting costs at most twice the optimum. */
#define SPIN_NS 50000
/* Reads the clock once per this many pauses (1 to 2 us). */
#define SPIN_PAUSES 32
/* Wakes this many sleepers; each of them wakes as many more. A wake-up costs its caller 1 to 3 us. */
#define WAKE_FANOUT 4

/* Bytes that an idle thread prefetches at a time, and the maximum of a list: they should fit its cache
   together with its current data. */
enum { AHEAD_STEP = 2048, AHEAD_MOST = 512 * 1024 };

/* The pool's copy of a mo_pool_ahead. */
typedef struct ahead {
    _Atomic uintptr_t data;
    _Atomic int64_t bytes, chunk_bytes, first, count;
} ahead;

/* How much of its part of a stretch a thread has prefetched, and when. */
typedef struct asked_part {
    uintptr_t data;
    uint64_t named;
    int64_t bytes;
} asked_part;
enum { ASKED_PARTS = 8, ASKED_LISTS = 4 };

/* The parts of a share: normal chunks and later ones. */
enum { PARTS = 2 };

typedef struct worker {
    /* futex: 1 while asleep; the thread that changes it to 0 wakes it */
    alignas(LINE_BYTES) _Atomic uint32_t parked;
    _Atomic int core; /* where its thread was last seen */
    mo_pool *pool;
    pthread_t thread; /* worker 0 is the caller and has none */
    int index;
    uint64_t emptied[PARTS]; /* the phase whose shares it found empty */
    /* Prefetching: number of the list, position in it, and bytes of all its parts; and progress in recent
       stretches, which may be listed again. */
    uint64_t named;
    int asking, known;
    int64_t asked;
    _Atomic uint64_t asked_ever;
    asked_part parts[ASKED_PARTS];
    alignas(LINE_BYTES) _Atomic int64_t left[PARTS]; /* unclaimed chunks of its share */
} worker;

struct mo_pool {
    /* One cache line: the decrement that claims a chunk also loads the chunk's data. Written by the
       thread that opens a phase, read by threads with a claimed chunk. */
    alignas(LINE_BYTES) _Atomic int64_t unclaimed;
    _Atomic uint64_t opened;   /* number of phases with shares so far */
    int64_t chunks;            /* of the open phase, at least 2 */
    int64_t bounds[PARTS + 1]; /* the first chunk of each part of its shares, and the end */
    mo_phase phase;            /* a copy of the open phase */
    /* Of the region: NULL, or says whether its work is still needed. On this line so that checking it is
       cheap. */
    mo_pool_asked asked;
    const void *asked_ctx;
    alignas(LINE_BYTES) _Atomic int64_t unfinished;
    /* The caller's list, valid until the region is closed; for the thread that opens a phase. */
    const mo_phase *phases;
    int phase_count, phase_next;
    /* Set by the last phase with a list. */
    alignas(LINE_BYTES) _Atomic uint64_t named; /* number of lists so far */
    _Atomic int ahead_count;
    ahead ahead[MO_POOL_AHEAD_MAX];
    alignas(LINE_BYTES) _Atomic int sleepers; /* workers that are parked or about to be */
    _Atomic bool open;                        /* a region is running */
    _Atomic bool stop;
    alignas(LINE_BYTES) pthread_mutex_t region_lock; /* one region at a time */
    int threads, started;
    int awake_most;                    /* further threads are not woken, because they would disturb */
    _Atomic int64_t spin_ns;           /* how long an idle thread spins before it sleeps */
    _Atomic int16_t owners[MAX_CORES]; /* by core: 1 + the worker last seen there, 0: none */
    worker workers[];
};

static void cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); /* yield does nothing on most cores */
#endif
}

void mo_pool_pause(unsigned looked)
{
    if (looked % 1024 == 1023) {
        sched_yield();
    } else {
        cpu_pause();
    }
}

/* Does nothing if the worker is awake. True if it slept. */
static bool wake_worker(mo_pool *pool, int index)
{
    worker *s = &pool->workers[index];
    if (atomic_load(&s->parked) != 1 || atomic_exchange(&s->parked, 0) != 1) {
        return false;
    }
    atomic_fetch_sub(&pool->sleepers, 1);
    syscall(SYS_futex, &s->parked, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    return true;
}

static void wake_some(mo_pool *pool, int64_t wanted)
{
    int sleepers = atomic_load(&pool->sleepers);
    int64_t left = wanted < WAKE_FANOUT ? wanted : WAKE_FANOUT;
    if (left > pool->awake_most - (pool->threads - sleepers)) {
        /* more than one thread per core would disturb */
        left = pool->awake_most - (pool->threads - sleepers);
    }
    if (sleepers == 0) {
        return;
    }
    for (int i = 0; i < pool->threads && left > 0; i++) {
        left -= wake_worker(pool, i);
    }
}

/* Runs a claimed chunk, or skips it if the region is not wanted any more. */
static void run_items(const mo_pool *pool, const mo_phase *p, int64_t begin, int64_t end, int thread)
{
    if (!pool->asked || !pool->asked(pool->asked_ctx)) {
        p->fn(p->ctx, begin, end, thread);
    }
}

/* ---- Shares ----------------------------------------------------------------------------------- */

/* The first chunk of a thread's share of a part; the next thread's is its end. */
static int64_t share_of(const mo_pool *pool, int part, int thread)
{
    const int64_t first = pool->bounds[part];
    return first + (pool->bounds[part + 1] - first) * thread / pool->threads;
}

/* After the last share is stored, others may end the phase and open the next one, so nothing of the phase is
   accessed afterwards. The last thread has chunks in every part that is not empty, so empty parts are not
   searched. */
static void open_shares(mo_pool *pool, int64_t later)
{
    const int64_t chunks = pool->chunks;
    const int parts = later > 0 && later < chunks ? PARTS : 1;
    pool->bounds[0] = 0;
    pool->bounds[1] = parts == PARTS ? later : chunks;
    pool->bounds[2] = chunks;
    for (int i = 0; i < parts * pool->threads; i++) {
        const int part = i / pool->threads, thread = i % pool->threads;
        const int64_t share = share_of(pool, part, thread + 1) - share_of(pool, part, thread);
        if (share > 0) {
            atomic_store_explicit(&pool->workers[thread].left[part], share, memory_order_release);
        }
    }
    atomic_fetch_add(&pool->opened, 1);
}

/* Claims a chunk of a worker's share. -1: none left. */
static int64_t take_of(mo_pool *pool, int part, int owner)
{
    worker *s = &pool->workers[owner];
    if (atomic_load_explicit(&s->left[part], memory_order_relaxed) <= 0) {
        return -1;
    }
    const int64_t left = atomic_fetch_sub_explicit(&s->left[part], 1, memory_order_acq_rel);
    return left > 0 ? share_of(pool, part, owner + 1) - left : -1;
}

/* The worker with the most chunks left. -1: none. */
static int most_left(mo_pool *pool, int part, int thread)
{
    int64_t most = 0;
    int owner = -1;
    for (int i = 1; i < pool->threads; i++) {
        const int other = (thread + i) % pool->threads;
        const int64_t left = atomic_load_explicit(&pool->workers[other].left[part], memory_order_relaxed);
        if (left > most) {
            most = left;
            owner = other;
        }
    }
    return owner;
}

/* Claims a chunk of a part: first from its own share, then from others. -1: none left. */
static int64_t take_part(mo_pool *pool, int part, int thread)
{
    worker *s = &pool->workers[thread];
    int64_t chunk = take_of(pool, part, thread);
    if (chunk >= 0) {
        return chunk;
    }
    const uint64_t opened = atomic_load(&pool->opened);
    while (s->emptied[part] != opened) {
        const int owner = most_left(pool, part, thread);
        if (owner < 0) {
            s->emptied[part] = opened;
            break;
        }
        chunk = take_of(pool, part, owner);
        if (chunk >= 0) {
            return chunk;
        }
    }
    return -1;
}

/* Claims a chunk of a phase with shares. -1: none left. */
static int64_t take_share(mo_pool *pool, int thread)
{
    int64_t chunk = -1;
    for (int part = 0; part < PARTS && chunk < 0; part++) {
        chunk = take_part(pool, part, thread);
    }
    return chunk;
}

/* ---- Prefetching ---- */

int64_t mo_pool_ask(const void *data, int64_t bytes)
{
    const int64_t some = bytes < AHEAD_STEP ? bytes : AHEAD_STEP;
    for (int64_t i = 0; i < some; i += 64) { /* into the second-level cache: there is time until it is read */
        __builtin_prefetch((const void *)((uintptr_t)data + (uintptr_t)i), 0, 2);
    }
    return some;
}

static void name_ahead(mo_pool *pool, const mo_phase *p)
{
    const int count = p->ahead_count < MO_POOL_AHEAD_MAX ? p->ahead_count : MO_POOL_AHEAD_MAX;
    for (int i = 0; i < count; i++) {
        ahead *a = &pool->ahead[i];
        atomic_store_explicit(&a->data, (uintptr_t)p->ahead[i].data, memory_order_relaxed);
        atomic_store_explicit(&a->bytes, p->ahead[i].bytes, memory_order_relaxed);
        atomic_store_explicit(&a->chunk_bytes, p->ahead[i].chunk_bytes, memory_order_relaxed);
        atomic_store_explicit(&a->first, p->ahead[i].first, memory_order_relaxed);
        atomic_store_explicit(&a->count, p->ahead[i].count, memory_order_relaxed);
    }
    if (count > 0) {
        atomic_store_explicit(&pool->ahead_count, count, memory_order_relaxed);
        atomic_fetch_add_explicit(&pool->named, 1, memory_order_release);
    }
}

/* The progress in a stretch: data prefetched a few lists ago is still cached. */
static asked_part *asked_of(worker *s, uintptr_t data)
{
    for (int i = 0; i < ASKED_PARTS; i++) {
        if (s->parts[i].data == data && s->named - s->parts[i].named < ASKED_LISTS) {
            return &s->parts[i];
        }
    }
    s->known = (s->known + 1) % ASKED_PARTS;
    s->parts[s->known] = (asked_part){.data = data, .named = s->named};
    return &s->parts[s->known];
}

/* Prefetches the next lines of the thread's part of a stretch, as in share_of(). False: all was
   prefetched. */
static bool ask_part(const mo_pool *pool, worker *s, const ahead *a)
{
    const int64_t bytes = atomic_load_explicit(&a->bytes, memory_order_relaxed);
    const int64_t chunk_bytes = atomic_load_explicit(&a->chunk_bytes, memory_order_relaxed);
    const int64_t first = atomic_load_explicit(&a->first, memory_order_relaxed);
    const int64_t count = atomic_load_explicit(&a->count, memory_order_relaxed);
    int64_t from = (count * s->index / pool->threads - first) * chunk_bytes;
    int64_t to = count > 0 ? (count * (s->index + 1) / pool->threads - first) * chunk_bytes : bytes;
    from = from > 0 ? from : 0;
    to = to < bytes ? to : bytes;
    if (from >= to) {
        return false;
    }
    const uintptr_t data = atomic_load_explicit(&a->data, memory_order_relaxed);
    asked_part *part = asked_of(s, data);
    from += part->bytes;
    if (from >= to) {
        return false;
    }
    const int64_t some = mo_pool_ask((const void *)(data + (uintptr_t)from), to - from);
    part->bytes += some;
    s->asked += some;
    /* No other thread adds to it. */
    const uint64_t ever = atomic_load_explicit(&s->asked_ever, memory_order_relaxed);
    atomic_store_explicit(&s->asked_ever, ever + (uint64_t)some, memory_order_relaxed);
    return true;
}

/* Prefetches a little of what the thread will read. False: nothing left. */
static bool ask_ahead(mo_pool *pool, worker *s)
{
    const uint64_t named = atomic_load_explicit(&pool->named, memory_order_acquire);
    if (named != s->named) {
        s->named = named;
        s->asking = 0;
        s->asked = 0;
    }
    const int count = atomic_load_explicit(&pool->ahead_count, memory_order_relaxed);
    for (; s->asking < count && s->asked < AHEAD_MOST; s->asking++) {
        if (ask_part(pool, s, &pool->ahead[s->asking])) {
            return true;
        }
    }
    return false;
}

void mo_pool_wait(mo_pool *pool, int thread, unsigned looked)
{
    if (!ask_ahead(pool, &pool->workers[thread])) {
        mo_pool_pause(looked);
    }
}

/* ---- Phases ----------------------------------------------------------------------------------- */

/* Opens the next phase with more than one chunk, or closes the region. Called by the caller before the first
   phase and by the thread that finished the last chunk of a phase, so by one thread at a time. A phase of one
   chunk runs immediately: handing it over would cost more. */
static void advance(mo_pool *pool, int thread)
{
    while (pool->phase_next < pool->phase_count) {
        const mo_phase *p = &pool->phases[pool->phase_next++];
        int64_t grain = p->grain > 0 ? p->grain : 1;
        if (p->count <= 0) {
            continue;
        }
        name_ahead(pool, p);
        if (p->count <= grain) {
            run_items(pool, p, 0, p->count, thread);
            continue;
        }
        int64_t chunks = p->count / grain + (p->count % grain != 0);
        pool->phase = *p;
        pool->phase.grain = grain;
        pool->chunks = chunks;
        atomic_store_explicit(&pool->unfinished, chunks, memory_order_relaxed);
        if (p->shares) {
            open_shares(pool, p->later);
        } else {
            atomic_store(&pool->unclaimed, chunks);
        }
        wake_some(pool, chunks - 1);
        return;
    }
    /* Now the caller may return: its list of phases is not accessed any more. */
    atomic_store(&pool->open, false);
    if (thread != 0) {
        wake_worker(pool, 0);
    }
}

/* Claims a chunk of a phase without shares. -1: none left. */
static int64_t take_next(mo_pool *pool)
{
    if (atomic_load_explicit(&pool->unclaimed, memory_order_relaxed) <= 0) {
        return -1;
    }
    const int64_t left = atomic_fetch_sub_explicit(&pool->unclaimed, 1, memory_order_acq_rel);
    return left > 0 ? pool->chunks - left : -1;
}

/* Claims and runs one chunk of the open phase. False: none left. */
static bool run_chunk(mo_pool *pool, int thread)
{
    int64_t chunk = take_share(pool, thread);
    chunk = chunk < 0 ? take_next(pool) : chunk;
    if (chunk < 0) {
        return false;
    }
    const mo_phase *p = &pool->phase;
    int64_t begin = chunk * p->grain;
    int64_t rest = p->count - begin;
    run_items(pool, p, begin, begin + (rest < p->grain ? rest : p->grain), thread);
    return true;
}

/* Works until nothing is left to claim. Finished chunks are reported together at the end: the phase cannot
   end before, so they all belong to it, and the counter is accessed once. */
static void work(mo_pool *pool, int thread)
{
    int64_t done;
    do {
        for (done = 0; run_chunk(pool, thread); done++) {
        }
        if (done && atomic_fetch_sub_explicit(&pool->unfinished, done, memory_order_acq_rel) == done) {
            advance(pool, thread);
        }
    } while (done);
}

static bool ready(mo_pool *pool, int thread)
{
    const worker *s = &pool->workers[thread];
    return atomic_load(&pool->unclaimed) > 0 || atomic_load(&s->left[0]) > 0 ||
           atomic_load(&pool->opened) != s->emptied[PARTS - 1] ||
           (thread == 0 ? !atomic_load(&pool->open) : atomic_load(&pool->stop));
}

static void park(mo_pool *pool, int thread)
{
    worker *s = &pool->workers[thread];
    /* Incremented before another thread can wake it and decrement the count: sleepers is never less than
       the number of parked threads. */
    atomic_fetch_add(&pool->sleepers, 1);
    atomic_store(&s->parked, 1);
    if (ready(pool, thread)) {
        if (atomic_exchange(&s->parked, 0) == 1) {
            atomic_fetch_sub(&pool->sleepers, 1);
        }
        return;
    }
    while (atomic_load(&s->parked) == 1) {
        syscall(SYS_futex, &s->parked, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
    }
    const bool shares = atomic_load(&pool->opened) != s->emptied[PARTS - 1];
    wake_some(pool,
              atomic_load_explicit(shares ? &pool->unfinished : &pool->unclaimed, memory_order_relaxed) - 1);
}

/* ---- Cores ---- */

/* Does worker `owner` - 1 probably run on this core? */
static bool works_there(mo_pool *pool, int owner, int core)
{
    worker *s = &pool->workers[owner > 0 ? owner - 1 : 0];
    return owner > 0 && atomic_load_explicit(&s->core, memory_order_relaxed) == core &&
           atomic_load_explicit(&s->parked, memory_order_relaxed) == 0;
}

/* Records the core of this thread. True if another thread of the pool works on it. */
static bool shares_core(mo_pool *pool, int thread)
{
    int core = sched_getcpu();
    if (core < 0 || core >= MAX_CORES) {
        return false;
    }
    worker *s = &pool->workers[thread];
    int owner = atomic_load_explicit(&pool->owners[core], memory_order_relaxed);
    if (atomic_load_explicit(&s->core, memory_order_relaxed) != core) {
        atomic_store_explicit(&s->core, core, memory_order_relaxed);
    }
    if (owner == thread + 1) {
        return false;
    }
    if (works_there(pool, owner, core)) {
        return true;
    }
    atomic_store_explicit(&pool->owners[core], (int16_t)(thread + 1), memory_order_relaxed);
    return false;
}

/* ---- Waiting ---------------------------------------------------------------------------------- */

/* Returns when there may be work, or when the region (caller) or the pool (workers) is closed. Spins first,
   unless that would take the core from a working thread. On two busy cores regions took about a tenth less
   time that way, with a wide spread (docs/lab-notes.md); moving such a thread to another core was slower. */
static void wait_for_work(mo_pool *pool, int thread)
{
    bool shared = shares_core(pool, thread);
    bool crowded = pool->threads - atomic_load(&pool->sleepers) > pool->awake_most;
    if (!shared && !crowded) {
        const int64_t spin_ns = atomic_load_explicit(&pool->spin_ns, memory_order_relaxed);
        int64_t start = mo_clock_ns();
        do {
            for (int i = 0; i < SPIN_PAUSES; i++) {
                if (ready(pool, thread)) {
                    return;
                }
                if (!ask_ahead(pool, &pool->workers[thread])) {
                    cpu_pause();
                }
            }
        } while (mo_clock_ns() - start < spin_ns);
    }
    park(pool, thread);
}

static void *run_worker(void *arg)
{
    worker *s = arg;
    mo_host_float_mode();
    while (!atomic_load(&s->pool->stop)) {
        work(s->pool, s->index);
        wait_for_work(s->pool, s->index);
    }
    return NULL;
}

static int start_workers(mo_pool *pool)
{
    int failed = 0;
    for (int i = 1; i < pool->threads && !failed; i++) {
        worker *s = &pool->workers[i];
        char name[32]; /* the kernel keeps 15 bytes, enough for MAX_THREADS */
        snprintf(name, sizeof name, "moraine-%d", i);
        failed = mo_thread_start(&s->thread, name, run_worker, s);
        pool->started = failed ? pool->started : i;
    }
    return failed;
}

mo_status mo_pool_create(int threads, mo_pool **out, mo_error *err)
{
    *out = NULL;
    if (threads < 0 || threads > MAX_THREADS) {
        return mo_fail(err, MO_EINVAL,
                       "%d threads were requested; give 1 to %d, or 0 for one per usable core", threads,
                       MAX_THREADS);
    }
    int cores = mo_machine_cores_usable("");
    threads = threads ? threads : cores < MAX_THREADS ? cores : MAX_THREADS;
    size_t bytes = sizeof(mo_pool) + (size_t)threads * sizeof(worker);
    mo_pool *pool = aligned_alloc(LINE_BYTES, bytes);
    if (!pool) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a pool of %d threads", threads);
    }
    memset(pool, 0, bytes);
    atomic_init(&pool->spin_ns, SPIN_NS);
    pool->threads = threads;
    /* at least two, so that a blocked chunk does not stop all others */
    pool->awake_most = cores > 2 ? cores : 2;
    pthread_mutex_init(&pool->region_lock, NULL);
    for (int i = 0; i < threads; i++) {
        pool->workers[i].pool = pool;
        pool->workers[i].index = i;
    }
    int failed = start_workers(pool);
    if (failed) {
        int started = pool->started + 1;
        mo_pool_destroy(pool);
        return mo_fail(err, MO_ENOMEM, "only %d of %d threads could be started (%s); use fewer threads",
                       started, threads, strerror(failed));
    }
    *out = pool;
    return MO_OK;
}

void mo_pool_destroy(mo_pool *pool)
{
    if (!pool) {
        return;
    }
    atomic_store(&pool->stop, true);
    for (int i = 1; i <= pool->started; i++) {
        wake_worker(pool, i);
    }
    for (int i = 1; i <= pool->started; i++) {
        pthread_join(pool->workers[i].thread, NULL);
    }
    pthread_mutex_destroy(&pool->region_lock);
    free(pool);
}

void mo_pool_expect(mo_pool *pool, int64_t within_ns)
{
    atomic_store_explicit(&pool->spin_ns, within_ns > SPIN_NS ? within_ns : SPIN_NS, memory_order_relaxed);
}

uint64_t mo_pool_ahead_bytes(const mo_pool *pool)
{
    uint64_t bytes = 0;
    for (int i = 0; i < pool->threads; i++) {
        bytes += atomic_load_explicit(&pool->workers[i].asked_ever, memory_order_relaxed);
    }
    return bytes;
}

int mo_pool_threads(const mo_pool *pool)
{
    return pool->threads;
}

void mo_pool_region(mo_pool *pool, const mo_phase *phases, int count)
{
    mo_pool_region_until(pool, phases, count, NULL, NULL);
}

void mo_pool_region_until(mo_pool *pool, const mo_phase *phases, int count, mo_pool_asked asked,
                          const void *ctx)
{
    pthread_mutex_lock(&pool->region_lock);
    pool->asked = asked;
    pool->asked_ctx = ctx;
    pool->phases = phases;
    pool->phase_count = count;
    pool->phase_next = 0;
    shares_core(pool, 0);
    atomic_store_explicit(&pool->open, true, memory_order_relaxed);
    advance(pool, 0);
    while (work(pool, 0), atomic_load(&pool->open)) {
        wait_for_work(pool, 0);
    }
    pthread_mutex_unlock(&pool->region_lock);
}

void mo_pool_run(mo_pool *pool, int64_t count, int64_t grain, mo_pool_fn fn, void *ctx)
{
    mo_phase phase = {.fn = fn, .ctx = ctx, .count = count, .grain = grain};
    mo_pool_region(pool, &phase, 1);
}
