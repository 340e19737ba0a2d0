/* Calls: arguments, and calling functions and macros. */
#include <stdio.h>

#include "template/run.h"

enum { MOST = 12 }; /* maximum parameters of a function in the tables */

/* ---- Arguments ---- */

mo_jargs mo_args_from(const mo_jargs *args, uint32_t i)
{
    mo_jargs rest = *args;
    rest.places += i < args->count ? i : args->count;
    rest.count -= i < args->count ? i : args->count;
    return rest;
}

static void add_named(mo_jrun *r, mo_jargs *args, mo_jv name, mo_jv v)
{
    args->names = args->names ? args->names : mo_jdict_new(r->w, 4);
    if (mo_jdict_get(r->w, args->names, name)) {
        mo_work_fail(r->w, MO_EINVAL, "an argument is given twice");
    }
    mo_jdict_set(r->w, args->names, name, v);
}

mo_jargs mo_call_arguments(mo_jrun *r, const mo_jnode *n)
{
    mo_jargs args = {0};
    mo_jlist *places = mo_jlist_new(r->w, MO_SHAPE_LIST, n->argument_count);
    for (uint32_t i = 0; i < n->argument_count; i++) {
        const mo_jargument *a = &n->arguments[i];
        const mo_jv v = mo_run_eval(r, a->value);
        if (a->pass == MO_PASS_PLACE) {
            mo_jlist_add(r->w, places, v);
        } else if (a->pass == MO_PASS_NAME) {
            add_named(r, &args, mo_jv_string(a->name), v);
        } else if (a->pass == MO_PASS_ALL) {
            const mo_jlist *all = mo_jv_iterate(r->w, v);
            for (uint32_t k = 0; k < all->count; k++) {
                mo_jlist_add(r->w, places, all->items[k]);
            }
        } else if (v.kind == MO_J_DICT) {
            for (uint32_t k = 0; k < v.as.dict->count; k++) {
                add_named(r, &args, v.as.dict->entries[k].key, v.as.dict->entries[k].value);
            }
        } else {
            mo_work_fail(r->w, MO_EINVAL, "argument after ** must be a dict, not '%s'", mo_jv_type(v));
        }
    }
    args.places = places->items;
    args.count = places->count;
    return args;
}

/* ---- Built-in functions ---- */

const mo_jfunction *mo_function_find(const mo_jfunction *table, mo_jstring name)
{
    for (; table->name; table++) {
        if (mo_jstring_is(name, table->name)) {
            return table;
        }
    }
    return NULL;
}

/* Puts the arguments in the order of the parameters. */
static void bind(mo_jrun *r, const mo_jfunction *f, const mo_jargs *args, mo_jv *out)
{
    uint32_t i = 0, named = 0;
    for (const char *p = f->parameters; *p && i < MOST; i++) {
        const size_t length = strcspn(p, " ");
        const bool optional = p[length - 1] == '?';
        const mo_jstring name = mo_jstring_new(r->w, p, length - optional, false);
        const mo_jv *by_name = args->names ? mo_jdict_find_string(r->w, args->names, name) : NULL;
        named += by_name != NULL;
        if (i < args->count && by_name) {
            mo_work_fail(r->w, MO_EINVAL, "%s() got multiple values for argument '%s'", f->name,
                         mo_jstring_text(r->w, name));
        }
        if (i < args->count) {
            out[i] = args->places[i];
        } else if (by_name) {
            out[i] = *by_name;
        } else if (!optional) {
            mo_work_fail(r->w, MO_EINVAL, "%s() missing argument: '%s'", f->name,
                         mo_jstring_text(r->w, name));
        }
        p += length;
        p += *p == ' ';
    }
    if (args->count > i) {
        mo_work_fail(r->w, MO_EINVAL, "%s() takes at most %u arguments (%u given)", f->name, i, args->count);
    }
    if (args->names && args->names->count > named) {
        mo_work_fail(r->w, MO_EINVAL, "%s() got an unexpected keyword argument", f->name);
    }
}

static mo_jv call_function(mo_jrun *r, const mo_jfunction *f, mo_jv self, const mo_jargs *args)
{
    mo_jv bound[MOST] = {{.kind = MO_J_ABSENT}};
    if (f->parameters) {
        bind(r, f, args, bound);
    }
    mo_work_down(r->w);
    const mo_jv v = f->call(r, self, bound, args);
    mo_work_up(r->w);
    return v;
}

