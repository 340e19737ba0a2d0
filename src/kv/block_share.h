/* Block share: number and sizes of the blocks in a piece of a pool's memory. For plans, and for pools, which
 * use this layout. */
#ifndef MO_KV_BLOCK_SHARE_H
#define MO_KV_BLOCK_SHARE_H

#include <stdbool.h>
#include <stdint.h>

/* Requirement of a state in a layer. */
typedef struct mo_block_need {
    int64_t bytes; /* of a block */
    int64_t count;
} mo_block_need;

/* Contents of a piece of memory. */
typedef struct mo_block_share {
    const mo_block_need *needs; /* [layers] of one state of maximum size */
    int layers;
    int64_t states;       /* maximum open states; 0: 1 */
    const int64_t *total; /* [layers] blocks that they may hold together; NULL: all they need */
    int64_t kept_bytes;   /* additional bytes for snapshots */
    /* the limit is fixed. Otherwise more is allocated if snapshots hold blocks that states need */
    bool fixed;
} mo_block_share;

/* Bytes of such a piece; blocks are aligned to 64. INT64_MAX: overflow. */
int64_t mo_block_share_bytes(const mo_block_share *share);
/* Bytes of a layer's blocks, without those of snapshots. */
int64_t mo_block_share_layer(const mo_block_share *share, int layer);

/* Snapshot bytes for layers that have `part` of the `all` bytes of a state's layers: whole blocks of
 * `unit`. */
int64_t mo_block_share_kept(int64_t kept_bytes, int64_t unit, int64_t part, int64_t all);

/* Block size rounded up to the alignment. */
int64_t mo_block_aligned(int64_t bytes);
/* Number of states, at least 1; blocks of a layer for all of them; number of states with a home. */
int64_t mo_block_share_states(const mo_block_share *share);
int64_t mo_block_share_total(const mo_block_share *share, int layer);
int64_t mo_block_share_homes(const mo_block_share *share);

#endif
