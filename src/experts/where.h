/* Where: the places an expert can be in, and the only answers to "where is expert e of layer l". It joins what the store (RAM slots,
 * disk), the device's slots and the model's description (which experts this rank has) know. Asked by the thread that runs the step,
 * under the engine's lock. Moves are made by the store and by vram. */
#ifndef MO_EXPERTS_WHERE_H
#define MO_EXPERTS_WHERE_H

#include "experts/store.h"
#include "experts/vram.h"
#include "moraine_server.h"

typedef struct mo_where {
    const mo_model_spec *spec;
    mo_store *store; /* NULL: all experts of this rank are in RAM for good */
    mo_vram *vram;   /* the slots of the device that has the layers asked for; NULL: none */
} mo_where;

/* Is it an expert of this rank? */
static inline bool mo_where_here(const mo_where *w, int expert)
{
    return mo_spec_has_expert(w->spec, expert);
}

/* Where the device finds it; 0: it is not in VRAM, or has not arrived there. */
static inline mo_daddr mo_where_address(const mo_where *w, int layer, int expert)
{
    return mo_vram_find(w->vram, layer, expert);
}

/* Has it a slot in VRAM, perhaps without its bytes? */
static inline bool mo_where_placed(const mo_where *w, int layer, int expert)
{
    return mo_vram_placed(w->vram, layer, expert);
}

/* Is it in RAM? Its reads have ended; one that failed shows when it is wanted. */
static inline bool mo_where_resident(const mo_where *w, int layer, int expert)
{
    return !w->store || mo_store_resident(w->store, layer, expert);
}

/* Is it in RAM, or being read? Only where there is a store. */
static inline bool mo_where_arriving(const mo_where *w, int layer, int expert)
{
    return mo_store_has(w->store, layer, expert);
}

/* Can its matrices be copied from RAM now? */
static inline bool mo_where_readable(const mo_where *w, int layer, int expert)
{
    const mo_expert *e = &w->spec->layers[layer].moe.expert[expert];
    const bool gate = e->gate.w.data || !mo_linear_present(&e->gate);
    return gate && e->up.w.data && e->down.w.data && mo_where_resident(w, layer, expert);
}

/* Is every expert of the layer in VRAM for good? */
static inline bool mo_where_whole(const mo_where *w, int layer)
{
    return mo_vram_has(w->vram, layer) && mo_vram_complete(w->vram, layer);
}

/* The fastest place that has it, for reports. */
static inline mo_expert_place mo_where_is(const mo_where *w, int layer, int expert)
{
    if (w->vram && mo_where_address(w, layer, expert)) {
        return MO_EXPERT_DEVICE;
    }
    return mo_where_resident(w, layer, expert) ? MO_EXPERT_RAM : MO_EXPERT_DISK;
}

#endif
