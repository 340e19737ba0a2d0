/* Check: errors in options or the model's header are reported before gigabytes are loaded. */
#ifndef MO_CLI_CHECK_H
#define MO_CLI_CHECK_H

#include "cli/loading.h"

/* Can this file be opened for reading? "-" is stdin. `what` is how the sentence begins, such as "--text". False after saying
 * why not. */
bool cli_check_readable(const char *command, const char *what, const char *path);

/* Can it be written: is there a directory for it, is it none itself, and no link to where nothing is? Nothing is made. NULL is
 * nothing to check. */
bool cli_check_writable(const char *command, const char *what, const char *path);

/* Files that the options name, what the command wants of the model (l->vocabulary), and a context beyond what the model was
 * made for, which is only warned of. CLI_OK, or the exit code after saying what is wrong. */
int cli_check_model(const char *command, const char *path, const cli_loading *l);

/* The last of these alone, for commands that open no model. */
void cli_check_length(const char *command, const char *path, const cli_loading *l);

/* Does a text that will be fed fit into the context? CLI_OK, or the exit code after saying that it does not. */
int cli_check_prompt(const char *command, const char *path, const cli_loading *l, const char *text,
                     size_t length);

#endif
