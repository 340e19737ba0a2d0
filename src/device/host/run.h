/* Op on the host: runs an op with a set of kernels on memory that this process can read. The host device and the
 * simulated one share it. */
#ifndef MO_DEVICE_HOST_RUN_H
#define MO_DEVICE_HOST_RUN_H

#include <stdbool.h>

#include "device/op.h"
#include "numeric/kernels.h"

/* Turns a device address into a pointer to `bytes` readable and writable bytes, or NULL when it is not one (then the
 * op fails). Not called for address 0. */
typedef void *(*mo_op_resolve)(void *user, mo_daddr address, int64_t bytes);

typedef struct mo_op_host {
    const mo_kernels *kernels;
    mo_op_resolve resolve;
    bool (*stopped)(void *user); /* NULL, or: MO_OP_AWAIT asks whether it should give up, as for an abort */
    void *user;
} mo_op_host;

/* MO_EDEVICE when an address does not resolve: err says which op and which operand. MO_OP_AWAIT polls. */
mo_status mo_op_run(const mo_op_host *host, const mo_op *op, mo_error *err);

#endif
