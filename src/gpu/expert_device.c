#include "gpu/expert_device.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "engine/forward.h"
#include "gpu/experts.h"
#include "gpu/mover.h"
#include "gpu/ops.h"

/* What is computed of a layer. */
typedef struct wanted {
    int count;
    int32_t expert[MO_EXPERTS_MAX];
    int64_t rows, most; /* of all; of the one with most */
} wanted;

struct mo_gpu_expert_device {
    mo_worker worker;
    mo_gpu_memory memory;
    mo_gpu_link link;
    mo_gpu_layer_buffer layer_buffer; /* no layer is streamed: none has a core here */
    mo_gpu_core core;
    mo_gpu_scratch scratch;
    mo_gpu_experts experts;
    wanted wanted;
    mo_gpu_expert_device *next; /* the device with the layers that follow; NULL: none */
};

/* ---- A layer ------------------------------------------------------------------------------------ */

static mo_gpu_expert_device *with_layer(mo_gpu_expert_device *first, int layer)
{
    mo_gpu_expert_device *a = first;
    while (a->next && layer >= a->core.end) {
        a = a->next;
    }
    return a;
}

static void claim(void *owner, mo_expert_work *work, uint8_t me)
{
    const mo_gpu_expert_device *a = with_layer(owner, work->layer);
    const bool adapted = work->forward->w->adapting.count > 0; /* the device has no adapters */
    for (int e = 0; e < work->picks->experts && !adapted; e++) {
        if (work->picks->count[e] > 0 && work->who[e] == MO_BY_CPU &&
            mo_where_address(&a->experts.where, work->layer, e)) {
            work->who[e] = me;
        }
    }
}

/* Their rows follow each other on the device, whatever lies between them in the question. */
static void list(mo_gpu_expert_device *a, const mo_expert_work *work, uint8_t me)
{
    const mo_gpu_layer *l = &a->core.layers[work->layer];
    const mo_gpu_pinned *p = &a->scratch.pinned;
    const mo_picks *picks = work->picks;
    wanted *w = &a->wanted;
    w->count = 0;
    w->rows = w->most = 0;
    for (int e = 0; e < picks->experts; e++) {
        const int32_t rows = picks->count[e];
        if (work->who[e] != me) {
            continue;
        }
        const mo_daddr at = mo_where_address(&a->experts.where, work->layer, e);
        const mo_daddr part[] = {at, at + (mo_daddr)l->up_at, at + (mo_daddr)l->down_at};
        for (int j = 0; j < 3; j++) {
            p->groups[j * a->scratch.group_limit + w->count] =
                (mo_dgroup){.data = part[j], .expert = e, .first = (int32_t)w->rows, .count = rows};
        }
        memcpy(p->picks + w->rows, picks->token_of + picks->first[e], sizeof(int32_t) * (size_t)rows);
        w->expert[w->count++] = e;
        w->rows += rows;
        w->most = rows > w->most ? rows : w->most;
    }
}

/* Do the layer's experts read codes alone? */
static bool reads_codes(const mo_gpu_expert_device *a, int layer)
{
    const mo_gpu_layer *l = &a->core.layers[layer];
    const mo_dmatrix *in[] = {&l->expert_gate, &l->expert_up};
    bool codes = true;
    for (int i = 0; i < 2; i++) {
        codes &= in[i]->rows == 0 || mo_format_of((uint32_t)in[i]->type)->kind != MO_KIND_FLOAT;
    }
    return codes;
}

