/* kimi-linear (Kimi Linear) and bailingmoe3 (Ling 3.0): layers of Kimi delta attention, which have no KV
 * heads, and some of latent attention. They differ in the decay per channel, the source of gates, and the
 * latent layers: kimi-linear's do not rotate, bailingmoe3's have a gate per head. The first layers are
 * dense. */
#include "model/family.h"
#include "numeric/delta.h"

typedef struct variant {
    mo_decay decay;
    mo_latent_kind latent;
    bool gated;  /* heads of latent attention */
    bool direct; /* one product computes gates */
} variant;

static const variant of_kimi = {.decay = MO_DECAY_CHANNELS, .latent = {.still = true}};
static const variant of_ling = {
    .decay = MO_DECAY_BOUNDED, .latent = {.rope_alone = true}, .gated = true, .direct = true};

/* ---- Kimi delta attention ---- */

/* Lower bound of a decay's logarithm; 0: none. */
static float read_bound(mo_binder *b, const mo_keys *k, const variant *kind)
{
    if (kind->decay != MO_DECAY_BOUNDED) {
        return 0.0f;
    }
    const double bound = mo_part_real(b, k, "kda.gate_lower_bound", 0.0);
    if (!mo_part_flag(b, k, "kda.safe_gate", true)) {
        mo_bind_fail(b, MO_EUNSUPPORTED,
                     "%s: kda.safe_gate is false, but this version supports only gates with a lower bound; "
                     "use another conversion of the model",
                     mo_gguf_part_path(b->gguf, 0));
    } else if (!(bound < 0.0 && bound >= -1e6)) {
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: kda.gate_lower_bound is %g, but it must be negative; download or convert the "
                     "model again",
                     mo_gguf_part_path(b->gguf, 0), bound);
    }
    return (float)bound;
}

/* Binds the matrices of gates: one, or two with a few values in between. */
static void bind_gates(mo_binder *b, const mo_keys *k, int n, const variant *kind, mo_delta *d)
{
    const int64_t values = d->v_heads * d->head;
    if (kind->direct) {
        mo_bind_linear(b, &d->alpha, k->width, values, "blk.%d.ssm_f_a", n);
        mo_bind_linear(b, &d->gate, k->width, values, "blk.%d.ssm_g_a", n);
        return;
    }
    mo_bind_linear(b, &d->alpha_in, k->width, d->head, "blk.%d.ssm_f_a", n);
    mo_bind_linear(b, &d->alpha, d->head, values, "blk.%d.ssm_f_b", n);
    mo_bind_linear(b, &d->gate_in, k->width, d->head, "blk.%d.ssm_g_a", n);
    mo_bind_linear(b, &d->gate, d->head, values, "blk.%d.ssm_g_b", n);
}

static void describe_delta(mo_binder *b, const mo_keys *k, int n, const variant *kind, mo_delta *d)
{
    d->k_heads = d->v_heads = (int)mo_part_int(b, k, "attention.head_count", n, k->heads, 1, 4096);
    d->head = mo_part_int(b, k, "kda.head_dim", 0, 0, 1, 1024);
    d->taps = (int)mo_part_int(b, k, "ssm.conv_kernel", 0, 0, 2, MO_DELTA_TAPS);
    d->decay = kind->decay;
    d->bound = read_bound(b, k, kind);
    const int64_t values = d->v_heads * d->head;
    mo_bind_linear(b, &d->qkv, k->width, values, "blk.%d.attn_q", n);
    mo_bind_linear(b, &d->k, k->width, values, "blk.%d.attn_k", n);
    mo_bind_linear(b, &d->v, k->width, values, "blk.%d.attn_v", n);
    mo_bind_taps(b, &d->conv, d->taps, values, "blk.%d.ssm_conv1d_q.weight", n);
    mo_bind_taps(b, &d->k_conv, d->taps, values, "blk.%d.ssm_conv1d_k.weight", n);
    mo_bind_taps(b, &d->v_conv, d->taps, values, "blk.%d.ssm_conv1d_v.weight", n);
    bind_gates(b, k, n, kind, d);
    mo_bind_linear(b, &d->beta, k->width, d->v_heads, "blk.%d.ssm_beta", n);
    mo_bind_vector(b, &d->dt, values, "blk.%d.ssm_dt.bias", n);
    mo_bind_vectors(b, &d->a, 1, d->v_heads, "blk.%d.ssm_a", n);
    mo_bind_vector(b, &d->norm, d->head, "blk.%d.ssm_norm.weight", n);
    mo_bind_linear(b, &d->out, values, k->width, "blk.%d.attn_output", n);
}

