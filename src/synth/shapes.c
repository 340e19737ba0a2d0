#include "synth/shapes.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- Published models --------------------------------------------------------------------------- */

#define QWEN_DELTA .conv_kernel = 4, .state = 128, .key_groups = 16, .value_heads = 32, .inner = 4096

#define GRANITE_4                                                                                            \
    .rotated = 128, .vocabulary = 100352, .context = 131072, .rope_base = 10000.0f, .epsilon = 1e-5f,        \
    .tied = true, .embedding_scale = 12.0f, .residual_scale = 0.22f, .attention_scale = 0.0078125f,          \
    .attends = 0x802008020, .conv_kernel = 4, .state = 128, .key_groups = 1

/* clang-format off */
static const mo_shape shapes[] = {
    {.name = "gpt-oss-20b", .title = "gpt-oss 20B", .architecture = "gpt-oss", .layers = 24, .width = 2880,
     .heads = 64, .kv_heads = 8, .head = 64, .rotated = 64, .experts = 32, .experts_used = 4,
     .expert_ffn = 2880, .ffn = 2880, .vocabulary = 201088, .context = 131072, .rope_base = 150000.0f,
     .epsilon = 1e-5f, .mix = MO_MIX_MXFP4, .window = 128, .yarn_factor = 32.0f, .yarn_context = 4096},
    {.name = "gpt-oss-120b", .title = "gpt-oss 120B", .architecture = "gpt-oss", .layers = 36, .width = 2880,
     .heads = 64, .kv_heads = 8, .head = 64, .rotated = 64, .experts = 128, .experts_used = 4,
     .expert_ffn = 2880, .ffn = 2880, .vocabulary = 201088, .context = 131072, .rope_base = 150000.0f,
     .epsilon = 1e-5f, .mix = MO_MIX_MXFP4, .window = 128, .yarn_factor = 32.0f, .yarn_context = 4096},
    {.name = "qwen3-30b-a3b", .title = "Qwen3 30B A3B", .architecture = "qwen3moe", .layers = 48,
     .width = 2048, .heads = 32, .kv_heads = 4, .head = 128, .rotated = 128, .experts = 128,
     .experts_used = 8, .expert_ffn = 768, .ffn = 6144, .vocabulary = 151936, .context = 40960,
     .rope_base = 1e6f, .epsilon = 1e-6f},
    {.name = "qwen3-next-80b-a3b", .title = "Qwen3 Next 80B A3B", .architecture = "qwen3next", .layers = 48,
     .width = 2048, .heads = 16, .kv_heads = 2, .head = 256, .rotated = 64, .experts = 512,
     .experts_used = 10, .expert_ffn = 512, .shared_ffn = 512, .vocabulary = 151936, .context = 262144,
     .rope_base = 1e7f, .epsilon = 1e-6f, .full_interval = 4, QWEN_DELTA},
    {.name = "qwen3.6-35b-a3b", .title = "Qwen3.6 35B A3B", .architecture = "qwen35moe", .layers = 40,
     .width = 2048, .heads = 16, .kv_heads = 2, .head = 256, .rotated = 64, .experts = 256,
     .experts_used = 8, .expert_ffn = 512, .shared_ffn = 512, .vocabulary = 248320, .context = 262144,
     .rope_base = 1e7f, .epsilon = 1e-6f, .full_interval = 4, QWEN_DELTA},
    {.name = "mixtral-8x7b", .title = "Mixtral 8x7B", .architecture = "llama", .layers = 32, .width = 4096,
     .heads = 32, .kv_heads = 8, .head = 128, .rotated = 128, .experts = 8, .experts_used = 2,
     .ffn = 14336, .vocabulary = 32000, .context = 32768, .rope_base = 1e6f, .epsilon = 1e-5f,
     .mix = MO_MIX_Q4_K_M_EIGHT},
    {.name = "olmoe-1b-7b", .title = "OLMoE 1B 7B", .architecture = "olmoe", .layers = 16, .width = 2048,
     .heads = 16, .kv_heads = 16, .head = 128, .rotated = 128, .experts = 64, .experts_used = 8,
     .ffn = 1024, .vocabulary = 50304, .context = 4096, .rope_base = 10000.0f, .epsilon = 1e-5f},
    {.name = "qwen1.5-moe-a2.7b", .title = "Qwen1.5 MoE A2.7B", .architecture = "qwen2moe", .layers = 24,
     .width = 2048, .heads = 16, .kv_heads = 16, .head = 128, .rotated = 128, .experts = 60,
     .experts_used = 4, .expert_ffn = 1408, .ffn = 5632, .shared_ffn = 5632, .vocabulary = 151936,
     .context = 8192, .rope_base = 1e6f, .epsilon = 1e-6f},
    {.name = "gemma-4-26b-a4b", .title = "Gemma 4 26B A4B", .architecture = "gemma4", .layers = 30,
     .width = 2816, .heads = 16, .kv_heads = 2, .head = 512, .rotated = 512, .experts = 128,
     .experts_used = 8, .expert_ffn = 704, .ffn = 2112, .vocabulary = 262144, .context = 262144,
     .rope_base = 1e6f, .epsilon = 1e-6f, .tied = true, .full_interval = 6, .window = 1024,
     .window_head = 256, .window_kv_heads = 8, .window_rope_base = 10000.0f, .logit_cap = 30.0f},
    {.name = "llama-3-8b", .title = "Llama 3 8B", .architecture = "llama", .layers = 32, .width = 4096,
     .heads = 32, .kv_heads = 8, .head = 128, .rotated = 128, .ffn = 14336, .vocabulary = 128256,
     .context = 8192, .rope_base = 500000.0f, .epsilon = 1e-5f},
    {.name = "llama-3-70b", .title = "Llama 3 70B", .architecture = "llama", .layers = 80, .width = 8192,
     .heads = 64, .kv_heads = 8, .head = 128, .rotated = 128, .ffn = 28672, .vocabulary = 128256,
     .context = 8192, .rope_base = 500000.0f, .epsilon = 1e-5f},
    {.name = "smollm2-135m", .title = "SmolLM2 135M", .architecture = "llama", .layers = 30, .width = 576,
     .heads = 9, .kv_heads = 3, .head = 64, .rotated = 64, .ffn = 1536, .vocabulary = 49152,
     .context = 8192, .rope_base = 100000.0f, .epsilon = 1e-5f, .tied = true},
    {.name = "smollm2-1.7b", .title = "SmolLM2 1.7B", .architecture = "llama", .layers = 24, .width = 2048,
     .heads = 32, .kv_heads = 32, .head = 64, .rotated = 64, .ffn = 8192, .vocabulary = 49152,
     .context = 8192, .rope_base = 130000.0f, .epsilon = 1e-5f, .tied = true},
    {.name = "glm-4.5-air", .title = "GLM 4.5 Air", .architecture = "glm4moe", .layers = 46, .width = 4096,
     .heads = 96, .kv_heads = 8, .head = 128, .rotated = 64, .experts = 128, .experts_used = 8,
     .expert_ffn = 1408, .ffn = 10944, .shared_ffn = 1408, .vocabulary = 151552, .context = 131072,
     .rope_base = 1e6f, .epsilon = 1e-5f, .dense_layers = 1, .shared_count = 1, .gating = 2,
     .normalized = true, .weights_scale = 1.0f},
    {.name = "deepseek-v3", .title = "DeepSeek V3", .architecture = "deepseek2", .layers = 61, .width = 7168,
     .heads = 128, .kv_heads = 1, .head = 576, .rotated = 64, .experts = 256, .experts_used = 8,
     .expert_ffn = 2048, .ffn = 18432, .shared_ffn = 2048, .vocabulary = 129280, .context = 163840,
     .rope_base = 10000.0f, .epsilon = 1e-6f, .dense_layers = 3, .shared_count = 1, .gating = 2,
     .normalized = true, .weights_scale = 2.5f, .groups = 8, .groups_used = 4, .latent = 512,
     .query_rank = 1536, .plain = 128, .head_out = 128, .yarn_factor = 40.0f, .yarn_context = 4096,
     .yarn_log = 0.1f},
    {.name = "kimi-k2", .title = "Kimi K2", .architecture = "deepseek2", .layers = 61, .width = 7168,
     .heads = 64, .kv_heads = 1, .head = 576, .rotated = 64, .experts = 384, .experts_used = 8,
     .expert_ffn = 2048, .ffn = 18432, .shared_ffn = 2048, .vocabulary = 163840, .context = 131072,
     .rope_base = 50000.0f, .epsilon = 1e-6f, .dense_layers = 1, .shared_count = 1, .gating = 2,
     .normalized = true, .weights_scale = 2.827f, .latent = 512, .query_rank = 1536, .plain = 128,
     .head_out = 128, .yarn_factor = 32.0f, .yarn_context = 4096, .yarn_log = 0.1f},
    {.name = "glm-4.7-flash", .title = "GLM 4.7 Flash", .architecture = "deepseek2", .layers = 47, .width = 2048,
     .heads = 20, .kv_heads = 1, .head = 576, .rotated = 64, .experts = 64, .experts_used = 4,
     .expert_ffn = 1536, .ffn = 10240, .shared_ffn = 1536, .vocabulary = 154880, .context = 202752,
     .rope_base = 1e6f, .epsilon = 1e-5f, .dense_layers = 1, .shared_count = 1, .gating = 2,
     .normalized = true, .weights_scale = 1.8f, .latent = 512, .query_rank = 768, .plain = 192,
     .head_out = 256},
    {.name = "deepseek-v2-lite", .title = "DeepSeek V2 Lite", .architecture = "deepseek2", .layers = 27,
     .width = 2048, .heads = 16, .kv_heads = 1, .head = 576, .rotated = 64, .experts = 64,
     .experts_used = 6, .expert_ffn = 1408, .ffn = 10944, .shared_ffn = 2816, .vocabulary = 102400,
     .context = 163840, .rope_base = 10000.0f, .epsilon = 1e-6f, .dense_layers = 1, .shared_count = 2,
     .gating = 1, .weights_scale = 1.0f, .latent = 512, .plain = 128, .head_out = 128, .yarn_factor = 40.0f,
     .yarn_context = 4096, .yarn_log = 0.0707f},
    {.name = "lfm2-8b-a1b", .title = "LFM2 8B A1B", .architecture = "lfm2moe", .layers = 24, .width = 2048,
     .heads = 32, .kv_heads = 8, .head = 64, .rotated = 64, .experts = 32, .experts_used = 4,
     .expert_ffn = 1792, .ffn = 7168, .vocabulary = 65536, .context = 128000, .rope_base = 1e6f,
     .epsilon = 1e-5f, .tied = true, .dense_layers = 2, .gating = 2, .attends = 0x244444, .short_taps = 3},
    {.name = "lfm2-1.2b", .title = "LFM2 1.2B", .architecture = "lfm2", .layers = 16, .width = 2048,
     .heads = 32, .kv_heads = 8, .head = 64, .rotated = 64, .ffn = 8192, .vocabulary = 65536,
     .context = 128000, .rope_base = 1e6f, .epsilon = 1e-5f, .tied = true, .attends = 0x5524,
     .short_taps = 3},
    {.name = "jamba-mini", .title = "Jamba Mini", .architecture = "jamba", .layers = 32, .width = 4096,
     .heads = 32, .kv_heads = 8, .head = 128, .experts = 16, .experts_used = 2, .ffn = 14336,
     .vocabulary = 65536, .context = 262144, .epsilon = 1e-6f, .odd_experts = true, .attends = 0x10101010,
     .conv_kernel = 4, .state = 16, .value_heads = 256, .inner = 8192},
    {.name = "granite-4.0-h-tiny", .title = "Granite 4.0 H Tiny", .architecture = "granitehybrid",
     .layers = 40, .width = 1536, .heads = 12, .kv_heads = 4, .head = 128, .experts = 64, .experts_used = 6,
     .ffn = 512, .shared_ffn = 1024, GRANITE_4, .inner = 3072, .value_heads = 48, .logit_scale = 6.0f},
    {.name = "granite-4.0-h-small", .title = "Granite 4.0 H Small", .architecture = "granitehybrid",
     .layers = 40, .width = 4096, .heads = 32, .kv_heads = 8, .head = 128, .experts = 72, .experts_used = 10,
     .ffn = 768, .shared_ffn = 1536, GRANITE_4, .inner = 8192, .value_heads = 128, .logit_scale = 16.0f},
    {.name = "minimax-m2", .title = "MiniMax M2", .architecture = "minimax-m2", .layers = 62, .width = 3072,
     .heads = 48, .kv_heads = 8, .head = 128, .rotated = 64, .experts = 256, .experts_used = 8,
     .expert_ffn = 1536, .ffn = 1536, .vocabulary = 200064, .context = 196608, .rope_base = 5e6f,
     .epsilon = 1e-6f, .gating = 2},
    {.name = "ernie-4.5-21b-a3b", .title = "ERNIE 4.5 21B A3B", .architecture = "ernie4_5-moe", .layers = 28,
     .width = 2560, .heads = 20, .kv_heads = 4, .head = 128, .rotated = 128, .experts = 64,
     .experts_used = 6, .expert_ffn = 1536, .ffn = 12288, .shared_ffn = 3072, .vocabulary = 103424,
     .context = 131072, .rope_base = 500000.0f, .epsilon = 1e-5f, .tied = true, .dense_layers = 1},
    {.name = "granite-3.1-3b-a800m", .title = "Granite 3.1 3B A800M", .architecture = "granitemoe",
     .layers = 32, .width = 1536, .heads = 24, .kv_heads = 8, .head = 64, .rotated = 64, .experts = 40,
     .experts_used = 8, .ffn = 512, .vocabulary = 49155, .context = 131072, .rope_base = 1e7f,
     .epsilon = 1e-6f, .tied = true, .embedding_scale = 12.0f, .residual_scale = 0.22f,
     .attention_scale = 0.015625f, .logit_scale = 6.0f},
    {.name = "ling-mini-2.0", .title = "Ling mini 2.0", .architecture = "bailingmoe2", .layers = 20,
     .width = 2048, .heads = 16, .kv_heads = 4, .head = 128, .rotated = 64, .experts = 256,
     .experts_used = 8, .expert_ffn = 512, .ffn = 5120, .shared_ffn = 512, .vocabulary = 157184,
     .context = 32768, .rope_base = 600000.0f, .epsilon = 1e-6f, .dense_layers = 1, .shared_count = 1,
     .gating = 2, .normalized = true, .weights_scale = 2.5f, .groups = 8, .groups_used = 4},
    {.name = "dots.llm1", .title = "dots.llm1", .architecture = "dots1", .layers = 62, .width = 4096,
     .heads = 32, .kv_heads = 32, .head = 128, .rotated = 128, .experts = 128, .experts_used = 6,
     .expert_ffn = 1408, .ffn = 10944, .shared_ffn = 2816, .vocabulary = 152064, .context = 32768,
     .rope_base = 1e7f, .epsilon = 1e-5f, .dense_layers = 1, .shared_count = 2, .gating = 2,
     .normalized = true, .weights_scale = 2.5f},
    {.name = "hunyuan-a13b", .title = "Hunyuan A13B", .architecture = "hunyuan-moe", .layers = 32,
     .width = 4096, .heads = 32, .kv_heads = 8, .head = 128, .rotated = 128, .experts = 64,
     .experts_used = 8, .expert_ffn = 3072, .ffn = 3072, .shared_ffn = 3072, .vocabulary = 128167,
     .context = 262144, .rope_base = 11158840.0f, .epsilon = 1e-5f, .tied = true},
    {.name = "phi-3.5-moe", .title = "Phi 3.5 MoE", .architecture = "phimoe", .layers = 32, .width = 4096,
     .heads = 32, .kv_heads = 8, .head = 128, .rotated = 128, .experts = 16, .experts_used = 2,
     .ffn = 6400, .vocabulary = 32064, .context = 131072, .rope_base = 10000.0f, .epsilon = 1e-5f,
     .yarn_context = 4096, .rope_magnitude = 1.190238f},
    {.name = "phi-3.5-mini", .title = "Phi 3.5 mini", .architecture = "phi3", .layers = 32, .width = 3072,
     .heads = 32, .kv_heads = 32, .head = 96, .rotated = 96, .ffn = 8192, .vocabulary = 32064,
     .context = 131072, .rope_base = 10000.0f, .epsilon = 1e-5f, .yarn_context = 4096,
     .rope_magnitude = 1.190238f},
    {.name = "hunyuan-7b", .title = "Hunyuan 7B", .architecture = "hunyuan-dense", .layers = 32,
     .width = 4096, .heads = 32, .kv_heads = 8, .head = 128, .rotated = 128, .ffn = 14336,
     .vocabulary = 128167, .context = 262144, .rope_base = 11158840.0f, .epsilon = 1e-5f, .tied = true},
    {.name = "qwen2.5-7b", .title = "Qwen2.5 7B", .architecture = "qwen2", .layers = 28, .width = 3584,
     .heads = 28, .kv_heads = 4, .head = 128, .rotated = 128, .ffn = 18944, .vocabulary = 152064,
     .context = 131072, .rope_base = 1e6f, .epsilon = 1e-6f},
    {.name = "gemma-3-4b", .title = "Gemma 3 4B", .architecture = "gemma3", .layers = 34, .width = 2560,
     .heads = 8, .kv_heads = 4, .head = 256, .rotated = 256, .ffn = 10240, .vocabulary = 262208,
     .context = 131072, .rope_base = 1e6f, .epsilon = 1e-6f, .tied = true, .linear_factor = 8.0f,
     .full_interval = 6, .window = 1024},
    {.name = "glm-4-9b", .title = "GLM 4 9B", .architecture = "glm4", .layers = 40, .width = 4096,
     .heads = 32, .kv_heads = 2, .head = 128, .rotated = 64, .ffn = 13696, .vocabulary = 151552,
     .context = 32768, .rope_base = 10000.0f, .epsilon = 1e-5f},
    {.name = "granite-3.3-8b", .title = "Granite 3.3 8B", .architecture = "granite", .layers = 40,
     .width = 4096, .heads = 32, .kv_heads = 8, .head = 128, .rotated = 128, .ffn = 12800,
     .vocabulary = 49159, .context = 131072, .rope_base = 1e7f, .epsilon = 1e-5f, .tied = true,
     .embedding_scale = 12.0f, .residual_scale = 0.22f, .attention_scale = 0.0078125f, .logit_scale = 16.0f},
    {.name = "ernie-4.5-0.3b", .title = "ERNIE 4.5 0.3B", .architecture = "ernie4_5", .layers = 18,
     .width = 1024, .heads = 16, .kv_heads = 2, .head = 128, .rotated = 128, .ffn = 3072,
     .vocabulary = 103424, .context = 131072, .rope_base = 500000.0f, .epsilon = 1e-5f, .tied = true},
};
/* clang-format on */

