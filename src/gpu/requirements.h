/* Requirements: sizes of a model's parts on a device, from its description alone, for plans. */
#ifndef MO_GPU_REQUIREMENTS_H
#define MO_GPU_REQUIREMENTS_H

#include "model/parts.h"
#include "moraine.h"
#include "plan/precision.h"

typedef struct mo_gpu_requirements {
    int64_t core; /* matrices, vectors, output */
    /* bytes of the largest group of rows that are rearranged while the core is sent; 0: none */
    int64_t group;
    int64_t work;         /* activations, flags, logits, matrices in bfloat16 */
    int64_t idle;         /* the part of work that is free while a layer attends */
    int64_t expert_bytes; /* the largest expert; 0: there are none */
    int64_t down_bytes;   /* the largest down matrix of an expert */
    int64_t map;          /* table of experts */
    int64_t table;        /* per session, in addition to its blocks */
    int64_t host;         /* pinned memory in RAM */
    int64_t piece;        /* additional RAM for prompts in pieces, if several devices share a model */
} mo_gpu_requirements;

mo_gpu_requirements mo_gpu_requirements_of(const mo_model_spec *spec, int64_t batch, int64_t context,
                                           const mo_precision_rule *precision, int64_t drafts);

/* Bytes of a matrix on the device, including alignment. */
int64_t mo_gpu_matrix_bytes(int64_t bytes);
/* Bytes of a layer's matrices, resident or streamed. */
int64_t mo_gpu_layer_bytes(const mo_model_spec *spec, int layer);

/* The same with its vectors, if resident. */
int64_t mo_gpu_layer_core_bytes(const mo_model_spec *spec, int layer);

/* Bytes of the map of experts, and of a session's table, on a device. */
int64_t mo_gpu_map_bytes(const mo_model_spec *spec);
int64_t mo_gpu_session_table_bytes(const mo_model_spec *spec, int64_t context, int64_t batch);
/* Bytes of the largest expert on a device; 0 when there are none. */
int64_t mo_gpu_largest_expert(const mo_model_spec *spec);
int64_t mo_gpu_largest_down(const mo_model_spec *spec); /* of its down matrix */

#endif
