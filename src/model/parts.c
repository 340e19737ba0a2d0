/* Shared parts: see family.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/family.h"
#include "numeric/mamba.h"

int64_t mo_part_int(mo_binder *b, const mo_keys *k, const char *suffix, int64_t index, int64_t otherwise,
                    int64_t low, int64_t high)
{
    int64_t n = otherwise;
    if (b->status == MO_OK) {
        b->status = mo_keys_int(k, suffix, index, otherwise, low, high, &n, b->err);
    }
    return n;
}

double mo_part_real(mo_binder *b, const mo_keys *k, const char *suffix, double otherwise)
{
    double r = otherwise;
    if (b->status == MO_OK) {
        b->status = mo_keys_real(k, suffix, otherwise, &r, b->err);
    }
    return r;
}

double mo_part_real_of(mo_binder *b, const mo_keys *k, const char *suffix, int64_t index, double otherwise)
{
    double r = otherwise;
    if (b->status == MO_OK) {
        b->status = mo_keys_real_of(k, suffix, index, otherwise, &r, b->err);
    }
    return r;
}

bool mo_part_flag(mo_binder *b, const mo_keys *k, const char *suffix, bool otherwise)
{
    char key[256];
    bool yes = otherwise;
    if (b->status == MO_OK) {
        b->status = mo_gguf_arch_key(k->gguf, suffix, key, sizeof key, b->err);
    }
    if (b->status == MO_OK) {
        b->status = mo_gguf_bool_or(k->gguf, key, otherwise, &yes, b->err);
    }
    return yes;
}

/* ---- Ropes ---- */

static const char *scaling_type(mo_binder *b)
{
    char key[256];
    const char *type = "linear";
    if (b->status == MO_OK) {
        b->status = mo_gguf_arch_key(b->gguf, "rope.scaling.type", key, sizeof key, b->err);
    }
    if (b->status == MO_OK) {
        b->status = mo_gguf_string_or(b->gguf, key, "linear", &type, b->err);
    }
    return type;
}

bool mo_part_yarn(mo_binder *b)
{
    return strcmp(scaling_type(b), "yarn") == 0;
}

mo_rope_setup mo_part_rope_setup(mo_binder *b, const mo_keys *k, int64_t n_rot, double base)
{
    const char *type = scaling_type(b);
    const bool none = strcmp(type, "none") == 0, yarn = strcmp(type, "yarn") == 0;
    if (!none && !yarn && strcmp(type, "linear") != 0) {
        mo_bind_fail(b, MO_EUNSUPPORTED,
                     "%s: rope.scaling.type is \"%.60s\"; this version supports only "
                     "none, linear and yarn, so use another conversion of the model",
                     mo_gguf_part_path(b->gguf, 0), type);
    }
    double factor = mo_part_real(b, k, "rope.scaling.factor", 1.0);
    const int64_t context =
        mo_part_int(b, k, "rope.scaling.original_context_length", 0, k->context, 1, INT32_MAX);
    if (none || factor == 0.0) {
        factor = 1.0;
    }
    return (mo_rope_setup){
        .n_rot = n_rot, .base = base, .factor = factor, .yarn = yarn, .context = (double)context};
}

double mo_part_yarn_magnitude(const mo_rope_setup *setup, double share)
{
    const double stretch = setup->yarn && setup->factor > 1.0 ? mo_rope_ln(setup->factor) : 0.0;
    return fma(0.1, stretch, 1.0) / fma(share, stretch, 1.0);
}

const mo_rope *mo_part_rope(mo_binder *b, const mo_keys *k, int64_t n_rot, double base, bool factors)
{
    const mo_rope_setup setup = mo_part_rope_setup(b, k, n_rot, base);
    return mo_bind_rope(b, &setup, factors);
}

const mo_rope *mo_part_grid_rope(mo_binder *b, const mo_keys *k, mo_picture_rule *out)
{
    mo_rope_setup setup = mo_part_rope_setup(b, k, k->n_rot, k->rope_base);
    char key[128];
    snprintf(key, sizeof key, "%s.rope.dimension_sections", k->architecture);
    const bool told = mo_gguf_find(b->gguf, key) != NULL;
    for (int i = 0; told && i < 3; i++) {
        setup.sections[i] = mo_part_int(b, k, "rope.dimension_sections", i, 0, 0, MO_ROPE_PAIRS_MAX);
    }
    out->grid = out->accepted = setup.sections[1] > 0 && setup.sections[2] > 0;
    out->features = (int)mo_part_int(b, k, "n_deepstack_layers", 0, 0, 0, k->layers);
    return mo_bind_rope(b, &setup, false);
}

