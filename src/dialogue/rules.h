/* Rules: GBNF (docs/grammar.md) that is being written. The first failure stays. */
#ifndef MO_DIALOGUE_RULES_H
#define MO_DIALOGUE_RULES_H

#include <jansson.h>

#include "base/bytes.h"
#include "text/tokenizer.h"

enum { MO_RULES_MARKS = 64 };

typedef struct mo_rules {
    const mo_tokenizer *tokenizer; /* NULL: all marks are letters */
    bool strict;                   /* of schemas: what cannot be enforced is an error */
    mo_bytes text;
    const char *marks[MO_RULES_MARKS]; /* that were used: mark K has the rule mark-K */
    size_t mark_count;
    mo_bytes unenforced; /* a line each */
    mo_status status;
    mo_error *err;
} mo_rules;

void mo_rules_free(mo_rules *r);

/* Text of GBNF as it is; with values, as printf. */
void mo_rules_add(mo_rules *r, const char *fmt, ...) MO_PRINTF(2, 3);
/* A literal: the text in quotes. */
void mo_rules_literal(mo_rules *r, const char *text);
/* A mark: the tokens of this text where the vocabulary has some, otherwise a literal. The text must live as long. */
void mo_rules_mark(mo_rules *r, const char *text);
/* The rules of the marks that were used; once, at the end. */
void mo_rules_marks(mo_rules *r);

/* A rule for text in which none of the marks occurs: not as tokens, which are no text, nor as letters, which a reader may take
 * for the mark. */
void mo_rules_until(mo_rules *r, const char *name, const char *const *marks, size_t count);

/* A rule for a value of a schema, which may refer to definitions of `root`; `where` begins the lines about what is not
 * enforced. NULL: any object. */
void mo_rules_schema(mo_rules *r, const char *name, const json_t *schema, const json_t *root,
                     const char *where);

/* Notes that something is not enforced; an error when strict. */
void mo_rules_miss(mo_rules *r, const char *where, const char *what);

#endif
