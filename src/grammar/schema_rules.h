/* Schema rules: a schema being converted to rules, and the functions that all its files share. Private to the
   schema files. */
#ifndef MO_GRAMMAR_SCHEMA_RULES_H
#define MO_GRAMMAR_SCHEMA_RULES_H

#include <jansson.h>

#include "grammar/writer.h"

enum { MO_RULE_NAME = 256, MO_SCHEMA_PATH = 512, MO_SCHEMA_DEPTH = 128, MO_SCHEMA_VISITS = 20000 };

/* Rules that many schemas use; written when first needed. */
typedef enum mo_common_rule {
    MO_RULE_WS,
    MO_RULE_CHAR,
    MO_RULE_STRING,
    MO_RULE_INTEGER,
    MO_RULE_NUMBER,
    MO_RULE_VALUE,
    MO_RULE_OBJECT,
    MO_RULE_ARRAY,
    MO_COMMON_RULES
} mo_common_rule;

typedef struct mo_schema_seen mo_schema_seen;

typedef struct mo_schema_rules {
    mo_bytes out;
    const char *prefix;
    json_t *root;
    int next;   /* number of the next rule */
    int depth;  /* current recursion depth */
    int visits; /* number of schemas visited */
    bool strict;
    mo_bytes notes; /* list of what is not enforced */
    char path[MO_SCHEMA_PATH];
    size_t path_length; /* may be longer than the stored part */
    bool common[MO_COMMON_RULES];
    mo_schema_seen *seen; /* schemas that have a rule: a hash table */
    size_t seen_space;
    json_t *made; /* list of schemas created by merging; they live as long as this struct */
    mo_error *err;
} mo_schema_rules;

/* The rule of a schema, written if it is new. */
mo_status mo_schema_rule(mo_schema_rules *s, json_t *schema, char name[MO_RULE_NAME]);

/* A name for a new rule. The caller writes the rule in one piece, after the rules that it uses. */
void mo_schema_name(mo_schema_rules *s, char name[MO_RULE_NAME]);
mo_status mo_schema_define(mo_schema_rules *s, const char *name, mo_bytes *body); /* frees body */

/* The name of a common rule. */
void mo_schema_common(mo_schema_rules *s, mo_common_rule rule, char name[MO_RULE_NAME]);

/* MO_EINVAL: "PATH/key: words". key may be NULL. */
mo_status mo_schema_wrong(mo_schema_rules *s, const char *key, const char *fmt, ...) MO_PRINTF(3, 4);

/* Notes that PATH/key cannot be enforced. MO_EUNSUPPORTED when strict. */
mo_status mo_schema_note(mo_schema_rules *s, const char *key, const char *why);

/* Appends a part to the path; mo_schema_up() restores an earlier length. */
size_t mo_schema_down(mo_schema_rules *s, const char *key);
size_t mo_schema_down_index(mo_schema_rules *s, size_t index);
void mo_schema_up(mo_schema_rules *s, size_t length);

/* Reads a count of the schema ("minItems"). *out is -1 if it has none. */
mo_status mo_schema_count(mo_schema_rules *s, const json_t *schema, const char *key, int64_t *out);

mo_status mo_schema_no_memory(mo_schema_rules *s);

/* Stores a new schema and takes ownership of the reference. NULL stays NULL. */
json_t *mo_schema_keep(mo_schema_rules *s, json_t *schema);

#endif
