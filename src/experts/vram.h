/* Vram: slots for experts in device memory. It knows which expert is in which slot and which one is evicted
 * when a slot is needed, and owns the map that the device reads. The caller moves the bytes. An expert in
 * flight is pinned.
 *
 * One thread at a time (the holder of the engine's lock). Nothing is allocated after opening. */
#ifndef MO_EXPERTS_VRAM_H
#define MO_EXPERTS_VRAM_H

#include "device/device.h"
#include "experts/policy.h"

typedef struct mo_vram mo_vram;

/* Size of a layer's experts on the device; bytes 0: the layer has none. */
typedef struct mo_vram_layer {
    int64_t bytes;
    int experts;
    /* 0 .. MO_VRAM_CLASSES - 1; layers of one class share slots of the largest size among them */
    int size_class;
    int32_t slots; /* if slots are counted by layer: the number that this layer adds to its class */
} mo_vram_layer;

enum { MO_VRAM_CLASSES = 16 };

/* Bytes of this many slots, for plans: experts of one size share a pool. */
int64_t mo_vram_slot_bytes(int64_t expert_bytes);

/* Opens class_slots slots for each class. NULL: the layers give the number of slots, and no layer takes
 * another's. The policy is referenced, not owned; NULL: the default. */
mo_status mo_vram_open(mo_device *device, const mo_vram_layer *layers, int layer_count,
                       const int32_t *class_slots, const mo_policy *policy, mo_vram **out, mo_error *err);
void mo_vram_close(mo_vram *v); /* NULL is allowed */

/* Address of the expert; 0: not on the device, or not yet arrived. */
mo_daddr mo_vram_find(const mo_vram *v, int layer, int expert);
/* True if the expert has a slot, even if it has not arrived. */
bool mo_vram_placed(const mo_vram *v, int layer, int expert);
/* The probability that a token uses it, as in mo_slots_chance(). */
double mo_vram_chance(const mo_vram *v, int layer, int expert);

/* True if every expert of the layer is on the device permanently. None can be evicted: there are as many
 * slots as experts, or (slots by layer) the caller exchanges experts only within their layer. */
bool mo_vram_complete(const mo_vram *v, int layer);
/* Counts changes of mo_vram_complete() of any layer. While it is unchanged, so are those results. */
uint64_t mo_vram_completions(const mo_vram *v);

/* True if experts of any layer may take a free slot and evict others. False if each layer has its own slots
 * (hot cache). */
bool mo_vram_admits(const mo_vram *v);

/* True if the layer has slots. */
bool mo_vram_has(const mo_vram *v, int layer);

/* The map of a layer in device memory: mo_daddr[experts]. */
mo_daddr mo_vram_table(const mo_vram *v, int layer);

/* This many tokens chose the expert in pass `now` (counted from 1). */
void mo_vram_touch(mo_vram *v, int layer, int expert, uint64_t now, uint32_t picks);
/* Seeds the policy with hits from a profile, where the most used expert has `most`. Before the first
 * touch. */
void mo_vram_seed(mo_vram *v, int layer, int expert, uint64_t hits, uint64_t most);
/* Keeps the expert in its slot once it has arrived, for at most a quarter of the slots of its size. The
 * policy manages the rest. No effect on slots of a hot cache. */
void mo_vram_stay(mo_vram *v, int layer, int expert);

/* Gives the expert a slot, evicting another if needed. It is pinned until mo_vram_landed() or mo_vram_drop().
 * 0: all slots are in use, or the expert has one already. The next mo_vram_switch() removes the evicted
 * expert from the device's map. */
mo_daddr mo_vram_acquire(mo_vram *v, int layer, int expert);
/* The same without eviction; 0: no slot is free. */
mo_daddr mo_vram_acquire_free(mo_vram *v, int layer, int expert);
void mo_vram_landed(mo_vram *v, int layer,
                    int expert); /* the bytes have arrived: the next switch adds it to the map */
void mo_vram_drop(mo_vram *v, int layer, int expert); /* the bytes never arrived */

/* A pinned expert is in use and is not evicted. */
void mo_vram_pin(mo_vram *v, int layer, int expert);
void mo_vram_unpin(mo_vram *v, int layer, int expert);

/* Updates the device's map, in stream order. After a failure, call it again before the map is read. */
mo_status mo_vram_switch(mo_vram *v, mo_dstream *stream, mo_error *err);

/* The number of layers from `layer` to `end` - 1 that share slots with `layer`, itself included. */
int mo_vram_sharers(const mo_vram *v, int layer, int end);
/* Free slots for experts of the layer; and the expert that would be evicted if none were free, false: none
 * can be. */
int32_t mo_vram_free(const mo_vram *v, int layer);
bool mo_vram_victim(const mo_vram *v, int layer, int *victim_layer, int *victim_expert);

/* Number of slots, of slots that hold an expert, and the bytes of all slots. */
void mo_vram_slots(const mo_vram *v, int32_t *slots, int32_t *filled, int64_t *bytes);

#endif
