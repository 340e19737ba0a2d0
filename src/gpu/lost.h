/* Lost: a step that is given up, and the share of a device that is lost while others of the row go on. The CPU computes its
 * layers, with their states in RAM and whatever of their matrices and experts is on disk read from there; the others keep
 * theirs. Private to the gpu's files. */
#ifndef MO_GPU_LOST_H
#define MO_GPU_LOST_H

#include "gpu/objects.h"

/* A step was given up on this device: ends its waits for the host; nothing is in flight afterwards. */
void mo_gpu_give_up(mo_gpu *gpu);

/* In a turn, after a failure that `why` tells: which devices are lost? False: all of them, or what is left cannot go on alone.
 * Otherwise the blocks of sessions that were there have other memory, and nothing of what they held. */
bool mo_gpu_lost_find(mo_gpu *head, const mo_error *why);

/* The device's part of a step. */
mo_status mo_gpu_lost_run(mo_gpu *gpu, mo_forward *forward, mo_error *err);

#endif
