/* Choice: a device by the name that users give. */
#ifndef MO_DEVICE_CHOICE_H
#define MO_DEVICE_CHOICE_H

#include "device/device.h"

enum { MO_DEVICE_WHY = 256 }; /* bytes that any reason fits into */

/* Opens "none", "sim", "cuda", or with "auto" (or NULL) a GPU where one can be used. *out NULL with MO_OK: there is
 * none, and `why` (why_bytes, may be NULL) says in one sentence for what reason; it is empty for "none". "cuda" that
 * cannot be opened is MO_EDEVICE, an unknown name MO_EINVAL. Close it with mo_device_close(). Any thread.
 *
 * "sim" is as MORAINE_SIM in the environment says: memory=SIZE, link=RATE (bytes per second),
 * fault=KIND[:AFTER[:COUNT]] with alloc, pin, copy, hang or lost (once, without COUNT), hang=MILLISECONDS, in any order,
 * with commas between. A tool of developers. */
mo_status mo_device_choose(const char *name, mo_device **out, char *why, size_t why_bytes, mo_error *err);

/* mo_device_choose(), and tells the reason in the log as well, under subsystem "device" and at the level it deserves. */
mo_status mo_device_choose_verbose(const char *name, mo_device **out, char *why, size_t why_bytes,
                                   mo_error *err);

#endif
