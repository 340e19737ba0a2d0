/* Cold layers: those whose KV cache is in pinned RAM, because a device's memory is too small for all. The device's ops
 * access them over the link by address, like any others; copies by the host must distinguish them. On a device that is
 * lost, all layers are cold, and their memory is not pinned. Used in turns. Private to the gpu's files. */
#ifndef MO_GPU_KV_IN_RAM_H
#define MO_GPU_KV_IN_RAM_H

#include "device/device.h"
#include "kv/state.h"

/* Memory that was pinned for blocks. */
typedef struct mo_gpu_kv_in_ram_area {
    uint8_t *memory;
    mo_daddr seen; /* its address on the device */
    int64_t bytes;
    bool plain; /* not pinned */
} mo_gpu_kv_in_ram_area;

typedef struct mo_gpu_kv_in_ram {
    mo_device *device; /* kept and used, not owned */
    bool *layers;      /* [layers] are they cold? NULL: none is */
    mo_gpu_kv_in_ram_area *areas;
    int count;
    bool lost;        /* the device is: it is asked for nothing any more */
    uint64_t brought; /* bytes that were copied for staging (gpu/kv_staging.h) */
} mo_gpu_kv_in_ram;

/* The last `count` layers of those that can be apart (mo_state_layer_bytes()), as the plan counts them. */
mo_status mo_gpu_kv_in_ram_open(mo_gpu_kv_in_ram *kv_in_ram, mo_device *device, const mo_model_spec *spec,
                                const mo_state_size *size, int count, mo_error *err);
void mo_gpu_kv_in_ram_close(mo_gpu_kv_in_ram *kv_in_ram); /* nothing of it is used any more */

/* Memory for blocks, by its address on the device. */
mo_status mo_gpu_kv_in_ram_take(mo_gpu_kv_in_ram *kv_in_ram, int64_t bytes, mo_daddr *out, mo_error *err);
void mo_gpu_kv_in_ram_give(mo_gpu_kv_in_ram *kv_in_ram, mo_daddr at);

/* Where the host finds what the device has at this address; NULL: nowhere, it is the device's own memory. */
uint8_t *mo_gpu_kv_in_ram_find(const mo_gpu_kv_in_ram *kv_in_ram, mo_daddr at);

/* Are both in the same memory, so that one copy may reach from one to the other? */
bool mo_gpu_kv_in_ram_same(const mo_gpu_kv_in_ram *kv_in_ram, mo_daddr a, mo_daddr b);

/* Copies and clears on a stream, for addresses of either kind. Those between two places of the host wait for the stream. */
mo_status mo_gpu_kv_in_ram_copy_in(const mo_gpu_kv_in_ram *kv_in_ram, mo_dstream *stream, mo_daddr to,
                                   const void *from, int64_t bytes, mo_error *err);
mo_status mo_gpu_kv_in_ram_copy_out(const mo_gpu_kv_in_ram *kv_in_ram, mo_dstream *stream, void *to,
                                    mo_daddr from, int64_t bytes, mo_error *err);
mo_status mo_gpu_kv_in_ram_copy_within(const mo_gpu_kv_in_ram *kv_in_ram, mo_dstream *stream, mo_daddr to,
                                       mo_daddr from, int64_t bytes, mo_error *err);
mo_status mo_gpu_kv_in_ram_clear(const mo_gpu_kv_in_ram *kv_in_ram, mo_dstream *stream, mo_daddr to,
                                 int64_t bytes, mo_error *err);

#endif
