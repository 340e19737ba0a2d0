/* Kernels: one table of functions per instruction set, all with the same bits. `mo_kernels_scalar` is
 * the definition (reference*.c); the others are compared with it by memcmp.
 *
 * Every kernel works on one thread's share; numeric/ops.h cuts operations over a pool. Pointers may not
 * overlap unless a line says so. Nothing here allocates or fails, and no kernel takes more than a few KiB of stack:
 * the threads that call the library are not ours. */
#ifndef MO_NUMERIC_KERNELS_H
#define MO_NUMERIC_KERNELS_H

#include "numeric/acts.h"
#include "numeric/kv.h"
#include "numeric/weights.h"

/* Positions begin .. end - 1. */
typedef struct mo_seen {
    int64_t begin, end;
} mo_seen;

/* A token's inputs to one head of a scan. */
typedef struct mo_scan_head {
    float decay, dt, d;
    const float *x;     /* [n] */
    const float *b, *c; /* [states] */
} mo_scan_head;

/* Where a product or a chunk of attention lays out what it works on: one for each thread that computes, given by the
 * caller. What is in it means nothing before and after. As large as the largest of all instruction sets needs. */
typedef struct mo_scratch {
    _Alignas(64) uint8_t bytes[384 * 1024];
} mo_scratch;

