/* CUDA: NVIDIA GPUs through the driver, which is opened at run time: a build with kernels runs on machines without a
 * GPU or driver, and says so when one is asked for. A build without nvcc has no kernels; opening then says that. */
#ifndef MO_DEVICE_CUDA_CUDA_H
#define MO_DEVICE_CUDA_CUDA_H

#include "device/device.h"

/* True when this build has kernels. */
bool mo_cuda_built(void);

/* How many devices the driver offers; 0 with a reason in *err when there is no driver or no device. */
int mo_cuda_count(mo_error *err);

/* ptx: 0 chooses the best code for the device; 75 or 80 forces the PTX of that architecture (for tests). MO_EDEVICE
 * when there is no such device or it is too old, with what to do. */
mo_status mo_cuda_open(int index, int ptx, mo_device **out, mo_error *err);

/* Whether programs made from now on join some ops of a decoding step, as heads and attention (they do unless set
 * otherwise), or give every op kernels of its own. For measurements: the bits are the same. By the thread that makes
 * programs; the device is one of mo_cuda_open(). */
void mo_cuda_fuse(mo_device *device, bool fuse);

/* The same for kernels that come to the device while the one before still runs, bring their weights and wait (where GPU and
 * driver can, they do unless set otherwise). */
void mo_cuda_prelaunch(mo_device *device, bool prelaunch);

/* Whether products in bfloat16 may go by cuBLAS, where it is installed (they do unless set otherwise). For measurements. */
void mo_cuda_vendor(mo_device *device, bool vendor);

#endif
