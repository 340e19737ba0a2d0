/* Node: the syntax tree of a template. Constant after parsing. */
#ifndef MO_TEMPLATE_NODE_H
#define MO_TEMPLATE_NODE_H

#include "template/value.h"

typedef enum mo_jnode_kind {
    /* Expressions */
    MO_NODE_CONST,     /* value */
    MO_NODE_NAME,      /* symbol, value: its text */
    MO_NODE_LIST,      /* list */
    MO_NODE_TUPLE,     /* list */
    MO_NODE_DICT,      /* list: key, value, key, value */
    MO_NODE_ATTRIBUTE, /* a . value */
    MO_NODE_ITEM,      /* a [b] */
    MO_NODE_SLICE,     /* a [list 0 : 1 : 2], NULL where left out */
    MO_NODE_CALL,      /* a (arguments) */
    MO_NODE_FILTER,    /* a | value (arguments); a is NULL in filter blocks */
    MO_NODE_TEST,      /* a is value (arguments) */
    MO_NODE_NOT,
    MO_NODE_MINUS,
    MO_NODE_PLUS,
    MO_NODE_BINARY,  /* a op b */
    MO_NODE_COMPARE, /* a ops[0] list[0] ops[1] list[1] ... */
    MO_NODE_AND,
    MO_NODE_OR,
    MO_NODE_CONDITION, /* a if b else c; c may be NULL */
    MO_NODE_CONCAT,    /* list joined by ~ */
    /* Statements */
    MO_NODE_DATA,         /* value */
    MO_NODE_PRINT,        /* a */
    MO_NODE_IF,           /* a, then list, else others */
    MO_NODE_FOR,          /* target b in a if c: list; else others */
    MO_NODE_SET,          /* target b = a */
    MO_NODE_SET_BLOCK,    /* target b = list, through the filters a (or NULL) */
    MO_NODE_MACRO,        /* value: name; parameters; list */
    MO_NODE_CALL_BLOCK,   /* a: the call; parameters, list: the macro caller() */
    MO_NODE_FILTER_BLOCK, /* a: the filters; list */
    MO_NODE_WITH,         /* targets and values in pairs in others; list */
    MO_NODE_SCOPE,        /* list: generation */
    MO_NODE_BREAK,
    MO_NODE_CONTINUE,
} mo_jnode_kind;

typedef enum mo_jop {
    MO_JOP_ADD,
    MO_JOP_SUB,
    MO_JOP_MUL,
    MO_JOP_DIV,
    MO_JOP_FLOOR_DIV,
    MO_JOP_MOD,
    MO_JOP_POW,
    MO_JOP_EQ,
    MO_JOP_NE,
    MO_JOP_LT,
    MO_JOP_LE,
    MO_JOP_GT,
    MO_JOP_GE,
    MO_JOP_IN,
    MO_JOP_NOT_IN,
} mo_jop;

typedef struct mo_jnode mo_jnode;

typedef struct mo_jnodes {
    mo_jnode **items;
    uint32_t count;
} mo_jnodes;

typedef enum mo_jpass { MO_PASS_PLACE, MO_PASS_NAME, MO_PASS_ALL, MO_PASS_ALL_NAMES } mo_jpass;

/* An argument of a call, or a parameter of a macro with its default. */
typedef struct mo_jargument {
    mo_jpass pass;
    mo_jstring name;
    int symbol;
    mo_jnode *value; /* NULL: a parameter without default */
} mo_jargument;

struct mo_jnode {
    mo_jnode_kind kind;
    mo_jop op;
    int line, symbol;
    bool recursive; /* a loop that can call itself: `recursive` */
    mo_jv value;
    mo_jnode *a, *b, *c;
    mo_jnodes list, others;
    mo_jop *ops;
    mo_jargument *arguments; /* also parameters */
    uint32_t argument_count;
};

#endif