const mo_shape *mo_shape_at(int index)
{
    return index >= 0 && (size_t)index < sizeof shapes / sizeof *shapes ? &shapes[index] : NULL;
}

const mo_shape *mo_shape_named(const char *name)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (strcasecmp(shapes[i].name, name) == 0) {
            return &shapes[i];
        }
    }
    return NULL;
}

/* Is this layer one of full attention? */
static bool is_full(const mo_shape *s, int layer)
{
    if (s->attends) {
        return s->attends >> layer % 64 & 1;
    }
    return s->full_interval == 0 || (layer + 1) % s->full_interval == 0;
}

/* ---- Tensors of the architectures --------------------------------------------------------------- */

typedef enum dim {
    NONE,
    WIDTH,
    QUERIES,       /* heads x head */
    GATED_QUERIES, /* a gate for each query */
    KEYS,          /* kv heads x head */
    HEAD,
    HEADS,
    EXPERTS,
    EXPERT_FFN,
    EXPERT_FFN_2, /* gate and up in one */
    FFN,
    FFN_2,
    QUERIES_KEYS_VALUES,
    SHARED_FFN,
    VOCABULARY,
    HALF_ROTATED,
    CONV_KERNEL,
    CONV_CHANNELS,
    INNER,
    STATE,
    VALUE_HEADS,
    VALUE_HEADS_2,
    SHORT_TAPS,
    INNER_2,
    SSM_PARTS, /* of a step: its width, b and c */
    SSM_IN,    /* z, x, b, c, and the steps of heads */
    SSM_GROUP, /* values of a group */
    KEY_GROUPS,
    WIDTH_3,
    QUERY_RANK,
    PLAIN_QUERIES, /* of all heads, with what rotates */
    PLAIN,
    LATENT,
    HEAD_OUT,
    RESULTS, /* of all heads */
    ONE,
} dim;

