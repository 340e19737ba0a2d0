#include "grammar/schema_value.h"
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/schema_array.h"
#include "grammar/schema_merge.h"
#include "grammar/schema_number.h"
#include "grammar/schema_object.h"
#include "grammar/schema_ref.h"
#include "grammar/schema_string.h"
#include "grammar/schema_union.h"

enum { ENUM = 20000 };

struct mo_schema_seen {
    const json_t *schema;
    int number; /* number of its rule */
};

/* ---- Schemas that have a rule ---- */

void mo_schema_forget(mo_schema_rules *s)
{
    free(s->seen);
    s->seen = NULL;
}

static mo_schema_seen *find(const mo_schema_rules *s, const json_t *schema)
{
    size_t at = (size_t)(((uint64_t)(uintptr_t)schema >> 4) * 0x9E3779B97F4A7C15u >> 20) % s->seen_space;
    while (s->seen[at].schema && s->seen[at].schema != schema) {
        at = (at + 1) % s->seen_space;
    }
    return &s->seen[at];
}

static mo_status remember(mo_schema_rules *s, const json_t *schema, int number)
{
    if (!s->seen) {
        s->seen_space = 2 * MO_SCHEMA_VISITS + 64; /* number of visits is the maximum */
        s->seen = calloc(s->seen_space, sizeof *s->seen);
        if (!s->seen) {
            return mo_schema_no_memory(s);
        }
    }
    *find(s, schema) = (mo_schema_seen){schema, number};
    return MO_OK;
}

/* ---- Enumerations ---- */

static bool fits(const json_t *value, unsigned types)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return types & MO_TYPE_OBJECT;
    case JSON_ARRAY: return types & MO_TYPE_ARRAY;
    case JSON_STRING: return types & MO_TYPE_STRING;
    case JSON_INTEGER: return types & (MO_TYPE_INTEGER | MO_TYPE_NUMBER);
    case JSON_REAL: return types & MO_TYPE_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE: return types & MO_TYPE_BOOLEAN;
    case JSON_NULL: return types & MO_TYPE_NULL;
    }
    return false;
}

static mo_status write_constant(mo_schema_rules *s, const json_t *value, const char *separator, mo_bytes *out)
{
    char *text = mo_json_dump(value, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!text) {
        return mo_schema_no_memory(s);
    }
    mo_bytes_print(out, "%s", separator);
    mo_writer_literal(out, text, strlen(text));
    free(text);
    return MO_OK;
}

/* Notes keys beside `enum` that are not enforced: listed values are not checked. */
static mo_status note_beside_enum(mo_schema_rules *s, const json_t *schema)
{
    static const char *const keys[] = {
        "minLength",        "maxLength",        "pattern",  "minimum",    "maximum",
        "exclusiveMinimum", "required",         "items",    "multipleOf", "properties",
        "minItems",         "exclusiveMaximum", "maxItems", "format"};
    mo_status status = MO_OK;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && status == MO_OK; i++) {
        if (json_object_get(schema, keys[i])) {
            status = mo_schema_note(s, keys[i], "is not enforced together with enum or const");
        }
    }
    return status;
}

static mo_status write_enum(mo_schema_rules *s, const json_t *schema, unsigned types, mo_bytes *out)
{
    const json_t *constant = json_object_get(schema, "const"), *list = json_object_get(schema, "enum");
    const char *separator = "";
    mo_status status = MO_OK;
    bool some = false;
    if (list && (!json_is_array(list) || json_array_size(list) == 0)) {
        return mo_schema_wrong(s, "enum", "expected a non-empty list of values");
    }
    if (json_array_size(list) > ENUM) {
        return mo_schema_wrong(s, "enum", "more than %d values are not supported", ENUM);
    }
    for (size_t i = 0; i < (list ? json_array_size(list) : 1) && status == MO_OK; i++) {
        const json_t *value = list ? json_array_get(list, i) : constant;
        if (fits(value, types) && (!constant || json_equal(constant, value))) {
            status = write_constant(s, value, separator, out);
            separator = " | ";
            some = true;
        }
    }
    if (status == MO_OK && !some) {
        status = mo_schema_wrong(s, list ? "enum" : "const", "no value has the required type");
    }
    return status == MO_OK ? note_beside_enum(s, schema) : status;
}

/* ---- Types ---- */

