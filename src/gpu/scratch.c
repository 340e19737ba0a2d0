#include "gpu/scratch.h"

#include <string.h>

#include "base/status.h"
#include "plan/share.h"

mo_dreply *mo_gpu_reply_of(const mo_gpu_scratch *s, int layer)
{
    return (mo_dreply *)(void *)(s->pinned.replies + layer * s->pinned.reply_bytes);
}

mo_daddr mo_gpu_experts_rows(const mo_gpu_scratch *s, int layer)
{
    const mo_model_spec *spec = s->core->spec;
    return mo_layer_latent(&spec->layers[layer]) && !mo_spec_device_experts(spec) ? s->experts_latent.in
                                                                                  : s->in;
}

mo_daddr mo_gpu_bad(const mo_gpu_scratch *s, int layer, bool cache)
{
    return s->step + (mo_daddr)(4 * (2 * layer + (cache ? 1 : 0)));
}

int64_t mo_gpu_best_at(int layers)
{
    return (3 * (int64_t)layers + 2 + 1) / 2 * 2;
}

int64_t mo_gpu_bad_words(int layers)
{
    return mo_gpu_best_at(layers) + 2 * GPU_LOGITS_KEPT;
}

mo_daddr mo_gpu_waited(const mo_gpu_scratch *s, int layer)
{
    return s->step + (mo_daddr)(4 * (2 * (int64_t)s->core->spec->layer_count + 2 + layer));
}

/* Maximum tokens of a step whose choices are copied at once. */
static int64_t together(const mo_gpu_scratch *s)
{
    const int64_t few = s->batch < GPU_SHARED ? s->batch : GPU_SHARED;
    return few > GPU_SMALL ? few : GPU_SMALL;
}

int64_t mo_gpu_choice_rows(const mo_gpu_scratch *s, int64_t tokens)
{
    const int64_t most = tokens <= GPU_SMALL ? GPU_SMALL : tokens <= together(s) ? together(s) : s->batch;
    return most * s->core->extent.used;
}

mo_daddr mo_gpu_choice(const mo_gpu_scratch *s, mo_daddr array, int64_t tokens, int layer)
{
    return array + (mo_daddr)(layer * mo_gpu_choice_rows(s, tokens) * 4);
}

/* Cuts aligned pieces from a range of addresses. */
typedef struct cutter {
    uint64_t base;
    int64_t used;
} cutter;

static uint64_t cut(cutter *c, int64_t count, size_t bytes)
{
    const uint64_t at = c->base + (uint64_t)c->used;
    c->used += (count * (int64_t)bytes + MO_OP_ALIGN - 1) / MO_OP_ALIGN * MO_OP_ALIGN;
    return at;
}

mo_gpu_block mo_gpu_block_of(const mo_gpu_scratch *s, int64_t tokens)
{
    cutter c = {0};
    mo_gpu_block b;
    b.bad = (int64_t)cut(&c, mo_gpu_bad_words(s->core->spec->layer_count), sizeof(uint32_t));
    b.sequence = (int64_t)cut(&c, 1, sizeof(uint32_t));
    b.places = (int64_t)cut(&c, tokens, sizeof(mo_dplace));
    b.slices = (int64_t)cut(&c, tokens, sizeof(mo_dslice));
    b.rope = (int64_t)cut(&c, 2 * s->core->rope_count * tokens * s->core->extent.pairs, sizeof(float));
    b.q_factor = (int64_t)cut(&c, s->core->spec->temper.scale != 0.0 ? tokens : 0, sizeof(float));
    b.x = (int64_t)cut(&c, tokens * s->core->spec->width, sizeof(float));
    b.uses = (int64_t)cut(&c, tokens * MO_OP_USES, sizeof(mo_dadapter_use));
    b.bytes = c.used;
    return b;
}

/* Blocks of a session in a layer. */
static int64_t blocks_of(int64_t context)
{
    return (context + MO_KV_BLOCK - 1) / MO_KV_BLOCK + 1;
}

mo_gpu_kv_staging_list mo_gpu_kv_staging_list_of(const mo_gpu_scratch *s)
{
    const int layers = s->core->spec->layer_count;
    cutter c = {0};
    mo_gpu_kv_staging_list l = {.limit = blocks_of(s->context)};
    l.places = (int64_t)cut(&c, s->batch, sizeof(mo_dplace));
    l.states = (int64_t)cut(&c, GPU_KV_STAGED * layers, sizeof(mo_dstate));
    l.entries = (int64_t)cut(&c, layers * l.limit, sizeof(mo_daddr));
    l.bytes = c.used;
    return l;
}

