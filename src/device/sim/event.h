/* Events of the simulated device: each recording has a number, and is done when its stream gets there. */
#ifndef MO_DEVICE_SIM_EVENT_H
#define MO_DEVICE_SIM_EVENT_H

#include "device/sim/stream.h"

mo_status mo_sim_event_create(mo_device *device, mo_event **out, mo_error *err);
void mo_sim_event_destroy(mo_event *event);
mo_status mo_sim_event_record(mo_event *event, mo_dstream *stream, mo_error *err);
mo_status mo_sim_stream_after(mo_dstream *stream, mo_event *event, mo_error *err);
mo_status mo_sim_event_query(mo_event *event, bool *done, mo_error *err);
mo_status mo_sim_event_wait(mo_event *event, mo_error *err);
mo_status mo_sim_event_seconds(mo_event *from, mo_event *to, double *out, mo_error *err);

#endif
