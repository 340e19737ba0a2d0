/* Adaptive policy: learns from the routing itself what recent and frequent use are worth, and names the expert that is
 * least likely to be needed.
 *
 * Experts are sorted into cells: by how often their layer has come by since their last use, and by how often
 * they were used before (two decayed counts, a fast and a slow one). Each
 * cell learns the share of its experts that are used when their layer comes by. So a model that repeats itself
 * from token to token is served as by LRU, one with steady favourites as by LFU, and no constant says which.
 *
 * A slot's worth is that share over the time until the expert's layer comes by: of two experts alike, the one
 * whose layer has just passed goes. Every call is O(1) but for the choice of a victim, which looks at one expert
 * of each cell. Nothing allocates after creation. One thread at a time. */
#ifndef MO_EXPERTS_ADAPTIVE_H
#define MO_EXPERTS_ADAPTIVE_H

#include "base/arena.h"
#include "experts/policy.h"

typedef struct mo_adaptive mo_adaptive;

/* In the arena, with entries [experts] that the caller keeps. NULL when memory is out. */
mo_adaptive *mo_adaptive_create(mo_arena *memory, mo_policy_entry *entries, int32_t experts);

/* The expert belongs to this layer (>= 0); before its first touch. By default all are in layer 0. */
void mo_adaptive_place(mo_adaptive *h, int32_t expert_id, int32_t layer);

/* The expert was used in step `now`, of which layers are touched one after the other. */
void mo_adaptive_touch(mo_adaptive *h, int32_t expert_id, uint64_t now, uint32_t picks);
/* A profile says so, before the first step. */
void mo_adaptive_seed(mo_adaptive *h, int32_t expert_id, uint64_t hits, uint64_t most);

/* The expert may be evicted from now on; no longer. */
void mo_adaptive_enter(mo_adaptive *h, int32_t expert_id);
void mo_adaptive_leave(mo_adaptive *h, int32_t expert_id);

/* The expert to evict, or -1 when none may be. All experts of the current layer that this step uses have been
 * touched. */
int32_t mo_adaptive_victim(mo_adaptive *h);

/* The share of experts like this one that are used when their layer comes by, resident or not. */
double mo_adaptive_chance(const mo_adaptive *h, int32_t expert_id);

#endif
