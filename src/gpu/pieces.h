/* Pieces: a batch passes through several devices in pieces, so that one device computes a piece while the
 * next computes the previous piece. Every device has a thread. A piece is a step of fewer tokens, with
 * bit-identical results. A device begins a piece when the previous device has finished it and the next device
 * has taken the last one: there is one stream at a time between two devices. Private to gpu/.
 *
 * The host's part of a layer (choices, windows of copied experts) belongs to each thread. Reads of the store
 * from disk do not, so models with experts on disk are not divided. */
#ifndef MO_GPU_PIECES_H
#define MO_GPU_PIECES_H

#include "gpu/objects.h"

void mo_gpu_pieces_init(mo_gpu *head);
/* Adds a device at the end of the row: starts its thread, and allocates the memory of pieces for it and for
 * the head. */
mo_status mo_gpu_pieces_join(mo_gpu *gpu, int64_t batch, mo_error *err);
void mo_gpu_pieces_close(mo_gpu *head); /* ends the threads; no step may run */
/* True if the step is divided. */
bool mo_gpu_pieces_may(const mo_gpu *head, const mo_forward *forward);
/* Computes the step in pieces. `pass` computes a piece on a device, and calls mo_gpu_pieces_took() when it
 * has the stream. Returns the first failure; devices finish their current pieces. */
mo_status mo_gpu_pieces_run(mo_gpu *head, const mo_forward *forward, mo_gpu_pass pass, mo_error *err);
void mo_gpu_pieces_took(mo_gpu *gpu);

#endif
