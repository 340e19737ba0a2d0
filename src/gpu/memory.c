#include "gpu/memory.h"

#include "base/status.h"
#include "device/op.h"

/* Rounded as devices allocate. */
static int64_t aligned(int64_t bytes)
{
    return (bytes + MO_OP_ALIGN - 1) / MO_OP_ALIGN * MO_OP_ALIGN;
}

void mo_gpu_memory_init(mo_gpu_memory *m, mo_device *device)
{
    *m = (mo_gpu_memory){.device = device};
    pthread_mutex_init(&m->lock, NULL);
}

void mo_gpu_memory_drop(mo_gpu_memory *m)
{
    pthread_mutex_destroy(&m->lock);
}

mo_status mo_gpu_memory_alloc(mo_gpu_memory *m, int64_t bytes, const char *what, mo_daddr *out, mo_error *err)
{
    mo_status status;
    pthread_mutex_lock(&m->lock);
    if (m->used + aligned(bytes) > m->limit) {
        status = mo_fail(err, MO_ENOMEM,
                         "%s needs %.1f MiB of device memory, but %.1f of %.1f MiB are in use; "
                         "raise `vram_bytes`, reduce `context` or `batch`, or run with `device` none",
                         what, (double)bytes / (1 << 20), (double)m->used / (1 << 20),
                         (double)m->limit / (1 << 20));
    } else {
        status = mo_device_alloc(m->device, (size_t)bytes, out, err);
    }
    if (status == MO_OK) {
        m->used += aligned(bytes);
        m->peak_bytes = m->used > m->peak_bytes ? m->used : m->peak_bytes;
    }
    pthread_mutex_unlock(&m->lock);
    return status;
}

void mo_gpu_memory_free(mo_gpu_memory *m, mo_daddr address, int64_t bytes)
{
    if (address) {
        pthread_mutex_lock(&m->lock);
        mo_device_free(m->device, address);
        m->used -= aligned(bytes);
        pthread_mutex_unlock(&m->lock);
    }
}

void mo_gpu_memory_settle(mo_gpu_memory *m, int64_t bytes)
{
    pthread_mutex_lock(&m->lock);
    m->used += bytes;
    m->peak_bytes = m->used;
    pthread_mutex_unlock(&m->lock);
}

int64_t mo_gpu_memory_left(mo_gpu_memory *m)
{
    pthread_mutex_lock(&m->lock);
    const int64_t left = m->limit - m->used;
    pthread_mutex_unlock(&m->lock);
    return left;
}

int64_t mo_gpu_memory_peak(mo_gpu_memory *m)
{
    pthread_mutex_lock(&m->lock);
    const int64_t peak = m->peak_bytes;
    pthread_mutex_unlock(&m->lock);
    return peak;
}
