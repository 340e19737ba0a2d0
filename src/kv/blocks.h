/* Blocks: which blocks of a pool a state or a snapshot holds, layer by layer, in tables as numeric/kv.h has them. Tables
 * share blocks; a writer of a shared block gets its own copy first. Entries are filled as positions are written. */
#ifndef MO_KV_BLOCKS_H
#define MO_KV_BLOCKS_H

#include "kv/block_pool.h"

/* A layer's table. */
typedef struct mo_blocks_layer {
    int32_t *numbers; /* [length] of blocks in the pool; -1: none yet */
    int64_t length;
    int64_t bytes;  /* of a block, as far as it is used */
    bool recurrent; /* one block, which every step reads and writes; otherwise KV cache of positions */
    bool circular;  /* fewer positions than the sequence may have */
} mo_blocks_layer;

typedef struct mo_blocks {
    mo_block_pool *pool;
    mo_block_holder who;
    int home; /* in the pool; -1: none */
    int layers;
    mo_blocks_layer *layer; /* [layers] */
    int32_t *numbers;       /* of all layers */
    int64_t mine_from,
        mine_to;      /* blocks written here are not shared; recurrent blocks too, where it is not empty */
    uint64_t changes; /* version of the tables: a copy can tell when it is old */
} mo_blocks;

/* Tables as `shape` has them, whose numbers are not looked at; empty. A state (MO_HOLDS) enters the pool. */
mo_status mo_blocks_init(mo_blocks *b, mo_block_pool *pool, mo_block_holder who, const mo_blocks_layer *shape,
                         int layers, mo_error *err);
/* As long as those of `like`, in its own pool in RAM. */
mo_status mo_blocks_init_alone(mo_blocks *b, const mo_blocks *like, mo_error *err);
void mo_blocks_drop(mo_blocks *b); /* a zeroed one is allowed */

/* Releases all of them; those that hold nothing below `length`, where that is known. */
void mo_blocks_clear(mo_blocks *b);
void mo_blocks_trim(mo_blocks *b, int64_t length);

/* Makes `to` hold what `from`, of the same pool, holds of positions below `length`, instead of what it held. */
void mo_blocks_share(mo_blocks *to, mo_blocks *from, int64_t length);
/* The same for two pools: `to` gets its own blocks for those of `from`, for the caller to copy. MO_ENOMEM: it is empty. */
mo_status mo_blocks_match(mo_blocks *to, const mo_blocks *from, int64_t length, mo_error *err);

/* Blocks first .. end - 1 of the sequence are those that `tail`, of the same pool, has of them, instead of what `to` held. */
void mo_blocks_join(mo_blocks *to, const mo_blocks *tail, int64_t first, int64_t end);

/* Called for every block that gets into a table: copies what is in `from` (-1: nothing is to be copied) to `to`. */
typedef struct mo_block_change {
    int layer;
    int64_t entry;
    int32_t from, to;
    uint64_t from_at, to_at; /* their addresses */
} mo_block_change;
typedef mo_status (*mo_block_change_fn)(void *ctx, const mo_block_change *change, mo_error *err);

/* Makes all blocks where positions begin .. end - 1 will be written, and recurrent ones, unshared. only: [layers], of
 * these; NULL: of all. MO_ENOMEM when none is free, or what `change` says: then the tables are valid as far as they got. */
mo_status mo_blocks_own(mo_blocks *b, int64_t begin, int64_t end, const bool *only, mo_block_change_fn change,
                        void *ctx, mo_error *err);
/* Bytes of blocks that this would take. */
int64_t mo_blocks_need(const mo_blocks *b, int64_t begin, int64_t end);

/* Bytes of all its blocks, and of unshared ones. */
void mo_blocks_count(const mo_blocks *b, int64_t *all, int64_t *alone);

/* Which blocks of a sequence of `length` positions both of a layer's tables have. */
typedef struct mo_blocks_span {
    int64_t first, end; /* numbers of blocks in the sequence */
} mo_blocks_span;
mo_blocks_span mo_blocks_span_of(const mo_blocks_layer *to, const mo_blocks_layer *from, int64_t length);

/* All of a layer, or one entry; 0: there is none. */
void mo_blocks_addresses(const mo_blocks *b, int layer, uint64_t *out);
uint64_t mo_blocks_address(const mo_blocks *b, int layer, int64_t entry);

#endif
