/* The device interface: looks at what a program could get wrong, and forwards to the implementation. */
#include "device/device.h"

#include <assert.h>

#include "device/backend.h"

void mo_device_describe(mo_device *device, mo_device_info *out)
{
    assert(device && out);
    device->backend->describe(device, out);
}

void mo_device_close(mo_device *device)
{
    if (device) {
        device->backend->close(device);
    }
}

/* ---- Memory ----------------------------------------------------------------------------------- */

mo_status mo_device_alloc(mo_device *device, size_t bytes, mo_daddr *out, mo_error *err)
{
    assert(device && out && bytes > 0);
    *out = 0;
    return device->backend->alloc(device, bytes, out, err);
}

void mo_device_free(mo_device *device, mo_daddr address)
{
    assert(device);
    if (address) {
        device->backend->free(device, address);
    }
}

mo_status mo_device_pin(mo_device *device, size_t bytes, void **out, mo_daddr *seen, mo_error *err)
{
    assert(device && out && seen && bytes > 0);
    *out = NULL;
    *seen = 0;
    return device->backend->pin(device, bytes, out, seen, err);
}

void mo_device_unpin(mo_device *device, void *memory)
{
    assert(device);
    if (memory) {
        device->backend->unpin(device, memory);
    }
}

mo_status mo_device_adopt(mo_device *device, void *memory, size_t bytes, mo_error *err)
{
    assert(device && memory && bytes > 0);
    assert((uintptr_t)memory % 4096 == 0); /* pages of any size begin so */
    return device->backend->adopt(device, memory, bytes, err);
}

void mo_device_release(mo_device *device, void *memory)
{
    assert(device);
    if (memory) {
        device->backend->release(device, memory);
    }
}

/* ---- Streams and events ----------------------------------------------------------------------- */

mo_status mo_dstream_create(mo_device *device, mo_dstream **out, mo_error *err)
{
    assert(device && out);
    *out = NULL;
    const mo_status status = device->backend->stream_create(device, out, err);
    if (status == MO_OK) {
        (*out)->watcher = NULL;
    }
    return status;
}

void mo_dstream_destroy(mo_dstream *stream)
{
    if (stream) {
        stream->device->backend->stream_destroy(stream);
    }
}

mo_status mo_dstream_wait(mo_dstream *stream, mo_error *err)
{
    assert(stream);
    return stream->device->backend->stream_wait(stream, err);
}

/* Work that is enqueued, under the eyes of the stream's watcher where it has one. */
#define WATCHED(stream, op, call)                                                                            \
    do {                                                                                                     \
        if (!(stream)->watcher) {                                                                            \
            return call;                                                                                     \
        }                                                                                                    \
        mo_status status = (stream)->watcher->before(stream, op, err);                                       \
        if (status == MO_OK) {                                                                               \
            status = call;                                                                                   \
        }                                                                                                    \
        return status == MO_OK ? (stream)->watcher->after(stream, err) : status;                             \
    } while (0)

mo_status mo_copy_in(mo_dstream *stream, mo_daddr to, const void *from, size_t bytes, mo_error *err)
{
    assert(stream);
    assert(bytes == 0 || (to && from));
    if (bytes == 0) {
        return MO_OK;
    }
    WATCHED(stream, NULL, stream->device->backend->copy_in(stream, to, from, bytes, err));
}

mo_status mo_copy_out(mo_dstream *stream, void *to, mo_daddr from, size_t bytes, mo_error *err)
{
    assert(stream);
    assert(bytes == 0 || (to && from));
    if (bytes == 0) {
        return MO_OK;
    }
    WATCHED(stream, NULL, stream->device->backend->copy_out(stream, to, from, bytes, err));
}

mo_status mo_copy_within(mo_dstream *stream, mo_daddr to, mo_daddr from, size_t bytes, mo_error *err)
{
    assert(stream);
    assert(bytes == 0 || (to && from));
    assert(bytes == 0 || to + bytes <= from || from + bytes <= to);
    if (bytes == 0) {
        return MO_OK;
    }
    WATCHED(stream, NULL, stream->device->backend->copy_within(stream, to, from, bytes, err));
}

mo_status mo_device_clear(mo_dstream *stream, mo_daddr to, size_t bytes, mo_error *err)
{
    assert(stream);
    assert(bytes == 0 || to);
    if (bytes == 0) {
        return MO_OK;
    }
    WATCHED(stream, NULL, stream->device->backend->clear(stream, to, bytes, err));
}

mo_status mo_event_create(mo_device *device, mo_event **out, mo_error *err)
{
    assert(device && out);
    *out = NULL;
    return device->backend->event_create(device, out, err);
}

void mo_event_destroy(mo_event *event)
{
    if (event) {
        event->device->backend->event_destroy(event);
    }
}

mo_status mo_event_record(mo_event *event, mo_dstream *stream, mo_error *err)
{
    assert(event && stream && event->device == stream->device);
    return event->device->backend->event_record(event, stream, err);
}

