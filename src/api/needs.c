#include "api/needs.h"

#include "engine/engine.h"
#include "engine/session.h"
#include "gpu/gpu.h"

/* What the program takes besides weights, caches and working memory: code and libraries, stacks of threads and
 * readers, buffers of the C library; and the vocabulary, whose tables take some multiples of its text. Both
 * measured on models from 4,096 to 262,144 tokens, and rounded up. */
#define PROGRAM_BYTES   ((int64_t)40 << 20)
#define PER_TOKEN_BYTES 320
/* On a device every vector begins aligned; so many a layer has at most. */
#define VECTORS_PER_LAYER 32

static void count_experts(const mo_bricks *bricks, mo_plan_model *out)
{
    for (int i = 0; i < bricks->class_count; i++) {
        const mo_brick_class *c = &bricks->classes[i];
        out->classes[i] = (mo_plan_class){.bytes = c->bytes / c->count,
                                          .room = c->room,
                                          .bricks = c->count,
                                          .used_per_token = (double)c->used * c->layers,
                                          .used = c->used};
    }
    out->class_count = bricks->class_count;
}

static void count_layers(const mo_bricks *bricks, mo_plan_model *out)
{
    for (int32_t i = bricks->expert_count; i < bricks->count; i++) {
        const int64_t bytes = bricks->home[i].bytes;
        out->dense_layers++;
        out->dense_bytes += bytes;
        out->core_bytes += bytes;
        out->dense_layer_bytes = bytes > out->dense_layer_bytes ? bytes : out->dense_layer_bytes;
    }
    out->dense_layer_room = bricks->layer_room;
}

/* What a device would hold, in its own layout. */
static void count_device(const mo_model_spec *f, const mo_bricks *bricks, mo_plan_model *out)
{
    const mo_gpu_needs needs = mo_gpu_measure(f, out->batch, out->context);
    /* Vectors that are described have no address yet, so the gpu passes them over. */
    out->device_core_bytes =
        needs.core + out->vector_bytes + (int64_t)VECTORS_PER_LAYER * MO_OP_ALIGN * out->layers;
    out->device_work_bytes = needs.work + needs.gpu_session;
    out->device_stage_room = needs.stage_room;
    out->device_map_bytes = needs.map;
    for (int32_t i = 0; i < bricks->count; i++) {
        const mo_brick_home *h = &bricks->home[i];
        int64_t *room = h->expert < 0 ? &out->device_layer_room : &out->device_room[h->size_class];
        int64_t bytes = 0;
        for (int32_t k = 0; k < h->parts; k++) {
            bytes += mo_vram_slot_bytes(bricks->parts[h->first + k].bytes);
        }
        *room = bytes > *room ? bytes : *room;
    }
}

static int64_t matrix_bytes(const mo_weights *w)
{
    return w->rows * mo_format_row_bytes(mo_format_of(w->type), w->cols);
}

static void count_model(const mo_checkpoint *model, const mo_bricks *bricks, const mo_needs_options *o,
                        mo_plan_model *out)
{
    const mo_model_spec *f = mo_checkpoint_spec(model);
    const mo_checkpoint_bytes held = mo_checkpoint_resident(model);
    const int64_t made_for = f->context < o->context_most ? f->context : o->context_most;
    *out = (mo_plan_model){.layers = f->layer_count,
                           .core_bytes = (int64_t)held.core,
                           .vector_bytes = (int64_t)held.vectors,
                           .table_bytes = matrix_bytes(&f->embed),
                           .tied = f->tied,
                           .output_bytes = matrix_bytes(&f->output.w),
                           .batch = o->batch,
                           .context = o->context ? o->context : made_for};
    for (int i = 0; i < f->layer_count; i++) {
        const mo_layer *l = &f->layers[i];
        if (l->routed) {
            out->routed_layers++;
            out->experts = l->moe.experts > out->experts ? l->moe.experts : out->experts;
            out->used = l->moe.used > out->used ? l->moe.used : out->used;
        }
    }
    count_experts(bricks, out);
    count_layers(bricks, out);
    out->kv_bytes = (int64_t)mo_state_bytes(f, o->kv, out->context, o->batch);
    out->work_bytes = (int64_t)mo_engine_bytes(f, o->batch, out->context, o->threads) +
                      mo_session_logits_bytes(f, o->batch, o->all_logits);
    out->other_bytes = PROGRAM_BYTES + PER_TOKEN_BYTES * f->vocab;
    count_device(f, bricks, out);
}

mo_status mo_needs_of(const char *path, const mo_needs_options *options, mo_plan_model *out, mo_error *err)
{
    const mo_load_options describe = {.describe = true};
    mo_checkpoint *model = NULL;
    mo_bricks *bricks = NULL;
    mo_status status = mo_checkpoint_load(path, &describe, &model, err);
    if (status == MO_OK) {
        status = mo_bricks_create(model, &bricks, err);
    }
    if (status == MO_OK) {
        count_model(model, bricks, options, out);
    }
    mo_bricks_destroy(bricks);
    mo_checkpoint_free(model);
    return status;
}
