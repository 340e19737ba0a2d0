/* Layer buffer: layers whose core does not fit into RAM are streamed through a few slots. Every token needs them all in
 * the same order, so the next ones are read while one computes, over the end of a token into the beginning of
 * the next, and the disk is never asked to wait.
 *
 * One thread at a time, the one that runs a step. Nothing allocates after opening. */
#ifndef MO_STORE_LAYER_BUFFER_H
#define MO_STORE_LAYER_BUFFER_H

#include "experts/expert_table.h"

typedef struct mo_layer_buffer mo_layer_buffer;

/* Streams every layer that the loader left on disk through `slots` >= 2 slots; the first is read when a layer is entered, or
 * after mo_layer_buffer_skip(). slots 0: nothing is streamed for now, and matrices are read through `pass_bytes` of memory;
 * should a layer be entered after all (a device was lost), two slots are allocated then. The experts outlive it. */
mo_status mo_layer_buffer_open(const mo_checkpoint *model, const mo_expert_table *experts, int slots,
                               int64_t pass_bytes, const mo_disk_options *disk, mo_layer_buffer **out,
                               mo_error *err);
void mo_layer_buffer_close(mo_layer_buffer *buffer); /* NULL is allowed */

/* Waits until the layer's matrices are there and points its views at them. A layer that stays in RAM is there.
 * After a failure the layer can be entered again. */
mo_status mo_layer_buffer_enter(mo_layer_buffer *buffer, int layer, mo_error *err);
/* The layer has been computed: its slot is filled with the next that will need one. */
void mo_layer_buffer_leave(mo_layer_buffer *buffer, int layer);

/* Would mo_layer_buffer_enter() of this layer, the next in order, return at once? */
bool mo_layer_buffer_has(const mo_layer_buffer *buffer, int layer);
/* Is this matrix of a layer on disk? */
bool mo_layer_buffer_leaves(const mo_layer_buffer *buffer, int layer, const mo_weights *matrix);
/* Takes bytes [at, at + count) of a matrix; they may be overwritten when it has returned. */
typedef mo_status (*mo_layer_piece_fn)(void *user, int64_t at, const uint8_t *bytes, int64_t count,
                                       mo_error *err);
/* Reads such a matrix once, in pieces, in order: for a layer that is kept elsewhere. Between opening and
 * mo_layer_buffer_skip(), before any layer is entered. */
mo_status mo_layer_buffer_read(mo_layer_buffer *buffer, int layer, const mo_weights *matrix,
                               mo_layer_piece_fn take, void *user, mo_error *err);

/* These layers of the model ([layers]) have another place and are not read any more; NULL: all are. No layer is
 * entered. */
void mo_layer_buffer_skip(mo_layer_buffer *buffer, const bool *layers);
/* The memory of the slots, page-aligned. */
uint8_t *mo_layer_buffer_region(const mo_layer_buffer *buffer, size_t *bytes);

typedef struct mo_layer_buffer_counters {
    uint64_t layers, bytes; /* entered, and read for them */
    uint64_t wait_ns;
    mo_disk_counters disk;
} mo_layer_buffer_counters;
mo_layer_buffer_counters mo_layer_buffer_count(const mo_layer_buffer *buffer);
const mo_disk *mo_layer_buffer_disk(const mo_layer_buffer *buffer);

#endif
