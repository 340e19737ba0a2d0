/* Block pool: the memory of states and snapshots, in reference-counted blocks. Blocks of several sizes
 * (classes) are in a few large pieces of memory, in RAM or on a device. The pool knows their addresses but
 * never accesses them.
 *
 * Capacity. The planned piece is allocated with the first state. It has, for as many states as fit, a *home*
 * each: the state's blocks layer by layer, in order. Loose blocks of every class follow, and chunks for
 * snapshots, which serve any class. A state beyond the plan brings its own piece. A state that needs a block
 * gets the one of its home if that is free, and otherwise any. So a state that shares nothing is contiguous,
 * and every free block can be used. Nothing is allocated while decoding, unless unplanned snapshots hold
 * blocks that a state needs.
 *
 * The pool has its own lock, held briefly: threads may hold and release blocks concurrently. */
#ifndef MO_KV_BLOCK_POOL_H
#define MO_KV_BLOCK_POOL_H

#include "kv/block_share.h"
#include "moraine.h"

enum { MO_BLOCK_KINDS = 8 }; /* maximum kinds of memory of a pool */

/* Source of memory; `kind` is the index of one of its kinds. */
typedef struct mo_block_source {
    void *owner;
    mo_status (*take)(void *owner, int kind, int64_t bytes, uint64_t *address, mo_error *err);
    void (*give)(void *owner, int kind, uint64_t address, int64_t bytes);
    /* The contents of these bytes, inside memory that was taken, are not needed: the system may reclaim them
     * until they are written again. NULL: not supported. */
    void (*discard)(void *owner, int kind, uint64_t address, int64_t bytes);
    const uint8_t *kind; /* [layers] owned by the owner: kind of each layer's blocks; NULL: 0 for all */
    int kinds;           /* at most MO_BLOCK_KINDS; 0: 1 */
    /* each layer uses only blocks of its kind. Otherwise blocks of one size serve all layers if memory is
     * short, and chunks have kind 0 */
    bool apart;
} mo_block_source;

extern const mo_block_source mo_block_source_ram; /* huge pages */

typedef struct mo_block_pool mo_block_pool;

/* Kind of holder of a block: a state, or a snapshot. */
typedef enum mo_block_holder { MO_HOLDS, MO_KEEPS } mo_block_holder;

/* planned: NULL (no limit), or what to take from the source when the first state enters; copied. Returns
 * NULL: out of memory. */
mo_block_pool *mo_block_pool_open(const mo_block_need *needs, int layers, const mo_block_source *source,
                                  const mo_block_share *planned);
/* The owner releases the pool; the source is not called any more. NULL is allowed. keep: memory stays while
 * blocks are in use (the source can free it at any time); otherwise it is freed now. */
void mo_block_pool_close(mo_block_pool *pool, bool keep);
/* Adds a reference to the pool, besides its owner's. */
void mo_block_pool_join(mo_block_pool *pool);
void mo_block_pool_part(mo_block_pool *pool);

/* A state enters, with tables of these lengths; *home is its number for acquiring. MO_ENOMEM, or an error of
 * the source. */
mo_status mo_block_pool_enter(mo_block_pool *pool, const mo_block_need *needs, int *home, mo_error *err);
void mo_block_pool_leave(mo_block_pool *pool, int home); /* the state must hold nothing */
/* Frees unused memory of states beyond the plan. */
void mo_block_pool_sweep(mo_block_pool *pool);
/* Returns the memory of free blocks to the system, if the source supports it. Blocks and addresses stay
 * valid, and take memory again when written. Holds the lock for a few MiB at a time. */
void mo_block_pool_trim(mo_block_pool *pool);
/* Memory of this kind is lost: takes other memory from the source. Blocks keep their numbers, without their
 * contents. Only if kinds are apart. On failure some of it is unchanged. */
mo_status mo_block_pool_renew(mo_block_pool *pool, int kind, mo_error *err);

typedef struct mo_block_counts {
    int64_t total, free;    /* bytes of all blocks; of free ones */
    int64_t held, kept;     /* by states; only by snapshots */
    int64_t states, pieces; /* open states; pieces of memory */
} mo_block_counts;
mo_block_counts mo_block_pool_count(mo_block_pool *pool);

/* The functions below must be called between these two. */
void mo_block_pool_lock(mo_block_pool *pool);
void mo_block_pool_unlock(mo_block_pool *pool);

/* A block of the layer with one holder; -1: none is free. home: the caller's, -1: none; entry: of its
 * table. */
int32_t mo_block_acquire(mo_block_pool *pool, int layer, int home, int64_t entry, mo_block_holder who);
/* Adds a holder; removes one. */
void mo_block_hold(mo_block_pool *pool, int32_t number, mo_block_holder who);
void mo_block_release(mo_block_pool *pool, int32_t number, mo_block_holder who);
bool mo_block_is_shared(const mo_block_pool *pool, int32_t number); /* it has more than one holder */
uint64_t mo_block_address(const mo_block_pool *pool, int32_t number);
int64_t mo_block_bytes(const mo_block_pool *pool, int32_t number);

#endif
