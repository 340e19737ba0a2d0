/* Family: one architecture, described. A family reads its keys and binds its tensors into a spec; it
 * computes nothing. The list of families is the one place where a new one is registered. */
#ifndef MO_MODEL_FAMILY_H
#define MO_MODEL_FAMILY_H

#include "model/bind.h"
#include "model/keys.h"

/* Layers as most families have them: attention, then a dense part or experts, with a norm before each. */
typedef struct mo_plain {
    const mo_rope *(*rope)(mo_binder *b,
                           const mo_keys *k); /* NULL: that of the common keys, without factors */
    bool neox;                                /* halves of a head rotate together; otherwise neighbours */
    bool head_norms;                          /* queries and keys are normed */
    bool optional_norms;                      /* the same where the file has the tensors */
    bool norm_all, norm_last;                 /* how: see mo_attention */
    const char *ffn_norm;                     /* the norm before the feed-forward part; NULL: ffn_norm */
    bool fused;                               /* gate and up of the dense part are one tensor */
    bool leading;                             /* a key says how many layers at the beginning are dense */
    bool without;    /* there are files without experts, whose layers are all dense */
    bool by_router;  /* layers without a router are dense */
    bool parallel;   /* both parts read the same norm of the stream */
    bool post_norms; /* what attention and the feed-forward part add to the stream is normed */
    /* What of layer n's attention differs from the above: rotation, window, gate. Its numbers are filled in, its tensors not yet bound.
     * NULL: nothing does. */
    void (*attend)(mo_binder *b, const mo_keys *k, int n, const struct mo_plain *p, mo_attention *a);
    const mo_rope *near, *full; /* for attend(): of layers with a window and of others */
    /* Binds the experts of layer n. NULL: every layer is dense. */
    void (*experts)(mo_binder *b, const mo_keys *k, int n, mo_layer *layer);
} mo_plain;

typedef struct mo_family {
    const char *architecture; /* general.architecture */
    /* Fills spec->layers (already allocated, zeroed, spec->layer_count of them) and whatever of the spec
     * differs from the common shape. Failures go to the binder. NULL: the layers are as `plain` says. */
    void (*describe)(mo_binder *b, const mo_keys *keys, mo_model_spec *spec);
    /* Fills layer n of the file, which is that of an MTP head. NULL: heads of the family are not known. */
    void (*head)(mo_binder *b, const mo_keys *keys, int n, mo_layer *layer);
    /* With `head`: fills the streams that the head's spec has. NULL: it has one. */
    void (*head_streams)(mo_binder *b, const mo_keys *keys, mo_streams *streams);
    mo_plain plain;
    bool centers;      /* there are files with LayerNorm */
    bool head_centers; /* the last norm of a head is LayerNorm */
    bool own_output;   /* output.weight must be there; otherwise the embedding serves where it is missing */
    const char *
        head_norm; /* the norm behind a head's layer that has no shared_head_norm, of its block; NULL: the model's */
    const char *out_norm; /* the tensor of the norm before the output; NULL: output_norm.weight */
} mo_family;

/* NULL when Moraine does not know the architecture. */
const mo_family *mo_family_find(const char *architecture);
const mo_family *mo_family_at(int index); /* NULL past the last */

/* MO_EFORMAT: the file is an adapter, an encoder of pictures or an importance matrix, as err says. */
mo_status mo_family_check_type(const mo_gguf *gguf, mo_error *err);

/* The file's; NULL, and a failure, where it has none that is known. */
const mo_family *mo_family_of(mo_binder *b);
/* Fails unless the engine may trust the numbers of the layers. */
void mo_family_check(mo_binder *b, const mo_model_spec *spec);

/* Reads the common keys, allocates the layers in the binder's arena, binds embedding, output norm and
 * output, and lets the family describe the rest. The binder's bindings point into *spec, which must stay where
 * it is. Failures go to the binder. */
void mo_family_describe(mo_binder *b, mo_model_spec *spec);

/* The same for the file's MTP head, whose layer is the only one of the spec. Where it has no embedding or output matrix of its own, that
 * stays without data: mo_head_borrow(). MO_EUNSUPPORTED: the file has none. */
void mo_family_describe_head(mo_binder *b, mo_model_spec *spec);
bool mo_family_has_head(mo_binder *b, const mo_family *family, const mo_keys *keys);
/* Does the file have one that could be described, as far as its keys and names say? */
bool mo_family_finds_head(const mo_gguf *gguf);
/* The head takes the embedding and the output matrix of the model it predicts for, unless it has its own. MO_EINVAL: it is for another
 * model. */
mo_status mo_head_borrow(mo_model_spec *head, const mo_model_spec *model, mo_error *err);

/* ---- Shared parts: what most families are made of ----
 * Names are those of layer `n`. Failures go to the binder. */