static mo_status send(mo_gpu_expert_device *a, const mo_forward *f, mo_error *err)
{
    const mo_gpu_pinned *p = &a->scratch.pinned;
    const uint8_t *from = (const uint8_t *)f->in.x;
    const size_t all = mo_acts_bytes(f->tokens, f->in.cols);
    const size_t skip = reads_codes(a, f->index) ? (size_t)((const uint8_t *)f->in.q - from) : 0;
    memcpy(p->acts + skip, from + skip, all - skip);
    const mo_status status = mo_gpu_link_put(&a->link, a->link.main, a->scratch.in + (mo_daddr)skip,
                                             p->acts + skip, all - skip, err);
    const size_t lists = (size_t)((const uint8_t *)(p->picks + a->wanted.rows) - (const uint8_t *)p->groups);
    return status == MO_OK ? mo_gpu_link_put(&a->link, a->link.main, a->scratch.groups, p->groups, lists, err)
                           : status;
}

static mo_status compute(mo_gpu_expert_device *a, const mo_forward *f, mo_error *err)
{
    mo_op ops[8];
    mo_gpu_ops p = {.core = &a->core,
                    .scratch = &a->scratch,
                    .vram = a->experts.where.vram,
                    .tokens = f->tokens,
                    .whole = f->tokens,
                    .streamed = -1,
                    .ops = ops,
                    .limit = 8};
    mo_gpu_ops_groups(
        &p, f->index,
        &(mo_gpu_span){.groups = a->wanted.count, .rows = a->wanted.rows, .most = a->wanted.most});
    const mo_status status = mo_gpu_ops_launch(&p, &a->link, a->link.main, err);
    return status == MO_OK
               ? mo_gpu_link_get(&a->link, a->link.main, a->scratch.pinned.shared_rows, a->scratch.down,
                                 sizeof(float) * (size_t)(a->wanted.rows * f->spec->width), err)
               : status;
}

static mo_status begin(void *owner, const mo_expert_work *work, uint8_t me, mo_side_task *rest, mo_error *err)
{
    mo_gpu_expert_device *a = with_layer(owner, work->layer);
    (void)rest;
    list(a, work, me);
    if (a->wanted.count == 0) {
        return MO_OK;
    }
    const mo_status status = send(a, work->forward, err);
    return status == MO_OK ? compute(a, work->forward, err) : status;
}

static mo_status end(void *owner, const mo_expert_work *work, uint8_t me, mo_error *err)
{
    mo_gpu_expert_device *a = with_layer(owner, work->layer);
    const int64_t width = a->core.spec->width;
    const float *from = a->scratch.pinned.shared_rows;
    const mo_status status = a->wanted.count ? mo_dstream_wait(a->link.main, err) : MO_OK;
    (void)me;
    for (int i = 0; i < a->wanted.count && status == MO_OK; i++) {
        const int e = a->wanted.expert[i];
        const int64_t floats = work->picks->count[e] * width;
        memcpy(work->out + work->picks->first[e] * width, from, sizeof(float) * (size_t)floats);
        from += floats;
    }
    return status;
}

/* ---- Opening ------------------------------------------------------------------------------------ */

static void describe(mo_gpu_expert_device *a, const mo_checkpoint *model, const mo_gpu_options *o)
{
    a->worker = (mo_worker){.owner = a,
                            .optional = true,
                            .lost = "the CPU computes this rank's experts from now on",
                            .claim = claim,
                            .begin = begin,
                            .end = end};
    mo_gpu_memory_init(&a->memory, o->device);
    a->memory.limit = o->placement.plan->device.ceiling;
    mo_gpu_core_describe(&a->core, mo_checkpoint_spec(model));
    a->core.first = o->first;
    a->core.end = o->end ? o->end : a->core.end;
    a->layer_buffer.link = &a->link;
    a->layer_buffer.total = a->core.spec->layer_count;
    a->layer_buffer.tiers = o->tiers;
    a->layer_buffer.held = -1;
    a->experts.link = &a->link;
    a->experts.core = &a->core;
    a->experts.first = &a->experts;
    a->experts.where.spec = a->core.spec;
    a->experts.where.store = o->tiers ? o->tiers->store : NULL;
}