mo_status mo_dstream_after(mo_dstream *stream, mo_event *event, mo_error *err)
{
    assert(event && stream && event->device == stream->device);
    WATCHED(stream, NULL, event->device->backend->stream_after(stream, event, err));
}

mo_status mo_event_query(mo_event *event, bool *done, mo_error *err)
{
    assert(event && done);
    *done = false;
    return event->device->backend->event_query(event, done, err);
}

mo_status mo_event_wait(mo_event *event, mo_error *err)
{
    assert(event);
    return event->device->backend->event_wait(event, err);
}

mo_status mo_event_seconds(mo_event *from, mo_event *to, double *out, mo_error *err)
{
    assert(from && to && out && from->device == to->device);
    *out = 0.0;
    return from->device->backend->event_seconds(from, to, out, err);
}

/* ---- Work ------------------------------------------------------------------------------------- */

static void check_restore(const mo_op_restore *o)
{
    assert(o->count >= 0 && o->count <= MO_OP_BRICKS && o->parts >= 0 && o->parts <= 3);
    for (int i = 0; i < o->parts; i++) {
        const int group = o->group[i];
        assert(o->rows[i] > 0 && o->cols[i] > 0);
        assert(o->at[i] % MO_OP_ALIGN == 0 &&
               o->stride[i] % MO_OP_ALIGN == 0); /* addresses: the device's to judge */
        assert(group == 0 || (group >= 8 && group <= MO_OP_ROWS && (group & (group - 1)) == 0));
        (void)group;
    }
}

