/* Idle: options and environment variables that have no effect with the model as it was opened or planned. Each is reported once,
 * on stderr. */
#ifndef MO_CLI_IDLE_H
#define MO_CLI_IDLE_H

#include <moraine_server.h>

#include "cli/loading.h"

void cli_idle_tell(const char *command, const cli_loading *l, mo_model *model);

/* Of `moraine plan`. */
void cli_idle_tell_plan(const cli_loading *l, const mo_plan_report *report);

/* The switch of three tiers, which is only reported. */
void cli_idle_streaming(const char *command, const cli_loading *l);

/* Variables of llama.cpp and ggml that nothing here reads, or not with these options. serve: the command takes LLAMA_ARG_ by itself. */
void cli_idle_variables(const char *command, const cli_loading *l, bool serve);

#endif
