/* Panels for launch_grouped.c. Return how many launches; 0: the op has none. */
#ifndef MO_DEVICE_CUDA_PANEL_LAUNCH_H
#define MO_DEVICE_CUDA_PANEL_LAUNCH_H

#include "device/cuda/launch.h"

int mo_cuda_launch_panel_grouped(const mo_op_grouped *op, mo_cuda_launch *out);
/* Only where every quantized matrix has a panel; others are not its own. */
int mo_cuda_launch_panel_product(const mo_op_product *op, int sms, mo_cuda_launch *out);

#endif
