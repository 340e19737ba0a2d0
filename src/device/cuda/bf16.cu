/* Products in bfloat16: rows and matrices to it, and the product. */
#include "device/cuda/bf16.cuh"

#include "device/cuda/fold.cuh"

/* ---- Rows ---- */

MO_KERNEL(mo_round, mo_op_round)
{
    const float *from = mo_at<const float>(op.from);
    uint16_t *to = mo_at<uint16_t>(op.to);
    const int64_t step = 8 * (int64_t)gridDim.x * blockDim.x;
    mo_grid_begin();
    for (int64_t i = 8 * ((int64_t)blockIdx.x * blockDim.x + threadIdx.x); i < op.count; i += step) {
        if (i + 8 <= op.count) {
            const float4 a = *(const float4 *)(from + i), b = *(const float4 *)(from + i + 4);
            uint4 out;
            out.x = mo_pack_bf16(a.x, a.y);
            out.y = mo_pack_bf16(a.z, a.w);
            out.z = mo_pack_bf16(b.x, b.y);
            out.w = mo_pack_bf16(b.z, b.w);
            *(uint4 *)(to + i) = out;
        } else {
            for (int64_t j = i; j < op.count; j++) {
                to[j] = (uint16_t)mo_pack_bf16(from[j], 0.0f);
            }
        }
    }
}

/* ---- Matrices ---- */

/* Block of 32 number j from `raw` on. */
template <int TYPE>
static __device__ __forceinline__ void mo_to_bf16_block(const uint8_t *raw, int j, uint32_t out[16])
{
    constexpr int PER = mo_format_values(TYPE) / 32;
    constexpr mo_fold FOLD = mo_format_fold(TYPE);
    constexpr bool MINIMUM = FOLD == MO_FOLD_MINIMUM || FOLD == MO_FOLD_HALF_MINIMA;
    const int b = j % PER;
    int unit = b / mo_rows_unit(TYPE), part = b % mo_rows_unit(TYPE);
    if constexpr (TYPE == MO_Q6_K) { /* as mo_block_of() */
        unit = (b >> 2) * 2 + (b & 1);
        part = b >> 1 & 1;
    }
    mo_terms32 w = {};
    mo_decode<TYPE, false>(raw + j / PER * mo_format_bytes(TYPE), unit, part, &w);
    float scale[2] = {w.dw, w.dw}, minimum[2] = {w.min, w.min};
    if constexpr (FOLD == MO_FOLD_TWO_STEPS) {
        scale[1] = w.dw1;
    } else if constexpr (FOLD == MO_FOLD_SCALED) {
        scale[0] = scale[1] = w.dw * (float)w.scale0;
    } else if constexpr (mo_halves(TYPE)) {
        scale[0] = w.dw * (float)w.scale0;
        scale[1] = w.dw * (float)w.scale1;
    }
    if constexpr (FOLD == MO_FOLD_HALF_MINIMA) {
        minimum[0] = w.min * (float)w.min0;
        minimum[1] = w.min * (float)w.min1;
    }
#pragma unroll
    for (int i = 0; i < 16; i++) {
        float v[2];
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int code = (int8_t)(w.code[i / 2] >> (16 * (i & 1) + 8 * k)) - mo_bias(TYPE);
            v[k] = scale[i / 8] * (float)code;
            v[k] = MINIMUM ? v[k] + minimum[i / 8] : v[k];
        }
        out[i] = mo_pack_bf16(v[0], v[1]);
    }
}

