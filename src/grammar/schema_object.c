#include "grammar/schema_object.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/json.h"
#include "grammar/schema_key.h"

enum { MEMBERS = 4000 };

typedef struct member {
    const char *name;
    json_t *schema;
    bool required;
    char rule[MO_RULE_NAME]; /* name, colon and value */
} member;

typedef struct object {
    mo_schema_rules *s;
    json_t *schema;
    member *members;
    size_t count, space, required;
    json_t *extra;           /* the schema of additional properties; NULL: not allowed */
    char pair[MO_RULE_NAME]; /* the rule for an additional property */
    char ws[MO_RULE_NAME];
} object;

/* ---- Reading ---- */

static mo_status add_member(object *o, const char *name, json_t *schema)
{
    if (o->count == MEMBERS) {
        return mo_schema_wrong(o->s, "properties", "more than %d are not supported", MEMBERS);
    }
    if (!mo_array_reserve(&o->members, &o->space, o->count + 1, sizeof *o->members)) {
        return mo_schema_no_memory(o->s);
    }
    o->members[o->count++] = (member){.name = name, .schema = schema};
    return MO_OK;
}

static mo_status read_properties(object *o)
{
    json_t *properties = json_object_get(o->schema, "properties"), *value;
    const char *key;
    mo_status status = MO_OK;
    if (properties && !json_is_object(properties)) {
        return mo_schema_wrong(o->s, "properties", "expected an object");
    }
    json_object_foreach(properties, key, value)
    {
        status = status == MO_OK ? add_member(o, key, value) : status;
    }
    return status;
}

static mo_status read_required(object *o)
{
    json_t *required = json_object_get(o->schema, "required");
    mo_status status = MO_OK;
    if (json_is_boolean(required)) { /* draft 3 wrote it in the property */
        return MO_OK;
    }
    if (required && !json_is_array(required)) {
        return mo_schema_wrong(o->s, "required", "expected a list of names");
    }
    for (size_t i = 0; i < json_array_size(required) && status == MO_OK; i++) {
        const char *name = json_string_value(json_array_get(required, i));
        size_t k = 0;
        if (!name) {
            return mo_schema_wrong(o->s, "required", "expected a list of names");
        }
        while (k < o->count && strcmp(o->members[k].name, name) != 0) {
            k++;
        }
        if (k == o->count) { /* an additional property */
            json_t *extra = json_object_get(o->schema, "additionalProperties");
            if (json_is_false(extra)) {
                return mo_schema_wrong(o->s, "required", "'%.100s' is required but not allowed", name);
            }
            status = add_member(o, name, extra ? extra : json_true());
        }
        if (status == MO_OK && json_is_false(o->members[k].schema)) {
            return mo_schema_wrong(o->s, "required", "'%.100s' is required but not allowed", name);
        }
        if (status == MO_OK && !o->members[k].required) {
            o->members[k].required = true;
            o->required++;
        }
    }
    return status;
}

static void drop_impossible(object *o)
{
    size_t kept = 0;
    for (size_t i = 0; i < o->count; i++) {
        if (!json_is_false(o->members[i].schema)) {
            o->members[kept++] = o->members[i];
        }
    }
    o->count = kept;
}

/* ---- Additional properties ---- */

static mo_status write_pair(object *o, const char *key, json_t *value)
{
    char rule[MO_RULE_NAME];
    mo_bytes body = {0};
    const size_t before = o->s->path_length;
    mo_status status = mo_schema_rule(o->s, value, rule);
    mo_schema_up(o->s, before);
    if (status == MO_OK) {
        mo_schema_name(o->s, o->pair);
        mo_bytes_print(&body, "%s \":\" %s %s", key, o->ws, rule);
        status = mo_schema_define(o->s, o->pair, &body);
    }
    return status;
}

static mo_status key_of_names(object *o, json_t *names, char key[MO_RULE_NAME])
{
    json_t *schema = json_is_object(names) ? json_copy(names) : json_is_true(names) ? json_object() : NULL;
    if (!schema) {
        return mo_schema_wrong(o->s, "propertyNames", "expected a schema for names");
    }
    if (json_object_set_new(schema, "type", json_string("string")) != 0 ||
        !(schema = mo_schema_keep(o->s, schema))) {
        return mo_schema_no_memory(o->s);
    }
    const size_t before = mo_schema_down(o->s, "propertyNames");
    const mo_status status = mo_schema_rule(o->s, schema, key);
    mo_schema_up(o->s, before);
    return status;
}

