/* Program: a grammar compiled to nodes that a machine (machine.h) runs over bytes. Constant once made: any thread may
 * read it.
 *
 * A node consumes something (a literal's bytes, a character of a set, a token) and goes on to another, or it only says
 * where to go on: in a rule, in one of several places, in a loop's body, or back. Where to go on after a rule or a body
 * is on the machine's stack, so recursion and counted repetition take no nodes of their own. */
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
        uint32_t call; /* entry into the table of rules */
        struct {
            uint32_t at, count; /* in the program's targets */
        } choice;
        struct {
            uint32_t body; /* never empty; ends with a return */
            int32_t min, max;
        } loop;
    } as;
} mo_node;

typedef struct mo_program {
    mo_syntax_grammar syntax; /* its arena and sets are the program's */
    mo_node *nodes;
    uint32_t node_count;
    size_t node_space;
    uint32_t *targets;
    uint32_t target_count;
    size_t target_space;
    uint8_t *bytes;
    uint32_t byte_count;
    size_t byte_space;
    uint32_t *entries; /* two for each rule: the node it begins with, and that of what it can be but empty */
    mo_byte_states characters; /* of the sets */
    uint8_t classes[256];      /* bytes of one class are equivalent */
    uint8_t class_bytes[256];  /* one byte of each class */
    int class_count;
    uint32_t start;
    bool counts; /* some loop counts further than 1 */
} mo_program;

/* Compiles what was parsed and takes it over, also on failure. MO_EINVAL: it is too large. */
mo_status mo_program_make(mo_syntax_grammar *syntax, mo_program *out, mo_error *err);
void mo_program_free(mo_program *p);

#endif
