/* The expressions of parser.h, by recursive descent: or, and, not, comparisons, + -, ~, * / // %, **, signs,
   postfix operators. */
#include <stdio.h>

#include "template/parser.h"

static mo_jnode *condition(mo_jparser *p);
static mo_jnode *unary(mo_jparser *p, bool filters);

static mo_jnode *constant(mo_jparser *p, mo_jv v)
{
    mo_jnode *n = mo_parser_node(p, MO_NODE_CONST);
    n->value = v;
    return n;
}

/* ---- Arguments ---- */

static void add_argument(mo_jparser *p, mo_jnode *n, mo_jargument argument, size_t *capacity)
{
    if (n->argument_count == *capacity) {
        *capacity = *capacity ? 2 * *capacity : 4;
        n->arguments = mo_work_larger(p->w, n->arguments, n->argument_count, *capacity, sizeof *n->arguments);
    }
    n->arguments[n->argument_count++] = argument;
}

/* Parses (a, b=c, *d, **e) after the parenthesis. */
static void arguments(mo_jparser *p, mo_jnode *n)
{
    size_t capacity = 0;
    mo_parser_expect(p, "(");
    while (!mo_parser_take(p, ")")) {
        mo_jargument a = {.pass = MO_PASS_PLACE};
        const mo_jtoken *ahead = mo_parser_ahead(p);
        if (n->argument_count > 0) {
            mo_parser_expect(p, ",");
            if (mo_parser_take(p, ")")) {
                break;
            }
            ahead = mo_parser_ahead(p);
        }
        if (mo_parser_take(p, "*")) {
            a.pass = MO_PASS_ALL;
        } else if (mo_parser_take(p, "**")) {
            a.pass = MO_PASS_ALL_NAMES;
        } else if (mo_parser_now(p)->kind == MO_JT_NAME && ahead->kind == MO_JT_OPERATOR &&
                   strcmp(ahead->text, "=") == 0) {
            a.pass = MO_PASS_NAME;
            a.name = mo_parser_expect_name(p);
            mo_parser_expect(p, "=");
        }
        a.value = mo_parse_expression(p);
        add_argument(p, n, a, &capacity);
    }
}

void mo_parse_parameters(mo_jparser *p, mo_jnode *n)
{
    size_t capacity = 0;
    mo_parser_expect(p, "(");
    while (!mo_parser_take(p, ")")) {
        if (n->argument_count > 0) {
            mo_parser_expect(p, ",");
        }
        mo_jargument a = {.name = mo_parser_expect_name(p)};
        a.symbol = mo_parser_symbol(p, a.name);
        if (mo_parser_take(p, "=")) {
            a.value = mo_parse_expression(p);
        } else if (n->argument_count > 0 && n->arguments[n->argument_count - 1].value) {
            mo_parser_wrong(p, "a default, because the parameter before has one");
        }
        add_argument(p, n, a, &capacity);
    }
}

/* ---- Values ---- */

static mo_jnode *list_literal(mo_jparser *p)
{
    mo_jnode *n = mo_parser_node(p, MO_NODE_LIST);
    mo_parser_expect(p, "[");
    while (!mo_parser_take(p, "]")) {
        if (n->list.count > 0) {
            mo_parser_expect(p, ",");
            if (mo_parser_take(p, "]")) {
                break;
            }
        }
        mo_jnodes_add(p->w, &n->list, mo_parse_expression(p));
    }
    return n;
}

static mo_jnode *dict_literal(mo_jparser *p)
{
    mo_jnode *n = mo_parser_node(p, MO_NODE_DICT);
    mo_parser_expect(p, "{");
    while (!mo_parser_take(p, "}")) {
        if (n->list.count > 0) {
            mo_parser_expect(p, ",");
            if (mo_parser_take(p, "}")) {
                break;
            }
        }
        mo_jnodes_add(p->w, &n->list, mo_parse_expression(p));
        mo_parser_expect(p, ":");
        mo_jnodes_add(p->w, &n->list, mo_parse_expression(p));
    }
    return n;
}

