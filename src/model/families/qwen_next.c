/* qwen3next, qwen35 and qwen35moe: three layers of the gated delta rule, then one of gated attention.
 * post_attention_norm is the norm before the feed-forward part. The generations differ in the assignment of
 * value heads to key heads, and in the tensors of beta and alpha. */
#include "model/family.h"
#include "numeric/delta.h"

typedef struct delta_shape {
    int64_t taps, head, k_heads, v_heads;
} delta_shape;

static delta_shape read_shape(mo_binder *b, const mo_keys *k)
{
    const delta_shape s = {
        .taps = mo_part_int(b, k, "ssm.conv_kernel", 0, 0, 2, MO_DELTA_TAPS),
        .head = mo_part_int(b, k, "ssm.state_size", 0, 0, 1, 1024),
        .k_heads = mo_part_int(b, k, "ssm.group_count", 0, 0, 1, 4096),
        .v_heads = mo_part_int(b, k, "ssm.time_step_rank", 0, 0, 1, 4096),
    };
    const int64_t inner = mo_part_int(b, k, "ssm.inner_size", 0, 0, 1, (int64_t)1 << 24);
    if (b->status == MO_OK && (inner != s.head * s.v_heads || s.v_heads % s.k_heads)) {
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: the keys %s.ssm.* specify %lld value heads of length %lld for %lld key heads and "
                     "an inner size of %lld, which is inconsistent; download or convert the model again",
                     mo_gguf_part_path(b->gguf, 0), k->architecture, (long long)s.v_heads, (long long)s.head,
                     (long long)s.k_heads, (long long)inner);
    }
    return s;
}

/* The first files have q, k, v and z in one tensor, key head by key head: `part` is the number of rows of one
 * kind, and `before` the number of rows before them in a key head. */
static int32_t *append_rows(int32_t *to, const delta_shape *s, int64_t before, int64_t part)
{
    const int64_t members = s->v_heads / s->k_heads, one = (2 + 2 * members) * s->head;
    for (int64_t g = 0; g < s->k_heads; g++) {
        for (int64_t i = 0; i < part; i++) {
            *to++ = (int32_t)(g * one + before + i);
        }
    }
    return to;
}

static void bind_fused(mo_binder *b, const mo_keys *k, int n, const delta_shape *s, mo_delta *d)
{
    const int64_t keys = s->k_heads * s->head, values = s->v_heads * s->head;
    const int64_t part = s->v_heads / s->k_heads * s->head, total = 2 * keys + 2 * values;
    const int64_t found = mo_bind_rows_of(b, "blk.%d.ssm_in", n);
    int32_t *order = found == total ? mo_bind_alloc(b, (size_t)total, sizeof *order) : NULL;
    if (!order) { /* a wrong shape is reported elsewhere; its numbers are not used for allocation */
        mo_bind_linear(b, &d->qkv, k->width, total, "blk.%d.ssm_in", n);
        return;
    }
    int32_t *to = append_rows(order, s, 0, s->head);    /* q */
    to = append_rows(to, s, s->head, s->head);          /* k */
    int32_t *z = append_rows(to, s, 2 * s->head, part); /* v */
    append_rows(z, s, 2 * s->head + part, part);
    mo_bind_gather(b, &d->qkv, k->width, order, 2 * keys + values, total, "blk.%d.ssm_in", n);
    mo_bind_gather(b, &d->gate, k->width, z, values, total, "blk.%d.ssm_in", n);
}

