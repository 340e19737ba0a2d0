#include "gpu/commit.h"

#include <stdlib.h>

#include "base/status.h"

enum { OPS_OF_LAYER = 2 };

static mo_status run(mo_gpu_drafts *d, const mo_gpu_link *link, const mo_gpu_ops *p, bool keep, mo_error *err)
{
    if (!keep) {
        return mo_gpu_link_launch(link, link->main, p->ops, p->count, err);
    }
    const mo_status status = mo_program_create(link->device, p->ops, p->count, &d->program, err);
    return status == MO_OK ? mo_program_run(d->program, link->main, err) : status;
}

mo_status mo_gpu_commit(mo_gpu_drafts *d, mo_gpu_link *link, int count, const bool *skip, mo_error *err)
{
    const int limit = OPS_OF_LAYER * d->recurrent;
    const bool one = count == 1 && !skip;
    if (limit == 0) {
        return MO_OK;
    }
    mo_status status =
        mo_gpu_link_put(link, link->main, d->slices, d->accepted, sizeof *d->accepted * (size_t)count, err);
    d->applying = true;
    if (status == MO_OK && one && d->program) {
        return mo_program_run(d->program, link->main, err);
    }
    mo_op *ops = malloc(sizeof *ops * (size_t)limit);
    if (!ops) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the operations of drafts");
    }
    mo_gpu_ops p = {.core = d->core,
                    .scratch = d->scratch,
                    .tokens = d->rows,
                    .slices = count,
                    .drafts = d,
                    .ops = ops,
                    .limit = limit};
    for (int i = d->core->first; i < d->core->end; i++) {
        if (d->inputs[i].before && !(skip && skip[i])) {
            mo_gpu_ops_apply(&p, i);
        }
    }
    if (status == MO_OK && p.count > 0) {
        status = run(d, link, &p, one, err);
    }
    free(ops);
    return status;
}
