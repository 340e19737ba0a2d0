/* Router: one token's product with a router's matrix and the choice after it, two ops as one kernel. The thread blocks
 * of the product count themselves in when they are done, and the last one goes on with the choice, which is work for a
 * single block. It begins when all scores are written, as a kernel of its own would. Plain C: included by C and by
 * CUDA C++. */
#ifndef MO_DEVICE_CUDA_ROUTER_H
#define MO_DEVICE_CUDA_ROUTER_H

#include "device/cuda/rows.h"
#include "device/op.h"

enum {
    MO_ROUTER_THREADS = 256, /* least threads of a block */
    MO_ROUTER_MOST = 512,    /* most */
    MO_ROUTER_ROWS = 8,      /* most rows of a block: a warp each */
};

/* What the kernel takes. */
typedef struct mo_cuda_router {
    mo_op_product product;
    mo_op_choose choose;
    mo_daddr arrived; /* uint32: blocks that are done. 0 before and after */
} mo_cuda_router;

/* The same behind the stream that makes the router's input, three ops as one kernel: every block joins the rows and norms them for itself. The
 * first leaves the norms for those who come after; the last writes the stream, which all have read by then. */
typedef struct mo_cuda_routed {
    mo_op_stream stream;
    mo_cuda_router router;
    int32_t which; /* norm is the router's */
    int32_t unused;
} mo_cuda_routed;

/* Threads of such a block: most rows are two quads of each. */
enum { MO_ROUTED_THREADS = 512, MO_ROUTED_QUADS = 2 };

/* Bytes of shared memory of `rows` rows and the activations. */
MO_CONSTANT int mo_router_bytes(const mo_op_product *op, int rows)
{
    return op->in.cols * (4 + rows * mo_format_bytes(op->matrix[0].type));
}

#endif
