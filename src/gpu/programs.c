#include "gpu/programs.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/status.h"

/* ---- Selection ------------------------------------------------------------------------------- */

int64_t mo_gpu_chunks_seen(const mo_forward *forward)
{
    const int64_t chunk = mo_kv_chunk(forward->slices[0].state->kv);
    int64_t most = 1;
    for (int64_t t = 0; t < forward->tokens; t++) {
        const int64_t chunks = (mo_forward_end_seen(forward, t) - 1) / chunk + 1;
        most = chunks > most ? chunks : most;
    }
    return most;
}

/* A program serves all steps up to the next power of two of chunks. */
static int64_t chunk_bucket(const mo_gpu_programs *g, mo_kv_type kv, int64_t chunks)
{
    const int64_t chunk = mo_kv_chunk(kv), most = (g->scratch->context + chunk - 1) / chunk;
    int64_t bucket = 1;
    while (bucket < chunks) {
        bucket *= 2;
    }
    return bucket < most ? bucket : most;
}

static bool wants_logits(const mo_forward *forward)
{
    for (int i = 0; i < forward->slice_count; i++) {
        if (forward->slices[i].logits && forward->slices[i].logits_from < forward->slices[i].count) {
            return true;
        }
    }
    return false;
}

/* ---- Building -------------------------------------------------------------------------------- */

/* served: the host serves layer to - 1 before the next segment. */
static mo_status end_segment(mo_gpu_programs *g, mo_gpu_program_set *set, mo_gpu_ops *p, int from, int to,
                             bool served, mo_error *err)
{
    mo_gpu_segment *s = &set->segments[set->count];
    *s = (mo_gpu_segment){.from = from, .to = to, .served = served, .streamed = p->streamed, .marked = -1};
    p->streamed = -1;
    const mo_status status = mo_program_create(g->link->device, p->ops, p->count, &s->program, err);
    set->count += status == MO_OK;
    p->count = 0;
    return status;
}

/* True if parts of the layer are measured. A streamed layer is one part: its buffer is released at its
 * end. */
static bool tells(const mo_gpu_programs *g, const mo_gpu_program_set *set, int layer)
{
    return set->tells && g->core->spec->layers[layer].routed &&
           !mo_gpu_layer_buffer_has(g->layer_buffer, layer);
}

/* The last segment ends with a part of the layer. */
static void mark_last(mo_gpu_program_set *set, int layer, mo_gpu_mark mark)
{
    set->segments[set->count - 1].marked = layer;
    set->segments[set->count - 1].mark = mark;
}

/* In steps with marks: ends a part of the layer here, with the choice of layers below `to`. */
static mo_status cut(mo_gpu_programs *g, mo_gpu_program_set *set, mo_gpu_ops *p, int *from, int to, int layer,
                     mo_gpu_mark mark, mo_error *err)
{
    if (!tells(g, set, layer)) {
        return MO_OK;
    }
    const mo_status status = end_segment(g, set, p, *from, to, false, err);
    *from = to;
    if (status == MO_OK) {
        mark_last(set, layer, mark);
    }
    return status;
}

/* One past the last of consecutive layers that the CPU computes. */
static int end_of_host(const mo_gpu_programs *g, int layer)
{
    while (layer < g->core->end && g->layer_buffer->cpu.layers[layer]) {
        layer++;
    }
    return layer;
}

