/* Bind: from tensor names to the pointers of a model's parts. Binding looks up a tensor, checks its shape
 * and notes where its bytes must go; the loader later fills memory and sets the pointers. So a model can be
 * described (and planned) without being loaded. */
#ifndef MO_MODEL_BIND_H
#define MO_MODEL_BIND_H

#include "base/arena.h"
#include "gguf/read.h"
#include "model/parts.h"

typedef enum mo_place {
    MO_PLACE_CORE,   /* a matrix every token reads */
    MO_PLACE_EXPERT, /* a matrix of an expert */
    MO_PLACE_TABLE,  /* the embedding: rows are looked up, so it keeps the file's layout */
    MO_PLACE_VECTOR, /* becomes F32 */
} mo_place;

/* Pointers that wait for a tensor: `count` of them, `step` bytes apart in memory (one, or one in each expert
 * of a layer), so that 512 experts cost one binding. Number i gets what begins at first + i * stride. */
typedef struct mo_binding {
    const mo_gguf_tensor *tensor;
    mo_place place;
    const mo_moe *moe; /* the experts it is a part of; NULL: every token reads it */
    int64_t count;
    size_t step;
    int64_t first, stride; /* inside the tensor: bytes for a matrix, values for a vector */
    mo_weights *matrix;    /* whose data is set, or */
    const float **vector;  /* what is pointed at floats; the whole tensor is loaded, once */
    float times;           /* a vector that is loaded times this; 0: as it is */
    int64_t taps;          /* a vector of shape [taps, n] that is stored as [taps][n]; 0: as it is */
    int64_t below;         /* integers from 0 to less than this, which become floats; 0: not integers */
    const int32_t
        *rows;    /* a matrix whose rows are gathered in another order: matrix->rows numbers, or NULL */
    int64_t unit; /* rows that are computed together: groups of interleaved rows must divide them; 0: all */
    int64_t
        turns; /* a matrix of `turns` parts, each of which is the transpose of matrix->cols rows that begin `stride` bytes after those
                      of the part before; becomes F32. 0: as it is */
} mo_binding;

/* Is the matrix something else than bytes of the file in their order? Then it is made when the model is loaded and stays. */
static inline bool mo_binding_made(const mo_binding *b)
{
    return b->rows || b->turns;
}

/* Number i of the matrices, or of the vectors' pointers. */
static inline mo_weights *mo_binding_matrix(const mo_binding *b, int64_t i)
{
    return (mo_weights *)((uint8_t *)b->matrix + (size_t)i * b->step);
}

static inline const float **mo_binding_vector(const mo_binding *b, int64_t i)
{
    return (const float **)((uint8_t *)b->vector + (size_t)i * b->step);
}

/* A rotation whose frequency factors are a tensor, so that it can be prepared only after loading. */
typedef struct mo_rope_binding {
    mo_rope_setup setup;
    const float *factors; /* set when loaded */
    mo_rope *rope;        /* in the arena */
    struct mo_rope_binding *next;
} mo_rope_binding;

typedef struct mo_binder {
    const mo_gguf *gguf;
    mo_arena *arena; /* of the model: descriptions live here */
    mo_error *err;
    mo_status status;     /* the first failure; later calls do nothing */
    mo_binding *bindings; /* malloc'ed */
    size_t count, limit;
    mo_rope_binding *ropes; /* in the arena */
    int64_t context;        /* positions of a session; 0: not known yet */
} mo_binder;

/* Frees the list of bindings. What was described stays valid. */
void mo_bind_free(mo_binder *b);

/* Everything below records the first failure in the binder: a family binds all it needs and the caller
 * asks once. Names are printf formats without the ".weight" that most tensors carry. */

/* Does the file have "NAME.weight"? */
bool mo_bind_has(mo_binder *b, const char *fmt, ...) MO_PRINTF(2, 3);

/* Rows of NAME.weight, 0 when the file has none. */
int64_t mo_bind_rows_of(mo_binder *b, const char *fmt, ...) MO_PRINTF(2, 3);

/* A tensor, named with its suffix, that must be there: for biases and scales a family cannot do without. */
void mo_bind_need(mo_binder *b, const char *fmt, ...) MO_PRINTF(2, 3);

/* NAME.weight of cols x rows with NAME.bias and NAME.scale where the file has them. */
void mo_bind_linear(mo_binder *b, mo_linear *out, int64_t cols, int64_t rows, const char *fmt, ...)
    MO_PRINTF(5, 6);

