/* Constraint: what an answer may be: the functions a request offers, and the form it asks for, in any dialect. */
#ifndef SRV_CONSTRAINT_H
#define SRV_CONSTRAINT_H

#include "server/common/field.h"
#include "server/requests/parameters.h"

/* Tools: the functions a request offers, in OpenAI's form whatever the dialect, and which of them the answer may or must call. */

enum { SRV_TOOLS_MAX = 1024 };

typedef enum srv_calling {
    SRV_CALLING_AUTO,
    SRV_CALLING_NONE,     /* tools are shown, calls are not looked for */
    SRV_CALLING_REQUIRED, /* at least one */
    SRV_CALLING_NAMED,    /* of one function */
} srv_calling;

typedef struct srv_tools {
    json_t
        *list; /* [{"type":"function","function":{"name","description","parameters","strict"}}]; NULL: none */
    srv_calling calling;
    const char *name; /* of SRV_CALLING_NAMED: the request's */
    bool single;      /* at most one call */
} srv_tools;

/* Reads `tools`, `tool_choice` and whether calls may be parallel from a request; false: something is wrong, or a name is
 * not among the tools. */
bool srv_tools_read(const srv_field *root, srv_dialect dialect, srv_tools *out);
void srv_tools_free(srv_tools *tools);

/* Format: what an answer must look like, as a request asks for it in any dialect. */

enum { SRV_SCHEMA_BYTES = 1 << 20 };

typedef struct srv_format {
    const json_t *schema; /* the answer is JSON of this schema; the request's, or own_schema; NULL: none */
    json_t *own_schema;
    bool strict;     /* what cannot be enforced is refused */
    mo_text grammar; /* the answer follows this GBNF; data NULL: none */
    srv_writer own_grammar;
    char param[64]; /* the field that says so */
} srv_format;

/* response_format, json_schema, grammar, text.format, output_config.format, output_format, format and the names of vLLM: each
 * means the same in all dialects, so that none has no effect. Two at once are refused. */
bool srv_format_read(const srv_field *root, srv_dialect dialect, srv_format *out);
void srv_format_free(srv_format *f);
static inline bool srv_format_asked(const srv_format *f)
{
    return f->schema || f->grammar.data;
}

#endif
