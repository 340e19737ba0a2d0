#include "grammar/gbnf.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "grammar/gbnf_terminal.h"
#include "text/lookup.h"

typedef struct parser {
    mo_gbnf_text t;
    mo_lookup names; /* of rules */
    int depth;
} parser;

/* Items of a sequence or choice being read. */
typedef struct list {
    mo_syntax **items;
    size_t count, space;
} list;

/* ---- Lists ---- */

static bool list_add(list *l, mo_syntax *x)
{
    if (!mo_array_reserve(&l->items, &l->space, l->count + 1, sizeof(void *))) {
        return false;
    }
    l->items[l->count++] = x;
    return true;
}

/* Makes a node of the list, or returns its only item. Frees the list. */
static mo_status list_node(parser *p, list *l, mo_syntax_kind kind, mo_syntax **out)
{
    mo_status status = MO_OK;
    if (l->count == 1) {
        *out = l->items[0];
    } else {
        status = mo_gbnf_node(&p->t, kind, out);
        if (status == MO_OK && l->count > 0) {
            (*out)->as.list.items = mo_arena_array(p->t.g->arena, l->count, sizeof(void *));
            if (!(*out)->as.list.items) {
                status = mo_gbnf_no_memory(&p->t);
            } else {
                memcpy((*out)->as.list.items, l->items, l->count * sizeof(void *));
                (*out)->as.list.count = l->count;
            }
        }
    }
    free(l->items);
    *l = (list){0};
    return status;
}

/* ---- Names ---- */

