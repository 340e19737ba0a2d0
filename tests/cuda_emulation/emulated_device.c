/* Brings an emulated GPU to the tests of devices (device_case.h). MO_EMULATED_COMPUTE: its capability, which decides
 * between kernels; one program for each. */
#include "device/cuda/cuda.h"
#include "device_case.h"
#include "fake_driver.h"

mo_status device_open_emulated(mo_device **out, mo_error *err)
{
    mo_fake_gpu_use(
        &(mo_fake_gpu){.compute = MO_EMULATED_COMPUTE, .total_bytes = 256 << 20, .pinned_bytes = 64 << 20});
    return mo_cuda_open(0, 0, out, err);
}