typedef struct mo_kernels {
    const char *name;
    int interleave; /* group size this set's products prefer for weights loaded once; 0: none gains */

    /* Quantizes one row of activations (numerics: Activations). n is a multiple of 32. */
    void (*quantize)(const float *x, int64_t n, int8_t *q, float *d, float *s, int32_t *sum,
                     int16_t *half_sum);

    /* y[t * y_stride + r] = w row r . activation row pick[t], for r in [row_begin, row_end), t in
     * [0, count). pick NULL means row t. Every type of weights; F32, F16 and BF16 use acts->x, the others
     * the codes. With interleaved weights row_begin is a multiple of the group. */
    void (*product)(const mo_weights *w, int64_t row_begin, int64_t row_end, const mo_acts *acts,
                    const int32_t *pick, int64_t count, float *y, int64_t y_stride, mo_scratch *scratch);

    /* The exact values of a row in the file's layout. */
    void (*dequantize)(mo_type type, const uint8_t *row, int64_t cols, float *out);

    /* Sums over a row in the 32-lane order. */
    float (*dot)(const float *a, const float *b, int64_t n);

    /* y = (x * r) * w, r = 1 / sqrt(ss / n + eps); w NULL: y = x * r. y may be x. */
    void (*rms_norm)(float *y, const float *x, const float *w, int64_t n, float eps);
    /* y = x * (1 / max(sqrt(ss), eps)). y may be x. */
    void (*l2_norm)(float *y, const float *x, int64_t n, float eps);
    /* x = exp(x - max) / sum. */
    void (*softmax)(float *x, int64_t n);

    void (*add)(float *y, const float *x, int64_t n);           /* y = y + x */
    void (*multiply)(float *y, const float *x, int64_t n);      /* y = y * x */
    void (*scale)(float *y, float a, int64_t n);                /* y = y * a */
    void (*axpy)(float *y, float a, const float *x, int64_t n); /* y = fma(a, x, y) */

    /* Gated activations: y may be g or u. */
    void (*swiglu)(float *y, const float *g, const float *u, int64_t n); /* silu(g) * u */
    void (*geglu)(float *y, const float *g, const float *u, int64_t n);  /* gelu_tanh(g) * u */
    /* gpt-oss: g' = min(g, limit); u' = clamp(u, -limit, limit); (g' * sigmoid(alpha * g')) * (u' + 1) */
    void (*swiglu_oss)(float *y, const float *g, const float *u, int64_t n, float alpha, float limit);
    /* min(silu(g), limit) * clamp(u, -limit, limit) */
    void (*swiglu_limit)(float *y, const float *g, const float *u, int64_t n, float limit);
    void (*silu)(float *y, const float *x, int64_t n);    /* y may be x */
    void (*sigmoid)(float *y, const float *x, int64_t n); /* y may be x */
    void (*softcap)(float *x, int64_t n, float cap);      /* x = cap * tanh(x / cap) */

    /* Rotates one head in place: pairs (2p, 2p+1), or (p, p + n_rot/2) with neox; c and s hold n_rot/2
     * values made by mo_rope_fill(). Values from n_rot on stay. */
    void (*rope)(float *x, const float *c, const float *s, int64_t n_rot, bool neox);

    /* One chunk of attention over a cache of floats for the queries of `count` tokens, `heads` of each that share the KV head; each token
     * sees one of the spans, which are not empty and all are inside the chunk. Rows of q (k_len), m, l and o
     * (v_len) are [count][heads]. */
    void (*attend)(const mo_kv_head *kv, const mo_seen *spans, int64_t count, const float *q, int64_t heads,
                   float scale, float *m, float *l, float *o, mo_scratch *scratch);
    /* Merges a later chunk (m, l, o) into (M, L, O). o NULL stands for zeros (a sink). */
    void (*attend_merge)(float *M, float *L, float *O, float m, float l, const float *o, int64_t n);
    /* O = O / L. */
    void (*attend_finish)(float *O, float L, int64_t n);

    /* Attention by exact sums, of MO_KV_I16 and MO_KV_Q8_0 (numeric/codes.h).
     * Turns a row of at most MO_KV_LONGEST values and codes it into high[n] and low[n]; low NULL: into one plane. False when a turned
     * value is not finite: codes and scale are then 0. */
    bool (*code)(const float *x, int64_t n, int8_t *high, int8_t *low, float *scale);
    void (*turn_back)(float *x, int64_t n);
    /* As attend(), of one chunk of MO_KV_BLOCK positions. Rows of q are a coded query each, high and low plane padded with
     * zeros to mo_kv_padded(k_len); g is its (scale * attention's scale) * 256. Of latent rows a plane is mo_kv_plane() bytes and g has
     * two numbers for each, of value and tail. Left are m, l, r and, in rows of v_len, the integer sums t as floats. */
    void (*attend_codes)(const mo_kv_head *kv, const mo_seen *spans, int64_t count, const int8_t *q,
                         const float *g, int64_t heads, float *m, float *l, float *r, float *t,
                         mo_scratch *scratch);
    /* Merges a later chunk into (M, L, O), which before the first one are -infinity, 0 and zeros. */
    void (*merge_codes)(float *M, float *L, float *O, float m, float l, float r, const float *t, int64_t n);

    /* Causal depthwise convolution of n channels at one position: y[c] = fma over taps j ascending of
     * w[j * stride + c] and rows[j][c], from +0. */
    void (*convolve)(float *y, const float *const *rows, const float *w, int64_t taps, int64_t stride,
                     int64_t n);

    /* One token of the gated delta rule for one value head (numerics: Other operations). state is
     * [k_len][v_len]; out[v_len] is already multiplied by scale. */
    void (*delta)(float *state, int64_t k_len, int64_t v_len, const float *q, const float *k, const float *v,
                  float decay, float beta, float scale, float *out);
    /* The same with a decay for each row of the state. */
    void (*delta_rows)(float *state, int64_t k_len, int64_t v_len, const float *q, const float *k,
                       const float *v, const float *decay, float beta, float scale, float *out);
    /* Decays of a head's channels, in place: exp(a * softplus(y + dt)); with a bound, which is not 0, exp(bound * sigmoid(a * (y + dt))). */
    void (*decay)(float *y, const float *dt, float a, float bound, int64_t n);

    void (*softplus)(float *y, const float *x, int64_t n); /* y may be x */
    /* One token of a state space of n channels (numerics: Other operations): state[j][i] and a[j][i], j below
     * `states`, are `stride` floats apart from row to row. y may be x. */
    void (*scan)(float *state, int64_t states, int64_t stride, const float *a, const float *dt,
                 const float *x, const float *b, const float *c, const float *d, float *y, int64_t n);
    /* The same of a head of n channels that share a decay; state is [states][n]. */
    void (*scan_head)(float *state, int64_t states, int64_t n, const mo_scan_head *t, float *y);

    /* The second matrix of an adapter, whose columns are `stride` floats apart: y[i] = fma(f, t, y[i]), t = fma over j ascending of
     * b[j * stride + i] and u[j], from +0. */
    void (*low_rank)(float *y, const float *b, int64_t stride, const float *u, int64_t rank, float f,
                     int64_t n);

    /* What indexers make of their heads' products (numerics: The indexer): y[i] = fma over j ascending of w[j] and
     * max(x[j * stride + i], 0), from +0. */
    void (*rectified_sum)(float *y, const float *x, int64_t stride, const float *w, int64_t rows, int64_t n);

    /* True when every value is finite. */
    bool (*finite)(const float *x, int64_t n);
} mo_kernels;

extern const mo_kernels mo_kernels_scalar;

/* The sets compiled into this build that this machine can run, best first; scalar is the last.
 * Returns how many were written. */
int mo_kernels_list(const mo_kernels **out, int limit);

/* The set of that name; NULL or "auto" means the best. MO_EINVAL names the sets that exist. */
mo_status mo_kernels_select(const char *name, const mo_kernels **out, mo_error *err);

#endif
