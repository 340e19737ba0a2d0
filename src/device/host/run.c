/* Runs one op on the host: finds its operands and hands it to its part. */
#include "device/host/run.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/status.h"
#include "device/host/operands.h"

/* How long an op waits for the host, as op.h says. */
static const int64_t await_ns = 10 * INT64_C(1000000000);

/* ---- Finding operands ------------------------------------------------------------------------- */

void mo_op_refuse(mo_op_job *job, const char *fmt, ...)
{
    if (job->status != MO_OK) {
        return;
    }
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    job->status = mo_fail(job->err, MO_EDEVICE, "the device's op %s %s", job->name, text);
}

void *mo_op_part(mo_op_job *job, const char *operand, mo_daddr address, int64_t bytes)
{
    if (address == 0) {
        mo_op_refuse(job, "lacks its operand %s", operand);
        return NULL;
    }
    void *part = job->host->resolve(job->host->user, address, bytes);
    if (!part) {
        mo_op_refuse(job, "was given 0x%" PRIx64 " as %s, where the device does not have %" PRId64 " bytes",
                     address, operand, bytes);
    }
    return part;
}

void *mo_op_part_or_none(mo_op_job *job, const char *operand, mo_daddr address, int64_t bytes)
{
    return address ? mo_op_part(job, operand, address, bytes) : NULL;
}

float *mo_op_floats(mo_op_job *job, const char *operand, mo_daddr address, int64_t count)
{
    return mo_op_part(job, operand, address, count * (int64_t)sizeof(float));
}

float *mo_op_floats_or_none(mo_op_job *job, const char *operand, mo_daddr address, int64_t count)
{
    return address ? mo_op_floats(job, operand, address, count) : NULL;
}

static void *acts_part(mo_op_job *job, const char *operand, const char *array, mo_daddr address,
                       int64_t bytes)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%s", operand, array);
    return mo_op_part(job, name, address, bytes);
}

mo_acts mo_op_acts(mo_op_job *job, const char *operand, const mo_dacts *a, int64_t rows, bool values,
                   bool codes)
{
    mo_acts out = {.rows = rows, .cols = a->cols};
    const int64_t blocks = rows * (a->cols / 32);
    if (values) {
        out.x = acts_part(job, operand, "x", a->x, rows * a->cols * 4);
    }
    if (codes && a->cols % 32 == 0) {
        out.q = acts_part(job, operand, "q", a->q, rows * a->cols);
        out.d = acts_part(job, operand, "d", a->d, blocks * 4);
        out.s = acts_part(job, operand, "s", a->s, blocks * 4);
        out.sum = acts_part(job, operand, "sum", a->sum, blocks * 4);
        out.half_sum = acts_part(job, operand, "half_sum", a->half_sum, blocks * 4);
    }
    return out;
}

void mo_op_quantize(const mo_kernels *k, const mo_acts *a, int64_t row)
{
    if (a->cols % 32 == 0) {
        const int64_t blocks = a->cols / 32;
        k->quantize(a->x + row * a->cols, a->cols, a->q + row * a->cols, a->d + row * blocks,
                    a->s + row * blocks, a->sum + row * blocks, a->half_sum + 2 * row * blocks);
    }
}

mo_dstate mo_op_layer(mo_op_job *job, mo_daddr layers, int layer)
{
    const mo_daddr at = layers ? layers + (mo_daddr)layer * sizeof(mo_dstate) : 0;
    const mo_dstate *state = mo_op_part(job, "layers", at, sizeof *state);
    return state ? *state : (mo_dstate){0};
}

void mo_op_set_bad(uint32_t *bad, uint32_t value)
{
    if (bad) {
        __atomic_store_n(bad, value, __ATOMIC_RELAXED);
    }
}

/* ---- The ops ---------------------------------------------------------------------------------- */

static const char *const names[MO_OP_KINDS] = {
    [MO_OP_STREAM] = "stream",
    [MO_OP_PRODUCT] = "product",
    [MO_OP_GROUPED] = "grouped",
    [MO_OP_ACTIVATE] = "activate",
    [MO_OP_HEADS] = "heads",
    [MO_OP_ATTEND] = "attend",
    [MO_OP_CONVOLVE] = "convolve",
    [MO_OP_RECUR] = "recur",
    [MO_OP_CHOOSE] = "choose",
    [MO_OP_EXPERTS_IN] = "experts in",
    [MO_OP_EXPERTS_DOWN] = "experts down",
    [MO_OP_LOGITS] = "logits",
    [MO_OP_PUBLISH] = "publish",
    [MO_OP_AWAIT] = "await",
    [MO_OP_RESTORE] = "restore",
};

mo_status mo_op_run(const mo_op_host *host, const mo_op *op, mo_error *err)
{
    mo_op_job job = {.host = host, .k = host->kernels, .name = names[op->kind], .err = err};
    switch (op->kind) {
    case MO_OP_STREAM: return mo_op_host_stream(&job, &op->stream);
    case MO_OP_PRODUCT: return mo_op_host_product(&job, &op->product);
    case MO_OP_GROUPED: return mo_op_host_grouped(&job, &op->grouped);
    case MO_OP_ACTIVATE: return mo_op_host_activate(&job, &op->activate);
    case MO_OP_HEADS: return mo_op_host_heads(&job, &op->heads);
    case MO_OP_ATTEND: return mo_op_host_attend(&job, &op->attend);
    case MO_OP_CONVOLVE: return mo_op_host_convolve(&job, &op->convolve);
    case MO_OP_RECUR: return mo_op_host_recur(&job, &op->recur);
    case MO_OP_CHOOSE: return mo_op_host_choose(&job, &op->choose);
    case MO_OP_EXPERTS_IN: return mo_op_host_experts_in(&job, &op->experts);
    case MO_OP_EXPERTS_DOWN: return mo_op_host_experts_down(&job, &op->experts);
    case MO_OP_LOGITS: return mo_op_host_logits(&job, &op->logits);
    case MO_OP_PUBLISH: return mo_op_host_publish(&job, &op->publish);
    case MO_OP_AWAIT: return mo_op_host_await(&job, &op->await, await_ns);
    case MO_OP_RESTORE: return mo_op_host_restore(&job, &op->restore);
    case MO_OP_KINDS: break;
    }
    return mo_fail(err, MO_EINVAL, "there is no device op of kind %d", (int)op->kind);
}
