/* Block share: how many blocks of which sizes a piece of a pool's memory has. For plans, and for pools, which lay it out so. */
#ifndef MO_KV_BLOCK_SHARE_H
#define MO_KV_BLOCK_SHARE_H

#include <stdbool.h>
#include <stdint.h>

/* What a state needs in a layer. */
typedef struct mo_block_need {
    int64_t bytes; /* of a block */
    int64_t count;
} mo_block_need;

/* What a piece of memory has. */
typedef struct mo_block_share {
    const mo_block_need *needs; /* [layers] of one state, as large as a state may be */
    int layers;
    int64_t states;       /* that may be open; 0: 1 */
    const int64_t *total; /* [layers] blocks that they may hold together; NULL: all that they need */
    int64_t kept_bytes;   /* in addition, for snapshots */
    bool
        fixed; /* there is no more than this. Otherwise, when snapshots hold what states need, more is taken */
} mo_block_share;

/* Bytes of such a piece; blocks begin at multiples of 64. INT64_MAX: more than can be counted. */
int64_t mo_block_share_bytes(const mo_block_share *share);
/* For a layer's blocks, without those of snapshots. */
int64_t mo_block_share_layer(const mo_block_share *share, int layer);

/* The bytes for snapshots of layers that have `part` of the `all` bytes of a state's layers: whole blocks of `unit`. */
int64_t mo_block_share_kept(int64_t kept_bytes, int64_t unit, int64_t part, int64_t all);

/* Bytes from one block to the next. */
int64_t mo_block_aligned(int64_t bytes);
/* States, at least 1; blocks of a layer for all of them; states of which every block has a place of its own. */
int64_t mo_block_share_states(const mo_block_share *share);
int64_t mo_block_share_total(const mo_block_share *share, int layer);
int64_t mo_block_share_homes(const mo_block_share *share);

#endif
