/* Parser: from tokens to a syntax tree. */
#ifndef MO_TEMPLATE_PARSER_H
#define MO_TEMPLATE_PARSER_H

#include "template/lexer.h"
#include "template/node.h"

typedef struct mo_jparser {
    mo_work *w;
    mo_jtokens tokens;
    size_t at;
    mo_jdict *symbols; /* name: number */
    int loops;         /* enclosing loops that `break` can leave */
} mo_jparser;

typedef struct mo_jtree {
    mo_jnodes body;
    int symbols;                       /* number of distinct names */
    int loop, caller, varargs, kwargs; /* symbols of special names; always defined */
} mo_jtree;

/* Invalid templates fail the work. The tree lives as long as the work's memory. */
mo_jtree mo_parser_run(mo_work *w, const char *text, size_t length);

/* ---- Shared by statements and expressions ---- */

const mo_jtoken *mo_parser_now(const mo_jparser *p);
const mo_jtoken *mo_parser_ahead(const mo_jparser *p); /* the token after the current one */
const mo_jtoken *mo_parser_next(mo_jparser *p);        /* returns the current token and advances */
bool mo_parser_is(const mo_jparser *p, const char *operator);
bool mo_parser_is_name(const mo_jparser *p, const char *name);
bool mo_parser_take(mo_jparser *p, const char *operator); /* if it is the current token */
bool mo_parser_take_name(mo_jparser *p, const char *name);
void mo_parser_expect(mo_jparser *p, const char *operator);
mo_jstring mo_parser_expect_name(mo_jparser *p);
__attribute__((noreturn)) void mo_parser_wrong(mo_jparser *p, const char *expected);

mo_jnode *mo_parser_node(mo_jparser *p, mo_jnode_kind kind);
int mo_parser_symbol(mo_jparser *p, mo_jstring name);
void mo_jnodes_add(mo_work *w, mo_jnodes *list, mo_jnode *node);

/* ---- Expressions (expression.c) ---- */

mo_jnode *mo_parse_expression(mo_jparser *p);
/* Parses one expression, or a tuple without parentheses. condition: allows `x if y else z`. */
mo_jnode *mo_parse_tuple(mo_jparser *p, bool condition);
/* Parses a name, names separated by commas, or (for set) a field of a namespace. */
mo_jnode *mo_parse_target(mo_jparser *p, bool fields);
/* Parses name(arguments) | name ...; the first filter's operand is NULL. */
mo_jnode *mo_parse_filters(mo_jparser *p);
mo_jnode *mo_parse_call(mo_jparser *p); /* an expression, which must be a call */
/* Parses the parameters (a, b=1) of a macro into the node. */
void mo_parse_parameters(mo_jparser *p, mo_jnode *node);

#endif
