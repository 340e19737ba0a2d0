/* Status: how every fallible function reports what went wrong. */
#ifndef MO_BASE_STATUS_H
#define MO_BASE_STATUS_H

#include "moraine.h"

/* Fills err (may be NULL) with the status and a formatted sentence; returns status, so that
 * `return mo_fail(err, MO_EIO, "...")` is how everything fails. */
mo_status mo_fail(mo_error *err, mo_status status, const char *fmt, ...) MO_PRINTF(3, 4);

/* Puts "prefix: " before the detail that is already in err; returns err's status. */
mo_status mo_fail_prefix(mo_error *err, mo_status status, const char *fmt, ...) MO_PRINTF(3, 4);

#endif
