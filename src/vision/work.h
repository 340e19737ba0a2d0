/* Work: the memory and the threads of one picture on its way through an encoder. */
#ifndef MO_VISION_WORK_H
#define MO_VISION_WORK_H

#include "vision/encoder.h"

/* Patches whose scores one thread has at a time; rows of a phase's piece; patches of a product's piece. */
enum { MO_VISION_QUERIES = 64, MO_VISION_ROWS = 8, MO_VISION_PIECE = 256, MO_VISION_BATCH = 512 };

typedef struct mo_vision_work {
    const mo_vision_spec *spec;
    const mo_kernels *kernels;
    mo_pool *pool;
    int threads;           /* of the pool */
    int64_t columns, rows; /* of patches */
    int64_t patches;       /* of the picture */
    int64_t batch;         /* patches of a slice; a multiple of those that are joined */
    float *x;              /* [patches][width], the residual stream */
    uint8_t **blocks;      /* of keys and values (numeric/kv.h), and their number */
    int64_t block_count;
    float *queries; /* [heads][batch][head_len] */
    float *normed;  /* [batch][most that a product reads of the stream] */
    float *a, *b;   /* [batch][most that a product gives] */
    float *chunks;  /* [threads][mo_vision_chunk()] */
    float *spare;   /* [threads][widest row] */
    float *c, *s;   /* [positions][head_len / 4]: cosines and sines of both coordinates */
    float *ones;    /* [widest row] */
    uint8_t *acts;
    mo_scratch *scratch; /* [threads] */
} mo_vision_work;

/* Lays the buffers into memory, which is aligned to 64 bytes; NULL: nothing is laid. The bytes that they take. */
int64_t mo_vision_work_lay(mo_vision_work *w, uint8_t *memory);

/* Keys and values of a patch; and of one head. */
mo_kv_shape mo_vision_cache(const mo_vision_spec *s);
mo_kv_head mo_vision_cache_head(const mo_vision_work *w, int64_t head);

/* Floats of what a thread keeps of MO_VISION_QUERIES queries: what a chunk leaves, and what all so far have left. */
int64_t mo_vision_chunk(const mo_vision_spec *s);

/* Values of the widest row that any step has. */
int64_t mo_vision_widest(const mo_vision_spec *s);

/* y[t * stride + r] = row r . in row t, with bias and limits. in: [count][cols]. */
void mo_vision_product(const mo_vision_work *w, const mo_vision_linear *l, float *in, int64_t count, float *y,
                       int64_t stride);

/* A function of rows 0 .. count-1 on all threads. */
void mo_vision_rows(const mo_vision_work *w, int64_t count, mo_pool_fn fn, void *ctx);

/* y = the norm of x; y may be x. */
void mo_vision_norm_row(const mo_vision_work *w, const mo_vision_norm *n, float *y, const float *x);

/* The activation in its ungated form. spare: a row of the same length. */
void mo_vision_activate(const mo_vision_work *w, mo_vision_activation activation, float *x, int64_t n,
                        float *spare);

/* x[patches][width] after the layer; DeepStack's feature goes to `out`. */
void mo_vision_layer_run(const mo_vision_work *w, const mo_vision_layer *l, float *out);

/* Joined patches first .. first + count - 1, in `in` and of any contents, through fc1, tanh-GELU and fc2 to their rows of out, vector `which`. */
void mo_vision_merge(const mo_vision_work *w, const mo_vision_merger *m, float *in, int64_t first,
                     int64_t count, float *out, int which);

/* qwen3vl_merger: the table, interpolated where the patch lies in a grid of columns x rows patches whose corners are the table's. */
void mo_vision_position(const mo_vision_spec *s, int64_t columns, int64_t rows, int64_t column, int64_t row,
                        float *out);

/* Where patch number i, in the encoder's order, is in the picture, in patches. */
void mo_vision_place(const mo_vision_spec *s, int64_t columns, int64_t i, int64_t *column, int64_t *row);

#endif