/* When a rule holds. */
typedef enum when {
    ALWAYS,
    UNTIED,    /* the output is a matrix of its own */
    ATTENTION, /* the layer attends */
    RECURRENT, /* the layer follows the delta rule, or is one of Mamba */
    LOW_RANK,  /* queries come by two products */
    FULL_RANK, /* or by one */
    BIASED,    /* experts are chosen with a bias */
    SHORT,     /* the layer is a short convolution */
    WINDOWED,  /* the layer attends within a window */
    DENSE,     /* the model has no experts */
    SPARSE,    /* it has */
    LEADING,   /* the layer is one of the dense ones at the beginning */
    ROUTED,    /* it is one of the others */
} when;

typedef struct rule {
    const char *name;
    mo_shape_role role;
    when when;
    dim size[3];
} rule;

#define END                                                                                                  \
    {                                                                                                        \
        NULL, MO_SHAPE_ONE, ALWAYS,                                                                          \
        {                                                                                                    \
            NONE                                                                                             \
        }                                                                                                    \
    }

static const rule spec[] = {
    {"token_embd.weight", MO_SHAPE_EMBEDDING, ALWAYS, {WIDTH, VOCABULARY}},
    {"output_norm.weight", MO_SHAPE_NORM, ALWAYS, {WIDTH}},
    {"output.weight", MO_SHAPE_OUTPUT, UNTIED, {WIDTH, VOCABULARY}},
    END,
};
static const rule lfm2_spec[] = {
    {"token_embd.weight", MO_SHAPE_EMBEDDING, ALWAYS, {WIDTH, VOCABULARY}},
    {"token_embd_norm.weight", MO_SHAPE_NORM, ALWAYS, {WIDTH}},
    {"output.weight", MO_SHAPE_OUTPUT, UNTIED, {WIDTH, VOCABULARY}},
    END,
};
static const rule spec_bias[] = {
    {"output_norm.bias", MO_SHAPE_BIAS, ALWAYS, {WIDTH}},
    {"output.bias", MO_SHAPE_BIAS, ALWAYS, {VOCABULARY}},
    END,
};
static const rule stretch[] = {
    {"rope_factors_long.weight", MO_SHAPE_ROPE_STRETCH, ALWAYS, {HALF_ROTATED}},
    {"rope_factors_short.weight", MO_SHAPE_ROPE_STRETCH, ALWAYS, {HALF_ROTATED}},
    END,
};
static const rule gemma_spec[] = {
    {"rope_freqs.weight", MO_SHAPE_ROPE_FACTORS, ALWAYS, {HALF_ROTATED}},
    END,
};

