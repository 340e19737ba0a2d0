/* Core: every matrix and vector that each token needs, on the device in the file's layout. Private to the gpu's files. */
#ifndef MO_GPU_CORE_H
#define MO_GPU_CORE_H

#include "device/op.h"
#include "engine/workspace.h"
#include "gpu/layer_buffer.h"
#include "gpu/link.h"
#include "gpu/memory.h"

/* Latent attention; of k_b and v_b all heads' rows. */
typedef struct mo_gpu_latent {
    mo_dmatrix q_a, k_b, v_b;
    mo_daddr q_a_norm, norm;
} mo_gpu_latent;

typedef struct mo_gpu_indexer {
    mo_dmatrix q, k, share;
    mo_daddr norm, norm_bias;
} mo_gpu_indexer;

/* Of the delta rule: heads of k and v that are matrices of their own, and what alpha and gate read. */
typedef struct mo_gpu_delta {
    mo_dmatrix k, v, alpha_in, gate_in;
} mo_gpu_delta;

typedef struct mo_gpu_mamba_vectors {
    mo_daddr conv_bias, d, dt_norm, b_norm, c_norm;
} mo_gpu_mamba_vectors;

/* A layer's core on the device. The matrices of expert 0 stand for the shapes of all. */
typedef struct mo_gpu_layer {
    mo_dmatrix q, k, v,
        out; /* attention; delta: qkv, gate, -, out; short convolution: in, -, -, out; Mamba: x, z, -, out */
    mo_dmatrix head_gate;       /* attention */
    mo_dmatrix ba, beta, alpha; /* delta; Mamba: parts, dt, dt_in */
    mo_gpu_latent latent;
    mo_gpu_indexer index;
    mo_gpu_delta delta;
    mo_daddr conv, a, dt, delta_norm; /* delta, and those of the others that have them */
    mo_gpu_mamba_vectors mamba;
    mo_daddr mixer_norm, post_mixer_norm, q_norm, k_norm, sinks;
    int rope; /* number among the engine's, -1: none */
    mo_daddr mixer_norm_bias, ffn_norm_bias;
    mo_daddr ffn_norm, moe_norm, post_dense, post_moe, post_ffn, out_scale;
    mo_dmatrix gate, up, down; /* dense, or the shared expert */
    mo_dmatrix shared_gate;
    mo_dmatrix router;
    mo_daddr select_bias, input_scale;
    mo_dmatrix latent_down, latent_up;              /* around the experts */
    mo_dmatrix expert_gate, expert_up, expert_down; /* data 0; scale and bias packed by expert */
    int64_t up_at, down_at, expert_bytes;
    float input_factor; /* 1 / sqrt(D), of gemma4's router */
} mo_gpu_layer;

typedef struct mo_gpu_core {
    const mo_model_spec *spec;
    mo_extent extent;
    int first, end; /* the layers of this device: [first, end). The output matrix is with the last one */
    int rope_count;
    const mo_rope *ropes[8];
    mo_daddr memory;
    int64_t bytes;
    mo_gpu_layer *layers; /* [layers of the model] */
    mo_dmatrix output;
    mo_daddr out_norm, out_norm_bias;
} mo_gpu_core;

/* Is the layer this device's? Is it, and has it experts? Has this device the last one? Does it make the logits? */
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
/* Where layers are with other ranks too, none does: the stream goes back to RAM. */
static inline bool mo_gpu_core_speaks(const mo_gpu_core *core)
{
    return mo_gpu_core_last(core) && mo_spec_layers(core->spec) == core->spec->layer_count;
}

/* Bytes of a core, all of whose layers stay; of a layer's matrices, where they stay or as they cross the link; of the
 * largest group of rows that RAM interleaves, 0: it interleaves none. */
int64_t mo_gpu_core_bytes(const mo_model_spec *spec, int first, int end);
int64_t mo_gpu_core_layer_bytes(const mo_model_spec *spec, int layer);
int64_t mo_gpu_core_group(const mo_model_spec *spec);

/* Has this matrix a product in bfloat16 (gpu/bf16.h)? Of a few rows it would gain nothing, and F16 and F32 would lose what they have. */
bool mo_gpu_core_suits_bf16(const mo_dmatrix *matrix);

/* The most values, and the longest rows, of a layer's matrix that has. */
typedef struct mo_gpu_widest {
    int64_t values, cols;
} mo_gpu_widest;
mo_gpu_widest mo_gpu_core_widest(const mo_model_spec *spec);

/* What follows from the model's description alone: all layers are this device's. */
void mo_gpu_core_describe(mo_gpu_core *core, const mo_model_spec *spec);
/* Allocates and sends what stays, and tells the layer buffer the matrices of what does not; upload_bytes: of a buffer
 * for interleaved matrices. */
mo_status mo_gpu_core_open(mo_gpu_core *core, mo_gpu_link *link, mo_gpu_layer_buffer *layers,
                           mo_gpu_memory *memory, int64_t upload_bytes, mo_error *err);
void mo_gpu_core_close(mo_gpu_core *core, mo_device *device);

/* Are the layer's experts interleaved in RAM? Some layer's? Then those on their way need two places. */
bool mo_gpu_core_interleaved(const mo_gpu_core *core, int layer);
bool mo_gpu_core_any_interleaved(const mo_gpu_core *core);

/* Are the expert's matrices in pinned memory? */
bool mo_gpu_core_expert_pinned(const mo_gpu_core *core, const mo_gpu_link *link, int layer, int expert);
/* Copies an expert's matrices; *bytes of them. */
mo_status mo_gpu_core_copy_expert(const mo_gpu_core *core, const mo_gpu_link *link, mo_dstream *stream,
                                  int layer, int expert, mo_daddr to, int64_t *bytes, mo_error *err);
/* `count` experts, `stride` bytes from one to the next, to the file's layout; only: 2 for down alone, -1 for all three. */
mo_op mo_gpu_core_restore(const mo_gpu_core *core, int layer, mo_daddr from, mo_daddr to, int64_t count,
                          int64_t stride, int only);

#endif
