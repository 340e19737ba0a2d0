/* Bind: from tensor names to the pointers of a model's parts. Binding looks up a tensor, checks its shape and
 * records where its bytes go. The loader later fills memory and sets the pointers. So a model can be
 * described (and planned) without loading it. */
#ifndef MO_MODEL_BIND_H
#define MO_MODEL_BIND_H

#include "base/arena.h"
#include "gguf/read.h"
#include "model/parts.h"

typedef enum mo_place {
    MO_PLACE_CORE,   /* a matrix that every token reads */
    MO_PLACE_EXPERT, /* a matrix of an expert */
    MO_PLACE_TABLE,  /* the embedding: rows are looked up, so it keeps the file's layout */
    MO_PLACE_VECTOR, /* converted to F32 */
} mo_place;

/* Pointers that wait for a tensor: `count` of them, `step` bytes apart in memory (one, or one in each expert
 * of a layer), so that 512 experts take one binding. Pointer i gets the data at first + i * stride. */
typedef struct mo_binding {
    const mo_gguf_tensor *tensor;
    mo_place place;
    const mo_moe *moe; /* the experts it belongs to; NULL: every token reads it */
    int64_t count;
    size_t step;
    int64_t first, stride; /* inside the tensor: bytes for a matrix, values for a vector */
    mo_weights *matrix;    /* its data is set, or */
    const float **vector;  /* the pointer to floats is set; the whole tensor is loaded, once */
    float times;           /* factor applied to a vector at loading; 0: none */
    int64_t taps;          /* the vector has shape [taps, n] and is stored as [taps][n]; 0: unchanged */
    int64_t below;         /* integers from 0 to less than this, converted to floats; 0: not integers */
    /* row numbers of a matrix whose rows are gathered in this order, matrix->rows of them; or NULL */
    const int32_t *rows;
    int64_t unit; /* rows that are computed together: groups of interleaved rows must divide them; 0: all */
    /* a matrix of `turns` parts, each the transpose of matrix->cols rows, `stride` bytes apart; converted to
     * F32. 0: unchanged */
    int64_t turns;
} mo_binding;

/* True if the matrix is not a contiguous range of the file: it is then built at loading and stays. */
static inline bool mo_binding_made(const mo_binding *b)
{
    return b->rows || b->turns;
}

/* Pointer i of the matrices, or of the vectors. */
static inline mo_weights *mo_binding_matrix(const mo_binding *b, int64_t i)
{
    return (mo_weights *)((uint8_t *)b->matrix + (size_t)i * b->step);
}

static inline const float **mo_binding_vector(const mo_binding *b, int64_t i)
{
    return (const float **)((uint8_t *)b->vector + (size_t)i * b->step);
}

/* A rope whose frequency factors are a tensor, so that it can only be prepared after loading. */
typedef struct mo_rope_binding {
    mo_rope_setup setup;
    const float *factors; /* set when loaded */
    mo_rope *rope;        /* in the arena */
    struct mo_rope_binding *next;
} mo_rope_binding;

typedef struct mo_binder {
    const mo_gguf *gguf;
    mo_arena *arena; /* of the model: owns the descriptions */
    mo_error *err;
    mo_status status;     /* the first failure; later calls have no effect */
    mo_binding *bindings; /* malloc'ed */
    size_t count, limit;
    mo_rope_binding *ropes; /* in the arena */
    int64_t context;        /* positions of a session; 0: unknown */
} mo_binder;

/* Frees the list of bindings. Descriptions stay valid. */
void mo_bind_free(mo_binder *b);

/* The functions below record the first failure in the binder: a family binds everything it needs, and the
 * caller checks once. Names are printf formats without the ".weight" of most tensors. */

/* True if the file has "NAME.weight". */
bool mo_bind_has(mo_binder *b, const char *fmt, ...) MO_PRINTF(2, 3);

/* Rows of NAME.weight; 0: the file has none. */
int64_t mo_bind_rows_of(mo_binder *b, const char *fmt, ...) MO_PRINTF(2, 3);

/* Requires a tensor, named with its suffix: for biases and scales that a family cannot do without. */
void mo_bind_need(mo_binder *b, const char *fmt, ...) MO_PRINTF(2, 3);

/* NAME.weight of cols x rows, with NAME.bias and NAME.scale if the file has them. */
void mo_bind_linear(mo_binder *b, mo_linear *out, int64_t cols, int64_t rows, const char *fmt, ...)
    MO_PRINTF(5, 6);

