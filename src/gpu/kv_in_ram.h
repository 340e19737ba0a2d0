/* KV cache in RAM: layers whose KV cache is in pinned RAM, because device memory is too small for all layers.
 * The device's ops access it over the link by address, like any other memory; copies made by the host must
 * distinguish both. If the device is lost, this holds for all layers, and their memory is not pinned. Used in
 * turns. Private to gpu/. */
#ifndef MO_GPU_KV_IN_RAM_H
#define MO_GPU_KV_IN_RAM_H

#include "device/device.h"
#include "kv/state.h"

/* Memory pinned for blocks. */
typedef struct mo_gpu_kv_in_ram_area {
    uint8_t *memory;
    mo_daddr seen; /* its address on the device */
    int64_t bytes;
    bool plain; /* not pinned */
} mo_gpu_kv_in_ram_area;

typedef struct mo_gpu_kv_in_ram {
    mo_device *device; /* referenced, not owned */
    bool *layers;      /* [layers] KV cache in RAM; NULL: none */
    mo_gpu_kv_in_ram_area *areas;
    int count;
    bool lost;        /* the device is lost and not called any more */
    uint64_t brought; /* bytes copied for staging (gpu/kv_staging.h) */
} mo_gpu_kv_in_ram;

/* Selects the last `count` layers that allow it (mo_state_layer_bytes()), as counted by the plan. */
mo_status mo_gpu_kv_in_ram_open(mo_gpu_kv_in_ram *kv_in_ram, mo_device *device, const mo_model_spec *spec,
                                const mo_state_size *size, int count, mo_error *err);
void mo_gpu_kv_in_ram_close(mo_gpu_kv_in_ram *kv_in_ram); /* none of it may be in use */

/* Allocates memory for blocks; addresses are those on the device. */
mo_status mo_gpu_kv_in_ram_take(mo_gpu_kv_in_ram *kv_in_ram, int64_t bytes, mo_daddr *out, mo_error *err);
void mo_gpu_kv_in_ram_give(mo_gpu_kv_in_ram *kv_in_ram, mo_daddr at);

/* The host address of this device address; NULL: it is device memory. */
uint8_t *mo_gpu_kv_in_ram_find(const mo_gpu_kv_in_ram *kv_in_ram, mo_daddr at);

/* True if both are in the same memory, so that one copy may span both. */
bool mo_gpu_kv_in_ram_same(const mo_gpu_kv_in_ram *kv_in_ram, mo_daddr a, mo_daddr b);

/* Copies and clears on a stream, for addresses of either kind. Copies within host memory wait for the
 * stream. */
mo_status mo_gpu_kv_in_ram_copy_in(const mo_gpu_kv_in_ram *kv_in_ram, mo_dstream *stream, mo_daddr to,
                                   const void *from, int64_t bytes, mo_error *err);
mo_status mo_gpu_kv_in_ram_copy_out(const mo_gpu_kv_in_ram *kv_in_ram, mo_dstream *stream, void *to,
                                    mo_daddr from, int64_t bytes, mo_error *err);
mo_status mo_gpu_kv_in_ram_copy_within(const mo_gpu_kv_in_ram *kv_in_ram, mo_dstream *stream, mo_daddr to,
                                       mo_daddr from, int64_t bytes, mo_error *err);
mo_status mo_gpu_kv_in_ram_clear(const mo_gpu_kv_in_ram *kv_in_ram, mo_dstream *stream, mo_daddr to,
                                 int64_t bytes, mo_error *err);

#endif