/* mo_keys_int() and mo_keys_real() whose failures go to the binder; `otherwise` after one. */
int64_t mo_part_int(mo_binder *b, const mo_keys *k, const char *suffix, int64_t index, int64_t otherwise,
                    int64_t low, int64_t high);
double mo_part_real(mo_binder *b, const mo_keys *k, const char *suffix, double otherwise);
/* Of layer `index`, where the key may be an array. */
double mo_part_real_of(mo_binder *b, const mo_keys *k, const char *suffix, int64_t index, double otherwise);
bool mo_part_flag(mo_binder *b, const mo_keys *k, const char *suffix, bool otherwise);

/* The rotation that the common keys describe, for heads of which n_rot values turn. With rope_freqs.weight
 * when `factors` is set and the file has it. */
const mo_rope *mo_part_rope(mo_binder *b, const mo_keys *k, int64_t n_rot, double base, bool factors);
/* The same without factors, whose c and s are multiplied by `magnitude`; 0: as usual. */
const mo_rope *mo_part_rope_of(mo_binder *b, const mo_keys *k, int64_t n_rot, double base, double magnitude);
/* The same without factors and without any scaling. */
const mo_rope *mo_part_rope_plain(mo_binder *b, int64_t n_rot, double base);
/* What the common keys say, for a family that changes some of it before mo_bind_rope(). */
mo_rope_setup mo_part_rope_setup(mo_binder *b, const mo_keys *k, int64_t n_rot, double base);
/* The magnitude of YaRN less what the scores have of it: (1 + 0.1 ln(factor)) / (1 + share ln(factor)); without YaRN 1. */
double mo_part_yarn_magnitude(const mo_rope_setup *setup, double share);
/* Does the file ask for YaRN? */
bool mo_part_yarn(mo_binder *b);

/* The temperature of queries by position: attention.temperature_scale, if the file has it, of periods of `length` positions. */
mo_temper mo_part_temper(mo_binder *b, const mo_keys *k, int64_t length);

/* mo_part_rope() without factors for models that read pictures, whose rows have positions in a grid, if rope.dimension_sections says which pairs
 * turn by which coordinate; it fills the rule in. */
const mo_rope *mo_part_grid_rope(mo_binder *b, const mo_keys *k, mo_picture_rule *out);

/* mo_part_rope() for files with factors of each pair for short and for long contexts: the loader knows which are needed. */
const mo_rope *mo_part_long_rope(mo_binder *b, const mo_keys *k);

/* The visible positions of layer n, 0 for all, as mo_keys_windowed() says. */
int64_t mo_part_window(mo_binder *b, const mo_keys *k, int n, int64_t period, bool full_first);

/* Head counts of layer n, key and value length, 1/sqrt(k_len), n_rot: what the keys say. The family sets
 * rope, neox and what else differs. */
void mo_part_heads(mo_binder *b, const mo_keys *k, int n, mo_attention *a);

/* The tensors of an attention part whose numbers are filled in: attn_q, attn_k, attn_v (or the fused
 * attn_qkv) and attn_output, with biases where the file has them. optional_v: attn_v may be missing. */
void mo_part_attention(mo_binder *b, int n, int64_t width, bool optional_v, mo_attention *a);

/* attn_q_norm and attn_k_norm: per head, or over all heads with a->norm_all. */
void mo_part_head_norms(mo_binder *b, int n, mo_attention *a);

/* attn_gate, of the layer's normed input: one gate for each head, or for each value of them, as its rows say. Without `optional` it must
 * be there. */
void mo_part_heads_gate(mo_binder *b, int n, int64_t width, mo_gate_kind kind, bool optional,
                        mo_attention *a);

/* ffn_gate, unless the activation has none, ffn_up, ffn_down. */
void mo_part_ffn(mo_binder *b, int n, int64_t width, int64_t hidden, mo_activation activation, mo_ffn *ffn);

/* ffn_up of gate and up together, the gate's rows first, and ffn_down. */
void mo_part_fused_ffn(mo_binder *b, int n, int64_t width, int64_t hidden, mo_ffn *ffn);

/* The dense feed-forward width of layer n. */
int64_t mo_part_ffn_width(mo_binder *b, const mo_keys *k, int n);

/* Router and experts: softmax over all experts, normalized or not. hidden: values of an expert. */
void mo_part_moe(mo_binder *b, const mo_keys *k, int n, int64_t hidden, bool normalize, mo_moe *moe);

/* The same of experts without a gate (MO_RELU2), which with `latent` read and make that many values: between ffn_latent_down and
 * ffn_latent_up. The router reads the whole width. */
void mo_part_latent_moe(mo_binder *b, const mo_keys *k, int n, int64_t hidden, int64_t latent, mo_moe *moe);

/* What files with a choice say of the router mo_part_moe() has bound: the gating function (`otherwise` where the key is absent; 0:
 * it must be there), whether weights are normalized, their scale, groups of experts, and where the file has it the bias of the choice,
 * exp_probs_b.bias or exp_probs_b. */