static int64_t work_bytes(int64_t rows)
{
    return (int64_t)sizeof(mo_dwork) + rows * (int64_t)sizeof(mo_dwork_item);
}

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Chunk results of sessions that decode together: 64 sessions with 2048 positions take one launch per
 * layer. */
enum { TOGETHER_CHUNKS = 1024 };

/* Working memory of a step's experts. */
static void lay_experts(cutter *c, mo_gpu_scratch *r)
{
    const mo_extent *e = &r->core->extent;
    const int64_t rows = r->batch * e->used;
    r->gate = cut(c, rows * e->expert_width, sizeof(float));
    r->up = cut(c, rows * e->expert_width, sizeof(float));
    r->hidden = cut(c, 1, mo_acts_bytes(rows, e->expert_width));
    r->down = cut(c, rows * e->expert_io, sizeof(float));
}

/* Positions of each expert's rows: contiguous, so that one copy sends them. */
static void lay_groups(cutter *c, mo_gpu_scratch *r)
{
    const int64_t rows = r->batch * r->core->extent.used;
    r->groups = cut(c, 3 * r->group_limit, sizeof(mo_dgroup));
    r->picks = cut(c, rows, sizeof(int32_t));
    r->row_of = cut(c, rows, sizeof(int32_t));
}

static void lay_index(cutter *c, mo_gpu_scratch *r)
{
    const mo_index_extent *x = &r->core->extent.index;
    const int64_t tokens = r->batch < GPU_KEPT ? r->batch : GPU_KEPT;
    const int64_t blocks = (x->top + MO_KV_BLOCK - 1) / MO_KV_BLOCK;
    if (!x->top) {
        return;
    }
    r->index.stride = blocks_of(r->context) * MO_KV_BLOCK;
    r->index.q = cut(c, r->batch * x->q, sizeof(float));
    r->index.k = cut(c, r->batch * x->k, sizeof(float));
    r->index.share = cut(c, r->batch * x->heads, sizeof(float));
    r->index.kept = cut(c, r->batch * x->top, sizeof(int32_t));
    r->index.scores = cut(c, tokens * r->index.stride, sizeof(float));
    r->index.blocks = cut(c, tokens * blocks, (size_t)x->block);
    r->index.tables = cut(c, tokens * blocks, sizeof(mo_daddr));
    r->index.states = cut(c, tokens, sizeof(mo_dstate));
    r->index.places = cut(c, tokens, sizeof(mo_dplace));
}

