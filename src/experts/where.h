/* Where: the only answers to "where is expert e of layer l". It joins the store (RAM slots, disk), the
 * device's slots and the model's description (the experts of this rank). Used by the thread that runs the
 * step, under the engine's lock. The store and vram make the moves. */
#ifndef MO_EXPERTS_WHERE_H
#define MO_EXPERTS_WHERE_H

#include "experts/store.h"
#include "experts/vram.h"
#include "moraine_server.h"

typedef struct mo_where {
    const mo_model_spec *spec;
    mo_store *store; /* NULL: all experts of this rank stay in RAM */
    mo_vram *vram;   /* slots of the device that runs these layers; NULL: none */
} mo_where;

/* True if the expert belongs to this rank. */
static inline bool mo_where_here(const mo_where *w, int expert)
{
    return mo_spec_has_expert(w->spec, expert);
}

/* Address on the device; 0: not in VRAM, or not yet arrived. */
static inline mo_daddr mo_where_address(const mo_where *w, int layer, int expert)
{
    return mo_vram_find(w->vram, layer, expert);
}

/* True if it has a slot in VRAM, even if it has not arrived. */
static inline bool mo_where_placed(const mo_where *w, int layer, int expert)
{
    return mo_vram_placed(w->vram, layer, expert);
}

/* True if it is in RAM: its reads have ended. A failed read is reported when the expert is requested. */
static inline bool mo_where_resident(const mo_where *w, int layer, int expert)
{
    return !w->store || mo_store_resident(w->store, layer, expert);
}

/* True if it is in RAM or being read. Only with a store. */
static inline bool mo_where_arriving(const mo_where *w, int layer, int expert)
{
    return mo_store_has(w->store, layer, expert);
}

/* True if its matrices can be copied from RAM now. */
static inline bool mo_where_readable(const mo_where *w, int layer, int expert)
{
    const mo_expert *e = &w->spec->layers[layer].moe.expert[expert];
    const bool gate = e->gate.w.data || !mo_linear_present(&e->gate);
    return gate && e->up.w.data && e->down.w.data && mo_where_resident(w, layer, expert);
}

/* True if every expert of the layer is in VRAM permanently. */
static inline bool mo_where_whole(const mo_where *w, int layer)
{
    return mo_vram_has(w->vram, layer) && mo_vram_complete(w->vram, layer);
}

/* The fastest tier that has it, for reports. */
static inline mo_expert_place mo_where_is(const mo_where *w, int layer, int expert)
{
    if (w->vram && mo_where_address(w, layer, expert)) {
        return MO_EXPERT_DEVICE;
    }
    return mo_where_resident(w, layer, expert) ? MO_EXPERT_RAM : MO_EXPERT_DISK;
}

#endif
