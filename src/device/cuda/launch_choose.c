#include "base/status.h"
#include "device/cuda/choose.h"
#include "device/cuda/launch.h"

int mo_cuda_launch_choose(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err)
{
    (void)compute;
    (void)sms;
    const mo_op_choose *o = &op->choose;
    if (o->experts > MO_OP_EXPERTS || o->used > MO_OP_USED || o->groups > MO_OP_GROUPS ||
        o->used > o->experts) {
        mo_fail(err, MO_EUNSUPPORTED,
                "the GPU kernels choose at most %d of %d experts "
                "in %d groups, but this model needs %d of %d in %d",
                MO_OP_USED, MO_OP_EXPERTS, MO_OP_GROUPS, o->used, o->experts, o->groups);
        return -1;
    }
    if (o->tokens == 0) {
        return 0;
    }
    out[0] = (mo_cuda_launch){.kernel = "mo_choose",
                              .prelaunch = true,
                              .patient = true,
                              .grid = {(uint32_t)o->tokens, 1, 1},
                              .block = {(uint32_t)mo_choose_threads(o), 1, 1}};
    if (!o->table || o->tokens == 1) { /* a single token's list is made on the way */
        return 1;
    }
    out[1] = (mo_cuda_launch){
        .kernel = "mo_choose_list", .prelaunch = true, .grid = {1, 1, 1}, .block = {1024, 1, 1}};
    return 2;
}