static void lay_device(cutter *c, mo_gpu_scratch *r)
{
    const mo_extent *e = &r->core->extent;
    const int64_t batch = r->batch, width = r->core->spec->width, rows = batch * e->used;
    if (mo_spec_device_experts(r->core->spec)) {
        r->in = cut(c, 1, mo_acts_bytes(batch, e->expert_io));
        lay_groups(c, r);
        lay_experts(c, r);
        return;
    }
    const int64_t chunks = blocks_of(r->context); /* of the shortest */
    r->step = cut(c, mo_gpu_block_of(r, batch).bytes, 1);
    r->in = cut(c, 1, mo_acts_bytes(batch, width));
    r->in_dense = cut(c, 1, mo_acts_bytes(batch, max64(width, e->parts)));
    r->in_router = cut(c, 1, mo_acts_bytes(batch, max64(width, e->parts)));
    r->q = cut(c, batch * e->mixer_q, sizeof(float));
    r->k = cut(c, batch * e->mixer_k, sizeof(float));
    r->v = cut(c, batch * e->mixer_v, sizeof(float));
    r->gates = cut(c, batch * e->gates, sizeof(float));
    r->mixed = cut(c, 1, mo_acts_bytes(batch, e->mixed));
    if (e->latent.heads) {
        r->latent.in = cut(c, 1, mo_acts_bytes(batch, e->latent.in));
        r->latent.q = cut(c, batch * e->latent.q, sizeof(float));
        r->latent.plain = cut(c, 1, mo_acts_bytes(batch * e->latent.heads, e->latent.plain));
        r->latent.mixed = cut(c, 1, mo_acts_bytes(batch * e->latent.heads, e->latent.mixed));
        r->latent.out = cut(c, batch * e->mixed, sizeof(float));
        r->latent.groups = cut(c, 2 * e->latent.heads, sizeof(mo_dgroup));
    }
    lay_index(c, r);
    r->y = cut(c, batch * width, sizeof(float));
    r->partial_floats = max64(chunks * MO_OP_SMALL, TOGETHER_CHUNKS) * e->head_floats;
    r->partial = cut(c, r->partial_floats, sizeof(float));
    r->scores = cut(c, batch * e->experts, sizeof(float));
    const int64_t chosen = rows > GPU_SMALL * e->used ? rows : GPU_SMALL * e->used;
    r->weights = cut(c, r->core->spec->layer_count * chosen, sizeof(float));
    r->ids = cut(c, r->core->spec->layer_count * chosen, sizeof(int32_t));
    r->kept_ids = cut(c, GPU_SMALL * e->used, sizeof(int32_t));
    r->kept_weights = cut(c, GPU_SMALL * e->used, sizeof(float));
    r->work = cut(c, work_bytes(rows), 1);
    r->fetched = cut(c, MO_PLAN_STAGES * r->pinned.work_bytes, 1);
    lay_groups(c, r);
    r->counts = cut(c, r->core->spec->layer_count * r->group_limit, sizeof(int32_t));
    r->kv_staging = cut(c, 1, (size_t)mo_gpu_kv_staging_list_of(r).bytes);
    r->idle = c->base + (uint64_t)c->used;
    if (e->expert_width) {
        lay_experts(c, r);
        r->sent = cut(c, 1, mo_acts_bytes(GPU_SMALL * e->used, e->expert_width));
    }
    if (e->expert_latent) {
        r->experts_latent.in = cut(c, 1, mo_acts_bytes(batch, e->expert_latent));
        r->experts_latent.sum = cut(c, 1, mo_acts_bytes(batch, e->expert_latent));
        r->experts_latent.up = cut(c, batch * width, sizeof(float));
    }
    r->side.gate = cut(c, batch * e->side_width, sizeof(float));
    r->side.up = cut(c, batch * e->side_width, sizeof(float));
    r->side.hidden = cut(c, 1, mo_acts_bytes(batch, e->side_width));
    r->side.down = cut(c, batch * width, sizeof(float));
    r->side.weight = cut(c, batch, sizeof(float));
    r->idle_bytes = (int64_t)(c->base + (uint64_t)c->used - r->idle);
    r->logits = cut(c, GPU_LOGITS_KEPT * r->core->spec->vocab, sizeof(float));
    mo_gpu_bf16_size(&r->bf16, r->core, batch);
    r->bf16.rounded = cut(c, r->bf16.row_bytes, 1);
    r->bf16.matrices = cut(c, r->bf16.matrix_bytes, 1);
}