static mo_status note_unsupported(mo_schema_rules *s, const json_t *schema, unsigned types)
{
    static const struct {
        const char *key;
        unsigned types; /* types that the key restricts */
    } keys[] = {
        {"not", ~0u},
        {"if", ~0u},
        {"$dynamicRef", ~0u},
        {"$recursiveRef", ~0u},
        {"contains", MO_TYPE_ARRAY},
        {"uniqueItems", MO_TYPE_ARRAY},
        {"dependencies", MO_TYPE_OBJECT},
        {"dependentRequired", MO_TYPE_OBJECT},
        {"dependentSchemas", MO_TYPE_OBJECT},
    };
    mo_status status = MO_OK;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && status == MO_OK; i++) {
        const json_t *value = json_object_get(schema, keys[i].key);
        if (value && (types & keys[i].types) && !json_is_false(value)) {
            status = mo_schema_note(s, keys[i].key, "is not enforced");
        }
    }
    return status;
}

static mo_status write_types(mo_schema_rules *s, json_t *schema, unsigned types, mo_bytes *out)
{
    const char *separator = "";
    char name[MO_RULE_NAME];
    mo_status status = MO_OK;
    if (types & MO_TYPE_NUMBER) {
        types &= ~(unsigned)MO_TYPE_INTEGER;
    }
    for (unsigned one = 1; one <= MO_TYPE_LAST && status == MO_OK; one <<= 1) {
        if (!(types & one)) {
            continue;
        }
        mo_bytes_print(out, "%s", separator);
        separator = " | ";
        switch (one) {
        case MO_TYPE_OBJECT: status = mo_schema_object(s, schema, out); break;
        case MO_TYPE_ARRAY: status = mo_schema_array(s, schema, out); break;
        case MO_TYPE_STRING: status = mo_schema_string(s, schema, out); break;
        case MO_TYPE_NUMBER: status = mo_schema_number(s, schema, false, out); break;
        case MO_TYPE_INTEGER: status = mo_schema_number(s, schema, true, out); break;
        case MO_TYPE_BOOLEAN: mo_bytes_print(out, "\"true\" | \"false\""); break;
        case MO_TYPE_NULL: mo_bytes_print(out, "\"null\""); break;
        default: mo_schema_common(s, MO_RULE_VALUE, name); break;
        }
    }
    return status;
}

/* ---- Values ---- */

static mo_status write_value(mo_schema_rules *s, json_t *schema, mo_bytes *out);

static bool asserts(const json_t *schema)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)schema, key, value)
    {
        if (mo_schema_asserts(key)) {
            return true;
        }
    }
    return false;
}

/* The schema without a key (borrowed). NULL when out of memory. */
static json_t *without(mo_schema_rules *s, json_t *schema, const char *key)
{
    json_t *rest = json_copy(schema);
    if (rest) {
        json_object_del(rest, key);
    }
    return mo_schema_keep(s, rest);
}

static mo_status write_reference(mo_schema_rules *s, json_t *schema, mo_bytes *out)
{
    json_t *rest = without(s, schema, "$ref"), *target;
    char name[MO_RULE_NAME];
    if (!rest) {
        return mo_schema_no_memory(s);
    }
    if (asserts(rest)) {
        json_t *only = mo_schema_keep(s, json_pack("{s:O}", "$ref", json_object_get(schema, "$ref")));
        if (!only) {
            return mo_schema_no_memory(s);
        }
        const mo_status status = mo_schema_merge(s, rest, only, &target);
        return status == MO_OK ? write_value(s, target, out) : status;
    }
    mo_status status = mo_schema_resolve(s, schema, &target);
    status = status == MO_OK ? mo_schema_rule(s, target, name) : status;
    mo_bytes_print(out, "%s", status == MO_OK ? name : "");
    return status;
}

static mo_status write_all(mo_schema_rules *s, json_t *schema, mo_bytes *out)
{
    json_t *list = json_object_get(schema, "allOf"), *all = without(s, schema, "allOf");
    mo_status status = MO_OK;
    if (!json_is_array(list) || json_array_size(list) == 0) {
        return mo_schema_wrong(s, "allOf", "expected a non-empty list of schemas");
    }
    if (!all) {
        return mo_schema_no_memory(s);
    }
    char path[MO_SCHEMA_PATH];
    const size_t before = s->path_length;
    memcpy(path, s->path, sizeof path);
    for (size_t i = 0; i < json_array_size(list) && status == MO_OK; i++) {
        mo_schema_down(s, "allOf");
        mo_schema_down_index(s, i);
        status = mo_schema_merge(s, all, json_array_get(list, i), &all);
        if (status == MO_OK) { /* a reference may have changed the path */
            memcpy(s->path, path, sizeof path);
            s->path_length = before;
        }
    }
    return status == MO_OK ? write_value(s, all, out) : status;
}

