/* Syntax: a parsed grammar, a tree for each rule. Parsed by gbnf.h, checked here, compiled by program.h. One
   arena owns everything except the charsets. */
#ifndef MO_GRAMMAR_SYNTAX_H
#define MO_GRAMMAR_SYNTAX_H

#include "base/arena.h"
#include "grammar/charset.h"

/* Limits of untrusted input. Depths limit recursion. */
enum {
    MO_SYNTAX_DEPTH = 100, /* nested parentheses */
    MO_SYNTAX_NODES = 1 << 18,
    MO_SYNTAX_RULES = 1 << 16,
    MO_SYNTAX_SETS = 1 << 12,
    MO_SYNTAX_LEVELS = 4000, /* of rules that begin with rules, in all trees together */
    MO_REPEAT_NO_MAX = -1,
};

typedef enum mo_syntax_kind {
    MO_SYNTAX_LITERAL,  /* bytes, possibly none */
    MO_SYNTAX_SET,      /* one character of a set */
    MO_SYNTAX_TOKEN,    /* one token, regardless of its text */
    MO_SYNTAX_RULE,     /* another rule */
    MO_SYNTAX_SEQUENCE, /* its items in order */
    MO_SYNTAX_CHOICE,   /* one of its items */
    MO_SYNTAX_REPEAT,   /* its item repeated */
} mo_syntax_kind;

typedef enum mo_token_choice {
    MO_TOKEN_THIS,    /* the token named */
    MO_TOKEN_BUT,     /* any token except those named and end tokens */
    MO_TOKEN_SPECIALS /* any special token except those named and end tokens */
} mo_token_choice;

typedef struct mo_token_match {
    mo_token_choice choice;
    int32_t *ids; /* ascending */
    size_t count;
} mo_token_match;

typedef struct mo_syntax {
    mo_syntax_kind kind;
    bool nullable; /* may match the empty text; set by mo_syntax_check() */
    union {
        mo_text literal;
        uint32_t set; /* index into the grammar's sets */
        mo_token_match *token;
        uint32_t rule;
        struct {
            struct mo_syntax **items;
            size_t count;
        } list;
        struct {
            struct mo_syntax *item;
            int32_t min, max; /* MO_REPEAT_NO_MAX: none */
        } repeat;
    } as;
} mo_syntax;

typedef struct mo_syntax_rule {
    mo_text name;
    mo_syntax *body;  /* NULL: referenced, not defined yet */
    int line, column; /* of the definition, or of the first reference */
    bool nullable;
} mo_syntax_rule;

typedef struct mo_syntax_grammar {
    mo_arena *arena;
    mo_syntax_rule *rules;
    uint32_t rule_count, root;
    size_t rule_space;
    mo_charset *sets; /* distinct */
    uint32_t set_count;
    size_t set_space;
    uint32_t nodes; /* number so far */
} mo_syntax_grammar;

void mo_syntax_free(mo_syntax_grammar *g);

/* The number of a finished set. Takes ownership of it (frees it if the grammar has the same set). UINT32_MAX:
   out of memory, or more than MO_SYNTAX_SETS. */
uint32_t mo_syntax_set(mo_syntax_grammar *g, mo_charset *set);

/* Checks what the parser cannot: finds which rules may match the empty text. MO_EINVAL, with line and column,
   for a rule that can begin with itself and for rules that call each other too deeply. All rules are
   defined. */
mo_status mo_syntax_check(mo_syntax_grammar *g, mo_error *err);

#endif
