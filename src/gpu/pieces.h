/* Pieces: a batch goes through several devices in pieces, so that one computes a piece while the next computes the one before it. Every
 * device has a thread; a piece is a step of fewer tokens, with bit-identical results. A device begins a piece when the one before it
 * has given it, and the next one has taken the last: between two of them is one stream at a time. Private to the gpu's files.
 *
 * The host's part of a layer (choices, windows of experts that cross) is each thread's own; what the store reads from disk is not, so that
 * models with experts on disk go as a whole. */
#ifndef MO_GPU_PIECES_H
#define MO_GPU_PIECES_H

#include "gpu/objects.h"

void mo_gpu_pieces_init(mo_gpu *head);
/* A device more, which is the last of the row now: its thread, and for the head and for it what a piece needs. */
mo_status mo_gpu_pieces_join(mo_gpu *gpu, int64_t batch, mo_error *err);
void mo_gpu_pieces_close(mo_gpu *head); /* threads end; no step may run */
/* Does the step go in pieces? */
bool mo_gpu_pieces_may(const mo_gpu *head, const mo_forward *forward);
/* Computes it so: `pass` is what a device does with a piece; it calls mo_gpu_pieces_took() when it has the stream. The first failure
 * is the step's; devices end the pieces that they are at. */
mo_status mo_gpu_pieces_run(mo_gpu *head, const mo_forward *forward, mo_gpu_pass pass, mo_error *err);
void mo_gpu_pieces_took(mo_gpu *gpu);

#endif