/* Writes one of several schemas, each combined with the keys beside the list. */
static mo_status write_any(mo_schema_rules *s, json_t *schema, const char *key, mo_bytes *out)
{
    json_t *list = json_object_get(schema, key), *rest = without(s, schema, key);
    const char *separator = "";
    mo_status status = MO_OK;
    if (!json_is_array(list) || json_array_size(list) == 0) {
        return mo_schema_wrong(s, key, "expected a non-empty list of schemas");
    }
    if (!rest) {
        return mo_schema_no_memory(s);
    }
    if (strcmp(key, "oneOf") == 0 && !mo_schema_disjoint(s, list)) {
        status = mo_schema_note(s, key, "is enforced as anyOf: an answer may match more than one");
    }
    const bool alone = !asserts(rest);
    char path[MO_SCHEMA_PATH];
    const size_t before = s->path_length;
    memcpy(path, s->path, sizeof path);
    for (size_t i = 0; i < json_array_size(list) && status == MO_OK; i++) {
        json_t *one = json_array_get(list, i);
        char name[MO_RULE_NAME];
        mo_schema_down(s, key);
        mo_schema_down_index(s, i);
        status = alone ? MO_OK : mo_schema_merge(s, rest, one, &one);
        if (status == MO_OK && !json_is_false(one)) {
            status = mo_schema_rule(s, one, name);
            mo_bytes_print(out, "%s%s", separator, status == MO_OK ? name : "");
            separator = " | ";
        }
        if (status == MO_OK) {
            memcpy(s->path, path, sizeof path);
            s->path_length = before;
        }
    }
    if (status == MO_OK && separator[0] == '\0') {
        status = mo_schema_wrong(s, key, "no value satisfies any of them");
    }
    return status;
}

static mo_status write_value(mo_schema_rules *s, json_t *schema, mo_bytes *out)
{
    unsigned types;
    char name[MO_RULE_NAME];
    if (json_is_true(schema)) {
        mo_schema_common(s, MO_RULE_VALUE, name);
        mo_bytes_print(out, "%s", name);
        return MO_OK;
    }
    if (json_is_false(schema)) {
        return mo_schema_wrong(s, NULL, "no value satisfies this");
    }
    if (!json_is_object(schema)) {
        return mo_schema_wrong(s, NULL, "expected a schema: an object, true or false");
    }
    if (++s->depth > MO_SCHEMA_DEPTH) {
        return mo_schema_wrong(s, NULL, "schemas are nested too deeply here");
    }
    mo_status status = mo_schema_type_set(s, schema, &types);
    if (status == MO_OK && json_object_get(schema, "$ref")) {
        status = write_reference(s, schema, out);
    } else if (status == MO_OK && json_object_get(schema, "allOf")) {
        status = write_all(s, schema, out);
    } else if (status == MO_OK && json_object_get(schema, "anyOf")) {
        status = write_any(s, schema, "anyOf", out);
    } else if (status == MO_OK && json_object_get(schema, "oneOf")) {
        status = write_any(s, schema, "oneOf", out);
    } else if (status == MO_OK) {
        status = note_unsupported(s, schema, types);
        if (status == MO_OK && (json_object_get(schema, "enum") || json_object_get(schema, "const"))) {
            status = write_enum(s, schema, types, out);
        } else if (status == MO_OK && types == MO_TYPE_ANY) {
            mo_schema_common(s, MO_RULE_VALUE, name);
            mo_bytes_print(out, "%s", name);
        } else if (status == MO_OK) {
            status = write_types(s, schema, types, out);
        }
    }
    s->depth--;
    return status;
}

mo_status mo_schema_rule(mo_schema_rules *s, json_t *schema, char name[MO_RULE_NAME])
{
    const mo_schema_seen *seen = s->seen ? find(s, schema) : NULL;
    if (seen && seen->schema) {
        snprintf(name, MO_RULE_NAME, "%s-%d", s->prefix, seen->number);
        return MO_OK;
    }
    if (json_is_true(schema)) {
        mo_schema_common(s, MO_RULE_VALUE, name);
        return MO_OK;
    }
    if (++s->visits > MO_SCHEMA_VISITS) {
        return mo_schema_wrong(s, NULL, "the expanded schema has more than %d parts", MO_SCHEMA_VISITS);
    }
    mo_bytes body = {0};
    char path[MO_SCHEMA_PATH];
    const size_t before = s->path_length;
    memcpy(path, s->path, sizeof path);
    const int number = s->next;
    mo_schema_name(s, name);
    mo_status status = remember(s, schema, number);
    status = status == MO_OK ? write_value(s, schema, &body) : status;
    if (status != MO_OK) { /* keep the path of the error */
        free(body.data);
        return status;
    }
    memcpy(s->path, path, sizeof path);
    s->path_length = before;
    return mo_schema_define(s, name, &body);
}
