/* Constraint: --schema and --grammar, what an answer must look like. */
#ifndef MO_CLI_CONSTRAINT_H
#define MO_CLI_CONSTRAINT_H

#include <moraine_server.h>

typedef struct cli_constraint {
    const char *schema, *grammar; /* files; NULL: not given */
    char *text;                   /* of the one that was */
    size_t length;
    mo_grammar *compiled;
    mo_constraint *open;
} cli_constraint;

#define CLI_CONSTRAINT_OPTIONS(c)                                                                            \
    {"schema", 0, CLI_TEXT, "FILE", "constrain the answer to the JSON schema in FILE", &(c).schema, 0, 0},   \
    {                                                                                                        \
        "grammar", 0, CLI_TEXT, "FILE", "constrain the answer to the GBNF grammar in FILE", &(c).grammar, 0, \
            0                                                                                                \
    }

/* Reads the file that was given, before a model is loaded, and checks a schema (a grammar may name tokens of the model). CLI_OK,
 * or another code after saying what is wrong. */
int cli_constraint_read(const char *command, cli_constraint *c);

/* Compiles it for the model, for the answer to a prompt. chat: in the model's chat format. The same codes. */
int cli_constraint_open(const char *command, cli_constraint *c, const mo_model *model, bool chat,
                        const int32_t *prompt, size_t count);
void cli_constraint_close(cli_constraint *c);

#endif
