/* Launches of the kernels of panel.cu. */
#include "device/cuda/panel.h"
#include "device/cuda/panel_launch.h"

typedef enum shape { WIDE, SMALL, SHAPES } shape;

static const struct {
    int rows, tokens;
} shapes[SHAPES] = {
    [WIDE] = {16 * MO_PANEL_WIDE_DOWN, 16 * MO_PANEL_WIDE_N},
    [SMALL] = {16 * MO_PANEL_SMALL_DOWN, 16 * MO_PANEL_SMALL_N},
};

/* Formats that stand side by side in models share a kernel for products: one launch for all such matrices of an op. */
typedef enum family { SUPER, BYTES, FAMILIES } family;

static const struct {
    const char *grouped;
    int32_t type;
    family product;
} types[] = {
    {"mo_panel_grouped_mxfp4", MO_MXFP4, BYTES}, {"mo_panel_grouped_q8_0", MO_Q8_0, BYTES},
    {"mo_panel_grouped_q5_0", MO_Q5_0, BYTES},   {"mo_panel_grouped_nvfp4", MO_NVFP4, BYTES},
    {"mo_panel_grouped_q4_k", MO_Q4_K, SUPER},   {"mo_panel_grouped_q5_k", MO_Q5_K, SUPER},
    {"mo_panel_grouped_q6_k", MO_Q6_K, SUPER},
};

static const char *const products[FAMILIES][SHAPES] = {
    [SUPER] = {"mo_panel_product_k_wide", "mo_panel_product_k_small"},
    [BYTES] = {"mo_panel_product_plain_wide", "mo_panel_product_plain_small"},
};

static int find(int32_t type)
{
    for (int i = 0; i < (int)(sizeof types / sizeof *types); i++) {
        if (types[i].type == type) {
            return i;
        }
    }
    return -1;
}

/* FAMILIES: no panel. */
static family family_of(int32_t type)
{
    const int at = find(type);
    return at < 0 ? FAMILIES : types[at].product;
}

static uint32_t tiles_of(int64_t n, int64_t each)
{
    return (uint32_t)((n + each - 1) / each);
}

int mo_cuda_launch_panel_grouped(const mo_op_grouped *op, mo_cuda_launch *out)
{
    const int type = find(op->matrix.type);
    const int rows = shapes[WIDE].rows, tokens = shapes[WIDE].tokens;
    if (type < 0) {
        return 0;
    }
    *out = (mo_cuda_launch){
        .kernel = types[type].grouped,
        .grid = {tiles_of(op->matrix.rows, rows), tiles_of(op->rows, tokens) + (uint32_t)op->count, 1},
        .block = {2 * (uint32_t)rows, 1, 1},
        .prelaunch = true,
        .patient = true,
        .shared = (uint32_t)mo_panel_lay(op->matrix.type, rows, tokens).bytes};
    return 1;
}

/* How long a launch takes in this shape: turns of the multiprocessors times the outputs of a block; small blocks take a quarter more for
 * each (measured). */
static int64_t cost_of(shape s, int64_t tiles, int sms)
{
    return tiles_of(tiles, sms) * (int64_t)shapes[s].rows * shapes[s].tokens * (s == SMALL ? 5 : 4);
}

static mo_cuda_launch launch_shape(const mo_op_product *op, family f, shape s)
{
    mo_cuda_launch l = {.kernel = products[f][s],
                        .prelaunch = true,
                        .patient = true,
                        .grid = {0, tiles_of(op->tokens, shapes[s].tokens), 1},
                        .block = {2 * (uint32_t)shapes[s].rows, 1, 1}};
    for (int i = 0; i < op->count; i++) {
        const mo_dmatrix *m = &op->matrix[i];
        if (m->data && family_of(m->type) == f) {
            const uint32_t own = (uint32_t)mo_panel_lay(m->type, shapes[s].rows, shapes[s].tokens).bytes;
            l.grid[0] += tiles_of(m->rows, shapes[s].rows);
            l.shared = own > l.shared ? own : l.shared;
        }
    }
    return l;
}

/* Matrices of one family; whether there are any. */
static bool launch_family(const mo_op_product *op, family f, int sms, mo_cuda_launch *out)
{
    int64_t least = INT64_MAX;
    for (shape s = WIDE; s < SHAPES; s++) {
        const mo_cuda_launch l = launch_shape(op, f, s);
        const int64_t cost = cost_of(s, (int64_t)l.grid[0] * l.grid[1], sms);
        if (cost > 0 && cost < least) {
            least = cost;
            *out = l;
        }
    }
    return least < INT64_MAX;
}

int mo_cuda_launch_panel_product(const mo_op_product *op, int sms, mo_cuda_launch *out)
{
    int count = 0;
    for (int i = 0; i < op->count; i++) {
        if (op->matrix[i].data && mo_tile_fold_of(op->matrix[i].type) != MO_FOLD_NONE &&
            family_of(op->matrix[i].type) == FAMILIES) {
            return 0;
        }
    }
    for (family f = SUPER; f < FAMILIES; f++) {
        count += launch_family(op, f, sms, out + count);
    }
    return count;
}
