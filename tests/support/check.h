/* Checks that many tests make: of a status, and of what an error says. */
#ifndef MO_TESTS_CHECK_H
#define MO_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "moraine.h"

/* Fails with the error's own sentence. */
static inline void check_status(mo_status status, const mo_error *err)
{
    if (status != MO_OK) {
        fail_msg("%s", err->detail);
    }
}

/* The error's sentence has this in it. */
static inline void check_says(const mo_error *err, const char *words)
{
    if (!strstr(err->detail, words)) {
        fail_msg("\"%s\" is not in: %s", words, err->detail);
    }
}

#endif
