/* Ring: layers whose core does not fit into RAM pass through a ring of slots. Every token needs them all in
 * the same order, so the next ones are read while one computes, over the end of a token into the beginning of
 * the next, and the disk is never asked to wait.
 *
 * One thread at a time, the one that runs a step. Nothing allocates after opening. */
#ifndef MO_STORE_RING_H
#define MO_STORE_RING_H

#include "store/bricks.h"

typedef struct mo_ring mo_ring;

/* Streams every layer that the loader left on disk through `ring` >= 2 slots. The bricks outlive it. */
mo_status mo_ring_open(const mo_checkpoint *model, const mo_bricks *bricks, int ring,
                       const mo_disk_options *disk, mo_ring **out, mo_error *err);
void mo_ring_close(mo_ring *ring); /* NULL is allowed */

/* Waits until the layer's matrices are there and points its views at them. A layer that stays in RAM is there.
 * After a failure the layer can be entered again. */
mo_status mo_ring_enter(mo_ring *ring, int layer, mo_error *err);
/* The layer has been computed: its slot is filled with the next that will need one. */
void mo_ring_leave(mo_ring *ring, int layer);

/* Would mo_ring_enter() of this layer, the next in order, return at once? */
bool mo_ring_has(const mo_ring *ring, int layer);
/* These layers of the model ([layers]) have another place and are not read any more; NULL: all are. No layer is
 * entered. */
void mo_ring_pass_over(mo_ring *ring, const bool *layers);
/* The memory of the slots, page-aligned. */
uint8_t *mo_ring_region(const mo_ring *ring, size_t *bytes);

typedef struct mo_ring_counters {
    uint64_t layers, bytes; /* entered, and read for them */
    uint64_t wait_ns;
    mo_disk_counters disk;
} mo_ring_counters;
mo_ring_counters mo_ring_count(const mo_ring *ring);
const mo_disk *mo_ring_disk(const mo_ring *ring);

#endif
