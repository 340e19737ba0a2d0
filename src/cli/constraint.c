#include "cli/constraint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/infile.h"
#include "cli/options.h"

static int wrong(const char *command, const cli_constraint *c, const mo_error *err)
{
    fprintf(stderr, "moraine %s: %s: %s\n", command, c->schema ? c->schema : c->grammar, err->detail);
    return CLI_FAILED;
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
    c->text = cli_read_file(command, c->schema ? c->schema : c->grammar, &c->length);
    if (!c->text || !c->schema) {
        return c->text ? CLI_OK : CLI_FAILED;
    }
    char *rules = NULL;
    mo_error err;
    const mo_status status = mo_schema_gbnf(c->text, c->length, "root", NULL, &rules, NULL, &err);
    mo_free(rules);
    return status == MO_OK ? CLI_OK : wrong(command, c, &err);
}

int cli_constraint_open(const char *command, cli_constraint *c, const mo_model *model, bool chat,
                        const int32_t *prompt, size_t count)
{
    mo_grammar_options options = mo_grammar_options_default();
    mo_error err;
    if (!c->text) {
        return CLI_OK;
    }
    options.answer = chat;
    options.in_thought = chat && mo_model_in_thought(model, prompt, count);
    mo_status status = c->schema
                           ? mo_grammar_open_schema(model, c->text, c->length, &options, &c->compiled, &err)
                           : mo_grammar_open(model, c->text, c->length, &options, &c->compiled, &err);
    if (status == MO_OK) {
        status = mo_constraint_open(c->compiled, &c->open, &err);
    }
    if (status != MO_OK) {
        return wrong(command, c, &err);
    }
    const char *left = mo_grammar_unenforced(c->compiled);
    for (const char *end; *left && (end = strchr(left, '\n')); left = end + 1) {
        fprintf(stderr, "moraine %s: %s: %.*s\n", command, c->schema, (int)(end - left), left);
    }
    return CLI_OK;
}

void cli_constraint_close(cli_constraint *c)
{
    mo_constraint_close(c->open);
    mo_grammar_close(c->compiled);
    free(c->text);
    c->open = NULL;
    c->compiled = NULL;
    c->text = NULL;
}
