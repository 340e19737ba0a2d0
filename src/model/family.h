/* Family: the description of one architecture. A family reads its keys and binds its tensors into a spec; it
 * computes nothing. A new family is registered only in the list of families. */
#ifndef MO_MODEL_FAMILY_H
#define MO_MODEL_FAMILY_H

#include "model/bind.h"
#include "model/keys.h"

/* The usual shape of layers: attention, then a dense part or experts, with a norm before each. */
typedef struct mo_plain {
    const mo_rope *(*rope)(mo_binder *b,
                           /* NULL: the rope of the common keys, without factors */
                           const mo_keys *k);
    bool neox;                /* the halves of a head rotate together; otherwise neighbours */
    bool head_norms;          /* queries and keys have norms */
    bool optional_norms;      /* the same, if the file has the tensors */
    bool norm_all, norm_last; /* see mo_attention */
    const char *ffn_norm;     /* the norm before the feed-forward part; NULL: ffn_norm */
    bool fused;               /* gate and up of the dense part are one tensor */
    bool leading;             /* a key gives the number of dense layers at the beginning */
    bool without;             /* some files have no experts; their layers are all dense */
    bool by_router;           /* layers without a router are dense */
    bool parallel;            /* both parts read the same norm of the stream */
    bool post_norms;          /* the outputs of attention and the feed-forward part have norms */
    /* Changes layer n's attention where it differs from the above: rope, window, gate. Its numbers are filled
     * in, its tensors not yet bound. NULL: no differences. */
    void (*attend)(mo_binder *b, const mo_keys *k, int n, const struct mo_plain *p, mo_attention *a);
    const mo_rope *near, *full; /* for attend(): ropes of layers with a window, and of others */
    /* Binds the experts of layer n. NULL: all layers are dense. */
    void (*experts)(mo_binder *b, const mo_keys *k, int n, mo_layer *layer);
} mo_plain;

typedef struct mo_family {
    const char *architecture; /* general.architecture */
    /* Fills in spec->layers (already allocated, zeroed, spec->layer_count of them) and everything in the spec
     * that differs from the common shape. Failures go to the binder. NULL: the layers are as in `plain`. */
    void (*describe)(mo_binder *b, const mo_keys *keys, mo_model_spec *spec);
    /* Fills in layer n of the file, the layer of an MTP head. NULL: the family's heads are not supported. */
    void (*head)(mo_binder *b, const mo_keys *keys, int n, mo_layer *layer);
    /* With `head`: fills in what else differs from the common shape of a head, such as several streams. NULL:
     * nothing. */
    void (*head_rest)(mo_binder *b, const mo_keys *keys, mo_model_spec *spec);
    mo_plain plain;
    bool centers;      /* some files use LayerNorm */
    bool head_centers; /* the last norm of a head is LayerNorm */
    bool own_output;   /* output.weight is required; otherwise a missing one is replaced by the embedding */
    const char *
        head_norm; /* the norm behind a head's layer that has no shared_head_norm, of its block; NULL: the model's */
    const char *out_norm; /* the tensor of the output norm; NULL: output_norm.weight */
} mo_family;

/* NULL: unknown architecture. */
const mo_family *mo_family_find(const char *architecture);
const mo_family *mo_family_at(int index); /* NULL past the last */

/* MO_EFORMAT: the file is an adapter, a picture encoder or an importance matrix, as err says. */
mo_status mo_family_check_type(const mo_gguf *gguf, mo_error *err);

/* The file's family; NULL, and a failure: it is unknown. */
const mo_family *mo_family_of(mo_binder *b);
/* Fails unless the engine can rely on the layers' numbers. */
void mo_family_check(mo_binder *b, const mo_model_spec *spec);

/* Reads the common keys, allocates the layers in the binder's arena, binds embedding, output norm and output,
 * and lets the family describe the rest. The bindings point into *spec, which must not move. Failures go to
 * the binder. */
void mo_family_describe(mo_binder *b, mo_model_spec *spec);

/* The same for the file's MTP head, whose layer is the only one of the spec. A missing embedding or output
 * matrix stays without data: mo_head_borrow(). MO_EUNSUPPORTED: the file has no head. */