/* Builds a layer of the device, from its mixer to its merge. *from: the first layer of its first segment. */
static mo_status build_layer(mo_gpu_programs *g, mo_gpu_program_set *set, mo_gpu_ops *p, int *from, int layer,
                             mo_error *err)
{
    const bool served = set->served[layer], routed = g->core->spec->layers[layer].routed;
    p->keeps = served && g->experts->skips;
    mo_gpu_ops_mixer(p, layer);
    mo_status status = cut(g, set, p, from, layer, layer, MO_MARK_ROUTES, err);
    mo_gpu_ops_choose(p, layer);
    if (status == MO_OK) {
        status = cut(g, set, p, from, layer + 1, layer, MO_MARK_CHOSEN, err);
    }
    if (served) {
        mo_gpu_ops_publish(p, layer);
    }
    if (routed && mo_vram_has(g->experts->where.vram, layer)) {
        mo_gpu_ops_hot(p, layer);
    }
    mo_gpu_ops_side(p, layer);
    if (served && status == MO_OK) {
        status = end_segment(g, set, p, *from, layer + 1, true, err);
        *from = layer + 1;
        if (status == MO_OK && tells(g, set, layer)) {
            mark_last(set, layer, MO_MARK_COMPUTED);
        }
        mo_gpu_ops_await(p, layer);
        if (status == MO_OK) {
            status = cut(g, set, p, from, layer + 1, layer, MO_MARK_ARRIVED, err);
        }
    } else if (status == MO_OK) {
        status = cut(g, set, p, from, layer + 1, layer, MO_MARK_COMPUTED, err);
    }
    mo_gpu_ops_merge(p, layer, false, true);
    return status == MO_OK ? cut(g, set, p, from, layer + 1, layer, MO_MARK_MERGED, err) : status;
}

static mo_status build_set(mo_gpu_programs *g, mo_gpu_program_set *set, mo_gpu_ops *p, mo_error *err)
{
    const int layers = g->core->end;
    mo_status status = MO_OK;
    int from = g->core->first;
    mo_gpu_ops_begin(p, from);
    for (int i = from; i < layers && status == MO_OK; i++) {
        if (g->layer_buffer->cpu.layers[i]) {
            const int to = end_of_host(g, i);
            mo_gpu_ops_hand_over(p, i);
            status = end_segment(g, set, p, from, i, false, err);
            if (status == MO_OK) {
                set->segments[set->count - 1].host_from = i;
                set->segments[set->count - 1].host_to = to;
            }
            mo_gpu_ops_hand_back(p, i, to);
            from = to;
            i = to - 1;
            continue;
        }
        const bool served = set->served[i], alone = mo_gpu_layer_buffer_has(g->layer_buffer, i);
        if (alone && p->count > 0) { /* earlier ops need not wait for it */
            status = end_segment(g, set, p, from, i, false, err);
            from = i;
        }
        p->streamed = alone ? i : -1;
        if (status == MO_OK) {
            status = build_layer(g, set, p, &from, i, err);
        }
        if (alone && !served && status == MO_OK) { /* its buffer is free again */
            status = end_segment(g, set, p, from, i + 1, false, err);
            from = i + 1;
        }
    }
    if (status == MO_OK && set->logits && mo_gpu_core_speaks(g->core)) {
        mo_gpu_ops_logits(p, 0, p->tokens, 0);
    }
    return status == MO_OK && p->count > 0 ? end_segment(g, set, p, from, layers, false, err) : status;
}

/* ---- Caching --------------------------------------------------------------------------------- */

static void drop_set(mo_gpu_program_set *set)
{
    for (int i = 0; i < set->count; i++) {
        mo_program_destroy(set->segments[i].program);
    }
    free(set->segments);
    *set = (mo_gpu_program_set){0};
}

/* The shape that a step must share with the steps of a set. */
static mo_gpu_program_set shape_of(const mo_gpu_programs *g, const mo_forward *forward, uint64_t number,
                                   bool tells)
{
    mo_gpu_program_set shape = {
        .tokens = forward->tokens,
        .slices = forward->slice_count,
        .chunks = chunk_bucket(g, forward->slices[0].state->kv, mo_gpu_chunks_seen(forward)),
        .kv = forward->slices[0].state->kv,
        .logits = wants_logits(forward),
        .drafts = g->drafts->recurrent && mo_forward_has_drafts(forward),
        .tells = tells,
        .used = number,
        .made = number,
        .closures = mo_vram_completions(g->experts->where.vram)};
    const mo_adapting *a = &forward->w->adapting;
    shape.adapting.count = a->count;
    for (int i = 0; i < a->count; i++) {
        shape.adapting.lora[i] = a->lora[i];
    }
    return shape;
}