void mo_part_router(mo_binder *b, const mo_keys *k, int n, int otherwise, mo_moe *moe);

/* The same without a bias of the choice, whatever the file has. */
void mo_part_router_unbiased(mo_binder *b, const mo_keys *k, int otherwise, mo_moe *moe);

/* The shared expert (ffn_*_shexp), behind a sigmoid gate of its own or as it is; without ffn_gate_shexp where the experts have no gate. */
void mo_part_shared(mo_binder *b, int n, int64_t width, int64_t hidden, mo_moe *moe);
void mo_part_shared_ungated(mo_binder *b, int n, int64_t width, int64_t hidden, mo_moe *moe);

/* The same of expert_shared_count times this width, if any. */
void mo_part_shared_count(mo_binder *b, const mo_keys *k, int n, int64_t one, mo_moe *moe);

/* Limits of the activations of layer n, whose parts are bound: swiglu_clamp_exp of its experts, swiglu_clamp_shexp of the others. */
void mo_part_limits(mo_binder *b, const mo_keys *k, int n, mo_layer *layer);

/* Mamba's second kind: its keys (ssm.*) and the tensors of layer n. The bias of the convolution may be missing. */
void mo_part_mamba(mo_binder *b, const mo_keys *k, int n, mo_mamba *m);

/* How many layers at the beginning are dense, of a model whose others are routed. */
int mo_part_dense_layers(mo_binder *b, const mo_keys *k);

/* Layer n of a family that is plain, with experts. */
void mo_part_plain_routed(mo_binder *b, const mo_keys *k, const mo_plain *p, int n, mo_layer *layer);
/* All layers of a family that are plain. */
void mo_part_plain(mo_binder *b, const mo_keys *k, const mo_plain *p, mo_model_spec *spec);

/* How architectures with latent attention in all layers differ. */
typedef struct mo_latent_kind {
    bool usual_yarn;    /* scores always have YaRN's usual magnitude, and rotated values what is left of it */
    bool no_multiplier; /* with usual_yarn: yarn_log_multiplier is not read */
    bool still;         /* nothing rotates */
    int gating;         /* of routers, where the file does not say; 0: it must */
} mo_latent_kind;

/* Of its layers. */
typedef struct mo_latent_shape {
    int64_t q_rank; /* 0: queries come from the stream by one product */
    int64_t rank;   /* values of the latent row */
    int64_t plain, rotated, out_len;
    float scale;
    const mo_rope *rope;
    int gating; /* where the file does not say */
} mo_latent_shape;
mo_latent_shape mo_part_latent_shape(mo_binder *b, const mo_keys *k, const mo_latent_kind *kind);
/* The attention of layer n. */
void mo_part_latent_attention(mo_binder *b, const mo_keys *k, int n, const mo_latent_shape *shape,
                              mo_attention *a);
/* All layers of such a model, the first ones dense; or layer n of the file, an MTP head's, with experts where the model has some. */
void mo_part_latent(mo_binder *b, const mo_keys *k, const mo_latent_kind *kind, mo_model_spec *spec);
void mo_part_latent_head(mo_binder *b, const mo_keys *k, const mo_latent_kind *kind, int n, mo_layer *layer);

/* ---- The families, one file each ---- */

/* clang-format off */
extern const mo_family
    mo_family_llama,
    mo_family_qwen3,
    mo_family_qwen3moe,
    mo_family_qwen2moe,
    mo_family_olmoe,
    mo_family_gpt_oss,
    mo_family_qwen3next,
    mo_family_qwen35,
    mo_family_qwen35moe,
    mo_family_gemma4,
    mo_family_glm4moe,
    mo_family_lfm2,
    mo_family_lfm2moe,
    mo_family_jamba,
    mo_family_glm4,
    mo_family_qwen2,
    mo_family_granite,
    mo_family_granitemoe,
    mo_family_granitehybrid,
    mo_family_minimax_m2,
    mo_family_ernie4_5,
    mo_family_ernie4_5_moe,
    mo_family_dots1,
    mo_family_bailingmoe2,
    mo_family_gemma3,
    mo_family_phi3,
    mo_family_phimoe,
    mo_family_hunyuan_dense,
    mo_family_hunyuan_moe,
    mo_family_deepseek2,
    mo_family_deepseek32,
    mo_family_glm_dsa,
    mo_family_afmoe,
    mo_family_laguna,
    mo_family_step35,
    mo_family_mimo2,
    mo_family_mistral3,
    mo_family_mistral4,
    mo_family_qwen3vlmoe,
    mo_family_hy_v3,
    mo_family_exaone_moe,
    mo_family_cohere2moe,
    mo_family_nemotron_h,
    mo_family_nemotron_h_moe,
    mo_family_kimi_linear,
    mo_family_bailingmoe3,
    mo_family_deepseek4;
/* clang-format on */

#endif
