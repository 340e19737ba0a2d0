/* Block pool: the memory of one or several states in blocks, each with a count of the states that hold it. Every
 * layer has blocks of a size of its own. All of it is allocated when the pool is opened, and there are as many
 * blocks as the states can hold without sharing any; so whoever needs a block of his own gets one, and nothing is
 * allocated while decoding.
 *
 * Not locked: all states of a pool belong to one engine, whose lock its callers hold. */
#ifndef MO_ENGINE_BLOCK_POOL_H
#define MO_ENGINE_BLOCK_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a state needs in a layer. */
typedef struct mo_block_need {
    int64_t bytes; /* of a block */
    int64_t count;
} mo_block_need;

typedef struct mo_block_pool mo_block_pool;

/* Bytes that a pool for so many states has; layer after layer, a layer's blocks in order, each on a multiple of 64. */
size_t mo_block_pool_bytes(const mo_block_need *needs, int layers, int states);

/* NULL: there is not so much memory. */
mo_block_pool *mo_block_pool_open(const mo_block_need *needs, int layers, int states);
void mo_block_pool_close(mo_block_pool *pool); /* NULL is allowed */

/* Where its memory begins. */
uint8_t *mo_block_pool_memory(const mo_block_pool *pool);

/* A block with one holder; a new pool gives a layer's blocks in order. */
uint8_t *mo_block_acquire(mo_block_pool *pool, int layer);
/* One holder more, one fewer. */
void mo_block_share(mo_block_pool *pool, int layer, const uint8_t *block);
void mo_block_release(mo_block_pool *pool, int layer, const uint8_t *block);
bool mo_block_is_shared(const mo_block_pool *pool, int layer, const uint8_t *block);

#endif
