/* Adapters: the adapters of a model on its device, in addition to its weights, and their results. Private to the gpu's files. */
#ifndef MO_GPU_ADAPTERS_H
#define MO_GPU_ADAPTERS_H

#include "engine/adapting.h"
#include "engine/forward.h"
#include "gpu/link.h"
#include "gpu/memory.h"

typedef struct mo_gpu_adapter {
    const mo_lora *lora;
    mo_daddr memory; /* as its region in RAM */
    int64_t bytes;
} mo_gpu_adapter;

typedef struct mo_gpu_adapters {
    mo_gpu_memory *memory;
    mo_gpu_link *link;
    mo_gpu_adapter list[MO_ADAPTERS_MAX];
    int count;
    mo_daddr u; /* float[rows of the largest product][ranks of all] */
    int64_t u_bytes, u_stride;
    int64_t rows; /* of the largest product of a step */
} mo_gpu_adapters;

/* Bytes of the results of adapters with this total rank. */
int64_t mo_gpu_adapters_bytes(int64_t rows, int64_t ranks);

/* Sends the adapter; MO_ENOMEM: there is no space under the ceiling. No step may run meanwhile. */
mo_status mo_gpu_adapters_add(mo_gpu_adapters *a, const mo_lora *lora, mo_error *err);
void mo_gpu_adapters_remove(mo_gpu_adapters *a, const mo_lora *lora); /* one that is not there is allowed */
void mo_gpu_adapters_close(mo_gpu_adapters *a);

#endif