mo_jv mo_call_filter(mo_jrun *r, mo_jstring name, mo_jv v, const mo_jargs *args)
{
    static const mo_jfunction *const tables[] = {mo_filters_text, mo_filters_sequence, mo_filters_value,
                                                 NULL};
    for (size_t i = 0; tables[i]; i++) {
        const mo_jfunction *f = mo_function_find(tables[i], name);
        if (f) {
            return call_function(r, f, v, args);
        }
    }
    mo_work_fail(r->w, MO_EINVAL, "there is no filter named '%.60s'", mo_jstring_text(r->w, name));
}

bool mo_call_test(mo_jrun *r, mo_jstring name, mo_jv v, const mo_jargs *args)
{
    const mo_jfunction *f = mo_function_find(mo_tests, name);
    if (!f) {
        mo_work_fail(r->w, MO_EINVAL, "there is no test named '%.60s'", mo_jstring_text(r->w, name));
    }
    return mo_jv_true(call_function(r, f, v, args));
}

/* ---- Macros ---- */

static void bind_rest(mo_jrun *r, const mo_jnode *n, mo_jframe *f, const mo_jargs *args)
{
    mo_jlist *places = mo_jlist_new(r->w, MO_SHAPE_TUPLE, 0);
    mo_jdict *names = mo_jdict_new(r->w, 0);
    for (uint32_t i = n->argument_count; i < args->count; i++) {
        mo_jlist_add(r->w, places, args->places[i]);
    }
    for (uint32_t i = 0; args->names && i < args->names->count; i++) {
        const mo_jentry *e = &args->names->entries[i];
        bool known = false;
        mo_work_spend(r->w, 1 + n->argument_count / 16);
        for (uint32_t k = 0; k < n->argument_count && !known; k++) {
            known =
                e->key.kind == MO_J_STRING && mo_jstring_equal(r->w, e->key.as.string, n->arguments[k].name);
        }
        if (!known) {
            mo_jdict_set(r->w, names, e->key, e->value);
        }
    }
    mo_frame_set(r, f, r->tree->varargs, mo_jv_list(places));
    mo_frame_set(r, f, r->tree->kwargs, mo_jv_dict(names));
}

mo_jv mo_call_macro(mo_jrun *r, const mo_jmacro *macro, const mo_jargs *args, mo_jv caller)
{
    const mo_jnode *n = macro->node;
    mo_jframe *outer = r->frame;
    mo_work_down(r->w);
    r->frame = mo_frame_enter(r, macro->frame);
    if (args->count > n->argument_count || args->names) {
        bind_rest(r, n, r->frame, args);
    }
    if (!mo_jv_is_absent(caller)) {
        mo_frame_set(r, r->frame, r->tree->caller, caller);
    }
    for (uint32_t i = 0; i < n->argument_count; i++) {
        const mo_jargument *p = &n->arguments[i];
        const mo_jv *by_name = args->names ? mo_jdict_find_string(r->w, args->names, p->name) : NULL;
        const mo_jv v = i < args->count ? args->places[i]
                        : by_name       ? *by_name
                        : p->value      ? mo_run_eval(r, p->value)
                                        : mo_jv_missing(r->w, NULL, p->name);
        mo_frame_set(r, r->frame, p->symbol, v);
    }
    const mo_jstring text = mo_run_capture(r, &n->list);
    r->frame = outer;
    mo_work_up(r->w);
    return mo_jv_string(text);
}

/* ---- Calls ---- */

mo_jv mo_call(mo_jrun *r, mo_jv callee, const mo_jargs *args)
{
    switch (callee.kind) {
    case MO_J_FUNCTION: return call_function(r, callee.as.function, MO_JV_NONE, args);
    case MO_J_METHOD: return call_function(r, callee.as.method->function, callee.as.method->self, args);
    case MO_J_MACRO: return mo_call_macro(r, callee.as.macro, args, (mo_jv){.kind = MO_J_ABSENT});
    case MO_J_LOOP:
        if (!callee.as.loop->node->recursive || args->count != 1) {
            mo_work_fail(r->w, MO_EINVAL, "only a recursive loop can be called, with an iterable");
        }
        return mo_run_loop(r, callee.as.loop->node, args->places[0], callee.as.loop->frame,
                           callee.as.loop->depth + 1, true);
    case MO_J_UNDEFINED: mo_jv_fail_undefined(r->w, callee);
    default: mo_work_fail(r->w, MO_EINVAL, "'%s' object is not callable", mo_jv_type(callee));
    }
}
