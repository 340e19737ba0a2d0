/* Status: how functions report errors. */
#ifndef MO_BASE_STATUS_H
#define MO_BASE_STATUS_H

#include "moraine.h"

/* Fills err (may be NULL) and returns status: `return mo_fail(err, MO_EIO, "...")`. */
mo_status mo_fail(mo_error *err, mo_status status, const char *fmt, ...) MO_PRINTF(3, 4);

/* Prepends "prefix: " to the detail in err. Returns err's status. */
mo_status mo_fail_prefix(mo_error *err, mo_status status, const char *fmt, ...) MO_PRINTF(3, 4);

#endif
