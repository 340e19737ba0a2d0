/* Work of the simulated device's streams: copies over the link, ops and programs. */
#ifndef MO_DEVICE_SIM_WORK_H
#define MO_DEVICE_SIM_WORK_H

#include "device/sim/stream.h"

mo_status mo_sim_copy_in(mo_dstream *stream, mo_daddr to, const void *from, size_t bytes, mo_error *err);
mo_status mo_sim_copy_out(mo_dstream *stream, void *to, mo_daddr from, size_t bytes, mo_error *err);
mo_status mo_sim_copy_within(mo_dstream *stream, mo_daddr to, mo_daddr from, size_t bytes, mo_error *err);
bool mo_sim_reaches(mo_device *device, mo_device *other);
mo_status mo_sim_copy_across(mo_dstream *stream, mo_daddr to, mo_device *other, mo_daddr from, size_t bytes,
                             mo_error *err);
mo_status mo_sim_clear(mo_dstream *stream, mo_daddr to, size_t bytes, mo_error *err);
mo_status mo_sim_launch(mo_dstream *stream, const mo_op *op, mo_error *err);
mo_status mo_sim_program_create(mo_device *device, const mo_op *ops, int count, mo_program **out,
                                mo_error *err);
void mo_sim_program_destroy(mo_program *program);
mo_status mo_sim_program_run(mo_program *program, mo_dstream *stream, mo_error *err);

#endif
