/* Backend: what an implementation of the device interface provides. Private to src/device; other code calls
 * device.h, which checks arguments and forwards. */
#ifndef MO_DEVICE_BACKEND_H
#define MO_DEVICE_BACKEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "device/op.h"
#include "moraine.h"

/* As in device.h. */
typedef struct mo_device mo_device;
typedef struct mo_dstream mo_dstream;
typedef struct mo_event mo_event;
typedef struct mo_program mo_program;
typedef struct mo_device_info mo_device_info;

typedef struct mo_backend {
    void (*describe)(mo_device *, mo_device_info *);
    void (*close)(mo_device *);
    mo_status (*alloc)(mo_device *, size_t, mo_daddr *, mo_error *);
    void (*free)(mo_device *, mo_daddr);
    mo_status (*pin)(mo_device *, size_t, void **, mo_daddr *, mo_error *);
    void (*unpin)(mo_device *, void *);
    mo_status (*adopt)(mo_device *, void *, size_t, mo_error *);
    void (*release)(mo_device *, void *);
    mo_status (*stream_create)(mo_device *, mo_dstream **, mo_error *);
    void (*stream_destroy)(mo_dstream *);
    mo_status (*stream_wait)(mo_dstream *, mo_error *);
    mo_status (*copy_in)(mo_dstream *, mo_daddr, const void *, size_t, mo_error *);
    mo_status (*copy_out)(mo_dstream *, void *, mo_daddr, size_t, mo_error *);
    mo_status (*copy_within)(mo_dstream *, mo_daddr, mo_daddr, size_t, mo_error *);
    bool (*reaches)(mo_device *, mo_device *); /* of the same backend; with the next: NULL: never */
    mo_status (*copy_across)(mo_dstream *, mo_daddr, mo_device *, mo_daddr, size_t, mo_error *);
    mo_status (*clear)(mo_dstream *, mo_daddr, size_t, mo_error *);
    mo_status (*event_create)(mo_device *, mo_event **, mo_error *);
    void (*event_destroy)(mo_event *);
    mo_status (*event_record)(mo_event *, mo_dstream *, mo_error *);
    mo_status (*stream_after)(mo_dstream *, mo_event *, mo_error *);
    mo_status (*event_query)(mo_event *, bool *, mo_error *);
    mo_status (*event_wait)(mo_event *, mo_error *);
    mo_status (*event_seconds)(mo_event *, mo_event *, double *, mo_error *);
    mo_status (*launch)(mo_dstream *, const mo_op *, mo_error *);
    mo_status (*program_create)(mo_device *, const mo_op *, int, mo_program **, mo_error *);
    void (*program_destroy)(mo_program *);
    mo_status (*program_run)(mo_program *, mo_dstream *, mo_error *);
} mo_backend;

/* Is called before and after each op, copy and wait is enqueued; op NULL: it is no op. A failure is the call's. */
typedef struct mo_watcher {
    mo_status (*before)(mo_dstream *, const mo_op *, mo_error *);
    mo_status (*after)(mo_dstream *, mo_error *);
} mo_watcher;

/* Every implementation's structs begin with these. */
struct mo_device {
    const mo_backend *backend;
    atomic_int refused; /* mo_device_refusal(); device.c's, 0 at first */
};
struct mo_dstream {
    mo_device *device;
    mo_watcher *watcher; /* of what is enqueued; NULL: none. Set by device.c and meter.c */
};
struct mo_event {
    mo_device *device;
};
struct mo_program {
    mo_device *device;
};

#endif
