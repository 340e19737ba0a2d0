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
    bool without; /* there are files without experts, whose layers are all dense */
    /* Binds the experts of layer n. NULL: every layer is dense. */
    void (*experts)(mo_binder *b, const mo_keys *k, int n, mo_layer *layer);
} mo_plain;

typedef struct mo_family {
    const char *architecture; /* general.architecture */
    /* Fills spec->layers (already allocated, zeroed, spec->layer_count of them) and whatever of the spec
     * differs from the common shape. Failures go to the binder. NULL: the layers are as `plain` says. */
    void (*describe)(mo_binder *b, const mo_keys *keys, mo_model_spec *spec);
    mo_plain plain;
    bool own_output; /* output.weight must be there; otherwise the embedding serves where it is missing */
    const char *out_norm; /* the tensor of the norm before the output; NULL: output_norm.weight */
} mo_family;

/* NULL when Moraine does not know the architecture. */
const mo_family *mo_family_find(const char *architecture);
const mo_family *mo_family_at(int index); /* NULL past the last */

/* Reads the common keys, allocates the layers in the binder's arena, binds embedding, output norm and
 * output, and lets the family describe the rest. The binder's bindings point into *spec, which must stay where
 * it is. Failures go to the binder. */
void mo_family_describe(mo_binder *b, mo_model_spec *spec);

/* ---- Shared parts: what most families are made of ----
 * Names are those of layer `n`. Failures go to the binder. */

/* mo_keys_int() and mo_keys_real() whose failures go to the binder; `otherwise` after one. */
int64_t mo_part_int(mo_binder *b, const mo_keys *k, const char *suffix, int64_t index, int64_t otherwise,
                    int64_t low, int64_t high);
double mo_part_real(mo_binder *b, const mo_keys *k, const char *suffix, double otherwise);
bool mo_part_flag(mo_binder *b, const mo_keys *k, const char *suffix, bool otherwise);

/* The rotation that the common keys describe, for heads of which n_rot values turn. With rope_freqs.weight
 * when `factors` is set and the file has it. */
const mo_rope *mo_part_rope(mo_binder *b, const mo_keys *k, int64_t n_rot, double base, bool factors);
/* The same without factors, whose c and s are multiplied by `magnitude`; 0: as usual. */
const mo_rope *mo_part_rope_of(mo_binder *b, const mo_keys *k, int64_t n_rot, double base, double magnitude);
/* Does the file ask for YaRN? */
bool mo_part_yarn(mo_binder *b);

/* The same for files with factors of each pair for short and for long contexts: the loader knows which are needed. */
const mo_rope *mo_part_long_rope(mo_binder *b, const mo_keys *k);

/* Head counts of layer n, key and value length, 1/sqrt(k_len), n_rot: what the keys say. The family sets
 * rope, neox and what else differs. */
void mo_part_heads(mo_binder *b, const mo_keys *k, int n, mo_attention *a);

/* The tensors of an attention part whose numbers are filled in: attn_q, attn_k, attn_v (or the fused
 * attn_qkv) and attn_output, with biases where the file has them. optional_v: attn_v may be missing. */
void mo_part_attention(mo_binder *b, int n, int64_t width, bool optional_v, mo_attention *a);

/* attn_q_norm and attn_k_norm: per head, or over all heads with a->norm_all. */
void mo_part_head_norms(mo_binder *b, int n, mo_attention *a);

/* ffn_gate, ffn_up, ffn_down. */
void mo_part_ffn(mo_binder *b, int n, int64_t width, int64_t hidden, mo_activation activation, mo_ffn *ffn);

/* ffn_up of gate and up together, the gate's rows first, and ffn_down. */
void mo_part_fused_ffn(mo_binder *b, int n, int64_t width, int64_t hidden, mo_ffn *ffn);

/* The dense feed-forward width of layer n. */
int64_t mo_part_ffn_width(mo_binder *b, const mo_keys *k, int n);

/* Router and experts: softmax over all experts, normalized or not. hidden: values of an expert. */
void mo_part_moe(mo_binder *b, const mo_keys *k, int n, int64_t hidden, bool normalize, mo_moe *moe);

/* What files with a choice say of the router mo_part_moe() has bound: the gating function (`otherwise` where the key is absent; 0:
 * it must be there), whether weights are normalized, their scale, groups of experts, and exp_probs_b.bias where the file has it. */
void mo_part_router(mo_binder *b, const mo_keys *k, int n, int otherwise, mo_moe *moe);

/* The shared expert (ffn_*_shexp), behind a sigmoid gate of its own or as it is. */
void mo_part_shared(mo_binder *b, int n, int64_t width, int64_t hidden, mo_moe *moe);
void mo_part_shared_ungated(mo_binder *b, int n, int64_t width, int64_t hidden, mo_moe *moe);

/* The same of expert_shared_count times this width, if any. */
void mo_part_shared_count(mo_binder *b, const mo_keys *k, int n, int64_t one, mo_moe *moe);

/* How many layers at the beginning are dense, of a model whose others are routed. */
int mo_part_dense_layers(mo_binder *b, const mo_keys *k);

/* All layers of a family that are plain. */
void mo_part_plain(mo_binder *b, const mo_keys *k, const mo_plain *p, mo_model_spec *spec);

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
    mo_family_deepseek2;
/* clang-format on */

#endif
