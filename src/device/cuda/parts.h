/* Parts of the CUDA device that its files share. Private to src/device/cuda. */
#ifndef MO_DEVICE_CUDA_PARTS_H
#define MO_DEVICE_CUDA_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/backend.h"
#include "device/cuda/driver.h"
#include "device/cuda/joined.h"
#include "device/cuda/launch.h"
#include "device/cuda/router.h"

enum {
    MO_CUDA_OLDEST = 75,    /* capability: the oldest that the kernels are written for */
    MO_CUDA_MODULES = 32,   /* .cu files */
    MO_CUDA_KERNELS = 1024, /* places for kernels that were looked up: a power of two */
    MO_CUDA_COUNTERS = 256, /* programs that have routers or adapters */
    MO_CUDA_MAIL_AT = 64,   /* bytes from a program's counter to its mail (joined.h) */
};

/* A kernel that was looked up. Names have static storage, so their address is the key. */
typedef struct mo_cuda_kernel {
    const char *name;
    void *function;
    uint32_t shared_limit; /* dynamic shared memory that a launch may ask for now */
} mo_cuda_kernel;

typedef struct mo_cuda_blas mo_cuda_blas;

typedef struct mo_cuda_device {
    mo_device base;
    const mo_cuda_driver *driver;
    int index;
    int handle; /* CUdevice */
    void *context;
    unsigned long serial; /* of this opening: what a thread remembers as current */
    char name[128];
    int compute; /* what the GPU can do */
    int code;    /* what the loaded kernels were compiled for: below compute when they are PTX */
    int sms;
    double memory_bytes_s;

    void *modules[MO_CUDA_MODULES];
    int module_count;
    mo_cuda_kernel kernels[MO_CUDA_KERNELS];
    int kernel_count;

    void *capture;  /* stream on which programs are recorded; nothing ever runs on it */
    bool no_graphs; /* refused once: programs are launched op by op */

    bool punctual; /* kernels begin when the one before has ended: asked for, or nothing else is possible */
    bool apart;    /* joining is not wanted, or was refused once: every op has kernels of its own */
    mo_daddr counters; /* of MO_CUDA_COUNTERS programs, zeros while nothing runs; 0: not needed yet */
    bool counter_acquired[MO_CUDA_COUNTERS];
    mo_daddr sums; /* of adapters: mo_cuda_place; 0: not needed yet, */
    bool no_sums;  /* or there was no memory */

    mo_cuda_blas *blas; /* blas.h; NULL: not opened, or there is none */
    bool blas_tried;    /* or it is not wanted */

    bool ready;             /* opened to the end */
    pthread_mutex_t losing; /* guards the writing of `why`, which is constant once lost is set */
    atomic_bool lost;
    char why[512];
} mo_cuda_device;

typedef struct mo_cuda_stream {
    mo_dstream base;
    void *handle;
} mo_cuda_stream;

typedef struct mo_cuda_event {
    mo_event base;
    void *handle;
} mo_cuda_event;

/* What kernels take that are several ops. */
typedef union mo_cuda_joined {
    mo_cuda_router router;
    mo_cuda_routed routed;
    mo_cuda_fresh fresh;
    mo_cuda_lowered lowered;
    mo_cuda_adapted adapted;
} mo_cuda_joined;

/* A kernel of an op, ready to go. */
typedef struct mo_cuda_step {
    void *function;
    uint32_t grid[3], block[3];
    uint32_t shared;
    bool prelaunch;        /* may be put on the device while the kernel before it runs */
    bool patient;          /* outside of programs too */
    const void *parameter; /* the op's own struct or a mo_cuda_joined; not the step's */
} mo_cuda_step;

/* ---- cuda_status.c ---- */

/* Begins every call: fails at once when the device is lost, and makes its context the thread's. */
mo_status mo_cuda_enter(mo_cuda_device *device, mo_error *err);

/* Ends every call of the driver: MO_OK for success; otherwise a status and a sentence with the name of the call and
 * the driver's own words. What kills the context makes the device lost. */
mo_status mo_cuda_check(mo_cuda_device *device, int result, const char *call, mo_error *err);

/* The same without a caller to report to: logs a warning. */
void mo_cuda_check_quietly(mo_cuda_device *device, int result, const char *call);

/* "CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)" into text. */
void mo_cuda_words(const mo_cuda_driver *driver, int result, char *text, size_t bytes);

/* This thread has no context of ours any more. */
void mo_cuda_leave(mo_cuda_device *device);

/* ---- cuda_memory.c ---- */

mo_status mo_cuda_alloc(mo_device *device, size_t bytes, mo_daddr *out, mo_error *err);
void mo_cuda_free(mo_device *device, mo_daddr address);
mo_status mo_cuda_pin(mo_device *device, size_t bytes, void **out, mo_daddr *seen, mo_error *err);
void mo_cuda_unpin(mo_device *device, void *memory);
mo_status mo_cuda_adopt(mo_device *device, void *memory, size_t bytes, mo_error *err);
void mo_cuda_release(mo_device *device, void *memory);

/* ---- cuda_stream.c ---- */

