/* Vram: slots for experts in a device's memory. Which expert is in which slot, which one is evicted when a slot is needed, and the
 * map that the device itself reads. The bytes are moved by the caller; an expert that is on its way is pinned.
 *
 * One thread at a time (the holder of the engine's lock). Nothing allocates after opening. */
#ifndef MO_EXPERTS_VRAM_H
#define MO_EXPERTS_VRAM_H

#include "device/device.h"
#include "experts/policy.h"

typedef struct mo_vram mo_vram;

/* What the experts of a layer take on the device; bytes 0: the layer has none. */
typedef struct mo_vram_layer {
    int64_t bytes;
    int experts;
    int size_class; /* 0 .. MO_VRAM_CLASSES - 1: layers of one class share slots, as large as the largest asks for */
    int32_t slots; /* where the layers say how many slots there are: what this one brings to its class */
} mo_vram_layer;

enum { MO_VRAM_CLASSES = 16 };

/* Bytes of this many slots, for plans: experts of one size share a pool. */
int64_t mo_vram_slot_bytes(int64_t expert_bytes);

/* Opens this many slots for each class. class_slots NULL: the layers say how many there are, and none takes another's. The
 * policy is kept, not owned; NULL: the default. */
mo_status mo_vram_open(mo_device *device, const mo_vram_layer *layers, int layer_count,
                       const int32_t *class_slots, const mo_policy *policy, mo_vram **out, mo_error *err);
void mo_vram_close(mo_vram *v); /* NULL is allowed */

/* Where the expert is, 0: nowhere, or not yet. */
mo_daddr mo_vram_find(const mo_vram *v, int layer, int expert);
/* Has it a slot, even if it is still on its way there? */
bool mo_vram_placed(const mo_vram *v, int layer, int expert);
/* How probably a token uses it, as mo_slots_chance() says. */
double mo_vram_chance(const mo_vram *v, int layer, int expert);

/* Is every expert of the layer on the device, permanently? None can be evicted: there are as many slots as experts, or
 * (slots by layer) the caller exchanges experts within their layer only. */
bool mo_vram_complete(const mo_vram *v, int layer);
/* How often a layer closed, or opened again because an expert was dropped: unchanged, so is what mo_vram_complete() says. */
uint64_t mo_vram_completions(const mo_vram *v);

/* Do experts of any layer get a free slot, and evict others? Not where the slots are the layers' own: the hot cache has them. */
bool mo_vram_admits(const mo_vram *v);

/* Has the layer slots at all? */
bool mo_vram_has(const mo_vram *v, int layer);

/* The map of a layer in device memory: mo_daddr[experts]. */
mo_daddr mo_vram_table(const mo_vram *v, int layer);

/* The expert was chosen by this many tokens in pass `now` (counted from 1). */
void mo_vram_touch(mo_vram *v, int layer, int expert, uint64_t now, uint32_t picks);
/* A profile has this many hits of it, `most` of its most used one: for the policy, before the first touch. */
void mo_vram_seed(mo_vram *v, int layer, int expert, uint64_t hits, uint64_t most);
/* Once it is there no other takes its slot, as far as a quarter of the slots of its size: the rest is the policy's. Slots of a hot cache are
 * not concerned. */
void mo_vram_stay(mo_vram *v, int layer, int expert);

/* Gives the expert a slot, evicting another if need be; pinned until mo_vram_landed() or mo_vram_drop(). 0 when every
 * slot is in use, or when it has one already. The map on the device loses the evicted one with the next mo_vram_switch(). */
mo_daddr mo_vram_acquire(mo_vram *v, int layer, int expert);
/* The same without eviction: 0 when no slot is free. */
mo_daddr mo_vram_acquire_free(mo_vram *v, int layer, int expert);
void mo_vram_landed(mo_vram *v, int layer,
                    int expert); /* its bytes are there: the map gains it at the next switch */
void mo_vram_drop(mo_vram *v, int layer, int expert); /* they never came */

/* A resident expert is in use: it is not evicted meanwhile. */
void mo_vram_pin(mo_vram *v, int layer, int expert);
void mo_vram_unpin(mo_vram *v, int layer, int expert);

/* Brings the device's map up to date, in the order of the stream. After a failure it is not: call again before the map is
 * read. */
mo_status mo_vram_switch(mo_vram *v, mo_dstream *stream, mo_error *err);

/* How many of layers `layer` to `end` - 1 share that layer's slots, itself included. */
int mo_vram_sharers(const mo_vram *v, int layer, int end);
/* Free slots for experts of the layer; and the expert to evict if one of them took a slot while none is: false if none
 * can. */
int32_t mo_vram_free(const mo_vram *v, int layer);
bool mo_vram_victim(const mo_vram *v, int layer, int *victim_layer, int *victim_expert);

/* Slots, how many hold an expert, and the bytes of all. */
void mo_vram_slots(const mo_vram *v, int32_t *slots, int32_t *filled, int64_t *bytes);

#endif
