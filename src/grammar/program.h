/* Program: a grammar compiled to nodes, which a machine (machine.h) runs over bytes. Constant after creation:
   any thread may read it.

   A node either consumes something (the bytes of a literal, a character of a set, a token) and continues at
   another node, or it only branches: to a rule, an alternative, the body of a loop, or back. The return from
   a rule or body is on the machine's stack, so recursion and counted repetition need no extra nodes. */
#ifndef MO_GRAMMAR_PROGRAM_H
#define MO_GRAMMAR_PROGRAM_H

#include "grammar/bytestates.h"
#include "grammar/syntax.h"

enum { MO_PROGRAM_NODES = 1 << 19 };

typedef enum mo_node_kind {
    MO_NODE_LITERAL,
    MO_NODE_SET,
    MO_NODE_TOKEN,
    MO_NODE_CALL,
    MO_NODE_CHOICE,
    MO_NODE_LOOP,
    MO_NODE_RETURN,
} mo_node_kind;

typedef struct mo_node {
    mo_node_kind kind;
    uint32_t next;
    union {
        struct {
            uint32_t at, length; /* in the program's bytes */
        } literal;
        uint32_t set;
        const mo_token_match *token;
        uint32_t call; /* index into `entries` */
        struct {
            uint32_t at, count; /* in the program's targets */
        } choice;
        struct {
            uint32_t body; /* never matches the empty text; ends with a return */
            int32_t min, max;
        } loop;
    } as;
} mo_node;

typedef struct mo_program {
    mo_syntax_grammar syntax; /* owns arena and sets */
    mo_node *nodes;
    uint32_t node_count;
    size_t node_space;
    uint32_t *targets;
    uint32_t target_count;
    size_t target_space;
    uint8_t *bytes;
    uint32_t byte_count;
    size_t byte_space;
    uint32_t *entries; /* two for each rule: its first node, and the first node of its non-empty matches */
    mo_byte_states characters; /* of all sets */
    uint8_t classes[256];      /* bytes of one class are equivalent */
    uint8_t class_bytes[256];  /* one byte of each class */
    int class_count;
    uint32_t start;
    bool counts; /* a loop counts further than 1 */
} mo_program;

/* Compiles a parsed grammar and takes ownership of it, also on failure. MO_EINVAL: it is too large. */
mo_status mo_program_make(mo_syntax_grammar *syntax, mo_program *out, mo_error *err);
void mo_program_free(mo_program *p);

#endif
