#include "gpu/link.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"

/* Host memory is pinned in pieces: a system that refuses all of it may still allow some. */
#define ADOPT_PIECE ((size_t)1 << 30)

mo_status mo_gpu_link_open(mo_gpu_link *link, mo_device *device, size_t pin_bytes, mo_error *err)
{
    *link = (mo_gpu_link){.device = device, .pin_bytes = pin_bytes ? pin_bytes : ADOPT_PIECE};
    mo_dstream **streams[] = {&link->main, &link->fetch, &link->lane};
    mo_status status = MO_OK;
    for (int i = 0; i < 3 && status == MO_OK; i++) {
        status = mo_dstream_create(device, streams[i], err);
    }
    return status == MO_OK ? mo_event_create(device, &link->look, err) : status;
}

void mo_gpu_link_stop(mo_gpu_link *link)
{
    mo_dstream_destroy(link->main);
    mo_dstream_destroy(link->fetch);
    mo_dstream_destroy(link->lane);
    mo_event_destroy(link->look);
    link->look = NULL;
    link->main = link->fetch = link->lane = NULL;
}

void mo_gpu_link_close(mo_gpu_link *link)
{
    for (int i = 0; i < GPU_ADOPTED; i++) {
        for (size_t at = 0; at < link->adopted[i].bytes; at += link->adopted[i].piece) {
            mo_device_release(link->device, link->adopted[i].memory + at);
        }
    }
}

/* ---- Pinned memory ------------------------------------------------------------------------------ */

void mo_gpu_link_adopt(mo_gpu_link *link, int number, uint8_t *memory, size_t bytes, const char *what)
{
    mo_adopted *out = &link->adopted[number];
    *out = (mo_adopted){.memory = memory, .piece = link->pin_bytes};
    bytes = bytes / 4096 * 4096;
    size_t at = 0;
    for (mo_error err = {0}; memory && at < bytes; at += out->piece) {
        const size_t piece = bytes - at < out->piece ? bytes - at : out->piece;
        if (mo_device_adopt(link->device, memory + at, piece, &err) != MO_OK) {
            mo_log(MO_LOG_WARN, "device",
                   "%.1f of %.1f GiB of %s in RAM could be pinned (%s); the rest "
                   "is copied several times slower, so the CPU computes more of it",
                   (double)at / (1 << 30), (double)bytes / (1 << 30), what, err.detail);
            break;
        }
        out->bytes = at + piece;
    }
}

static const mo_adopted *adopted_at(const mo_gpu_link *link, const uint8_t *at)
{
    for (int i = 0; i < GPU_ADOPTED; i++) {
        const mo_adopted *a = &link->adopted[i];
        if (a->memory && at >= a->memory && at < a->memory + a->bytes) {
            return a;
        }
    }
    return NULL;
}

bool mo_gpu_link_pinned(const mo_gpu_link *link, const uint8_t *at)
{
    return adopted_at(link, at) != NULL;
}

/* ---- Copies ------------------------------------------------------------------------------------- */

/* Bytes that one copy from here may have: it may not span two pinned pieces. */
static size_t pinned_run(const mo_gpu_link *link, const uint8_t *from, size_t run)
{
    const mo_adopted *a = adopted_at(link, from);
    if (a) {
        const size_t at = (size_t)(from - a->memory), end = a->bytes - at, left = a->piece - at % a->piece;
        run = run < left ? run : left;
        run = run < end ? run : end;
    }
    return run;
}

mo_status mo_gpu_link_copy(const mo_gpu_link *link, mo_dstream *stream, const uint8_t *from, size_t bytes,
                           mo_daddr to, mo_error *err)
{
    mo_status status = MO_OK;
    for (size_t done = 0, run; done < bytes && status == MO_OK; done += run) {
        run = pinned_run(link, from + done, bytes - done);
        status = mo_copy_in(stream, to + done, from + done, run, err);
    }
    return status;
}

