#include "template/parser.h"

#include <stdio.h>

/* ---- Tokens ---- */

const mo_jtoken *mo_parser_now(const mo_jparser *p)
{
    return &p->tokens.items[p->at];
}

const mo_jtoken *mo_parser_ahead(const mo_jparser *p)
{
    return &p->tokens.items[p->at + 1 < p->tokens.count ? p->at + 1 : p->at];
}

const mo_jtoken *mo_parser_next(mo_jparser *p)
{
    const mo_jtoken *t = mo_parser_now(p);
    p->at += p->at + 1 < p->tokens.count; /* the last token is never passed */
    return t;
}

bool mo_parser_is(const mo_jparser *p, const char *operator)
{
    const mo_jtoken *t = mo_parser_now(p);
    return t->kind == MO_JT_OPERATOR && strcmp(t->text, operator) == 0;
}

bool mo_parser_is_name(const mo_jparser *p, const char *name)
{
    const mo_jtoken *t = mo_parser_now(p);
    return t->kind == MO_JT_NAME && mo_jstring_is(t->value.as.string, name);
}

bool mo_parser_take(mo_jparser *p, const char *operator)
{
    const bool there = mo_parser_is(p, operator);
    if (there) {
        mo_parser_next(p);
    }
    return there;
}

bool mo_parser_take_name(mo_jparser *p, const char *name)
{
    const bool there = mo_parser_is_name(p, name);
    if (there) {
        mo_parser_next(p);
    }
    return there;
}

void mo_parser_wrong(mo_jparser *p, const char *expected)
{
    const mo_jtoken *t = mo_parser_now(p);
    char found[80];
    switch (t->kind) {
    case MO_JT_END: snprintf(found, sizeof found, "the end of the template"); break;
    case MO_JT_DATA: snprintf(found, sizeof found, "text"); break;
    case MO_JT_PRINT_BEGIN: snprintf(found, sizeof found, "{{"); break;
    case MO_JT_PRINT_END: snprintf(found, sizeof found, "}}"); break;
    case MO_JT_BLOCK_BEGIN: snprintf(found, sizeof found, "{%%"); break;
    case MO_JT_BLOCK_END: snprintf(found, sizeof found, "%%}"); break;
    case MO_JT_STRING: snprintf(found, sizeof found, "a string"); break;
    case MO_JT_NUMBER: snprintf(found, sizeof found, "a number"); break;
    default: snprintf(found, sizeof found, "'%s'", t->text);
    }
    p->w->line = t->line;
    mo_work_fail(p->w, MO_EFORMAT, "expected %s, found %s", expected, found);
}

void mo_parser_expect(mo_jparser *p, const char *operator)
{
    if (!mo_parser_take(p, operator)) {
        char quoted[24];
        snprintf(quoted, sizeof quoted, "'%s'", operator);
        mo_parser_wrong(p, quoted);
    }
}

mo_jstring mo_parser_expect_name(mo_jparser *p)
{
    if (mo_parser_now(p)->kind != MO_JT_NAME) {
        mo_parser_wrong(p, "a name");
    }
    return mo_parser_next(p)->value.as.string;
}

static void expect_kind(mo_jparser *p, mo_jtoken_kind kind, const char *what)
{
    if (mo_parser_now(p)->kind != kind) {
        mo_parser_wrong(p, what);
    }
    mo_parser_next(p);
}

static void block_end(mo_jparser *p)
{
    expect_kind(p, MO_JT_BLOCK_END, "%}");
}

/* ---- Nodes ---- */

mo_jnode *mo_parser_node(mo_jparser *p, mo_jnode_kind kind)
{
    mo_jnode *n = mo_work_alloc(p->w, sizeof *n);
    n->kind = kind;
    n->line = mo_parser_now(p)->line;
    p->w->line = n->line;
    return n;
}

int mo_parser_symbol(mo_jparser *p, mo_jstring name)
{
    const mo_jv *known = mo_jdict_find_string(p->w, p->symbols, name);
    if (known) {
        return (int)known->as.integer;
    }
    const int symbol = (int)p->symbols->count;
    mo_jdict_set(p->w, p->symbols, mo_jv_string(name), mo_jv_int(symbol));
    return symbol;
}

void mo_jnodes_add(mo_work *w, mo_jnodes *list, mo_jnode *node)
{
    if ((list->count & (list->count - 1)) == 0) { /* the capacity is the next power of two */
        list->items = mo_work_larger(w, list->items, list->count, list->count ? 2 * (size_t)list->count : 1,
                                     sizeof(void *));
    }
    list->items[list->count++] = node;
}

