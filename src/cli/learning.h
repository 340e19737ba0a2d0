/* Learning: what commands tell a model when a request is done. */
#ifndef MO_CLI_LEARNING_H
#define MO_CLI_LEARNING_H

#include <moraine_server.h>

/* A request is done: updates. What goes wrong is said, once; results are printed all the same, and the program fails at its
 * end. */
void cli_learning_done(const char *command, mo_model *model);

/* The exit code of the program: a success that left something unlearned or unwritten is none. */
int cli_learning_code(int code);

#endif
