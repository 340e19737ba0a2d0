/* Blocks: the blocks of a pool that a state or a snapshot holds, layer by layer, in tables as in
 * numeric/kv.h. Tables share blocks; a writer of a shared block first gets its own copy. Entries are filled
 * as positions are written. */
#ifndef MO_KV_BLOCKS_H
#define MO_KV_BLOCKS_H

#include "kv/block_pool.h"

/* A layer's table. */
typedef struct mo_blocks_layer {
    int32_t *numbers; /* [length] block numbers in the pool; -1: none yet */
    int64_t length;
    int64_t bytes;  /* used bytes of a block */
    bool recurrent; /* one block, read and written by every step; otherwise the KV cache of positions */
    bool circular;  /* fewer positions than the sequence may have */
} mo_blocks_layer;

typedef struct mo_blocks {
    mo_block_pool *pool;
    mo_block_holder who;
    int home; /* in the pool; -1: none */
    int layers;
    mo_blocks_layer *layer; /* [layers] */
    int32_t *numbers;       /* of all layers */
    /* blocks written in this range are not shared; nor are recurrent blocks, if it is not empty */
    int64_t mine_from, mine_to;
    uint64_t changes; /* version of the tables: lets a copy detect that it is outdated */
} mo_blocks;

/* Opens empty tables with the lengths in `shape`, whose numbers are ignored. A state (MO_HOLDS) enters the
 * pool. */
mo_status mo_blocks_init(mo_blocks *b, mo_block_pool *pool, mo_block_holder who, const mo_blocks_layer *shape,
                         int layers, mo_error *err);
/* Opens tables with the lengths of `like`, in its own pool in RAM. */
mo_status mo_blocks_init_alone(mo_blocks *b, const mo_blocks *like, mo_error *err);
void mo_blocks_drop(mo_blocks *b); /* a zeroed one is allowed */

/* clear releases all blocks; trim those without positions below `length`, as far as that is known. */
void mo_blocks_clear(mo_blocks *b);
void mo_blocks_trim(mo_blocks *b, int64_t length);

/* Replaces the contents of `to` by the blocks of `from`, of the same pool, for positions below `length`. */
void mo_blocks_share(mo_blocks *to, mo_blocks *from, int64_t length);
/* The same for two pools: `to` gets its own blocks, which the caller fills. MO_ENOMEM: `to` is empty. */
mo_status mo_blocks_match(mo_blocks *to, const mo_blocks *from, int64_t length, mo_error *err);

/* Replaces blocks first .. end - 1 of the sequence in `to` by those of `tail`, of the same pool. */
void mo_blocks_join(mo_blocks *to, const mo_blocks *tail, int64_t first, int64_t end);

/* Called for every block that enters a table: copies the contents of `from` (-1: nothing to copy) to `to`. */
typedef struct mo_block_change {
    int layer;
    int64_t entry;
    int32_t from, to;
    uint64_t from_at, to_at; /* their addresses */
} mo_block_change;
typedef mo_status (*mo_block_change_fn)(void *ctx, const mo_block_change *change, mo_error *err);

/* Makes all blocks that positions begin .. end - 1 will be written to, and recurrent ones, unshared. only:
 * [layers] limits the layers; NULL: all. MO_ENOMEM: no free block; or an error of `change`. The tables are
 * then valid as far as processed. */
mo_status mo_blocks_own(mo_blocks *b, int64_t begin, int64_t end, const bool *only, mo_block_change_fn change,
                        void *ctx, mo_error *err);
/* Bytes of blocks that mo_blocks_own() would take. */
int64_t mo_blocks_need(const mo_blocks *b, int64_t begin, int64_t end);

/* Bytes of all its blocks, and of unshared ones. */
void mo_blocks_count(const mo_blocks *b, int64_t *all, int64_t *alone);

/* The blocks of a sequence of `length` positions that both tables of a layer have. */
typedef struct mo_blocks_span {
    int64_t first, end; /* block numbers in the sequence */
} mo_blocks_span;
mo_blocks_span mo_blocks_span_of(const mo_blocks_layer *to, const mo_blocks_layer *from, int64_t length);

/* Addresses of all blocks of a layer, or of one entry; 0: none. */
void mo_blocks_addresses(const mo_blocks *b, int layer, uint64_t *out);
uint64_t mo_blocks_address(const mo_blocks *b, int layer, int64_t entry);

#endif
