#include "grammar/schema_union.h"

#include <string.h>

#include "grammar/schema_ref.h"

static unsigned type_of(const char *name)
{
    static const char *const names[] = {"object", "array", "string", "number", "integer", "boolean", "null"};
    for (unsigned i = 0; name && i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) == 0) {
            return 1u << i;
        }
    }
    return 0;
}

/* Types implied by the keys of a schema without `type`. */
static unsigned implied(const json_t *schema)
{
    static const struct {
        const char *key;
        unsigned type;
    } keys[] = {
        {"properties", MO_TYPE_OBJECT},
        {"required", MO_TYPE_OBJECT},
        {"additionalProperties", MO_TYPE_OBJECT},
        {"patternProperties", MO_TYPE_OBJECT},
        {"propertyNames", MO_TYPE_OBJECT},
        {"minProperties", MO_TYPE_OBJECT},
        {"maxProperties", MO_TYPE_OBJECT},
        {"items", MO_TYPE_ARRAY},
        {"prefixItems", MO_TYPE_ARRAY},
        {"minItems", MO_TYPE_ARRAY},
        {"maxItems", MO_TYPE_ARRAY},
        {"minLength", MO_TYPE_STRING},
        {"maxLength", MO_TYPE_STRING},
        {"pattern", MO_TYPE_STRING},
        {"format", MO_TYPE_STRING},
        {"minimum", MO_TYPE_NUMBER},
        {"maximum", MO_TYPE_NUMBER},
        {"exclusiveMinimum", MO_TYPE_NUMBER},
        {"exclusiveMaximum", MO_TYPE_NUMBER},
        {"multipleOf", MO_TYPE_NUMBER},
    };
    unsigned types = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        types |= json_object_get(schema, keys[i].key) ? keys[i].type : 0;
    }
    return types ? types : MO_TYPE_ANY;
}

mo_status mo_schema_type_set(mo_schema_rules *s, const json_t *schema, unsigned *out)
{
    const json_t *type = json_object_get(schema, "type"), *nullable = json_object_get(schema, "nullable");
    const bool listed = json_object_get(schema, "enum") || json_object_get(schema, "const");
    *out = 0;
    if (nullable && !json_is_boolean(nullable)) {
        return mo_schema_wrong(s, "nullable", "expected true or false");
    }
    if (!type) {
        *out = listed ? (unsigned)MO_TYPE_ANY : implied(schema);
    } else if (json_is_string(type)) {
        *out = type_of(json_string_value(type));
        if (*out == 0) {
            return mo_schema_wrong(s, "type", "unknown type '%.60s'", json_string_value(type));
        }
    } else if (json_is_array(type) && json_array_size(type) > 0) {
        for (size_t i = 0; i < json_array_size(type); i++) {
            const char *name = json_string_value(json_array_get(type, i));
            if (type_of(name) == 0) {
                return mo_schema_wrong(s, "type", "unknown type '%.60s'", name ? name : "(not a string)");
            }
            *out |= type_of(name);
        }
    } else {
        return mo_schema_wrong(s, "type", "expected the name of a type or a list of names");
    }
    *out |= json_is_true(nullable) ? MO_TYPE_NULL : 0u;
    return MO_OK;
}

/* ---- Exclusive schemas ---- */

/* Follows references without reporting errors. NULL: not found. */
static const json_t *target(mo_schema_rules *s, const json_t *schema)
{
    mo_schema_rules quiet = {.root = s->root};
    for (int i = 0; i < 8 && json_object_get(schema, "$ref"); i++) {
        json_t *to = NULL;
        quiet.path_length = 0;
        if (mo_schema_resolve(&quiet, schema, &to) != MO_OK) {
            return NULL;
        }
        schema = to;
    }
    return schema;
}

static bool allows(const json_t *schema, const json_t *value)
{
    const json_t *constant = json_object_get(schema, "const"), *list = json_object_get(schema, "enum");
    if (constant) {
        return json_equal(constant, value);
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (json_equal(json_array_get(list, i), value)) {
            return true;
        }
    }
    return !list;
}

