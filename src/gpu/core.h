/* Core: all matrices and vectors that every token needs, on the device in the file's layout. Private to
 * gpu/. */
#ifndef MO_GPU_CORE_H
#define MO_GPU_CORE_H

#include "device/op.h"
#include "engine/workspace.h"
#include "gpu/layer_buffer.h"
#include "gpu/link.h"
#include "gpu/memory.h"

/* Latent attention; k_b and v_b have the rows of all heads. */
typedef struct mo_gpu_latent {
    mo_dmatrix q_a, k_b, v_b;
    mo_daddr q_a_norm, norm;
} mo_gpu_latent;

typedef struct mo_gpu_indexer {
    mo_dmatrix q, k, share;
    mo_daddr norm, norm_bias;
} mo_gpu_indexer;

/* Delta rule: separate matrices of k and v heads, and the inputs of alpha and gate. */
typedef struct mo_gpu_delta {
    mo_dmatrix k, v, alpha_in, gate_in;
} mo_gpu_delta;

typedef struct mo_gpu_mamba_vectors {
    mo_daddr conv_bias, d, dt_norm, b_norm, c_norm;
} mo_gpu_mamba_vectors;

/* A layer's core on the device. The matrices of expert 0 give the shapes of all experts. */
typedef struct mo_gpu_layer {
    mo_dmatrix q, k, v,
        out; /* attention; delta: qkv, gate, -, out; short convolution: in, -, -, out; Mamba: x, z, -, out */
    mo_dmatrix head_gate;       /* attention */
    mo_dmatrix ba, beta, alpha; /* delta; Mamba: parts, dt, dt_in */
    mo_gpu_latent latent;
    mo_gpu_indexer index;
    mo_gpu_delta delta;
    mo_daddr conv, a, dt, delta_norm; /* delta; also for other mixers that have them */
    mo_gpu_mamba_vectors mamba;
    mo_daddr mixer_norm, post_mixer_norm, q_norm, k_norm, sinks;
    int rope; /* index among the engine's; -1: none */
    mo_daddr mixer_norm_bias, ffn_norm_bias;
    mo_daddr ffn_norm, moe_norm, post_dense, post_moe, post_ffn, out_scale;
    mo_dmatrix gate, up, down; /* dense, or the shared expert */
    mo_dmatrix shared_gate;
    mo_dmatrix router;
    mo_daddr select_bias, input_scale;
    mo_dmatrix latent_down, latent_up;              /* before and after the experts */
    mo_dmatrix expert_gate, expert_up, expert_down; /* data 0; scale and bias packed by expert */
    int64_t up_at, down_at, expert_bytes;
    float input_factor; /* 1 / sqrt(D), of gemma4's router */
} mo_gpu_layer;

typedef struct mo_gpu_core {
    const mo_model_spec *spec;
    mo_extent extent;
    /* the layers of this device: [first, end). The output matrix is on the device of the last layer */
    int first, end;
    int rope_count;
    const mo_rope *ropes[8];
    mo_daddr memory;
    int64_t bytes;
    mo_gpu_layer *layers; /* [layers of the model] */
    mo_dmatrix output;
    mo_daddr out_norm, out_norm_bias;
} mo_gpu_core;

/* Whether the layer is on this device; whether it also has experts; whether this device has the last layer;
 * whether this device computes the logits. */
static inline bool mo_gpu_core_has(const mo_gpu_core *core, int layer)
{
    return layer >= core->first && layer < core->end;
}
static inline bool mo_gpu_core_routed(const mo_gpu_core *core, int layer)
{
    return mo_gpu_core_has(core, layer) && core->spec->layers[layer].routed;
}
static inline bool mo_gpu_core_last(const mo_gpu_core *core)
{
    return core->end == core->spec->layer_count;
}
/* None does if other ranks have layers too: the stream goes back to RAM. */
static inline bool mo_gpu_core_speaks(const mo_gpu_core *core)
{
    return mo_gpu_core_last(core) && mo_spec_layers(core->spec) == core->spec->layer_count;
}

/* Bytes of a core with all layers on the device; of a layer's matrices, resident or streamed; of the largest
 * group of rows interleaved in RAM, 0: none. */
int64_t mo_gpu_core_bytes(const mo_model_spec *spec, int first, int end);
int64_t mo_gpu_core_layer_bytes(const mo_model_spec *spec, int layer);
int64_t mo_gpu_core_group(const mo_model_spec *spec);

/* True if products with this matrix may use bfloat16 (gpu/bf16.h). Not worthwhile for few rows; F16 and F32
 * would lose precision. */
bool mo_gpu_core_suits_bf16(const mo_dmatrix *matrix);

/* The most values and the longest rows of such a matrix in any layer. */
typedef struct mo_gpu_widest {
    int64_t values, cols;
} mo_gpu_widest;
mo_gpu_widest mo_gpu_core_widest(const mo_model_spec *spec);

/* Fills in everything that depends only on the model, with all layers on this device. */
void mo_gpu_core_describe(mo_gpu_core *core, const mo_model_spec *spec);
/* Allocates and sends the resident part, and registers the other matrices with the layer buffer;
 * upload_bytes: size of the buffer for interleaved matrices. */
mo_status mo_gpu_core_open(mo_gpu_core *core, mo_gpu_link *link, mo_gpu_layer_buffer *layers,
                           mo_gpu_memory *memory, int64_t upload_bytes, mo_error *err);
void mo_gpu_core_close(mo_gpu_core *core, mo_device *device);

/* Whether the layer's experts are interleaved in RAM; whether any layer's are: then experts being copied need
 * two buffers. */
bool mo_gpu_core_interleaved(const mo_gpu_core *core, int layer);
bool mo_gpu_core_any_interleaved(const mo_gpu_core *core);

/* True if the expert's matrices are in pinned memory. */
bool mo_gpu_core_expert_pinned(const mo_gpu_core *core, const mo_gpu_link *link, int layer, int expert);
/* Copies an expert's matrices; *bytes: their size. */
mo_status mo_gpu_core_copy_expert(const mo_gpu_core *core, const mo_gpu_link *link, mo_dstream *stream,
                                  int layer, int expert, mo_daddr to, int64_t *bytes, mo_error *err);
/* Converts `count` experts, `stride` bytes apart, to the file's layout; only 2: down alone, -1: all three. */
mo_op mo_gpu_core_restore(const mo_gpu_core *core, int layer, mo_daddr from, mo_daddr to, int64_t count,
                          int64_t stride, int only);

#endif
