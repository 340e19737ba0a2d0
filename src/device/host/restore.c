/* Interleaved matrices back to the file's layout, on the host. */
#include <string.h>

#include "device/host/ops.h"

/* w is interleaved, out gets the file's layout. */
static void restore(const mo_weights *w, uint8_t *out)
{
    const mo_format *f = mo_format_of(w->type);
    const int64_t row_bytes = mo_format_row_bytes(f, w->cols);
    if (!w->interleave || !mo_weights_units(w->type)) {
        memcpy(out, w->data, (size_t)(w->rows * row_bytes));
        return;
    }
    for (int64_t r = 0; r < w->rows; r++) {
        for (int64_t b = 0; b < w->cols / f->block_values; b++, out += f->block_bytes) {
            uint8_t space[MO_BLOCK_BYTES_MAX];
            memcpy(out, mo_weights_block(w, r, b, space), (size_t)f->block_bytes);
        }
    }
}

mo_status mo_op_host_restore(mo_op_job *job, const mo_op_restore *o)
{
    for (int64_t i = 0; i < (int64_t)o->count * o->parts; i++) {
        const int p = (int)(i % o->parts);
        const mo_format *f = mo_format_of((uint32_t)o->type[p]);
        if (!f || f->kind == MO_KIND_INTEGER || o->cols[p] % f->block_values != 0) {
            mo_op_refuse(job, "was given a matrix of type %d with rows of %d values", o->type[p], o->cols[p]);
            return job->status;
        }
        const mo_daddr at = (mo_daddr)(i / o->parts * o->stride[p] + o->at[p]);
        const int64_t bytes = o->rows[p] * mo_format_row_bytes(f, o->cols[p]);
        const uint8_t *from = mo_op_part(job, "from", o->from + at, bytes);
        uint8_t *to = mo_op_part(job, "to", o->to + at, bytes);
        if (job->status != MO_OK) {
            return job->status;
        }
        restore(&(mo_weights){.data = from,
                              .type = f->type,
                              .interleave = o->group[p],
                              .rows = o->rows[p],
                              .cols = o->cols[p]},
                to);
    }
    return job->status;
}
