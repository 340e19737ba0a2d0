/* Driver: the calls of NVIDIA's driver library that this program makes, as a table that is filled when the library is
 * opened at run time. Its types are spelled plainly: a CUresult is an int (0: success), a CUdevice is an int, a
 * CUdeviceptr is a uint64_t, and every other handle is a void *. Tests put a table of their own in its place. */
#ifndef MO_DEVICE_CUDA_DRIVER_H
#define MO_DEVICE_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "moraine.h"

/* How a kernel is launched, as the driver lays it out: CUlaunchAttribute, CUlaunchConfig. */
typedef struct mo_cuda_attribute {
    int id;
    int unused;
    int value[16]; /* a union of 64 bytes */
} mo_cuda_attribute;

typedef struct mo_cuda_config {
    unsigned grid[3], block[3];
    unsigned shared_bytes;
    void *stream;
    mo_cuda_attribute *attributes;
    unsigned attribute_count;
} mo_cuda_config;

/* X(member, symbol, parameters). Suffixes: the first forms of these calls had 32-bit sizes or fewer parameters.
 * The second list may be absent from the library (it came with later drivers): members are then NULL. */
/* clang-format off */
#define MO_CUDA_CALLS(X)                                                                                             \
    X(init, "cuInit", (unsigned flags))                                                                              \
    X(driver_get_version, "cuDriverGetVersion", (int *version))                                                      \
    X(get_error_name, "cuGetErrorName", (int error, const char **name))                                              \
    X(get_error_string, "cuGetErrorString", (int error, const char **text))                                          \
    X(device_get_count, "cuDeviceGetCount", (int *count))                                                            \
    X(device_get, "cuDeviceGet", (int *device, int index))                                                           \
    X(device_get_name, "cuDeviceGetName", (char *name, int bytes, int device))                                       \
    X(device_get_attribute, "cuDeviceGetAttribute", (int *value, int attribute, int device))                         \
    X(primary_ctx_retain, "cuDevicePrimaryCtxRetain", (void **context, int device))                                  \
    X(primary_ctx_release, "cuDevicePrimaryCtxRelease_v2", (int device))                                             \
    X(ctx_set_current, "cuCtxSetCurrent", (void *context))                                                           \
    X(ctx_synchronize, "cuCtxSynchronize", (void))                                                                   \
    X(mem_get_info, "cuMemGetInfo_v2", (size_t *free_bytes, size_t *total_bytes))                                    \
    X(mem_alloc, "cuMemAlloc_v2", (uint64_t *address, size_t bytes))                                                 \
    X(mem_free, "cuMemFree_v2", (uint64_t address))                                                                  \
    X(mem_host_alloc, "cuMemHostAlloc", (void **memory, size_t bytes, unsigned flags))                               \
    X(mem_free_host, "cuMemFreeHost", (void *memory))                                                                \
    X(mem_host_register, "cuMemHostRegister_v2", (void *memory, size_t bytes, unsigned flags))                       \
    X(mem_host_unregister, "cuMemHostUnregister", (void *memory))                                                    \
    X(mem_host_get_device_pointer, "cuMemHostGetDevicePointer_v2", (uint64_t *address, void *memory, unsigned flags)) \
    X(memcpy_htod_async, "cuMemcpyHtoDAsync_v2", (uint64_t to, const void *from, size_t bytes, void *stream))        \
    X(memcpy_dtoh_async, "cuMemcpyDtoHAsync_v2", (void *to, uint64_t from, size_t bytes, void *stream))              \
    X(memcpy_dtod_async, "cuMemcpyDtoDAsync_v2", (uint64_t to, uint64_t from, size_t bytes, void *stream))           \
    X(memset_d8_async, "cuMemsetD8Async", (uint64_t to, unsigned char value, size_t bytes, void *stream))            \
    X(stream_create, "cuStreamCreate", (void **stream, unsigned flags))                                              \
    X(stream_destroy, "cuStreamDestroy_v2", (void *stream))                                                          \
    X(stream_synchronize, "cuStreamSynchronize", (void *stream))                                                     \
    X(stream_wait_event, "cuStreamWaitEvent", (void *stream, void *event, unsigned flags))                           \
    X(event_create, "cuEventCreate", (void **event, unsigned flags))                                                 \
    X(event_destroy, "cuEventDestroy_v2", (void *event))                                                             \
    X(event_record, "cuEventRecord", (void *event, void *stream))                                                    \
    X(event_query, "cuEventQuery", (void *event))                                                                    \
    X(event_synchronize, "cuEventSynchronize", (void *event))                                                        \
    X(event_elapsed_time, "cuEventElapsedTime", (float *milliseconds, void *from, void *to))                         \
    X(module_load_data, "cuModuleLoadData", (void **module, const void *image))                                      \
    X(module_unload, "cuModuleUnload", (void *module))                                                               \
    X(module_get_function, "cuModuleGetFunction", (void **function, void *module, const char *name))                 \
    X(func_get_attribute, "cuFuncGetAttribute", (int *value, int attribute, void *function))                         \
    X(func_set_attribute, "cuFuncSetAttribute", (void *function, int attribute, int value))                          \
    X(launch_kernel, "cuLaunchKernel",                                                                               \
      (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,        \
       unsigned block_z, unsigned shared_bytes, void *stream, void **parameters, void **extra))                      \
    X(stream_begin_capture, "cuStreamBeginCapture_v2", (void *stream, int mode))                                     \
    X(stream_end_capture, "cuStreamEndCapture", (void *stream, void **graph))                                        \
    X(graph_instantiate, "cuGraphInstantiateWithFlags", (void **exec, void *graph, unsigned long long flags))        \
    X(graph_launch, "cuGraphLaunch", (void *exec, void *stream))                                                     \
    X(graph_exec_destroy, "cuGraphExecDestroy", (void *exec))                                                        \
    X(graph_destroy, "cuGraphDestroy", (void *graph))

