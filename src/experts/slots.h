/* Slots: which experts of one size class are in which slots of a tier, and which one is evicted when a slot
 * is needed. It knows neither bytes nor devices, so RAM, VRAM and trace replay share it. One thread at a time
 * (the holder of the store's lock). Nothing is allocated after creation; every call is O(log slots). Expert
 * and slot numbers out of range are a bug of the caller and abort the program. */
#ifndef MO_EXPERTS_SLOTS_H
#define MO_EXPERTS_SLOTS_H

#include "experts/policy.h"
#include "moraine.h"

typedef struct mo_slots mo_slots;

/* `experts` are numbered from 0 within their class. slots may be 0 and may exceed experts. The policy is
 * referenced, not owned. */
mo_status mo_slots_create(const mo_policy *policy, int32_t experts, int32_t slots, mo_slots **out,
                          mo_error *err);
void mo_slots_destroy(mo_slots *s); /* NULL is allowed */

/* The expert's slot, or -1. */
int32_t mo_slots_find(const mo_slots *s, int32_t expert_id);
/* The slot's expert; -1: the slot is free. */
int32_t mo_slots_expert(const mo_slots *s, int32_t slot);
int32_t mo_slots_free(const mo_slots *s); /* number of free slots */

/* Sets the expert's layer (>= 0), before its first touch, for policies that predict when the layer runs
 * again. By default all experts are in layer 0. */
void mo_slots_place(mo_slots *s, int32_t expert_id, int32_t layer);

/* The expert was routed to, resident or not. Touch all experts of a layer before acquiring slots for the
 * missing ones, so that none is evicted because of an old key. */
void mo_slots_touch(mo_slots *s, int32_t expert_id, uint64_t now, uint32_t picks);
/* Seeds the expert with hits from a profile, where the most used expert has `most`. No effect after the first
 * touch: real use counts more. */
void mo_slots_seed(mo_slots *s, int32_t expert_id, uint64_t hits, uint64_t most);

/* Finds a slot for an expert that is not resident: a free one, else the slot of an expert that is neither
 * pinned nor kept. That is the one with the lowest key (ties: the lower number), or the one that a learning
 * policy names. *evicted is that expert, or -1. The new expert holds the slot and is pinned once. -1: all
 * slots are pinned or kept. */
int32_t mo_slots_acquire(mo_slots *s, int32_t expert_id, int32_t *evicted);

/* Pins are counted. A pinned expert is not evicted. Both calls need a resident expert. */
void mo_slots_pin(mo_slots *s, int32_t expert_id);
void mo_slots_unpin(mo_slots *s, int32_t expert_id);

/* A kept expert is not evicted until keep is false. Needs a resident expert. */
void mo_slots_keep(mo_slots *s, int32_t expert_id, bool keep);

/* Removes the expert from its slot regardless of pins, after a failed read or for a slot that is needed
 * elsewhere. Its entry stays even with a policy that forgets, because it was not evicted. Needs a resident
 * expert. */
void mo_slots_drop(mo_slots *s, int32_t expert_id);
/* Like mo_slots_drop(), but the slot is never reused. */
void mo_slots_abandon(mo_slots *s, int32_t expert_id);

/* The learned probability that a token in the expert's layer uses it; -1: the policy does not learn it. */
double mo_slots_chance(mo_slots *s, int32_t expert_id);

/* The expert that would be evicted now if no slot were free, or -1. */
int32_t mo_slots_victim(mo_slots *s);

#endif