/* Up to MO_TO_BF16_VALUES values by one warp, through shared memory both ways, so that it reads and writes whole lines. */
template <int TYPE>
static __device__ __forceinline__ void mo_to_bf16_blocks(const uint8_t *data, int64_t first, int count,
                                                         uint8_t *raw, uint16_t *to)
{
    constexpr int VALUES = mo_format_values(TYPE), BYTES = mo_format_bytes(TYPE);
    static_assert(MO_TO_BF16_VALUES / VALUES * BYTES + 16 <= MO_TO_BF16_RAW, "fits its place");
    static_assert(MO_TO_BF16_VALUES / VALUES * BYTES % 4 == 0, "a warp's bytes begin at a word");
    const int lane = threadIdx.x & 31, bytes = count / VALUES * BYTES;
    const uint8_t *from = data + first / VALUES * BYTES;
    uint8_t *const blocks = raw + MO_TO_BF16_RAW;
    MO_UNROLL(4)
    for (int i = 4 * lane; i < (bytes & ~3); i += 128) {
        *(uint32_t *)(raw + i) = *(const uint32_t *)(from + i);
    }
    if (lane < (bytes & 3)) {
        raw[(bytes & ~3) + lane] = from[(bytes & ~3) + lane];
    }
    __syncwarp();
    if (32 * lane < count) {
        uint32_t out[16];
        mo_to_bf16_block<TYPE>(raw, lane, out);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint4 four;
            four.x = out[4 * i];
            four.y = out[4 * i + 1];
            four.z = out[4 * i + 2];
            four.w = out[4 * i + 3];
            *(uint4 *)(blocks + lane * MO_TO_BF16_PITCH + 16 * i) = four;
        }
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int chunk = 32 * i + lane; /* of eight values */
        if (8 * chunk < count) {
            *(uint4 *)(to + first + 8 * chunk) =
                *(const uint4 *)(blocks + chunk / 4 * MO_TO_BF16_PITCH + chunk % 4 * 16);
        }
    }
}

static __device__ __forceinline__ void mo_to_bf16_floats(int type, const uint8_t *data, int64_t first,
                                                         int count, uint16_t *to)
{
    for (int64_t i = first + (threadIdx.x & 31); i < first + count; i += 32) {
        const float x = type == MO_F32 ? ((const float *)data)[i] : mo_half(((const uint16_t *)data)[i]);
        to[i] = type == MO_BF16 ? ((const uint16_t *)data)[i] : (uint16_t)mo_pack_bf16(x, 0.0f);
    }
}

/* Blocks (MO_TO_BF16_WARPS times MO_TO_BF16_VALUES values, matrices). */
MO_BOUNDED(mo_to_bf16, mo_op_to_bf16, 32 * MO_TO_BF16_WARPS, 4);
MO_KERNEL(mo_to_bf16, mo_op_to_bf16)
{
    MO_ALIGNED_SHARED(shared);
    mo_grid_begin();
    const int warp = threadIdx.x >> 5;
    const int64_t values = (int64_t)op.matrix.rows * op.matrix.cols;
    const int64_t first = ((int64_t)blockIdx.x * MO_TO_BF16_WARPS + warp) * MO_TO_BF16_VALUES;
    const int count = (int)min(values - first, (int64_t)MO_TO_BF16_VALUES);
    const uint8_t *data = mo_at<const uint8_t>(op.matrix.data);
    if (op.groups) {
        const mo_dgroup group = mo_at<const mo_dgroup>(op.groups)[blockIdx.y];
        data = group.count ? mo_at<const uint8_t>(group.data) : NULL;
    }
    if (count <= 0 || !data) {
        return;
    }
    uint16_t *to = mo_at<uint16_t>(op.to) + blockIdx.y * values;
    uint8_t *const raw = shared + warp * (MO_TO_BF16_RAW + 32 * MO_TO_BF16_PITCH);
    switch (op.matrix.type) {
#define MO_TO_BF16_CASE(name, ...)                                                                           \
    case MO_##name: mo_to_bf16_blocks<MO_##name>(data, first, count, raw, to); break;
        MO_QUANTIZED_FORMATS(MO_TO_BF16_CASE)
#undef MO_TO_BF16_CASE
    default: mo_to_bf16_floats(op.matrix.type, data, first, count, to); break;
    }
}

/* ---- The product ---- */

/* Blocks (row tiles, token tiles of all groups, of which there are at most rows / tokens + groups). */
MO_BOUNDED(mo_bf16_product, mo_op_bf16, MO_BF16_THREADS, 2);
MO_KERNEL(mo_bf16_product, mo_op_bf16)
{
    MO_ALIGNED_SHARED(shared);
    mo_grid_begin();
    mo_bf16_run(op, shared);
}
