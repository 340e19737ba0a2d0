/* Marks: what the parts of a layer take on the device, where the profile wants to know. Now and then a small step runs in shorter programs, with events of the
 * main stream between them; others are as fast as ever. Private to the gpu's files. */
#ifndef MO_GPU_MARKS_H
#define MO_GPU_MARKS_H

#include "device/device.h"
#include "gpu/clock.h"

typedef enum mo_gpu_mark {
    MO_MARK_ROUTES,   /* what comes next is the router */
    MO_MARK_CHOSEN,   /* experts are chosen */
    MO_MARK_COMPUTED, /* the device has computed its own, and the other parts */
    MO_MARK_ARRIVED,  /* the host's rows are there */
    MO_MARK_MERGED,
    MO_MARKS
} mo_gpu_mark;

typedef struct mo_gpu_marks {
    int layers;
    mo_event **events; /* [layers][MO_MARKS], made when the first step wants them; NULL: none has */
    uint8_t *set;      /* [layers]: bit m, mark m was set in this step */
    uint64_t asked;    /* small steps whose times are wanted */
} mo_gpu_marks;

/* Events of a device for this many layers; a failure leaves nothing. */
mo_status mo_gpu_marks_open(mo_gpu_marks *m, mo_device *device, int layers, mo_error *err);
void mo_gpu_marks_close(mo_gpu_marks *m); /* one that was not opened is allowed */

/* Does a step whose times are wanted have marks? Every 512th, from the first on. */
bool mo_gpu_marks_turn(mo_gpu_marks *m);
/* A step begins: none is set. */
void mo_gpu_marks_clear(mo_gpu_marks *m);
mo_status mo_gpu_marks_put(mo_gpu_marks *m, int layer, mo_gpu_mark mark, mo_dstream *stream, mo_error *err);
/* The step has ended on the device: tells the clock of every layer with marks. */
mo_status mo_gpu_marks_read(mo_gpu_marks *m, mo_gpu_clock *clock, mo_error *err);

#endif
