/* A model whose experts are divided among ranks: who gets which. */
#include <stdlib.h>

#include "api/cluster.h"
#include "base/status.h"

mo_status mo_cluster_divide_experts(const mo_division_model *model, int experts,
                                    const mo_division_rank *machines, int ranks, int *first, mo_error *err)
{
    double *upto = calloc((size_t)ranks, sizeof *upto);
    if (!upto) {
        return mo_fail(err, MO_ENOMEM, "out of memory while dividing the experts");
    }
    const mo_status status = mo_division_make_experts(model, machines, ranks, upto, err);
    for (int r = 0; r <= ranks && status == MO_OK; r++) {
        first[r] = mo_division_first_expert(upto, r, experts);
    }
    free(upto);
    return status;
}
