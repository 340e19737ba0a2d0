/* Layer buffer: layers whose core does not fit in RAM are streamed through a few slots. Every token needs
 * them in the same order, so the next ones are read while one computes, also across the end of a token. The
 * disk never idles.
 *
 * One thread at a time, the one that runs a step. Nothing is allocated after opening. */
#ifndef MO_STORE_LAYER_BUFFER_H
#define MO_STORE_LAYER_BUFFER_H

#include "experts/expert_table.h"

typedef struct mo_layer_buffer mo_layer_buffer;

/* Streams all layers that the loader left on disk through `slots` >= 2 slots. The first read begins when a
 * layer is entered, or after mo_layer_buffer_skip(). slots 0: nothing is streamed for now, and matrices are
 * read through `pass_bytes` of memory; if a layer is entered later (a device was lost), two slots are
 * allocated. The experts must outlive the buffer. */
mo_status mo_layer_buffer_open(const mo_checkpoint *model, const mo_expert_table *experts, int slots,
                               int64_t pass_bytes, const mo_disk_options *disk, mo_layer_buffer **out,
                               mo_error *err);
void mo_layer_buffer_close(mo_layer_buffer *buffer); /* NULL is allowed */

/* Waits until the layer's matrices are in RAM and sets their views. Returns at once for a layer that stays in
 * RAM. After a failure the layer can be entered again. */
mo_status mo_layer_buffer_enter(mo_layer_buffer *buffer, int layer, mo_error *err);
/* The layer has been computed: its slot is refilled with the next layer that needs one. */
void mo_layer_buffer_leave(mo_layer_buffer *buffer, int layer);

/* True if mo_layer_buffer_enter() of this layer, the next in order, would return at once. */
bool mo_layer_buffer_has(const mo_layer_buffer *buffer, int layer);
/* True if this matrix of a layer is on disk. */
bool mo_layer_buffer_leaves(const mo_layer_buffer *buffer, int layer, const mo_weights *matrix);
/* Receives bytes [at, at + count) of a matrix, valid until it returns. */
typedef mo_status (*mo_layer_piece_fn)(void *user, int64_t at, const uint8_t *bytes, int64_t count,
                                       mo_error *err);
/* Reads such a matrix once, in pieces, in order, for a layer that is stored elsewhere. Call it after opening
 * and before mo_layer_buffer_skip(); no layer may have been entered. */
mo_status mo_layer_buffer_read(mo_layer_buffer *buffer, int layer, const mo_weights *matrix,
                               mo_layer_piece_fn take, void *user, mo_error *err);

/* These layers of the model ([layers]) are stored elsewhere and are no longer read; NULL: all are read. No
 * layer may be entered. */
void mo_layer_buffer_skip(mo_layer_buffer *buffer, const bool *layers);
/* The memory of the slots, page-aligned. */
uint8_t *mo_layer_buffer_region(const mo_layer_buffer *buffer, size_t *bytes);

typedef struct mo_layer_buffer_counters {
    uint64_t layers, bytes; /* layers entered; bytes read for them */
    uint64_t wait_ns;
    mo_disk_counters disk;
} mo_layer_buffer_counters;
mo_layer_buffer_counters mo_layer_buffer_count(const mo_layer_buffer *buffer);
const mo_disk *mo_layer_buffer_disk(const mo_layer_buffer *buffer);

#endif
