/* The limits of ops that every implementation relies on: asserted, since only the program itself makes ops. */
#ifndef MO_DEVICE_OP_CHECK_H
#define MO_DEVICE_OP_CHECK_H

#include "device/op.h"

void mo_op_check(const mo_op *op);

#endif