static const rule attention[] = {
    {"attn_norm.weight", MO_SHAPE_NORM, ALWAYS, {WIDTH}},
    {"attn_q.weight", MO_SHAPE_MATRIX, ALWAYS, {WIDTH, QUERIES}},
    {"attn_k.weight", MO_SHAPE_KEY, ALWAYS, {WIDTH, KEYS}},
    {"attn_v.weight", MO_SHAPE_VALUE, ALWAYS, {WIDTH, KEYS}},
    {"attn_output.weight", MO_SHAPE_BACK, ALWAYS, {QUERIES, WIDTH}},
    END,
};
static const rule attention_bias[] = {
    {"attn_q.bias", MO_SHAPE_BIAS, ALWAYS, {QUERIES}},
    {"attn_k.bias", MO_SHAPE_BIAS, ALWAYS, {KEYS}},
    {"attn_v.bias", MO_SHAPE_BIAS, ALWAYS, {KEYS}},
    END,
};
static const rule attention_output_bias[] = {
    {"attn_output.bias", MO_SHAPE_BIAS, ALWAYS, {WIDTH}},
    END,
};
static const rule sinks[] = {
    {"attn_sinks.weight", MO_SHAPE_SINK, ALWAYS, {HEADS}},
    END,
};
static const rule head_norm[] = {
    {"attn_q_norm.weight", MO_SHAPE_HEAD_NORM, ATTENTION, {HEAD}},
    {"attn_k_norm.weight", MO_SHAPE_HEAD_NORM, ATTENTION, {HEAD}},
    END,
};
static const rule whole_norm[] = {
    {"attn_q_norm.weight", MO_SHAPE_NORM, ALWAYS, {QUERIES}},
    {"attn_k_norm.weight", MO_SHAPE_NORM, ALWAYS, {KEYS}},
    END,
};

static const rule fused_attention[] = {
    {"attn_norm.weight", MO_SHAPE_NORM, ALWAYS, {WIDTH}},
    {"attn_qkv.weight", MO_SHAPE_FUSED, ALWAYS, {WIDTH, QUERIES_KEYS_VALUES}},
    {"attn_output.weight", MO_SHAPE_BACK, ALWAYS, {QUERIES, WIDTH}},
    END,
};

/* Layers that take turns: gated attention and the gated delta rule. */
static const rule hybrid[] = {
    {"attn_norm.weight", MO_SHAPE_NORM, ALWAYS, {WIDTH}},
    {"attn_q.weight", MO_SHAPE_MATRIX, ATTENTION, {WIDTH, GATED_QUERIES}},
    {"attn_k.weight", MO_SHAPE_KEY, ATTENTION, {WIDTH, KEYS}},
    {"attn_v.weight", MO_SHAPE_VALUE, ATTENTION, {WIDTH, KEYS}},
    {"attn_output.weight", MO_SHAPE_BACK, ATTENTION, {QUERIES, WIDTH}},
    {"attn_qkv.weight", MO_SHAPE_FUSED, RECURRENT, {WIDTH, CONV_CHANNELS}},
    {"attn_gate.weight", MO_SHAPE_MATRIX, RECURRENT, {WIDTH, INNER}},
    {"ssm_conv1d.weight", MO_SHAPE_CONV, RECURRENT, {CONV_KERNEL, CONV_CHANNELS}},
    {"ssm_dt.bias", MO_SHAPE_STEP, RECURRENT, {VALUE_HEADS}},
    {"ssm_a", MO_SHAPE_DECAY, RECURRENT, {VALUE_HEADS}},
    {"ssm_norm.weight", MO_SHAPE_NORM, RECURRENT, {STATE}},
    {"ssm_out.weight", MO_SHAPE_BACK, RECURRENT, {INNER, WIDTH}},
    END,
};
static const rule delta_joint[] = {
    {"ssm_ba.weight", MO_SHAPE_MATRIX, RECURRENT, {WIDTH, VALUE_HEADS_2}},
    END,
};
static const rule delta_apart[] = {
    {"ssm_beta.weight", MO_SHAPE_MATRIX, RECURRENT, {WIDTH, VALUE_HEADS}},
    {"ssm_alpha.weight", MO_SHAPE_MATRIX, RECURRENT, {WIDTH, VALUE_HEADS}},
    END,
};

/* Attention in some layers; the others are of another kind. */
static const rule some_attention[] = {
    {"attn_norm.weight", MO_SHAPE_NORM, ALWAYS, {WIDTH}},
    {"attn_q.weight", MO_SHAPE_MATRIX, ATTENTION, {WIDTH, QUERIES}},
    {"attn_k.weight", MO_SHAPE_KEY, ATTENTION, {WIDTH, KEYS}},
    {"attn_v.weight", MO_SHAPE_VALUE, ATTENTION, {WIDTH, KEYS}},
    {"attn_output.weight", MO_SHAPE_BACK, ATTENTION, {QUERIES, WIDTH}},
    END,
};
static const rule latent_attention[] = {
    {"attn_norm.weight", MO_SHAPE_NORM, ALWAYS, {WIDTH}},
    {"attn_q_a.weight", MO_SHAPE_MATRIX, LOW_RANK, {WIDTH, QUERY_RANK}},
    {"attn_q_a_norm.weight", MO_SHAPE_NORM, LOW_RANK, {QUERY_RANK}},
    {"attn_q_b.weight", MO_SHAPE_MATRIX, LOW_RANK, {QUERY_RANK, PLAIN_QUERIES}},
    {"attn_q.weight", MO_SHAPE_MATRIX, FULL_RANK, {WIDTH, PLAIN_QUERIES}},
    {"attn_kv_a_mqa.weight", MO_SHAPE_MATRIX, ALWAYS, {WIDTH, HEAD}},
    {"attn_kv_a_norm.weight", MO_SHAPE_NORM, ALWAYS, {LATENT}},
    {"attn_k_b.weight", MO_SHAPE_MATRIX, ALWAYS, {PLAIN, LATENT, HEADS}},
    {"attn_v_b.weight", MO_SHAPE_MATRIX, ALWAYS, {LATENT, HEAD_OUT, HEADS}},
    {"attn_output.weight", MO_SHAPE_BACK, ALWAYS, {RESULTS, WIDTH}},
    END,
};
static const rule sigmoid_bias[] = {
    {"exp_probs_b.bias", MO_SHAPE_BIAS, BIASED, {EXPERTS}},
    END,
};
static const rule short_conv[] = {
    {"shortconv.in_proj.weight", MO_SHAPE_MATRIX, SHORT, {WIDTH, WIDTH_3}},
    {"shortconv.conv.weight", MO_SHAPE_CONV, SHORT, {SHORT_TAPS, WIDTH}},
    {"shortconv.out_proj.weight", MO_SHAPE_BACK, SHORT, {WIDTH, WIDTH}},
    END,
};

