/* Gemma rules: objects and lists are walked through; scalars are JSON's. */
#include "dialogue/gemma_rules.h"
#include "base/json.h"

#include <stdio.h>
#include <string.h>

#include "dialogue/tools.h"

#define QUOTE "<|\"|>"

void mo_gemma_rules_begin(mo_rules *r)
{
    static const char *const quote[] = {QUOTE};
    mo_rules_until(r, "gemma-text", quote, 1);
    mo_rules_add(r, "gemma-string ::=");
    mo_rules_mark(r, QUOTE);
    mo_rules_add(r, " gemma-text");
    mo_rules_mark(r, QUOTE);
    mo_rules_add(r, "\ngemma-number ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15}) (\".\" [0-9]{1,15})?\n"
                    "gemma-key ::= [A-Za-z_] [A-Za-z0-9_.-]{0,63}\n"
                    "gemma-member ::= gemma-key \":\" gemma-any\n"
                    "gemma-object ::= \"{\" (gemma-member (\",\" gemma-member)*)? \"}\"\n"
                    "gemma-list ::= \"[\" (gemma-any (\",\" gemma-any)*)? \"]\"\n"
                    "gemma-any ::= gemma-string | gemma-number | \"true\" | \"false\" | \"null\" | "
                    "gemma-object | gemma-list\n");
}

/* One of the values, strings between marks. */
static void choice(mo_rules *r, const char *name, const json_t *values)
{
    size_t i;
    json_t *value;
    mo_rules_add(r, "%s ::=", name);
    json_array_foreach(values, i, value)
    {
        mo_rules_add(r, i > 0 ? " |" : "");
        if (json_is_string(value)) {
            mo_rules_mark(r, QUOTE);
            mo_rules_literal(r, json_string_value(value));
            mo_rules_mark(r, QUOTE);
        } else {
            char *text = mo_json_dump(value, JSON_ENCODE_ANY | JSON_COMPACT);
            mo_rules_literal(r, text ? text : "null");
            free(text);
        }
    }
    mo_rules_add(r, "\n");
}

/* NAME-from-K: members from the K-th on, with and without one before them; optional ones may be left out. */
static void members(mo_rules *r, const char *name, const json_t *schema, const json_t *root,
                    const char *where)
{
    json_t *properties = json_object_get(schema, "properties");
    const char *key;
    json_t *value;
    int k = 0;
    json_object_foreach(properties, key, value)
    {
        char child[160], place[512];
        snprintf(child, sizeof child, "%s-%d", name, k);
        snprintf(place, sizeof place, "%.300s/properties/%.100s", where, key);
        const bool must = mo_tools_required(schema, key);
        for (int first = 0; first < 2; first++) {
            mo_rules_add(r, "%s-%s%d ::= ", name, first ? "first" : "more", k);
            mo_rules_literal(r, first ? "" : ",");
            mo_rules_literal(r, key);
            mo_rules_add(r, " \":\" %s %s-more%d", child, name, k + 1);
            if (!must) {
                mo_rules_add(r, " | %s-%s%d", name, first ? "first" : "more", k + 1);
            }
            mo_rules_add(r, "\n");
        }
        mo_gemma_rules_value(r, child, value, root, place);
        k++;
    }
    mo_rules_add(r, "%s-first%d ::= \"\"\n%s-more%d ::= \"\"\n%s ::= \"{\" %s-first0 \"}\"\n", name, k, name,
                 k, name, name);
}

void mo_gemma_rules_value(mo_rules *r, const char *name, const json_t *schema, const json_t *root,
                          const char *where)
{
    const unsigned types = mo_tools_schema_types(schema, root);
    const json_t *values = json_object_get(schema, "enum"), *value = json_object_get(schema, "const");
    if (json_array_size(values) > 0) {
        choice(r, name, values);
    } else if (value) {
        json_t *one = json_pack("[O]", value);
        choice(r, name, one);
        json_decref(one);
    } else if (types == MO_TYPE_OBJECT && json_object_get(schema, "properties") && strlen(name) < 100) {
        members(r, name, schema, root, where);
    } else if (!schema || types == MO_TYPE_OBJECT) {
        mo_rules_add(r, "%s ::= gemma-object\n", name);
    } else if (types == MO_TYPE_ARRAY && strlen(name) < 100) {
        char child[160], place[512];
        snprintf(child, sizeof child, "%s-item", name);
        snprintf(place, sizeof place, "%.400s/items", where);
        mo_gemma_rules_value(r, child, json_object_get(schema, "items"), root, place);
        mo_rules_add(r, "%s ::= \"[\" (%s (\",\" %s)*)? \"]\"\n", name, child, child);
        if (json_object_get(schema, "minItems") || json_object_get(schema, "maxItems")) {
            mo_rules_miss(r, where, "minItems and maxItems");
        }
    } else if (types == MO_TYPE_STRING) {
        static const char *const limits[] = {"pattern", "format", "minLength", "maxLength"};
        mo_rules_add(r, "%s ::= gemma-string\n", name);
        for (size_t i = 0; i < 4; i++) {
            if (json_object_get(schema, limits[i])) {
                mo_rules_miss(r, where, limits[i]);
            }
        }
    } else if (types && !(types & (MO_TYPE_STRING | MO_TYPE_OBJECT | MO_TYPE_ARRAY))) {
        mo_rules_schema(r, name, schema, root, where); /* such values are JSON */
    } else {
        mo_rules_add(r, "%s ::= gemma-any\n", name);
        if (types || json_object_get(schema, "$ref")) {
            mo_rules_miss(r, where, "the types of a union or reference");
        }
    }
}
