/* Pool: the compute threads. A region is a list of phases; a phase is a range cut into chunks whose
 * borders depend on the range alone, so results never depend on the number of threads. Chunks are
 * claimed one by one: a thread that lost its core delays the others by one chunk at most, and a
 * phase ends when its chunks are done, not when its threads have arrived. */
#ifndef MO_BASE_POOL_H
#define MO_BASE_POOL_H

#include "moraine.h"

typedef struct mo_pool mo_pool;

/* Processes [begin, end), at most `grain` items. thread: 0 .. mo_pool_threads()-1, unique at any time. */
typedef void (*mo_pool_fn)(void *ctx, int64_t begin, int64_t end, int thread);

/* Memory that later chunks read. Each thread prefetches the part that its own chunks will read. */
typedef struct mo_pool_ahead {
    const void *data;
    int64_t bytes;
    int64_t chunk_bytes; /* bytes of this memory that a chunk reads; the last chunk may read less */
    int64_t first;       /* the chunk that reads its beginning */
    int64_t count;       /* number of chunks; 0: every thread reads all of it */
} mo_pool_ahead;

/* Maximum length of a list. */
enum { MO_POOL_AHEAD_MAX = 24 };

typedef struct mo_phase {
    mo_pool_fn fn;
    void *ctx;
    int64_t count; /* items; 0 is allowed */
    int64_t grain; /* items per chunk, >= 1 */
    int part;      /* set by the owner to tell phases apart; not used by the pool */
    /* Every thread begins with its own share of consecutive chunks, then helps others: for chunks of
       equal work that read memory in order. */
    bool shares;
    /* Chunks from this one on are assigned after all earlier ones have been claimed, so that they may
       wait for those; 0: none. Not for regions that may be cancelled, because the awaited chunks may be
       skipped. */
    int64_t later;
    /* Memory read after this phase, in order: idle threads prefetch their parts of it until another phase
       sets a list, also between regions. Copied when the phase begins; the memory may be freed later. 0:
       keeps the current list. */
    const mo_pool_ahead *ahead;
    int ahead_count;
} mo_phase;

/* threads >= 1 includes the calling thread, which works too; 0 means one for each usable core. */
mo_status mo_pool_create(int threads, mo_pool **out, mo_error *err);
void mo_pool_destroy(mo_pool *pool); /* joins the threads; NULL is allowed */
int mo_pool_threads(const mo_pool *pool);
uint64_t
mo_pool_ahead_bytes(const mo_pool *pool); /* bytes prefetched by idle threads so far (mo_phase.ahead) */

/* The next regions follow within this many nanoseconds: threads stay awake until then, which saves wake-ups.
   0: unknown. Any thread. */
void mo_pool_expect(mo_pool *pool, int64_t within_ns);

/* Runs the phases in order and returns when the last one has ended. Chunks of a phase see all writes of
   earlier phases. One region at a time per pool (regions of several callers are serialized); a task must not
   start a region on its own pool. Allocates nothing. */
void mo_pool_region(mo_pool *pool, const mo_phase *phases, int count);

/* The same, until asked(ctx) says that the result is no longer needed, which must then remain so: further
   chunks are skipped and the region's output is undefined. Any thread may call asked. */
typedef bool (*mo_pool_asked)(const void *ctx);
void mo_pool_region_until(mo_pool *pool, const mo_phase *phases, int count, mo_pool_asked asked,
                          const void *ctx);

/* For a chunk that polls another thread, `looked` times so far: pauses, and sometimes yields the core. */
void mo_pool_pause(unsigned looked);

/* The same, but the thread prefetches memory of later phases (mo_phase.ahead). */
void mo_pool_wait(mo_pool *pool, int thread, unsigned looked);

/* Prefetches the first of these bytes without waiting. Returns their number, at most `bytes`. */
int64_t mo_pool_ask(const void *data, int64_t bytes);

/* A region of one phase. */
void mo_pool_run(mo_pool *pool, int64_t count, int64_t grain, mo_pool_fn fn, void *ctx);

#endif
