/* Parts of schemas are shared, not copied: recursion ends because a schema is recognized by its address. */
#include "grammar/schema_merge.h"

#include <string.h>

#include "grammar/schema_ref.h"

enum { PRODUCT = 64, REFS = 32 };

typedef struct merge {
    mo_schema_rules *s;
    json_t *to;   /* the merged schema being built */
    bool nothing; /* no value satisfies both */
    bool no_memory;
} merge;

static void set(merge *m, const char *key, json_t *value) /* takes ownership of the reference */
{
    m->no_memory |= !value || json_object_set_new(m->to, key, value) != 0;
}

static bool is_closed(const json_t *schema)
{
    return json_is_false(json_object_get(schema, "additionalProperties"));
}

/* ---- Keys of both schemas ---- */

static void merge_bound(merge *m, const char *key, json_t *a, json_t *b)
{
    if (!json_is_number(a) || !json_is_number(b)) {
        set(m, key, json_incref(b)); /* malformed, or the boolean of draft 4 */
        return;
    }
    const bool least = strncmp(key, "min", 3) == 0 || strcmp(key, "exclusiveMinimum") == 0;
    const bool second =
        least ? json_number_value(b) > json_number_value(a) : json_number_value(b) < json_number_value(a);
    set(m, key, json_incref(second ? b : a));
}

static bool has_type(const json_t *types, const char *name)
{
    if (json_is_string(types)) {
        return strcmp(json_string_value(types), name) == 0;
    }
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *one = json_string_value(json_array_get(types, i));
        if (one && strcmp(one, name) == 0) {
            return true;
        }
    }
    return false;
}

static void merge_types(merge *m, const json_t *a, const json_t *b)
{
    static const char *const names[] = {"object", "array", "string", "number", "integer", "boolean", "null"};
    json_t *both = json_array();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const bool integer = strcmp(names[i], "integer") == 0;
        const bool in_a = has_type(a, names[i]) || (integer && has_type(a, "number"));
        const bool in_b = has_type(b, names[i]) || (integer && has_type(b, "number"));
        const bool implied = integer && has_type(a, "number") && has_type(b, "number");
        if (in_a && in_b && !implied) {
            m->no_memory |= json_array_append_new(both, json_string(names[i])) != 0;
        }
    }
    m->nothing |= json_array_size(both) == 0;
    set(m, "type", both);
}

static bool contains(const json_t *list, const json_t *value)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (json_equal(json_array_get(list, i), value)) {
            return true;
        }
    }
    return false;
}

static void merge_enums(merge *m, const json_t *a, const json_t *b)
{
    json_t *both = json_array();
    for (size_t i = 0; i < json_array_size(a); i++) {
        if (contains(b, json_array_get(a, i))) {
            m->no_memory |= json_array_append(both, json_array_get(a, i)) != 0;
        }
    }
    m->nothing |= json_array_size(both) == 0;
    set(m, "enum", both);
}

static void merge_required(merge *m, const json_t *a, const json_t *b)
{
    json_t *both = json_copy((json_t *)a);
    for (size_t i = 0; i < json_array_size(b) && both; i++) {
        if (!contains(a, json_array_get(b, i))) {
            m->no_memory |= json_array_append(both, json_array_get(b, i)) != 0;
        }
    }
    set(m, "required", both);
}

static json_t *all_of(json_t *a, json_t *b)
{
    return json_pack("{s:[O,O]}", "allOf", a, b);
}

/* A property that only one side names is an additional property of the other, which may forbid these. */
static void merge_properties(merge *m, const json_t *a, const json_t *b)
{
    const json_t *pa = json_object_get(a, "properties"), *pb = json_object_get(b, "properties");
    json_t *both = json_object();
    const char *key;
    json_t *value;
    if ((pa && !json_is_object(pa)) || (pb && !json_is_object(pb))) {
        json_decref(both);
        set(m, "properties", json_incref((json_t *)(pa && !json_is_object(pa) ? pa : pb)));
        return;
    }
    json_object_foreach((json_t *)pa, key, value)
    {
        json_t *other = json_object_get(pb, key);
        if (other || !is_closed(b)) {
            json_t *one = !other || other == value ? json_incref(value) : all_of(value, other);
            m->no_memory |= !one || json_object_set_new(both, key, one) != 0;
        }
    }
    json_object_foreach((json_t *)pb, key, value)
    {
        if (!json_object_get(pa, key) && !is_closed(a)) {
            m->no_memory |= json_object_set(both, key, value) != 0;
        }
    }
    set(m, "properties", both);
}

