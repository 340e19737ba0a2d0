#include "template/run.h"

#include "template/print.h"

/* ---- Frames ---- */

mo_jframe *mo_frame_enter(mo_jrun *r, mo_jframe *parent)
{
    mo_jframe *f = mo_work_alloc(r->w, sizeof *f);
    f->parent = parent;
    return f;
}

void mo_frame_set(mo_jrun *r, mo_jframe *f, int symbol, mo_jv v)
{
    for (uint32_t i = 0; i < f->count; i++) {
        if (f->variables[i].symbol == symbol) {
            f->variables[i].value = v;
            return;
        }
    }
    if (f->count == f->capacity) {
        f->capacity = f->capacity ? 2 * f->capacity : 4;
        f->variables = mo_work_larger(r->w, f->variables, f->count, f->capacity, sizeof *f->variables);
    }
    f->variables[f->count++] = (mo_jvariable){symbol, v};
}

static mo_jv look_up(mo_jrun *r, const mo_jnode *n)
{
    for (const mo_jframe *f = r->frame; f; f = f->parent) {
        mo_work_spend(r->w, f->count / 16);
        for (uint32_t i = 0; i < f->count; i++) {
            if (f->variables[i].symbol == n->symbol) {
                return f->variables[i].value;
            }
        }
    }
    const mo_jv *given = mo_jdict_find_string(r->w, r->context, n->value.as.string);
    if (given) {
        return *given;
    }
    const mo_jfunction *f = mo_function_find(mo_globals, n->value.as.string);
    return f ? (mo_jv){.kind = MO_J_FUNCTION, .as.function = f}
             : mo_jv_missing(r->w, NULL, n->value.as.string);
}

/* ---- Expressions ---- */

static mo_jv list_of(mo_jrun *r, const mo_jnode *n, mo_jshape shape)
{
    mo_jlist *list = mo_jlist_new(r->w, shape, n->list.count);
    for (uint32_t i = 0; i < n->list.count; i++) {
        mo_jlist_add(r->w, list, mo_run_eval(r, n->list.items[i]));
    }
    return mo_jv_list(list);
}

static mo_jv dict_of(mo_jrun *r, const mo_jnode *n)
{
    mo_jdict *dict = mo_jdict_new(r->w, n->list.count / 2);
    for (uint32_t i = 0; i + 1 < n->list.count; i += 2) {
        const mo_jv key = mo_run_eval(r, n->list.items[i]);
        mo_jdict_set(r->w, dict, key, mo_run_eval(r, n->list.items[i + 1]));
    }
    return mo_jv_dict(dict);
}

static mo_jv slice_of(mo_jrun *r, const mo_jnode *n)
{
    mo_jv bounds[3] = {{.kind = MO_J_ABSENT}, {.kind = MO_J_ABSENT}, {.kind = MO_J_ABSENT}};
    const mo_jv v = mo_run_eval(r, n->a);
    for (uint32_t i = 0; i < n->list.count; i++) {
        if (n->list.items[i]) {
            bounds[i] = mo_run_eval(r, n->list.items[i]);
        }
    }
    r->w->line = n->line;
    return mo_access_slice(r, v, bounds[0], bounds[1], bounds[2]);
}

static mo_jv comparison_of(mo_jrun *r, const mo_jnode *n)
{
    mo_jv left = mo_run_eval(r, n->a);
    for (uint32_t i = 0; i < n->list.count; i++) {
        const mo_jv right = mo_run_eval(r, n->list.items[i]);
        r->w->line = n->line;
        if (!mo_compare(r, n->ops[i], left, right)) {
            return mo_jv_bool(false);
        }
        left = right;
    }
    return mo_jv_bool(true);
}

static mo_jv concatenation_of(mo_jrun *r, const mo_jnode *n)
{
    mo_jstring text = mo_jv_str(r->w, mo_run_eval(r, n->list.items[0]));
    for (uint32_t i = 1; i < n->list.count; i++) {
        text = mo_jstring_concat(r->w, text, mo_jv_str(r->w, mo_run_eval(r, n->list.items[i])));
    }
    return mo_jv_string(text);
}

static mo_jv condition_of(mo_jrun *r, const mo_jnode *n)
{
    if (mo_jv_true(mo_run_eval(r, n->b))) {
        return mo_run_eval(r, n->a);
    }
    return n->c ? mo_run_eval(r, n->c) : MO_JV_UNDEFINED;
}

static mo_jv eval(mo_jrun *r, const mo_jnode *n)
{
    mo_jv a, b;
    mo_jargs args;
    switch (n->kind) {
    case MO_NODE_CONST: return n->value;
    case MO_NODE_NAME: return look_up(r, n);
    case MO_NODE_LIST: return list_of(r, n, MO_SHAPE_LIST);
    case MO_NODE_TUPLE: return list_of(r, n, MO_SHAPE_TUPLE);
    case MO_NODE_DICT: return dict_of(r, n);
    case MO_NODE_ATTRIBUTE:
        a = mo_run_eval(r, n->a);
        r->w->line = n->line;
        return mo_access_attribute(r, a, n->value.as.string);
    case MO_NODE_ITEM:
        a = mo_run_eval(r, n->a);
        b = mo_run_eval(r, n->b);
        r->w->line = n->line;
        return mo_access_item(r, a, b);
    case MO_NODE_SLICE: return slice_of(r, n);
    case MO_NODE_CALL:
        a = mo_run_eval(r, n->a);
        args = mo_call_arguments(r, n);
        r->w->line = n->line;
        return mo_call(r, a, &args);
    case MO_NODE_FILTER:
        a = mo_run_eval(r, n->a);
        args = mo_call_arguments(r, n);
        r->w->line = n->line;
        return mo_call_filter(r, n->value.as.string, a, &args);
    case MO_NODE_TEST:
        a = mo_run_eval(r, n->a);
        args = mo_call_arguments(r, n);
        r->w->line = n->line;
        return mo_jv_bool(mo_call_test(r, n->value.as.string, a, &args));
    case MO_NODE_NOT: return mo_jv_bool(!mo_jv_true(mo_run_eval(r, n->a)));
    case MO_NODE_MINUS: return mo_negate(r, mo_run_eval(r, n->a));
    case MO_NODE_PLUS:
        a = mo_run_eval(r, n->a);
        return a.kind == MO_J_BIG ? a : mo_operate(r, MO_JOP_ADD, mo_jv_int(0), a);
    case MO_NODE_BINARY:
        a = mo_run_eval(r, n->a);
        b = mo_run_eval(r, n->b);
        r->w->line = n->line;
        return mo_operate(r, n->op, a, b);
    case MO_NODE_COMPARE: return comparison_of(r, n);
    case MO_NODE_AND: a = mo_run_eval(r, n->a); return mo_jv_true(a) ? mo_run_eval(r, n->b) : a;
    case MO_NODE_OR: a = mo_run_eval(r, n->a); return mo_jv_true(a) ? a : mo_run_eval(r, n->b);
    case MO_NODE_CONDITION: return condition_of(r, n);
    case MO_NODE_CONCAT: return concatenation_of(r, n);
    default: return MO_JV_UNDEFINED; /* statements are not expressions */
    }
}

mo_jv mo_run_eval(mo_jrun *r, const mo_jnode *n)
{
    mo_work_spend(r->w, 1);
    mo_work_down(r->w);
    r->w->line = n->line;
    const mo_jv v = eval(r, n);
    mo_work_up(r->w);
    return v;
}
