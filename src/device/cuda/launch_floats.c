/* Launches of the kernels of floats.cu: panels where rows are whole blocks of 32 and their thread blocks, wide or small, keep most
 * multiprocessors busy; otherwise tiles, and for few rows and tokens a warp for each of both. */
#include "base/status.h"
#include "device/cuda/float_panel.h"
#include "device/cuda/floats_launch.h"

enum {
    LARGE_COMPUTE = 80, /* from here on a block may have more than 64 KiB of shared memory */
    FEW_ROWS = 4,
    TILE_ROWS = 32, /* gpt-oss's router and 2048 tokens: 27 to 35 us as tiles, 37 as panels */
};

/* How one launch cuts its matrices. */
typedef struct cut {
    const char *product, *grouped;
    int rows, tokens, each; /* each: of a panel's thread; 0: no panel */
} cut;

enum { WIDE, SMALL, TILE, FEW, CUTS };

static const cut cuts[CUTS] = {
    [WIDE] = {"mo_product_float_wide", "mo_grouped_float_wide", MO_FLOAT_PANEL_DOWN *MO_FLOAT_PANEL_WIDE,
              MO_FLOAT_PANEL_ACROSS *MO_FLOAT_PANEL_WIDE, MO_FLOAT_PANEL_WIDE},
    [SMALL] = {"mo_product_float_small", "mo_grouped_float_small", MO_FLOAT_PANEL_DOWN *MO_FLOAT_PANEL_SMALL,
               MO_FLOAT_PANEL_ACROSS *MO_FLOAT_PANEL_SMALL, MO_FLOAT_PANEL_SMALL},
    [TILE] = {"mo_product_tile_float", "mo_grouped_float", MO_FLOAT_TILE_ROWS, MO_FLOAT_TILE_TOKENS, 0},
    [FEW] = {"mo_product_tile_float_few", NULL, 1, MO_FLOAT_TILE_TOKENS, 0},
};

/* average: tokens of a group. */
static bool fills(const cut *c, int64_t row_tiles, int64_t average, int sms)
{
    return 4 * row_tiles * mo_cuda_tiles_of(average, c->tokens) >= 3 * (int64_t)sms;
}

static int fill(mo_cuda_launch *out, const cut *c, bool grouped, int64_t x, int64_t y, int64_t z,
                mo_error *err)
{
    const int threads = c->each ? 32 * MO_FLOAT_PANEL_WARPS : MO_FLOAT_TILE_THREADS;
    const int shared = c->each ? (int)mo_float_panel_lay(MO_F32, c->each).bytes : 0; /* the largest */
    if (mo_cuda_launch_tiles(out, grouped ? c->grouped : c->product, x, y, z, threads, shared, err) < 0) {
        return -1;
    }
    out->prelaunch = c == &cuts[FEW];
    return 1;
}

int mo_cuda_launch_floats_grouped(const mo_op_grouped *op, int compute, int sms, mo_cuda_launch *out,
                                  mo_error *err)
{
    const int64_t average =
        op->most < mo_cuda_tiles_of(op->rows, op->count) ? op->most : mo_cuda_tiles_of(op->rows, op->count);
    int chosen = op->matrix.cols % 32 == 0 ? WIDE : TILE;
    if (chosen == WIDE &&
        (compute < LARGE_COMPUTE || average < cuts[WIDE].tokens ||
         !fills(&cuts[WIDE], mo_cuda_tiles_of(op->matrix.rows, cuts[WIDE].rows) * op->count, average, sms))) {
        chosen = average < cuts[SMALL].tokens ? TILE : SMALL;
    }
    const cut *c = &cuts[chosen];
    return fill(out, c, true, mo_cuda_tiles_of(op->matrix.rows, c->rows),
                mo_cuda_tiles_of(op->most, c->tokens), op->count, err);
}

/* Row tiles of all float matrices. */
static int64_t row_tiles(const mo_op_product *op, int rows)
{
    int64_t tiles = 0;
    for (int i = 0; i < op->count; i++) {
        if (op->matrix[i].data && mo_tile_fold_of(op->matrix[i].type) == MO_FOLD_NONE) {
            tiles += mo_cuda_tiles_of(op->matrix[i].rows, rows);
        }
    }
    return tiles;
}

int mo_cuda_launch_floats_product(const mo_op_product *op, int compute, int sms, mo_cuda_launch *out,
                                  mo_error *err)
{
    const int64_t rows = row_tiles(op, 1);
    int chosen = rows <= FEW_ROWS ? FEW : rows <= TILE_ROWS ? TILE : compute < LARGE_COMPUTE ? SMALL : WIDE;
    if (rows == 0) {
        return 0;
    }
    while (chosen < TILE && (op->in.cols % 32 != 0 ||
                             !fills(&cuts[chosen], row_tiles(op, cuts[chosen].rows), op->tokens, sms))) {
        chosen++;
    }
    if (chosen == TILE &&
        row_tiles(op, cuts[TILE].rows) * mo_cuda_tiles_of(op->tokens, cuts[TILE].tokens) < sms) {
        chosen = FEW;
    }
    const cut *c = &cuts[chosen];
    return fill(out, c, false, row_tiles(op, c->rows), mo_cuda_tiles_of(op->tokens, c->tokens), 1, err);
}
