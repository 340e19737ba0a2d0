/* Slots: which experts of one size class are in which slots of a tier, and which of them is evicted when one is
 * needed. Knows neither bytes nor devices, so RAM, VRAM and the replay of a trace share it. One thread at a
 * time (the holder of the store's lock). Nothing allocates after creation; every call is O(log slots). Expert
 * and slot numbers outside their ranges are the caller's fault and end the program. */
#ifndef MO_EXPERTS_SLOTS_H
#define MO_EXPERTS_SLOTS_H

#include "experts/policy.h"
#include "moraine.h"

typedef struct mo_slots mo_slots;

/* `experts` are numbered from 0 inside their class. slots may be 0 and may exceed experts. The policy is kept,
 * not owned. */
mo_status mo_slots_create(const mo_policy *policy, int32_t experts, int32_t slots, mo_slots **out,
                          mo_error *err);
void mo_slots_destroy(mo_slots *s); /* NULL is allowed */

/* The expert's slot, or -1. */
int32_t mo_slots_find(const mo_slots *s, int32_t expert_id);
/* The slot's expert, or -1 when it is free. */
int32_t mo_slots_expert(const mo_slots *s, int32_t slot);
int32_t mo_slots_free(const mo_slots *s); /* how many hold nothing */

/* The expert belongs to this layer (>= 0), before its first touch: for policies that ask when it comes by again.
 * By default all experts are in layer 0. */
void mo_slots_place(mo_slots *s, int32_t expert_id, int32_t layer);

/* The expert was routed to, whether it is resident or not. Touch the experts of a layer before taking slots for
 * those that miss, so that none of them goes on an old key. */
void mo_slots_touch(mo_slots *s, int32_t expert_id, uint64_t now, uint32_t picks);
/* A profile has this many hits of the expert, `most` of its most used one. Without effect once it was touched: what
 * really happens counts more. */
void mo_slots_seed(mo_slots *s, int32_t expert_id, uint64_t hits, uint64_t most);

/* Finds a slot for an expert that is not resident: a free one, else that of the resident expert with the lowest
 * key (ties: the lower number) that is neither pinned nor kept, or of that which a policy that learns names;
 * *evicted is that expert, or -1. The expert then holds the slot and is pinned once. -1 when every slot is pinned
 * or kept. */
int32_t mo_slots_acquire(mo_slots *s, int32_t expert_id, int32_t *evicted);

/* Pins are counted; a pinned expert is not evicted. Both need a resident expert. */
void mo_slots_pin(mo_slots *s, int32_t expert_id);
void mo_slots_unpin(mo_slots *s, int32_t expert_id);

/* A kept expert stays until it is let go. Needs a resident expert. */
void mo_slots_keep(mo_slots *s, int32_t expert_id, bool keep);

/* The expert leaves its slot, whatever its pins: a read that failed, a slot that was promised otherwise. Its
 * entry stays, also with a policy that forgets: it was not outlived by others. Needs a resident expert. */
void mo_slots_drop(mo_slots *s, int32_t expert_id);
/* The same, but the slot is not reused. */
void mo_slots_abandon(mo_slots *s, int32_t expert_id);

/* How probably a token that passes the expert's layer uses it, as far as the policy learns that; -1: it does not. */
double mo_slots_chance(mo_slots *s, int32_t expert_id);

/* Who would be evicted now if no slot were free, or -1. */
int32_t mo_slots_victim(mo_slots *s);

#endif
