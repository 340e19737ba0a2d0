/* KV in RAM: what a prompt costs if a device computes layers whose KV cache is in RAM (gpu/kv_in_ram.h). Some queries of a KV head
 * together, a tile, read all that is before them. One tile reads them over the link; for several they are brought once, whole blocks,
 * into working memory that is idle then (gpu/kv_staging.h), and what finds no place there every tile reads over the link after all. */
#ifndef MO_PLAN_KV_IN_RAM_H
#define MO_PLAN_KV_IN_RAM_H

#include "plan/plan.h"

enum {
    MO_PLAN_TILE = 64,      /* queries of a tile, in all kernels of prompts */
    MO_PLAN_KV_BLOCK = 128, /* positions of a block, as numeric/kv.h has it */
};

/* Tokens of a tile; queries: heads of a token that share a KV head. Tiles of the tokens of a session. */
static inline int64_t mo_plan_tile_tokens(int queries)
{
    return queries > 0 && queries < MO_PLAN_TILE ? MO_PLAN_TILE / queries : 1;
}
static inline int64_t mo_plan_tiles(int64_t tokens, int queries)
{
    const int64_t each = mo_plan_tile_tokens(queries);
    return (tokens + each - 1) / each;
}

/* How often every tile's tokens read what is before them: heads of a token that are more than a tile has are in several. */
static inline int64_t mo_plan_tile_reads(int queries)
{
    return queries > MO_PLAN_TILE ? (queries + MO_PLAN_TILE - 1) / MO_PLAN_TILE : 1;
}

/* Is the KV cache staged for this many tokens? */
static inline bool mo_plan_brings(int64_t tokens, int queries)
{
    return mo_plan_tiles(tokens, queries) > 1;
}

/* Bytes that a token reads over the link where contexts are half full, of the last `layers` that can be apart, whose KV cache takes
 * `bytes` for all sessions together: of its own session alone. A model that does not say what tokens read has one. */
double mo_plan_kv_in_ram_token(const mo_plan_model *model, int layers, int64_t bytes);

/* Bytes that cross the link for the last `layers` that can be apart, when a step of one session computes this many tokens after `from`
 * positions. */
double mo_plan_kv_in_ram_crossing(const mo_plan_model *model, int layers, int64_t from, int64_t tokens);

/* The same for a prompt of this many tokens after `from` positions, in steps of model->batch. */
double mo_plan_kv_in_ram_prompt(const mo_plan_model *model, int layers, int64_t from, int64_t tokens);

#endif
