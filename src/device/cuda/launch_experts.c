/* How large the launches for a worklist's experts are. */
#include "base/status.h"
#include "device/cuda/pairs_launch.h"
#include "device/cuda/rows_launch.h"
#include "device/cuda/slab_launch.h"

enum { MOST_ITEMS = 65535 }; /* of a grid's second dimension */

static int launch_in(const mo_op_experts *e, int compute, mo_cuda_launch *out, mo_error *err)
{
    if (!mo_rows_possible(&e->gate, &e->in, "an expert's gate", err) ||
        !mo_rows_possible(&e->up, &e->in, "an expert's up", err)) {
        return -1;
    }
    if (e->gate.rows != e->up.rows || e->hidden.cols != e->gate.rows) {
        mo_fail(err, MO_EINVAL, "gate has %d rows and up %d, for a hidden row of %d values", e->gate.rows,
                e->up.rows, e->hidden.cols);
        return -1;
    }
    if (mo_cuda_launch_pairs_in(e, out) && mo_rows_slab_suits(compute, out)) {
        return 1;
    }
    if (mo_cuda_launch_slab_in(e, out) && mo_rows_slab_suits(compute, out)) {
        return 1;
    }
    mo_rows_threads threads = {0};
    const mo_rows_shape gate = mo_rows_cut(e->gate.type, e->in.cols, 1);
    const mo_rows_shape up = mo_rows_cut(e->up.type, e->in.cols, 1);
    mo_rows_threads_add(&threads, e->gate.type, &gate, gate.row_bytes);
    mo_rows_threads_add(&threads, e->up.type, &up, up.row_bytes);
    out[0] = (mo_cuda_launch){
        .kernel = "mo_experts_in",
        .prelaunch = true,
        .grid = {(uint32_t)(e->gate.rows + MO_ROWS_TILE - 1) / MO_ROWS_TILE, (uint32_t)e->most, 1},
        .block = {mo_rows_threads_best(&threads, 1), 1, 1},
        .shared = threads.shared};
    return e->gate.rows > 0;
}

/* As many thread blocks as the device holds, shared by the items there can be; each takes equally many steps. */
static int launch_down(const mo_op_experts *e, int compute, int sms, mo_cuda_launch *out, mo_error *err)
{
    if (!mo_rows_possible(&e->down, &e->hidden, "an expert's down", err)) {
        return -1;
    }
    if (mo_cuda_launch_pairs_down(e, compute, out) && mo_rows_slab_suits(compute, out)) {
        return 1;
    }
    if (mo_cuda_launch_slab_down(e, compute, out) && mo_rows_slab_suits(compute, out)) {
        return 1;
    }
    mo_rows_threads threads = {0};
    const mo_rows_shape shape = mo_rows_cut(e->down.type, e->hidden.cols, 1);
    mo_rows_threads_add(&threads, e->down.type, &shape, 1.0);
    const uint32_t size = mo_rows_threads_best(&threads, 1);
    const int steps = (e->down.rows + shape.rows - 1) / shape.rows;
    const int resident = sms * mo_rows_resident(compute, 1, threads.shared, size);
    const int blocks = (resident + e->most - 1) / e->most;
    const int each = (steps + blocks - 1) / blocks;
    out[0] =
        (mo_cuda_launch){.kernel = "mo_experts_down",
                         .prelaunch = true,
                         .grid = {each ? (uint32_t)((steps + each - 1) / each) : 0, (uint32_t)e->most, 1},
                         .block = {size, 1, 1},
                         .shared = threads.shared};
    return steps > 0;
}

int mo_cuda_launch_experts(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err)
{
    const mo_op_experts *e = &op->experts;
    if (e->most <= 0) {
        return 0;
    }
    if (e->most > MOST_ITEMS) {
        mo_fail(err, MO_EUNSUPPORTED, "a worklist of %d rows exceeds the limit of %d per launch", e->most,
                MOST_ITEMS);
        return -1;
    }
    return op->kind == MO_OP_EXPERTS_IN ? launch_in(e, compute, out, err)
                                        : launch_down(e, compute, sms, out, err);
}