/* Handles patternProperties: names of the map match a pattern. */
static mo_status pattern_pair(object *o, json_t *patterns)
{
    void *only = json_object_iter(patterns);
    char key[MO_RULE_NAME];
    json_t *names = mo_schema_keep(
        o->s, json_pack("{s:s, s:s}", "type", "string", "pattern", json_object_iter_key(only)));
    if (!names) {
        return mo_schema_no_memory(o->s);
    }
    const size_t before = mo_schema_down(o->s, "patternProperties");
    mo_status status = mo_schema_rule(o->s, names, key);
    if (status == MO_OK) {
        mo_schema_down(o->s, json_object_iter_key(only));
        status = write_pair(o, key, json_object_iter_value(only));
    }
    mo_schema_up(o->s, before);
    return status;
}

static mo_status write_extra(object *o)
{
    json_t *extra = json_object_get(o->schema, "additionalProperties");
    json_t *patterns = json_object_get(o->schema, "patternProperties");
    json_t *names = json_object_get(o->schema, "propertyNames");
    char key[MO_RULE_NAME];
    mo_status status = MO_OK;
    if (extra && !json_is_object(extra) && !json_is_boolean(extra)) {
        return mo_schema_wrong(o->s, "additionalProperties", "expected a schema: an object, true or false");
    }
    if (patterns && !json_is_object(patterns)) {
        return mo_schema_wrong(o->s, "patternProperties", "expected an object");
    }
    o->extra = extra && !json_is_false(extra) ? extra : NULL;
    if (!extra && o->count == 0) {
        o->extra = json_true();
    }
    if (json_object_size(patterns) == 1 && o->count == 0 && !names) {
        o->extra = json_true();
        return pattern_pair(o, patterns);
    }
    if (json_object_size(patterns) > 0) {
        status = mo_schema_note(o->s, "patternProperties", "is not enforced");
    }
    if (status != MO_OK || !o->extra) {
        return status;
    }
    if (names && o->count == 0) {
        status = key_of_names(o, names, key);
    } else {
        status =
            names ? mo_schema_note(o->s, "propertyNames", "is not enforced together with properties") : MO_OK;
        const char **taken = calloc(o->count + 1, sizeof *taken);
        if (!taken) {
            return mo_schema_no_memory(o->s);
        }
        for (size_t i = 0; i < o->count; i++) {
            taken[i] = o->members[i].name;
        }
        bool possible = true;
        status = status == MO_OK ? mo_schema_key(o->s, taken, o->count, key, &possible) : status;
        free(taken);
        if (status != MO_OK || !possible) {
            o->extra = NULL; /* an object without additional properties is still valid */
            return status;
        }
    }
    if (status == MO_OK) {
        const size_t before = mo_schema_down(o->s, "additionalProperties");
        status = write_pair(o, key, o->extra);
        mo_schema_up(o->s, before);
    }
    return status;
}

/* ---- Writing ---- */

static mo_status write_member(object *o, member *m)
{
    char value[MO_RULE_NAME];
    mo_bytes body = {0}, key = {0};
    json_t *name = json_string(m->name);
    char *quoted = name ? mo_json_dump(name, JSON_ENCODE_ANY) : NULL;
    json_decref(name);
    if (!quoted) {
        return mo_schema_no_memory(o->s);
    }
    const size_t before = mo_schema_down(o->s, "properties");
    mo_schema_down(o->s, m->name);
    mo_status status = mo_schema_rule(o->s, m->schema, value);
    mo_schema_up(o->s, before);
    if (status == MO_OK) {
        mo_bytes_print(&key, "%s:", quoted);
        mo_writer_literal(&body, key.data ? key.data : "", key.length);
        mo_bytes_print(&body, " %s %s", o->ws, value);
        body.failed |= key.failed;
        mo_schema_name(o->s, m->rule);
        status = mo_schema_define(o->s, m->rule, &body);
    }
    free(key.data);
    free(quoted);
    return status;
}

/* Writes at least one of the optional members low to high - 1. Splitting in halves keeps the rules short and
   flat. After any member, the number of possible commas is the number of levels. */
static mo_status write_some(object *o, size_t low, size_t high, char name[MO_RULE_NAME])
{
    if (high - low == 1) {
        snprintf(name, MO_RULE_NAME, "%s", o->members[low].rule);
        return MO_OK;
    }
    mo_bytes body = {0};
    char first[MO_RULE_NAME], second[MO_RULE_NAME];
    const size_t middle = low + (high - low) / 2;
    mo_status status = write_some(o, low, middle, first);
    status = status == MO_OK ? write_some(o, middle, high, second) : status;
    if (status != MO_OK) {
        return status;
    }
    mo_bytes_print(&body, "%s (\",\" %s %s)? | %s", first, o->ws, second, second);
    mo_schema_name(o->s, name);
    return mo_schema_define(o->s, name, &body);
}

/* With a required member the commas are known: members before it are followed by one, members after it begin
   with one. */