/* Mamba of the first kind, */
static const rule mamba[] = {
    {"ssm_in.weight", MO_SHAPE_MATRIX, RECURRENT, {WIDTH, INNER_2}},
    {"ssm_conv1d.weight", MO_SHAPE_CONV, RECURRENT, {CONV_KERNEL, INNER}},
    {"ssm_conv1d.bias", MO_SHAPE_BIAS, RECURRENT, {INNER}},
    {"ssm_x.weight", MO_SHAPE_MATRIX, RECURRENT, {INNER, SSM_PARTS}},
    {"ssm_dt_norm.weight", MO_SHAPE_NORM, RECURRENT, {VALUE_HEADS}},
    {"ssm_b_norm.weight", MO_SHAPE_NORM, RECURRENT, {STATE}},
    {"ssm_c_norm.weight", MO_SHAPE_NORM, RECURRENT, {STATE}},
    {"ssm_dt.weight", MO_SHAPE_MATRIX, RECURRENT, {VALUE_HEADS, INNER}},
    {"ssm_dt.bias", MO_SHAPE_STEP, RECURRENT, {INNER}},
    {"ssm_a", MO_SHAPE_DECAY, RECURRENT, {STATE, INNER}},
    {"ssm_d", MO_SHAPE_ONE, RECURRENT, {INNER}},
    {"ssm_out.weight", MO_SHAPE_BACK, RECURRENT, {INNER, WIDTH}},
    END,
};
/* and of the second. */
static const rule mamba_heads[] = {
    {"ssm_in.weight", MO_SHAPE_MATRIX, RECURRENT, {WIDTH, SSM_IN}},
    {"ssm_conv1d.weight", MO_SHAPE_CONV, RECURRENT, {CONV_KERNEL, CONV_CHANNELS}},
    {"ssm_conv1d.bias", MO_SHAPE_BIAS, RECURRENT, {CONV_CHANNELS}},
    {"ssm_dt.bias", MO_SHAPE_STEP, RECURRENT, {VALUE_HEADS}},
    {"ssm_a", MO_SHAPE_DECAY, RECURRENT, {ONE, VALUE_HEADS}},
    {"ssm_d", MO_SHAPE_ONE, RECURRENT, {ONE, VALUE_HEADS}},
    {"ssm_norm.weight", MO_SHAPE_NORM, RECURRENT, {SSM_GROUP, KEY_GROUPS}},
    {"ssm_out.weight", MO_SHAPE_BACK, RECURRENT, {INNER, WIDTH}},
    END,
};

static const rule ffn_norm[] = {
    {"ffn_norm.weight", MO_SHAPE_NORM, ALWAYS, {WIDTH}},
    END,
};
static const rule post_attention_norm[] = {
    {"post_attention_norm.weight", MO_SHAPE_NORM, ALWAYS, {WIDTH}},
    END,
};
static const rule norm_bias[] = {
    {"attn_norm.bias", MO_SHAPE_BIAS, ALWAYS, {WIDTH}},
    {"ffn_norm.bias", MO_SHAPE_BIAS, ALWAYS, {WIDTH}},
    END,
};
static const rule dense[] = {
    {"ffn_gate.weight", MO_SHAPE_MATRIX, ALWAYS, {WIDTH, FFN}},
    {"ffn_up.weight", MO_SHAPE_MATRIX, ALWAYS, {WIDTH, FFN}},
    {"ffn_down.weight", MO_SHAPE_DOWN, ALWAYS, {FFN, WIDTH}},
    END,
};
static const rule fused_dense[] = {
    {"ffn_up.weight", MO_SHAPE_MATRIX, ALWAYS, {WIDTH, FFN_2}},
    {"ffn_down.weight", MO_SHAPE_DOWN, ALWAYS, {FFN, WIDTH}},
    END,
};
/* Parts whose results are normed before they join the stream. */
static const rule post_norms[] = {
    {"post_attention_norm.weight", MO_SHAPE_POST_NORM, ALWAYS, {WIDTH}},
    {"post_ffw_norm.weight", MO_SHAPE_POST_NORM, ALWAYS, {WIDTH}},
    END,
};
static const rule experts[] = {
    {"ffn_gate_inp.weight", MO_SHAPE_ROUTER, ALWAYS, {WIDTH, EXPERTS}},
    {"ffn_gate_exps.weight", MO_SHAPE_EXPERT, ALWAYS, {WIDTH, EXPERT_FFN, EXPERTS}},
    {"ffn_up_exps.weight", MO_SHAPE_EXPERT, ALWAYS, {WIDTH, EXPERT_FFN, EXPERTS}},
    {"ffn_down_exps.weight", MO_SHAPE_EXPERT_DOWN, ALWAYS, {EXPERT_FFN, WIDTH, EXPERTS}},
    END,
};
static const rule expert_bias[] = {
    {"ffn_gate_inp.bias", MO_SHAPE_BIAS, ALWAYS, {EXPERTS}},
    {"ffn_gate_exps.bias", MO_SHAPE_BIAS, ALWAYS, {EXPERT_FFN, EXPERTS}},
    {"ffn_up_exps.bias", MO_SHAPE_BIAS, ALWAYS, {EXPERT_FFN, EXPERTS}},
    {"ffn_down_exps.bias", MO_SHAPE_BIAS, ALWAYS, {WIDTH, EXPERTS}},
    END,
};
static const rule shared[] = {
    {"ffn_gate_inp_shexp.weight", MO_SHAPE_VECTOR, ALWAYS, {WIDTH}},
    {"ffn_gate_shexp.weight", MO_SHAPE_MATRIX, ALWAYS, {WIDTH, SHARED_FFN}},
    {"ffn_up_shexp.weight", MO_SHAPE_MATRIX, ALWAYS, {WIDTH, SHARED_FFN}},
    {"ffn_down_shexp.weight", MO_SHAPE_DOWN, ALWAYS, {SHARED_FFN, WIDTH}},
    END,
};

/* Either a dense feed-forward or experts, as the model has them. */
static const rule llama_ffn[] = {
    {"ffn_norm.weight", MO_SHAPE_NORM, ALWAYS, {WIDTH}},
    {"ffn_gate.weight", MO_SHAPE_MATRIX, DENSE, {WIDTH, FFN}},
    {"ffn_up.weight", MO_SHAPE_MATRIX, DENSE, {WIDTH, FFN}},
    {"ffn_down.weight", MO_SHAPE_DOWN, DENSE, {FFN, WIDTH}},
    {"ffn_gate_inp.weight", MO_SHAPE_ROUTER, SPARSE, {WIDTH, EXPERTS}},
    {"ffn_gate_exps.weight", MO_SHAPE_EXPERT, SPARSE, {WIDTH, EXPERT_FFN, EXPERTS}},
    {"ffn_up_exps.weight", MO_SHAPE_EXPERT, SPARSE, {WIDTH, EXPERT_FFN, EXPERTS}},
    {"ffn_down_exps.weight", MO_SHAPE_EXPERT_DOWN, SPARSE, {EXPERT_FFN, WIDTH, EXPERTS}},
    END,
};

