/* Block pool: the memory of states and snapshots in blocks, each with a count of who holds it. Blocks of several sizes
 * (classes) lie in a few large pieces of memory, of RAM or of a device: the pool knows their addresses and never follows one.
 *
 * Capacity. The planned piece is made with the first state. It has, for as many states as fit, a *home* each: the state's
 * blocks layer after layer, in order. Then loose blocks of every class, and chunks for what snapshots keep, which serve any
 * class. A state beyond those that were planned brings its own piece. A state that needs a block gets the one of its home
 * if that is free, and otherwise any; so a state that shares nothing lies in one piece, and nothing that is free is out
 * of reach. Nothing is allocated while decoding, unless unplanned snapshots hold what a state needs.
 *
 * Locked by itself, shortly: any thread may hold and release blocks while others do. */
#ifndef MO_KV_BLOCK_POOL_H
#define MO_KV_BLOCK_POOL_H

#include "kv/block_share.h"
#include "moraine.h"

enum { MO_BLOCK_KINDS = 8 }; /* most kinds of memory of one pool */

/* Where memory comes from: `kind` is the number of one of its kinds. */
typedef struct mo_block_source {
    void *owner;
    mo_status (*take)(void *owner, int kind, int64_t bytes, uint64_t *address, mo_error *err);
    void (*give)(void *owner, int kind, uint64_t address, int64_t bytes);
    /* What is in these bytes, which lie in what was taken, is not needed: it may go back to the system until it is written again. NULL:
     * it stays. */
    void (*discard)(void *owner, int kind, uint64_t address, int64_t bytes);
    const uint8_t *kind; /* [layers], the owner's: the kind of each layer's blocks; NULL: 0, of all */
    int kinds;           /* at most MO_BLOCK_KINDS; 0: 1 */
    bool
        apart; /* a layer has blocks of its kind alone. Otherwise those of a size serve each other's layers where memory is short,
                   and chunks are of kind 0 */
} mo_block_source;

extern const mo_block_source mo_block_source_ram; /* huge pages */

typedef struct mo_block_pool mo_block_pool;

/* Who holds a block: a state, or a snapshot. */
typedef enum mo_block_holder { MO_HOLDS, MO_KEEPS } mo_block_holder;

/* planned: NULL, or what is taken from the source when the first state enters; copied. Without it there is no limit. NULL: no
 * memory for the lists. */
mo_block_pool *mo_block_pool_open(const mo_block_need *needs, int layers, const mo_block_source *source,
                                  const mo_block_share *planned);
/* Its owner has done with it; the source is asked for nothing any more. NULL is allowed. keep: memory stays as long as
 * a block is in use (the source can give it back at any time); otherwise it is given back now. */
void mo_block_pool_close(mo_block_pool *pool, bool keep);
/* Adds a reference to the pool, in addition to its owner's. */
void mo_block_pool_join(mo_block_pool *pool);
void mo_block_pool_part(mo_block_pool *pool);

/* A state enters, with tables of these lengths; *home is its number, for acquiring. MO_ENOMEM or what the source says. */
mo_status mo_block_pool_enter(mo_block_pool *pool, const mo_block_need *needs, int *home, mo_error *err);
void mo_block_pool_leave(mo_block_pool *pool, int home); /* it holds nothing any more */
/* Frees unused memory that states beyond the plan brought. */
void mo_block_pool_sweep(mo_block_pool *pool);
/* Gives memory of free blocks back to the system, where the source can: blocks and their addresses stay, and take memory again when they
 * are written. Others wait for a few MiB at a time. */
void mo_block_pool_trim(mo_block_pool *pool);
/* Memory of this kind is lost: the source gives other memory for it, and blocks keep their numbers. What was in them is gone. Only
 * where kinds are apart. On failure some of it is as it was. */
mo_status mo_block_pool_renew(mo_block_pool *pool, int kind, mo_error *err);

typedef struct mo_block_counts {
    int64_t total, free;    /* bytes of blocks; of free ones */
    int64_t held, kept;     /* by states; by snapshots alone */
    int64_t states, pieces; /* that are open; of memory */
} mo_block_counts;
mo_block_counts mo_block_pool_count(mo_block_pool *pool);

/* Between these two, the functions below. */
void mo_block_pool_lock(mo_block_pool *pool);
void mo_block_pool_unlock(mo_block_pool *pool);

/* A block of the layer with one holder, and its number; -1: none is free. home: of who asks, -1: he has none; entry: of
 * his table. */
int32_t mo_block_acquire(mo_block_pool *pool, int layer, int home, int64_t entry, mo_block_holder who);
/* One holder more, one fewer. */
void mo_block_hold(mo_block_pool *pool, int32_t number, mo_block_holder who);
void mo_block_release(mo_block_pool *pool, int32_t number, mo_block_holder who);
bool mo_block_is_shared(const mo_block_pool *pool, int32_t number); /* it has more than one */
uint64_t mo_block_address(const mo_block_pool *pool, int32_t number);
int64_t mo_block_bytes(const mo_block_pool *pool, int32_t number);

#endif