/* ---- Statements ---- */

static mo_jnode *statement(mo_jparser *p);

static bool at_end_of(const mo_jparser *p, const char *const *ends)
{
    const mo_jtoken *ahead = mo_parser_ahead(p);
    if (mo_parser_now(p)->kind != MO_JT_BLOCK_BEGIN || ahead->kind != MO_JT_NAME) {
        return false;
    }
    for (; *ends; ends++) {
        if (mo_jstring_is(ahead->value.as.string, *ends)) {
            return true;
        }
    }
    return false;
}

/* Parses statements until {% and one of these words, then the current token. No words: the whole template. */
static mo_jnodes body(mo_jparser *p, const char *const *ends)
{
    mo_jnodes list = {0};
    const int line = p->tokens.items[p->at > 0 ? p->at - 1 : 0].line; /* line of the previous tag */
    mo_work_down(p->w);
    for (;;) {
        const mo_jtoken *t = mo_parser_now(p);
        if (ends && at_end_of(p, ends)) {
            mo_parser_next(p);
            break;
        }
        if (t->kind == MO_JT_END) {
            if (ends) {
                p->w->line = line;
                mo_work_fail(p->w, MO_EFORMAT, "the block that starts here is not closed: missing {%% %s %%}",
                             ends[0]);
            }
            break;
        }
        if (t->kind == MO_JT_DATA) {
            mo_jnode *n = mo_parser_node(p, MO_NODE_DATA);
            n->value = mo_parser_next(p)->value;
            mo_jnodes_add(p->w, &list, n);
        } else if (t->kind == MO_JT_PRINT_BEGIN) {
            mo_jnode *n = mo_parser_node(p, MO_NODE_PRINT);
            mo_parser_next(p);
            n->a = mo_parse_tuple(p, true);
            expect_kind(p, MO_JT_PRINT_END, "}}");
            mo_jnodes_add(p->w, &list, n);
        } else {
            expect_kind(p, MO_JT_BLOCK_BEGIN, "{%");
            mo_jnodes_add(p->w, &list, statement(p));
        }
    }
    mo_work_up(p->w);
    return list;
}

/* Parses the body of a block with one end word. */
static mo_jnodes body_until(mo_jparser *p, const char *end)
{
    const char *const ends[] = {end, NULL};
    block_end(p);
    const mo_jnodes list = body(p, ends);
    mo_parser_next(p);
    return list;
}

/* The same; `break` cannot leave it. */
static mo_jnodes closed_body(mo_jparser *p, const char *end)
{
    const int loops = p->loops;
    p->loops = 0;
    const mo_jnodes list = body_until(p, end);
    p->loops = loops;
    return list;
}

static void if_statement(mo_jparser *p, mo_jnode *n)
{
    static const char *const ends[] = {"endif", "elif", "else", NULL}, *const last[] = {"endif", NULL};
    for (;;) { /* an elif is the only node in the else branch of the previous condition */
        n->kind = MO_NODE_IF;
        n->a = mo_parse_tuple(p, true);
        block_end(p);
        n->list = body(p, ends);
        if (!mo_parser_is_name(p, "elif")) {
            break;
        }
        mo_parser_next(p);
        mo_jnode *next = mo_parser_node(p, MO_NODE_IF);
        mo_jnodes_add(p->w, &n->others, next);
        n = next;
    }
    if (mo_parser_take_name(p, "else")) {
        block_end(p);
        n->others = body(p, last);
    }
    mo_parser_next(p);
    block_end(p);
}

static void for_statement(mo_jparser *p, mo_jnode *n)
{
    static const char *const ends[] = {"endfor", "else", NULL}, *const last[] = {"endfor", NULL};
    n->kind = MO_NODE_FOR;
    n->b = mo_parse_target(p, false);
    if (!mo_parser_take_name(p, "in")) {
        mo_parser_wrong(p, "'in'");
    }
    n->a = mo_parse_tuple(p, false);
    if (mo_parser_take_name(p, "if")) {
        n->c = mo_parse_expression(p);
    }
    n->recursive = mo_parser_take_name(p, "recursive");
    block_end(p);
    p->loops++;
    n->list = body(p, ends);
    p->loops--;
    if (mo_parser_take_name(p, "else")) {
        block_end(p);
        n->others = body(p, last);
    }
    mo_parser_next(p);
    block_end(p);
}