/* Dense layers at the beginning, then experts with a shared one that every token runs. */
static const rule lead_ffn[] = {
    {"ffn_gate.weight", MO_SHAPE_MATRIX, LEADING, {WIDTH, FFN}},
    {"ffn_up.weight", MO_SHAPE_MATRIX, LEADING, {WIDTH, FFN}},
    {"ffn_down.weight", MO_SHAPE_DOWN, LEADING, {FFN, WIDTH}},
    {"ffn_gate_inp.weight", MO_SHAPE_ROUTER, ROUTED, {WIDTH, EXPERTS}},
    {"ffn_gate_exps.weight", MO_SHAPE_EXPERT, ROUTED, {WIDTH, EXPERT_FFN, EXPERTS}},
    {"ffn_up_exps.weight", MO_SHAPE_EXPERT, ROUTED, {WIDTH, EXPERT_FFN, EXPERTS}},
    {"ffn_down_exps.weight", MO_SHAPE_EXPERT_DOWN, ROUTED, {EXPERT_FFN, WIDTH, EXPERTS}},
    END,
};
static const rule select_bias[] = {
    {"exp_probs_b.bias", MO_SHAPE_BIAS, ROUTED, {EXPERTS}},
    END,
};
static const rule lead_shared[] = {
    {"ffn_gate_shexp.weight", MO_SHAPE_MATRIX, ROUTED, {WIDTH, SHARED_FFN}},
    {"ffn_up_shexp.weight", MO_SHAPE_MATRIX, ROUTED, {WIDTH, SHARED_FFN}},
    {"ffn_down_shexp.weight", MO_SHAPE_DOWN, ROUTED, {SHARED_FFN, WIDTH}},
    END,
};

static const rule gemma_attention[] = {
    {"attn_norm.weight", MO_SHAPE_NORM, ALWAYS, {WIDTH}},
    {"attn_q.weight", MO_SHAPE_MATRIX, ALWAYS, {WIDTH, QUERIES}},
    {"attn_k.weight", MO_SHAPE_KEY, ALWAYS, {WIDTH, KEYS}},
    {"attn_v.weight", MO_SHAPE_VALUE, WINDOWED, {WIDTH, KEYS}},
    {"attn_output.weight", MO_SHAPE_BACK, ALWAYS, {QUERIES, WIDTH}},
    {"attn_q_norm.weight", MO_SHAPE_HEAD_NORM, ALWAYS, {HEAD}},
    {"attn_k_norm.weight", MO_SHAPE_HEAD_NORM, ALWAYS, {HEAD}},
    {"post_attention_norm.weight", MO_SHAPE_POST_NORM, ALWAYS, {WIDTH}},
    END,
};
static const rule gemma_ffn[] = {
    {"post_ffw_norm_1.weight", MO_SHAPE_NORM, ALWAYS, {WIDTH}},
    {"pre_ffw_norm_2.weight", MO_SHAPE_NORM, ALWAYS, {WIDTH}},
    {"post_ffw_norm_2.weight", MO_SHAPE_NORM, ALWAYS, {WIDTH}},
    {"post_ffw_norm.weight", MO_SHAPE_POST_NORM, ALWAYS, {WIDTH}},
    {"ffn_gate_inp.weight", MO_SHAPE_ROUTER, ALWAYS, {WIDTH, EXPERTS}},
    {"ffn_gate_inp.scale", MO_SHAPE_ROUTER_SCALE, ALWAYS, {WIDTH}},
    {"ffn_gate_up_exps.weight", MO_SHAPE_EXPERT, ALWAYS, {WIDTH, EXPERT_FFN_2, EXPERTS}},
    {"ffn_down_exps.weight", MO_SHAPE_EXPERT_DOWN, ALWAYS, {EXPERT_FFN, WIDTH, EXPERTS}},
    {"ffn_down_exps.scale", MO_SHAPE_ONE, ALWAYS, {EXPERTS}},
    {"layer_output_scale.weight", MO_SHAPE_ONE, ALWAYS, {ONE}},
    END,
};

typedef struct family {
    const char *architecture;
    const rule *model[4]; /* tensors of the whole model */
    const rule *layer[8]; /* tensors of each layer */
} family;

/* clang-format off */
static const family families[] = {
    {"llama", {spec}, {attention, llama_ffn}},
    {"qwen3moe", {spec}, {attention, head_norm, ffn_norm, experts}},
    {"gpt-oss", {spec},
     {attention, attention_bias, attention_output_bias, sinks, post_attention_norm, experts, expert_bias}},
    {"qwen3next", {spec}, {hybrid, delta_joint, head_norm, post_attention_norm, experts, shared}},
    {"qwen35moe", {spec}, {hybrid, delta_apart, head_norm, post_attention_norm, experts, shared}},
    {"qwen2moe", {spec}, {attention, attention_bias, ffn_norm, experts, shared}},
    {"olmoe", {spec}, {attention, whole_norm, ffn_norm, experts}},
    {"gemma4", {spec, gemma_spec}, {gemma_attention, ffn_norm, dense, gemma_ffn}},
    {"glm4moe", {spec},
     {attention, attention_bias, post_attention_norm, lead_ffn, select_bias, lead_shared}},
    {"deepseek2", {spec}, {latent_attention, ffn_norm, lead_ffn, sigmoid_bias, lead_shared}},
    {"lfm2moe", {lfm2_spec}, {some_attention, head_norm, short_conv, ffn_norm, lead_ffn, select_bias}},
    {"lfm2", {lfm2_spec}, {some_attention, head_norm, short_conv, ffn_norm, dense}},
    {"jamba", {spec}, {some_attention, mamba, ffn_norm, lead_ffn}},
    {"granitehybrid", {spec}, {some_attention, mamba_heads, ffn_norm, experts, lead_shared}},
    {"minimax-m2", {spec}, {attention, whole_norm, ffn_norm, experts, select_bias}},
    {"ernie4_5-moe", {spec}, {attention, ffn_norm, lead_ffn, select_bias, lead_shared}},
    {"granitemoe", {spec}, {attention, ffn_norm, experts}},
    {"bailingmoe2", {spec}, {fused_attention, head_norm, ffn_norm, lead_ffn, select_bias, lead_shared}},
    {"dots1", {spec}, {attention, head_norm, ffn_norm, lead_ffn, select_bias, lead_shared}},
    {"hunyuan-moe", {spec}, {attention, head_norm, ffn_norm, experts, lead_shared}},
    {"hunyuan-dense", {spec}, {attention, head_norm, ffn_norm, dense}},
    {"phimoe", {spec, spec_bias, stretch},
     {attention, attention_bias, attention_output_bias, ffn_norm, norm_bias, experts}},
    {"phi3", {spec, stretch}, {fused_attention, ffn_norm, fused_dense}},
    {"qwen2", {spec}, {attention, attention_bias, ffn_norm, dense}},
    {"gemma3", {spec}, {attention, head_norm, post_norms, ffn_norm, dense}},
    {"glm4", {spec}, {attention, attention_bias, post_norms, ffn_norm, fused_dense}},
    {"granite", {spec}, {attention, ffn_norm, dense}},
    {"ernie4_5", {spec}, {attention, ffn_norm, dense}},
};
/* clang-format on */

static const family *family_of(const mo_shape *s)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (strcmp(families[i].architecture, s->architecture) == 0) {
            return &families[i];
        }
    }
    return NULL; /* not for a shape of this file */
}

static bool is_routed(const mo_shape *s, int layer)
{
    return layer >= s->dense_layers && (!s->odd_experts || layer % 2);
}

static bool holds(when w, const mo_shape *s, int layer)
{
    switch (w) {
    case UNTIED: return !s->tied;
    case ATTENTION: return (s->state == 0 && s->short_taps == 0) || is_full(s, layer);
    case RECURRENT: return s->state != 0 && !is_full(s, layer);
    case LOW_RANK: return s->query_rank != 0;
    case FULL_RANK: return s->query_rank == 0;
    case BIASED: return s->gating == 2 && layer >= s->dense_layers;
    case SHORT: return s->short_taps != 0 && !is_full(s, layer);
    case WINDOWED: return !is_full(s, layer);
    case DENSE: return s->experts == 0;
    case SPARSE: return s->experts != 0;
    case LEADING: return !is_routed(s, layer);
    case ROUTED: return is_routed(s, layer);
    default: return true;
    }
}

