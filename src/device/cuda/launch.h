/* Launch: which kernel runs an op, and how large. Each file of kernels has a function here: one
 * table chooses kernels by format, shape and number of tokens. */
#ifndef MO_DEVICE_CUDA_LAUNCH_H
#define MO_DEVICE_CUDA_LAUNCH_H

#include "device/cuda/fresh.h"
#include "device/cuda/joined.h"
#include "device/cuda/router.h"
#include "device/device.h"

enum { MO_CUDA_KERNELS_PER_OP = 8, MO_CUDA_GRID_LIMIT = 65535 /* of y and z */ };

/* One kernel of an op. Its only parameter is the op's own struct (the member of the union), by value; or what several ops
 * make together: router.h, joined.h. */
typedef struct mo_cuda_launch {
    const char *kernel; /* a name with static storage: exported by a .cu file */
    uint32_t grid[3], block[3];
    uint32_t shared; /* dynamic shared memory */
    bool prelaunch;  /* waits for the kernel before it by itself: mo_grid_wait() */
    bool
        patient; /* and reads no matrix before that: outside of programs the kernel before may have brought it */
    bool tall; /* its grid's second dimension may go on in the third: mo_grid_row() */
} mo_cuda_launch;

static inline int64_t mo_cuda_tiles_of(int64_t n, int64_t each)
{
    return (n + each - 1) / each;
}

/* A kernel whose blocks are x * y * z tiles; -1: that is larger than a grid can be. */
int mo_cuda_launch_tiles(mo_cuda_launch *out, const char *kernel, int64_t x, int64_t y, int64_t z,
                         int threads, int shared, mo_error *err);

/* Fill out[0 .. returned), in the order in which they run; 0 when this op has nothing to do. -1: no kernel can do it
 * (err says what). compute: the device's capability, 75 and up. sms: its multiprocessors. */
int mo_cuda_launch_product(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err);
int mo_cuda_launch_product_wide(const mo_op *op, int compute, int sms, mo_cuda_launch *out,
                                mo_error *err); /* besides grouped: any matrices, best from 9 tokens */
int mo_cuda_launch_grouped(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err);
int mo_cuda_launch_bf16(const mo_op *op, int compute, int sms, mo_cuda_launch *out,
                        mo_error *err); /* and round, widen */
int mo_cuda_launch_experts(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err);
int mo_cuda_launch_stream(const mo_op *op, int compute, int sms, mo_cuda_launch *out,
                          mo_error *err); /* and activate, logits, publish, await */
int mo_cuda_launch_choose(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err);
int mo_cuda_launch_arrange(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err);
int mo_cuda_launch_attention(const mo_op *op, int compute, int sms, mo_cuda_launch *out,
                             mo_error *err); /* heads and attend */
/* For attend, if the KV cache has 16-bit codes. *codes_missing: whether the mixed rows are without theirs. */
int mo_cuda_launch_planes(const mo_op_attend *o, int compute, int sms, bool by_chunks, mo_cuda_launch *out,
                          bool *codes_missing);
int mo_cuda_launch_latent(const mo_op *op, int compute, int sms, mo_cuda_launch *out,
                          mo_error *err); /* and collect */
int mo_cuda_launch_index(const mo_op *op, int compute, int sms, mo_cuda_launch *out,
                         mo_error *err); /* and keep, gather */
int mo_cuda_launch_delta(const mo_op *op, int compute, int sms, mo_cuda_launch *out,
                         mo_error *err); /* convolve and recur */
/* A causal convolution of this many channels: its kernel, and where slices have several tokens the one that keeps what the next
 * step looks back to. */
int mo_cuda_launch_taps(const char *kernel, const char *keep, int64_t channels, int64_t tokens,
                        int64_t slices, int32_t state, mo_cuda_launch *out);
int mo_cuda_launch_short_conv(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err);
int mo_cuda_launch_mamba(const mo_op *op, int compute, int sms, mo_cuda_launch *out,
                         mo_error *err); /* convolve, parts and scan of Mamba */
int mo_cuda_launch_adapt(const mo_op *op, int compute, int sms, mo_cuda_launch *out,
                         mo_error *err); /* lower and adapt */
int mo_cuda_launch_restore(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err);

/* Any op, by the function above that knows it. */
int mo_cuda_launch_op(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err);

/* A product and a choice right after it as one kernel: 1 and *out, whose parameter is a mo_cuda_router (router.h). 0: these
 * two ops, whatever they are, go alone. */
int mo_cuda_launch_router(const mo_op *first, const mo_op *second, int compute, int sms, mo_cuda_launch *out);

/* The same with the stream before them: 1 where ops[0 .. 3) are those, and *op, the parameter but for the router's counter; otherwise 0. */
int mo_cuda_launch_routed(const mo_op *ops, int count, int compute, int sms, mo_cuda_routed *op,
                          mo_cuda_launch *out);

/* Heads and the attention right after them as one kernel, and perhaps one that merges: how many, and *op, which the first's parameter is; the other's is
 * its `attend`. 0: these two ops, whatever they are, go alone. */
int mo_cuda_launch_fresh(const mo_op *first, const mo_op *second, int compute, int sms, mo_cuda_fresh *op,
                         mo_cuda_launch out[2]);

/* What adapters add to products of one token, in the kernels around it (joined.h): how many of ops[0 .. count) they are; 0: these go alone. Lowered: a
 * product and what LOWER makes of its input, one kernel. Adapted: those, what ADAPT adds, and the heads or the stream that take it, two kernels, of
 * which the second's parameter is what its kernel takes. */
int mo_cuda_launch_lowered(const mo_op *ops, int count, int compute, int sms, mo_cuda_lowered *lowered,
                           mo_cuda_launch *out);
int mo_cuda_launch_adapted(const mo_op *ops, int count, int compute, int sms, const mo_cuda_place *place,
                           mo_cuda_adapted *adapted, mo_cuda_launch out[2]);

#endif