static mo_jnode *name(mo_jparser *p)
{
    static const struct {
        const char *name;
        mo_jv value;
    } constants[] = {
        {"true", {.kind = MO_J_BOOL, .as.truth = true}},
        {"True", {.kind = MO_J_BOOL, .as.truth = true}},
        {"false", {.kind = MO_J_BOOL, .as.truth = false}},
        {"False", {.kind = MO_J_BOOL, .as.truth = false}},
        {"none", {.kind = MO_J_NONE}},
        {"None", {.kind = MO_J_NONE}},
    };
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        if (mo_parser_take_name(p, constants[i].name)) {
            return constant(p, constants[i].value);
        }
    }
    mo_jnode *n = mo_parser_node(p, MO_NODE_NAME);
    const mo_jstring text = mo_parser_expect_name(p);
    n->value = mo_jv_string(text);
    n->symbol = mo_parser_symbol(p, text);
    return n;
}

static mo_jnode *primary(mo_jparser *p)
{
    const mo_jtoken *t = mo_parser_now(p);
    if (t->kind == MO_JT_NAME) {
        return name(p);
    }
    if (t->kind == MO_JT_NUMBER) {
        return constant(p, mo_parser_next(p)->value);
    }
    if (t->kind == MO_JT_STRING) { /* adjacent strings are joined */
        mo_jstring text = mo_parser_next(p)->value.as.string;
        while (mo_parser_now(p)->kind == MO_JT_STRING) {
            text = mo_jstring_concat(p->w, text, mo_parser_next(p)->value.as.string);
            text.buffer->fixed = true;
        }
        return constant(p, mo_jv_string(text));
    }
    if (mo_parser_is(p, "[")) {
        return list_literal(p);
    }
    if (mo_parser_is(p, "{")) {
        return dict_literal(p);
    }
    if (mo_parser_take(p, "(")) {
        mo_jnode *n;
        if (mo_parser_is(p, ")")) {
            n = mo_parser_node(p, MO_NODE_TUPLE);
        } else {
            n = mo_parse_tuple(p, true);
        }
        mo_parser_expect(p, ")");
        return n;
    }
    mo_parser_wrong(p, "an expression");
}

/* Parses [i] or [a:b:c] after the bracket. */
static mo_jnode *subscript(mo_jparser *p, mo_jnode *of)
{
    mo_jnode *n = mo_parser_node(p, MO_NODE_ITEM), *part = NULL;
    n->a = of;
    mo_parser_expect(p, "[");
    if (!mo_parser_is(p, ":")) {
        part = mo_parse_tuple(p, true);
    }
    if (mo_parser_is(p, ":")) {
        n->kind = MO_NODE_SLICE;
        mo_jnodes_add(p->w, &n->list, part);
        while (mo_parser_take(p, ":")) {
            const bool empty = mo_parser_is(p, ":") || mo_parser_is(p, "]");
            mo_jnodes_add(p->w, &n->list, empty ? NULL : mo_parse_expression(p));
        }
        if (n->list.count > 3) {
            mo_parser_wrong(p, "at most two colons in a slice");
        }
    } else {
        n->b = part;
    }
    mo_parser_expect(p, "]");
    return n;
}

static mo_jnode *attribute(mo_jparser *p, mo_jnode *of)
{
    mo_parser_expect(p, ".");
    mo_jnode *n = mo_parser_node(p, MO_NODE_ATTRIBUTE);
    n->a = of;
    if (mo_parser_now(p)->kind == MO_JT_NUMBER) { /* a.0 */
        n->kind = MO_NODE_ITEM;
        n->b = constant(p, mo_parser_next(p)->value);
    } else {
        n->value = mo_jv_string(mo_parser_expect_name(p));
    }
    return n;
}