static int64_t size_of(dim d, const mo_shape *s, int layer)
{
    const bool narrow = s->window_head != 0 && !is_full(s, layer);
    const int64_t head = narrow ? s->window_head : s->head;
    const int64_t kv_heads = narrow ? s->window_kv_heads : s->kv_heads;
    const int64_t expert_ffn = s->expert_ffn ? s->expert_ffn : s->ffn;
    switch (d) {
    case WIDTH: return s->width;
    case QUERIES: return s->heads * head;
    case GATED_QUERIES: return 2 * s->heads * head;
    case KEYS: return kv_heads * head;
    case HEAD: return head;
    case HEADS: return s->heads;
    case EXPERTS: return s->experts;
    case EXPERT_FFN: return expert_ffn;
    case EXPERT_FFN_2: return 2 * expert_ffn;
    case FFN: return s->ffn;
    case FFN_2: return 2 * (int64_t)s->ffn;
    case QUERIES_KEYS_VALUES: return (s->heads + 2 * kv_heads) * head;
    case SHARED_FFN: return s->shared_ffn;
    case VOCABULARY: return s->vocabulary;
    case HALF_ROTATED: return s->rotated / 2;
    case CONV_KERNEL: return s->conv_kernel;
    case CONV_CHANNELS: return 2 * (int64_t)s->key_groups * s->state + s->inner;
    case INNER: return s->inner;
    case STATE: return s->state;
    case VALUE_HEADS: return s->value_heads;
    case VALUE_HEADS_2: return 2 * (int64_t)s->value_heads;
    case INNER_2: return 2 * (int64_t)s->inner;
    case SSM_PARTS: return s->value_heads + 2 * (int64_t)s->state;
    case SSM_IN: return 2 * (int64_t)s->inner + 2 * (int64_t)s->key_groups * s->state + s->value_heads;
    case SSM_GROUP: return s->inner / s->key_groups;
    case KEY_GROUPS: return s->key_groups;
    case SHORT_TAPS: return s->short_taps;
    case QUERY_RANK: return s->query_rank;
    case PLAIN_QUERIES: return (int64_t)s->heads * (s->plain + s->rotated);
    case PLAIN: return s->plain;
    case LATENT: return s->latent;
    case HEAD_OUT: return s->head_out;
    case RESULTS: return (int64_t)s->heads * s->head_out;
    case WIDTH_3: return 3 * (int64_t)s->width;
    default: return 1;
    }
}

static int64_t add_rules(const rule *rules, const mo_shape *s, int layer, mo_shape_tensor *out, int64_t count,
                         int64_t capacity)
{
    for (const rule *r = rules; r->name; r++) {
        if (!holds(r->when, s, layer)) {
            continue;
        }
        if (count < capacity) {
            mo_shape_tensor *t = &out[count];
            *t = (mo_shape_tensor){.size = {1, 1, 1}, .role = r->role, .layer = layer};
            if (layer < 0) {
                snprintf(t->name, sizeof t->name, "%s", r->name);
            } else {
                snprintf(t->name, sizeof t->name, "blk.%d.%s", layer, r->name);
            }
            while (t->dims < 3 && r->size[t->dims] != NONE) {
                t->size[t->dims] = size_of(r->size[t->dims], s, layer);
                t->dims++;
            }
        }
        count++;
    }
    return count;
}

int64_t mo_shape_tensors(const mo_shape *s, int layers, mo_shape_tensor *out, int64_t capacity)
{
    const family *f = family_of(s);
    int64_t count = 0;
    for (const rule *const *part = f->model; *part; part++) {
        count = add_rules(*part, s, -1, out, count, capacity);
    }
    for (int layer = 0; layer < layers; layer++) {
        for (const rule *const *part = f->layer; *part; part++) {
            count = add_rules(*part, s, layer, out, count, capacity);
        }
    }
    return count;
}

/* ---- Metadata ----------------------------------------------------------------------------------- */

typedef struct key_rule {
    const char *suffix;
    size_t offset; /* of an int32_t or float in mo_shape; 0 is not written */
    bool real;
} key_rule;

#define INTEGER(suffix, field)                                                                               \
    {                                                                                                        \
        suffix, offsetof(mo_shape, field), false                                                             \
    }
#define REAL(suffix, field)                                                                                  \
    {                                                                                                        \
        suffix, offsetof(mo_shape, field), true                                                              \
    }

static const key_rule key_rules[] = {
    INTEGER("context_length", context),
    INTEGER("embedding_length", width),
    INTEGER("feed_forward_length", ffn),
    INTEGER("attention.head_count", heads),
    INTEGER("attention.key_length", head),
    INTEGER("attention.value_length", head),
    REAL("attention.layer_norm_rms_epsilon", epsilon),
    INTEGER("rope.dimension_count", rotated),
    REAL("rope.freq_base", rope_base),
    INTEGER("vocab_size", vocabulary),
    INTEGER("expert_count", experts),
    INTEGER("expert_used_count", experts_used),
    INTEGER("expert_feed_forward_length", expert_ffn),
    INTEGER("expert_shared_feed_forward_length", shared_ffn),
    INTEGER("expert_shared_count", shared_count),
    INTEGER("expert_gating_func", gating),
    REAL("expert_weights_scale", weights_scale),
    INTEGER("expert_group_count", groups),
    INTEGER("expert_group_used_count", groups_used),
    INTEGER("leading_dense_block_count", dense_layers),
    INTEGER("attention.kv_lora_rank", latent),
    INTEGER("attention.q_lora_rank", query_rank),
    INTEGER("attention.value_length_mla", head_out),
    REAL("rope.scaling.yarn_log_multiplier", yarn_log),
    INTEGER("shortconv.l_cache", short_taps),
    REAL("embedding_scale", embedding_scale),
    REAL("residual_scale", residual_scale),
    REAL("attention.scale", attention_scale),
    REAL("logit_scale", logit_scale),
    REAL("rope.scaling.factor", linear_factor),
    REAL("rope.scaling.attn_factor", rope_magnitude),
    INTEGER("ssm.conv_kernel", conv_kernel),
    INTEGER("ssm.state_size", state),
    INTEGER("ssm.group_count", key_groups),
    INTEGER("ssm.time_step_rank", value_heads),
    INTEGER("ssm.inner_size", inner),
    INTEGER("attention.sliding_window", window),
    INTEGER("attention.key_length_swa", window_head),
    INTEGER("attention.value_length_swa", window_head),
    INTEGER("rope.dimension_count_swa", window_head),
    REAL("rope.freq_base_swa", window_rope_base),
    REAL("rope.scaling.factor", yarn_factor),
    INTEGER("rope.scaling.original_context_length", yarn_context),
    REAL("final_logit_softcapping", logit_cap),
};

enum { MAX_LAYERS = 256 };

static void put_layer_patterns(const mo_shape *s, int layers, mo_gguf_writer *w)
{
    char key[96];
    int32_t kv_heads[MAX_LAYERS];
    uint8_t windowed[MAX_LAYERS];
    const int known = layers < MAX_LAYERS ? layers : MAX_LAYERS;
    for (int i = 0; i < known; i++) {
        windowed[i] = !is_full(s, i);
        kv_heads[i] = windowed[i] ? s->window_kv_heads : s->kv_heads;
    }
    snprintf(key, sizeof key, "%s.attention.head_count_kv", s->architecture);
    mo_gguf_put_array(w, key, MO_VALUE_I32, kv_heads, (uint64_t)known);
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", s->architecture);
    mo_gguf_put_array(w, key, MO_VALUE_BOOL, windowed, (uint64_t)known);
    snprintf(key, sizeof key, "%s.attention.shared_kv_layers", s->architecture);
    mo_gguf_put_u32(w, key, 0);
    snprintf(key, sizeof key, "%s.embedding_length_per_layer_input", s->architecture);
    mo_gguf_put_u32(w, key, 0);
}

