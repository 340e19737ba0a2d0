#include "base/status.h"
#include "device/cuda/attend_scratch.h"
#include "device/cuda/launch.h"

enum {
    HEADS_WARPS = 4,
    NORM_THREADS = 256,
    QUANTIZE_THREADS = 256,
};

static uint32_t pieces(int64_t count, int64_t size)
{
    return (uint32_t)((count + size - 1) / size);
}

/* ---- Heads ---- */

static int heads(const mo_op_heads *o, mo_cuda_launch *out)
{
    const int64_t vectors = o->heads + (int64_t)o->kv_heads * (o->v_from_k ? 1 : 2);
    const int longest = o->k_len > o->v_len ? o->k_len : o->v_len;
    int count = 0;
    if (o->norm_all) {
        out[count++] = (mo_cuda_launch){.kernel = "mo_heads_norm_all",
                                        .prelaunch = true,
                                        .grid = {(uint32_t)o->tokens, 2, 1},
                                        .block = {NORM_THREADS, 1, 1}};
    }
    out[count++] = (mo_cuda_launch){.kernel = "mo_heads",
                                    .prelaunch = true,
                                    .grid = {pieces(o->tokens * vectors, HEADS_WARPS), 1, 1},
                                    .block = {32 * HEADS_WARPS, 1, 1},
                                    .shared = (uint32_t)(HEADS_WARPS * longest * (int)sizeof(float))};
    return count;
}

/* ---- Attention ---- */

static int few(const mo_op_attend *o, int compute, mo_cuda_launch *out)
{
    const int small = mo_chunk_lay(o, mo_chunk_piece(o, MO_CHUNK_SMALL)).bytes;
    const int large = mo_chunk_lay(o, mo_chunk_piece(o, MO_CHUNK_LARGE)).bytes;
    const bool more = large > small && large <= mo_attend_shared(compute);
    const uint32_t threads = pieces(o->v_len, 32) * 32;
    out[0] = (mo_cuda_launch){.kernel = more ? "mo_attend_chunk_large" : "mo_attend_chunk",
                              .prelaunch = true,
                              .grid = {(uint32_t)o->chunks, (uint32_t)o->heads, (uint32_t)o->tokens},
                              .block = {MO_CHUNK_THREADS, 1, 1},
                              .shared = (uint32_t)(more ? large : small)};
    out[1] = (mo_cuda_launch){.kernel = "mo_attend_merge",
                              .prelaunch = true,
                              .grid = {(uint32_t)o->heads, (uint32_t)o->tokens, 1},
                              .block = {threads, 1, 1},
                              .shared = threads * 4 * (uint32_t)sizeof(float)};
    return o->chunks == 1 ? 1 : 2; /* a single chunk is finished by whoever made it */
}

static int many(const mo_op_attend *o, mo_cuda_launch *out)
{
    const int most = mo_chunk_queries_most(o);
    const uint32_t parts = pieces(o->heads / o->kv_heads, most);
    out[0] = (mo_cuda_launch){.kernel = "mo_attend_rows",
                              .grid = {(uint32_t)o->tokens, (uint32_t)o->kv_heads * parts, 1},
                              .block = {MO_CHUNK_THREADS, 1, 1},
                              .shared = (uint32_t)mo_chunk_lay(o, mo_chunk_piece(o, MO_CHUNK_SMALL)).bytes};
    return 1;
}

static int attend(const mo_op_attend *o, int compute, int sms, mo_cuda_launch *out, mo_error *err)
{
    if (o->v_len > 1024 || o->k_len > 1024) {
        mo_fail(err, MO_EUNSUPPORTED,
                "the GPU kernels support heads of at most 1024 values, "
                "but this model has %d and %d; run it with `device` none",
                o->k_len, o->v_len);
        return -1;
    }
    const bool by_chunks = o->tokens <= MO_OP_SMALL || o->apart;
    bool codes_missing = !by_chunks || o->v_len % 32 != 0;
    int count;
    if (mo_kv_coded(o->kv)) {
        count = mo_cuda_launch_planes(o, compute, sms, by_chunks, out, &codes_missing);
    } else {
        count = by_chunks ? few(o, compute, out) : many(o, out);
    }
    out[0].prelaunch =
        out[0].prelaunch && !o->made; /* its kernels read places and old blocks before they wait */
    if (codes_missing && o->mixed.cols % 32 == 0 && !o->tail) {
        out[count++] = (mo_cuda_launch){.kernel = "mo_attend_quantize",
                                        .prelaunch = true,
                                        .grid = {(uint32_t)o->tokens, 1, 1},
                                        .block = {QUANTIZE_THREADS, 1, 1}};
    }
    return count;
}

int mo_cuda_launch_attention(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err)
{
    switch (op->kind) {
    case MO_OP_HEADS: return op->heads.tokens > 0 ? heads(&op->heads, out) : 0;
    case MO_OP_ATTEND: return op->attend.tokens > 0 ? attend(&op->attend, compute, sms, out, err) : 0;
    default: mo_fail(err, MO_EINVAL, "op %d has no attention kernel", (int)op->kind); return -1;
    }
}
