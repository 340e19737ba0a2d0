/* The experts of a worklist on the host, row by row. */
#include <inttypes.h>

#include "device/host/ops.h"
#include "numeric/merge.h"

/* Rows of gate and up that are computed together. */
enum { PIECE = 256 };

/* The worklist's items; *count is 0 when the job failed. */
static const mo_dwork_item *items_of(mo_op_job *job, const mo_op_experts *o, int *count)
{
    *count = 0;
    const mo_dwork *work = mo_op_part(job, "work", o->work, sizeof *work);
    if (!work) {
        return NULL;
    }
    if (work->count < 0 || work->count > o->most) {
        mo_op_refuse(job, "has a worklist of %d items; the limit is %d", work->count, o->most);
        return NULL;
    }
    const mo_dwork_item *items =
        mo_op_part(job, "work", o->work, (int64_t)sizeof *work + work->count * (int64_t)sizeof *items)
            ? (const mo_dwork_item *)(const void *)(work + 1)
            : NULL;
    for (int i = 0; items && i < work->count; i++) {
        if (items[i].token < 0 || items[i].row < 0 || items[i].expert < 0) {
            mo_op_refuse(job, "has item %d with token %d, row %d, expert %d", i, items[i].token, items[i].row,
                         items[i].expert);
        }
    }
    *count = items && job->status == MO_OK ? work->count : 0;
    return items;
}

static mo_daddr part_of(const mo_dwork_item *item, int64_t offset)
{
    return item->base ? item->base + (mo_daddr)offset : 0;
}

static void run_in(mo_op_job *job, const mo_op_experts *o, const mo_dwork_item *item)
{
    const mo_op_matrix gate = mo_op_matrix_at(job, "gate", &o->gate, item->base, item->expert);
    const mo_op_matrix up = mo_op_matrix_at(job, "up", &o->up, part_of(item, o->up_at), item->expert);
    const mo_acts gate_in = mo_op_acts_for(job, "in", &o->in, item->token + INT64_C(1), &o->gate);
    const mo_acts up_in = mo_op_acts_for(job, "in", &o->in, item->token + INT64_C(1), &o->up);
    const mo_acts hidden = mo_op_acts(job, "hidden", &o->hidden, item->row + INT64_C(1), true, true);
    const int64_t n = o->gate.rows;
    for (int64_t r = 0; job->status == MO_OK && r < n; r += PIECE) {
        const int64_t end = r + PIECE < n ? r + PIECE : n;
        float g[PIECE], u[PIECE];
        mo_op_multiply(job, &gate, r, end, &gate_in, &item->token, 1, g, PIECE);
        mo_op_multiply(job, &up, r, end, &up_in, &item->token, 1, u, PIECE);
        mo_activate_row(job->k, (mo_activation)o->activation, o->limit, hidden.x + item->row * n + r, g, u,
                        end - r);
    }
    if (job->status == MO_OK) {
        mo_op_quantize(job->k, &hidden, item->row);
    }
}

mo_status mo_op_host_experts_in(mo_op_job *job, const mo_op_experts *o)
{
    int count;
    const mo_dwork_item *items = items_of(job, o, &count);
    if (o->gate.rows != o->up.rows || o->gate.rows != o->hidden.cols) {
        mo_op_refuse(job, "has %d rows of gate, %d of up and %d values in hidden", o->gate.rows, o->up.rows,
                     o->hidden.cols);
    }
    for (int i = 0; job->status == MO_OK && i < count; i++) {
        run_in(job, o, &items[i]);
    }
    return job->status;
}

mo_status mo_op_host_experts_down(mo_op_job *job, const mo_op_experts *o)
{
    int count;
    const mo_dwork_item *items = items_of(job, o, &count);
    const int64_t n = o->down.rows;
    for (int i = 0; job->status == MO_OK && i < count; i++) {
        const mo_dwork_item *item = &items[i];
        const mo_op_matrix down =
            mo_op_matrix_at(job, "down", &o->down, part_of(item, o->down_at), item->expert);
        const mo_acts in = mo_op_acts_for(job, "hidden", &o->hidden, item->row + INT64_C(1), &o->down);
        float *y = mo_op_floats(job, "y", o->y, (item->row + INT64_C(1)) * n);
        if (job->status == MO_OK) {
            mo_op_multiply(job, &down, 0, n, &in, &item->row, 1, y + item->row * n, n);
        }
    }
    return job->status;
}
