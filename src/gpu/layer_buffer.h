/* Layer buffer: streams layers whose core does not fit on the device, for every step, through buffers on the
 * device. Every step needs them in the same order, so the next ones are copied while one computes, also
 * across the end of a step. Data that are not in RAM come from disk through the store's layer buffer.
 *
 * Only matrices are streamed; vectors stay on the device. Private to gpu/. */
#ifndef MO_GPU_LAYER_BUFFER_H
#define MO_GPU_LAYER_BUFFER_H

#include "gpu/link.h"
#include "gpu/memory.h"
#include "plan/placement.h"
#include "store/tiers.h"

enum {
    STREAM_PARTS = 16, /* maximum matrices of a layer's core */
    /* Slots: one computes, others are being filled; if RAM is interleaved, one is for the file's layout. */
    STREAM_BUFFERS = MO_PLAN_DEVICE_LAYER_BUFFERS,
};

typedef struct mo_streamed_part {
    const mo_weights *w;
    int64_t at; /* offset in the slot */
} mo_streamed_part;

typedef struct mo_streamed_layer {
    int layer, count;
    int slot; /* always the same, so that programs stay valid */
    mo_streamed_part parts[STREAM_PARTS];
    int64_t used;            /* bytes of a slot */
    mo_event *began, *ready; /* of its copy */
    bool timed;              /* both were recorded, and the duration has not been read */
} mo_streamed_layer;

typedef struct mo_gpu_cpu_layers {
    int count;
    bool *layers; /* [layers of the model] */
} mo_gpu_cpu_layers;

typedef struct mo_gpu_layer_buffer {
    mo_gpu_link *link;
    int total;                 /* layers of the model */
    int count;                 /* streamed layers; 0: all are resident */
    mo_streamed_layer *layers; /* [count], in the order of the model */
    int *number;               /* [layers of the model] index in layers; -1: resident */
    int64_t slot_bytes;        /* of a buffer */
    mo_daddr memory;           /* [buffers][slot_bytes] */
    int buffers;
    int slots;        /* slots that copies go to */
    bool interleaved; /* the last slot holds the current layer, in the file's layout */
    int *
        small; /* [small_count] indices of layers that small steps also stream; the CPU computes the others */
    int small_count;
    bool batch; /* the step is a batch: all of them are streamed */
    mo_dstream *stream;
    mo_event *done[STREAM_BUFFERS];
    bool used[STREAM_BUFFERS];      /* `done` was recorded: refilling waits for it */
    uint64_t holds[STREAM_BUFFERS]; /* 1 + the position it was filled for; 0: never */
    uint64_t head, asked;           /* positions: of the next layer to compute; after the last one sent */
    mo_tiers *tiers;                /* NULL: all weights are in RAM */
    int held;                       /* layer whose slot in RAM is being copied; -1: none */
    mo_event *copied;               /* end of that copy */
    mo_gpu_cpu_layers cpu;          /* layers that the CPU computes in small steps */
    uint64_t bytes, ns;             /* bytes copied, and the duration */
} mo_gpu_layer_buffer;

/* Opens the buffers of the placement; link, total and tiers are set. Call it before the core is laid out. */
mo_status mo_gpu_layer_buffer_open(mo_gpu_layer_buffer *b, const mo_placement *placement,
                                   mo_gpu_memory *memory, mo_error *err);
void mo_gpu_layer_buffer_close(mo_gpu_layer_buffer *b);

/* While the core is laid out: the streamed layer, NULL if it is resident; and the address where a matrix of
 * it will be. */
mo_streamed_layer *mo_gpu_layer_buffer_of(mo_gpu_layer_buffer *b, int layer);
mo_daddr mo_gpu_layer_buffer_add(mo_gpu_layer_buffer *b, mo_streamed_layer *l, const mo_weights *w);

/* True if a matrix of a resident layer is on disk: it is then read once, in pieces, and sent. */
bool mo_gpu_layer_buffer_on_disk(const mo_gpu_layer_buffer *b, int layer, const mo_weights *w);
/* After the core was sent: resident layers are not read any more. */
mo_status mo_gpu_layer_buffer_ready(mo_gpu_layer_buffer *b, mo_error *err);

static inline bool mo_gpu_layer_buffer_has(const mo_gpu_layer_buffer *b, int layer)
{
    return b->number[layer] >= 0;
}

/* Before a step: selects the layers that are streamed in it. */
mo_status mo_gpu_layer_buffer_begin(mo_gpu_layer_buffer *b, bool small, mo_error *err);
/* Lets the main stream wait for the layer's matrices; waits for the disk if they come from there. */
mo_status mo_gpu_layer_buffer_enter(mo_gpu_layer_buffer *b, int layer, mo_error *err);
/* All ops that read the layer are launched: the slot is refilled with the next layer that needs one. */
mo_status mo_gpu_layer_buffer_leave(mo_gpu_layer_buffer *b, int layer, mo_error *err);

/* After a step: counts the duration of copies that have ended. */
void mo_gpu_layer_buffer_measure(mo_gpu_layer_buffer *b);
/* A step was aborted and nothing is in flight: the next one starts over. */
void mo_gpu_layer_buffer_abort(mo_gpu_layer_buffer *b);
/* The device is lost: the CPU reads all layers again. */
void mo_gpu_layer_buffer_end(mo_gpu_layer_buffer *b);

#endif
