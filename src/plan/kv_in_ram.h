/* KV in RAM: prompt cost of device layers whose KV cache is in RAM (gpu/kv_in_ram.h). A tile is a group of
 * queries of one KV head; it reads all positions before it. A single tile reads them over the link. For
 * several tiles, whole blocks are copied once into working memory that is idle then (gpu/kv_staging.h);
 * blocks that do not fit there are read over the link by every tile. */
#ifndef MO_PLAN_KV_IN_RAM_H
#define MO_PLAN_KV_IN_RAM_H

#include "plan/plan.h"

enum {
    MO_PLAN_TILE = 64,      /* queries per tile, in all prompt kernels */
    MO_PLAN_KV_BLOCK = 128, /* positions per block, as in numeric/kv.h */
};

/* Tokens per tile (queries: heads of a token that share a KV head), and tiles for the tokens of one
 * session. */
static inline int64_t mo_plan_tile_tokens(int queries)
{
    return queries > 0 && queries < MO_PLAN_TILE ? MO_PLAN_TILE / queries : 1;
}
static inline int64_t mo_plan_tiles(int64_t tokens, int queries)
{
    const int64_t each = mo_plan_tile_tokens(queries);
    return (tokens + each - 1) / each;
}

/* How often the tokens of a tile read the positions before them: several times if a token has more heads than
 * a tile. */
static inline int64_t mo_plan_tile_reads(int queries)
{
    return queries > MO_PLAN_TILE ? (queries + MO_PLAN_TILE - 1) / MO_PLAN_TILE : 1;
}

/* True if the KV cache is staged for this many tokens. */
static inline bool mo_plan_brings(int64_t tokens, int queries)
{
    return mo_plan_tiles(tokens, queries) > 1;
}

/* Bytes per token over the link with half-full contexts, for the last `layers` movable layers. `bytes` is
 * their KV cache for all sessions; a token reads only its own session's. A model without read sizes counts as
 * having one session. */
double mo_plan_kv_in_ram_token(const mo_plan_model *model, int layers, int64_t bytes);

/* Bytes over the link for the last `layers` movable layers when a step of one session computes this many
 * tokens after `from` positions. */
double mo_plan_kv_in_ram_crossing(const mo_plan_model *model, int layers, int64_t from, int64_t tokens);

/* The same for a prompt of this many tokens after `from` positions, in steps of model->batch. */
double mo_plan_kv_in_ram_prompt(const mo_plan_model *model, int layers, int64_t from, int64_t tokens);

#endif