static void lay_pinned(const mo_gpu_scratch *s, cutter *c, mo_gpu_pinned *p)
{
    const mo_extent *e = &s->core->extent;
    const int64_t rows = s->batch * e->used, small = GPU_SMALL * e->used;
    const int layers = s->core->spec->layer_count;
    if (mo_spec_device_experts(s->core->spec)) {
        p->acts = (uint8_t *)cut(c, 1, mo_acts_bytes(s->batch, e->expert_io));
        p->shared_rows = (float *)cut(c, rows * e->expert_io, sizeof(float));
        p->groups = (mo_dgroup *)cut(c, 3 * s->group_limit, sizeof(mo_dgroup));
        p->picks = (int32_t *)cut(c, rows, sizeof(int32_t));
        p->row_of = (int32_t *)cut(c, rows, sizeof(int32_t));
        return;
    }
    p->reply_bytes =
        ((int64_t)sizeof(mo_dreply) + 4 * (small > GPU_SMALL ? small : GPU_SMALL) + 63) / 64 * 64;
    p->block = (uint8_t *)cut(c, mo_gpu_block_of(s, s->batch).bytes, 1);
    p->flags = (uint32_t *)cut(c, layers, sizeof(uint32_t));
    p->replies = (uint8_t *)cut(c, layers * p->reply_bytes, 1);
    p->ids = (int32_t *)cut(c, rows > small ? rows : small, sizeof(int32_t));
    p->weights = (float *)cut(c, rows > small ? rows : small, sizeof(float));
    p->all_ids = (int32_t *)cut(c, layers * together(s) * e->used, sizeof(int32_t));
    p->all_weights = (float *)cut(c, layers * small, sizeof(float));
    p->in = (float *)cut(c, GPU_SMALL * s->core->spec->width, sizeof(float));
    p->latent_in = (float *)cut(c, GPU_SMALL * e->expert_latent, sizeof(float));
    p->x = (float *)cut(c, GPU_SMALL * s->core->spec->width, sizeof(float));
    p->rows = (float *)cut(c, small * e->expert_io, sizeof(float));
    p->hidden = (void *)cut(c, 1, mo_acts_bytes(small, e->expert_width));
    /* other ranks get a batch's input */
    const bool all = s->batch < GPU_SHARED || s->core->spec->experts.divided;
    const int64_t shared = e->used == 0 ? 0 : all ? s->batch : GPU_SHARED;
    p->shared_in = (float *)cut(c, shared * e->expert_io, sizeof(float));
    p->shared_rows = (float *)cut(c, shared * e->used * e->expert_io, sizeof(float));
    p->logits = (float *)cut(c, GPU_LOGITS * s->core->spec->vocab, sizeof(float));
    p->bad = (uint32_t *)cut(c, mo_gpu_bad_words(layers), sizeof(uint32_t));
    p->kv_staging = (uint8_t *)cut(c, 1, (size_t)mo_gpu_kv_staging_list_of(s).bytes);
    p->works = (uint8_t *)cut(c, MO_PLAN_STAGES * p->work_bytes, 1);
    p->groups = (mo_dgroup *)cut(c, 3 * s->group_limit, sizeof(mo_dgroup));
    p->picks = (int32_t *)cut(c, rows, sizeof(int32_t));
    p->row_of = (int32_t *)cut(c, rows, sizeof(int32_t));
    p->counts = (int32_t *)cut(c, layers * s->group_limit, sizeof(int32_t));
}

/* Sets the inputs of the layout. */
static void describe(mo_gpu_scratch *s, const mo_gpu_core *core, int64_t batch, int64_t context,
                     const mo_precision_rule *precision)
{
    *s = (mo_gpu_scratch){.core = core,
                          .batch = batch,
                          .context = context,
                          .group_limit = core->extent.experts,
                          .bf16.rule = *precision};
    s->pinned.work_bytes = work_bytes(GPU_SMALL * core->extent.used);
}

static mo_status pin(mo_gpu_scratch *s, mo_device *device, mo_error *err)
{
    cutter c = {0};
    mo_gpu_pinned p = s->pinned;
    void *memory = NULL;
    lay_pinned(s, &c, &p);
    const mo_status status = mo_device_pin(device, (size_t)c.used, &memory, &p.seen, err);
    if (status != MO_OK) {
        return mo_fail_prefix(err, status, "%.1f MiB of pinned memory for the device",
                              (double)c.used / (1 << 20));
    }
    memset(memory, 0, (size_t)c.used);
    p.bytes = c.used;
    p.memory = memory;
    c = (cutter){.base = (uint64_t)(uintptr_t)memory};
    lay_pinned(s, &c, &p);
    s->pinned = p;
    return MO_OK;
}

mo_gpu_scratch_size mo_gpu_scratch_bytes(const mo_gpu_core *core, int64_t batch, int64_t context,
                                         const mo_precision_rule *precision)
{
    mo_gpu_scratch s;
    cutter device = {0}, pinned = {0};
    describe(&s, core, batch, context, precision);
    lay_device(&device, &s);
    lay_pinned(&s, &pinned, &s.pinned);
    return (mo_gpu_scratch_size){.device = device.used, .pinned = pinned.used, .idle = s.idle_bytes};
}

mo_status mo_gpu_scratch_open(mo_gpu_scratch *s, const mo_gpu_core *core, mo_gpu_memory *memory,
                              int64_t batch, int64_t context, const mo_precision_rule *precision,
                              mo_error *err)
{
    describe(s, core, batch, context, precision);
    s->bytes = mo_gpu_scratch_bytes(core, batch, context, precision).device;
    const mo_status status = mo_gpu_memory_alloc(memory, s->bytes, "working memory", &s->memory, err);
    if (status != MO_OK) {
        return status;
    }
    cutter c = {.base = s->memory};
    lay_device(&c, s);
    return pin(s, memory->device, err);
}

void mo_gpu_scratch_close(mo_gpu_scratch *s, mo_device *device)
{
    mo_device_free(device, s->memory);
    if (s->pinned.memory) {
        mo_device_unpin(device, s->pinned.memory);
    }
}
