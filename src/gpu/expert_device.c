#include "gpu/expert_device.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "engine/forward.h"
#include "gpu/experts.h"
#include "gpu/mover.h"
#include "gpu/ops.h"

/* The experts to compute in a layer. */
typedef struct wanted {
    int count;
    int32_t expert[MO_EXPERTS_MAX];
    int64_t rows, most; /* of all experts; of the one with most */
} wanted;

struct mo_gpu_expert_device {
    mo_worker worker;
    mo_gpu_memory memory;
    mo_gpu_link link;
    mo_gpu_layer_buffer layer_buffer; /* no layer is streamed: this device has no cores */
    mo_gpu_core core;
    mo_gpu_scratch scratch;
    mo_gpu_experts experts;
    wanted wanted;
    atomic_bool lost;                    /* set by the thread that runs the step */
    _Atomic uint64_t steps, asked, hits; /* experts of this device's layers: chosen; computed here */
    mo_gpu_expert_device *next;          /* the device with the next layers; NULL: none */
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

static void count(_Atomic uint64_t *sum, uint64_t more)
{
    atomic_fetch_add_explicit(sum, more, memory_order_relaxed);
}

static void claim(void *owner, mo_expert_work *work, uint8_t me)
{
    mo_gpu_expert_device *a = with_layer(owner, work->layer);
    const bool adapted = work->forward->w->adapting.count > 0; /* the device has no adapters */
    uint64_t asked = 0, hits = 0;
    for (int e = 0; e < work->picks->experts; e++) {
        if (work->picks->count[e] > 0 && work->who[e] == MO_BY_CPU) {
            const bool here = !adapted && mo_where_address(&a->experts.where, work->layer, e);
            work->who[e] = here ? me : MO_BY_CPU;
            hits += here;
            asked++;
        }
    }
    count(&a->asked, asked);
    count(&a->hits, hits);
    count(&a->steps, work->layer == 0);
}

/* Their rows are consecutive on the device, regardless of other experts between them in the request. */
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

/* True if the layer's experts read only quantized values. */
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
    const mo_acts *in = &f->in_experts;
    const uint8_t *from = (const uint8_t *)in->x;
    const size_t all = mo_acts_bytes(f->tokens, in->cols);
    const size_t skip = reads_codes(a, f->index) ? (size_t)((const uint8_t *)in->q - from) : 0;
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
                                 sizeof(float) * (size_t)(a->wanted.rows * f->layer->moe.io), err)
               : status;
}

/* After a failure no device of the row is used again. */
static mo_status note_loss(mo_gpu_expert_device *first, mo_status status)
{
    if (status != MO_OK && status != MO_ECANCELLED) {
        atomic_store_explicit(&first->lost, true, memory_order_relaxed);
    }
    return status;
}

static mo_status begin(void *owner, const mo_expert_work *work, uint8_t me, mo_side_task *rest, mo_error *err)
{
    mo_gpu_expert_device *a = with_layer(owner, work->layer);
    (void)rest;
    list(a, work, me);
    if (a->wanted.count == 0) {
        return MO_OK;
    }
    mo_status status = send(a, work->forward, err);
    status = status == MO_OK ? compute(a, work->forward, err) : status;
    return note_loss(owner, status);
}

static mo_status end(void *owner, const mo_expert_work *work, uint8_t me, mo_error *err)
{
    mo_gpu_expert_device *a = with_layer(owner, work->layer);
    const int64_t width = a->core.spec->layers[work->layer].moe.io;
    const float *from = a->scratch.pinned.shared_rows;
    const mo_status status = a->wanted.count ? mo_dstream_wait(a->link.main, err) : MO_OK;
    (void)me;
    for (int i = 0; i < a->wanted.count && status == MO_OK; i++) {
        const int e = a->wanted.expert[i];
        const int64_t floats = work->picks->count[e] * width;
        memcpy(work->out + work->picks->first[e] * width, from, sizeof(float) * (size_t)floats);
        from += floats;
    }
    return note_loss(owner, status);
}

/* ---- Opening ------------------------------------------------------------------------------------ */

static void describe(mo_gpu_expert_device *a, const mo_checkpoint *model, const mo_gpu_options *o)
{
    a->worker = (mo_worker){.owner = a,
                            .optional = true,
                            .lost = mo_checkpoint_spec(model)->experts.alone
                                        ? "the CPU computes this rank's experts from now on"
                                        : "the CPU computes all experts from now on",
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
        const mo_ahead_fill hottest = {.requests = o->requests,
                                       .request_count = o->request_count,
                                       .only = true,
                                       .bring = true,
                                       .progress = o->progress,
                                       .user = o->user},
                            others = {.bring = true, .progress = o->progress, .user = o->user};
        mo_ahead ahead = {.where = &a->experts.where,
                          .first = a->core.first,
                          .end = a->core.end,
                          .mover = mo_gpu_mover_of(&mover)};
        status = o->request_count ? mo_ahead_fill_slots(&ahead, &hottest, err) : MO_OK;
        status = status == MO_OK ? mo_ahead_fill_slots(&ahead, &others, err) : status;
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

const mo_where *mo_gpu_expert_device_where(mo_gpu_expert_device *expert_device, int layer)
{
    const bool lost = atomic_load_explicit(&expert_device->lost, memory_order_relaxed);
    return lost ? NULL : &with_layer(expert_device, layer)->experts.where;
}

static uint64_t counted(const _Atomic uint64_t *sum)
{
    return atomic_load_explicit(sum, memory_order_relaxed);
}

void mo_gpu_expert_device_report(mo_gpu_expert_device *expert_device, mo_device_report *out)
{
    *out = (mo_device_report){.lost = atomic_load_explicit(&expert_device->lost, memory_order_relaxed),
                              .steps = counted(&expert_device->steps)};
    for (mo_gpu_expert_device *a = expert_device; a; a = a->next) {
        int32_t slots, filled;
        int64_t bytes;
        mo_vram_slots(a->experts.where.vram, &slots, &filled, &bytes);
        out->limit_bytes += a->memory.limit;
        out->peak_bytes += mo_gpu_memory_peak(&a->memory);
        out->core_bytes += out->lost ? 0 : a->core.bytes;
        out->work_bytes += a->scratch.bytes;
        out->stage_bytes += a->experts.staging_bytes;
        out->slots += out->lost ? 0 : slots;
        out->filled += out->lost ? 0 : filled;
        out->slot_bytes += out->lost ? 0 : bytes;
        out->asked += counted(&a->asked);
        out->hits += counted(&a->hits);
        out->fetch_failed += a->link.failed;
    }
    out->by_cpu = out->asked - out->hits;
}
