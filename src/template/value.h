/* Value: the result of an expression, with Python's semantics. Values live as long as their work. */
#ifndef MO_TEMPLATE_VALUE_H
#define MO_TEMPLATE_VALUE_H

#include "template/string.h"

typedef enum mo_jkind {
    MO_J_ABSENT, /* a missing argument; templates never see it */
    MO_J_UNDEFINED,
    MO_J_NONE,
    MO_J_BOOL,
    MO_J_INT,
    MO_J_BIG, /* an integer beyond 64 bits: only its digits, for printing and comparing */
    MO_J_FLOAT,
    MO_J_STRING,
    MO_J_LIST,
    MO_J_DICT,
    MO_J_NAMESPACE,
    MO_J_LOOP,
    MO_J_FUNCTION, /* built-in, such as range */
    MO_J_METHOD,   /* bound to a value, such as "a b".split */
    MO_J_MACRO,
} mo_jkind;

/* Lists, and values that behave like lists. */
typedef enum mo_jshape {
    MO_SHAPE_LIST,
    MO_SHAPE_TUPLE,
    MO_SHAPE_RANGE,
    MO_SHAPE_KEYS, /* a view of a dict */
    MO_SHAPE_VALUES,
    MO_SHAPE_ITEMS,
    MO_SHAPE_GENERATOR, /* result of map, select and similar filters: true even when empty */
} mo_jshape;

typedef struct mo_jlist mo_jlist;
typedef struct mo_jdict mo_jdict;
typedef struct mo_jloop mo_jloop;
typedef struct mo_jmacro mo_jmacro;
typedef struct mo_jmethod mo_jmethod;
typedef struct mo_jfunction mo_jfunction;

/* The name whose lookup gave an undefined value. */
typedef struct mo_jmissing {
    const char *owner; /* "dict object"; NULL: it was a variable */
    mo_jstring name;
} mo_jmissing;

typedef struct mo_jv {
    mo_jkind kind;
    union {
        bool truth;
        int64_t integer;
        double real;
        mo_jstring string; /* also for MO_J_BIG */
        mo_jlist *list;
        mo_jdict *dict; /* also for MO_J_NAMESPACE */
        mo_jloop *loop;
        const mo_jfunction *function;
        const mo_jmethod *method;
        mo_jmacro *macro;
        const mo_jmissing *missing; /* NULL: unknown */
    } as;
} mo_jv;

#define MO_JV_NONE      ((mo_jv){.kind = MO_J_NONE})
#define MO_JV_UNDEFINED ((mo_jv){.kind = MO_J_UNDEFINED, .as.missing = NULL})

static inline mo_jv mo_jv_bool(bool b)
{
    return (mo_jv){.kind = MO_J_BOOL, .as.truth = b};
}
static inline mo_jv mo_jv_int(int64_t i)
{
    return (mo_jv){.kind = MO_J_INT, .as.integer = i};
}
static inline mo_jv mo_jv_real(double f)
{
    return (mo_jv){.kind = MO_J_FLOAT, .as.real = f};
}
static inline mo_jv mo_jv_string(mo_jstring s)
{
    return (mo_jv){.kind = MO_J_STRING, .as.string = s};
}
static inline mo_jv mo_jv_text(mo_work *w, const char *text)
{
    return mo_jv_string(mo_jstring_literal(w, text));
}
static inline mo_jv mo_jv_list(mo_jlist *list)
{
    return (mo_jv){.kind = MO_J_LIST, .as.list = list};
}
static inline mo_jv mo_jv_dict(mo_jdict *dict)
{
    return (mo_jv){.kind = MO_J_DICT, .as.dict = dict};
}
mo_jv mo_jv_missing(mo_work *w, const char *owner, mo_jstring name);

static inline bool mo_jv_is_absent(mo_jv v)
{
    return v.kind == MO_J_ABSENT;
}

/* Python's name of the type: "str", "dict" and so on. A constant. */
const char *mo_jv_type(mo_jv v);
/* Fails the work with "'x' is undefined" or a similar error. */
__attribute__((noreturn)) void mo_jv_fail_undefined(mo_work *w, mo_jv v);

bool mo_jv_true(mo_jv v);
bool mo_jv_is_number(mo_jv v); /* includes bool */
double mo_jv_number(mo_jv v);  /* of a number */
/* The value of a 64-bit integer or a bool. Otherwise fails the work; the error names `what`. */
int64_t mo_jv_integer(mo_work *w, mo_jv v, const char *what);
mo_jstring mo_jv_need_string(mo_work *w, mo_jv v, const char *what);

bool mo_jv_equal(mo_work *w, mo_jv a, mo_jv b);
/* -1, 0, 1, or 2 if one is NaN. Fails the work if Python does not order the types. op: "<", for the error. */
int mo_jv_order(mo_work *w, mo_jv a, mo_jv b, const char *op);

/* ---- Lists ---- */

struct mo_jlist {
    mo_jv *items;
    uint32_t count, capacity; /* another list may own the items beyond count */
    mo_jshape shape;
};

mo_jlist *mo_jlist_new(mo_work *w, mo_jshape shape, size_t capacity);
void mo_jlist_add(mo_work *w, mo_jlist *list, mo_jv v);
mo_jv mo_jlist_pair(mo_work *w, mo_jv a, mo_jv b); /* a tuple */
/* `count` items from `from` on. Shares memory with the list. */
mo_jlist *mo_jlist_part(mo_work *w, const mo_jlist *list, size_t from, size_t count);
/* Copies the items before a change, if another list may share them. */
void mo_jlist_own(mo_work *w, mo_jlist *list);
/* Stable sort by mo_jv_order() of keys, one for each item. */
void mo_jlist_sort(mo_work *w, mo_jlist *list, const mo_jv *keys, bool reverse);

/* ---- Dicts, in insertion order ---- */

typedef struct mo_jentry {
    mo_jv key, value;
    uint64_t hash;
} mo_jentry;

struct mo_jdict {
    mo_jentry *entries;
    uint32_t *index; /* open addressing, entry + 1; NULL for small dicts */
    uint32_t count, capacity, slots;
};

mo_jdict *mo_jdict_new(mo_work *w, size_t capacity);
/* NULL: not found. Fails the work if the type cannot be a key. */
mo_jv *mo_jdict_get(mo_work *w, const mo_jdict *dict, mo_jv key);
mo_jv *mo_jdict_find(const mo_jdict *dict, const char *key);
mo_jv *mo_jdict_find_string(mo_work *w, const mo_jdict *dict, mo_jstring key);
void mo_jdict_set(mo_work *w, mo_jdict *dict, mo_jv key, mo_jv value);
void mo_jdict_set_text(mo_work *w, mo_jdict *dict, const char *key, mo_jv value);
bool mo_jdict_remove(mo_work *w, mo_jdict *dict, mo_jv key);
mo_jdict *mo_jdict_copy(mo_work *w, const mo_jdict *dict);

/* The items that `for` iterates: items of a list, keys of a dict, characters of a string; none for undefined.
   Fails the work for other types. */
mo_jlist *mo_jv_iterate(mo_work *w, mo_jv v);

#endif
