/* Host: the device interface on this process's own memory, synchronously, with any set of kernels. An address is a
 * pointer; copies are memcpy. The reference for the other devices, and what tests compare with. */
#ifndef MO_DEVICE_HOST_HOST_H
#define MO_DEVICE_HOST_HOST_H

#include "device/device.h"
#include "numeric/kernels.h"

mo_status mo_host_device_open(const mo_kernels *kernels, mo_device **out, mo_error *err);

#endif
