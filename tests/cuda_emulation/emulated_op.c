#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/launch.h"
#include "emulated.h"

/* A test links the kernels it is about and no others: these stand in for the rest, and give way where a program has the
 * real one. */
#define ABSENT(name)                                                                                         \
    __attribute__((weak)) int name(const mo_op *op, int compute, int sms, mo_cuda_launch *out,               \
                                   mo_error *err)                                                            \
    {                                                                                                        \
        (void)compute, (void)sms, (void)out, (void)err;                                                      \
        fprintf(stderr, "emulation: op %d: " #name "() is not linked into this program\n", (int)op->kind);   \
        abort();                                                                                             \
    }
ABSENT(mo_cuda_launch_product)
ABSENT(mo_cuda_launch_product_wide)
ABSENT(mo_cuda_launch_grouped)
ABSENT(mo_cuda_launch_experts)
ABSENT(mo_cuda_launch_stream)
ABSENT(mo_cuda_launch_choose)
ABSENT(mo_cuda_launch_attention)
ABSENT(mo_cuda_launch_latent)
ABSENT(mo_cuda_launch_index)
ABSENT(mo_cuda_launch_delta)
ABSENT(mo_cuda_launch_short_conv)
ABSENT(mo_cuda_launch_mamba)
ABSENT(mo_cuda_launch_adapt)
ABSENT(mo_cuda_launch_arrange)
ABSENT(mo_cuda_launch_bf16)
ABSENT(mo_cuda_launch_restore)

enum { MULTIPROCESSORS = 4 }; /* few, so that a grid that is sized by them goes round several times */

void mo_emulated_op(const mo_op *op, int compute)
{
    mo_cuda_launch launches[MO_CUDA_KERNELS_PER_OP];
    mo_error err = {0};
    const int count = mo_cuda_launch_op(op, compute, MULTIPROCESSORS, launches, &err);
    if (count < 0) {
        fprintf(stderr, "emulation: op %d: %s\n", (int)op->kind, err.detail);
        abort();
    }
    mo_emulated_set_code(compute);
    for (int i = 0; i < count; i++) {
        size_t bytes;
        mo_emulated_entry entry = mo_emulated_find(launches[i].kernel, &bytes);
        if (!entry) {
            fprintf(stderr, "emulation: no kernel %s in this program\n", launches[i].kernel);
            abort();
        }
        if (launches[i].tall && launches[i].grid[1] % 2 == 0) { /* as if there were very many rows */
            launches[i].grid[1] /= 2;
            launches[i].grid[2] *= 2;
        }
        mo_emulated_launch(launches[i].kernel, entry, &op->stream, launches[i].grid, launches[i].block,
                           launches[i].shared);
    }
}