static bool same_adapters(const mo_adapting *a, const mo_adapting *b)
{
    bool same = a->count == b->count;
    for (int i = 0; same && i < a->count; i++) {
        same = a->lora[i] == b->lora[i];
    }
    return same;
}

static bool same_shape(const mo_gpu_program_set *a, const mo_gpu_program_set *b)
{
    return a->tokens == b->tokens && a->slices == b->slices && a->chunks == b->chunks && a->kv == b->kv &&
           a->logits == b->logits && a->drafts == b->drafts && a->tells == b->tells &&
           same_adapters(&a->adapting, &b->adapting);
}

/* On failure nothing is left in *set. */
static mo_status make_set(mo_gpu_programs *g, const mo_gpu_program_set *shape, mo_gpu_program_set *set,
                          mo_error *err)
{
    const size_t layers = (size_t)g->core->spec->layer_count, segments = GPU_SEGMENTS * layers + 1;
    const int limit = (int)(layers * GPU_OPS + GPU_OPS);
    mo_op *ops = malloc(sizeof *ops * (size_t)limit);
    *set = *shape;
    set->segments = calloc(1, segments * sizeof *set->segments + layers * sizeof *set->served);
    mo_gpu_ops p = {.core = g->core,
                    .scratch = g->scratch,
                    .vram = g->experts->where.vram,
                    .tokens = shape->tokens,
                    .chunks = shape->chunks,
                    .slices = shape->slices,
                    .kv = shape->kv,
                    .adapting = shape->adapting.count ? &shape->adapting : NULL,
                    .adapters = g->adapters,
                    .drafts = shape->drafts ? g->drafts : NULL,
                    .streamed = -1,
                    .ops = ops,
                    .limit = limit};
    mo_status status = MO_OK;
    if (ops && set->segments) {
        set->served = (bool *)(set->segments + segments);
        for (int i = 0; i < (int)layers; i++) {
            set->served[i] = mo_gpu_programs_needs_host(g, i);
        }
        status = build_set(g, set, &p, err);
    } else {
        status = mo_fail(err, MO_ENOMEM, "out of memory for the device's programs");
    }
    free(ops);
    if (status != MO_OK) {
        drop_set(set);
    }
    return status;
}

/* If a step cannot be prepared, the device cannot be used: the CPU takes over, as after any other failure. */
static mo_status refuse(mo_status status, const mo_gpu_program_set *shape, mo_error *err)
{
    if (status == MO_OK || status == MO_EDEVICE) {
        return status;
    }
    return mo_fail_prefix(err, MO_EDEVICE, "a program for steps of %lld tokens cannot be built on the device",
                          (long long)shape->tokens);
}

/* Number of layers that have become complete since the set was built; -1: one is no longer complete, so the
 * set cannot be used. */
static int completed_since(const mo_gpu_programs *g, const mo_gpu_program_set *set)
{
    int complete = 0;
    for (int i = 0; i < g->core->spec->layer_count; i++) {
        const bool served = mo_gpu_programs_needs_host(g, i);
        if (served && !set->served[i]) {
            return -1;
        }
        complete += set->served[i] && !served;
    }
    return complete;
}

/* Layers that have become complete are served by the host until the set is rebuilt, with the same result.
 * Rebuilding costs about as much as building (not measured on a GPU) and saves a round trip per layer in
 * every step. It is not done at once, because more layers may follow. A set that cannot be rebuilt stays in
 * use. */
