/* Device run: a picture through an encoder on a device, by the ops of text models; the rows have the bits of mo_encoder_run(). Weights pass
 * through the device layer by layer, and nothing stays there afterwards. */
#ifndef MO_VISION_DEVICE_RUN_H
#define MO_VISION_DEVICE_RUN_H

#include "device/device.h"
#include "vision/encoder.h"

/* Is the encoder one that a device computes? Otherwise why not, for people. */
const char *mo_encoder_device_refusal(const mo_encoder *e);

/* Memory of the device that a picture of this size takes while it is encoded. */
int64_t mo_encoder_device_bytes(const mo_encoder *e, int64_t width, int64_t height);

/* As mo_encoder_run(), in that memory of the device. kernels: of the host, for the look at the result. `batch` is unread. A failure that is neither
 * MO_ECANCELLED nor MO_EFORMAT is the device's: the CPU can still encode the picture. */
mo_status mo_encoder_device_run(const mo_encoder *e, mo_device *device, mo_daddr memory,
                                const mo_encoder_work *work, const mo_picture *picture, float *out,
                                mo_error *err);

#endif
