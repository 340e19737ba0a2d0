/* Constraint: the functions a request offers and the format it wants for the answer, in any dialect. */
#ifndef SRV_CONSTRAINT_H
#define SRV_CONSTRAINT_H

#include "server/common/field.h"
#include "server/requests/parameters.h"

/* Tools: the functions a request offers, in OpenAI's form in all dialects, and whether the answer may or must
 * call them. */

enum { SRV_TOOLS_MAX = 1024 };

typedef enum srv_calling {
    SRV_CALLING_AUTO,
    SRV_CALLING_NONE,     /* tools are shown to the model, calls are not parsed */
    SRV_CALLING_REQUIRED, /* at least one call */
    SRV_CALLING_NAMED,    /* a call of one function */
} srv_calling;

typedef struct srv_tools {
    /* [{"type":"function","function":{"name","description","parameters","strict"}}]; NULL: no tools given */
    json_t *list;
    srv_calling calling;
    const char *name; /* for SRV_CALLING_NAMED; points into the request */
    bool single;      /* at most one call */
} srv_tools;

/* Reads `tools`, `tool_choice` and the option for parallel calls. Returns false if something is wrong, or a
 * name is not among the tools. */
bool srv_tools_read(const srv_field *root, srv_dialect dialect, srv_tools *out);
void srv_tools_free(srv_tools *tools);

/* Format: the required format of an answer, in any dialect. */

enum { SRV_SCHEMA_BYTES = 1 << 20 };

typedef struct srv_format {
    /* the answer is JSON matching this schema, the request's or own_schema; NULL: none */
    const json_t *schema;
    json_t *own_schema;
    bool strict;     /* reject constraints that cannot be enforced */
    mo_text grammar; /* the answer matches this GBNF; data NULL: none */
    srv_writer own_grammar;
    char param[64]; /* the field that requests it */
} srv_format;

/* Reads response_format, json_schema, grammar, text.format, output_config.format, output_format, format and
 * vLLM's names. Each has the same meaning in all dialects, so that none is ignored. Two at once are
 * rejected. */
bool srv_format_read(const srv_field *root, srv_dialect dialect, srv_format *out);
void srv_format_free(srv_format *f);
static inline bool srv_format_asked(const srv_format *f)
{
    return f->schema || f->grammar.data;
}

#endif
