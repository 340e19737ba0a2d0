/* A model whose experts are divided among ranks: who gets which. */
#include <stdlib.h>

#include "api/cluster.h"
#include "base/status.h"

/* Whole experts by their shares. Every rank but 0 has some, however slow the network: it was started to help. */
static mo_status round_shares(const double *upto, int ranks, int experts, int *first, mo_error *err)
{
    if (ranks - 1 > experts) {
        return mo_fail(err, MO_EINVAL,
                       "the model's layers have %d experts, which cannot be divided among %d ranks; start "
                       "fewer, or set `divide` to layers",
                       experts, ranks);
    }
    first[ranks] = experts;
    for (int r = ranks - 1; r >= 0; r--) {
        first[r] = mo_division_first_expert(upto, r, experts);
        if (r > 0 && first[r] >= first[r + 1]) {
            first[r] = first[r + 1] - 1;
        }
    }
    return MO_OK;
}

mo_status mo_cluster_divide_experts(const mo_division_model *model, int experts,
                                    const mo_division_rank *machines, int ranks, int *first, mo_error *err)
{
    double *upto = calloc((size_t)ranks, sizeof *upto);
    if (!upto) {
        return mo_fail(err, MO_ENOMEM, "no memory for dividing the experts");
    }
    mo_status status = mo_division_make_experts(model, machines, ranks, upto, err);
    if (status == MO_OK) {
        status = round_shares(upto, ranks, experts, first, err);
    }
    free(upto);
    return status;
}
