/* Tools: the functions that a model may call, from JSON: a list of {"type": "function", "function": {"name", "description",
 * "parameters"}}, or of the inner objects; "input_schema" is another name of "parameters". Constant once open. */
#ifndef MO_DIALOGUE_TOOLS_H
#define MO_DIALOGUE_TOOLS_H

#include <jansson.h>

#include "base/bytes.h"

typedef struct mo_tools mo_tools;

enum {
    MO_TOOLS_BYTES = 16 << 20, /* of JSON */
    MO_TOOLS_MAX = 4096,       /* functions */
    MO_TOOL_NAME = 128,        /* longest name */
};

/* MO_EINVAL names the tool and what is wrong with it: no list, no name, a name twice, a schema that is no object. */
mo_status mo_tools_open(const char *json, size_t length, mo_tools **out, mo_error *err);
void mo_tools_close(mo_tools *t); /* NULL is allowed */

size_t mo_tools_count(const mo_tools *t);
const char *mo_tools_name(const mo_tools *t, size_t index);
/* The schema of its arguments, an object; NULL: it has none. The tools'. */
const json_t *mo_tools_schema(const mo_tools *t, size_t index);
const char *mo_tools_description(const mo_tools *t, size_t index); /* "" where there is none */
/* -1: there is no function of that name. */
int mo_tools_find(const mo_tools *t, const char *name, size_t length);

/* Does a function's name begin so? */
bool mo_tools_begins(const mo_tools *t, const char *text, size_t length);

/* What a value may be. */
typedef enum mo_json_types {
    MO_TYPE_STRING = 1,
    MO_TYPE_NUMBER = 2,
    MO_TYPE_BOOLEAN = 4,
    MO_TYPE_NULL = 8,
    MO_TYPE_OBJECT = 16,
    MO_TYPE_ARRAY = 32,
} mo_json_types;

/* The types that the schema allows for a parameter; 0: it does not say. */
unsigned mo_tools_types(const mo_tools *t, int function, const char *key, size_t length);

/* A schema's part by itself: `root` is where its references lead from. */
unsigned mo_tools_schema_types(const json_t *schema, const json_t *root);

/* Does an object of this schema have to have the member? */
bool mo_tools_required(const json_t *schema, const char *key);

/* Ends a text about the tools: gives it to the caller, or MO_ENOMEM where it failed. */
mo_status mo_tools_described(mo_bytes *to, const mo_tools *tools, char **text, mo_error *err);

#endif
