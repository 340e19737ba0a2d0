/* Lexer: splits a template into tokens. Removes white space as trim_blocks, lstrip_blocks and signs say. */
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
    mo_jv value;   /* of strings (also data and names) and numbers */
    char text[16]; /* the operator, or the beginning of a name, enough for keywords */
} mo_jtoken;

typedef struct mo_jtokens {
    mo_jtoken *items;
    size_t count; /* the last token is MO_JT_END */
} mo_jtokens;

/* The text must be valid UTF-8. Invalid templates fail the work. */
mo_jtokens mo_lexer_run(mo_work *w, const char *text, size_t length);

#endif