static mo_status write_around_required(object *o, mo_bytes *out)
{
    bool past = false;
    mo_status status = MO_OK;
    for (size_t i = 0; i < o->count && status == MO_OK;) {
        char some[MO_RULE_NAME];
        size_t end = i;
        while (end < o->count && !o->members[end].required) {
            end++;
        }
        if (end == i) {
            mo_bytes_print(out, past ? " \",\" %s %s" : " %s%s", past ? o->ws : "", o->members[i].rule);
            past = true;
            i++;
            continue;
        }
        status = write_some(o, i, end, some);
        mo_bytes_print(out, past ? " (\",\" %s %s)?" : " (%s \",\" %s)?", past ? o->ws : some,
                       past ? some : o->ws);
        i = end;
    }
    if (o->extra) {
        mo_bytes_print(out, " (\",\" %s %s)*", o->ws, o->pair);
    }
    return status;
}

static mo_status write_optional(object *o, mo_bytes *out)
{
    char some[MO_RULE_NAME];
    const mo_status status = write_some(o, 0, o->count, some);
    mo_bytes_print(out, " (%s", some);
    if (o->extra) {
        mo_bytes_print(out, " (\",\" %s %s)* | %s (\",\" %s %s)*", o->ws, o->pair, o->pair, o->ws, o->pair);
    }
    mo_bytes_print(out, ")");
    return status;
}

/* Handles minProperties and maxProperties. Names in a map may repeat, so only one property can be
   required. */
static mo_status write_map(object *o, mo_bytes *out)
{
    int64_t min, max;
    mo_status status = mo_schema_count(o->s, o->schema, "minProperties", &min);
    status = status == MO_OK ? mo_schema_count(o->s, o->schema, "maxProperties", &max) : status;
    if (status == MO_OK && max >= 0 && min > max) {
        status = mo_schema_wrong(o->s, "minProperties", "is greater than maxProperties");
    }
    if (status == MO_OK && min > 1) {
        status = mo_schema_note(o->s, "minProperties", "is enforced only if names do not repeat");
    }
    if (status != MO_OK) {
        return status;
    }
    if (!o->extra || max == 0) {
        if (min > 0) {
            return mo_schema_wrong(o->s, "minProperties", "no properties are allowed");
        }
        mo_bytes_print(out, "\"{\" %s \"}\"", o->ws);
        return MO_OK;
    }
    mo_bytes_print(out, "\"{\" %s (%s (\",\" %s %s){%d,", o->ws, o->pair, o->ws, o->pair,
                   (int)(min > 1 ? min - 1 : 0));
    if (max >= 0) {
        mo_bytes_print(out, "%d", (int)max - 1);
    }
    mo_bytes_print(out, "} %s)%s \"}\"", o->ws, min > 0 ? "" : "?");
    return MO_OK;
}

/* With named properties the counts either always hold or cannot be enforced. */
static mo_status check_counts(object *o)
{
    int64_t min, max;
    mo_status status = mo_schema_count(o->s, o->schema, "minProperties", &min);
    status = status == MO_OK ? mo_schema_count(o->s, o->schema, "maxProperties", &max) : status;
    if (status == MO_OK && min > (int64_t)o->required) {
        status = mo_schema_note(o->s, "minProperties", "is not enforced together with properties");
    }
    if (status == MO_OK && max >= 0 && (max < (int64_t)o->count || o->extra)) {
        status = mo_schema_note(o->s, "maxProperties", "is not enforced together with properties");
    }
    return status;
}

static mo_status write(object *o, mo_bytes *out)
{
    mo_status status = MO_OK;
    if (o->count == 0) {
        return write_map(o, out);
    }
    for (size_t i = 0; i < o->count && status == MO_OK; i++) {
        status = write_member(o, &o->members[i]);
    }
    status = status == MO_OK ? check_counts(o) : status;
    if (status != MO_OK) {
        return status;
    }
    mo_bytes_print(out, "\"{\" %s", o->ws);
    if (o->required > 0) {
        status = write_around_required(o, out);
        mo_bytes_print(out, " %s \"}\"", o->ws);
        return status;
    }
    mo_bytes_print(out, " (");
    status = write_optional(o, out);
    mo_bytes_print(out, " %s)? \"}\"", o->ws);
    return status;
}

mo_status mo_schema_object(mo_schema_rules *s, json_t *schema, mo_bytes *out)
{
    object o = {.s = s, .schema = schema};
    mo_schema_common(s, MO_RULE_WS, o.ws);
    mo_status status = read_properties(&o);
    status = status == MO_OK ? read_required(&o) : status;
    if (status == MO_OK) {
        const size_t named = o.count;
        drop_impossible(&o);
        status = write_extra(&o);
        if (named > 0 && o.count == 0 && !json_object_get(schema, "additionalProperties")) {
            o.extra = NULL;
        }
    }
    status = status == MO_OK ? write(&o, out) : status;
    free(o.members);
    return status;
}
