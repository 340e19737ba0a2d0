/* Meter: the time of a stream's work, split into parts by the caller. Every op, copy and wait that is enqueued
 * on a stream with a meter stands between two events, so it runs after and before the same things as without, a few
 * microseconds later. For benchmarks. Prepared programs are not measured. Used by the thread that calls the device. */
#ifndef MO_DEVICE_METER_H
#define MO_DEVICE_METER_H

#include "device/device.h"

typedef struct mo_meter mo_meter;

/* Which part an op belongs to, 0 .. parts - 1; NULL: a copy, or waiting for another stream. */
typedef int (*mo_meter_part)(const void *user, const mo_op *op);

mo_status mo_meter_open(mo_device *device, mo_meter_part part, const void *user, mo_meter **out,
                        mo_error *err);
void mo_meter_close(mo_meter *meter); /* of no stream any more; NULL is allowed */

/* The stream's meter from now on; NULL: none. A meter belongs to one stream at a time. */
void mo_meter_attach(mo_dstream *stream, mo_meter *meter);

/* Waits for what was measured, adds its nanoseconds to ns[part] and begins anew. After a failure nothing is left of it. */
mo_status mo_meter_read(mo_meter *meter, int64_t *ns, mo_error *err);

#endif
