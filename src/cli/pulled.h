/* Pulled: models by the names they were pulled by. */
#ifndef MO_CLI_PULLED_H
#define MO_CLI_PULLED_H

#include <stdbool.h>

/* The file that a command's MODEL means: what is a file, or cannot be the name of a pulled model, is returned as it is; a name becomes the path of the model's first file,
 * also one as people say it (short_names.h), which may stand for its usual repository. One that is not here is pulled after a question, if stdin is a terminal. NULL, with *code set,
 * after saying what to do. The text is the process's. */
const char *cli_pulled_path(const char *command, const char *given, int *code);

/* What is here under a name. */
typedef struct cli_pulled_found {
    const char *path;   /* a file, or a pulled model's first one; NULL: nothing is here */
    const char *remote; /* then the name with which a hub may have it; NULL: none */
    bool refused;       /* it is empty or means several models, which has been said */
} cli_pulled_found;

cli_pulled_found cli_pulled_find(const char *command, const char *given);

typedef struct cli_pulled {
    const char *name, *path; /* the process's */
} cli_pulled;

/* Those that are whole, at most `most`, by name; how many. */
int cli_pulled_all(cli_pulled *list, int most);

#endif