static void set_statement(mo_jparser *p, mo_jnode *n)
{
    n->b = mo_parse_target(p, true);
    if (mo_parser_take(p, "=")) {
        n->kind = MO_NODE_SET;
        n->a = mo_parse_tuple(p, true);
        block_end(p);
        return;
    }
    n->kind = MO_NODE_SET_BLOCK;
    if (mo_parser_take(p, "|")) {
        n->a = mo_parse_filters(p);
    }
    n->list = closed_body(p, "endset");
    block_end(p);
}

static void macro_statement(mo_jparser *p, mo_jnode *n)
{
    n->kind = MO_NODE_MACRO;
    n->value = mo_jv_string(mo_parser_expect_name(p));
    n->symbol = mo_parser_symbol(p, n->value.as.string);
    mo_parse_parameters(p, n);
    n->list = closed_body(p, "endmacro");
    if (mo_parser_now(p)->kind == MO_JT_NAME) { /* {% endmacro name %} */
        mo_parser_next(p);
    }
    block_end(p);
}

static void call_statement(mo_jparser *p, mo_jnode *n)
{
    n->kind = MO_NODE_CALL_BLOCK;
    if (mo_parser_is(p, "(")) {
        mo_parse_parameters(p, n);
    }
    n->a = mo_parse_call(p);
    n->list = closed_body(p, "endcall");
    block_end(p);
}

static void filter_statement(mo_jparser *p, mo_jnode *n)
{
    n->kind = MO_NODE_FILTER_BLOCK;
    n->a = mo_parse_filters(p);
    n->list = closed_body(p, "endfilter");
    block_end(p);
}

static void with_statement(mo_jparser *p, mo_jnode *n)
{
    n->kind = MO_NODE_WITH;
    while (mo_parser_now(p)->kind != MO_JT_BLOCK_END) {
        if (n->others.count > 0) {
            mo_parser_expect(p, ",");
        }
        mo_jnodes_add(p->w, &n->others, mo_parse_target(p, false));
        mo_parser_expect(p, "=");
        mo_jnodes_add(p->w, &n->others, mo_parse_expression(p));
    }
    n->list = body_until(p, "endwith");
    block_end(p);
}

static void generation_statement(mo_jparser *p, mo_jnode *n)
{
    n->kind = MO_NODE_SCOPE;
    n->list = closed_body(p, "endgeneration");
    block_end(p);
}

static void leave_statement(mo_jparser *p, mo_jnode *n, mo_jnode_kind kind)
{
    if (p->loops == 0) {
        mo_work_fail(p->w, MO_EFORMAT, "break or continue outside of a loop");
    }
    n->kind = kind;
    block_end(p);
}

static void break_statement(mo_jparser *p, mo_jnode *n)
{
    leave_statement(p, n, MO_NODE_BREAK);
}

static void continue_statement(mo_jparser *p, mo_jnode *n)
{
    leave_statement(p, n, MO_NODE_CONTINUE);
}

static mo_jnode *statement(mo_jparser *p)
{
    static const struct {
        const char *name;
        void (*parse)(mo_jparser *, mo_jnode *);
    } all[] = {
        {"if", if_statement},       {"for", for_statement},
        {"set", set_statement},     {"macro", macro_statement},
        {"call", call_statement},   {"filter", filter_statement},
        {"with", with_statement},   {"generation", generation_statement},
        {"break", break_statement}, {"continue", continue_statement},
    };
    mo_jnode *n = mo_parser_node(p, MO_NODE_SCOPE);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (mo_parser_take_name(p, all[i].name)) {
            all[i].parse(p, n);
            return n;
        }
    }
    const mo_jtoken *t = mo_parser_now(p);
    if (t->kind != MO_JT_NAME) {
        mo_parser_wrong(p, "the name of a tag");
    }
    p->w->line = t->line;
    mo_work_fail(p->w, MO_EFORMAT, "unexpected tag '%s'", t->text);
}

mo_jtree mo_parser_run(mo_work *w, const char *text, size_t length)
{
    mo_jparser p = {.w = w, .tokens = mo_lexer_run(w, text, length), .symbols = mo_jdict_new(w, 64)};
    mo_jtree tree = {
        .loop = mo_parser_symbol(&p, mo_jstring_literal(w, "loop")),
        .caller = mo_parser_symbol(&p, mo_jstring_literal(w, "caller")),
        .varargs = mo_parser_symbol(&p, mo_jstring_literal(w, "varargs")),
        .kwargs = mo_parser_symbol(&p, mo_jstring_literal(w, "kwargs")),
    };
    tree.body = body(&p, NULL);
    tree.symbols = (int)p.symbols->count;
    return tree;
}
