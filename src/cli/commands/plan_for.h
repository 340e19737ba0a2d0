/* Plan for: what a model would do on a PC in words, in two lines. */
#ifndef MO_CLI_PLAN_FOR_H
#define MO_CLI_PLAN_FOR_H

#include "cli/loading.h"
#include "cli/model_header.h"

/* The exit code, after saying what is wrong. pc: as in "rtx-3060, 32G". */
int cli_plan_for(const cli_model_header *header, const char *pc, const cli_loading *loading, bool json);

#endif