const mo_rope *mo_part_rope_of(mo_binder *b, const mo_keys *k, int64_t n_rot, double base, double magnitude)
{
    mo_rope_setup setup = mo_part_rope_setup(b, k, n_rot, base);
    setup.magnitude = magnitude;
    return mo_bind_rope(b, &setup, false);
}

const mo_rope *mo_part_rope_plain(mo_binder *b, int64_t n_rot, double base)
{
    const mo_rope_setup setup = {.n_rot = n_rot, .base = base, .factor = 1.0};
    return mo_bind_rope(b, &setup, false);
}

const mo_rope *mo_part_long_rope(mo_binder *b, const mo_keys *k)
{
    const int64_t original =
        mo_part_int(b, k, "rope.scaling.original_context_length", 0, k->context, 1, INT32_MAX);
    const bool has_short = mo_bind_has(b, "rope_factors_short");
    if (!has_short && !mo_bind_has(b, "rope_factors_long")) {
        return mo_part_rope(b, k, k->n_rot, k->rope_base, true);
    }
    const double factor = mo_part_real(b, k, "rope.scaling.factor", 1.0);
    const mo_rope_setup setup = {.n_rot = k->n_rot,
                                 .base = k->rope_base,
                                 .factor = factor == 0.0 ? 1.0 : factor,
                                 .magnitude = mo_part_real(b, k, "rope.scaling.attn_factor", 1.0)};
    const bool longer = b->context ? b->context > original : !has_short; /* a plan takes either */
    return mo_bind_rope_by(b, &setup, longer ? "rope_factors_long" : "rope_factors_short");
}

mo_temper mo_part_temper(mo_binder *b, const mo_keys *k, int64_t length)
{
    const double scale = mo_part_real(b, k, "attention.temperature_scale", 0.0);
    if (scale != 0.0 && length < 1) {
        mo_bind_fail(
            b, MO_EFORMAT,
            "%s: attention.temperature_scale is %g, but the key that says how many positions have the same "
            "temperature is missing; download or convert the model again",
            mo_gguf_part_path(b->gguf, 0), scale);
    }
    return (mo_temper){.scale = scale, .length = length};
}

/* ---- Attention ---- */

int64_t mo_part_window(mo_binder *b, const mo_keys *k, int n, int64_t period, bool full_first)
{
    bool yes = false;
    if (b->status == MO_OK && k->window > 0) {
        b->status = mo_keys_windowed(k, n, period, full_first, &yes, b->err);
    }
    return yes ? k->window : 0;
}

void mo_part_heads(mo_binder *b, const mo_keys *k, int n, mo_attention *a)
{
    a->heads = (int)mo_part_int(b, k, "attention.head_count", n, k->heads, 1, 4096);
    a->kv_heads = (int)mo_part_int(b, k, "attention.head_count_kv", n, a->heads, 1, a->heads);
    a->k_len = k->k_len;
    a->v_len = k->v_len;
    a->n_rot = k->n_rot;
    a->scale = 1.0f / sqrtf((float)a->k_len);
}

void mo_part_attention(mo_binder *b, int n, int64_t width, bool optional_v, mo_attention *a)
{
    const int64_t q = a->heads * a->k_len * (a->gated ? 2 : 1);
    const int64_t k = a->kv_heads * a->k_len, v = a->kv_heads * a->v_len;
    if (mo_bind_has(b, "blk.%d.attn_qkv", n) && !mo_bind_has(b, "blk.%d.attn_q", n)) {
        mo_bind_rows(b, &a->q, width, 0, q, q + k + v, "blk.%d.attn_qkv", n);
        mo_bind_rows(b, &a->k, width, q, k, q + k + v, "blk.%d.attn_qkv", n);
        mo_bind_rows(b, &a->v, width, q + k, v, q + k + v, "blk.%d.attn_qkv", n);
    } else {
        mo_bind_linear(b, &a->q, width, q, "blk.%d.attn_q", n);
        mo_bind_linear(b, &a->k, width, k, "blk.%d.attn_k", n);
        if (!optional_v || mo_bind_has(b, "blk.%d.attn_v", n)) {
            mo_bind_linear(b, &a->v, width, v, "blk.%d.attn_v", n);
        }
    }
    mo_bind_linear(b, &a->out, a->heads * a->v_len, width, "blk.%d.attn_output", n);
}

