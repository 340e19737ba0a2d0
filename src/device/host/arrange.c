/* The rows of a choice, expert by expert, on the host. */
#include "device/host/ops.h"

/* Rows of each expert, and each expert's first row into first[]. False: one was chosen that is not there. */
static bool count_rows(mo_op_job *job, const mo_op_arrange *o, const int32_t *ids, const mo_daddr *table,
                       int32_t *counts, int32_t *first)
{
    int32_t next = 0;
    for (int32_t e = 0; e < o->experts; e++) {
        counts[e] = 0;
    }
    for (int64_t i = 0; i < (int64_t)o->tokens * o->used; i++) {
        if (ids[i] < 0 || ids[i] >= o->experts || !table[ids[i]]) {
            mo_op_refuse(job, "was given expert %d, which is not on the device", ids[i]);
            return false;
        }
        counts[ids[i]]++;
    }
    for (int32_t e = 0; e < o->experts; e++) {
        first[e] = next;
        next += counts[e];
    }
    return true;
}

mo_status mo_op_host_arrange(mo_op_job *job, const mo_op_arrange *o)
{
    const int64_t rows = (int64_t)o->tokens * o->used;
    int32_t first[MO_OP_EXPERTS];
    if (rows == 0) {
        return MO_OK;
    }
    const int32_t *ids = mo_op_part(job, "ids", o->ids, rows * 4);
    const mo_daddr *table = mo_op_part(job, "table", o->table, o->experts * (int64_t)sizeof(mo_daddr));
    mo_dgroup *groups = mo_op_part(job, "groups", o->groups, 3 * o->limit * (int64_t)sizeof(mo_dgroup));
    int32_t *picks = mo_op_part(job, "picks", o->picks, rows * 4);
    int32_t *row_of = mo_op_part(job, "row_of", o->row_of, rows * 4);
    int32_t *counts = mo_op_part(job, "counts", o->counts, o->experts * INT64_C(4));
    if (job->status != MO_OK || !count_rows(job, o, ids, table, counts, first)) {
        return job->status;
    }
    const int64_t at[3] = {0, o->up_at, o->down_at};
    for (int32_t e = 0; e < o->experts; e++) {
        for (int part = 0; part < 3; part++) {
            groups[part * o->limit + e] = (mo_dgroup){
                .data = table[e] + (mo_daddr)at[part], .expert = e, .first = first[e], .count = counts[e]};
        }
    }
    for (int64_t i = 0; i < rows; i++) {
        const int32_t row = first[ids[i]]++;
        row_of[i] = row;
        picks[row] = (int32_t)(i / o->used);
    }
    return MO_OK;
}
