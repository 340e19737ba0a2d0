/* What a program warns of: how often, and in which words the last time. */
#ifndef MO_TESTS_WARNINGS_H
#define MO_TESTS_WARNINGS_H

#include <stdio.h>

#include "moraine.h"

static int warnings;
static char warning[512];

/* For mo_log_set() with MO_LOG_WARN. */
static inline void keep_warning(void *user, mo_log_level level, const char *subsystem, const char *text)
{
    (void)user;
    (void)level;
    (void)subsystem;
    warnings++;
    snprintf(warning, sizeof warning, "%.500s", text);
}

#endif
