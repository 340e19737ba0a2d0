/* Layers of a model on a device that the CPU computes: of those that do not fit there, as many as make CPU and link end
 * together. In steps of few tokens the stream of hidden rows comes to the host, passes through them and goes back; in a
 * batch, where the device is far ahead, they cross the link like the others. Their part of a session's state moves
 * between the two when the kind of step changes. Private to the gpu's files. */
#ifndef MO_GPU_CPU_LAYERS_H
#define MO_GPU_CPU_LAYERS_H

#include "gpu/gpu.h"

/* Decides how many of the `count` layers that do not fit, `candidates` of which lie in RAM, the CPU computes. */
int mo_gpu_host_share(const mo_gpu *gpu, int count, int candidates, int64_t layer_bytes);

/* Waits for the stream before layer `from`. */
mo_status mo_gpu_host_meet(mo_gpu *gpu, mo_forward *forward, int from, mo_error *err);
/* Computes layers from .. to - 1 and lets the device go on. */
mo_status mo_gpu_host_run(mo_gpu *gpu, mo_forward *forward, int from, int to, mo_error *err);

#endif