#define MO_CUDA_CALLS_LATER(X)                                                                                       \
    X(device_can_access_peer, "cuDeviceCanAccessPeer", (int *can, int device, int other))                            \
    X(ctx_enable_peer_access, "cuCtxEnablePeerAccess", (void *other, unsigned flags))                                \
    X(memcpy_peer_async, "cuMemcpyPeerAsync",                                                                        \
      (uint64_t to, void *to_context, uint64_t from, void *from_context, size_t bytes, void *stream))                \
    X(module_get_function_count, "cuModuleGetFunctionCount", (unsigned *count, void *module))                        \
    X(module_enumerate_functions, "cuModuleEnumerateFunctions", (void **functions, unsigned count, void *module))    \
    X(func_load, "cuFuncLoad", (void *function))                                                                     \
    X(launch_kernel_ex, "cuLaunchKernelEx",                                                                          \
      (const mo_cuda_config *config, void *function, void **parameters, void **extra))
/* clang-format on */

typedef struct mo_cuda_driver {
#define MO_CUDA_MEMBER(member, symbol, parameters) int(*member) parameters;
    MO_CUDA_CALLS(MO_CUDA_MEMBER)
    MO_CUDA_CALLS_LATER(MO_CUDA_MEMBER)
#undef MO_CUDA_MEMBER
} mo_cuda_driver;

/* The table: the one that tests put in place, or that of the system's driver, opened at the first call and kept. NULL
 * when there is none, with what to do in *err (MO_EDEVICE). Any thread. */
const mo_cuda_driver *mo_cuda_driver_open(mo_error *err);

/* For tests: uses this table from now on, which stays the caller's; NULL goes back to the system's. No device is open
 * and no other thread is in here. With a table of its own a build without nvcc opens devices too: the driver then
 * gets one module image, an empty string, and every kernel is looked for in it. */
void mo_cuda_driver_use(const mo_cuda_driver *driver);
int mo_cuda_driver_replaced(void);

/* Results of the driver that this program tells apart. */
enum {
    MO_CUDA_OK = 0,
    MO_CUDA_INVALID_VALUE = 1,
    MO_CUDA_OUT_OF_MEMORY = 2,
    MO_CUDA_STUB_LIBRARY = 34,
    MO_CUDA_NO_DEVICE = 100,
    MO_CUDA_INVALID_IMAGE = 200,
    MO_CUDA_NO_BINARY_FOR_GPU = 209,
    MO_CUDA_INVALID_PTX = 218,
    MO_CUDA_JIT_COMPILER_NOT_FOUND = 221,
    MO_CUDA_UNSUPPORTED_PTX_VERSION = 222,
    MO_CUDA_NOT_FOUND = 500,
    MO_CUDA_NOT_READY = 600,
    MO_CUDA_PEER_ENABLED_ALREADY = 704,
    MO_CUDA_DRIVER_MISMATCH = 803,
};

/* Values of its enumerations that this program uses. */
enum {
    MO_CUDA_DEVICE_MULTIPROCESSORS = 16,
    MO_CUDA_DEVICE_MEMORY_CLOCK_KHZ = 36,
    MO_CUDA_DEVICE_MEMORY_BUS_BITS = 37,
    MO_CUDA_DEVICE_CAPABILITY_MAJOR = 75,
    MO_CUDA_DEVICE_CAPABILITY_MINOR = 76,
    MO_CUDA_FUNC_MAX_DYNAMIC_SHARED = 8,
    MO_CUDA_HOST_PORTABLE = 1,
    MO_CUDA_HOST_DEVICEMAP = 2,
    MO_CUDA_STREAM_NON_BLOCKING = 1,
    MO_CUDA_EVENT_DEFAULT = 0,
    MO_CUDA_CAPTURE_RELAXED = 2,
    MO_CUDA_LAUNCH_PROGRAMMATIC_SERIALIZATION = 6,
};

#endif
