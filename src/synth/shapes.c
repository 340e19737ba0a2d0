#include "synth/shapes.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- Published models ---- */

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
    {.name = "deepseek-v3.2", .title = "DeepSeek V3.2", .architecture = "deepseek32", .layers = 61, .width = 7168,
     .heads = 128, .kv_heads = 1, .head = 576, .rotated = 64, .experts = 256, .experts_used = 8,
     .expert_ffn = 2048, .ffn = 18432, .shared_ffn = 2048, .vocabulary = 129280, .context = 163840,
     .rope_base = 10000.0f, .epsilon = 1e-6f, .dense_layers = 3, .shared_count = 1, .gating = 2,
     .normalized = true, .weights_scale = 2.5f, .groups = 8, .groups_used = 4, .latent = 512,
     .query_rank = 1536, .plain = 128, .head_out = 128, .yarn_factor = 40.0f, .yarn_context = 4096,
     .yarn_log = 0.1f, .index_heads = 64, .index_length = 128, .index_top = 2048},
    {.name = "glm-5", .title = "GLM 5", .architecture = "glm-dsa", .layers = 78, .width = 6144,
     .heads = 64, .kv_heads = 1, .head = 576, .rotated = 64, .experts = 256, .experts_used = 8,
     .expert_ffn = 2048, .ffn = 12288, .shared_ffn = 2048, .vocabulary = 154880, .context = 202752,
     .rope_base = 1e6f, .epsilon = 1e-5f, .dense_layers = 3, .shared_count = 1, .gating = 2,
     .normalized = true, .weights_scale = 2.5f, .latent = 512, .query_rank = 2048, .plain = 192,
     .head_out = 256, .index_heads = 32, .index_length = 128, .index_top = 2048},
    {.name = "glm-5.2", .title = "GLM 5.2", .architecture = "glm-dsa", .layers = 78, .width = 6144,
     .heads = 64, .kv_heads = 1, .head = 576, .rotated = 64, .experts = 256, .experts_used = 8,
     .expert_ffn = 2048, .ffn = 12288, .shared_ffn = 2048, .vocabulary = 154880, .context = 1048576,
     .rope_base = 1e6f, .epsilon = 1e-5f, .dense_layers = 3, .shared_count = 1, .gating = 2,
     .normalized = true, .weights_scale = 2.5f, .latent = 512, .query_rank = 2048, .plain = 192,
     .head_out = 256, .index_heads = 32, .index_length = 128, .index_top = 2048, .index_shared = true},
    {.name = "deepseek-v4-flash", .title = "DeepSeek V4 Flash", .architecture = "deepseek4", .layers = 43,
     .width = 4096, .heads = 64, .kv_heads = 1, .head = 512, .rotated = 64, .experts = 256,
     .experts_used = 6, .expert_ffn = 2048, .shared_ffn = 2048, .vocabulary = 129280, .context = 1048576,
     .rope_base = 10000.0f, .epsilon = 1e-6f, .mix = MO_MIX_MXFP4, .shared_count = 1, .gating = 4,
     .normalized = true, .weights_scale = 1.5f, .query_rank = 1024, .window = 128, .yarn_factor = 16.0f,
     .yarn_context = 65536, .index_heads = 64, .index_length = 128, .index_top = 512, .out_groups = 8,
     .out_rank = 1024, .compressed_base = 160000.0f, .hashed = 3, .limit = 10.0f, .streams = 4,
     .balancings = 20, .streams_epsilon = 1e-6f},
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
    {.name = "qwen3-235b-a22b", .title = "Qwen3 235B A22B", .architecture = "qwen3moe", .layers = 94,
     .width = 4096, .heads = 64, .kv_heads = 4, .head = 128, .rotated = 128, .experts = 128,
     .experts_used = 8, .expert_ffn = 1536, .ffn = 12288, .vocabulary = 151936, .context = 40960,
     .rope_base = 1e6f, .epsilon = 1e-6f},
    {.name = "qwen3-coder-480b-a35b", .title = "Qwen3 Coder 480B A35B", .architecture = "qwen3moe",
     .layers = 62, .width = 6144, .heads = 96, .kv_heads = 8, .head = 128, .rotated = 128, .experts = 160,
     .experts_used = 8, .expert_ffn = 2560, .ffn = 8192, .vocabulary = 151936, .context = 262144,
     .rope_base = 1e7f, .epsilon = 1e-6f},
    {.name = "glm-4.5", .title = "GLM 4.5", .architecture = "glm4moe", .layers = 92, .width = 5120,
     .heads = 96, .kv_heads = 8, .head = 128, .rotated = 64, .experts = 160, .experts_used = 8,
     .expert_ffn = 1536, .ffn = 12288, .shared_ffn = 1536, .vocabulary = 151552, .context = 131072,
     .rope_base = 1e6f, .epsilon = 1e-5f, .head_norms = true, .dense_layers = 3, .shared_count = 1,
     .gating = 2, .normalized = true, .weights_scale = 2.5f},
    {.name = "glm-4.6", .title = "GLM 4.6", .architecture = "glm4moe", .layers = 92, .width = 5120,
     .heads = 96, .kv_heads = 8, .head = 128, .rotated = 64, .experts = 160, .experts_used = 8,
     .expert_ffn = 1536, .ffn = 12288, .shared_ffn = 1536, .vocabulary = 151552, .context = 202752,
     .rope_base = 1e6f, .epsilon = 1e-5f, .head_norms = true, .dense_layers = 3, .shared_count = 1,
     .gating = 2, .normalized = true, .weights_scale = 2.5f},
    {.name = "trinity-mini", .title = "Trinity Mini", .architecture = "afmoe", .layers = 32, .width = 2048,
     .heads = 32, .kv_heads = 4, .head = 128, .rotated = 128, .experts = 128, .experts_used = 8,
     .expert_ffn = 1024, .ffn = 6144, .shared_ffn = 1024, .vocabulary = 200192, .context = 131072,
     .rope_base = 10000.0f, .epsilon = 1e-5f, .dense_layers = 2, .shared_count = 1, .gating = 2,
     .normalized = true, .weights_scale = 2.826f, .full_interval = 4, .window = 2048},
    {.name = "laguna-xs.2", .title = "Laguna XS.2", .architecture = "laguna", .layers = 40, .width = 2048,
     .heads = 48, .kv_heads = 8, .head = 128, .rotated = 64, .experts = 256, .experts_used = 8,
     .expert_ffn = 512, .ffn = 8192, .shared_ffn = 512, .vocabulary = 100352, .context = 131072,
     .rope_base = 500000.0f, .epsilon = 1e-6f, .dense_layers = 1, .gating = 2, .normalized = true,
     .weights_scale = 2.5f, .full_interval = 4, .window = 512, .window_heads = 64, .window_rotated = 128,
     .full_first = true, .window_rope_base = 10000.0f, .yarn_factor = 32.0f, .yarn_context = 4096},
    {.name = "step-3.5-flash", .title = "Step 3.5 Flash", .architecture = "step35", .layers = 45,
     .width = 4096, .heads = 64, .kv_heads = 8, .head = 128, .rotated = 128, .experts = 288,
     .experts_used = 8, .expert_ffn = 1280, .ffn = 11264, .shared_ffn = 1280, .vocabulary = 128896,
     .context = 262144, .rope_base = 5e6f, .epsilon = 1e-5f, .dense_layers = 3, .gating = 2,
     .normalized = true, .weights_scale = 3.0f, .full_interval = 4, .window = 512, .window_heads = 96,
     .full_first = true, .flags = true, .window_rope_base = 10000.0f, .expert_limit = 7.0f,
     .shared_limit = 16.0f},
    {.name = "mimo-v2-flash", .title = "MiMo V2 Flash", .architecture = "mimo2", .layers = 48, .width = 4096,
     .heads = 64, .kv_heads = 4, .head = 192, .value_head = 128, .value_scale = 0.707f, .rotated = 64,
     .experts = 256, .experts_used = 8, .expert_ffn = 2048, .ffn = 16384, .vocabulary = 152576,
     .context = 262144, .rope_base = 5e6f, .epsilon = 1e-5f, .dense_layers = 1, .attends = 0x820820820821,
     .window = 128, .window_kv_heads = 8, .flags = true, .window_rope_base = 10000.0f},
    {.name = "mistral-small-3.2", .title = "Mistral Small 3.2 24B", .architecture = "mistral3", .layers = 40,
     .width = 5120, .heads = 32, .kv_heads = 8, .head = 128, .rotated = 128, .ffn = 32768,
     .vocabulary = 131072, .context = 131072, .rope_base = 1e9f, .epsilon = 1e-5f},
    {.name = "ministral-3-8b", .title = "Ministral 3 8B", .architecture = "mistral3", .layers = 34,
     .width = 4096, .heads = 32, .kv_heads = 8, .head = 128, .rotated = 128, .ffn = 14336,
     .vocabulary = 131072, .context = 262144, .rope_base = 1e6f, .epsilon = 1e-5f, .yarn_factor = 16.0f,
     .yarn_context = 16384, .yarn_log = 1.0f, .temper = 0.1f},
    {.name = "mistral-small-4", .title = "Mistral Small 4 119B", .architecture = "mistral4", .layers = 36,
     .width = 4096, .heads = 32, .kv_heads = 1, .head = 320, .rotated = 64, .experts = 128,
     .experts_used = 4, .expert_ffn = 2048, .ffn = 12288, .shared_ffn = 2048, .vocabulary = 131072,
     .context = 1048576, .rope_base = 10000.0f, .epsilon = 1e-6f, .shared_count = 1, .gating = 1,
     .normalized = true, .weights_scale = 1.0f, .latent = 256, .query_rank = 1024, .plain = 64,
     .head_out = 128, .yarn_factor = 128.0f, .yarn_context = 8192, .yarn_log = 0.1f, .temper = 0.1f,
     .temper_length = 8192},
    {.name = "qwen3-vl-30b-a3b", .title = "Qwen3 VL 30B A3B", .architecture = "qwen3vlmoe", .layers = 48,
     .width = 2048, .heads = 32, .kv_heads = 4, .head = 128, .rotated = 128, .experts = 128,
     .experts_used = 8, .expert_ffn = 768, .ffn = 6144, .vocabulary = 151936, .context = 262144,
     .rope_base = 5e6f, .epsilon = 1e-6f},
    {.name = "qwen3-vl-235b-a22b", .title = "Qwen3 VL 235B A22B", .architecture = "qwen3vlmoe", .layers = 94,
     .width = 4096, .heads = 64, .kv_heads = 4, .head = 128, .rotated = 128, .experts = 128,
     .experts_used = 8, .expert_ffn = 1536, .ffn = 12288, .vocabulary = 151936, .context = 262144,
     .rope_base = 5e6f, .epsilon = 1e-6f},
    {.name = "hy3", .title = "Hy3 295B A21B", .architecture = "hy_v3", .layers = 80, .width = 4096,
     .heads = 64, .kv_heads = 8, .head = 128, .rotated = 128, .experts = 192, .experts_used = 8,
     .expert_ffn = 1536, .ffn = 13312, .shared_ffn = 1536, .vocabulary = 120832, .context = 262144,
     .rope_base = 11158840.0f, .epsilon = 1e-5f, .dense_layers = 1, .gating = 2, .normalized = true,
     .weights_scale = 2.826f},
    {.name = "k-exaone-236b-a23b", .title = "K-EXAONE 236B A23B", .architecture = "exaone-moe", .layers = 48,
     .width = 6144, .heads = 64, .kv_heads = 8, .head = 128, .rotated = 128, .experts = 128,
     .experts_used = 8, .expert_ffn = 2048, .ffn = 18432, .shared_ffn = 2048, .vocabulary = 153600,
     .context = 262144, .rope_base = 1e6f, .epsilon = 1e-5f, .dense_layers = 1, .shared_count = 1,
     .gating = 2, .normalized = true, .weights_scale = 2.5f, .full_interval = 4, .window = 128},
    {.name = "north-mini-code", .title = "North Mini Code 30B A3B", .architecture = "cohere2moe", .layers = 49,
     .width = 2048, .heads = 32, .kv_heads = 4, .head = 128, .rotated = 128, .experts = 128,
     .experts_used = 8, .expert_ffn = 768, .ffn = 3072, .vocabulary = 262144, .context = 500000,
     .rope_base = 50000.0f, .epsilon = 1e-5f, .tied = true, .dense_layers = 1, .gating = 2,
     .normalized = true, .weights_scale = 1.0f, .logit_scale = 1.0f, .full_interval = 4, .window = 4096,
     .full_first = true, .flags = true},
    {.name = "kimi-linear-48b-a3b", .title = "Kimi Linear 48B A3B", .architecture = "kimi-linear",
     .layers = 27, .width = 2304, .heads = 32, .kv_heads = 1, .head = 576, .rotated = 64, .experts = 256,
     .experts_used = 8, .expert_ffn = 1024, .ffn = 9216, .shared_ffn = 1024, .vocabulary = 163840,
     .context = 1048576, .rope_base = 10000.0f, .epsilon = 1e-5f, .dense_layers = 1, .shared_count = 1,
     .gating = 2, .normalized = true, .weights_scale = 2.446f, .attends = 0x4888888, .latent = 512,
     .plain = 128, .head_out = 128, .conv_kernel = 4, .state = 128, .inner = 4096},
    {.name = "nemotron-3-nano-30b-a3b", .title = "Nemotron 3 Nano 30B A3B", .architecture = "nemotron_h_moe",
     .layers = 52, .width = 2688, .heads = 32, .kv_heads = 2, .head = 128, .experts = 128, .experts_used = 6,
     .expert_ffn = 1856, .shared_ffn = 3712, .vocabulary = 131072, .context = 262144, .epsilon = 1e-5f,
     .shared_count = 1, .gating = 2, .normalized = true, .weights_scale = 2.5f,
     .blocks = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", .conv_kernel = 4, .state = 128,
     .key_groups = 8, .value_heads = 64, .inner = 4096},
    {.name = "nemotron-h-8b", .title = "Nemotron H 8B", .architecture = "nemotron_h", .layers = 52,
     .width = 4096, .heads = 32, .kv_heads = 8, .head = 128, .ffn = 21504, .vocabulary = 131072,
     .context = 8192, .epsilon = 1e-5f, .blocks = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
     .conv_kernel = 4, .state = 128, .key_groups = 8, .value_heads = 128, .inner = 8192},
    {.name = "qwen3.6-27b", .title = "Qwen3.6 27B", .architecture = "qwen35", .layers = 64, .width = 5120,
     .heads = 24, .kv_heads = 4, .head = 256, .rotated = 64, .ffn = 17408, .vocabulary = 248320,
     .context = 262144, .rope_base = 1e7f, .epsilon = 1e-6f, .full_interval = 4, .conv_kernel = 4,
     .state = 128, .key_groups = 16, .value_heads = 48, .inner = 6144},
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

