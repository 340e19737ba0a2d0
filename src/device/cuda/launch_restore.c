#include "base/status.h"
#include "device/cuda/launch.h"
#include "device/cuda/restore.h"

int mo_cuda_launch_restore(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err)
{
    (void)compute;
    (void)sms;
    const mo_op_restore *o = &op->restore;
    int32_t tiles = 0;
    for (int i = 0; i < o->parts; i++) {
        if (mo_format_bytes(o->type[i]) == 0) {
            mo_fail(err, MO_EINVAL, "no kernel restores matrices of type %d", o->type[i]);
            return -1;
        }
        const mo_restore_cut cut = mo_restore_cut_of(o->type[i], o->rows[i], o->cols[i], o->group[i]);
        tiles = cut.tiles > tiles ? cut.tiles : tiles;
    }
    *out = (mo_cuda_launch){.kernel = "mo_restore",
                            .grid = {(uint32_t)tiles, (uint32_t)o->parts, (uint32_t)o->count},
                            .block = {MO_RESTORE_THREADS, 1, 1}};
    return tiles > 0 && o->count > 0 ? 1 : 0;
}
