#include "device/host/operands.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"

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
    job->status = mo_fail(job->err, MO_EDEVICE, "device op %s %s", job->name, text);
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

bool mo_op_slice_fits(mo_op_job *job, const mo_dslice *slice, int tokens)
{
    const int64_t end = slice->first + (int64_t)slice->count;
    if (slice->first < 0 || slice->count < 0 || end > tokens) {
        mo_op_refuse(job, "has a slice of tokens %d to %lld in a step of %d", slice->first, (long long)end,
                     tokens);
        return false;
    }
    return true;
}

void mo_op_set_bad(uint32_t *bad, uint32_t value)
{
    if (bad) {
        __atomic_store_n(bad, value, __ATOMIC_RELAXED);
    }
}

float *mo_op_state_copy(mo_op_job *job, int32_t state, int64_t count)
{
    float *copy = state == MO_STATE_STAYS ? malloc(sizeof *copy * (size_t)count) : NULL;
    if (state == MO_STATE_STAYS && !copy && job->status == MO_OK) {
        job->status = mo_fail(job->err, MO_ENOMEM, "out of memory for the copy of a state");
    }
    return copy;
}
