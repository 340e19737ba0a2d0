/* Profile: the lines of a conversation that show this run's use of experts, or apply another's. */
#ifndef MO_CLI_PROFILE_H
#define MO_CLI_PROFILE_H

#include <moraine_server.h>

/* The profile of this run: a table of layers on a terminal, otherwise JSON on stdout, or in a file, which replaces an older profile alone. */
void cli_profile_show(mo_model *model, const char *path);

/* Applies a profile and prints what that did. */
void cli_profile_apply(mo_model *model, const char *path);

#endif
