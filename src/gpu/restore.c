#include "gpu/restore.h"

mo_op mo_gpu_restore_op(mo_daddr from, mo_daddr to, int64_t count)
{
    mo_op op = {.kind = MO_OP_RESTORE};
    op.restore = (mo_op_restore){.from = from, .to = to, .count = (int32_t)count};
    return op;
}

void mo_gpu_restore_add(mo_op *op, const mo_weights *w, int64_t at, int64_t stride)
{
    mo_op_restore *r = &op->restore;
    if (w->rows == 0) {
        return; /* the gate of an expert without one */
    }
    r->at[r->parts] = at;
    r->stride[r->parts] = stride;
    r->type[r->parts] = (int32_t)w->type;
    r->rows[r->parts] = (int32_t)w->rows;
    r->cols[r->parts] = (int32_t)w->cols;
    r->group[r->parts++] = w->interleave;
}
