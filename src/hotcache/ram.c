#include "hotcache/ram.h"

#include <stdlib.h>

#include "base/status.h"

struct mo_hot_ram {
    mo_store *store; /* NULL: all experts are in RAM */
    bool *hot;       /* [layers of the model][experts] of the hot set; NULL: there is none */
};

static bool *cell(const mo_hot_ram *r, int layer, int expert)
{
    return &r->hot[(int64_t)layer * mo_store_experts(r->store)->experts + expert];
}

mo_status mo_hot_ram_open(mo_store *store, const mo_hot_set *set, mo_hot_ram **out, mo_error *err)
{
    mo_hot_ram *r = *out = calloc(1, sizeof *r);
    if (r && store && set->requests) {
        const mo_expert_table *b = mo_store_experts(store);
        r->hot = calloc((size_t)b->layers * (size_t)b->experts + 1, sizeof *r->hot);
    }
    if (!r || (store && set->requests && !r->hot)) {
        mo_hot_ram_close(r);
        *out = NULL;
        return mo_fail(err, MO_ENOMEM, "out of memory for the hot cache's list; free some and try again");
    }
    r->store = store;
    for (int32_t i = 0; r->hot && i < set->count; i++) {
        const mo_store_request *q = &set->requests[i];
        *cell(r, q->layer, q->expert) = mo_store_resident(store, q->layer, q->expert);
    }
    return MO_OK;
}

void mo_hot_ram_close(mo_hot_ram *r)
{
    if (r) {
        free(r->hot);
        free(r);
    }
}

/* ---- The tier ---- */

static mo_status settle(void *owner, mo_error *err)
{
    const mo_hot_ram *r = owner;
    (void)err;
    if (r->store) {
        mo_store_settle(r->store);
    }
    return MO_OK;
}

static bool holds(const void *owner, int layer, int expert)
{
    const mo_hot_ram *r = owner;
    if (r->hot) {
        return *cell(r, layer, expert);
    }
    return !r->store || mo_store_resident(r->store, layer, expert);
}

static mo_status begin(void *owner, int number, const mo_exchange *x, mo_hot_begun *begun, mo_error *err)
{
    mo_hot_ram *r = owner;
    (void)number;
    mo_store_settle(r->store);
    const mo_status status = mo_store_exchange(r->store, x->layer, x->evict, x->add, err);
    *begun = status == MO_OK ? MO_HOT_DONE : MO_HOT_FAILED;
    if (r->hot) {
        *cell(r, x->layer, x->evict) = mo_store_resident(r->store, x->layer, x->evict);
        *cell(r, x->layer, x->add) = status == MO_OK;
    }
    return status;
}

mo_hot_tier mo_hot_ram_tier(mo_hot_ram *r, double rate)
{
    return (mo_hot_tier){.subsystem = "learning",
                         .moves = r->hot && rate > 0.0,
                         .owner = r,
                         .settle = settle,
                         .holds = holds,
                         .begin = begin};
}
