/* Idle: reports options and variables that have no effect with the open or planned model, once each. */
#ifndef MO_CLI_IDLE_H
#define MO_CLI_IDLE_H

#include <moraine_server.h>

#include "cli/loading.h"

void cli_idle_tell(const char *command, const cli_loading *l, mo_model *model);

/* For `moraine plan`. */
void cli_idle_tell_plan(const cli_loading *l, const mo_plan_report *report);

/* Reports the option of three tiers, which has no effect. */
void cli_idle_streaming(const char *command, const cli_loading *l);

/* Reports environment variables of llama.cpp and ggml that are not used here, or not with these options.
   serve: the command reads LLAMA_ARG_ itself. */
void cli_idle_variables(const char *command, const cli_loading *l, bool serve);

#endif