/* Merges all pairs of alternatives, if there are not too many. */
static mo_status merge_choices(merge *m, const char *key, json_t *a, json_t *b)
{
    if (!json_is_array(a) || !json_is_array(b) || json_array_size(a) * json_array_size(b) > PRODUCT) {
        return mo_schema_note(m->s, key, "is not enforced: too many constraints are combined");
    }
    json_t *pairs = json_array();
    for (size_t i = 0; i < json_array_size(a); i++) {
        for (size_t k = 0; k < json_array_size(b); k++) {
            json_t *pair = all_of(json_array_get(a, i), json_array_get(b, k));
            m->no_memory |= !pair || json_array_append_new(pairs, pair) != 0;
        }
    }
    set(m, key, pairs);
    return MO_OK;
}

static bool is_one_of(const char *key, const char *const *keys)
{
    for (; *keys; keys++) {
        if (strcmp(key, *keys) == 0) {
            return true;
        }
    }
    return false;
}

static mo_status merge_key(merge *m, const char *key, json_t *a, json_t *b)
{
    static const char *const bounds[] = {
        "minimum",  "maximum",  "exclusiveMinimum", "exclusiveMaximum", "minLength",   "maxLength",
        "minItems", "maxItems", "minProperties",    "maxProperties",    "minContains", NULL};
    if (json_equal(a, b)) {
        return MO_OK;
    }
    if (is_one_of(key, bounds)) {
        merge_bound(m, key, a, b);
    } else if (strcmp(key, "type") == 0) {
        merge_types(m, a, b);
    } else if (strcmp(key, "enum") == 0) {
        merge_enums(m, a, b);
    } else if (strcmp(key, "const") == 0) {
        m->nothing = true;
    } else if (strcmp(key, "required") == 0) {
        merge_required(m, a, b);
    } else if (strcmp(key, "anyOf") == 0 || strcmp(key, "oneOf") == 0) {
        return merge_choices(m, key, a, b);
    } else if (strcmp(key, "allOf") == 0) {
        json_t *both = json_copy(a);
        m->no_memory |= !both || json_array_extend(both, b) != 0;
        set(m, key, both);
    } else if (strcmp(key, "items") == 0 || strcmp(key, "additionalProperties") == 0) {
        const bool none = json_is_false(a) || json_is_false(b);
        set(m, key,
            none              ? json_false()
            : json_is_true(a) ? json_incref(b)
            : json_is_true(b) ? json_incref(a)
                              : all_of(a, b));
    } else if (strcmp(key, "nullable") == 0) {
        set(m, key, json_boolean(json_is_true(a) && json_is_true(b)));
    } else if (mo_schema_asserts(key)) {
        return mo_schema_note(m->s, key, "is not enforced together with another one");
    }
    return MO_OK;
}

/* ---- Whole schemas ---- */

static mo_status merge_all(merge *m, json_t *a, json_t *b)
{
    const char *key;
    json_t *value;
    mo_status status = MO_OK;
    json_object_foreach(b, key, value)
    {
        json_t *other = json_object_get(a, key);
        if (strcmp(key, "$ref") == 0 || strcmp(key, "properties") == 0) {
            continue;
        }
        if (!other) {
            m->no_memory |= json_object_set(m->to, key, value) != 0;
        } else if (status == MO_OK) {
            status = merge_key(m, key, other, value);
        }
    }
    if (json_object_get(a, "properties") || json_object_get(b, "properties")) {
        merge_properties(m, a, b);
    }
    return status;
}

mo_status mo_schema_merge(mo_schema_rules *s, json_t *a, json_t *b, json_t **out)
{
    mo_status status = MO_OK;
    for (int refs = 0; status == MO_OK; refs++) {
        if (json_is_false(a) || json_is_false(b)) {
            *out = json_false();
            return MO_OK;
        }
        if (json_is_true(a) || json_is_true(b)) {
            *out = json_is_true(a) ? b : a;
            return MO_OK;
        }
        if (!json_is_object(a) || !json_is_object(b)) {
            return mo_schema_wrong(s, NULL, "expected a schema: an object, true or false");
        }
        merge m = {.s = s, .to = json_copy(a)};
        if (!m.to) {
            return mo_schema_no_memory(s);
        }
        status = merge_all(&m, a, b);
        json_t *made = mo_schema_keep(s, m.to);
        if (m.no_memory || !made) {
            return mo_schema_no_memory(s);
        }
        *out = m.nothing ? json_false() : made;
        if (!json_object_get(b, "$ref") || m.nothing || status != MO_OK) {
            return status;
        }
        if (refs == REFS) {
            return mo_schema_wrong(s, "$ref", "refers to itself");
        }
        a = made;
        status = mo_schema_resolve(s, b, &b);
    }
    return status;
}
