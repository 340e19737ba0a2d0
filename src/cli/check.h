/* Check: errors in options or the model's header are reported before gigabytes are loaded. */
#ifndef MO_CLI_CHECK_H
#define MO_CLI_CHECK_H

#include "cli/loading.h"

/* Can the file be opened for reading? "-" is stdin. `what` begins the error message, for example "--text".
   False after printing the error. */
bool cli_check_readable(const char *command, const char *what, const char *path);

/* Can the file be written: does its directory exist, is it no directory, and no dangling link? Creates
   nothing. NULL is fine. */
bool cli_check_writable(const char *command, const char *what, const char *path);

/* Checks the files in the options, the command's needs of the model (l->vocabulary), and the context: one
   beyond the model's training only gives a warning. CLI_OK, or the exit code after printing the error. */
int cli_check_model(const char *command, const char *path, const cli_loading *l);

/* Only the check of the context, for commands that do not open a model. */
void cli_check_length(const char *command, const char *path, const cli_loading *l);

/* Does a text fit the context? CLI_OK, or the exit code after printing the error. */
int cli_check_prompt(const char *command, const char *path, const cli_loading *l, const char *text,
                     size_t length);

#endif