static bool is_name(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static mo_text read_name(parser *p)
{
    const size_t begin = p->t.at;
    while (is_name(mo_gbnf_peek(&p->t))) {
        p->t.at++;
    }
    return (mo_text){(const char *)p->t.text + begin, p->t.at - begin};
}

static int shown(mo_text name)
{
    return (int)(name.length < 100 ? name.length : 100);
}

/* The number of the rule with this name, which is added if it is new. */
static mo_status rule_number(parser *p, mo_text name, size_t at, uint32_t *out)
{
    mo_syntax_grammar *g = p->t.g;
    *out = mo_lookup_get(&p->names, (const uint8_t *)name.data, name.length);
    if (*out != MO_LOOKUP_NONE) {
        return MO_OK;
    }
    if (g->rule_count == MO_SYNTAX_RULES) {
        return mo_gbnf_wrong_at(&p->t, at, "the grammar has more than %d rules", MO_SYNTAX_RULES);
    }
    if (!mo_array_reserve(&g->rules, &g->rule_space, g->rule_count + 1, sizeof *g->rules)) {
        return mo_gbnf_no_memory(&p->t);
    }
    mo_syntax_rule *r = &g->rules[g->rule_count];
    /* its line is found later, if needed */
    *r = (mo_syntax_rule){.name = name, .line = -1, .column = (int)at};
    if (!mo_lookup_put(&p->names, (const uint8_t *)name.data, name.length, g->rule_count)) {
        return mo_gbnf_no_memory(&p->t);
    }
    *out = g->rule_count++;
    return MO_OK;
}

/* ---- Rules ---- */

static mo_status read_count(parser *p, int32_t *out)
{
    const size_t begin = p->t.at;
    int64_t n = 0;
    while (mo_gbnf_peek(&p->t) >= '0' && mo_gbnf_peek(&p->t) <= '9') {
        n = n < INT32_MAX ? n * 10 + (mo_gbnf_peek(&p->t) - '0') : n; /* larger counts are unreachable */
        p->t.at++;
    }
    if (p->t.at == begin) {
        return mo_gbnf_wrong(&p->t, "expected a number of repetitions");
    }
    *out = n < INT32_MAX ? (int32_t)n : INT32_MAX - 1;
    return MO_OK;
}

/* {m}, {m,} or {m,n}. */
static mo_status read_bounds(parser *p, int32_t *min, int32_t *max)
{
    const size_t begin = p->t.at++;
    mo_gbnf_blanks(&p->t, false);
    mo_status status = read_count(p, min);
    *max = *min;
    if (status == MO_OK) {
        mo_gbnf_blanks(&p->t, false);
        if (mo_gbnf_peek(&p->t) == ',') {
            p->t.at++;
            mo_gbnf_blanks(&p->t, false);
            *max = MO_REPEAT_NO_MAX;
            if (mo_gbnf_peek(&p->t) != '}') {
                status = read_count(p, max);
                mo_gbnf_blanks(&p->t, false);
            }
        }
    }
    if (status == MO_OK && mo_gbnf_peek(&p->t) != '}') {
        return mo_gbnf_wrong(&p->t, "expected }");
    }
    p->t.at++;
    if (status == MO_OK && *max != MO_REPEAT_NO_MAX && *max < *min) {
        return mo_gbnf_wrong_at(&p->t, begin, "the maximum of %d repetitions is below the minimum of %d",
                                *max, *min);
    }
    return status;
}

/* Reads the operators after an item and applies each to the item. */
static mo_status read_repeats(parser *p, mo_syntax **item)
{
    mo_status status = MO_OK;
    for (int count = 0; status == MO_OK; count++) {
        int32_t min = 0, max = MO_REPEAT_NO_MAX;
        mo_syntax *repeat;
        switch (mo_gbnf_peek(&p->t)) {
        case '*': p->t.at++; break;
        case '+':
            p->t.at++;
            min = 1;
            break;
        case '?':
            p->t.at++;
            max = 1;
            break;
        case '{': status = read_bounds(p, &min, &max); break;
        default: return MO_OK;
        }
        if (status == MO_OK && count == 8) {
            return mo_gbnf_wrong(&p->t, "more than 8 nested repetitions");
        }
        status = status == MO_OK ? mo_gbnf_node(&p->t, MO_SYNTAX_REPEAT, &repeat) : status;
        if (status == MO_OK) {
            repeat->as.repeat.item = *item;
            repeat->as.repeat.min = min;
            repeat->as.repeat.max = max;
            *item = repeat;
        }
    }
    return status;
}

static mo_status read_choice(parser *p, bool nested, mo_syntax **out);

static mo_status read_reference(parser *p, mo_syntax **out)
{
    const size_t begin = p->t.at;
    const mo_text name = read_name(p);
    uint32_t rule;
    mo_status status = rule_number(p, name, begin, &rule);
    if (status == MO_OK) {
        status = mo_gbnf_node(&p->t, MO_SYNTAX_RULE, out);
    }
    if (status == MO_OK) {
        (*out)->as.rule = rule;
    }
    return status;
}

static mo_status read_group(parser *p, mo_syntax **out)
{
    const size_t begin = p->t.at++;
    if (++p->depth > MO_SYNTAX_DEPTH) {
        return mo_gbnf_wrong_at(&p->t, begin, "more than %d open parentheses", MO_SYNTAX_DEPTH);
    }
    mo_gbnf_blanks(&p->t, true);
    const mo_status status = read_choice(p, true, out);
    if (status == MO_OK && mo_gbnf_peek(&p->t) != ')') {
        return mo_gbnf_peek(&p->t) < 0 ? mo_gbnf_wrong_at(&p->t, begin, "this parenthesis is not closed")
                                       : mo_gbnf_wrong(&p->t, "unexpected character in a rule");
    }
    p->t.at++;
    p->depth--;
    return status;
}

/* *some: there was an item. */
static mo_status read_item(parser *p, mo_syntax **out, bool *some)
{
    const int c = mo_gbnf_peek(&p->t);
    mo_status status;
    *some = true;
    if (c == '(') {
        status = read_group(p, out);
    } else if (is_name(c)) {
        status = read_reference(p, out);
    } else {
        status = mo_gbnf_terminal(&p->t, out, some);
    }
    return status == MO_OK && *some ? read_repeats(p, out) : status;
}

static mo_status read_sequence(parser *p, bool nested, mo_syntax **out)
{
    list items = {0};
    mo_status status = MO_OK;
    for (bool some = true; status == MO_OK;) {
        mo_syntax *item = NULL;
        status = read_item(p, &item, &some);
        if (status != MO_OK || !some) {
            break;
        }
        status = list_add(&items, item) ? MO_OK : mo_gbnf_no_memory(&p->t);
        mo_gbnf_blanks(&p->t, nested);
    }
    if (status != MO_OK) {
        free(items.items);
        return status;
    }
    return list_node(p, &items, MO_SYNTAX_SEQUENCE, out);
}

/* After a newline a rule continues only with an alternative. */
static bool another_alternative(parser *p)
{
    const size_t begin = p->t.at;
    mo_gbnf_blanks(&p->t, true);
    if (mo_gbnf_peek(&p->t) == '|') {
        p->t.at++;
        mo_gbnf_blanks(&p->t, true);
        return true;
    }
    p->t.at = begin;
    return false;
}

static mo_status read_choice(parser *p, bool nested, mo_syntax **out)
{
    list items = {0};
    mo_status status;
    do {
        mo_syntax *item = NULL;
        status = read_sequence(p, nested, &item);
        if (status == MO_OK && !list_add(&items, item)) {
            status = mo_gbnf_no_memory(&p->t);
        }
    } while (status == MO_OK && another_alternative(p));
    if (status != MO_OK) {
        free(items.items);
        return status;
    }
    return list_node(p, &items, MO_SYNTAX_CHOICE, out);
}

static mo_status read_rule(parser *p)
{
    const size_t begin = p->t.at;
    const mo_text name = read_name(p);
    uint32_t number;
    mo_syntax *body = NULL;
    if (name.length == 0) {
        return mo_gbnf_wrong(&p->t, "expected the name of a rule");
    }
    mo_status status = rule_number(p, name, begin, &number);
    if (status != MO_OK) {
        return status;
    }
    if (p->t.g->rules[number].body) {
        return mo_gbnf_wrong_at(&p->t, begin, "rule %.*s is already defined", shown(name), name.data);
    }
    mo_gbnf_blanks(&p->t, false);
    if (p->t.length - p->t.at < 3 || memcmp(p->t.text + p->t.at, "::=", 3) != 0) {
        return mo_gbnf_wrong(&p->t, "expected ::= after the name %.*s", shown(name), name.data);
    }
    p->t.at += 3;
    mo_gbnf_blanks(&p->t, true);
    status = read_choice(p, false, &body);
    if (status == MO_OK && p->t.at < p->t.length && mo_gbnf_peek(&p->t) != '\n' &&
        mo_gbnf_peek(&p->t) != '\r') {
        return mo_gbnf_wrong(&p->t, "unexpected character in a rule");
    }
    if (status == MO_OK) {
        p->t.g->rules[number].body = body;
        p->t.g->rules[number].column = (int)begin;
        mo_gbnf_blanks(&p->t, true);
    }
    return status;
}

static mo_status find_root(parser *p, const char *root)
{
    p->t.g->root = mo_lookup_get(&p->names, (const uint8_t *)root, strlen(root));
    if (p->t.g->root == MO_LOOKUP_NONE) {
        return mo_gbnf_wrong(&p->t, "the start rule %s is not defined", root);
    }
    return MO_OK;
}

/* Finds lines and columns of rules in one pass. They are numbered in the order of first use, not of
   definition. */
static mo_status locate_rules(parser *p)
{
    mo_syntax_grammar *g = p->t.g;
    int *columns = malloc((p->t.length + 1) * sizeof *columns);
    int *lines = malloc((p->t.length + 1) * sizeof *lines);
    if (!columns || !lines) {
        free(columns);
        free(lines);
        return mo_gbnf_no_memory(&p->t);
    }
    int line = 1, column = 1;
    for (size_t i = 0; i <= p->t.length; i++) {
        lines[i] = line;
        columns[i] = column;
        if (i < p->t.length && p->t.text[i] == '\n') {
            line++;
            column = 1;
        } else if (i < p->t.length) {
            column += (p->t.text[i] & 0xC0) != 0x80;
        }
    }
    for (uint32_t i = 0; i < g->rule_count; i++) {
        const int at = g->rules[i].column;
        g->rules[i].line = lines[at];
        g->rules[i].column = columns[at];
    }
    free(columns);
    free(lines);
    return MO_OK;
}

mo_status mo_gbnf_parse(const char *text, size_t length, const char *root, const mo_gbnf_tokens *tokens,
                        mo_syntax_grammar *out, mo_error *err)
{
    mo_status status = MO_OK;
    *out = (mo_syntax_grammar){0};
    parser p = {.t = {(const uint8_t *)text, length, 0, tokens, out, err}};
    if (length > MO_GBNF_BYTES) {
        return mo_fail(err, MO_EINVAL, "the grammar has %zu bytes; the limit is %d", length, MO_GBNF_BYTES);
    }
    out->arena = mo_arena_create(0);
    if (!out->arena || !mo_lookup_init(&p.names, 64)) {
        status = mo_gbnf_no_memory(&p.t);
    }
    mo_gbnf_blanks(&p.t, true);
    while (status == MO_OK && p.t.at < length) {
        status = read_rule(&p);
    }
    if (status == MO_OK) {
        status = find_root(&p, root);
    }
    if (status == MO_OK) {
        status = locate_rules(&p);
    }
    for (uint32_t i = 0; i < out->rule_count && status == MO_OK; i++) {
        const mo_syntax_rule *r = &out->rules[i];
        if (!r->body) {
            status = mo_fail(err, MO_EINVAL, "line %d, column %d: rule %.*s is not defined", r->line,
                             r->column, shown(r->name), r->name.data);
        }
    }
    if (status == MO_OK) {
        status = mo_syntax_check(out, err);
    }
    mo_lookup_free(&p.names);
    if (status != MO_OK) {
        mo_syntax_free(out);
    } else { /* the caller owns the text */
        for (uint32_t i = 0; i < out->rule_count; i++) {
            out->rules[i].name = (mo_text){"", 0};
        }
    }
    return status;
}
