#include "numeric/wide.h"

#include <math.h>

#include "numeric/block.h"
#include "numeric/half.h"

enum { LANES = 32, PIECE = 256 }; /* no format has longer blocks */

void mo_wide_round(const float *x, int64_t count, uint16_t *out)
{
    for (int64_t i = 0; i < count; i++) {
        out[i] = mo_f32_to_bf16(x[i]);
    }
}

void mo_wide_decode(mo_type type, const uint8_t *data, int64_t count, uint16_t *out)
{
    const mo_format *f = mo_format_of(type);
    float values[PIECE];
    for (int64_t i = 0; i < count; i += PIECE) {
        const int64_t here = count - i < PIECE ? count - i : PIECE;
        mo_row_dequantize(type, data, here, values);
        mo_wide_round(values, here, out + i);
        data += mo_format_row_bytes(f, here);
    }
}

float mo_wide_dot(const uint16_t *w, const uint16_t *x, int64_t count)
{
    float lane[LANES] = {0};
    for (int64_t i = 0; i < count; i += LANES) {
        const int64_t here = count - i < LANES ? count - i : LANES;
        for (int64_t j = 0; j < here; j++) {
            lane[j] = fmaf(mo_bf16_to_f32(w[i + j]), mo_bf16_to_f32(x[i + j]), lane[j]);
        }
    }
    for (int s = LANES / 2; s >= 1; s /= 2) {
        for (int j = 0; j < s; j++) {
            lane[j] += lane[j + s];
        }
    }
    return lane[0];
}
