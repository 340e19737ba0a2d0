/* Launches of matrix-matrix products, and the table of formats that have panels: strips (strip.cu) for few tokens; for more, panels (panel.cu)
 * where a device has shared memory for them and a format has one, else tiles (grouped.cu). Float matrices go by themselves (floats.cu). */
#include "base/status.h"
#include "device/cuda/floats_launch.h"
#include "device/cuda/panel_launch.h"
#include "device/cuda/strip_launch.h"
#include "device/cuda/tile.h"

enum {
    STRIP_GROUP =
        32, /* tokens of a group, on average, up to which strips are faster than tiles (measured, as the next two) */
    STRIP_PRODUCT = 32, /* tokens of any product */
    STRIP_MOST = 64,    /* and of one whose rows are few */
    PANEL_COMPUTE = 80, /* from here on a block may have 99 KiB of shared memory */
};

/* ---- The table ---- */

static const mo_panel_family k = {{"mo_panel_product_k_wide", "mo_panel_product_k_small"}},
                             plain = {{"mo_panel_product_plain_wide", "mo_panel_product_plain_small"}};

static const mo_product_row table[] = {
    {MO_MXFP4, 24, "mo_panel_grouped_mxfp4", NULL, &plain},
    {MO_NVFP4, 24, "mo_panel_grouped_nvfp4", NULL, &plain},
    {MO_Q8_0, 24, "mo_panel_grouped_q8_0", NULL, &plain},
    {MO_Q5_0, 24, "mo_panel_grouped_q5_0", NULL, &plain},
    {MO_Q4_K, 24, "mo_panel_grouped_q4_k", "mo_panel_grouped_q4_k_narrow", &k},
    {MO_Q5_K, 24, "mo_panel_grouped_q5_k", NULL, &k},
    {MO_Q6_K, 24, "mo_panel_grouped_q6_k", "mo_panel_grouped_q6_k_narrow", &k},
};

const mo_product_row *mo_cuda_product_row(int32_t type)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (table[i].type == type) {
            return &table[i];
        }
    }
    return NULL;
}

/* ---- Tiles ---- */

typedef struct shape {
    int rows, tokens, ahead, threads; /* as mo_shape in tile.cuh */
} shape;

static const shape shapes[MO_TILE_SHAPES] = {
    [MO_TILE_WIDE] = {128, 128, 1, 256},
    [MO_TILE_MIDDLE] = {64, 64, 1, 128},
};

#define NAMES(op, fold)                                                                                      \
    {                                                                                                        \
        "mo_" op "_" fold "_wide", "mo_" op "_" fold "_middle"                                               \
    }
#define FOLDS(op)                                                                                            \
    {                                                                                                        \
        [MO_FOLD_PLAIN] = NAMES(op, "plain"), [MO_FOLD_MINIMUM] = NAMES(op, "minimum"),                      \
        [MO_FOLD_HALF_MINIMA] = NAMES(op, "half_minima"), [MO_FOLD_HALVES] = NAMES(op, "half_scales"),       \
        [MO_FOLD_TWO_STEPS] = NAMES(op, "two_steps"),                                                        \
    }
static const char *const grouped_names[MO_FOLD_NONE][MO_TILE_SHAPES] = FOLDS("grouped");
static const char *const product_names[MO_FOLD_NONE][MO_TILE_SHAPES] = FOLDS("product_tile");

/* Wide tiles do the most work per decoded weight; smaller ones where tokens are few, where wide ones would leave
 * multiprocessors without work, and where shared memory ends at 64 KiB (capability 7.5). average: tokens of a group;
 * row_tiles: of wide tiles, all groups together. */
static mo_tile_shape choose_shape(int64_t average, int64_t row_tiles, int compute, int sms)
{
    if (compute < 80 || average <= 48 || row_tiles * ((average + 127) / 128) < sms) {
        return MO_TILE_MIDDLE;
    }
    return MO_TILE_WIDE;
}

int mo_cuda_launch_tiles(mo_cuda_launch *out, const char *kernel, int64_t x, int64_t y, int64_t z,
                         int threads, int shared, mo_error *err)
{
    if (x > INT32_MAX || y > MO_CUDA_GRID_LIMIT || z > MO_CUDA_GRID_LIMIT) {
        mo_fail(err, MO_EUNSUPPORTED,
                "a product of %lld x %lld x %lld tiles is too large for one launch; use smaller batches",
                (long long)x, (long long)y, (long long)z);
        return -1;
    }
    *out = (mo_cuda_launch){.kernel = kernel,
                            .grid = {(uint32_t)x, (uint32_t)y, (uint32_t)z},
                            .block = {(uint32_t)threads, 1, 1},
                            .shared = (uint32_t)shared};
    return 0;
}

/* Can the kernels multiply this matrix? */
static bool check_matrix(const mo_dmatrix *m, mo_error *err)
{
    const mo_format *f = m->type >= 0 ? mo_format_of((uint32_t)m->type) : NULL;
    if (!f || f->kind == MO_KIND_INTEGER) {
        mo_fail(err, MO_EUNSUPPORTED, "products with matrices of type %d are not supported on a GPU",
                (int)m->type);
        return false;
    }
    if (m->rows <= 0 || m->cols <= 0 || m->cols % f->block_values != 0) {
        mo_fail(err, MO_EINVAL,
                "a %s matrix of %d rows and %d columns cannot be multiplied: its rows are not whole blocks",
                f->name, (int)m->rows, (int)m->cols);
        return false;
    }
    return true;
}