static mo_status keep_true(mo_gpu_programs *g, const mo_gpu_program_set *shape, mo_gpu_program_set *set,
                           mo_error *err)
{
    mo_gpu_program_set fresh;
    mo_error refused = {0};
    if (set->closures == shape->closures) {
        return MO_OK;
    }
    const int complete = completed_since(g, set);
    if (complete == 0) {
        set->closures = shape->closures;
        return MO_OK;
    }
    if (complete > 0 && shape->made - set->made < GPU_RENEW) {
        return MO_OK;
    }
    const mo_status status = make_set(g, shape, &fresh, &refused);
    if (status == MO_OK) {
        drop_set(set);
        *set = fresh;
        return MO_OK;
    }
    if (complete > 0 && status != MO_EDEVICE) {
        set->made = shape->made;
        mo_log(MO_LOG_WARN, "device",
               "%d layers no longer need the host but still wait for it, which costs time: %s", complete,
               refused.detail);
        return MO_OK;
    }
    if (err) {
        *err = refused;
    }
    return refuse(status, shape, err);
}

mo_status mo_gpu_programs_find(mo_gpu_programs *g, const mo_forward *forward, uint64_t number,
                               mo_gpu_program_set **out, mo_error *err)
{
    mo_gpu_marks_clear(&g->marks);
    const bool tells = forward->tally && forward->engine->timed && !mo_forward_has_drafts(forward) &&
                       mo_gpu_marks_turn(&g->marks);
    const mo_gpu_program_set shape = shape_of(g, forward, number, tells);
    mo_gpu_program_set *oldest = &g->sets[0];
    for (int i = 0; i < GPU_PROGRAMS; i++) {
        mo_gpu_program_set *s = &g->sets[i];
        if (s->segments && same_shape(s, &shape)) {
            s->used = number;
            *out = s;
            return keep_true(g, &shape, s, err);
        }
        if (s->used < oldest->used) {
            oldest = s;
        }
    }
    const mo_status marked =
        tells ? mo_gpu_marks_open(&g->marks, g->link->device, g->core->spec->layer_count, err) : MO_OK;
    if (marked != MO_OK) {
        return refuse(marked, &shape, err);
    }
    drop_set(oldest);
    *out = oldest;
    return refuse(make_set(g, &shape, oldest, err), &shape, err);
}

mo_status mo_gpu_programs_open(mo_gpu_programs *g, mo_error *err)
{
    g->batch_ops_limit = GPU_OPS; /* plus the ops of attention to kept positions, for some tokens at a time */
    g->batch_ops_limit +=
        g->core->extent.index.top ? (int)(GPU_KEPT_OPS * (g->scratch->batch / GPU_KEPT + 1)) : 0;
    g->batch_ops = malloc(sizeof *g->batch_ops * (size_t)g->batch_ops_limit);
    return g->batch_ops ? MO_OK : mo_fail(err, MO_ENOMEM, "out of memory for the device's part of the model");
}

void mo_gpu_programs_forget_adapters(mo_gpu_programs *g)
{
    for (int i = 0; i < GPU_PROGRAMS; i++) {
        if (g->sets[i].adapting.count) {
            drop_set(&g->sets[i]);
        }
    }
}

void mo_gpu_programs_close(mo_gpu_programs *g)
{
    free(g->batch_ops);
    mo_gpu_marks_close(&g->marks);
    for (int i = 0; i < GPU_PROGRAMS; i++) {
        drop_set(&g->sets[i]);
    }
}

mo_status mo_gpu_programs_run(mo_gpu_programs *g, const mo_gpu_segment *s, mo_error *err)
{
    mo_status status =
        s->streamed >= 0 ? mo_gpu_layer_buffer_enter(g->layer_buffer, s->streamed, err) : MO_OK;
    if (status == MO_OK) {
        status = mo_program_run(s->program, g->link->main, err);
    }
    if (status == MO_OK && s->marked >= 0) {
        status = mo_gpu_marks_put(&g->marks, s->marked, s->mark, g->link->main, err);
    }
    return status == MO_OK && s->streamed >= 0 ? mo_gpu_layer_buffer_leave(g->layer_buffer, s->streamed, err)
                                               : status;
}
