/* Slots at the start: which experts fill them, and how they get there. */
#include "base/status.h"
#include "gpu/experts.h"

/* Through a stage where RAM has another layout; stages take turns, so that copies overlap. */
mo_status mo_gpu_experts_send(mo_gpu_experts *x, int layer, int expert, mo_daddr to, int number,
                              int64_t *bytes, mo_error *err)
{
    const mo_gpu_stage *s = &x->stages[number % x->stage_count];
    const bool interleaved = mo_gpu_core_interleaved(x->core, layer);
    mo_status status = MO_OK;
    if (interleaved && number >= x->stage_count) {
        status = mo_dstream_after(x->link->fetch, s->done, err);
    }
    for (int tries = 0, again = status == MO_OK; again;) {
        status = mo_gpu_core_copy_expert(x->core, x->link, x->link->fetch, layer, expert,
                                         interleaved ? s->memory : to, bytes, err);
        again = mo_gpu_link_again(x->link, x->link->fetch, &tries, &status, err);
    }
    if (status == MO_OK) {
        status = mo_event_record(s->ready, x->link->fetch, err);
    }
    if (status == MO_OK) {
        status = mo_dstream_after(x->link->main, s->ready, err);
    }
    if (status == MO_OK && interleaved) {
        const mo_op op = mo_gpu_core_restore(x->core, layer, s->memory, to, 1, 0, -1);
        status = mo_gpu_link_launch(x->link, x->link->main, &op, 1, err);
    }
    return status == MO_OK ? mo_event_record(s->done, x->link->main, err) : status;
}

/* Made again at once if it fails, since the main stream may wait for the host. */
mo_status mo_gpu_experts_map(mo_gpu_experts *x, mo_error *err)
{
    mo_status status = mo_vram_switch(x->where.vram, x->link->main, err);
    if (status != MO_OK && status != MO_EDEVICE) {
        x->link->failed++;
        status = mo_vram_switch(x->where.vram, x->link->main, err);
        status = status == MO_OK || status == MO_EDEVICE
                     ? status
                     : mo_fail_prefix(err, MO_EDEVICE, "a copy to the device failed twice");
    }
    return status;
}

typedef struct filling {
    mo_gpu_experts *x;
    const mo_gpu_fill *asked;
    int sent;
    int64_t done, all; /* bytes */
} filling;

/* Where a slot is free for it. bring: one that is on disk is read. */
static mo_status fill_one(filling *f, int layer, int expert, bool bring, mo_error *err)
{
    mo_gpu_experts *x = f->x;
    const mo_gpu_fill *asked = f->asked;
    int64_t bytes = 0;
    mo_status status = MO_OK;
    if (mo_where_address(&x->where, layer, expert) ||
        (!bring && !mo_where_readable(&x->where, layer, expert))) {
        return MO_OK;
    }
    const mo_daddr to = mo_vram_acquire_free(x->where.vram, layer, expert);
    if (!to) {
        return MO_OK;
    }
    if (bring && x->where.store) {
        status = mo_store_bring(x->where.store, layer, expert, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_experts_send(x, layer, expert, to, f->sent++, &bytes, err);
    }
    if (status == MO_OK && bring && x->where.store) { /* the next one may take its place in RAM */
        status = mo_dstream_wait(x->link->main, err);
    }
    mo_vram_landed(x->where.vram, layer, expert);
    if (status == MO_OK && asked->bring && x->where.store) {
        mo_store_yield(x->where.store, layer, expert);
    }
    f->done += bytes;
    if (status == MO_OK && asked->progress &&
        !asked->progress(asked->user, f->done < f->all ? f->done : f->all, f->all)) {
        status = mo_fail(err, MO_ECANCELLED, "sending the model to the device was cancelled");
    }
    return status;
}

/* Those of the same number in every layer together. */
static mo_status fill_by_number(filling *f, mo_error *err)
{
    const mo_model_spec *spec = f->x->core->spec;
    mo_status status = MO_OK;
    for (int64_t e = 0; e < f->x->core->extent.experts && status == MO_OK; e++) {
        for (int i = 0; i < spec->layer_count && status == MO_OK; i++) {
            const mo_layer *l = &spec->layers[i];
            if (mo_gpu_core_routed(f->x->core, i) && e < l->moe.experts &&
                mo_where_here(&f->x->where, (int)e)) {
                status = fill_one(f, i, (int)e, f->asked->bring, err);
            }
        }
    }
    return status;
}

/* What the learned profile knows, hottest first; the policy hears of it, too. */
static mo_status fill_by_requests(filling *f, mo_error *err)
{
    mo_status status = MO_OK;
    for (int32_t i = 0; i < f->asked->request_count && status == MO_OK; i++) {
        const mo_store_request *w = &f->asked->requests[i];
        if (mo_vram_has(f->x->where.vram, w->layer)) {
            mo_vram_seed(f->x->where.vram, w->layer, w->expert, w->hits, f->asked->requests[0].hits);
            status = fill_one(f, w->layer, w->expert, false, err);
        }
    }
    return status;
}

static mo_status fill_hot(filling *f, mo_error *err)
{
    const mo_packing *p = f->asked->hot;
    mo_status status = MO_OK;
    for (size_t i = 0; i < p->count && status == MO_OK; i++) {
        status = fill_one(f, p->entry[i].layer, p->entry[i].expert, true, err);
    }
    return status;
}

mo_status mo_gpu_experts_fill(mo_gpu_experts *x, const mo_gpu_fill *asked, mo_error *err)
{
    filling f = {.x = x, .asked = asked};
    int32_t slots, filled;
    mo_vram_slots(x->where.vram, &slots, &filled, &f.all);
    mo_status status = MO_OK;
    if (asked->hot) {
        status = fill_hot(&f, err);
    } else if (slots > 0 &&
               (asked->bring || !x->where.store)) { /* or it comes beside the first steps (gpu/start.h) */
        status = fill_by_requests(&f, err);
        if (status == MO_OK) {
            status = fill_by_number(&f, err);
        }
    }
    if (status == MO_OK) {
        status = mo_gpu_experts_map(x, err);
    }
    return status == MO_OK ? mo_dstream_wait(x->link->main, err) : status;
}