void mo_part_head_norms(mo_binder *b, int n, mo_attention *a)
{
    const int64_t q = a->norm_all ? a->heads * a->k_len : a->k_len;
    const int64_t k = a->norm_all ? a->kv_heads * a->k_len : a->k_len;
    mo_bind_vector(b, &a->q_norm, q, "blk.%d.attn_q_norm.weight", n);
    mo_bind_vector(b, &a->k_norm, k, "blk.%d.attn_k_norm.weight", n);
}

void mo_part_heads_gate(mo_binder *b, int n, int64_t width, mo_gate_kind kind, bool optional, mo_attention *a)
{
    const int64_t rows = mo_bind_rows_of(b, "blk.%d.attn_gate", n);
    if (optional && rows == 0) {
        return;
    }
    a->gate_kind = kind;
    mo_bind_linear(b, &a->gate, width, rows == a->heads ? a->heads : a->heads * a->v_len, "blk.%d.attn_gate",
                   n);
}

/* ---- Feed-forward ---- */

int64_t mo_part_ffn_width(mo_binder *b, const mo_keys *k, int n)
{
    /* 0 is not a width: a file without the key fails here, with the key's name. */
    return mo_part_int(b, k, "feed_forward_length", n, 0, 1, (int64_t)1 << 24);
}

void mo_part_ffn(mo_binder *b, int n, int64_t width, int64_t hidden, mo_activation activation, mo_ffn *ffn)
{
    ffn->activation = activation;
    if (mo_gated(activation)) {
        mo_bind_linear(b, &ffn->gate, width, hidden, "blk.%d.ffn_gate", n);
    }
    mo_bind_linear(b, &ffn->up, width, hidden, "blk.%d.ffn_up", n);
    mo_bind_linear(b, &ffn->down, hidden, width, "blk.%d.ffn_down", n);
}

void mo_part_fused_ffn(mo_binder *b, int n, int64_t width, int64_t hidden, mo_ffn *ffn)
{
    ffn->activation = MO_SWIGLU;
    mo_bind_rows(b, &ffn->gate, width, 0, hidden, 2 * hidden, "blk.%d.ffn_up", n);
    mo_bind_rows(b, &ffn->up, width, hidden, hidden, 2 * hidden, "blk.%d.ffn_up", n);
    mo_bind_linear(b, &ffn->down, hidden, width, "blk.%d.ffn_down", n);
}

/* Groups of experts, of which only the best are eligible: in every family, if there is more than one. */
static void bind_groups(mo_binder *b, const mo_keys *k, mo_router *r)
{
    r->groups = (int)mo_part_int(b, k, "expert_group_count", 0, 0, 0, MO_EXPERT_GROUPS_MAX);
    r->groups_used = (int)mo_part_int(b, k, "expert_group_used_count", 0, 0, 0, r->groups);
    if (r->groups <= 1) {
        r->groups = r->groups_used = 0;
    }
}

static void bind_moe(mo_binder *b, const mo_keys *k, int n, int64_t hidden, int64_t io, mo_moe *moe)
{
    if (k->experts < 1 || hidden < 1) {
        mo_bind_fail(b, MO_EFORMAT,
                     "%s: the keys %s.expert_count and %s.expert_feed_forward_length specify %d experts of "
                     "width %lld; the converter omitted something, so download or convert the model again",
                     mo_gguf_part_path(b->gguf, 0), k->architecture, k->architecture, k->experts,
                     (long long)hidden);
        return;
    }
    moe->experts = k->experts;
    moe->used = k->experts_used;
    moe->width = hidden;
    moe->router.gating = MO_GATING_SOFTMAX;
    moe->router.scale = 1.0f;
    bind_groups(b, k, &moe->router);
    mo_bind_unscaled(b, &moe->router.logits, k->width, k->experts, "blk.%d.ffn_gate_inp", n);
    mo_bind_experts(b, n, io, moe);
}

void mo_part_moe(mo_binder *b, const mo_keys *k, int n, int64_t hidden, bool normalize, mo_moe *moe)
{
    moe->activation = MO_SWIGLU;
    bind_moe(b, k, n, hidden, k->width, moe);
    moe->router.normalize = normalize;
}

void mo_part_latent_moe(mo_binder *b, const mo_keys *k, int n, int64_t hidden, int64_t latent, mo_moe *moe)
{
    moe->activation = MO_RELU2;
    bind_moe(b, k, n, hidden, latent ? latent : k->width, moe);
    if (latent) {
        mo_bind_linear(b, &moe->latent_down, k->width, latent, "blk.%d.ffn_latent_down", n);
        mo_bind_linear(b, &moe->latent_up, latent, k->width, "blk.%d.ffn_latent_up", n);
    }
}