/* ---- Layers ---- */

static void describe_latent(mo_binder *b, const mo_keys *k, int n, const variant *kind,
                            const mo_latent_shape *shape, mo_attention *a)
{
    mo_part_latent_attention(b, k, n, shape, a);
    if (kind->gated) {
        a->gate_kind = MO_GATE_SIGMOID;
        mo_bind_linear(b, &a->gate, k->width, a->heads, "blk.%d.attn_gate", n);
    }
}

static void describe_experts(mo_binder *b, const mo_keys *k, int n, const variant *kind, mo_moe *moe)
{
    /* A file of bailingmoe3 may have a shared expert and neither its width nor a count. */
    int64_t shared = kind->gated ? k->shared_width : 0;
    if (kind->gated && !shared) {
        shared = mo_bind_rows_of(b, "blk.%d.ffn_up_shexp", n);
    }
    mo_part_moe(b, k, n, k->expert_width, false, moe);
    mo_part_router(b, k, n, 0, moe);
    mo_bind_need(b, "blk.%d.exp_probs_b.bias", n);
    moe->router.normalize = moe->router.normalize || kind->decay == MO_DECAY_CHANNELS;
    if (shared) {
        mo_part_shared_ungated(b, n, k->width, shared, moe);
    } else {
        mo_part_shared_count(b, k, n, k->expert_width, moe);
    }
}

/* Norms, and the part after the second. */
static void describe_rest(mo_binder *b, const mo_keys *k, int n, const variant *kind, bool routed,
                          mo_layer *layer)
{
    mo_bind_vector(b, &layer->mixer_norm, k->width, "blk.%d.attn_norm.weight", n);
    mo_bind_vector(b, &layer->ffn_norm, k->width, "blk.%d.ffn_norm.weight", n);
    layer->routed = routed;
    layer->dense = !routed;
    if (routed) {
        describe_experts(b, k, n, kind, &layer->moe);
    } else {
        mo_part_ffn(b, n, k->width, mo_part_ffn_width(b, k, n), MO_SWIGLU, &layer->ffn);
    }
    if (kind->decay == MO_DECAY_BOUNDED) {
        mo_part_limits(b, k, n, layer);
    }
}

static void describe(mo_binder *b, const mo_keys *k, const variant *kind, mo_model_spec *spec)
{
    const mo_latent_shape shape = mo_part_latent_shape(b, k, &kind->latent);
    const int dense = mo_part_dense_layers(b, k);
    for (int n = 0; n < k->layers && b->status == MO_OK; n++) {
        mo_layer *layer = &spec->layers[n];
        if (mo_part_int(b, k, "attention.head_count_kv", n, k->heads, 0, k->heads) == 0) {
            layer->mixer = MO_MIXER_DELTA;
            describe_delta(b, k, n, kind, &layer->delta);
        } else {
            describe_latent(b, k, n, kind, &shape, &layer->attention);
        }
        describe_rest(b, k, n, kind, n >= dense, layer);
    }
}

static void describe_kimi(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    describe(b, k, &of_kimi, spec);
}

static void describe_ling(mo_binder *b, const mo_keys *k, mo_model_spec *spec)
{
    describe(b, k, &of_ling, spec);
}

/* Heads have attention and experts. */
static void describe_head(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    const mo_latent_shape shape = mo_part_latent_shape(b, k, &of_ling.latent);
    if (b->status == MO_OK) {
        describe_latent(b, k, n, &of_ling, &shape, &layer->attention);
        describe_rest(b, k, n, &of_ling, true, layer);
    }
}

const mo_family mo_family_kimi_linear = {
    .architecture = "kimi-linear", .describe = describe_kimi, .own_output = true};
const mo_family mo_family_bailingmoe3 = {.architecture = "bailingmoe3",
                                         .describe = describe_ling,
                                         .head = describe_head,
                                         .head_norm = "layer_output_norm"};