int mo_cuda_launch_grouped(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err)
{
    const mo_op_grouped *g = &op->grouped;
    if (g->count <= 0 || g->rows <= 0 || g->most <= 0) {
        return 0;
    }
    if (!check_matrix(&g->matrix, err)) {
        return -1;
    }
    const mo_fold fold = mo_tile_fold_of(g->matrix.type);
    if (fold == MO_FOLD_NONE) {
        return mo_cuda_launch_floats_grouped(g, compute, sms, out, err);
    }
    const int64_t row_tiles = mo_cuda_tiles_of(g->matrix.rows, shapes[MO_TILE_WIDE].rows) * g->count;
    const int64_t average =
        g->most < mo_cuda_tiles_of(g->rows, g->count) ? g->most : mo_cuda_tiles_of(g->rows, g->count);
    const mo_product_row *row = compute >= PANEL_COMPUTE ? mo_cuda_product_row(g->matrix.type) : NULL;
    if (average <= (row ? row->strips : STRIP_GROUP) && g->count <= MO_CUDA_GRID_LIMIT) {
        mo_cuda_launch_strip_grouped(g, out);
        return 1;
    }
    if (row) {
        mo_cuda_launch_panel_grouped(g, average, out);
        return 1;
    }
    /* NVFP4's comes here where there is no shared memory for panels, and so none for wide tiles. */
    const mo_tile_shape chosen =
        fold == MO_FOLD_TWO_STEPS ? MO_TILE_MIDDLE : choose_shape(average, row_tiles, compute, sms);
    const shape *s = &shapes[chosen];
    const int shared =
        mo_tile_lay(s->rows, s->tokens, s->ahead, fold, mo_span_of(g->matrix.type).chunks).bytes;
    return mo_cuda_launch_tiles(out, grouped_names[fold][chosen], mo_cuda_tiles_of(g->matrix.rows, s->rows),
                                mo_cuda_tiles_of(g->most, s->tokens), g->count, s->threads, shared, err) < 0
               ? -1
               : 1;
}

/* One launch for all matrices of a fold. Returns how many: 0 or 1; -1 on failure. */
static int launch_fold(const mo_op_product *p, mo_fold fold, int compute, int sms, mo_cuda_launch *out,
                       mo_error *err)
{
    int64_t wide = 0;
    int chunks = 0;
    for (int i = 0; i < p->count; i++) {
        if (p->matrix[i].data && mo_tile_fold_of(p->matrix[i].type) == fold) {
            const int own = mo_span_of(p->matrix[i].type).chunks;
            wide += mo_cuda_tiles_of(p->matrix[i].rows, shapes[MO_TILE_WIDE].rows);
            chunks = own > chunks ? own : chunks;
        }
    }
    if (wide == 0) {
        return 0;
    }
    const mo_tile_shape chosen = choose_shape(p->tokens, wide, compute, sms);
    const shape *s = &shapes[chosen];
    int64_t row_tiles = 0;
    for (int i = 0; i < p->count; i++) {
        if (p->matrix[i].data && mo_tile_fold_of(p->matrix[i].type) == fold) {
            row_tiles += mo_cuda_tiles_of(p->matrix[i].rows, s->rows);
        }
    }
    return mo_cuda_launch_tiles(out, product_names[fold][chosen], row_tiles,
                                mo_cuda_tiles_of(p->tokens, s->tokens), 1, s->threads,
                                mo_tile_lay(s->rows, s->tokens, s->ahead, fold, chunks).bytes, err) < 0
               ? -1
               : 1;
}

/* Would tiles, which take all tokens at once, leave multiprocessors without work? */
static bool suits_strips(const mo_op_product *p, int sms)
{
    int64_t tiles = 0;
    for (int i = 0; i < p->count; i++) {
        if (p->matrix[i].data && mo_tile_fold_of(p->matrix[i].type) != MO_FOLD_NONE) {
            tiles += mo_cuda_tiles_of(p->matrix[i].rows, shapes[MO_TILE_MIDDLE].rows);
        }
    }
    return p->tokens <= STRIP_MOST && tiles < sms;
}

int mo_cuda_launch_product_wide(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err)
{
    const mo_op_product *p = &op->product;
    if (p->tokens <= 0) {
        return 0;
    }
    for (int i = 0; i < p->count; i++) {
        if (p->matrix[i].data && !check_matrix(&p->matrix[i], err)) {
            return -1;
        }
    }
    const bool strips = p->tokens <= STRIP_PRODUCT || suits_strips(p, sms);
    int count = strips                     ? mo_cuda_launch_strip_product(p, sms, out)
                : compute >= PANEL_COMPUTE ? mo_cuda_launch_panel_product(p, sms, out)
                                           : 0;
    const bool tiles = count == 0 && !strips;
    for (int fold = 0; tiles && fold < MO_FOLD_NONE; fold++) {
        const int more = launch_fold(p, (mo_fold)fold, compute, sms, out + count, err);
        if (more < 0) {
            return -1;
        }
        count += more;
    }
    const int floats = mo_cuda_launch_floats_product(p, compute, sms, out + count, err);
    return floats < 0 ? -1 : count + floats;
}