static mo_jnode *call(mo_jparser *p, mo_jnode *of)
{
    mo_jnode *n = mo_parser_node(p, MO_NODE_CALL);
    n->a = of;
    arguments(p, n);
    return n;
}

static mo_jnode *postfix(mo_jparser *p, mo_jnode *n)
{
    for (;;) {
        if (mo_parser_is(p, ".")) {
            n = attribute(p, n);
        } else if (mo_parser_is(p, "[")) {
            n = subscript(p, n);
        } else if (mo_parser_is(p, "(")) {
            n = call(p, n);
        } else {
            return n;
        }
    }
}

/* ---- Filters and tests ---- */

static mo_jstring dotted(mo_jparser *p)
{
    mo_jstring text = mo_parser_expect_name(p);
    while (mo_parser_take(p, ".")) {
        text = mo_jstring_concat(p->w, text, mo_jstring_literal(p->w, "."));
        text = mo_jstring_concat(p->w, text, mo_parser_expect_name(p));
        text.buffer->fixed = true;
    }
    return text;
}

static mo_jnode *filter(mo_jparser *p, mo_jnode *of)
{
    mo_jnode *n = mo_parser_node(p, MO_NODE_FILTER);
    n->a = of;
    n->value = mo_jv_string(dotted(p));
    if (mo_parser_is(p, "(")) {
        arguments(p, n);
    }
    return n;
}

mo_jnode *mo_parse_filters(mo_jparser *p)
{
    mo_jnode *n = filter(p, NULL);
    while (mo_parser_take(p, "|")) {
        n = filter(p, n);
    }
    return n;
}

/* Can the token be the argument of a test without parentheses? */
static bool begins_argument(const mo_jparser *p)
{
    static const char *const others[] = {"else", "or", "and", "is", "if", "in", "not"};
    const mo_jtoken *t = mo_parser_now(p);
    if (t->kind == MO_JT_NAME) {
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
            if (mo_parser_is_name(p, others[i])) {
                return false;
            }
        }
    }
    return t->kind == MO_JT_NAME || t->kind == MO_JT_STRING || t->kind == MO_JT_NUMBER ||
           mo_parser_is(p, "[") || mo_parser_is(p, "{");
}

static mo_jnode *test(mo_jparser *p, mo_jnode *of)
{
    const bool negated = mo_parser_take_name(p, "not");
    mo_jnode *n = mo_parser_node(p, MO_NODE_TEST);
    n->a = of;
    n->value = mo_jv_string(dotted(p));
    if (mo_parser_is(p, "(")) {
        arguments(p, n);
    } else if (begins_argument(p)) {
        n->arguments = mo_work_array(p->w, 1, sizeof *n->arguments);
        n->arguments[0] = (mo_jargument){.pass = MO_PASS_PLACE, .value = postfix(p, primary(p))};
        n->argument_count = 1;
    }
    if (!negated) {
        return n;
    }
    mo_jnode *no = mo_parser_node(p, MO_NODE_NOT);
    no->a = n;
    return no;
}

static mo_jnode *filters_and_tests(mo_jparser *p, mo_jnode *n)
{
    for (;;) {
        if (mo_parser_take(p, "|")) {
            n = filter(p, n);
        } else if (mo_parser_take_name(p, "is")) {
            n = test(p, n);
        } else if (mo_parser_is(p, "(")) {
            n = call(p, n);
        } else {
            return n;
        }
    }
}

/* ---- Operators ---- */

static mo_jnode *unary(mo_jparser *p, bool filters)
{
    mo_jnode *n;
    mo_work_down(p->w);
    if (mo_parser_is(p, "-") || mo_parser_is(p, "+")) {
        n = mo_parser_node(p, mo_parser_is(p, "-") ? MO_NODE_MINUS : MO_NODE_PLUS);
        mo_parser_next(p);
        n->a = unary(p, false);
    } else {
        n = primary(p);
    }
    n = postfix(p, n);
    n = filters ? filters_and_tests(p, n) : n;
    mo_work_up(p->w);
    return n;
}