void mo_part_router_unbiased(mo_binder *b, const mo_keys *k, int otherwise, mo_moe *moe)
{
    mo_router *r = &moe->router;
    const int64_t gating = mo_part_int(b, k, "expert_gating_func", 0, otherwise,
                                       otherwise ? 0 : MO_GATING_SOFTMAX, MO_GATING_SOFTMAX_SELECTED);
    r->gating = (mo_gating)(gating ? gating : otherwise); /* files also write 0 for none */
    r->normalize = mo_part_flag(b, k, "expert_weights_norm", false);
    const double scale = mo_part_real(b, k, "expert_weights_scale", 0.0);
    r->scale = scale == 0.0 ? 1.0f : (float)scale;
}

void mo_part_router(mo_binder *b, const mo_keys *k, int n, int otherwise, mo_moe *moe)
{
    mo_router *r = &moe->router;
    mo_part_router_unbiased(b, k, otherwise, moe);
    if (k->experts > 0) {
        mo_bind_optional(b, &r->select_bias, k->experts, "blk.%d.exp_probs_b.bias", n);
        mo_bind_optional(b, &r->select_bias, k->experts, "blk.%d.exp_probs_b", n);
    }
}

void mo_part_shared_ungated(mo_binder *b, int n, int64_t width, int64_t hidden, mo_moe *moe)
{
    moe->shared.activation = mo_gated(moe->activation) ? MO_SWIGLU : moe->activation;
    if (mo_gated(moe->activation)) {
        mo_bind_linear(b, &moe->shared.gate, width, hidden, "blk.%d.ffn_gate_shexp", n);
    }
    mo_bind_linear(b, &moe->shared.up, width, hidden, "blk.%d.ffn_up_shexp", n);
    mo_bind_linear(b, &moe->shared.down, hidden, width, "blk.%d.ffn_down_shexp", n);
}

void mo_part_shared(mo_binder *b, int n, int64_t width, int64_t hidden, mo_moe *moe)
{
    mo_bind_unscaled(b, &moe->shared_gate, width, 1, "blk.%d.ffn_gate_inp_shexp", n);
    mo_part_shared_ungated(b, n, width, hidden, moe);
}

void mo_part_shared_count(mo_binder *b, const mo_keys *k, int n, int64_t one, mo_moe *moe)
{
    const int64_t count = mo_part_int(b, k, "expert_shared_count", 0, 0, 0, 1024);
    if (count * one > 0) {
        mo_part_shared_ungated(b, n, k->width, count * one, moe);
    }
}

/* The limit of layer n; 0: none. */
static float limit_of(mo_binder *b, const mo_keys *k, const char *suffix, int n)
{
    const double limit = mo_part_real_of(b, k, suffix, n, 0.0);
    return limit > 1e-6 ? (float)limit : 0.0f;
}

static void set_limit(float limit, mo_activation *activation, float *to)
{
    if (limit > 0.0f) {
        *activation = MO_SWIGLU_LIMIT;
        *to = limit;
    }
}

void mo_part_limits(mo_binder *b, const mo_keys *k, int n, mo_layer *layer)
{
    const float shared = limit_of(b, k, "swiglu_clamp_shexp", n);
    set_limit(limit_of(b, k, "swiglu_clamp_exp", n), &layer->moe.activation, &layer->moe.limit);
    set_limit(shared, &layer->moe.shared.activation, &layer->moe.shared.limit);
    set_limit(shared, &layer->ffn.activation, &layer->ffn.limit);
}

/* ---- Mamba ---- */

