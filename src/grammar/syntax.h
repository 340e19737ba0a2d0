/* Syntax: a grammar as it was written, a tree for every rule. Made by gbnf.h, checked here, compiled by program.h. All of
 * it belongs to one arena but the charsets. */
#ifndef MO_GRAMMAR_SYNTAX_H
#define MO_GRAMMAR_SYNTAX_H

#include "base/arena.h"
#include "grammar/charset.h"

/* Bounds of what strangers may write; depths are those of C's stack. */
enum {
    MO_SYNTAX_DEPTH = 100, /* open parentheses */
    MO_SYNTAX_NODES = 1 << 18,
    MO_SYNTAX_RULES = 1 << 16,
    MO_SYNTAX_SETS = 1 << 12,
    MO_SYNTAX_LEVELS = 4000, /* of rules that begin with rules, all trees together */
    MO_REPEAT_NO_MAX = -1,
};

typedef enum mo_syntax_kind {
    MO_SYNTAX_LITERAL,  /* its bytes, perhaps none */
    MO_SYNTAX_SET,      /* one character of a set */
    MO_SYNTAX_TOKEN,    /* one token, whatever its text */
    MO_SYNTAX_RULE,     /* what another rule says */
    MO_SYNTAX_SEQUENCE, /* its items one after the other */
    MO_SYNTAX_CHOICE,   /* one of its items */
    MO_SYNTAX_REPEAT,   /* its item repeated */
} mo_syntax_kind;

typedef enum mo_token_choice {
    MO_TOKEN_THIS,    /* the token named */
    MO_TOKEN_BUT,     /* any but those named, and no end token */
    MO_TOKEN_SPECIALS /* any special token but those named, and no end token */
} mo_token_choice;

typedef struct mo_token_match {
    mo_token_choice choice;
    int32_t *ids; /* ascending */
    size_t count;
} mo_token_match;

typedef struct mo_syntax {
    mo_syntax_kind kind;
    bool nullable; /* may be empty; set by mo_syntax_check() */
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
    mo_syntax *body;  /* NULL: only named so far */
    int line, column; /* where it is defined, or first named */
    bool nullable;
} mo_syntax_rule;

typedef struct mo_syntax_grammar {
    mo_arena *arena;
    mo_syntax_rule *rules;
    uint32_t rule_count, root;
    size_t rule_space;
    mo_charset *sets; /* all different */
    uint32_t set_count;
    size_t set_space;
    uint32_t nodes; /* so far */
} mo_syntax_grammar;

void mo_syntax_free(mo_syntax_grammar *g);

/* The number of a settled set, which is taken over (or freed, when the grammar has its like). UINT32_MAX: no memory, or
 * MO_SYNTAX_SETS are there. */
uint32_t mo_syntax_set(mo_syntax_grammar *g, mo_charset *set);

/* What the parser cannot see while it reads: finds out what may be empty; MO_EINVAL for a rule that can begin with itself,
 * or for rules that call each other too deeply, with line and column. All rules are defined. */
mo_status mo_syntax_check(mo_syntax_grammar *g, mo_error *err);

#endif