static mo_jnode *binary(mo_jparser *p, mo_jop op, mo_jnode *a, mo_jnode *b)
{
    mo_jnode *n = mo_parser_node(p, MO_NODE_BINARY);
    n->op = op;
    n->a = a;
    n->b = b;
    return n;
}

static mo_jnode *power(mo_jparser *p)
{
    mo_jnode *n = unary(p, true);
    while (mo_parser_take(p, "**")) {
        n = binary(p, MO_JOP_POW, n, unary(p, true));
    }
    return n;
}

static mo_jnode *product(mo_jparser *p)
{
    mo_jnode *n = power(p);
    for (;;) {
        const mo_jop op = mo_parser_is(p, "*")    ? MO_JOP_MUL
                          : mo_parser_is(p, "/")  ? MO_JOP_DIV
                          : mo_parser_is(p, "//") ? MO_JOP_FLOOR_DIV
                                                  : MO_JOP_MOD;
        if (op == MO_JOP_MOD && !mo_parser_is(p, "%")) {
            return n;
        }
        mo_parser_next(p);
        n = binary(p, op, n, power(p));
    }
}

static mo_jnode *concatenation(mo_jparser *p)
{
    mo_jnode *n = product(p);
    if (!mo_parser_is(p, "~")) {
        return n;
    }
    mo_jnode *all = mo_parser_node(p, MO_NODE_CONCAT);
    mo_jnodes_add(p->w, &all->list, n);
    while (mo_parser_take(p, "~")) {
        mo_jnodes_add(p->w, &all->list, product(p));
    }
    return all;
}

static mo_jnode *sum(mo_jparser *p)
{
    mo_jnode *n = concatenation(p);
    while (mo_parser_is(p, "+") || mo_parser_is(p, "-")) {
        const mo_jop op = mo_parser_is(p, "+") ? MO_JOP_ADD : MO_JOP_SUB;
        mo_parser_next(p);
        n = binary(p, op, n, concatenation(p));
    }
    return n;
}

static bool comparison(mo_jparser *p, mo_jop *op)
{
    static const struct {
        const char *text;
        mo_jop op;
    } all[] = {{"==", MO_JOP_EQ}, {"!=", MO_JOP_NE}, {"<", MO_JOP_LT},
               {"<=", MO_JOP_LE}, {">", MO_JOP_GT},  {">=", MO_JOP_GE}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (mo_parser_take(p, all[i].text)) {
            *op = all[i].op;
            return true;
        }
    }
    if (mo_parser_take_name(p, "in")) {
        *op = MO_JOP_IN;
        return true;
    }
    const mo_jtoken *ahead = mo_parser_ahead(p);
    if (mo_parser_is_name(p, "not") && ahead->kind == MO_JT_NAME && strcmp(ahead->text, "in") == 0) {
        mo_parser_next(p);
        mo_parser_next(p);
        *op = MO_JOP_NOT_IN;
        return true;
    }
    return false;
}

static mo_jnode *compared(mo_jparser *p)
{
    mo_jnode *n = sum(p), *all = NULL;
    mo_jop op, ops[64];
    while (comparison(p, &op)) {
        if (!all) {
            all = mo_parser_node(p, MO_NODE_COMPARE);
            all->a = n;
        }
        if (all->list.count == sizeof ops / sizeof *ops) {
            mo_parser_wrong(p, "fewer comparisons in a row");
        }
        ops[all->list.count] = op;
        mo_jnodes_add(p->w, &all->list, sum(p));
    }
    if (!all) {
        return n;
    }
    all->ops = mo_work_array(p->w, all->list.count, sizeof *all->ops);
    memcpy(all->ops, ops, all->list.count * sizeof *ops);
    return all;
}