/* The limits that every implementation relies on. */
static void check_op(const mo_op *op)
{
    switch (op->kind) {
    case MO_OP_STREAM:
        assert(op->stream.tokens >= 0 && op->stream.n > 0 && op->stream.used >= 0);
        for (int i = 0; i < MO_OP_NORMS; i++) {
            assert(!op->stream.norm[i].out.x || op->stream.norm[i].out.cols == op->stream.n);
        }
        break;
    case MO_OP_PRODUCT:
        assert(op->product.tokens >= 0 && op->product.count > 0 && op->product.count <= MO_OP_MATRICES);
        for (int i = 0; i < op->product.count; i++) {
            assert(op->product.matrix[i].rows > 0 && op->product.matrix[i].cols == op->product.in.cols);
            assert(op->product.stride[i] >= op->product.matrix[i].rows);
        }
        break;
    case MO_OP_GROUPED:
        assert(op->grouped.count >= 0 && op->grouped.rows >= 0 && op->grouped.most <= op->grouped.rows);
        assert(op->grouped.matrix.cols == op->grouped.in.cols);
        break;
    case MO_OP_ROUND: assert(op->round.count >= 0); break;
    case MO_OP_WIDEN:
        assert(op->widen.count >= 0 && op->widen.matrix.rows > 0 && op->widen.matrix.cols > 0);
        assert(op->widen.groups || op->widen.count <= 1);
        break;
    case MO_OP_WIDE:
        assert(op->wide.count >= 0 && op->wide.rows >= 0 && op->wide.most <= op->wide.rows);
        assert(op->wide.matrix.rows > 0 && op->wide.matrix.cols % MO_OP_WIDE_COLS == 0);
        assert(op->wide.groups || op->wide.count <= 1);
        break;
    case MO_OP_ACTIVATE: assert(op->activate.rows >= 0 && op->activate.n == op->activate.hidden.cols); break;
    case MO_OP_HEADS:
        assert(op->heads.tokens >= 0 && op->heads.kv_heads > 0 && op->heads.layer >= 0);
        assert(op->heads.heads % op->heads.kv_heads == 0 && op->heads.k_len > 0 && op->heads.v_len > 0);
        assert(!op->heads.v_from_k || op->heads.v_len <= op->heads.k_len);
        break;
    case MO_OP_ATTEND:
        assert(op->attend.tokens >= 0 && op->attend.kv_heads > 0 && op->attend.layer >= 0);
        assert(op->attend.heads % op->attend.kv_heads == 0 && op->attend.k_len > 0 && op->attend.v_len > 0);
        assert(op->attend.mixed.cols == (op->attend.tail ? 1 : op->attend.heads) * op->attend.v_len);
        assert(!op->attend.tail || (op->attend.k_len == op->attend.v_len + op->attend.tail &&
                                    op->attend.kv_heads == 1 && !op->attend.gated && !op->attend.window));
        assert(!op->attend.gated || op->attend.v_len <= op->attend.k_len);
        break;
    case MO_OP_LATENT:
        assert(op->latent.tokens >= 0 && op->latent.heads > 0 && op->latent.layer >= 0);
        assert(op->latent.plain.cols > 0 && op->latent.v_len > 0 && op->latent.n_rot > 0);
        break;
    case MO_OP_COLLECT:
        assert(op->collect.tokens >= 0 && op->collect.heads > 0);
        assert(op->collect.out.cols == op->collect.heads * op->collect.n);
        break;
    case MO_OP_CONVOLVE:
        assert(op->convolve.tokens >= 0 && op->convolve.slice_count >= 0 && op->convolve.k_heads > 0);
        assert(op->convolve.v_heads % op->convolve.k_heads == 0 && op->convolve.head > 0);
        break;
    case MO_OP_RECUR:
        assert(op->recur.tokens >= 0 && op->recur.slice_count >= 0 && op->recur.k_heads > 0);
        assert(op->recur.v_heads % op->recur.k_heads == 0 && op->recur.head > 0);
        assert(op->recur.mixed.cols == op->recur.v_heads * op->recur.head);
        break;
    case MO_OP_SHORT_CONV:
        assert(op->short_conv.tokens >= 0 && op->short_conv.slice_count >= 0 && op->short_conv.channels > 0);
        assert(op->short_conv.mixed.cols == op->short_conv.channels);
        break;
    case MO_OP_SSM_CONVOLVE:
        assert(op->ssm_convolve.tokens >= 0 && op->ssm_convolve.slice_count >= 0);
        assert(op->ssm_convolve.channels > 0 && op->ssm_convolve.after.cols == op->ssm_convolve.channels);
        break;
    case MO_OP_SSM_PARTS:
        assert(op->ssm_parts.tokens >= 0 && op->ssm_parts.rank > 0 && op->ssm_parts.states > 0);
        assert(op->ssm_parts.dt.cols == op->ssm_parts.rank);
        break;
    case MO_OP_SSM_SCAN:
        assert(op->ssm_scan.tokens >= 0 && op->ssm_scan.slice_count >= 0 && op->ssm_scan.states > 0);
        assert(op->ssm_scan.groups > 0 && op->ssm_scan.mixed.cols == op->ssm_scan.inner);
        assert(op->ssm_scan.heads == 0 || (op->ssm_scan.heads % op->ssm_scan.groups == 0 &&
                                           op->ssm_scan.inner % op->ssm_scan.heads == 0));
        break;
    case MO_OP_CHOOSE:
        assert(op->choose.tokens >= 0 && op->choose.experts > 0 && op->choose.experts <= MO_OP_EXPERTS);
        assert(op->choose.used > 0 && op->choose.used <= MO_OP_USED && op->choose.used <= op->choose.experts);
        assert(op->choose.groups <= MO_OP_GROUPS);
        assert(op->choose.groups <= 1 ||
               (op->choose.experts % op->choose.groups == 0 && op->choose.groups_used > 0 &&
                op->choose.groups_used <= op->choose.groups));
        break;
    case MO_OP_ARRANGE:
        assert(op->arrange.tokens >= 0 && op->arrange.experts > 0 && op->arrange.experts <= MO_OP_EXPERTS);
        assert(op->arrange.used > 0 && op->arrange.used <= MO_OP_USED &&
               op->arrange.experts <= op->arrange.limit);
        break;
    case MO_OP_EXPERTS_IN:
    case MO_OP_EXPERTS_DOWN: assert(op->experts.work && op->experts.most >= 0); break;
    case MO_OP_LOGITS:
        assert(op->logits.count >= 0);
        assert(!op->logits.best || (op->logits.cols > 0 && op->logits.count % op->logits.cols == 0));
        break;
    case MO_OP_PUBLISH:
        assert(op->publish.ranges >= 0 && op->publish.ranges <= MO_OP_RANGES);
        for (int i = 0; i < op->publish.ranges; i++) {
            assert(op->publish.bytes[i] >= 0 && op->publish.bytes[i] % 4 == 0);
        }
        break;
    case MO_OP_AWAIT: assert(op->await.n > 0 && op->await.most >= 0); break;
    case MO_OP_RESTORE: check_restore(&op->restore); break;
    case MO_OP_LOWER:
    case MO_OP_ADAPT:
        assert(op->adapt.rows >= 0 && op->adapt.cols > 0 && op->adapt.n > 0 && op->adapt.group_count >= 0);
        assert(op->adapt.stride >= op->adapt.n);
        break;
    case MO_OP_KINDS: assert(!"an op"); break;
    }
}

mo_status mo_op_launch(mo_dstream *stream, const mo_op *op, mo_error *err)
{
    assert(stream && op);
    check_op(op);
    WATCHED(stream, op, stream->device->backend->launch(stream, op, err));
}

mo_status mo_program_create(mo_device *device, const mo_op *ops, int count, mo_program **out, mo_error *err)
{
    assert(device && out && count >= 0 && (ops || count == 0));
    *out = NULL;
    for (int i = 0; i < count; i++) {
        check_op(&ops[i]);
    }
    return device->backend->program_create(device, ops, count, out, err);
}

void mo_program_destroy(mo_program *program)
{
    if (program) {
        program->device->backend->program_destroy(program);
    }
}

mo_status mo_program_run(mo_program *program, mo_dstream *stream, mo_error *err)
{
    assert(program && stream && program->device == stream->device);
    return program->device->backend->program_run(program, stream, err);
}
