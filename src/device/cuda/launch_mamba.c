#include "base/status.h"
#include "device/cuda/launch.h"

enum { THREADS = 128, WIDE = 256 };

static uint32_t pieces(int64_t count, int64_t size)
{
    return (uint32_t)((count + size - 1) / size);
}

static int convolve(const mo_op_ssm_convolve *o, mo_cuda_launch *out)
{
    return mo_cuda_launch_taps("mo_ssm_convolve", "mo_ssm_convolve_keep", o->channels, o->tokens,
                               o->slice_count, o->state, out);
}

static int scan_channels(const mo_op_ssm_scan *o, mo_cuda_launch *out)
{
    out[0] = (mo_cuda_launch){.kernel = o->states == 16 ? "mo_ssm_scan_16" : "mo_ssm_scan_any",
                              .prelaunch = true,
                              .tall = true,
                              .grid = {pieces(o->inner, THREADS), (uint32_t)o->slice_count, 1},
                              .block = {THREADS, 1, 1}};
    return 1;
}

static int scan_heads(const mo_op_ssm_scan *o, mo_cuda_launch *out)
{
    const int channels = o->inner / o->heads;
    const bool known = o->states == 128 && channels <= THREADS;
    int count = 0;
    out[count++] =
        (mo_cuda_launch){.kernel = known ? "mo_ssm_heads_128" : "mo_ssm_heads_any",
                         .prelaunch = true,
                         .tall = true,
                         .grid = {(uint32_t)o->heads, (uint32_t)o->slice_count, 1},
                         .block = {channels > THREADS ? THREADS : pieces(channels, 32) * 32, 1, 1}};
    if (o->state == MO_STATE_ONLY) {
        return count;
    }
    out[count++] = (mo_cuda_launch){.kernel = "mo_ssm_norm",
                                    .prelaunch = true,
                                    .tall = true,
                                    .grid = {(uint32_t)o->groups, (uint32_t)o->tokens, 1},
                                    .block = {WIDE, 1, 1}};
    if (o->inner / o->groups % 32 != 0 && o->inner % 32 == 0) {
        out[count++] = (mo_cuda_launch){.kernel = "mo_ssm_quantize",
                                        .prelaunch = true,
                                        .grid = {(uint32_t)o->tokens, 1, 1},
                                        .block = {WIDE, 1, 1}};
    }
    return count;
}

/* Tokens of the op, -1: it is none of these. */
static int tokens_of(const mo_op *op)
{
    switch (op->kind) {
    case MO_OP_SSM_CONVOLVE: return op->ssm_convolve.tokens;
    case MO_OP_SSM_PARTS: return op->ssm_parts.tokens;
    case MO_OP_SSM_SCAN: return op->ssm_scan.tokens;
    default: return -1;
    }
}

int mo_cuda_launch_mamba(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err)
{
    const int tokens = tokens_of(op);
    (void)compute;
    (void)sms;
    if (tokens < 0) {
        mo_fail(err, MO_EINVAL, "op %d has no Mamba kernel", (int)op->kind);
        return -1;
    }
    if (tokens == 0) {
        return 0;
    }
    if (op->kind == MO_OP_SSM_CONVOLVE) {
        return convolve(&op->ssm_convolve, out);
    }
    if (op->kind == MO_OP_SSM_SCAN) {
        return op->ssm_scan.heads ? scan_heads(&op->ssm_scan, out) : scan_channels(&op->ssm_scan, out);
    }
    out[0] = (mo_cuda_launch){
        .kernel = "mo_ssm_parts", .prelaunch = true, .grid = {(uint32_t)tokens, 1, 1}, .block = {96, 1, 1}};
    return 1;
}