/* Rows of ssm_in: z, the channels of the convolution, the heads' steps. */
void mo_part_mamba(mo_binder *b, const mo_keys *k, int n, mo_mamba *m)
{
    m->heads = (int)mo_part_int(b, k, "ssm.time_step_rank", 0, 0, 1, 65536);
    m->groups = (int)mo_part_int(b, k, "ssm.group_count", 0, 0, 1, 4096);
    m->taps = (int)mo_part_int(b, k, "ssm.conv_kernel", 0, 0, 2, MO_MAMBA_TAPS);
    m->inner = mo_part_int(b, k, "ssm.inner_size", 0, 0, 1, (int64_t)1 << 24);
    m->states = mo_part_int(b, k, "ssm.state_size", 0, 0, 1, 1024);
    if (b->status != MO_OK) {
        return;
    }
    const int64_t channels = mo_mamba_channels(m), rows = m->inner + channels + m->heads;
    mo_bind_rows(b, &m->z, k->width, 0, m->inner, rows, "blk.%d.ssm_in", n);
    mo_bind_rows(b, &m->x, k->width, m->inner, channels, rows, "blk.%d.ssm_in", n);
    mo_bind_rows(b, &m->dt_in, k->width, m->inner + channels, m->heads, rows, "blk.%d.ssm_in", n);
    mo_bind_taps(b, &m->conv, m->taps, channels, "blk.%d.ssm_conv1d.weight", n);
    const size_t before = b->count;
    mo_bind_optional(b, &m->conv_bias, channels, "blk.%d.ssm_conv1d.bias", n);
    if (b->count == before) {
        m->conv_bias = mo_bind_alloc(b, (size_t)channels, sizeof(float)); /* zeros */
    }
    mo_bind_vector(b, &m->dt_bias, m->heads, "blk.%d.ssm_dt.bias", n);
    mo_bind_vectors(b, &m->a, 1, m->heads, "blk.%d.ssm_a", n);
    mo_bind_vectors(b, &m->d, 1, m->heads, "blk.%d.ssm_d", n);
    mo_bind_vectors(b, &m->norm, m->inner / m->groups, m->groups, "blk.%d.ssm_norm.weight", n);
    mo_bind_linear(b, &m->out, m->inner, k->width, "blk.%d.ssm_out", n);
}

/* ---- Layers ---- */

int mo_part_dense_layers(mo_binder *b, const mo_keys *k)
{
    return (int)mo_part_int(b, k, "leading_dense_block_count", 0, 0, 0, k->layers);
}

/* ---- Plain layers ---- */

static void plain_attention(mo_binder *b, const mo_keys *k, int n, const mo_plain *p, const mo_rope *rope,
                            mo_attention *a)
{
    mo_part_heads(b, k, n, a);
    a->rope = rope;
    a->neox = p->neox;
    a->norm_all = p->norm_all;
    a->norm_last = p->norm_last;
    if (p->attend) {
        p->attend(b, k, n, p, a);
    }
    mo_part_attention(b, n, k->width, false, a);
    if (p->head_norms || (p->optional_norms && mo_bind_has(b, "blk.%d.attn_q_norm", n))) {
        mo_part_head_norms(b, n, a);
    }
}

static void plain_norms(mo_binder *b, const mo_keys *k, const mo_plain *p, int n, mo_layer *layer)
{
    mo_bind_vector(b, &layer->mixer_norm, k->width, "blk.%d.attn_norm.weight", n);
    layer->parallel = p->parallel;
    if (!p->parallel) {
        mo_bind_vector(b, &layer->ffn_norm, k->width, "blk.%d.%s.weight", n,
                       p->ffn_norm ? p->ffn_norm : "ffn_norm");
    }
    if (p->post_norms) {
        mo_bind_vector(b, &layer->post_mixer_norm, k->width, "blk.%d.post_attention_norm.weight", n);
        mo_bind_vector(b, &layer->post_ffn_norm, k->width, "blk.%d.post_ffw_norm.weight", n);
    }
}

static const mo_rope *plain_rope(mo_binder *b, const mo_keys *k, const mo_plain *p)
{
    return p->rope ? p->rope(b, k) : p->full ? p->full : mo_part_rope(b, k, k->n_rot, k->rope_base, false);
}

void mo_part_plain_routed(mo_binder *b, const mo_keys *k, const mo_plain *p, int n, mo_layer *layer)
{
    plain_attention(b, k, n, p, plain_rope(b, k, p), &layer->attention);
    plain_norms(b, k, p, n, layer);
    layer->routed = true;
    p->experts(b, k, n, layer);
}

void mo_part_plain(mo_binder *b, const mo_keys *k, const mo_plain *p, mo_model_spec *spec)
{
    const mo_rope *rope = plain_rope(b, k, p);
    const bool all = !p->experts || (p->without && k->experts == 0);
    const int dense = all ? k->layers : p->leading ? mo_part_dense_layers(b, k) : 0;
    for (int n = 0; n < k->layers && b->status == MO_OK; n++) {
        mo_layer *layer = &spec->layers[n];
        plain_attention(b, k, n, p, rope, &layer->attention);
        plain_norms(b, k, p, n, layer);
        layer->dense = n < dense || (p->by_router && !mo_bind_has(b, "blk.%d.ffn_gate_inp", n));
        layer->routed = !layer->dense;
        if (layer->routed) {
            p->experts(b, k, n, layer);
        } else if (p->fused) {
            mo_part_fused_ffn(b, n, k->width, mo_part_ffn_width(b, k, n), &layer->ffn);
        } else {
            mo_part_ffn(b, n, k->width, mo_part_ffn_width(b, k, n), MO_SWIGLU, &layer->ffn);
        }
    }
}
