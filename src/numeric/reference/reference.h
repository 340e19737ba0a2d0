/* Reference: the definition of every operation, in plain C. Short enough to read, never meant to be fast;
 * collected in the table mo_kernels_scalar. The contract of each is the comment of its entry in
 * numeric/kernels.h; dequantize is mo_row_dequantize() of numeric/block.h. Any thread; nothing fails. */
#ifndef MO_NUMERIC_REFERENCE_REFERENCE_H
#define MO_NUMERIC_REFERENCE_REFERENCE_H

#include "numeric/kernels.h"

void mo_reference_quantize(const float *x, int64_t n, int8_t *q, float *d, float *s, int32_t *sum,
                           int16_t *half_sum);
void mo_reference_product(const mo_weights *w, int64_t row_begin, int64_t row_end, const mo_acts *acts,
                          const int32_t *pick, int64_t count, float *y, int64_t y_stride,
                          mo_scratch *scratch);

/* The tree that ends the 32-lane order: for s in 16, 8, 4, 2, 1: lane[i] += lane[i + s]. */
float mo_reference_lane_sum(const float *lane);
float mo_reference_dot(const float *a, const float *b, int64_t n);

void mo_reference_rms_norm(float *y, const float *x, const float *w, int64_t n, float eps);
void mo_reference_l2_norm(float *y, const float *x, int64_t n, float eps);
void mo_reference_softmax(float *x, int64_t n);

void mo_reference_add(float *y, const float *x, int64_t n);
void mo_reference_multiply(float *y, const float *x, int64_t n);
void mo_reference_scale(float *y, float a, int64_t n);
void mo_reference_axpy(float *y, float a, const float *x, int64_t n);

void mo_reference_swiglu(float *y, const float *g, const float *u, int64_t n);
void mo_reference_geglu(float *y, const float *g, const float *u, int64_t n);
void mo_reference_swiglu_oss(float *y, const float *g, const float *u, int64_t n, float alpha, float limit);
void mo_reference_swiglu_limit(float *y, const float *g, const float *u, int64_t n, float limit);
void mo_reference_silu(float *y, const float *x, int64_t n);
void mo_reference_sigmoid(float *y, const float *x, int64_t n);
void mo_reference_softcap(float *x, int64_t n, float cap);

void mo_reference_rope(float *x, const float *c, const float *s, int64_t n_rot, bool neox);
void mo_reference_attend(const mo_kv_head *kv, const mo_seen *spans, int64_t count, const float *q,
                         int64_t heads, float scale, float *m, float *l, float *o, mo_scratch *scratch);
void mo_reference_attend_merge(float *M, float *L, float *O, float m, float l, const float *o, int64_t n);
void mo_reference_attend_finish(float *O, float L, int64_t n);
bool mo_reference_code(const float *x, int64_t n, int8_t *high, int8_t *low, float *scale);
void mo_reference_turn_back(float *x, int64_t n);
void mo_reference_attend_codes(const mo_kv_head *kv, const mo_seen *spans, int64_t count, const int8_t *q,
                               const float *g, int64_t heads, float *m, float *l, float *r, float *t,
                               mo_scratch *scratch);
void mo_reference_merge_codes(float *M, float *L, float *O, float m, float l, float r, const float *t,
                              int64_t n);
void mo_reference_convolve(float *y, const float *const *rows, const float *w, int64_t taps, int64_t stride,
                           int64_t n);
void mo_reference_decay(float *y, const float *dt, float a, float bound, int64_t n);
void mo_reference_delta_rows(float *state, int64_t k_len, int64_t v_len, const float *q, const float *k,
                             const float *v, const float *decay, float beta, float scale, float *out);
void mo_reference_delta(float *state, int64_t k_len, int64_t v_len, const float *q, const float *k,
                        const float *v, float decay, float beta, float scale, float *out);
void mo_reference_softplus(float *y, const float *x, int64_t n);
void mo_reference_scan(float *state, int64_t states, int64_t stride, const float *a, const float *dt,
                       const float *x, const float *b, const float *c, const float *d, float *y, int64_t n);
void mo_reference_scan_head(float *state, int64_t states, int64_t n, const mo_scan_head *t, float *y);
void mo_reference_low_rank(float *y, const float *b, int64_t stride, const float *u, int64_t rank, float f,
                           int64_t n);
void mo_reference_rectified_sum(float *y, const float *x, int64_t stride, const float *w, int64_t rows,
                                int64_t n);
bool mo_reference_finite(const float *x, int64_t n);

#endif