/* The kind of a layer that has only one part; 0: layers have several parts. */
static char block_of(const mo_shape *s, int layer)
{
    return (char)(s->blocks && layer >= 0 ? s->blocks[(size_t)layer % strlen(s->blocks)] : 0);
}

static bool is_full(const mo_shape *s, int layer)
{
    if (s->blocks) {
        return block_of(s, layer) == '*';
    }
    if (s->attends) {
        return s->attends >> layer % 64 & 1;
    }
    return s->full_interval == 0 || (layer + !s->full_first) % s->full_interval == 0;
}

/* ---- Tensors of the architectures ---- */

typedef enum dim {
    NONE,
    WIDTH,
    QUERIES,       /* heads x head */
    GATED_QUERIES, /* with a gate for each query */
    KEYS,          /* kv heads x head */
    VALUES,        /* the same for values */
    ATTENDED,      /* heads x value */
    HEAD,
    HEADS,
    EXPERTS,
    EXPERT_FFN,
    EXPERT_FFN_2, /* gate and up together */
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
    SSM_IN,    /* z, x, b, c, and a step for each head */
    SSM_GROUP, /* values of a group */
    KEY_GROUPS,
    WIDTH_3,
    QUERY_RANK,
    PLAIN_QUERIES, /* of all heads, with the rotated part */
    PLAIN,
    LATENT,
    HEAD_OUT,
    RESULTS, /* of all heads */
    EXPERT_IO,
    INDEX_HEADS,
    INDEX_LENGTH,
    INDEX_QUERIES, /* of all index heads */
    GROUP_VALUES,  /* of the heads in a group */
    GROUP_RESULTS, /* of all groups */
    COMPRESSED,    /* values of a token for a compressed key, */
    COMPRESSED_INDEX,
    RATIO, /* tokens for one compressed key */
    STREAMS,
    STREAMS_WIDTH,
    STREAMS_MIX,
    USED,
    THREE,
    ONE,
} dim;