/* Without the scale: for routers, where gemma4 gives NAME.scale another meaning. */
void mo_bind_unscaled(mo_binder *b, mo_linear *out, int64_t cols, int64_t rows, const char *fmt, ...)
    MO_PRINTF(5, 6);

/* Rows [row, row + rows) of NAME.weight, which has `total` rows. */
void mo_bind_rows(mo_binder *b, mo_linear *out, int64_t cols, int64_t row, int64_t rows, int64_t total,
                  const char *fmt, ...) MO_PRINTF(7, 8);

/* The same for a matrix whose rows are taken in the order given (rows numbers, in the model's arena). A
 * bias is refused: no file has one. */
void mo_bind_gather(mo_binder *b, mo_linear *out, int64_t cols, const int32_t *order, int64_t rows,
                    int64_t total, const char *fmt, ...) MO_PRINTF(7, 8);

/* A matrix that was bound: its product with scale and bias is multiplied by the factor, at no further cost where the file has a scale. */
void mo_bind_factor(mo_binder *b, mo_linear *of, float factor);

/* NAME.weight of `parts` stacked matrices of cols x rows as one matrix of parts * rows rows, for products part by part; with NAME.scale. A
 * bias is refused: no file has one. */
void mo_bind_stacked(mo_binder *b, mo_linear *out, int64_t cols, int64_t rows, int64_t parts, const char *fmt,
                     ...) MO_PRINTF(6, 7);

/* The same of a tensor that may also be one matrix of all parts' rows. */
void mo_bind_grouped(mo_binder *b, mo_linear *out, int64_t cols, int64_t rows, int64_t parts, const char *fmt,
                     ...) MO_PRINTF(6, 7);

/* The same made of a matrix that has `total` rows for every part: rows [row, row + cols) of each, transposed. In memory it is F32:
 * no format has blocks across rows. */
void mo_bind_turned(mo_binder *b, mo_linear *out, int64_t cols, int64_t rows, int64_t parts, int64_t row,
                    int64_t total, const char *fmt, ...) MO_PRINTF(8, 9);

/* A vector of n values, named with its suffix ("blk.0.attn_norm.weight"). */
void mo_bind_vector(mo_binder *b, const float **out, int64_t n, const char *fmt, ...) MO_PRINTF(4, 5);
/* As above, or NULL when the file has none. */
void mo_bind_optional(mo_binder *b, const float **out, int64_t n, const char *fmt, ...) MO_PRINTF(4, 5);
/* A tensor of shape [n, count], as it is: `count` vectors one behind the other. */
void mo_bind_vectors(mo_binder *b, const float **out, int64_t n, int64_t count, const char *fmt, ...)
    MO_PRINTF(5, 6);
/* A tensor of shape [taps, n] or [taps, 1, n], transposed to [taps][n]. */
void mo_bind_taps(mo_binder *b, const float **out, int taps, int64_t n, const char *fmt, ...) MO_PRINTF(5, 6);

/* A tensor of shape [n, count] of integers from 0 to less than `below`, which become floats. */
void mo_bind_numbers(mo_binder *b, const float **out, int64_t n, int64_t count, int64_t below,
                     const char *fmt, ...) MO_PRINTF(6, 7);

/* The embedding. */
void mo_bind_table(mo_binder *b, mo_weights *out, int64_t cols, int64_t rows, const char *name);

/* The experts of layer n: merged ffn_gate_up_exps, separate ffn_{gate,up,down}_exps, or one tensor per
 * expert (blk.N.ffn_gate.E.weight), with their scales and biases; an activation without a gate has only the
 * other two. Needs moe->experts, used, width and activation; sets io, allocates moe->expert. */
void mo_bind_experts(mo_binder *b, int layer, int64_t width_in, mo_moe *moe);

/* A rotation as the setup says, whose factors are those of `rope_freqs.weight` when with_factors is set and
 * the file has that tensor (setup->factors is not read). NULL after a failure. */
const mo_rope *mo_bind_rope(mo_binder *b, const mo_rope_setup *setup, bool with_factors);

/* The same with the factors of the tensor NAME.weight, which must be there. */
const mo_rope *mo_bind_rope_by(mo_binder *b, const mo_rope_setup *setup, const char *name);

/* After loading: prepares the rotations that waited for their factors. */
void mo_bind_finish(mo_binder *b);

/* `count` zeroed elements of the model's arena; NULL, and the failure recorded, when memory is out. */
void *mo_bind_alloc(mo_binder *b, size_t count, size_t bytes);

/* Records a failure of the family itself. */
void mo_bind_fail(mo_binder *b, mo_status status, const char *fmt, ...) MO_PRINTF(3, 4);

#endif
