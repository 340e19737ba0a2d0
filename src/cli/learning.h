/* Learning: notifies a model of finished requests. */
#ifndef MO_CLI_LEARNING_H
#define MO_CLI_LEARNING_H

#include <moraine_server.h>

/* A request is finished: updates the hot cache and profile. Prints the first failure; results are still
   printed, and the program fails at its end. */
void cli_learning_done(const char *command, mo_model *model);

/* The program's exit code: success becomes failure if learning failed. */
int cli_learning_code(int code);

#endif
