/* Op on the host: runs an op with a set of kernels on memory that this process can read. The host device and the
 * simulated one share it. */
#ifndef MO_DEVICE_HOST_RUN_H
#define MO_DEVICE_HOST_RUN_H

#include "device/host/operands.h"

/* MO_EDEVICE when an address does not resolve: err says which op and which operand. MO_OP_AWAIT polls.
 * scratch belongs to this call alone. */
mo_status mo_op_run(const mo_op_host *host, const mo_op *op, mo_scratch *scratch, mo_error *err);

#endif
