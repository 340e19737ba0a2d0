/* Plan for: how a model runs on a described PC, in two lines. */
#ifndef MO_CLI_PLAN_FOR_H
#define MO_CLI_PLAN_FOR_H

#include "cli/loading.h"
#include "cli/model_header.h"

/* Returns the exit code, after printing any error. pc: for example "rtx-3060, 32G". */
int cli_plan_for(const cli_model_header *header, const char *pc, const cli_loading *loading, bool json);

#endif
