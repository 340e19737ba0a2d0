/* Run: the interpreter. One rendering of a tree with a context. */
#ifndef MO_TEMPLATE_RUN_H
#define MO_TEMPLATE_RUN_H

#include <time.h>

#include "template/parser.h"

typedef struct mo_jvariable {
    int symbol;
    mo_jv value;
} mo_jvariable;

/* Variables of a scope: the template, one iteration of a loop, or a call of a macro. */
typedef struct mo_jframe {
    struct mo_jframe *parent;
    mo_jvariable *variables;
    uint32_t count, capacity;
} mo_jframe;

typedef enum mo_jleave { MO_LEAVE_NOT, MO_LEAVE_BREAK, MO_LEAVE_CONTINUE } mo_jleave;

typedef struct mo_jrun {
    mo_work *w;
    const mo_jtree *tree;
    const mo_jdict *context;
    mo_jframe *frame;
    mo_jbuffer *out;
    mo_jleave leave;
    const struct tm *clock; /* NULL: strftime_now() returns "" */
} mo_jrun;

struct mo_jmacro {
    const mo_jnode *node;
    mo_jframe *frame; /* the scope of its definition */
};

struct mo_jloop {
    const mo_jnode *node;
    mo_jframe *frame; /* the enclosing scope */
    mo_jlist *items;
    uint32_t at;
    int depth;
    mo_jv changed; /* the last value given to loop.changed() */
};

typedef struct mo_jargs {
    mo_jv *places;
    uint32_t count;
    mo_jdict *names; /* NULL: none */
} mo_jargs;

/* Parameters of all filters, tests, methods and built-in functions. self: the filtered or tested value, or
   the object of the method. a: arguments in the order of `parameters`. */
#define MO_JPARAMETERS                                                                                       \
    __attribute__((unused)) mo_jrun *r, __attribute__((unused)) mo_jv self,                                  \
        __attribute__((unused)) const mo_jv *a, __attribute__((unused)) const mo_jargs *all

struct mo_jfunction {
    const char *name;
    /* Names separated by blanks; a name that ends with ? is optional. NULL: any arguments. */
    const char *parameters;
    mo_jv (*call)(mo_jrun *r, mo_jv self, const mo_jv *a, const mo_jargs *all);
};

struct mo_jmethod {
    mo_jv self;
    const mo_jfunction *function;
};

/* ---- Expressions and statements ---- */

mo_jv mo_run_eval(mo_jrun *r, const mo_jnode *n);
void mo_run_body(mo_jrun *r, const mo_jnodes *body);
/* The output of statements as text. */
mo_jstring mo_run_capture(mo_jrun *r, const mo_jnodes *body);
mo_jv mo_run_loop(mo_jrun *r, const mo_jnode *n, mo_jv over, mo_jframe *around, int depth, bool capture);

mo_jframe *mo_frame_enter(mo_jrun *r, mo_jframe *parent);
void mo_frame_set(mo_jrun *r, mo_jframe *f, int symbol, mo_jv v);

/* ---- Access (access.c) ---- */

mo_jv mo_access_attribute(mo_jrun *r, mo_jv v, mo_jstring name); /* v.name */
mo_jv mo_access_item(mo_jrun *r, mo_jv v, mo_jv key);            /* v[key] */
mo_jv mo_access_own(mo_jrun *r, mo_jv v, mo_jstring name);       /* an attribute that is not an item */
/* v[a:b:c]; MO_J_ABSENT for a missing bound. */
mo_jv mo_access_slice(mo_jrun *r, mo_jv v, mo_jv a, mo_jv b, mo_jv c);
/* An attribute path of filters, such as "a.b.0". */
mo_jv mo_access_path(mo_jrun *r, mo_jv v, mo_jv path);

/* ---- Operators (operators.c) ---- */

mo_jv mo_operate(mo_jrun *r, mo_jop op, mo_jv a, mo_jv b);
bool mo_compare(mo_jrun *r, mo_jop op, mo_jv a, mo_jv b);
bool mo_contains(mo_jrun *r, mo_jv container, mo_jv item);
mo_jv mo_negate(mo_jrun *r, mo_jv v);

/* ---- Calls (call.c) ---- */

mo_jv mo_call(mo_jrun *r, mo_jv callee, const mo_jargs *args);
/* caller: the body of {% call %}, or MO_J_ABSENT. */
mo_jv mo_call_macro(mo_jrun *r, const mo_jmacro *macro, const mo_jargs *args, mo_jv caller);
mo_jargs mo_call_arguments(mo_jrun *r, const mo_jnode *n);
mo_jv mo_call_filter(mo_jrun *r, mo_jstring name, mo_jv v, const mo_jargs *args);
bool mo_call_test(mo_jrun *r, mo_jstring name, mo_jv v, const mo_jargs *args);
/* The arguments from index i on. */
mo_jargs mo_args_from(const mo_jargs *args, uint32_t i);

/* ---- Tables ---- */

/* The function with this name in a table that ends with a NULL name. NULL: not found. */
const mo_jfunction *mo_function_find(const mo_jfunction *table, mo_jstring name);

extern const mo_jfunction mo_filters_text[], mo_filters_sequence[], mo_filters_value[], mo_tests[],
    mo_globals[], mo_methods_string[], mo_methods_list[], mo_methods_tuple[], mo_methods_dict[],
    mo_methods_loop[];

/* The time formatted by strftime() in the C locale. "" without a clock. */
mo_jstring mo_clock_text(mo_work *w, const struct tm *clock, const char *format);

/* ---- Formatting (format.c) ---- */

mo_jv mo_format_percent(mo_jrun *r, mo_jstring format, mo_jv arguments);
mo_jv mo_format_braces(mo_jrun *r, mo_jstring format, const mo_jargs *args);

#endif
