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

/* Q4_K and Q6_K share a kernel for products. */
typedef enum family { NONE, BYTES, SUPER, FAMILIES } family;

static const struct {
    const char *grouped;
    int32_t type;
    family product;
} types[] = {
    {"mo_panel_grouped_mxfp4", MO_MXFP4, NONE},
    {"mo_panel_grouped_q8_0", MO_Q8_0, BYTES},
    {"mo_panel_grouped_q4_k", MO_Q4_K, SUPER},
    {"mo_panel_grouped_q6_k", MO_Q6_K, SUPER},
};

static const char *const products[FAMILIES][SHAPES] = {
    [BYTES] = {"mo_panel_product_q8_0_wide", "mo_panel_product_q8_0_small"},
    [SUPER] = {"mo_panel_product_k_wide", "mo_panel_product_k_small"},
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

static family family_of(int32_t type)
{
    const int at = find(type);
    return at < 0 ? NONE : types[at].product;
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
        .shared = (uint32_t)mo_panel_lay(op->matrix.type, rows, tokens).bytes};
    return 1;
}

/* Matrices of one family; whether there are any. */
static bool launch_family(const mo_op_product *op, family f, int sms, mo_cuda_launch *out)
{
    for (shape s = WIDE; s < SHAPES; s++) {
        uint32_t tiles = 0;
        int32_t shared = 0;
        for (int i = 0; i < op->count; i++) {
            const mo_dmatrix *m = &op->matrix[i];
            if (m->data && family_of(m->type) == f) {
                const int32_t own = mo_panel_lay(m->type, shapes[s].rows, shapes[s].tokens).bytes;
                tiles += tiles_of(m->rows, shapes[s].rows);
                shared = own > shared ? own : shared;
            }
        }
        const uint32_t turns = tiles_of(op->tokens, shapes[s].tokens);
        if (tiles == 0) {
            return false;
        }
        if (s == SMALL || (int64_t)tiles * turns >= sms) {
            *out = (mo_cuda_launch){.kernel = products[f][s],
                                    .grid = {tiles, turns, 1},
                                    .block = {2 * (uint32_t)shapes[s].rows, 1, 1},
                                    .shared = (uint32_t)shared};
            return true;
        }
    }
    return false;
}

int mo_cuda_launch_panel_product(const mo_op_product *op, int sms, mo_cuda_launch *out)
{
    int count = 0;
    for (int i = 0; i < op->count; i++) {
        if (op->matrix[i].data && family_of(op->matrix[i].type) == NONE) {
            return 0;
        }
    }
    for (family f = BYTES; f < FAMILIES; f++) {
        count += launch_family(op, f, sms, out + count);
    }
    return count;
}
