/* Center: norms that may subtract the mean of a row first (LayerNorm without a bias). */
#ifndef MO_NUMERIC_CENTER_H
#define MO_NUMERIC_CENTER_H

#include "numeric/kernels.h"

/* y = x - mean(x), whose sum is in the 32-lane order. y may be x. */
void mo_center_row(float *y, const float *x, int64_t n);

/* k->rms_norm(), of the centered row where that is asked for. y may be x. */
void mo_norm_row(const mo_kernels *k, bool centered, float *y, const float *x, const float *w, int64_t n,
                 float eps);

#endif
