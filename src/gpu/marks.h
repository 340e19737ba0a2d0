/* Marks: times of a layer's parts on the device, if the profile records them. Occasionally a small step runs
 * in shorter programs, with events of the main stream between them; other steps keep their speed. Private to
 * gpu/. */
#ifndef MO_GPU_MARKS_H
#define MO_GPU_MARKS_H

#include "device/device.h"
#include "gpu/clock.h"

typedef enum mo_gpu_mark {
    MO_MARK_ROUTES,   /* before the router */
    MO_MARK_CHOSEN,   /* experts are chosen */
    MO_MARK_COMPUTED, /* the device has computed its experts, and the other parts */
    MO_MARK_ARRIVED,  /* the host's rows have arrived */
    MO_MARK_MERGED,
    MO_MARKS
} mo_gpu_mark;

typedef struct mo_gpu_marks {
    int layers;
    mo_event **events; /* [layers][MO_MARKS], created for the first measured step; NULL: not yet */
    uint8_t *set;      /* [layers] bit m: mark m was set in this step */
    uint64_t asked;    /* small steps whose times were requested */
} mo_gpu_marks;

/* Events on a device for this many layers; nothing is left after a failure. */
mo_status mo_gpu_marks_open(mo_gpu_marks *m, mo_device *device, int layers, mo_error *err);
void mo_gpu_marks_close(mo_gpu_marks *m); /* no effect if it was not opened */

/* True if a step whose times are requested gets marks: every 512th, starting with the first. */
bool mo_gpu_marks_turn(mo_gpu_marks *m);
/* Starts a step: no mark is set. */
void mo_gpu_marks_clear(mo_gpu_marks *m);
mo_status mo_gpu_marks_put(mo_gpu_marks *m, int layer, mo_gpu_mark mark, mo_dstream *stream, mo_error *err);
/* After the step on the device: reports every layer with marks to the clock. */
mo_status mo_gpu_marks_read(mo_gpu_marks *m, mo_gpu_clock *clock, mo_error *err);

#endif