static mo_status open_slots(mo_gpu_expert_device *a, const mo_gpu_options *o, mo_error *err)
{
    mo_gpu_mover mover = {.experts = &a->experts};
    mo_vram_layer *shapes = mo_gpu_experts_shapes(&a->experts, o->placement.model);
    mo_status status =
        shapes ? MO_OK : mo_fail(err, MO_ENOMEM, "out of memory for the map of the device's experts");
    if (status == MO_OK) {
        status = mo_gpu_experts_open_slots(&a->experts, &a->memory, shapes,
                                           o->placement.plan->device.class_slots, o->policy, err);
    }
    free(shapes);
    if (status == MO_OK) {
        status = mo_gpu_mover_open(&mover, &a->memory, 0, 0, err);
    }
    if (status == MO_OK) {
        const mo_ahead_fill fill = {.bring = true, .progress = o->progress, .user = o->user};
        mo_ahead ahead = {.where = &a->experts.where,
                          .first = a->core.first,
                          .end = a->core.end,
                          .mover = mo_gpu_mover_of(&mover)};
        status = mo_ahead_fill_slots(&ahead, &fill, err);
        mo_ahead_close(&ahead);
    }
    mo_gpu_mover_close(&mover);
    return status;
}

static mo_status open_objects(mo_gpu_expert_device *a, const mo_gpu_options *o, mo_error *err)
{
    const mo_plan_device *plan = &o->placement.plan->device;
    mo_status status = mo_gpu_link_open(&a->link, o->device, o->pin_bytes, err);
    if (status == MO_OK) {
        status = mo_gpu_scratch_open(&a->scratch, &a->core, &a->memory, o->batch, o->context,
                                     &(mo_precision_rule){0}, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_layer_buffer_open(&a->layer_buffer, &o->placement, &a->memory, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_core_open(&a->core, &a->link, &a->layer_buffer, &a->memory, plan->upload, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_experts_open(&a->experts, &a->memory, plan->staging, err);
    }
    return status == MO_OK ? open_slots(a, o, err) : status;
}

mo_status mo_gpu_expert_device_open(const mo_checkpoint *model, const mo_gpu_options *options,
                                    mo_gpu_expert_device **out, mo_error *err)
{
    *out = NULL;
    mo_gpu_expert_device *a = calloc(1, sizeof *a);
    if (!a) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the device's part of the model");
    }
    describe(a, model, options);
    const mo_status status = open_objects(a, options, err);
    if (status != MO_OK) {
        mo_gpu_expert_device_close(a);
        return status;
    }
    *out = a;
    return MO_OK;
}

mo_status mo_gpu_expert_device_join(mo_gpu_expert_device *first, const mo_checkpoint *model,
                                    const mo_gpu_options *options, mo_error *err)
{
    mo_gpu_expert_device *last = with_layer(first, first->core.spec->layer_count);
    return mo_gpu_expert_device_open(model, options, &last->next, err);
}

void mo_gpu_expert_device_close(mo_gpu_expert_device *expert_device)
{
    for (mo_gpu_expert_device *a = expert_device, *next; a; a = next) {
        next = a->next;
        mo_gpu_link_stop(&a->link);
        mo_gpu_layer_buffer_close(&a->layer_buffer);
        mo_gpu_experts_close(&a->experts);
        mo_gpu_core_close(&a->core, a->memory.device);
        mo_gpu_scratch_close(&a->scratch, a->memory.device);
        mo_gpu_link_close(&a->link);
        mo_gpu_memory_drop(&a->memory);
        free(a);
    }
}

const mo_worker *mo_gpu_expert_device_worker(const mo_gpu_expert_device *expert_device)
{
    return &expert_device->worker;
}

void mo_gpu_expert_device_slots(const mo_gpu_expert_device *expert_device, int32_t *slots, int32_t *filled)
{
    *slots = *filled = 0;
    for (const mo_gpu_expert_device *a = expert_device; a; a = a->next) {
        int32_t own, full;
        int64_t bytes;
        mo_vram_slots(a->experts.where.vram, &own, &full, &bytes);
        *slots += own;
        *filled += full;
    }
}
