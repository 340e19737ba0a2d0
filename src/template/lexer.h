/* Lexer: a template's text as tokens, with white space taken away as trim_blocks, lstrip_blocks and the signs in the tags
 * say. */
#ifndef MO_TEMPLATE_LEXER_H
#define MO_TEMPLATE_LEXER_H

#include "template/value.h"

typedef enum mo_jtoken_kind {
    MO_JT_END,
    MO_JT_DATA, /* text between tags */
    MO_JT_PRINT_BEGIN,
    MO_JT_PRINT_END,
    MO_JT_BLOCK_BEGIN,
    MO_JT_BLOCK_END,
    MO_JT_NAME,
    MO_JT_STRING,
    MO_JT_NUMBER,
    MO_JT_OPERATOR,
} mo_jtoken_kind;

typedef struct mo_jtoken {
    mo_jtoken_kind kind;
    int line;
    mo_jv value;   /* of a string (also of data and names) or number */
    char text[16]; /* of an operator: itself; of a name: its beginning, enough for keywords */
} mo_jtoken;

typedef struct mo_jtokens {
    mo_jtoken *items;
    size_t count; /* the last is MO_JT_END */
} mo_jtokens;

/* The text must be valid UTF-8. The work ends where it is no template. */
mo_jtokens mo_lexer_run(mo_work *w, const char *text, size_t length);

#endif
