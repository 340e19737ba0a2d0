/* Layer buffer: layers whose core does not fit on the device are streamed: they cross the link for every step, into buffers
 * there that are filled in turn. Every step needs them all in the same order, so the next ones are copied while one
 * computes, over the end of a step into the beginning of the next. What is not in RAM either comes from the disk through
 * the store's layer buffer.
 *
 * Only matrices are streamed; vectors stay. Private to the gpu's files. */
#ifndef MO_GPU_LAYER_BUFFER_H
#define MO_GPU_LAYER_BUFFER_H

#include "gpu/link.h"
#include "gpu/memory.h"
#include "plan/placement.h"
#include "store/tiers.h"

enum {
    STREAM_PARTS = 16, /* most matrices of a layer's core */
    /* Slots: one computes, others arrive; with RAM interleaved one of them is for the file's layout. */
    STREAM_BUFFERS = MO_PLAN_DEVICE_LAYER_BUFFERS,
};

typedef struct mo_streamed_part {
    const mo_weights *w;
    int64_t at; /* in the slot */
} mo_streamed_part;

typedef struct mo_streamed_layer {
    int layer, count;
    int slot; /* always the same, so that programs stay true */
    mo_streamed_part parts[STREAM_PARTS];
    int64_t used;            /* bytes of a slot */
    mo_event *began, *ready; /* of its copy */
    bool timed;              /* both were recorded, and the time has not been read */
} mo_streamed_layer;

typedef struct mo_gpu_cpu_layers {
    int count;
    bool *layers; /* [layers of the model] */
} mo_gpu_cpu_layers;

typedef struct mo_gpu_layer_buffer {
    mo_gpu_link *link;
    int total;                 /* layers of the model */
    int count;                 /* streamed layers; 0: all stay */
    mo_streamed_layer *layers; /* [count], in the order of the model */
    int *number;               /* [layers of the model] among them, -1: it stays */
    int64_t slot_bytes;        /* of a buffer */
    mo_daddr memory;           /* [buffers][slot_bytes] */
    int buffers;
    int slots;        /* that copies go to */
    bool interleaved; /* the last slot holds the layer that computes, in the file's layout */
    int *
        small; /* [small_count] numbers of those that are streamed in small steps, too: the CPU computes the others */
    int small_count;
    bool batch; /* the step is one: all of them are streamed */
    mo_dstream *stream;
    mo_event *done[STREAM_BUFFERS];
    bool used[STREAM_BUFFERS];      /* `done` was recorded: who fills it waits for that */
    uint64_t holds[STREAM_BUFFERS]; /* 1 + the position it was filled for; 0: never */
    uint64_t head, asked;  /* positions: of the next layer to be computed; after the last that was sent */
    mo_tiers *tiers;       /* NULL: everything is in RAM */
    int held;              /* layer whose slot in RAM is being copied from; -1: none */
    mo_event *copied;      /* the end of that */
    mo_gpu_cpu_layers cpu; /* those of them that the CPU computes in small steps */
    uint64_t bytes, ns;    /* that crossed, and what that took */
} mo_gpu_layer_buffer;

/* Opens the buffers that the placement asks for; link, total and tiers are set. Before the core is laid out. */
mo_status mo_gpu_layer_buffer_open(mo_gpu_layer_buffer *b, const mo_placement *placement,
                                   mo_gpu_memory *memory, mo_error *err);
void mo_gpu_layer_buffer_close(mo_gpu_layer_buffer *b);

/* While the core is laid out: the streamed layer, or NULL when it stays; a matrix of it, and where it will be found. */
mo_streamed_layer *mo_gpu_layer_buffer_of(mo_gpu_layer_buffer *b, int layer);
mo_daddr mo_gpu_layer_buffer_add(mo_gpu_layer_buffer *b, mo_streamed_layer *l, const mo_weights *w);

/* Is a matrix of a layer that stays on disk? Then it is read once, in pieces, to be sent. */
bool mo_gpu_layer_buffer_on_disk(const mo_gpu_layer_buffer *b, int layer, const mo_weights *w);
/* After the core was sent: layers that stay are no longer read. */
mo_status mo_gpu_layer_buffer_ready(mo_gpu_layer_buffer *b, mo_error *err);

static inline bool mo_gpu_layer_buffer_has(const mo_gpu_layer_buffer *b, int layer)
{
    return b->number[layer] >= 0;
}

/* Before a step: what is streamed in it. */
mo_status mo_gpu_layer_buffer_begin(mo_gpu_layer_buffer *b, bool small, mo_error *err);
/* The device's main stream goes on when the layer's matrices are there; waits for the disk where they come from it. */
mo_status mo_gpu_layer_buffer_enter(mo_gpu_layer_buffer *b, int layer, mo_error *err);
/* Everything that reads them has been launched: the slot is filled with the next that will need it. */
mo_status mo_gpu_layer_buffer_leave(mo_gpu_layer_buffer *b, int layer, mo_error *err);

/* A step has ended: counts what its copies took, as far as they have. */
void mo_gpu_layer_buffer_measure(mo_gpu_layer_buffer *b);
/* A step was given up, and nothing is under way any more: the next one begins anew. */
void mo_gpu_layer_buffer_abort(mo_gpu_layer_buffer *b);
/* The device is lost: the CPU reads all layers again. */
void mo_gpu_layer_buffer_end(mo_gpu_layer_buffer *b);

#endif
