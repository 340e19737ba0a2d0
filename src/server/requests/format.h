/* Format: what an answer must look like, as a request asks for it in any dialect. */
#ifndef SRV_FORMAT_H
#define SRV_FORMAT_H

#include "server/common/field.h"
#include "server/requests/parameters.h"

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
