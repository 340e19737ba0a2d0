/* Value: what expressions of templates give, with Python's meaning. Values live as long as the work they belong to. */
#ifndef MO_TEMPLATE_VALUE_H
#define MO_TEMPLATE_VALUE_H

#include "template/string.h"

typedef enum mo_jkind {
    MO_J_ABSENT, /* an argument that was not given; never seen by templates */
    MO_J_UNDEFINED,
    MO_J_NONE,
    MO_J_BOOL,
    MO_J_INT,
    MO_J_BIG, /* an integer beyond 64 bits: its digits alone, for printing and comparing */
    MO_J_FLOAT,
    MO_J_STRING,
    MO_J_LIST,
    MO_J_DICT,
    MO_J_NAMESPACE,
    MO_J_LOOP,
    MO_J_FUNCTION, /* of the environment, such as range */
    MO_J_METHOD,   /* of a value, such as "a b".split */
    MO_J_MACRO,
} mo_jkind;

/* Lists, and what templates can hardly tell from them. */
typedef enum mo_jshape {
    MO_SHAPE_LIST,
    MO_SHAPE_TUPLE,
    MO_SHAPE_RANGE,
    MO_SHAPE_KEYS, /* of a dict: its views */
    MO_SHAPE_VALUES,
    MO_SHAPE_ITEMS,
    MO_SHAPE_GENERATOR, /* what map, select and their like give: true even when empty */
} mo_jshape;

typedef struct mo_jlist mo_jlist;
typedef struct mo_jdict mo_jdict;
typedef struct mo_jloop mo_jloop;
typedef struct mo_jmacro mo_jmacro;
typedef struct mo_jmethod mo_jmethod;
typedef struct mo_jfunction mo_jfunction;

/* What was looked for where an undefined value came from. */
typedef struct mo_jmissing {
    const char *owner; /* "dict object"; NULL: a variable */
    mo_jstring name;
} mo_jmissing;

typedef struct mo_jv {
    mo_jkind kind;
    union {
        bool truth;
        int64_t integer;
        double real;
        mo_jstring string; /* of MO_J_BIG too */
        mo_jlist *list;
        mo_jdict *dict; /* of MO_J_NAMESPACE too */
        mo_jloop *loop;
        const mo_jfunction *function;
        const mo_jmethod *method;
        mo_jmacro *macro;
        const mo_jmissing *missing; /* NULL: not known */
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

/* "str", "dict" and so on, as Python names the type. A constant. */
const char *mo_jv_type(mo_jv v);
/* An undefined value used as if it were there: ends the work with "'x' is undefined" or its like. */
__attribute__((noreturn)) void mo_jv_fail_undefined(mo_work *w, mo_jv v);

bool mo_jv_true(mo_jv v);
bool mo_jv_is_number(mo_jv v); /* a bool counts */
double mo_jv_number(mo_jv v);  /* of one */
/* An integer (or bool) of 64 bits; otherwise the work ends, naming what needed it. */
int64_t mo_jv_integer(mo_work *w, mo_jv v, const char *what);
mo_jstring mo_jv_need_string(mo_work *w, mo_jv v, const char *what);

bool mo_jv_equal(mo_work *w, mo_jv a, mo_jv b);
/* -1, 0, 1, or 2 where one is not a number (nan); the work ends where Python knows no order. op: "<", for the error. */
int mo_jv_order(mo_work *w, mo_jv a, mo_jv b, const char *op);

/* ---- Lists ---- */

struct mo_jlist {
    mo_jv *items;
    uint32_t count, capacity; /* items beyond count may be another list's */
    mo_jshape shape;
};

mo_jlist *mo_jlist_new(mo_work *w, mo_jshape shape, size_t capacity);
void mo_jlist_add(mo_work *w, mo_jlist *list, mo_jv v);
mo_jv mo_jlist_pair(mo_work *w, mo_jv a, mo_jv b); /* a tuple */
/* `count` items from `from`, sharing memory. */
mo_jlist *mo_jlist_part(mo_work *w, const mo_jlist *list, size_t from, size_t count);
/* Its items in memory that is no other list's: before any is changed. */
void mo_jlist_own(mo_work *w, mo_jlist *list);
/* Sorts by mo_jv_order() of keys (as many as items), stably. */
void mo_jlist_sort(mo_work *w, mo_jlist *list, const mo_jv *keys, bool reverse);

/* ---- Dicts: in the order in which keys came ---- */

typedef struct mo_jentry {
    mo_jv key, value;
    uint64_t hash;
} mo_jentry;

struct mo_jdict {
    mo_jentry *entries;
    uint32_t *index; /* open addressing, entry + 1; NULL while there are few */
    uint32_t count, capacity, slots;
};

mo_jdict *mo_jdict_new(mo_work *w, size_t capacity);
/* NULL: it has no such key. The work ends for a key that cannot be one. */
mo_jv *mo_jdict_get(mo_work *w, const mo_jdict *dict, mo_jv key);
mo_jv *mo_jdict_find(const mo_jdict *dict, const char *key);
mo_jv *mo_jdict_find_string(mo_work *w, const mo_jdict *dict, mo_jstring key);
void mo_jdict_set(mo_work *w, mo_jdict *dict, mo_jv key, mo_jv value);
void mo_jdict_set_text(mo_work *w, mo_jdict *dict, const char *key, mo_jv value);
bool mo_jdict_remove(mo_work *w, mo_jdict *dict, mo_jv key);
mo_jdict *mo_jdict_copy(mo_work *w, const mo_jdict *dict);

/* What `for` goes through: the items of a list, keys of a dict, characters of a string; none of undefined. The work ends
 * for anything else. */
mo_jlist *mo_jv_iterate(mo_work *w, mo_jv v);

#endif
