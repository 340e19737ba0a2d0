/* Lost: aborted steps, and the layers of a lost device while others continue. The CPU computes these layers
 * with their states in RAM, and reads matrices and experts that are on disk from there. The other devices
 * keep their layers. Private to gpu/. */
#ifndef MO_GPU_LOST_H
#define MO_GPU_LOST_H

#include "gpu/objects.h"

/* Aborts a step on this device: ends its waits for the host; nothing is in flight afterwards. */
void mo_gpu_give_up(mo_gpu *gpu);

/* In a turn, after the failure `why`: finds the lost devices. False: all are lost, or the rest cannot
 * continue. Otherwise the blocks of sessions that were there get other memory, without their contents. */
bool mo_gpu_lost_find(mo_gpu *head, const mo_error *why);

/* Computes the device's part of a step. */
mo_status mo_gpu_lost_run(mo_gpu *gpu, mo_forward *forward, mo_error *err);

#endif
