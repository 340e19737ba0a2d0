/* Needs: how large the parts of a model are on a device. Numbers of its description alone, for plans. */
#ifndef MO_GPU_NEEDS_H
#define MO_GPU_NEEDS_H

#include "model/parts.h"

/* Bytes of device memory that a gpu of this model takes, without slots and states: for plans. */
typedef struct mo_gpu_needs {
    int64_t core;        /* matrices, vectors, output */
    int64_t work;        /* activations, flags, logits */
    int64_t stage_room;  /* of an expert that passes through, as it lies in RAM and in the file */
    int64_t map;         /* of the table of experts */
    int64_t gpu_session; /* of a session, beside its state */
} mo_gpu_needs;
mo_gpu_needs mo_gpu_measure(const mo_model_spec *spec, int64_t batch, int64_t context);

/* Bytes of the map of experts, and of a session's table, on a device. */
int64_t mo_gpu_map_bytes(const mo_model_spec *spec);
int64_t mo_gpu_session_table_bytes(const mo_model_spec *spec, int64_t context, int64_t batch);
/* Bytes of the largest expert on a device; 0 when there are none. */
int64_t mo_gpu_largest_brick(const mo_model_spec *spec);

#endif
