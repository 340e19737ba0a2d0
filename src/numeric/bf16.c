#include "numeric/bf16.h"

#include "numeric/block.h"
#include "numeric/half.h"

enum { PIECE = 256 }; /* no format has longer blocks */

void mo_bf16_round(const float *x, int64_t count, uint16_t *out)
{
    for (int64_t i = 0; i < count; i++) {
        out[i] = mo_f32_to_bf16(x[i]);
    }
}

void mo_bf16_decode(mo_type type, const uint8_t *data, int64_t count, uint16_t *out)
{
    const mo_format *f = mo_format_of(type);
    float values[PIECE];
    for (int64_t i = 0; i < count; i += PIECE) {
        const int64_t here = count - i < PIECE ? count - i : PIECE;
        mo_row_dequantize(type, data, here, values);
        mo_bf16_round(values, here, out + i);
        data += mo_format_row_bytes(f, here);
    }
}
