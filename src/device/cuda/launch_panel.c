/* Launches of the kernels of panel.cu. */
#include "device/cuda/panel.h"
#include "device/cuda/panel_launch.h"

/* Tokens of a group, on average, up to which nearly all groups fit a narrow panel: 118 us instead of 150 for Qwen3-30B's experts with 32. */
enum { NARROW_GROUP = 36 };

static const struct {
    int rows, tokens;
} shapes[MO_PANEL_SHAPES] = {
    [MO_PANEL_OF_WIDE] = {16 * MO_PANEL_WIDE_DOWN, 16 * MO_PANEL_WIDE_N},
    [MO_PANEL_OF_SMALL] = {16 * MO_PANEL_SMALL_DOWN, 16 * MO_PANEL_SMALL_N},
};

static uint32_t tiles_of(int64_t n, int64_t each)
{
    return (uint32_t)((n + each - 1) / each);
}

void mo_cuda_launch_panel_grouped(const mo_op_grouped *op, int64_t average, mo_cuda_launch *out)
{
    const mo_product_row *format = mo_cuda_product_row(op->matrix.type);
    const bool narrow = format->narrow && average <= NARROW_GROUP;
    const int rows = 16 * (narrow ? MO_PANEL_NARROW_DOWN : MO_PANEL_WIDE_DOWN);
    const int tokens = 16 * (narrow ? MO_PANEL_NARROW_N : MO_PANEL_WIDE_N);
    *out = (mo_cuda_launch){
        .kernel = narrow ? format->narrow : format->grouped,
        .grid = {tiles_of(op->matrix.rows, rows), tiles_of(op->rows, tokens) + (uint32_t)op->count, 1},
        .block = {2 * (uint32_t)rows, 1, 1},
        .prelaunch = true,
        .patient = true,
        .shared = (uint32_t)mo_panel_lay(op->matrix.type, rows, tokens).bytes};
}

static bool is_quantized(const mo_dmatrix *m)
{
    return m->data && mo_tile_fold_of(m->type) != MO_FOLD_NONE;
}

static const mo_panel_family *family_of(const mo_dmatrix *m)
{
    const mo_product_row *row = is_quantized(m) ? mo_cuda_product_row(m->type) : NULL;
    return row ? row->family : NULL;
}

/* How long a launch takes in this shape: turns of the multiprocessors times the outputs of a block; small blocks take a quarter more for
 * each (measured). */
static int64_t cost_of(mo_panel_shape s, int64_t tiles, int sms)
{
    return tiles_of(tiles, sms) * (int64_t)shapes[s].rows * shapes[s].tokens *
           (s == MO_PANEL_OF_SMALL ? 5 : 4);
}

static mo_cuda_launch launch_shape(const mo_op_product *op, const mo_panel_family *f, mo_panel_shape s)
{
    mo_cuda_launch l = {.kernel = f->kernel[s],
                        .prelaunch = true,
                        .patient = true,
                        .grid = {0, tiles_of(op->tokens, shapes[s].tokens), 1},
                        .block = {2 * (uint32_t)shapes[s].rows, 1, 1}};
    for (int i = 0; i < op->count; i++) {
        const mo_dmatrix *m = &op->matrix[i];
        if (family_of(m) == f) {
            const uint32_t own = (uint32_t)mo_panel_lay(m->type, shapes[s].rows, shapes[s].tokens).bytes;
            l.grid[0] += tiles_of(m->rows, shapes[s].rows);
            l.shared = own > l.shared ? own : l.shared;
        }
    }
    return l;
}

static void launch_family(const mo_op_product *op, const mo_panel_family *f, int sms, mo_cuda_launch *out)
{
    int64_t least = INT64_MAX;
    for (mo_panel_shape s = 0; s < MO_PANEL_SHAPES; s++) {
        const mo_cuda_launch l = launch_shape(op, f, s);
        const int64_t cost = cost_of(s, (int64_t)l.grid[0] * l.grid[1], sms);
        if (cost < least) {
            least = cost;
            *out = l;
        }
    }
}

int mo_cuda_launch_panel_product(const mo_op_product *op, int sms, mo_cuda_launch *out)
{
    int count = 0;
    for (int i = 0; i < op->count; i++) {
        if (is_quantized(&op->matrix[i]) && !family_of(&op->matrix[i])) {
            return 0;
        }
    }
    for (int i = 0; i < op->count; i++) {
        const mo_panel_family *f = family_of(&op->matrix[i]);
        bool before = false;
        for (int j = 0; f && j < i; j++) {
            before |= family_of(&op->matrix[j]) == f;
        }
        if (f && !before) {
            launch_family(op, f, sms, out + count++);
        }
    }
    return count;
}
