/* Choice: a device by the name that users give. */
#ifndef MO_DEVICE_CHOICE_H
#define MO_DEVICE_CHOICE_H

#include "device/device.h"

enum { MO_DEVICE_WHY = 256 }; /* bytes that any reason fits into */

enum { MO_DEVICES = MO_DEVICES_MAX }; /* most that a list names */

/* Opens "none", "sim", "cuda" (as "sim:1" and "cuda:1" those with another number than 0), or with "auto" (or NULL) a GPU where one can be used. *out NULL with MO_OK: there is
 * none, and `why` (why_bytes, may be NULL) says in one sentence for what reason; it is empty for "none". "cuda" that
 * cannot be opened is MO_EDEVICE, an unknown name MO_EINVAL. Close it with mo_device_close(). Any thread.
 *
 * "sim" is as MORAINE_SIM in the environment says: memory=SIZE, link=RATE (bytes per second), rate=RATE (of its memory, for
 * plans), exact (no products in bfloat16),
 * fault=KIND[:AFTER[:COUNT]] with open, alloc, pin, copy, hang or lost (once, without COUNT), hang=MILLISECONDS, in any order,
 * with commas between; "sim:1" as MORAINE_SIM_1 says, where there is that. With MORAINE_SIM_COUNT "auto" chooses from that many of
 * these instead of the machine's GPUs. A tool of developers. */
mo_status mo_device_choose(const char *name, mo_device **out, char *why, size_t why_bytes, mo_error *err);

/* mo_device_choose(), and tells the reason in the log as well, under subsystem "device" and at the level it deserves. */
mo_status mo_device_choose_verbose(const char *name, mo_device **out, char *why, size_t why_bytes,
                                   mo_error *err);

/* The same for a list of names, such as "cuda:0,cuda:1", in out[MO_DEVICES]; a device may be named twice, "none" and "auto" stand
 * alone. "auto" opens every GPU that can be used. "sim" that is not numbered has the number of its place in the list. *count 0
 * with MO_OK: there is none. told: also log the reasons. On failure none is open. */
mo_status mo_devices_choose(const char *names, bool told, mo_device **out, int *count, char *why,
                            size_t why_bytes, mo_error *err);

#endif
