/* Slots at the start: which experts fill them, and how they get there. */
#include "base/status.h"
#include "gpu/parts.h"

bool mo_gpu_in_ram(const mo_gpu *gpu, int layer, int expert)
{
    const mo_brick *b = &gpu->core.spec->layers[layer].moe.bricks[expert];
    return b->gate.w.data && b->up.w.data && b->down.w.data &&
           (!gpu->experts.store || mo_store_resident(gpu->experts.store, layer, expert));
}

/* Through a stage where RAM has another layout; stages take turns, so that a copy runs beside the one before it. */
mo_status mo_gpu_send_to_slot(mo_gpu *gpu, int layer, int expert, mo_daddr to, int number, int64_t *bytes,
                              mo_error *err)
{
    const mo_gpu_stage *s = &gpu->experts.stages[number % gpu->experts.stage_count];
    const bool interleaved = mo_gpu_core_interleaved(&gpu->core, layer);
    mo_status status = MO_OK;
    if (interleaved && number >= gpu->experts.stage_count) {
        status = mo_dstream_after(gpu->link.fetch, s->done, err);
    }
    for (int tries = 0, again = status == MO_OK; again;) {
        status = mo_gpu_core_copy_brick(&gpu->core, &gpu->link, gpu->link.fetch, layer, expert,
                                        interleaved ? s->memory : to, bytes, err);
        again = mo_gpu_link_again(&gpu->link, gpu->link.fetch, &tries, &status, err);
    }
    if (status == MO_OK) {
        status = mo_event_record(s->ready, gpu->link.fetch, err);
    }
    if (status == MO_OK) {
        status = mo_dstream_after(gpu->link.main, s->ready, err);
    }
    if (status == MO_OK && interleaved) {
        const mo_op op = mo_gpu_core_restore(&gpu->core, layer, s->memory, to, 1, 0, -1);
        status = mo_gpu_link_launch(&gpu->link, gpu->link.main, &op, 1, err);
    }
    return status == MO_OK ? mo_event_record(s->done, gpu->link.main, err) : status;
}

typedef struct filling {
    mo_gpu *gpu;
    int sent;
    int64_t done, all; /* bytes */
    bool bring;        /* experts that are on disk are read, too */
} filling;

/* Where a slot is free for it. */
static mo_status fill_one(filling *f, int layer, int expert, mo_error *err)
{
    mo_gpu *gpu = f->gpu;
    const bool stored = gpu->experts.store != NULL;
    int64_t bytes = 0;
    mo_status status = MO_OK;
    if (mo_vram_find(gpu->experts.vram, layer, expert) || (!f->bring && !mo_gpu_in_ram(gpu, layer, expert))) {
        return MO_OK;
    }
    const mo_daddr to = mo_vram_take_free(gpu->experts.vram, layer, expert);
    if (!to) {
        return MO_OK;
    }
    if (f->bring && stored) {
        status = mo_store_bring(gpu->experts.store, layer, expert, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_send_to_slot(gpu, layer, expert, to, f->sent++, &bytes, err);
    }
    if (status == MO_OK && f->bring && stored) { /* the next one may take its place in RAM */
        status = mo_dstream_wait(gpu->link.main, err);
    }
    mo_vram_landed(gpu->experts.vram, layer, expert);
    f->done += bytes;
    if (status == MO_OK && gpu->options.progress &&
        !gpu->options.progress(gpu->options.user, f->done < f->all ? f->done : f->all, f->all)) {
        status = mo_fail(err, MO_ECANCELLED, "sending the model to the device was stopped");
    }
    return status;
}

/* Those of the same number in every layer together. */
static mo_status fill_by_number(filling *f, mo_error *err)
{
    const mo_model_spec *spec = f->gpu->core.spec;
    mo_status status = MO_OK;
    for (int64_t e = 0; e < f->gpu->core.extent.experts && status == MO_OK; e++) {
        for (int i = 0; i < spec->layer_count && status == MO_OK; i++) {
            const mo_layer *l = &spec->layers[i];
            if (l->routed && e < l->moe.experts) {
                status = fill_one(f, i, (int)e, err);
            }
        }
    }
    return status;
}

/* What the learned profile knows, hottest first; the policy hears of it, too. */
static mo_status fill_by_requests(filling *f, mo_error *err)
{
    const mo_gpu_options *o = &f->gpu->options;
    mo_status status = MO_OK;
    for (int32_t i = 0; i < o->wish_count && status == MO_OK; i++) {
        const mo_store_request *w = &o->requests[i];
        if (mo_vram_has(f->gpu->experts.vram, w->layer)) {
            mo_vram_seed(f->gpu->experts.vram, w->layer, w->expert, w->hits, o->requests[0].hits);
            status = fill_one(f, w->layer, w->expert, err);
        }
    }
    return status;
}

static mo_status fill_hot(filling *f, mo_error *err)
{
    const mo_packing *p = &f->gpu->hot.packing;
    mo_status status = MO_OK;
    f->bring = true;
    for (size_t i = 0; i < p->count && status == MO_OK; i++) {
        status = fill_one(f, p->entry[i].layer, p->entry[i].expert, err);
    }
    return status;
}

mo_status mo_gpu_fill(mo_gpu *gpu, mo_error *err)
{
    filling f = {.gpu = gpu};
    int32_t slots, filled;
    mo_vram_slots(gpu->experts.vram, &slots, &filled, &f.all);
    mo_status status = MO_OK;
    if (gpu->hot.rules) {
        status = fill_hot(&f, err);
    } else if (slots > 0) {
        status = fill_by_requests(&f, err);
        if (status == MO_OK) {
            status = fill_by_number(&f, err);
        }
    }
    mo_packing_free(&gpu->hot.packing);
    if (status == MO_OK) {
        status = mo_vram_switch(gpu->experts.vram, gpu->link.main, err);
    }
    return status == MO_OK ? mo_dstream_wait(gpu->link.main, err) : status;
}