mo_status mo_gpu_link_copy_back(const mo_gpu_link *link, mo_dstream *stream, mo_daddr from, size_t bytes,
                                uint8_t *to, mo_error *err)
{
    mo_status status = MO_OK;
    for (size_t done = 0, run; done < bytes && status == MO_OK; done += run) {
        run = pinned_run(link, to + done, bytes - done);
        status = mo_copy_out(stream, to + done, from + done, run, err);
    }
    return status;
}

mo_status mo_gpu_link_copy_matrix(const mo_gpu_link *link, mo_dstream *stream, const mo_weights *w,
                                  mo_daddr to, mo_error *err)
{
    const int64_t bytes = w->rows * mo_format_row_bytes(mo_format_of(w->type), w->cols);
    return mo_gpu_link_copy(link, stream, w->data, (size_t)bytes, to, err);
}

mo_status mo_gpu_link_settle(mo_dstream *stream, mo_status status, mo_error *err)
{
    mo_error ignored = {0};
    const mo_status waited = mo_dstream_wait(stream, status == MO_OK ? err : &ignored);
    return status == MO_OK ? waited : status;
}

mo_status mo_gpu_link_vital(mo_status status, mo_error *err)
{
    if (status == MO_OK || status == MO_EDEVICE) {
        return status;
    }
    if (err) {
        err->status = MO_EDEVICE;
    }
    return MO_EDEVICE;
}

bool mo_gpu_link_again(mo_gpu_link *link, mo_dstream *stream, int *tries, mo_status *status, mo_error *err)
{
    if (*status == MO_EDEVICE || (*status == MO_OK && *tries == 0)) {
        return false;
    }
    if (*status == MO_OK) { /* second try: report its error now */
        *status = mo_dstream_wait(stream, err);
        return false;
    }
    link->failed++;
    if ((*tries)++ > 0) {
        mo_fail_prefix(err, *status, "a copy to or from the device failed twice");
        return false;
    }
    mo_log(MO_LOG_WARN, "device", "a copy failed (%s); retrying once", err ? err->detail : "");
    const mo_status waited = mo_dstream_wait(stream, err);
    *status = waited == MO_OK ? *status : waited;
    return waited == MO_OK;
}

mo_status mo_gpu_link_send(mo_gpu_link *link, mo_dstream *stream, const uint8_t *from, size_t bytes,
                           mo_daddr to, mo_error *err)
{
    mo_status status;
    int tries = 0;
    do {
        status = mo_gpu_link_copy(link, stream, from, bytes, to, err);
    } while (mo_gpu_link_again(link, stream, &tries, &status, err));
    return status;
}

/* ---- Ops ---------------------------------------------------------------------------------------- */

mo_status mo_gpu_link_launch(const mo_gpu_link *link, mo_dstream *stream, const mo_op *ops, int count,
                             mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < count && status == MO_OK; i++) {
        const int64_t began = link->watch ? mo_clock_ns() : 0;
        status = mo_op_launch(stream, &ops[i], err);
        if (link->watch && status == MO_OK) { /* a benchmark measures each op */
            status = mo_dstream_wait(stream, err);
            link->watch->seconds[ops[i].kind] += (double)(mo_clock_ns() - began) * 1e-9;
            link->watch->count[ops[i].kind]++;
        }
    }
    return status;
}

mo_status mo_gpu_link_put(mo_gpu_link *link, mo_dstream *stream, mo_daddr to, const void *from, size_t bytes,
                          mo_error *err)
{
    mo_status status;
    int tries = 0;
    do {
        status = mo_copy_in(stream, to, from, bytes, err);
    } while (mo_gpu_link_again(link, stream, &tries, &status, err));
    return mo_gpu_link_vital(status, err);
}

mo_status mo_gpu_link_get(mo_gpu_link *link, mo_dstream *stream, void *to, mo_daddr from, size_t bytes,
                          mo_error *err)
{
    mo_status status;
    int tries = 0;
    do {
        status = mo_copy_out(stream, to, from, bytes, err);
    } while (mo_gpu_link_again(link, stream, &tries, &status, err));
    return mo_gpu_link_vital(status, err);
}
