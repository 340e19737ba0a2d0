#include "numeric/center.h"

#include "numeric/reference/reference.h"

void mo_center_row(float *y, const float *x, int64_t n)
{
    float lane[32] = {0};
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        for (int j = 0; j < 32; j++) {
            lane[j] += x[i + j];
        }
    }
    for (int j = 0; i + j < n; j++) {
        lane[j] += x[i + j];
    }
    const float mean = mo_reference_lane_sum(lane) / (float)n;
    for (i = 0; i < n; i++) {
        y[i] = x[i] - mean;
    }
}

void mo_norm_row(const mo_kernels *k, bool centered, float *y, const float *x, const float *w, int64_t n,
                 float eps)
{
    if (centered) {
        mo_center_row(y, x, n);
        x = y;
    }
    k->rms_norm(y, x, w, n, eps);
}