enum { NUMERIC = MO_TYPE_NUMBER | MO_TYPE_INTEGER };

/* Types of the values that a schema lists; all types if it lists none. */
static unsigned listed_types(const json_t *schema)
{
    static const unsigned types[] = {
        [JSON_OBJECT] = MO_TYPE_OBJECT, [JSON_ARRAY] = MO_TYPE_ARRAY, [JSON_STRING] = MO_TYPE_STRING,
        [JSON_INTEGER] = NUMERIC,       [JSON_REAL] = NUMERIC,        [JSON_TRUE] = MO_TYPE_BOOLEAN,
        [JSON_FALSE] = MO_TYPE_BOOLEAN, [JSON_NULL] = MO_TYPE_NULL,
    };
    const json_t *constant = json_object_get(schema, "const"), *list = json_object_get(schema, "enum");
    unsigned some = constant ? types[json_typeof(constant)] : 0;
    for (size_t i = 0; i < json_array_size(list) && !constant; i++) {
        some |= types[json_typeof(json_array_get(list, i))];
    }
    return constant || list ? some : (unsigned)MO_TYPE_ANY;
}

/* Do both schemas list their values, without a common one? */
static bool lists_differ(const json_t *a, const json_t *b)
{
    const json_t *constant = json_object_get(a, "const"), *list = json_object_get(a, "enum");
    if ((!constant && !list) || (!json_object_get(b, "const") && !json_object_get(b, "enum"))) {
        return false;
    }
    if (constant) {
        return !allows(b, constant);
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (allows(b, json_array_get(list, i))) {
            return false;
        }
    }
    return true;
}

static bool requires(const json_t *schema, const char *name)
{
    const json_t *list = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *one = json_string_value(json_array_get(list, i));
        if (one && strcmp(one, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Does a require a property that b does not allow? */
static bool misses(const json_t *a, const json_t *b)
{
    const json_t *list = json_object_get(a, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name && json_is_false(json_object_get(b, "additionalProperties")) &&
            !json_object_get(json_object_get(b, "properties"), name)) {
            return true;
        }
    }
    return false;
}

static bool exclude(mo_schema_rules *s, const json_t *a, const json_t *b)
{
    unsigned types_a, types_b;
    mo_schema_rules quiet = {.root = s->root};
    const char *key;
    json_t *value;
    a = target(s, a);
    b = target(s, b);
    if (!json_is_object(a) || !json_is_object(b)) {
        return false;
    }
    if (mo_schema_type_set(&quiet, a, &types_a) != MO_OK ||
        mo_schema_type_set(&quiet, b, &types_b) != MO_OK) {
        return false;
    }
    /* A schema without a type may allow any type, whatever its other keys restrict. */
    types_a = (json_object_get(a, "type") ? types_a : (unsigned)MO_TYPE_ANY) & listed_types(a);
    types_b = (json_object_get(b, "type") ? types_b : (unsigned)MO_TYPE_ANY) & listed_types(b);
    types_a |= types_a & NUMERIC ? NUMERIC : 0u; /* 1 may be an integer or a number */
    types_b |= types_b & NUMERIC ? NUMERIC : 0u;
    if (!(types_a & types_b)) {
        return true;
    }
    if (lists_differ(a, b) || misses(a, b) || misses(b, a)) {
        return true;
    }
    json_object_foreach(json_object_get(a, "properties"), key, value)
    {
        const json_t *other = json_object_get(json_object_get(b, "properties"), key);
        if (other && requires(a, key) && requires(b, key) &&
            lists_differ(target(s, value), target(s, other))) {
            return true;
        }
    }
    return false;
}

bool mo_schema_disjoint(mo_schema_rules *s, const json_t *list)
{
    const size_t count = json_array_size(list);
    if (count > 200) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t k = i + 1; k < count; k++) {
            if (!exclude(s, json_array_get(list, i), json_array_get(list, k))) {
                return false;
            }
        }
    }
    return true;
}
