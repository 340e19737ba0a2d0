/* Pool: the compute threads. A region is a list of phases; a phase is a range cut into chunks whose
 * borders depend on the range alone, so results never depend on the number of threads. Chunks are
 * claimed one by one: a thread that lost its core delays the others by one chunk at most, and a
 * phase ends when its chunks are done, not when its threads have arrived. */
#ifndef MO_BASE_POOL_H
#define MO_BASE_POOL_H

#include "moraine.h"

typedef struct mo_pool mo_pool;

/* Works on [begin, end), at most `grain` items; thread is 0 .. mo_pool_threads()-1 and is unique among
 * the calls that run at the same moment. */
typedef void (*mo_pool_fn)(void *ctx, int64_t begin, int64_t end, int thread);

/* Memory that chunks read which come later, and of which every thread has a share of its own: this stretch of it, and which chunks those are,
 * so that each thread asks for what it will read itself. */
typedef struct mo_pool_ahead {
    const void *data;
    int64_t bytes;
    int64_t chunk_bytes; /* of the stretch, that one chunk reads; its last may read less */
    int64_t first;       /* the chunk that reads its beginning */
    int64_t count;       /* of chunks that are shared out; 0: every thread reads all of it */
} mo_pool_ahead;

/* The most of them that are looked at. */
enum { MO_POOL_AHEAD_MAX = 24 };

typedef struct mo_phase {
    mo_pool_fn fn;
    void *ctx;
    int64_t count; /* items; 0 is allowed */
    int64_t grain; /* items per chunk, >= 1 */
    int part;      /* the owner's, to tell phases apart; the pool does not look at it */
    /* Every thread begins with a share of its own, chunks that follow each other, and helps others after that: for chunks of
     * equal work that read memory in order. */
    bool shares;
    /* Chunks from this one on are handed out when all before it have been taken, so that they may wait for those; 0: none. Not
     * in a region that may be given up, where what they wait for may be left out. */
    int64_t later;
    /* What comes after this phase reads, in order: a thread that finds nothing left to do asks for its part of it, without waiting, until
     * another phase names something else, also between regions. Copied when the phase begins; the memory may be gone by then. 0: what was named
     * before still counts. */
    const mo_pool_ahead *ahead;
    int ahead_count;
} mo_phase;

/* threads >= 1 counts the calling thread, which works too; 0 means one per usable core. */
mo_status mo_pool_create(int threads, mo_pool **out, mo_error *err);
void mo_pool_destroy(mo_pool *pool); /* joins; NULL is allowed */
int mo_pool_threads(const mo_pool *pool);
uint64_t
mo_pool_ahead_bytes(const mo_pool *pool); /* what waiting threads have asked for so far (mo_phase.ahead) */

/* The next regions will follow within this many nanoseconds: threads stay awake that long instead of paying
 * for a wake-up each time. 0: unknown. Any thread. */
void mo_pool_expect(mo_pool *pool, int64_t within_ns);

/* Runs the phases in order and returns when the last one is done: every write of phase i is seen by
 * every chunk of phase i+1. One region at a time per pool (regions of several callers are
 * serialized); a task must not start a region on its own pool. Allocates nothing. */
void mo_pool_region(mo_pool *pool, const mo_phase *phases, int count);

/* The same, until asked(ctx) reports that the result is no longer needed, which it must keep reporting: chunks that have
 * not begun are left out, so what the region would have written is undefined. Any thread may call asked. */
typedef bool (*mo_pool_asked)(const void *ctx);
void mo_pool_region_until(mo_pool *pool, const mo_phase *phases, int count, mo_pool_asked asked,
                          const void *ctx);

/* For a chunk that looks again and again, `looked` times so far, for something that another thread is about to do: a moment's rest, and now and then the
 * core to others. */
void mo_pool_pause(unsigned looked);

/* The same, in which the thread asks for a little of what it reads in later phases (mo_phase.ahead). */
void mo_pool_wait(mo_pool *pool, int thread, unsigned looked);

/* Asks for the first few of these bytes without waiting for them; how many, at most `bytes`. */
int64_t mo_pool_ask(const void *data, int64_t bytes);

/* A region of one phase. */
void mo_pool_run(mo_pool *pool, int64_t count, int64_t grain, mo_pool_fn fn, void *ctx);

#endif
