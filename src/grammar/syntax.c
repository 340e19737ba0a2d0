#include "grammar/syntax.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/status.h"

void mo_syntax_free(mo_syntax_grammar *g)
{
    for (uint32_t i = 0; i < g->set_count; i++) {
        mo_charset_free(&g->sets[i]);
    }
    free(g->sets);
    free(g->rules);
    mo_arena_destroy(g->arena);
    *g = (mo_syntax_grammar){0};
}

uint32_t mo_syntax_set(mo_syntax_grammar *g, mo_charset *set)
{
    for (uint32_t i = 0; i < g->set_count; i++) {
        if (mo_charset_equal(&g->sets[i], set)) {
            mo_charset_free(set);
            return i;
        }
    }
    if (g->set_count == MO_SYNTAX_SETS) {
        mo_charset_free(set);
        return UINT32_MAX;
    }
    if (!mo_array_reserve(&g->sets, &g->set_space, g->set_count + 1, sizeof *g->sets)) {
        mo_charset_free(set);
        return UINT32_MAX;
    }
    g->sets[g->set_count] = *set;
    *set = (mo_charset){0};
    return g->set_count++;
}

/* ---- Empty matches and left recursion ---- */

enum { UNSEEN, OPEN, DONE };

typedef struct check {
    mo_syntax_grammar *g;
    uint8_t *seen; /* one per rule */
    int levels;    /* recursion depth */
    mo_error *err;
} check;

static mo_status visit_rule(check *c, uint32_t rule);

/* May x match the empty text? Visits only what x can begin with, so a rule that is reached while it is being
   visited can begin with itself. */
static mo_status visit(check *c, const mo_syntax *x, bool *nullable)
{
    mo_status status = MO_OK;
    bool inner = false;
    c->levels++;
    switch (x->kind) {
    case MO_SYNTAX_LITERAL: *nullable = x->as.literal.length == 0; break;
    case MO_SYNTAX_SET:
    case MO_SYNTAX_TOKEN: *nullable = false; break;
    case MO_SYNTAX_RULE:
        status = visit_rule(c, x->as.rule);
        *nullable = c->g->rules[x->as.rule].nullable;
        break;
    case MO_SYNTAX_SEQUENCE:
        *nullable = true;
        for (size_t i = 0; i < x->as.list.count && *nullable && status == MO_OK; i++) {
            status = visit(c, x->as.list.items[i], nullable);
        }
        break;
    case MO_SYNTAX_CHOICE:
        *nullable = false;
        for (size_t i = 0; i < x->as.list.count && status == MO_OK; i++) {
            status = visit(c, x->as.list.items[i], &inner);
            *nullable |= inner;
        }
        break;
    case MO_SYNTAX_REPEAT:
        status = visit(c, x->as.repeat.item, &inner);
        *nullable = inner || x->as.repeat.min == 0;
        break;
    }
    c->levels--;
    return status;
}

static mo_status visit_rule(check *c, uint32_t rule)
{
    mo_syntax_rule *r = &c->g->rules[rule];
    if (c->seen[rule] == DONE) {
        return MO_OK;
    }
    if (c->seen[rule] == OPEN) {
        return mo_fail(c->err, MO_EINVAL,
                       "line %d, column %d: rule %.*s can start with "
                       "itself (left recursion); put another part before it",
                       r->line, r->column, (int)(r->name.length < 100 ? r->name.length : 100), r->name.data);
    }
    if (c->levels >= MO_SYNTAX_LEVELS) {
        return mo_fail(c->err, MO_EINVAL,
                       "line %d, column %d: too many rules start with one another; use fewer", r->line,
                       r->column);
    }
    c->seen[rule] = OPEN;
    const mo_status status = visit(c, r->body, &r->nullable);
    c->seen[rule] = DONE;
    return status;
}

/* Sets the flags of all nodes; those of rules are known. */
static bool settle(const mo_syntax_grammar *g, mo_syntax *x)
{
    bool all = true, any = false;
    switch (x->kind) {
    case MO_SYNTAX_LITERAL: x->nullable = x->as.literal.length == 0; break;
    case MO_SYNTAX_SET:
    case MO_SYNTAX_TOKEN: x->nullable = false; break;
    case MO_SYNTAX_RULE: x->nullable = g->rules[x->as.rule].nullable; break;
    case MO_SYNTAX_SEQUENCE:
    case MO_SYNTAX_CHOICE:
        for (size_t i = 0; i < x->as.list.count; i++) {
            const bool one = settle(g, x->as.list.items[i]);
            all &= one;
            any |= one;
        }
        x->nullable = x->kind == MO_SYNTAX_SEQUENCE ? all : any;
        break;
    case MO_SYNTAX_REPEAT: x->nullable = settle(g, x->as.repeat.item) || x->as.repeat.min == 0; break;
    }
    return x->nullable;
}

mo_status mo_syntax_check(mo_syntax_grammar *g, mo_error *err)
{
    check c = {.g = g, .seen = calloc(g->rule_count ? g->rule_count : 1, 1), .err = err};
    mo_status status = MO_OK;
    if (!c.seen) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a grammar");
    }
    for (uint32_t i = 0; i < g->rule_count && status == MO_OK; i++) {
        status = visit_rule(&c, i);
    }
    for (uint32_t i = 0; i < g->rule_count && status == MO_OK; i++) {
        settle(g, g->rules[i].body);
    }
    free(c.seen);
    return status;
}
