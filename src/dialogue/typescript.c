/* Typescript: what a schema says of types; of other limits, descriptions tell. */
#include "dialogue/typescript.h"
#include "base/json.h"

#include <string.h>

enum { LEVELS = 16 }; /* deeper values are any */

static void add_json(mo_bytes *to, const json_t *value)
{
    char *text = mo_json_dump(value, JSON_ENCODE_ANY);
    mo_bytes_add_text(to, text ? text : "");
    to->failed |= !text;
    free(text);
}

/* A description in front of what it describes, every line a comment. */
static void add_comment(mo_bytes *to, const char *text)
{
    while (text && *text) {
        const size_t length = strcspn(text, "\n");
        mo_bytes_add_text(to, "// ");
        mo_bytes_add(to, text, length);
        mo_bytes_add_text(to, "\n");
        text += length + (text[length] == '\n');
    }
}

static void add_type(mo_bytes *to, const json_t *schema, int level);

static void add_members(mo_bytes *to, const json_t *schema, int level)
{
    const char *key;
    json_t *value;
    mo_bytes_add_text(to, "{\n");
    json_object_foreach(json_object_get(schema, "properties"), key, value)
    {
        add_comment(to, json_string_value(json_object_get(value, "description")));
        mo_bytes_add_text(to, key);
        mo_bytes_add_text(to, mo_tools_required(schema, key) ? ": " : "?: ");
        add_type(to, value, level + 1);
        mo_bytes_add_text(to, ",\n");
    }
    mo_bytes_add_text(to, "}");
}

/* Types or values with bars between. */
static void add_union(mo_bytes *to, const json_t *list, bool values, int level)
{
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item)
    {
        mo_bytes_add_text(to, i > 0 ? " | " : "");
        if (values) {
            add_json(to, item);
        } else {
            add_type(to, item, level + 1);
        }
    }
}

static void add_named(mo_bytes *to, const json_t *schema, const char *type, int level)
{
    if (!strcmp(type, "array")) {
        add_type(to, json_object_get(schema, "items"), level + 1);
        mo_bytes_add_text(to, "[]");
    } else if (!strcmp(type, "object")) {
        if (json_object_size(json_object_get(schema, "properties")) > 0) {
            add_members(to, schema, level);
        } else {
            mo_bytes_add_text(to, "object");
        }
    } else {
        const bool known = !strcmp(type, "string") || !strcmp(type, "boolean") || !strcmp(type, "null");
        const bool number = !strcmp(type, "integer") || !strcmp(type, "number");
        mo_bytes_add_text(to, known ? type : number ? "number" : "any");
    }
}

static void add_type(mo_bytes *to, const json_t *schema, int level)
{
    schema = level > LEVELS ? NULL : schema;
    const json_t *type = json_object_get(schema, "type"), *values = json_object_get(schema, "enum");
    const json_t *any = json_object_get(schema, "anyOf"), *one = json_object_get(schema, "oneOf"), *only;
    if ((only = json_object_get(schema, "const"))) {
        add_json(to, only);
    } else if (json_array_size(values) > 0) {
        add_union(to, values, true, level);
    } else if (json_array_size(any) > 0 || json_array_size(one) > 0) {
        add_union(to, json_array_size(any) > 0 ? any : one, false, level);
    } else if (json_is_string(type)) {
        add_named(to, schema, json_string_value(type), level);
    } else if (json_array_size(type) > 0) {
        size_t i;
        json_t *name;
        json_array_foreach(type, i, name)
        {
            mo_bytes_add_text(to, i > 0 ? " | " : "");
            add_named(to, schema, json_is_string(name) ? json_string_value(name) : "", level);
        }
    } else {
        mo_bytes_add_text(to, "any");
    }
}

void mo_typescript_tools(mo_bytes *to, const mo_tools *tools)
{
    mo_bytes_add_text(to, "namespace functions {\n\n");
    for (size_t i = 0; i < mo_tools_count(tools); i++) {
        const json_t *schema = mo_tools_schema(tools, i);
        add_comment(to, mo_tools_description(tools, i));
        mo_bytes_add_text(to, "type ");
        mo_bytes_add_text(to, mo_tools_name(tools, i));
        mo_bytes_add_text(to, " = (");
        if (json_object_size(json_object_get(schema, "properties")) > 0) {
            mo_bytes_add_text(to, "_: ");
            add_members(to, schema, 0);
        }
        mo_bytes_add_text(to, ") => any;\n\n");
    }
    mo_bytes_add_text(to, "} // namespace functions");
}