void mo_family_describe_head(mo_binder *b, mo_model_spec *spec);
bool mo_family_has_head(mo_binder *b, const mo_family *family, const mo_keys *keys);
/* True if the file has a head that can be described, judging by its keys and names. */
bool mo_family_finds_head(const mo_gguf *gguf);
/* The head uses the embedding and the output matrix of its model, unless it has its own. MO_EINVAL: it is for
 * another model. */
mo_status mo_head_borrow(mo_model_spec *head, const mo_model_spec *model, mo_error *err);

/* ---- Shared parts that most families consist of ----
 * Names are those of layer `n`. Failures go to the binder. */

/* mo_keys_int() and mo_keys_real() with failures in the binder; `otherwise` after a failure. */
int64_t mo_part_int(mo_binder *b, const mo_keys *k, const char *suffix, int64_t index, int64_t otherwise,
                    int64_t low, int64_t high);
double mo_part_real(mo_binder *b, const mo_keys *k, const char *suffix, double otherwise);
/* For layer `index`, if the key may be an array. */
double mo_part_real_of(mo_binder *b, const mo_keys *k, const char *suffix, int64_t index, double otherwise);
bool mo_part_flag(mo_binder *b, const mo_keys *k, const char *suffix, bool otherwise);

/* The rope of the common keys, for heads with n_rot rotated values. Uses rope_freqs.weight if `factors` is
 * set and the file has it. */
const mo_rope *mo_part_rope(mo_binder *b, const mo_keys *k, int64_t n_rot, double base, bool factors);
/* The same without factors; c and s are multiplied by `magnitude`, 0: the usual one. */
const mo_rope *mo_part_rope_of(mo_binder *b, const mo_keys *k, int64_t n_rot, double base, double magnitude);
/* The same without factors and without any scaling. */
const mo_rope *mo_part_rope_plain(mo_binder *b, int64_t n_rot, double base);
/* The setup of the common keys, for a family that changes it before mo_bind_rope(). */
mo_rope_setup mo_part_rope_setup(mo_binder *b, const mo_keys *k, int64_t n_rot, double base);
/* The part of YaRN's magnitude that the scores do not have: (1 + 0.1 ln(factor)) / (1 + share ln(factor)); 1
 * without YaRN. */
double mo_part_yarn_magnitude(const mo_rope_setup *setup, double share);
/* True if the file requests YaRN. */
bool mo_part_yarn(mo_binder *b);

/* The temperature of queries by position: attention.temperature_scale, if the file has it, with periods of
 * `length` positions. */
mo_temper mo_part_temper(mo_binder *b, const mo_keys *k, int64_t length);

/* mo_part_rope() without factors, for models that read pictures. If rope.dimension_sections assigns pairs to
 * the coordinates of a grid, it also fills in the rule. */
const mo_rope *mo_part_grid_rope(mo_binder *b, const mo_keys *k, mo_picture_rule *out);

/* mo_part_rope() for files with factors per pair for short and for long contexts; the loader knows which to
 * use. */
const mo_rope *mo_part_long_rope(mo_binder *b, const mo_keys *k);

/* The visible positions of layer n, 0: all; see mo_keys_windowed(). */
int64_t mo_part_window(mo_binder *b, const mo_keys *k, int n, int64_t period, bool full_first);

/* Head counts of layer n, key and value length, 1/sqrt(k_len) and n_rot from the keys. The family sets rope,
 * neox and other differences. */
void mo_part_heads(mo_binder *b, const mo_keys *k, int n, mo_attention *a);

/* The tensors of an attention part with known numbers: attn_q, attn_k, attn_v (or the fused attn_qkv) and
 * attn_output, with biases if the file has them. optional_v: attn_v may be missing. */
void mo_part_attention(mo_binder *b, int n, int64_t width, bool optional_v, mo_attention *a);

/* attn_q_norm and attn_k_norm: per head, or over all heads with a->norm_all. */
void mo_part_head_norms(mo_binder *b, int n, mo_attention *a);

/* attn_gate, applied to the layer's normed input: one gate per head, or per value of a head, by its number of
 * rows. Required unless `optional`. */
void mo_part_heads_gate(mo_binder *b, int n, int64_t width, mo_gate_kind kind, bool optional,
                        mo_attention *a);