/* The condition of a rule. */
typedef enum when {
    ALWAYS,
    UNTIED,    /* the output matrix is separate */
    ATTENTION, /* the layer has attention */
    RECURRENT, /* the layer has the delta rule or Mamba */
    LOW_RANK,  /* queries are computed by two products */
    FULL_RANK, /* by one product */
    BIASED,    /* expert selection has a bias */
    INDEXED,   /* the layer has its own indexer */
    SHORT,     /* the layer is a short convolution */
    WINDOWED,  /* attention within a window */
    DENSE,     /* the model has no experts */
    SPARSE,    /* the model has experts */
    LEADING,   /* a dense layer at the beginning */
    ROUTED,    /* a layer with experts */
    NARROW,    /* the same, with experts between two products */
    BESIDE,    /* a dense layer in a model whose other layers have no feed-forward part */
    SHORTENED, /* the layer has compressed keys */
    HASHED,    /* the token determines the layer's experts */
    CHOSEN,    /* the router chooses them */
    NORMED,    /* heads are normed in this model, but not in all of its architecture */
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
    {"attn_v.weight", MO_SHAPE_VALUE, ALWAYS, {WIDTH, VALUES}},
    {"attn_output.weight", MO_SHAPE_BACK, ALWAYS, {ATTENDED, WIDTH}},
    END,
};
static const rule gate_of_heads[] = {
    {"attn_gate.weight", MO_SHAPE_MATRIX, ALWAYS, {WIDTH, HEADS}},
    END,
};
static const rule gate_of_values[] = {
    {"attn_gate.weight", MO_SHAPE_MATRIX, ALWAYS, {WIDTH, ATTENDED}},
    END,
};
static const rule window_sinks[] = {
    {"attn_sinks.weight", MO_SHAPE_SINK, WINDOWED, {HEADS}},
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
static const rule some_head_norm[] = {
    {"attn_q_norm.weight", MO_SHAPE_HEAD_NORM, NORMED, {HEAD}},
    {"attn_k_norm.weight", MO_SHAPE_HEAD_NORM, NORMED, {HEAD}},
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

/* Alternating gated attention and gated delta rule. */
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

/* Attention in some layers, another mixer in the others. */
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
/* Kimi delta attention, with some layers of latent attention. */
static const rule some_latent_attention[] = {
    {"attn_norm.weight", MO_SHAPE_NORM, ALWAYS, {WIDTH}},
    {"attn_q.weight", MO_SHAPE_MATRIX, ATTENTION, {WIDTH, PLAIN_QUERIES}},
    {"attn_kv_a_mqa.weight", MO_SHAPE_MATRIX, ATTENTION, {WIDTH, HEAD}},
    {"attn_kv_a_norm.weight", MO_SHAPE_NORM, ATTENTION, {LATENT}},
    {"attn_k_b.weight", MO_SHAPE_MATRIX, ATTENTION, {PLAIN, LATENT, HEADS}},
    {"attn_v_b.weight", MO_SHAPE_MATRIX, ATTENTION, {LATENT, HEAD_OUT, HEADS}},
    {"attn_output.weight", MO_SHAPE_BACK, ATTENTION, {RESULTS, WIDTH}},
    END,
};
static const rule kimi_delta[] = {
    {"attn_q.weight", MO_SHAPE_MATRIX, RECURRENT, {WIDTH, INNER}},
    {"attn_k.weight", MO_SHAPE_KEY, RECURRENT, {WIDTH, INNER}},
    {"attn_v.weight", MO_SHAPE_VALUE, RECURRENT, {WIDTH, INNER}},
    {"ssm_conv1d_q.weight", MO_SHAPE_CONV, RECURRENT, {CONV_KERNEL, ONE, INNER}},
    {"ssm_conv1d_k.weight", MO_SHAPE_CONV, RECURRENT, {CONV_KERNEL, ONE, INNER}},
    {"ssm_conv1d_v.weight", MO_SHAPE_CONV, RECURRENT, {CONV_KERNEL, ONE, INNER}},
    {"ssm_f_a.weight", MO_SHAPE_MATRIX, RECURRENT, {WIDTH, STATE}},
    {"ssm_f_b.weight", MO_SHAPE_MATRIX, RECURRENT, {STATE, INNER}},
    {"ssm_g_a.weight", MO_SHAPE_MATRIX, RECURRENT, {WIDTH, STATE}},
    {"ssm_g_b.weight", MO_SHAPE_MATRIX, RECURRENT, {STATE, INNER}},
    {"ssm_beta.weight", MO_SHAPE_MATRIX, RECURRENT, {WIDTH, HEADS}},
    {"ssm_dt.bias", MO_SHAPE_STEP, RECURRENT, {INNER}},
    {"ssm_a", MO_SHAPE_DECAY, RECURRENT, {ONE, HEADS}},
    {"ssm_norm.weight", MO_SHAPE_NORM, RECURRENT, {STATE}},
    {"attn_output.weight", MO_SHAPE_BACK, RECURRENT, {INNER, WIDTH}},
    END,
};
static const rule indexer[] = {
    {"indexer.attn_q_b.weight", MO_SHAPE_MATRIX, INDEXED, {QUERY_RANK, INDEX_QUERIES}},
    {"indexer.attn_k.weight", MO_SHAPE_MATRIX, INDEXED, {WIDTH, INDEX_LENGTH}},
    {"indexer.k_norm.weight", MO_SHAPE_NORM, INDEXED, {INDEX_LENGTH}},
    {"indexer.k_norm.bias", MO_SHAPE_BIAS, INDEXED, {INDEX_LENGTH}},
    {"indexer.proj.weight", MO_SHAPE_MATRIX, INDEXED, {WIDTH, INDEX_HEADS}},
    END,
};
static const rule streams_spec[] = {
    {"output_hc_fn.weight", MO_SHAPE_STREAMS, ALWAYS, {STREAMS_WIDTH, STREAMS}},
    {"output_hc_base.weight", MO_SHAPE_BIAS, ALWAYS, {STREAMS}},
    {"output_hc_scale.weight", MO_SHAPE_ONE, ALWAYS, {ONE}},
    END,
};
static const rule streams[] = {
    {"hc_attn_fn.weight", MO_SHAPE_STREAMS, ALWAYS, {STREAMS_WIDTH, STREAMS_MIX}},
    {"hc_attn_base.weight", MO_SHAPE_BIAS, ALWAYS, {STREAMS_MIX}},
    {"hc_attn_scale.weight", MO_SHAPE_ONE, ALWAYS, {THREE}},
    {"hc_ffn_fn.weight", MO_SHAPE_STREAMS, ALWAYS, {STREAMS_WIDTH, STREAMS_MIX}},
    {"hc_ffn_base.weight", MO_SHAPE_BIAS, ALWAYS, {STREAMS_MIX}},
    {"hc_ffn_scale.weight", MO_SHAPE_ONE, ALWAYS, {THREE}},
    END,
};
static const rule compressed_attention[] = {
    {"attn_norm.weight", MO_SHAPE_NORM, ALWAYS, {WIDTH}},
    {"attn_sinks.weight", MO_SHAPE_SINK, ALWAYS, {HEADS}},
    {"attn_q_a.weight", MO_SHAPE_MATRIX, ALWAYS, {WIDTH, QUERY_RANK}},
    {"attn_q_a_norm.weight", MO_SHAPE_NORM, ALWAYS, {QUERY_RANK}},
    {"attn_q_b.weight", MO_SHAPE_MATRIX, ALWAYS, {QUERY_RANK, QUERIES}},
    {"attn_kv.weight", MO_SHAPE_MATRIX, ALWAYS, {WIDTH, HEAD}},
    {"attn_kv_a_norm.weight", MO_SHAPE_NORM, ALWAYS, {HEAD}},
    {"attn_output_a.weight", MO_SHAPE_MATRIX, ALWAYS, {GROUP_VALUES, GROUP_RESULTS}},
    {"attn_output_b.weight", MO_SHAPE_BACK, ALWAYS, {GROUP_RESULTS, WIDTH}},
    {"attn_compressor_kv.weight", MO_SHAPE_MATRIX, SHORTENED, {WIDTH, COMPRESSED}},
    {"attn_compressor_gate.weight", MO_SHAPE_MATRIX, SHORTENED, {WIDTH, COMPRESSED}},
    {"attn_compressor_ape.weight", MO_SHAPE_BIAS, SHORTENED, {COMPRESSED, RATIO}},
    {"attn_compressor_norm.weight", MO_SHAPE_NORM, SHORTENED, {HEAD}},
    {"indexer.attn_q_b.weight", MO_SHAPE_MATRIX, INDEXED, {QUERY_RANK, INDEX_QUERIES}},
    {"indexer.proj.weight", MO_SHAPE_MATRIX, INDEXED, {WIDTH, INDEX_HEADS}},
    {"indexer_compressor_kv.weight", MO_SHAPE_MATRIX, INDEXED, {WIDTH, COMPRESSED_INDEX}},
    {"indexer_compressor_gate.weight", MO_SHAPE_MATRIX, INDEXED, {WIDTH, COMPRESSED_INDEX}},
    {"indexer_compressor_ape.weight", MO_SHAPE_BIAS, INDEXED, {COMPRESSED_INDEX, RATIO}},
    {"indexer_compressor_norm.weight", MO_SHAPE_NORM, INDEXED, {INDEX_LENGTH}},
    END,
};
static const rule hashed[] = {
    {"ffn_gate_tid2eid.weight", MO_SHAPE_TOKENS, HASHED, {USED, VOCABULARY}},
    {"exp_probs_b.bias", MO_SHAPE_BIAS, CHOSEN, {EXPERTS}},
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

/* Mamba 1. */
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
/* Mamba 2. */
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
/* Norms of a part's result before it is added to the stream. */
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

/* A dense feed-forward or experts, depending on the model. */
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

/* Experts with gate and up in one tensor. */
static const rule merged_experts[] = {
    {"ffn_gate_inp.weight", MO_SHAPE_ROUTER, ALWAYS, {WIDTH, EXPERTS}},
    {"ffn_gate_up_exps.weight", MO_SHAPE_EXPERT, ALWAYS, {WIDTH, EXPERT_FFN_2, EXPERTS}},
    {"ffn_down_exps.weight", MO_SHAPE_EXPERT_DOWN, ALWAYS, {EXPERT_FFN, WIDTH, EXPERTS}},
    END,
};

/* Blocks with one part each; feed-forward parts have no gate. */
static const rule blocks[] = {
    {"ffn_gate_inp.weight", MO_SHAPE_ROUTER, ROUTED, {WIDTH, EXPERTS}},
    {"exp_probs_b.bias", MO_SHAPE_BIAS, ROUTED, {EXPERTS}},
    {"ffn_latent_down.weight", MO_SHAPE_MATRIX, NARROW, {WIDTH, EXPERT_IO}},
    {"ffn_up_exps.weight", MO_SHAPE_EXPERT, ROUTED, {EXPERT_IO, EXPERT_FFN, EXPERTS}},
    {"ffn_down_exps.weight", MO_SHAPE_EXPERT_DOWN, ROUTED, {EXPERT_FFN, EXPERT_IO, EXPERTS}},
    {"ffn_latent_up.weight", MO_SHAPE_BACK, NARROW, {EXPERT_IO, WIDTH}},
    {"ffn_up_shexp.weight", MO_SHAPE_MATRIX, ROUTED, {WIDTH, SHARED_FFN}},
    {"ffn_down_shexp.weight", MO_SHAPE_DOWN, ROUTED, {SHARED_FFN, WIDTH}},
    {"ffn_up.weight", MO_SHAPE_MATRIX, BESIDE, {WIDTH, FFN}},
    {"ffn_down.weight", MO_SHAPE_DOWN, BESIDE, {FFN, WIDTH}},
    END,
};

/* Dense layers at the beginning, then layers with experts and a shared expert. */
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
static const rule select_bias_alone[] = {
    {"exp_probs_b", MO_SHAPE_BIAS, ROUTED, {EXPERTS}},
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
    const rule *model[4];  /* tensors of the whole model */
    const rule *layer[10]; /* tensors of each layer */
} family;

/* clang-format off */
static const family families[] = {
    {"llama", {spec}, {attention, llama_ffn}},
    {"qwen3moe", {spec}, {attention, head_norm, ffn_norm, experts}},
    {"gpt-oss", {spec},
     {attention, attention_bias, attention_output_bias, sinks, post_attention_norm, experts, expert_bias}},
    {"qwen3next", {spec}, {hybrid, delta_joint, head_norm, post_attention_norm, experts, shared}},
    {"qwen35moe", {spec}, {hybrid, delta_apart, head_norm, post_attention_norm, experts, shared}},
    {"qwen35", {spec}, {hybrid, delta_apart, head_norm, post_attention_norm, dense}},
    {"qwen2moe", {spec}, {attention, attention_bias, ffn_norm, experts, shared}},
    {"olmoe", {spec}, {attention, whole_norm, ffn_norm, experts}},
    {"gemma4", {spec, gemma_spec}, {gemma_attention, ffn_norm, dense, gemma_ffn}},
    {"glm4moe", {spec},
     {attention, attention_bias, some_head_norm, post_attention_norm, lead_ffn, select_bias, lead_shared}},
    {"deepseek2", {spec}, {latent_attention, ffn_norm, lead_ffn, sigmoid_bias, lead_shared}},
    {"deepseek32", {spec}, {latent_attention, indexer, ffn_norm, lead_ffn, sigmoid_bias, lead_shared}},
    {"glm-dsa", {spec}, {latent_attention, indexer, ffn_norm, lead_ffn, sigmoid_bias, lead_shared}},
    {"deepseek4", {spec, streams_spec},
     {streams, compressed_attention, ffn_norm, lead_ffn, hashed, lead_shared}},
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
    {"afmoe", {spec},
     {attention, head_norm, gate_of_values, post_norms, ffn_norm, lead_ffn, select_bias, lead_shared}},
    {"laguna", {spec}, {attention, head_norm, gate_of_heads, ffn_norm, lead_ffn, select_bias, lead_shared}},
    {"step35", {spec}, {attention, head_norm, gate_of_heads, ffn_norm, lead_ffn, select_bias, lead_shared}},
    {"mimo2", {spec}, {attention, window_sinks, ffn_norm, lead_ffn, select_bias}},
    {"mistral3", {spec}, {attention, llama_ffn}},
    {"mistral4", {spec}, {latent_attention, ffn_norm, merged_experts, lead_shared}},
    {"qwen3vlmoe", {spec}, {attention, head_norm, ffn_norm, experts}},
    {"hy_v3", {spec}, {attention, head_norm, ffn_norm, lead_ffn, select_bias_alone, lead_shared}},
    {"exaone-moe", {spec}, {attention, head_norm, ffn_norm, lead_ffn, select_bias, lead_shared}},
    {"cohere2moe", {spec}, {attention, lead_ffn}},
    {"kimi-linear", {spec},
     {some_latent_attention, kimi_delta, ffn_norm, lead_ffn, select_bias, lead_shared}},
    {"nemotron_h", {spec}, {some_attention, mamba_heads, blocks}},
    {"nemotron_h_moe", {spec}, {some_attention, mamba_heads, blocks}},
};
/* clang-format on */

static const family *family_of(const mo_shape *s)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (strcmp(families[i].architecture, s->architecture) == 0) {
            return &families[i];
        }
    }
    return NULL; /* never for a shape in this file */
}

static bool is_routed(const mo_shape *s, int layer)
{
    if (s->blocks) {
        return block_of(s, layer) == 'E';
    }
    return layer >= s->dense_layers && (!s->odd_experts || layer % 2);
}

/* The number of tokens of a compressed key in the layer; 0: no compressed keys. */
static int ratio_of(const mo_shape *s, int layer)
{
    return s->streams == 0 || layer < 2 ? 0 : layer % 2 ? 128 : 4;
}

static bool has_indexer(const mo_shape *s, int layer)
{
    if (s->streams) {
        return ratio_of(s, layer) == 4;
    }
    return s->index_heads != 0 && (!s->index_shared || layer < 2 || layer % 4 == 2);
}

static bool holds(when w, const mo_shape *s, int layer)
{
    switch (w) {
    case UNTIED: return !s->tied;
    case ATTENTION: return (s->state == 0 && s->short_taps == 0) || is_full(s, layer);
    case RECURRENT: return s->state != 0 && (s->blocks ? block_of(s, layer) == 'M' : !is_full(s, layer));
    case LOW_RANK: return s->query_rank != 0;
    case FULL_RANK: return s->query_rank == 0;
    case BIASED: return s->gating == 2 && layer >= s->dense_layers;
    case INDEXED: return has_indexer(s, layer);
    case SHORT: return s->short_taps != 0 && !is_full(s, layer);
    case WINDOWED: return !is_full(s, layer);
    case DENSE: return s->experts == 0;
    case SPARSE: return s->experts != 0;
    case LEADING: return !is_routed(s, layer);
    case ROUTED: return is_routed(s, layer);
    case NARROW: return is_routed(s, layer) && s->expert_io;
    case BESIDE: return block_of(s, layer) == '-';
    case SHORTENED: return ratio_of(s, layer) > 0;
    case HASHED: return layer < s->hashed;
    case CHOSEN: return layer >= s->hashed;
    case NORMED: return s->head_norms;
    default: return true;
    }
}

static int64_t size_of(dim d, const mo_shape *s, int layer)
{
    const bool near = s->window != 0 && layer >= 0 && !is_full(s, layer);
    const int64_t head = near && s->window_head ? s->window_head : s->head;
    const int64_t heads = near && s->window_heads ? s->window_heads : s->heads;
    const int64_t kv_heads = near && s->window_kv_heads ? s->window_kv_heads : s->kv_heads;
    const int64_t value = s->value_head ? s->value_head : head;
    const int64_t expert_ffn = s->expert_ffn ? s->expert_ffn : s->ffn;
    switch (d) {
    case WIDTH: return s->width;
    case QUERIES: return heads * head;
    case GATED_QUERIES: return 2 * heads * head;
    case KEYS: return kv_heads * head;
    case VALUES: return kv_heads * value;
    case ATTENDED: return heads * value;
    case HEAD: return head;
    case HEADS: return heads;
    case EXPERTS: return s->experts;
    case EXPERT_FFN: return expert_ffn;
    case EXPERT_FFN_2: return 2 * expert_ffn;
    case FFN: return s->ffn;
    case FFN_2: return 2 * (int64_t)s->ffn;
    case QUERIES_KEYS_VALUES: return (heads + 2 * kv_heads) * head;
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
    case INDEX_HEADS: return s->index_heads;
    case INDEX_LENGTH: return s->index_length;
    case INDEX_QUERIES: return (int64_t)s->index_heads * s->index_length;
    case PLAIN_QUERIES: return (int64_t)s->heads * (s->plain + s->rotated);
    case PLAIN: return s->plain;
    case LATENT: return s->latent;
    case HEAD_OUT: return s->head_out;
    case RESULTS: return (int64_t)s->heads * s->head_out;
    case EXPERT_IO: return s->expert_io ? s->expert_io : s->width;
    case WIDTH_3: return 3 * (int64_t)s->width;
    case GROUP_VALUES: return (int64_t)s->heads / s->out_groups * s->head;
    case GROUP_RESULTS: return (int64_t)s->out_groups * s->out_rank;
    case COMPRESSED: return ratio_of(s, layer) == 4 ? 2 * (int64_t)s->head : s->head;
    case COMPRESSED_INDEX: return 2 * (int64_t)s->index_length;
    case RATIO: return ratio_of(s, layer);
    case STREAMS: return s->streams;
    case STREAMS_WIDTH: return (int64_t)s->streams * s->width;
    case STREAMS_MIX: return 2 * (int64_t)s->streams + (int64_t)s->streams * s->streams;
    case USED: return s->experts_used;
    case THREE: return 3;
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

static bool role_among(const rule *const *parts, const char *name, mo_shape_role *out)
{
    for (const rule *const *part = parts; *part; part++) {
        for (const rule *r = *part; r->name; r++) {
            if (strcmp(r->name, name) == 0) {
                *out = r->role;
                return true;
            }
        }
    }
    return false;
}

bool mo_shape_role_named(const char *architecture, const char *name, mo_shape_role *out)
{
    const family *own = family_of(&(mo_shape){.architecture = architecture});
    if (own && (role_among(own->model, name, out) || role_among(own->layer, name, out))) {
        return true;
    }
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (role_among(families[i].model, name, out) || role_among(families[i].layer, name, out)) {
            return true;
        }
    }
    return false;
}

/* Do layers without attention use Kimi's rule? */
static bool is_kimi_delta(const mo_shape *s)
{
    return s->latent && s->state;
}

/* ---- Metadata ---- */

typedef struct key_rule {
    const char *suffix;
    size_t offset; /* of an int32_t or float in mo_shape; the value 0 is not written */
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
    INTEGER("moe_latent_size", expert_io),
    INTEGER("expert_gating_func", gating),
    REAL("expert_weights_scale", weights_scale),
    INTEGER("expert_group_count", groups),
    INTEGER("expert_group_used_count", groups_used),
    INTEGER("leading_dense_block_count", dense_layers),
    INTEGER("attention.kv_lora_rank", latent),
    INTEGER("attention.q_lora_rank", query_rank),
    INTEGER("attention.value_length_mla", head_out),
    INTEGER("attention.indexer.head_count", index_heads),
    INTEGER("attention.indexer.key_length", index_length),
    INTEGER("attention.indexer.top_k", index_top),
    INTEGER("attention.output_group_count", out_groups),
    INTEGER("attention.output_lora_rank", out_rank),
    REAL("attention.compress_rope_freq_base", compressed_base),
    INTEGER("hash_layer_count", hashed),
    INTEGER("hyper_connection.count", streams),
    INTEGER("hyper_connection.sinkhorn_iterations", balancings),
    REAL("hyper_connection.epsilon", streams_epsilon),
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
    INTEGER("rope.dimension_count_swa", window_rotated),
    REAL("attention.value_scale", value_scale),
    REAL("rope.freq_base_swa", window_rope_base),
    REAL("rope.scaling.factor", yarn_factor),
    INTEGER("rope.scaling.original_context_length", yarn_context),
    REAL("final_logit_softcapping", logit_cap),
    REAL("attention.temperature_scale", temper),
    INTEGER("attention.temperature_length", temper_length),
};

enum { MAX_LAYERS = 256 };

static void put_window_flags(const mo_shape *s, int layers, mo_gguf_writer *w)
{
    char key[96];
    uint8_t windowed[MAX_LAYERS];
    for (int i = 0; i < layers; i++) {
        windowed[i] = !is_full(s, i);
    }
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", s->architecture);
    mo_gguf_put_array(w, key, MO_VALUE_BOOL, windowed, (uint64_t)layers);
    if (s->window_head) {
        snprintf(key, sizeof key, "%s.attention.shared_kv_layers", s->architecture);
        mo_gguf_put_u32(w, key, 0);
        snprintf(key, sizeof key, "%s.embedding_length_per_layer_input", s->architecture);
        mo_gguf_put_u32(w, key, 0);
    }
}

static void put_indexers(const mo_shape *s, int layers, mo_gguf_writer *w)
{
    char key[96];
    uint8_t own[MAX_LAYERS];
    for (int i = 0; i < layers; i++) {
        own[i] = has_indexer(s, i);
    }
    snprintf(key, sizeof key, "%s.attention.indexer.types", s->architecture);
    mo_gguf_put_array(w, key, MO_VALUE_BOOL, own, (uint64_t)layers);
}

/* Writes one number, or two: for layers with full attention and for others. */
static void put_heads(const mo_shape *s, int layers, const char *suffix, int32_t full, int32_t other,
                      mo_gguf_writer *w)
{
    char key[96];
    int32_t each[MAX_LAYERS];
    snprintf(key, sizeof key, "%s.%s", s->architecture, suffix);
    if (full == other) {
        mo_gguf_put_u32(w, key, (uint32_t)full);
        return;
    }
    for (int i = 0; i < layers; i++) {
        each[i] = is_full(s, i) ? full : other;
    }
    mo_gguf_put_array(w, key, MO_VALUE_I32, each, (uint64_t)layers);
}

/* 0 KV heads means that a layer has no attention. */
static int32_t other_kv_heads(const mo_shape *s)
{
    const bool rests = (s->attends || s->blocks) && !s->window;
    return rests ? 0 : s->window_kv_heads ? s->window_kv_heads : s->kv_heads;
}

/* Writes limits of activations: of experts in the last two layers, of the shared expert in the last. */
static void put_limits(const mo_shape *s, int layers, mo_gguf_writer *w)
{
    char key[96];
    float routed[MAX_LAYERS] = {0}, beside[MAX_LAYERS] = {0};
    for (int i = layers > 2 ? layers - 2 : 0; i < layers; i++) {
        routed[i] = s->expert_limit;
    }
    beside[layers - 1] = s->shared_limit;
    snprintf(key, sizeof key, "%s.swiglu_clamp_exp", s->architecture);
    mo_gguf_put_array(w, key, MO_VALUE_F32, routed, (uint64_t)layers);
    snprintf(key, sizeof key, "%s.swiglu_clamp_shexp", s->architecture);
    mo_gguf_put_array(w, key, MO_VALUE_F32, beside, (uint64_t)layers);
}

/* For blocks with one part: a width means a feed-forward part. */
static void put_block_widths(const mo_shape *s, int layers, mo_gguf_writer *w)
{
    char key[96];
    int32_t each[MAX_LAYERS];
    for (int i = 0; i < layers; i++) {
        each[i] = is_routed(s, i) ? s->expert_ffn : block_of(s, i) == '-' ? s->ffn : 0;
    }
    snprintf(key, sizeof key, "%s.feed_forward_length", s->architecture);
    mo_gguf_put_array(w, key, MO_VALUE_I32, each, (uint64_t)layers);
    snprintf(key, sizeof key, "%s.attention.layer_norm_epsilon", s->architecture); /* used by MTP heads */
    mo_gguf_put_f32(w, key, s->epsilon);
}

/* Writes the ratios of compressed keys and the limit of all activations. */
static void put_ratios(const mo_shape *s, int layers, mo_gguf_writer *w)
{
    char key[96];
    int32_t ratio[MAX_LAYERS];
    float limit[MAX_LAYERS];
    for (int i = 0; i < layers; i++) {
        ratio[i] = ratio_of(s, i);
        limit[i] = s->limit;
    }
    snprintf(key, sizeof key, "%s.attention.compress_ratios", s->architecture);
    mo_gguf_put_array(w, key, MO_VALUE_I32, ratio, (uint64_t)layers);
    snprintf(key, sizeof key, "%s.swiglu_clamp_exp", s->architecture);
    mo_gguf_put_array(w, key, MO_VALUE_F32, limit, (uint64_t)layers);
    snprintf(key, sizeof key, "%s.swiglu_clamp_shexp", s->architecture);
    mo_gguf_put_array(w, key, MO_VALUE_F32, limit, (uint64_t)layers);
    snprintf(key, sizeof key, "%s.embedding_length_out", s->architecture);
    mo_gguf_put_u32(w, key, (uint32_t)(s->streams * s->width));
}

static void put_special_keys(const mo_shape *s, int layers, mo_gguf_writer *w)
{
    char key[96];
    const int known = layers < MAX_LAYERS ? layers : MAX_LAYERS;
    if (s->window_heads) {
        put_heads(s, known, "attention.head_count", s->heads, s->window_heads, w);
    }
    put_heads(s, known, "attention.head_count_kv", s->kv_heads, other_kv_heads(s), w);
    if (s->window_head || s->flags) {
        put_window_flags(s, known, w);
    }
    if (s->blocks) {
        put_block_widths(s, known, w);
    }
    if (s->index_shared) {
        put_indexers(s, known, w);
    }
    if (s->streams) {
        put_ratios(s, known, w);
    }
    if (s->expert_limit > 0.0f && known > 0) {
        put_limits(s, known, w);
    }
    if (s->state && s->full_interval) {
        snprintf(key, sizeof key, "%s.full_attention_interval", s->architecture);
        mo_gguf_put_u32(w, key, (uint32_t)s->full_interval);
    }
    if (s->window && s->full_interval && !s->window_head && !s->flags) {
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
    if (is_kimi_delta(s)) {
        snprintf(key, sizeof key, "%s.kda.head_dim", s->architecture);
        mo_gguf_put_u32(w, key, (uint32_t)s->state);
    }
    if (s->latent) {
        snprintf(key, sizeof key, "%s.attention.key_length_mla", s->architecture);
        mo_gguf_put_u32(w, key, (uint32_t)(s->plain + s->rotated));
    }
    if (strcmp(s->architecture, "granitehybrid") == 0) {
        mo_gguf_put_bool(w, "granitehybrid.rope.scaling.finetuned", false); /* no rotation */
    }
    if (strcmp(s->architecture, "qwen3vlmoe") == 0) {
        static const int32_t sections[4] = {24, 20, 20, 0};
        mo_gguf_put_array(w, "qwen3vlmoe.rope.dimension_sections", MO_VALUE_I32, sections, 4);
        mo_gguf_put_u32(w, "qwen3vlmoe.n_deepstack_layers", 3);
    }
    if (strcmp(s->architecture, "qwen35moe") == 0 || strcmp(s->architecture, "qwen35") == 0) {
        static const int32_t sections[4] = {11, 11, 10, 0};
        snprintf(key, sizeof key, "%s.rope.dimension_sections", s->architecture);
        mo_gguf_put_array(w, key, MO_VALUE_I32, sections, 4);
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
        if (s->window_heads && strcmp(key_rules[i].suffix, "attention.head_count") == 0) {
            continue; /* has one for each layer */
        }
        if (s->blocks && strcmp(key_rules[i].suffix, "feed_forward_length") == 0) {
            continue;
        }
        if (is_kimi_delta(s) && (key_rules[i].offset == offsetof(mo_shape, state) ||
                                 key_rules[i].offset == offsetof(mo_shape, inner))) {
            continue; /* kda.head_dim */
        }
        if (s->latent && strcmp(key_rules[i].suffix, "attention.value_length") == 0) {
            field = (const char *)&s->latent;
        } else if (s->value_head && strcmp(key_rules[i].suffix, "attention.value_length") == 0) {
            field = (const char *)&s->value_head;
        }
        snprintf(key, sizeof key, "%s.%s", s->architecture, key_rules[i].suffix);
        if (s->centered && strcmp(key_rules[i].suffix, "attention.layer_norm_rms_epsilon") == 0) {
            snprintf(key, sizeof key, "%s.attention.layer_norm_epsilon", s->architecture);
        }
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

/* ---- Formats ---- */

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
    const mo_type other = smaller[type]; /* F32: no smaller format */
    return other != MO_F32 && cols % mo_format_of(other)->block_values == 0 ? other : MO_F16;
}

/* The half of the layers with more bits: the first and last eighth, and every third between. */
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
    if (t->role == MO_SHAPE_TOKENS) {
        return MO_I32;
    }
    return mo_shape_mixed(t->role) ? mo_shape_fallback(mixed_type(s, t), t->size[0]) : MO_F32;
}