mo_status mo_cuda_stream_create(mo_device *device, mo_dstream **out, mo_error *err);
void mo_cuda_stream_destroy(mo_dstream *stream);
mo_status mo_cuda_stream_wait(mo_dstream *stream, mo_error *err);
mo_status mo_cuda_copy_in(mo_dstream *stream, mo_daddr to, const void *from, size_t bytes, mo_error *err);
mo_status mo_cuda_copy_out(mo_dstream *stream, void *to, mo_daddr from, size_t bytes, mo_error *err);
mo_status mo_cuda_copy_within(mo_dstream *stream, mo_daddr to, mo_daddr from, size_t bytes, mo_error *err);
bool mo_cuda_reaches(mo_device *device, mo_device *other);
mo_status mo_cuda_copy_across(mo_dstream *stream, mo_daddr to, mo_device *other, mo_daddr from, size_t bytes,
                              mo_error *err);
mo_status mo_cuda_clear(mo_dstream *stream, mo_daddr to, size_t bytes, mo_error *err);

/* ---- cuda_event.c ---- */

mo_status mo_cuda_event_create(mo_device *device, mo_event **out, mo_error *err);
void mo_cuda_event_destroy(mo_event *event);
mo_status mo_cuda_event_record(mo_event *event, mo_dstream *stream, mo_error *err);
mo_status mo_cuda_stream_after(mo_dstream *stream, mo_event *event, mo_error *err);
mo_status mo_cuda_event_query(mo_event *event, bool *done, mo_error *err);
mo_status mo_cuda_event_wait(mo_event *event, mo_error *err);
mo_status mo_cuda_event_seconds(mo_event *from, mo_event *to, double *out, mo_error *err);

/* ---- cuda_kernels.c ---- */

/* Loads the kernels for this GPU, or the PTX that is asked for. The context is current. What was loaded before a
 * failure is unloaded with the context. */
mo_status mo_cuda_load(mo_cuda_device *device, int ptx, mo_error *err);
void mo_cuda_unload(mo_cuda_device *device);

/* Which kernels run an op, looked up: fills steps[0 .. *count), at most MO_CUDA_KERNELS_PER_OP. */
mo_status mo_cuda_prepare(mo_cuda_device *device, const mo_op *op, mo_cuda_step *steps, int *count,
                          mo_error *err);

/* The same for a product and a choice that go together; otherwise *made is 0. router: becomes the step's parameter,
 * `arrived` is the caller's. */
mo_status mo_cuda_prepare_router(mo_cuda_device *device, const mo_op *first, const mo_op *second,
                                 mo_cuda_router *router, mo_cuda_step *step, int *made, mo_error *err);
/* The same for a stream and these two: *made is 1 or 0. */
mo_status mo_cuda_prepare_routed(mo_cuda_device *device, const mo_op *ops, int count, mo_cuda_routed *routed,
                                 mo_cuda_step *step, int *made, mo_error *err);
/* The same for heads and the attention behind them: *made kernels, or 0. */
mo_status mo_cuda_prepare_fresh(mo_cuda_device *device, const mo_op *first, const mo_op *second,
                                mo_cuda_fresh *fresh, mo_cuda_step steps[2], int *made, mo_error *err);
/* The same for what adapters add, with the ops around it: *taken of ops[0 .. count) go together, or 0. Lowered is one step, adapted are two. */
mo_status mo_cuda_prepare_lowered(mo_cuda_device *device, const mo_op *ops, int count,
                                  mo_cuda_lowered *lowered, mo_cuda_step *step, int *taken, mo_error *err);
mo_status mo_cuda_prepare_adapted(mo_cuda_device *device, const mo_op *ops, int count,
                                  const mo_cuda_place *place, mo_cuda_adapted *adapted, mo_cuda_step steps[2],
                                  int *taken, mo_error *err);

/* Starts one kernel; what it was prepared for is where it was. prelaunch: as prelaunch as it can begin, which is only for
 * kernels whose step says so. */
mo_status mo_cuda_start(mo_cuda_device *device, void *stream, const mo_cuda_step *step, bool prelaunch,
                        mo_error *err);

mo_status mo_cuda_op_launch(mo_dstream *stream, const mo_op *op, mo_error *err);

/* ---- cuda_counter.c ---- */

/* A counter in device memory for the routers of one program, whose kernels run one after the other, with space for mail MO_CUDA_MAIL_AT bytes
 * further. 0: there is none, and a warning has said so; nothing that needs it is then to be made. By the thread that makes and ends programs. */
mo_daddr mo_cuda_counter_acquire(mo_cuda_device *device);
void mo_cuda_counter_release(mo_cuda_device *device, mo_daddr counter); /* 0 is allowed */
/* Where a program with this counter has what adapters leave; `sums` 0: nowhere, and a warning has said so. */
mo_cuda_place mo_cuda_place_of(mo_cuda_device *device, mo_daddr counter);
void mo_cuda_counters_free(mo_cuda_device *device);

/* ---- cuda_program.c ---- */

mo_status mo_cuda_program_create(mo_device *device, const mo_op *ops, int count, mo_program **out,
                                 mo_error *err);
void mo_cuda_program_destroy(mo_program *program);
mo_status mo_cuda_program_run(mo_program *program, mo_dstream *stream, mo_error *err);

#endif
