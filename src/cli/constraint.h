/* Constraint: --schema and --grammar, the required form of an answer. */
#ifndef MO_CLI_CONSTRAINT_H
#define MO_CLI_CONSTRAINT_H

#include <moraine_server.h>

typedef struct cli_constraint {
    const char *schema, *grammar; /* files, or the grammar itself; NULL: not given */
    char *text;                   /* the text of the given one */
    size_t length;
} cli_constraint;

#define CLI_CONSTRAINT_OPTIONS(c)                                                                            \
    {"schema", 0, CLI_TEXT, "FILE", "constrain the answer to the JSON schema in FILE", &(c).schema, 0, 0},   \
    {                                                                                                        \
        "grammar", 0, CLI_TEXT, "FILE",                                                                      \
            "constrain the answer to the GBNF grammar in FILE, or to a grammar with ::= itself",             \
            &(c).grammar, 0, 0                                                                               \
    }

/* Reads the file before a model is loaded, and checks a schema (a grammar may refer to the model's tokens).
   CLI_OK, or another code after printing the error. */
int cli_constraint_read(const char *command, cli_constraint *c);

/* Prints a message about the file. */
void cli_constraint_say(const char *command, const cli_constraint *c, const char *text);
void cli_constraint_close(cli_constraint *c);

#endif
