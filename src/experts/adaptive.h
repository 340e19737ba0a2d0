/* Adaptive cache policy. It learns from the routing what recency and frequency are worth, and evicts the
 * expert that is least likely to be needed.
 *
 * Experts are sorted into cells: by how often their layer has run since their last use, and by how often they
 * were used before (two decayed counts, a fast and a slow one). Each cell learns the share of its experts
 * that are used when their layer runs. So the policy acts like LRU if a model repeats its choices from token
 * to token, and like LFU if it has steady favourites, without a constant to tune.
 *
 * The worth of a slot is that share divided by the time until the expert's layer runs again. Of two similar
 * experts, the one whose layer has just run is evicted. Calls are O(1), with two exceptions: choosing a
 * victim looks at one expert of each cell, and entering an expert passes those of its cell that were touched
 * later. Nothing is allocated after creation. One thread at a time. */
#ifndef MO_EXPERTS_ADAPTIVE_H
#define MO_EXPERTS_ADAPTIVE_H

#include "base/arena.h"
#include "experts/policy.h"

typedef struct mo_adaptive mo_adaptive;

/* Allocates in the arena. entries [experts] belong to the caller. NULL: out of memory. */
mo_adaptive *mo_adaptive_create(mo_arena *memory, mo_policy_entry *entries, int32_t experts);

/* Sets the expert's layer (>= 0), before its first touch. By default all experts are in layer 0. */
void mo_adaptive_place(mo_adaptive *h, int32_t expert_id, int32_t layer);

/* The expert was used in step `now`. The layers of a step are touched in order. */
void mo_adaptive_touch(mo_adaptive *h, int32_t expert_id, uint64_t now, uint32_t picks);
/* Seeds the expert with hits from a profile, before the first step. */
void mo_adaptive_seed(mo_adaptive *h, int32_t expert_id, uint64_t hits, uint64_t most);

/* Marks the expert as evictable, or as not evictable. */
void mo_adaptive_enter(mo_adaptive *h, int32_t expert_id);
void mo_adaptive_leave(mo_adaptive *h, int32_t expert_id);

/* The expert to evict; -1: none is evictable. All experts that this step uses in the current layer must have
 * been touched. */
int32_t mo_adaptive_victim(mo_adaptive *h);

/* The share of similar experts, resident or not, that are used when their layer runs. */
double mo_adaptive_chance(const mo_adaptive *h, int32_t expert_id);

#endif
