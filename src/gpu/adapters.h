/* Adapters: a model's LoRA adapters on its device, and the memory for their results. Private to gpu/. */
#ifndef MO_GPU_ADAPTERS_H
#define MO_GPU_ADAPTERS_H

#include "engine/adapting.h"
#include "engine/forward.h"
#include "gpu/link.h"
#include "gpu/memory.h"

typedef struct mo_gpu_adapter {
    const mo_lora *lora;
    mo_daddr memory; /* a copy of its region in RAM */
    int64_t bytes;
} mo_gpu_adapter;

typedef struct mo_gpu_adapters {
    mo_gpu_memory *memory;
    mo_gpu_link *link;
    mo_gpu_adapter list[MO_ADAPTERS_MAX];
    int count;
    mo_daddr u; /* float[rows of the largest product][total rank] */
    int64_t u_bytes, u_stride;
    int64_t rows; /* rows of the largest product of a step */
} mo_gpu_adapters;

/* Bytes of the results of adapters with this total rank. */
int64_t mo_gpu_adapters_bytes(int64_t rows, int64_t ranks);

/* Copies the adapter to the device. MO_ENOMEM: no space under the ceiling. No step may run meanwhile. */
mo_status mo_gpu_adapters_add(mo_gpu_adapters *a, const mo_lora *lora, mo_error *err);
void mo_gpu_adapters_remove(mo_gpu_adapters *a, const mo_lora *lora); /* no effect if it is not there */
void mo_gpu_adapters_close(mo_gpu_adapters *a);

#endif
