/* Product: chooses the kernel by type, layout and batch. Included once per instruction set, which names the
 * function with MO_NEON_PRODUCT; everything else is static. */
#include "numeric/arm/neon_few.h"
#include "numeric/arm/neon_float.h"
#include "numeric/arm/neon_matrix.h"
#include "numeric/arm/neon_spans.h"
#include "numeric/products.h"
#include "numeric/reference/reference.h"

/* Below this many tokens a panel costs more than it saves. */
enum { MO_MATRIX_TOKENS = 3 };

typedef struct mo_routes {
    void (*vector[2])(const mo_neon_job *job, int64_t begin, int64_t end);
    mo_panel_unpacker *unpack[2];
    mo_tile_runner *run;
} mo_routes;

#define MO_RUNNER(FOLD)                                                                                      \
    static void run_##FOLD(const mo_panel *panel, const mo_quad *x, int64_t blocks, bool fresh, float *y,    \
                           int64_t y_stride, int64_t rows, int64_t tokens)                                   \
    {                                                                                                        \
        mo_tile_run(MO_FOLD_##FOLD, panel, x, blocks, fresh, y, y_stride, rows, tokens);                     \
    }
MO_RUNNER(PLAIN)
MO_RUNNER(MINIMUM)
MO_RUNNER(SCALED)
MO_RUNNER(HALVES)
MO_RUNNER(HALF_MINIMA)
MO_RUNNER(TWO_STEPS)

#define MO_FOR_LAYOUT(TYPE, LAYOUT)                                                                          \
    static void vector_##TYPE##_##LAYOUT(const mo_neon_job *job, int64_t begin, int64_t end)                 \
    {                                                                                                        \
        if (mo_span_serves(MO_##TYPE)) {                                                                     \
            mo_span_rows(MO_##TYPE, job, begin, end);                                                        \
        } else if (MO_##LAYOUT == MO_GROUPED && mo_format_has_units(MO_##TYPE) && job->count == 2 &&         \
                   (end - begin) % MO_GROUP == 0) {                                                          \
            mo_pair_rows(MO_##TYPE, job, begin, end);                                                        \
        } else if (MO_##LAYOUT == MO_FILED || mo_format_has_units(MO_##TYPE)) {                              \
            mo_vector_rows(MO_##TYPE, MO_##LAYOUT, job, begin, end);                                         \
        }                                                                                                    \
    }                                                                                                        \
    static void unpack_##TYPE##_##LAYOUT(const mo_weights *w, int64_t r, int64_t end, int64_t first,         \
                                         int64_t blocks, mo_panel *panel)                                    \
    {                                                                                                        \
        if (MO_##LAYOUT == MO_FILED || mo_format_has_units(MO_##TYPE)) {                                     \
            mo_panel_unpack(MO_##TYPE, MO_##LAYOUT, w, r, end, first, blocks, panel);                        \
        }                                                                                                    \
    }
#define MO_QUANTIZED(TYPE, ...) MO_FOR_LAYOUT(TYPE, FILED) MO_FOR_LAYOUT(TYPE, GROUPED)
#define MO_ROUTES(TYPE, NUMBER, LOG2, BYTES, FOLD, ...)                                                      \
    [MO_##TYPE] = {{vector_##TYPE##_FILED, vector_##TYPE##_GROUPED},                                         \
                   {unpack_##TYPE##_FILED, unpack_##TYPE##_GROUPED},                                         \
                   run_##FOLD},
MO_QUANTIZED_FORMATS(MO_QUANTIZED)

static const mo_routes routes[MO_TYPE_LIMIT] = {MO_QUANTIZED_FORMATS(MO_ROUTES)};

static void multiply_float(const mo_neon_job *job, int64_t begin, int64_t end)
{
    switch (job->w->type) {
    case MO_F32: mo_float_rows(MO_F32, job, begin, end); break;
    case MO_F16: mo_float_rows(MO_F16, job, begin, end); break;
    default: mo_float_rows(MO_BF16, job, begin, end); break;
    }
}

/* Three or four tokens in a format that has a way for them. False: it has none. */
static bool multiply_few(const mo_neon_job *job, mo_layout layout, int64_t begin, int64_t end)
{
#if defined(__ARM_FEATURE_MATMUL_INT8)
    if (layout == MO_GROUPED && job->count <= MO_TILE_TOKENS && (end - begin) % MO_GROUP == 0 &&
        job->w->cols <= (int64_t)MO_BATCH_QUADS * MO_STRETCH * 32) {
        switch (job->w->type) {
        case MO_Q4_K: mo_few_rows(MO_Q4_K, job, begin, end); return true;
        case MO_Q5_K: mo_few_rows(MO_Q5_K, job, begin, end); return true;
        case MO_Q6_K: mo_few_rows(MO_Q6_K, job, begin, end); return true;
        default: break;
        }
    }
#else
    (void)job, (void)layout, (void)begin, (void)end;
#endif
    return false;
}

/* Rows of one layout. */
static void multiply_rows(const mo_neon_job *job, mo_layout layout, int64_t begin, int64_t end)
{
    const mo_routes *route = &routes[job->w->type];
    if (begin >= end) {
        return;
    }
    if (job->count < MO_MATRIX_TOKENS || job->w->cols == 0) {
        route->vector[layout](job, begin, end);
    } else if (!multiply_few(job, layout, begin, end)) {
        mo_matrix_rows(mo_shape_of(job->w->type), route->unpack[layout], route->run, job, begin, end);
    }
}

MO_PRODUCT(MO_NEON_PRODUCT)
{
    mo_tell_product(w, row_begin, row_end, acts, pick, count, y, y_stride);
    const mo_neon_job job = {w, acts, pick, count, y, y_stride, scratch};
    if (mo_format_of(w->type)->kind == MO_KIND_FLOAT) {
        multiply_float(&job, row_begin, row_end);
        return;
    }
    /* Rows of whole groups are interleaved, the rest is in the file's layout behind them. */
    const int64_t grouped = w->interleave && mo_format_has_units(w->type) ? w->rows / MO_GROUP * MO_GROUP : 0;
    const bool known = w->interleave == 0 || w->interleave == MO_GROUP || !mo_format_has_units(w->type);
    if (!known || (row_begin < grouped && row_begin % MO_GROUP)) {
        mo_reference_product(w, row_begin, row_end, acts, pick, count, y, y_stride, scratch);
        return;
    }
    multiply_rows(&job, MO_GROUPED, row_begin, row_end < grouped ? row_end : grouped);
    multiply_rows(&job, MO_FILED, row_begin > grouped ? row_begin : grouped, row_end);
}