/* ffn_gate (unless the activation has no gate), ffn_up, ffn_down. */
void mo_part_ffn(mo_binder *b, int n, int64_t width, int64_t hidden, mo_activation activation, mo_ffn *ffn);

/* ffn_up with gate and up together, the gate's rows first, and ffn_down. */
void mo_part_fused_ffn(mo_binder *b, int n, int64_t width, int64_t hidden, mo_ffn *ffn);

/* The dense feed-forward width of layer n. */
int64_t mo_part_ffn_width(mo_binder *b, const mo_keys *k, int n);

/* Router and experts: softmax over all experts, with or without normalization. hidden: values of an
 * expert. */
void mo_part_moe(mo_binder *b, const mo_keys *k, int n, int64_t hidden, bool normalize, mo_moe *moe);

/* The same for experts without a gate (MO_RELU2). With `latent` they have that many inputs and outputs,
 * between ffn_latent_down and ffn_latent_up. The router reads the full width. */
void mo_part_latent_moe(mo_binder *b, const mo_keys *k, int n, int64_t hidden, int64_t latent, mo_moe *moe);

/* Options of the router that mo_part_moe() has bound: the gating function (`otherwise` if the key is absent;
 * 0: required), normalization and scale of the weights, groups of experts, and the selection bias if present,
 * exp_probs_b.bias or exp_probs_b. */
void mo_part_router(mo_binder *b, const mo_keys *k, int n, int otherwise, mo_moe *moe);

/* The same without a selection bias, even if the file has one. */
void mo_part_router_unbiased(mo_binder *b, const mo_keys *k, int otherwise, mo_moe *moe);

/* The shared expert (ffn_*_shexp), with or without its sigmoid gate; without ffn_gate_shexp if the experts
 * have no gate. */
void mo_part_shared(mo_binder *b, int n, int64_t width, int64_t hidden, mo_moe *moe);
void mo_part_shared_ungated(mo_binder *b, int n, int64_t width, int64_t hidden, mo_moe *moe);

/* The same with expert_shared_count times this width, if any. */
void mo_part_shared_count(mo_binder *b, const mo_keys *k, int n, int64_t one, mo_moe *moe);

/* Limits of the activations of layer n, whose parts are bound: swiglu_clamp_exp for its experts,
 * swiglu_clamp_shexp for the others. */
void mo_part_limits(mo_binder *b, const mo_keys *k, int n, mo_layer *layer);

/* Mamba's second kind: its keys (ssm.*) and the tensors of layer n. The convolution's bias is optional. */
void mo_part_mamba(mo_binder *b, const mo_keys *k, int n, mo_mamba *m);

/* Number of dense layers at the beginning of a model whose other layers are routed. */
int mo_part_dense_layers(mo_binder *b, const mo_keys *k);

/* A plain layer n with experts. */
void mo_part_plain_routed(mo_binder *b, const mo_keys *k, const mo_plain *p, int n, mo_layer *layer);
/* All layers of a plain family. */
void mo_part_plain(mo_binder *b, const mo_keys *k, const mo_plain *p, mo_model_spec *spec);

/* Differences between architectures with latent attention in all layers. */
typedef struct mo_latent_kind {
    /* scores always have YaRN's usual magnitude, and rotated values the remaining factor */
    bool usual_yarn;
    bool no_multiplier; /* with usual_yarn: yarn_log_multiplier is not read */
    bool rope_alone;    /* YaRN as in other families: rotated values have its magnitude, scores no factor */
    bool still;         /* no rotation */
    int gating;         /* gating function of routers if the file has none; 0: required */
} mo_latent_kind;

/* Shape of its layers. */
typedef struct mo_latent_shape {
    int64_t q_rank; /* 0: one product computes queries from the stream */
    int64_t rank;   /* values of the latent row */
    int64_t plain, rotated, out_len;
    float scale;
    const mo_rope *rope;
    int gating; /* if the file has none */
} mo_latent_shape;
mo_latent_shape mo_part_latent_shape(mo_binder *b, const mo_keys *k, const mo_latent_kind *kind);
/* The attention of layer n. */
void mo_part_latent_attention(mo_binder *b, const mo_keys *k, int n, const mo_latent_shape *shape,
                              mo_attention *a);
/* All layers of such a model, the first ones dense; or layer n of the file, an MTP head's, with experts if
 * the model has some. */
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
