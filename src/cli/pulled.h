/* Pulled: models by the names they were pulled by. */
#ifndef MO_CLI_PULLED_H
#define MO_CLI_PULLED_H

#include <stdbool.h>

/* The file of a command's MODEL. A file, or a word that cannot be a pulled model's name, is returned
   unchanged. A name (also a short one, short_names.h, which may mean a known repository) becomes the path of
   the model's first file. A missing model is pulled after a question, if stdin is a terminal. NULL, with
   *code set, after printing the error. The text is never freed. */
const char *cli_pulled_path(const char *command, const char *given, int *code);

/* The result of a search by name. */
typedef struct cli_pulled_found {
    const char *path;   /* a file, or a pulled model's first one; NULL: not found */
    const char *remote; /* then its name on a hub; NULL: none */
    bool refused;       /* empty or ambiguous; the error was printed */
} cli_pulled_found;

cli_pulled_found cli_pulled_find(const char *command, const char *given);

typedef struct cli_pulled {
    const char *name, *path; /* never freed */
} cli_pulled;

/* Lists complete models by name, at most `most`. Returns their number. */
int cli_pulled_all(cli_pulled *list, int most);

#endif
