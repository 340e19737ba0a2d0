/* The table of the definition. */
#include "numeric/reference/reference.h"

#include "numeric/block.h"

const mo_kernels mo_kernels_scalar = {
    .name = "scalar",
    .interleave = 0,
    .quantize = mo_reference_quantize,
    .product = mo_reference_product,
    .dequantize = mo_row_dequantize,
    .dot = mo_reference_dot,
    .rms_norm = mo_reference_rms_norm,
    .l2_norm = mo_reference_l2_norm,
    .softmax = mo_reference_softmax,
    .add = mo_reference_add,
    .multiply = mo_reference_multiply,
    .scale = mo_reference_scale,
    .axpy = mo_reference_axpy,
    .swiglu = mo_reference_swiglu,
    .geglu = mo_reference_geglu,
    .swiglu_oss = mo_reference_swiglu_oss,
    .silu = mo_reference_silu,
    .sigmoid = mo_reference_sigmoid,
    .softcap = mo_reference_softcap,
    .rope = mo_reference_rope,
    .kv_write = mo_reference_kv_write,
    .attend = mo_reference_attend,
    .attend_merge = mo_reference_attend_merge,
    .attend_finish = mo_reference_attend_finish,
    .code = mo_reference_code,
    .turn_back = mo_reference_turn_back,
    .attend_codes = mo_reference_attend_codes,
    .merge_codes = mo_reference_merge_codes,
    .convolve = mo_reference_convolve,
    .delta = mo_reference_delta,
    .finite = mo_reference_finite,
};
