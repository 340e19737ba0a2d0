#include "base/status.h"
#include "device/cuda/launch.h"

/* A thread per expert, in whole warps; at least as many as there are groups and ranks. */
static uint32_t threads_of(const mo_op_choose *o)
{
    const int most = o->groups > o->experts ? o->groups : o->experts;
    return (uint32_t)(most + 31) / 32 * 32;
}

int mo_cuda_launch_choose(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err)
{
    (void)compute;
    (void)sms;
    const mo_op_choose *o = &op->choose;
    if (o->experts > MO_OP_EXPERTS || o->used > MO_OP_USED || o->groups > MO_OP_GROUPS ||
        o->used > o->experts) {
        mo_fail(err, MO_EUNSUPPORTED,
                "the GPU's kernels choose at most %d of %d experts in %d groups, this model asks for %d of "
                "%d in %d",
                MO_OP_USED, MO_OP_EXPERTS, MO_OP_GROUPS, o->used, o->experts, o->groups);
        return -1;
    }
    if (o->tokens == 0) {
        return 0;
    }
    out[0] = (mo_cuda_launch){
        .kernel = "mo_choose", .grid = {(uint32_t)o->tokens, 1, 1}, .block = {threads_of(o), 1, 1}};
    if (!o->table || o->tokens == 1) { /* a single token's list is made on the way */
        return 1;
    }
    out[1] = (mo_cuda_launch){.kernel = "mo_choose_list", .grid = {1, 1, 1}, .block = {1024, 1, 1}};
    return 2;
}