/* Without the scale: for routers, because gemma4 uses NAME.scale for something else. */
void mo_bind_unscaled(mo_binder *b, mo_linear *out, int64_t cols, int64_t rows, const char *fmt, ...)
    MO_PRINTF(5, 6);

/* Rows [row, row + rows) of NAME.weight, which has `total` rows. */
void mo_bind_rows(mo_binder *b, mo_linear *out, int64_t cols, int64_t row, int64_t rows, int64_t total,
                  const char *fmt, ...) MO_PRINTF(7, 8);

/* The same for a matrix whose rows are gathered in the given order (row numbers, in the model's arena). A
 * bias is rejected: no file has one. */
void mo_bind_gather(mo_binder *b, mo_linear *out, int64_t cols, const int32_t *order, int64_t rows,
                    int64_t total, const char *fmt, ...) MO_PRINTF(7, 8);

/* Multiplies the product of a bound matrix, with scale and bias, by the factor. Free if the file has a
 * scale. */
void mo_bind_factor(mo_binder *b, mo_linear *of, float factor);

/* NAME.weight of `parts` stacked matrices of cols x rows, as one matrix of parts * rows rows, for products
 * part by part; with NAME.scale. A bias is rejected: no file has one. */
void mo_bind_stacked(mo_binder *b, mo_linear *out, int64_t cols, int64_t rows, int64_t parts, const char *fmt,
                     ...) MO_PRINTF(6, 7);

/* The same for a tensor that may also be one matrix with the rows of all parts. */
void mo_bind_grouped(mo_binder *b, mo_linear *out, int64_t cols, int64_t rows, int64_t parts, const char *fmt,
                     ...) MO_PRINTF(6, 7);

/* The same, built from a matrix that has `total` rows per part: rows [row, row + cols) of each, transposed.
 * It is F32 in memory: no format has blocks across rows. */
void mo_bind_turned(mo_binder *b, mo_linear *out, int64_t cols, int64_t rows, int64_t parts, int64_t row,
                    int64_t total, const char *fmt, ...) MO_PRINTF(8, 9);

/* A vector of n values, named with its suffix ("blk.0.attn_norm.weight"). */
void mo_bind_vector(mo_binder *b, const float **out, int64_t n, const char *fmt, ...) MO_PRINTF(4, 5);
/* As above, or NULL when the file has none. */
void mo_bind_optional(mo_binder *b, const float **out, int64_t n, const char *fmt, ...) MO_PRINTF(4, 5);
/* A tensor of shape [n, count], unchanged: `count` consecutive vectors. */
void mo_bind_vectors(mo_binder *b, const float **out, int64_t n, int64_t count, const char *fmt, ...)
    MO_PRINTF(5, 6);
/* A tensor of shape [taps, n] or [taps, 1, n], transposed to [taps][n]. */
void mo_bind_taps(mo_binder *b, const float **out, int taps, int64_t n, const char *fmt, ...) MO_PRINTF(5, 6);

/* A tensor of shape [n, count] of integers from 0 to less than `below`, converted to floats. */
void mo_bind_numbers(mo_binder *b, const float **out, int64_t n, int64_t count, int64_t below,
                     const char *fmt, ...) MO_PRINTF(6, 7);

/* The embedding. */
void mo_bind_table(mo_binder *b, mo_weights *out, int64_t cols, int64_t rows, const char *name);

/* The experts of layer n: merged ffn_gate_up_exps, separate ffn_{gate,up,down}_exps, or one tensor per expert
 * (blk.N.ffn_gate.E.weight), with scales and biases; without the gate if the activation has none. Needs
 * moe->experts, used, width and activation; sets io, allocates moe->expert. */
void mo_bind_experts(mo_binder *b, int layer, int64_t width_in, mo_moe *moe);

/* A rope for this setup, with the factors of `rope_freqs.weight` if with_factors is set and the file has that
 * tensor (setup->factors is ignored). NULL after a failure. */
const mo_rope *mo_bind_rope(mo_binder *b, const mo_rope_setup *setup, bool with_factors);

/* The same with the factors of the tensor NAME.weight, which is required. */
const mo_rope *mo_bind_rope_by(mo_binder *b, const mo_rope_setup *setup, const char *name);

/* After loading: prepares the ropes that waited for their factors. */
void mo_bind_finish(mo_binder *b);

/* `count` zeroed elements in the model's arena; NULL: out of memory, recorded as a failure. */
void *mo_bind_alloc(mo_binder *b, size_t count, size_t bytes);

/* Records a failure of the family. */
void mo_bind_fail(mo_binder *b, mo_status status, const char *fmt, ...) MO_PRINTF(3, 4);

#endif