static mo_jnode *negation(mo_jparser *p)
{
    if (!mo_parser_take_name(p, "not")) {
        return compared(p);
    }
    mo_jnode *n = mo_parser_node(p, MO_NODE_NOT);
    mo_work_down(p->w);
    n->a = negation(p);
    mo_work_up(p->w);
    return n;
}

/* Parses operands with `part`, joined by this word. */
static mo_jnode *joined(mo_jparser *p, const char *word, mo_jnode_kind kind, mo_jnode *(*part)(mo_jparser *))
{
    mo_jnode *n = part(p);
    while (mo_parser_take_name(p, word)) {
        mo_jnode *both = mo_parser_node(p, kind);
        both->a = n;
        both->b = part(p);
        n = both;
    }
    return n;
}

static mo_jnode *conjunction(mo_jparser *p)
{
    return joined(p, "and", MO_NODE_AND, negation);
}

static mo_jnode *disjunction(mo_jparser *p)
{
    return joined(p, "or", MO_NODE_OR, conjunction);
}

static mo_jnode *condition(mo_jparser *p)
{
    mo_jnode *n = disjunction(p);
    while (mo_parser_take_name(p, "if")) {
        mo_jnode *c = mo_parser_node(p, MO_NODE_CONDITION);
        c->a = n;
        c->b = disjunction(p);
        if (mo_parser_take_name(p, "else")) {
            mo_work_down(p->w);
            c->c = condition(p);
            mo_work_up(p->w);
        }
        n = c;
    }
    return n;
}

mo_jnode *mo_parse_expression(mo_jparser *p)
{
    mo_work_down(p->w);
    mo_jnode *n = condition(p);
    mo_work_up(p->w);
    return n;
}

static bool tuple_ends(const mo_jparser *p)
{
    const mo_jtoken_kind kind = mo_parser_now(p)->kind;
    return kind == MO_JT_BLOCK_END || kind == MO_JT_PRINT_END || mo_parser_is(p, ")") ||
           mo_parser_is(p, "]") || mo_parser_is(p, "=") || mo_parser_is_name(p, "in");
}

mo_jnode *mo_parse_tuple(mo_jparser *p, bool with_condition)
{
    mo_work_down(p->w);
    mo_jnode *n = with_condition ? condition(p) : disjunction(p), *all = NULL;
    while (mo_parser_take(p, ",")) {
        if (!all) {
            all = mo_parser_node(p, MO_NODE_TUPLE);
            mo_jnodes_add(p->w, &all->list, n);
        }
        if (tuple_ends(p)) {
            break;
        }
        mo_jnodes_add(p->w, &all->list, with_condition ? condition(p) : disjunction(p));
    }
    mo_work_up(p->w);
    return all ? all : n;
}

static mo_jnode *one_target(mo_jparser *p, bool fields)
{
    mo_jnode *n;
    mo_work_down(p->w);
    if (mo_parser_take(p, "(")) {
        n = mo_parse_target(p, fields);
        mo_parser_expect(p, ")");
    } else {
        n = name(p);
        if (n->kind != MO_NODE_NAME) {
            mo_parser_wrong(p, "a name that can be set");
        }
        if (fields && mo_parser_is(p, ".")) {
            n = attribute(p, n);
        }
    }
    mo_work_up(p->w);
    return n;
}

mo_jnode *mo_parse_target(mo_jparser *p, bool fields)
{
    mo_jnode *n = one_target(p, fields), *all = NULL;
    while (mo_parser_take(p, ",")) {
        if (!all) {
            all = mo_parser_node(p, MO_NODE_TUPLE);
            mo_jnodes_add(p->w, &all->list, n);
        }
        if (tuple_ends(p)) {
            break;
        }
        mo_jnodes_add(p->w, &all->list, one_target(p, fields));
    }
    return all ? all : n;
}

mo_jnode *mo_parse_call(mo_jparser *p)
{
    mo_jnode *n = mo_parse_expression(p);
    if (n->kind != MO_NODE_CALL) {
        mo_parser_wrong(p, "a call");
    }
    return n;
}