static void describe_delta(mo_binder *b, const mo_keys *k, int n, const delta_shape *s, bool tiled,
                           mo_delta *d)
{
    const int64_t keys = s->k_heads * s->head, values = s->v_heads * s->head;
    d->k_heads = (int)s->k_heads;
    d->v_heads = (int)s->v_heads;
    d->head = s->head;
    d->taps = (int)s->taps;
    d->tiled = tiled;
    if (!tiled && mo_bind_has(b, "blk.%d.ssm_in", n) && !mo_bind_has(b, "blk.%d.attn_qkv", n)) {
        bind_fused(b, k, n, s, d);
    } else {
        mo_bind_linear(b, &d->qkv, k->width, 2 * keys + values, "blk.%d.attn_qkv", n);
        mo_bind_linear(b, &d->gate, k->width, values, "blk.%d.attn_gate", n);
    }
    if (tiled) {
        mo_bind_linear(b, &d->beta, k->width, s->v_heads, "blk.%d.ssm_beta", n);
        mo_bind_linear(b, &d->alpha, k->width, s->v_heads, "blk.%d.ssm_alpha", n);
    } else {
        mo_bind_linear(b, &d->ba, k->width, 2 * s->v_heads, "blk.%d.ssm_ba", n);
    }
    mo_bind_taps(b, &d->conv, d->taps, 2 * keys + values, "blk.%d.ssm_conv1d.weight", n);
    mo_bind_vector(b, &d->dt, s->v_heads, "blk.%d.ssm_dt.bias", n);
    mo_bind_vector(b, &d->a, s->v_heads, "blk.%d.ssm_a", n);
    mo_bind_vector(b, &d->norm, s->head, "blk.%d.ssm_norm.weight", n);
    mo_bind_linear(b, &d->out, values, k->width, "blk.%d.ssm_out", n);
}

static bool recurrent(mo_binder *b, const mo_keys *k, int n, int64_t interval)
{
    const bool usual = (n + 1) % interval != 0;
    return mo_part_int(b, k, "attention.recurrent_layers", n, usual, 0, 1) == 1;
}

static void describe_attention(mo_binder *b, const mo_keys *k, int n, const mo_rope *rope, mo_attention *a)
{
    mo_part_heads(b, k, n, a);
    a->rope = rope;
    a->neox = true;
    a->gated = true;
    mo_part_attention(b, n, k->width, false, a);
    mo_part_head_norms(b, n, a);
}

/* Both norms, and the part after the second. */
static void describe_rest(mo_binder *b, const mo_keys *k, int n, bool routed, mo_layer *layer)
{
    mo_bind_vector(b, &layer->mixer_norm, k->width, "blk.%d.attn_norm.weight", n);
    mo_bind_vector(b, &layer->ffn_norm, k->width, "blk.%d.post_attention_norm.weight", n);
    layer->routed = routed;
    layer->dense = !routed;
    if (routed) {
        mo_part_moe(b, k, n, k->expert_width, true, &layer->moe);
        mo_part_shared(b, n, k->width, k->shared_width, &layer->moe);
    } else {
        mo_part_ffn(b, n, k->width, mo_part_ffn_width(b, k, n), MO_SWIGLU, &layer->ffn);
    }
}

static void describe(mo_binder *b, const mo_keys *k, mo_model_spec *spec, bool tiled, bool routed)
{
    const mo_rope *rope =
        tiled ? mo_part_grid_rope(b, k, &spec->pictures) : mo_part_rope(b, k, k->n_rot, k->rope_base, false);
    const delta_shape shape = read_shape(b, k);
    const int64_t interval = mo_part_int(b, k, "full_attention_interval", 0, 4, 1, 10000);
    for (int n = 0; n < k->layers && b->status == MO_OK; n++) {
        mo_layer *layer = &spec->layers[n];
        if (recurrent(b, k, n, interval)) {
            layer->mixer = MO_MIXER_DELTA;
            describe_delta(b, k, n, &shape, tiled, &layer->delta);
        } else {
            describe_attention(b, k, n, rope, &layer->attention);
        }
        describe_rest(b, k, n, routed, layer);
    }
}

/* A head has attention, regardless of its layer number. */
static void describe_head(mo_binder *b, const mo_keys *k, int n, bool routed, mo_layer *layer)
{
    describe_attention(b, k, n, mo_part_rope(b, k, k->n_rot, k->rope_base, false), &layer->attention);
    describe_rest(b, k, n, routed, layer);
}

static void dense_head(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    describe_head(b, k, n, false, layer);
}

static void routed_head(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    describe_head(b, k, n, true, layer);
}

static void describe_qwen3next(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    describe(b, k, spec, false, true);
}

static void describe_qwen35(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    describe(b, k, spec, true, false);
}

static void describe_qwen35moe(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    describe(b, k, spec, true, true);
}

const mo_family mo_family_qwen3next = {
    .architecture = "qwen3next", .describe = describe_qwen3next, .head = routed_head};
const mo_family mo_family_qwen35 = {
    .architecture = "qwen35", .describe = describe_qwen35, .head = dense_head};
const mo_family mo_family_qwen35moe = {
    .architecture = "qwen35moe", .describe = describe_qwen35moe, .head = routed_head};