/* No KV heads say that a layer does not attend. */
static void put_kv_heads(const mo_shape *s, int layers, mo_gguf_writer *w)
{
    char key[96];
    int32_t kv_heads[MAX_LAYERS];
    const int known = layers < MAX_LAYERS ? layers : MAX_LAYERS;
    for (int i = 0; i < known; i++) {
        kv_heads[i] = is_full(s, i) ? s->kv_heads : 0;
    }
    snprintf(key, sizeof key, "%s.attention.head_count_kv", s->architecture);
    mo_gguf_put_array(w, key, MO_VALUE_I32, kv_heads, (uint64_t)known);
}

/* What one architecture alone has. */
static void put_special_keys(const mo_shape *s, int layers, mo_gguf_writer *w)
{
    char key[96];
    if (s->window_head) {
        put_layer_patterns(s, layers, w);
    } else if (s->attends) {
        put_kv_heads(s, layers, w);
    } else {
        snprintf(key, sizeof key, "%s.attention.head_count_kv", s->architecture);
        mo_gguf_put_u32(w, key, (uint32_t)s->kv_heads);
    }
    if (s->state && s->full_interval) {
        snprintf(key, sizeof key, "%s.full_attention_interval", s->architecture);
        mo_gguf_put_u32(w, key, (uint32_t)s->full_interval);
    }
    if (s->window && s->full_interval && !s->window_head) {
        snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", s->architecture);
        mo_gguf_put_u32(w, key, (uint32_t)s->full_interval);
    }
    if (strcmp(s->architecture, "ernie4_5-moe") == 0) {
        mo_gguf_put_u32(w, "ernie4_5-moe.interleave_moe_layer_step", 1);
    }
    if (s->normalized) {
        snprintf(key, sizeof key, "%s.expert_weights_norm", s->architecture);
        mo_gguf_put_bool(w, key, true);
    }
    if (s->yarn_factor > 0.0f) {
        snprintf(key, sizeof key, "%s.rope.scaling.type", s->architecture);
        mo_gguf_put_string(w, key, "yarn");
    } else if (s->linear_factor > 0.0f) {
        snprintf(key, sizeof key, "%s.rope.scaling.type", s->architecture);
        mo_gguf_put_string(w, key, "linear");
    }
    if (s->latent) {
        snprintf(key, sizeof key, "%s.attention.key_length_mla", s->architecture);
        mo_gguf_put_u32(w, key, (uint32_t)(s->plain + s->rotated));
    }
    if (strcmp(s->architecture, "granitehybrid") == 0) {
        mo_gguf_put_bool(w, "granitehybrid.rope.scaling.finetuned", false); /* attention without rotation */
    }
    if (strcmp(s->architecture, "qwen35moe") == 0) {
        static const int32_t sections[4] = {11, 11, 10, 0};
        mo_gguf_put_array(w, "qwen35moe.rope.dimension_sections", MO_VALUE_I32, sections, 4);
    }
}

void mo_shape_keys(const mo_shape *s, int layers, mo_gguf_writer *w)
{
    char key[96];
    mo_gguf_put_string(w, "general.architecture", s->architecture);
    mo_gguf_put_string(w, "general.type", "model");
    snprintf(key, sizeof key, "%s.block_count", s->architecture);
    mo_gguf_put_u32(w, key, (uint32_t)layers);
    for (size_t i = 0; i < sizeof key_rules / sizeof *key_rules; i++) {
        const char *field = (const char *)s + key_rules[i].offset;
        if (s->latent && strcmp(key_rules[i].suffix, "attention.value_length") == 0) {
            field = (const char *)&s->latent;
        }
        snprintf(key, sizeof key, "%s.%s", s->architecture, key_rules[i].suffix);
        if (key_rules[i].real) {
            float value;
            memcpy(&value, field, sizeof value);
            if (value != 0.0f) {
                mo_gguf_put_f32(w, key, value);
            }
        } else {
            int32_t value;
            memcpy(&value, field, sizeof value);
            if (value != 0) {
                mo_gguf_put_u32(w, key, (uint32_t)value);
            }
        }
    }
    put_special_keys(s, layers, w);
}

/* ---- Formats ------------------------------------------------------------------------------------ */

bool mo_shape_mixed(mo_shape_role role)
{
    return role <= MO_SHAPE_EXPERT_DOWN;
}

mo_type mo_shape_fallback(mo_type type, int64_t cols)
{
    static const mo_type smaller[MO_TYPE_LIMIT] = {
        [MO_Q2_K] = MO_Q4_0,      [MO_Q3_K] = MO_Q4_0,      [MO_Q4_K] = MO_Q5_0,     [MO_Q5_K] = MO_Q5_1,
        [MO_Q6_K] = MO_Q8_0,      [MO_IQ4_XS] = MO_IQ4_NL,  [MO_NVFP4] = MO_MXFP4,   [MO_IQ1_S] = MO_IQ4_NL,
        [MO_IQ1_M] = MO_IQ4_NL,   [MO_IQ2_XXS] = MO_IQ4_NL, [MO_IQ2_XS] = MO_IQ4_NL, [MO_IQ2_S] = MO_IQ4_NL,
        [MO_IQ3_XXS] = MO_IQ4_NL, [MO_IQ3_S] = MO_IQ4_NL,   [MO_TQ1_0] = MO_Q4_0,    [MO_TQ2_0] = MO_Q4_0,
        [MO_Q1_0] = MO_Q4_0,      [MO_Q2_0] = MO_Q4_0,
    };
    if (cols % mo_format_of(type)->block_values == 0) {
        return type;
    }
    const mo_type other = smaller[type]; /* F32 where there is none */
    return other != MO_F32 && cols % mo_format_of(other)->block_values == 0 ? other : MO_F16;
}

/* The half of the layers that gets more bits: the first and last eighth, and every third between. */
static bool more_bits(const mo_shape *s, int layer)
{
    const int eighth = s->layers / 8;
    return layer < eighth || layer >= 7 * s->layers / 8 || (layer - eighth) % 3 == 2;
}

static mo_type mixed_type(const mo_shape *s, const mo_shape_tensor *t)
{
    const bool eight = s->mix == MO_MIX_Q4_K_M_EIGHT;
    if (s->mix == MO_MIX_MXFP4) {
        return t->role == MO_SHAPE_EXPERT || t->role == MO_SHAPE_EXPERT_DOWN ? MO_MXFP4 : MO_Q8_0;
    }
    switch (t->role) {
    case MO_SHAPE_OUTPUT: return MO_Q6_K;
    case MO_SHAPE_EMBEDDING: return s->tied ? MO_Q6_K : MO_Q4_K;
    case MO_SHAPE_FUSED: return MO_Q5_K;
    case MO_SHAPE_KEY: return eight ? MO_Q8_0 : MO_Q4_K;
    case MO_SHAPE_VALUE: return eight ? MO_Q8_0 : more_bits(s, t->layer) ? MO_Q6_K : MO_Q4_K;
    case MO_SHAPE_BACK: return eight ? MO_Q5_K : MO_Q4_K;
    case MO_SHAPE_DOWN:
    case MO_SHAPE_EXPERT_DOWN: return more_bits(s, t->layer) ? MO_Q6_K : MO_Q4_K;
    default: return MO_Q4_K;
    }
}

mo_type mo_shape_format(const mo_shape *s, const mo_shape_tensor *t)
{
    return mo_shape_mixed(t->role) ? mo_shape_fallback(mixed_type(s, t), t->size[0]) : MO_F32;
}
