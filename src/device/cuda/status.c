/* What the driver's results mean: which are refusals, after which the device goes on, and which are its end. */
#include "device/cuda/parts.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"

/* The opening whose context this thread uses. A number, because a context that is opened again may have the address
 * of the one before. */
static _Thread_local unsigned long current;

static mo_status fail_lost(mo_cuda_device *device, mo_error *err)
{
    return mo_fail(err, MO_EDEVICE, "%s", device->why);
}

mo_status mo_cuda_enter(mo_cuda_device *device, mo_error *err)
{
    if (atomic_load_explicit(&device->lost, memory_order_acquire)) {
        return fail_lost(device, err);
    }
    if (current == device->serial) {
        return MO_OK;
    }
    mo_status status =
        mo_cuda_check(device, device->driver->ctx_set_current(device->context), "cuCtxSetCurrent", err);
    if (status == MO_OK) {
        current = device->serial;
    }
    return status;
}

void mo_cuda_leave(mo_cuda_device *device)
{
    device->driver->ctx_set_current(NULL);
    current = 0;
}

void mo_cuda_words(const mo_cuda_driver *driver, int result, char *text, size_t bytes)
{
    const char *name = NULL;
    const char *words = NULL;
    if (driver->get_error_name(result, &name) != MO_CUDA_OK || !name) {
        snprintf(text, bytes, "driver error %d", result);
        return;
    }
    if (driver->get_error_string(result, &words) != MO_CUDA_OK || !words) {
        words = "no description";
    }
    snprintf(text, bytes, "%s (%s)", name, words);
}

/* Refusals: the context lives on after them. Everything else is taken for its end: a kernel that went astray, an
 * uncorrectable memory error, a GPU that is gone, and what later drivers may add. */
static mo_status refusal(int result)
{
    switch (result) {
    case MO_CUDA_OUT_OF_MEMORY: return MO_ENOMEM;
    case MO_CUDA_INVALID_VALUE:
    case MO_CUDA_NOT_READY:
    case 101: /* invalid device */
    case 206: /* unmap failed */
    case 208: /* already mapped */
    case 211: /* not mapped */
    case 400: /* invalid handle */
    case MO_CUDA_PEER_ENABLED_ALREADY:
    case 705: /* peer access not enabled */
    case 712: /* host memory already registered */
    case 713: /* host memory not registered */ return MO_EINVAL;
    case 36:  /* needs a newer driver */
    case 205: /* map failed */
    case MO_CUDA_INVALID_IMAGE:
    case MO_CUDA_NO_BINARY_FOR_GPU:
    case 215: /* unsupported limit */
    case 217: /* peer access unsupported */
    case MO_CUDA_INVALID_PTX:
    case MO_CUDA_JIT_COMPILER_NOT_FOUND:
    case MO_CUDA_UNSUPPORTED_PTX_VERSION:
    case 223: /* compilation of PTX disabled */
    case 301: /* file not found */
    case 302: /* shared object symbol not found */
    case 303: /* shared object init failed */
    case 304: /* operating system call failed */
    case MO_CUDA_NOT_FOUND:
    case 701: /* launch out of resources */
    case 711: /* too many peers */
    case 720: /* cooperative launch too large */
    case 800: /* not permitted */
    case 801: /* not supported */
    case 900: /* stream capture: the nine ways in which it can be refused */
    case 901:
    case 902:
    case 903:
    case 904:
    case 905:
    case 906:
    case 907:
    case 908:
    case 910: /* graph update failed */ return MO_EUNSUPPORTED;
    default: return MO_EDEVICE;
    }
}

static mo_status lose(mo_cuda_device *device, const char *words, const char *call, mo_error *err)
{
    pthread_mutex_lock(&device->losing);
    if (!atomic_load_explicit(&device->lost, memory_order_relaxed)) {
        const char *fate = device->ready ? "is lost" : "cannot be opened";
        const char *advice = device->ready ? "the contents of its memory are gone, and this "
                                             "process cannot use it again (see the system log)"
                                           : "another process may use it exclusively; see nvidia-smi";
        snprintf(device->why, sizeof device->why, "%s (cuda %d) %s: %s returned %.200s; %s", device->name,
                 device->index, fate, call, words, advice);
        atomic_store_explicit(&device->lost, true, memory_order_release);
    }
    pthread_mutex_unlock(&device->losing);
    return fail_lost(device, err);
}

mo_status mo_cuda_check(mo_cuda_device *device, int result, const char *call, mo_error *err)
{
    if (result == MO_CUDA_OK) {
        return MO_OK;
    }
    char words[256];
    mo_cuda_words(device->driver, result, words, sizeof words);
    const mo_status status = refusal(result);
    if (status == MO_EDEVICE) {
        return lose(device, words, call, err);
    }
    return mo_fail(err, status, "%s (cuda %d) failed: %s returned %s", device->name, device->index, call,
                   words);
}

void mo_cuda_check_quietly(mo_cuda_device *device, int result, const char *call)
{
    mo_error err;
    if (mo_cuda_check(device, result, call, &err) != MO_OK) {
        mo_log(MO_LOG_WARN, "cuda", "%s", err.detail);
    }
}
