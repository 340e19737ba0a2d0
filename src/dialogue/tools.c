/* Tools: a parsed list; the functions keep pointers into it. */
#include "dialogue/tools.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/nesting.h"
#include "base/status.h"

/* The parser goes down once for each. */
enum { LEVELS_MAX = 100 };

typedef struct tool {
    const char *name, *description;
    const json_t *schema;
} tool;

struct mo_tools {
    json_t *json;
    tool *items;
    size_t count;
};

/* ---- Reading ---- */

static mo_status read_tool(const json_t *item, size_t index, tool *out, mo_error *err)
{
    const json_t *inner = json_object_get(item, "function");
    const json_t *f = json_is_object(inner) ? inner : item;
    const json_t *schema = json_object_get(f, "parameters");
    out->name = json_string_value(json_object_get(f, "name"));
    if (!out->name || !out->name[0]) {
        return mo_fail(err, MO_EINVAL, "tools[%zu]: missing name; it must be a string", index);
    }
    if (strlen(out->name) > MO_TOOL_NAME) {
        return mo_fail(err, MO_EINVAL, "tools[%zu]: its name is longer than %d bytes", index, MO_TOOL_NAME);
    }
    for (const char *c = out->name; *c; c++) {
        if ((unsigned char)*c <= ' ' || strchr("\"<>{}()[]|\\'`", *c)) {
            return mo_fail(err, MO_EINVAL,
                           "tools[%zu]: the name '%.60s' is not supported; use letters, digits, '_' and "
                           "'-'",
                           index, out->name);
        }
    }
    if (!schema) {
        schema = json_object_get(f, "input_schema");
    }
    if (schema && !json_is_null(schema) && !json_is_object(schema)) {
        return mo_fail(err, MO_EINVAL, "tools[%zu] '%.60s': parameters must be a JSON schema object", index,
                       out->name);
    }
    out->schema = json_is_object(schema) ? schema : NULL;
    out->description = json_string_value(json_object_get(f, "description"));
    return MO_OK;
}

static mo_status read_tools(mo_tools *t, mo_error *err)
{
    const size_t count = json_array_size(t->json);
    if (!json_is_array(t->json)) {
        return mo_fail(err, MO_EINVAL, "tools must be a list");
    }
    if (count > MO_TOOLS_MAX) {
        return mo_fail(err, MO_EINVAL, "%zu tools exceed the limit of %d", count, MO_TOOLS_MAX);
    }
    t->items = calloc(count + 1, sizeof *t->items);
    if (!t->items) {
        return mo_fail(err, MO_ENOMEM, "out of memory for %zu tools", count);
    }
    for (size_t i = 0; i < count; i++) {
        const mo_status status = read_tool(json_array_get(t->json, i), i, &t->items[i], err);
        if (status != MO_OK) {
            return status;
        }
        if (mo_tools_find(t, t->items[i].name, strlen(t->items[i].name)) >= 0) {
            return mo_fail(err, MO_EINVAL, "tools[%zu]: another tool is also named '%.60s'", i,
                           t->items[i].name);
        }
        t->count++;
    }
    return MO_OK;
}

mo_status mo_tools_open(const char *json, size_t length, mo_tools **out, mo_error *err)
{
    json_error_t at;
    bool no_memory;
    mo_status status;
    *out = NULL;
    if (length > MO_TOOLS_BYTES) {
        return mo_fail(err, MO_EINVAL, "%zu bytes of tools exceed the limit of %d", length, MO_TOOLS_BYTES);
    }
    if (mo_nesting_beyond(json, length, LEVELS_MAX)) {
        return mo_fail(err, MO_EINVAL, "tools have more than %d levels of lists and objects", LEVELS_MAX);
    }
    mo_tools *t = calloc(1, sizeof *t);
    if (!t) {
        return mo_fail(err, MO_ENOMEM, "out of memory for tools");
    }
    t->json = mo_json_load(json, length, 0, &at, &no_memory);
    if (no_memory) {
        status = mo_fail(err, MO_ENOMEM, "out of memory for tools");
    } else if (!t->json) {
        status = mo_fail(err, MO_EINVAL, "tools, line %d, column %d: %s", at.line, at.column, at.text);
    } else {
        status = read_tools(t, err);
    }
    if (status != MO_OK) {
        mo_tools_close(t);
        return status;
    }
    *out = t;
    return MO_OK;
}

void mo_tools_close(mo_tools *t)
{
    if (t) {
        json_decref(t->json);
        free(t->items);
        free(t);
    }
}

/* ---- Asking ---- */

size_t mo_tools_count(const mo_tools *t)
{
    return t->count;
}

const char *mo_tools_name(const mo_tools *t, size_t index)
{
    return t->items[index].name;
}

const json_t *mo_tools_schema(const mo_tools *t, size_t index)
{
    return t->items[index].schema;
}

const char *mo_tools_description(const mo_tools *t, size_t index)
{
    return t->items[index].description ? t->items[index].description : "";
}

int mo_tools_find(const mo_tools *t, const char *name, size_t length)
{
    for (size_t i = 0; i < t->count; i++) {
        if (strlen(t->items[i].name) == length && !memcmp(t->items[i].name, name, length)) {
            return (int)i;
        }
    }
    return -1;
}

