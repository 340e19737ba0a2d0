/* Tail: two ops as one kernel. The thread blocks of the first count themselves in when they are done, and the last one
 * goes on with the second, which is work for a single block: one token's stream or choice. Nothing else changes: the
 * second begins when all of the first is written, as if a kernel of its own had. Plain C: included by C and by CUDA
 * C++. */
#ifndef MO_DEVICE_CUDA_TAIL_H
#define MO_DEVICE_CUDA_TAIL_H

#include "device/cuda/rows.h"
#include "device/op.h"

enum {
    MO_TAIL_BARRIERS = 64,        /* bytes of shared memory that the first op's copies may still know */
    MO_TAIL_ROUTER_THREADS = 256, /* least threads of a block with rows of a router */
    MO_TAIL_ROUTER_MOST = 512,    /* most */
    MO_TAIL_ROUTER_ROWS = 8,      /* most such rows: a warp each */
};

/* What these kernels take. */
typedef struct mo_tail {
    union {
        mo_op_product product;
        mo_op_experts experts;
    };
    union {
        mo_op_stream stream;
        mo_op_choose choose;
    };
    mo_daddr arrived; /* uint32: blocks that are done. 0 before and after */
} mo_tail;

/* Floats of shared memory that the stream of one token takes: its row, and the weights of the norms of it. */
MO_ROWS_CONST int mo_tail_stream_floats(const mo_op_stream *op)
{
    int rows = 1;
    for (int i = 0; i < MO_OP_NORMS; i++) {
        rows += op->norm[i].out.x && op->norm[i].weight;
    }
    return rows * op->n;
}

/* Bytes of shared memory of `rows` rows of a router and the activations. */
MO_ROWS_CONST int mo_tail_router_bytes(const mo_op_product *op, int rows)
{
    return op->in.cols * (4 + rows * mo_rows_bytes(op->matrix[0].type));
}

#endif
