#include "cli/constraint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/infile.h"
#include "cli/options.h"

/* File names do not contain this text. */
static bool is_text(const char *grammar)
{
    return strstr(grammar, "::=") != NULL;
}

void cli_constraint_say(const char *command, const cli_constraint *c, const char *text)
{
    static const char *const members[] = {"`grammar`: ",
                                          "`schema`: "}; /* of the library; `where` says more */
    for (int i = 0; i < 2; i++) {
        const size_t length = strlen(members[i]);
        text += strncmp(text, members[i], length) == 0 ? length : 0;
    }
    const char *where = c->schema ? c->schema : is_text(c->grammar) ? "--grammar" : c->grammar;
    fprintf(stderr, "moraine %s: %s: %s\n", command, where, text);
}

/* Reads the file, or takes the grammar itself as llama.cpp does. */
static char *read_text(const char *command, const cli_constraint *c, size_t *length)
{
    if (c->schema || !is_text(c->grammar)) {
        return cli_read_file(command, c->schema ? c->schema : c->grammar, length);
    }
    char *text = strdup(c->grammar);
    *length = strlen(c->grammar);
    if (!text) {
        fprintf(stderr, "moraine %s: out of memory for the grammar\n", command);
    }
    return text;
}

int cli_constraint_read(const char *command, cli_constraint *c)
{
    if (c->schema && c->grammar) {
        fprintf(stderr, "moraine %s: give --schema or --grammar, not both\n", command);
        return CLI_USAGE;
    }
    if (!c->schema && !c->grammar) {
        return CLI_OK;
    }
    c->text = read_text(command, c, &c->length);
    if (!c->text) {
        return CLI_FAILED;
    }
    if (!c->schema) {
        if (strlen(c->text) == c->length) {
            return CLI_OK;
        }
        cli_constraint_say(command, c, "it contains a NUL byte; a grammar is text");
        return CLI_FAILED;
    }
    char *rules = NULL;
    mo_error err;
    const mo_status status = mo_schema_gbnf(c->text, c->length, "root", NULL, &rules, NULL, &err);
    mo_free(rules);
    if (status != MO_OK) {
        cli_constraint_say(command, c, err.detail);
    }
    return status == MO_OK ? CLI_OK : CLI_FAILED;
}

void cli_constraint_close(cli_constraint *c)
{
    free(c->text);
    c->text = NULL;
}
