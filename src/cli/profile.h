/* Profile: the commands of a conversation that show this run's expert usage, or apply another profile. */
#ifndef MO_CLI_PROFILE_H
#define MO_CLI_PROFILE_H

#include <moraine_server.h>

/* Prints the profile of this run: a table of layers on a terminal, otherwise JSON on stdout; or writes it to
   a file, which only replaces an older profile. */
void cli_profile_show(mo_model *model, const char *path);

/* Applies a profile and prints the changes. */
void cli_profile_apply(mo_model *model, const char *path);

#endif
