/* The simulated device's memory: addresses of its own, translated by a table. */
#ifndef MO_DEVICE_SIM_MEMORY_H
#define MO_DEVICE_SIM_MEMORY_H

#include "device/sim/state.h"

void mo_sim_memory_open(mo_sim_memory *m, int64_t limit);
void mo_sim_memory_close(mo_sim_memory *m); /* asserts that everything was given back */

/* The memory behind a device address; NULL when not all of it is one allocation's. Any thread. */
void *mo_sim_memory_find(mo_sim_memory *m, mo_daddr address, int64_t bytes);

/* A copy to or from this address is asked for (1), or over (-1): until then the memory may not be freed, unless the device is lost.
 * An address that is no longer the device's is ignored. Any thread. */
void mo_sim_memory_count(mo_sim_memory *m, mo_daddr address, int copies);

/* Is this host memory pinned or adopted, all of it? */
bool mo_sim_memory_pinned(mo_sim_memory *m, const void *memory, size_t bytes);

/* Is this "host pointer" an address of the device? */
bool mo_sim_memory_is_address(const void *pointer);

/* ---- The device's calls ---- */

mo_status mo_sim_alloc(mo_device *device, size_t bytes, mo_daddr *out, mo_error *err);
void mo_sim_free(mo_device *device, mo_daddr address);
mo_status mo_sim_pin(mo_device *device, size_t bytes, void **out, mo_daddr *seen, mo_error *err);
void mo_sim_unpin(mo_device *device, void *memory);
mo_status mo_sim_adopt(mo_device *device, void *memory, size_t bytes, mo_error *err);
void mo_sim_release(mo_device *device, void *memory);

#endif