bool mo_tools_begins(const mo_tools *t, const char *text, size_t length)
{
    for (size_t i = 0; i < t->count; i++) {
        if (!strncmp(t->items[i].name, text, length)) {
            return true;
        }
    }
    return false;
}

/* ---- Types ---- */

static unsigned type_named(const char *name)
{
    static const struct {
        const char *name;
        unsigned type;
    } table[] = {{"string", MO_TYPE_STRING},   {"number", MO_TYPE_NUMBER}, {"integer", MO_TYPE_NUMBER},
                 {"boolean", MO_TYPE_BOOLEAN}, {"null", MO_TYPE_NULL},     {"object", MO_TYPE_OBJECT},
                 {"array", MO_TYPE_ARRAY}};
    for (size_t i = 0; name && i < sizeof table / sizeof *table; i++) {
        if (!strcmp(table[i].name, name)) {
            return table[i].type;
        }
    }
    return 0;
}

static unsigned type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_STRING: return MO_TYPE_STRING;
    case JSON_INTEGER:
    case JSON_REAL: return MO_TYPE_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE: return MO_TYPE_BOOLEAN;
    case JSON_NULL: return MO_TYPE_NULL;
    case JSON_OBJECT: return MO_TYPE_OBJECT;
    default: return MO_TYPE_ARRAY;
    }
}

/* The part that a local reference ("#/$defs/x") names; NULL: none. */
static const json_t *resolve(const json_t *root, const char *reference)
{
    if (!reference || reference[0] != '#') {
        return NULL;
    }
    const json_t *at = root;
    for (const char *p = reference + 1; at && *p == '/';) {
        const char *next = strchr(++p, '/');
        const size_t n = next ? (size_t)(next - p) : strlen(p);
        at = json_object_getn(at, p, n);
        p += n;
    }
    return at;
}

/* A look through a schema, of bounded length: unions of references could make it exponential. */
typedef struct look {
    const json_t *root;
    int steps_left;
} look;

static unsigned types_within(const json_t *schema, look *l, int depth);

static unsigned types_of_all(const json_t *list, look *l, int depth)
{
    size_t i;
    json_t *item;
    unsigned types = 0;
    json_array_foreach(list, i, item)
    {
        const unsigned one = types_within(item, l, depth);
        if (!one) {
            return 0; /* one that says nothing allows everything */
        }
        types |= one;
    }
    return types;
}

static unsigned types_of_values(const json_t *list)
{
    size_t i;
    json_t *item;
    unsigned types = 0;
    json_array_foreach(list, i, item)
    {
        types |= type_of(item);
    }
    return types;
}

static unsigned types_within(const json_t *schema, look *l, int depth)
{
    if (!json_is_object(schema) || depth > 16 || l->steps_left-- <= 0) {
        return 0;
    }
    const json_t *type = json_object_get(schema, "type"), *value;
    unsigned types = type_named(json_string_value(type));
    size_t i;
    json_t *item;
    json_array_foreach(type, i, item)
    {
        types |= type_named(json_string_value(item));
    }
    if (!types && (value = json_object_get(schema, "enum")) != NULL) {
        types = types_of_values(value);
    }
    if (!types && (value = json_object_get(schema, "const")) != NULL) {
        types = type_of(value);
    }
    if (!types && (value = json_object_get(schema, "anyOf")) != NULL) {
        types = types_of_all(value, l, depth + 1);
    }
    if (!types && (value = json_object_get(schema, "oneOf")) != NULL) {
        types = types_of_all(value, l, depth + 1);
    }
    if (!types && (value = json_object_get(schema, "$ref")) != NULL) {
        types = types_within(resolve(l->root, json_string_value(value)), l, depth + 1);
    }
    json_array_foreach(json_object_get(schema, "allOf"), i, item)
    {
        types = types ? types : types_within(item, l, depth + 1);
    }
    return types && json_is_true(json_object_get(schema, "nullable")) ? types | MO_TYPE_NULL : types;
}

unsigned mo_tools_schema_types(const json_t *schema, const json_t *root)
{
    look l = {root, 1000};
    return types_within(schema, &l, 0);
}

unsigned mo_tools_types(const mo_tools *t, int function, const char *key, size_t length)
{
    const json_t *schema = t && function >= 0 ? t->items[function].schema : NULL;
    const json_t *properties = json_object_get(schema, "properties");
    return mo_tools_schema_types(json_object_getn(properties, key, length), schema);
}

bool mo_tools_required(const json_t *schema, const char *key)
{
    size_t i;
    json_t *name;
    json_array_foreach(json_object_get(schema, "required"), i, name)
    {
        if (json_is_string(name) && !strcmp(json_string_value(name), key)) {
            return true;
        }
    }
    return false;
}

mo_status mo_tools_described(mo_bytes *to, const mo_tools *tools, char **text, mo_error *err)
{
    if (to->failed) {
        mo_bytes_free(to);
        return mo_fail(err, MO_ENOMEM, "out of memory for the description of %zu tools",
                       mo_tools_count(tools));
    }
    *text = to->data;
    return MO_OK;
}
