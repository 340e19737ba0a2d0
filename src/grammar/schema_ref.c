#include "grammar/schema_ref.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool mo_schema_asserts(const char *key)
{
    static const char *const keys[] = {
        "type",
        "enum",
        "const",
        "properties",
        "required",
        "items",
        "prefixItems",
        "minItems",
        "maxItems",
        "uniqueItems",
        "contains",
        "minContains",
        "maxContains",
        "additionalItems",
        "unevaluatedItems",
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "minimum",
        "maximum",
        "multipleOf",
        "anyOf",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "oneOf",
        "allOf",
        "not",
        "if",
        "additionalProperties",
        "propertyNames",
        "minProperties",
        "dependencies",
        "maxProperties",
        "patternProperties",
        "nullable",
        "$ref",
        "$dynamicRef",
        "dependentSchemas",
        "dependentRequired",
        "then",
        "else",
        "$recursiveRef",
        "unevaluatedProperties",
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (strcmp(keys[i], key) == 0) {
            return true;
        }
    }
    return false;
}

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Decodes one part of a JSON pointer in a URI in place. */
static void decode(char *part)
{
    char *to = part;
    for (const char *p = part; *p; p++) {
        if (*p == '%' && hex(p[1]) >= 0 && hex(p[2]) >= 0) {
            *to++ = (char)(hex(p[1]) * 16 + hex(p[2]));
            p += 2;
        } else if (*p == '~' && (p[1] == '0' || p[1] == '1')) {
            *to++ = p[1] == '0' ? '~' : '/';
            p++;
        } else {
            *to++ = *p;
        }
    }
    *to = '\0';
}

mo_status mo_schema_resolve(mo_schema_rules *s, const json_t *schema, json_t **out)
{
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    json_t *at = s->root;
    if (!ref) {
        return mo_schema_wrong(s, "$ref", "expected a string");
    }
    if (ref[0] != '#' || (ref[1] != '\0' && ref[1] != '/')) {
        return mo_schema_wrong(s, "$ref", "'%.100s' is outside the schema; only # and #/... are supported",
                               ref);
    }
    char copy[1024];
    if (strlen(ref) > sizeof copy) {
        return mo_schema_wrong(s, "$ref", "is longer than %zu bytes", sizeof copy);
    }
    snprintf(copy, sizeof copy, "%s", ref + 1);
    for (char *part = copy; at && *part == '/';) {
        char *end = part + 1 + strcspn(part + 1, "/");
        const char kept = *end;
        *end = '\0';
        decode(part + 1);
        if (json_is_array(at)) {
            char *rest;
            const unsigned long index = strtoul(part + 1, &rest, 10);
            at = part[1] && !*rest ? json_array_get(at, index) : NULL;
        } else {
            at = json_object_get(at, part + 1);
        }
        *end = kept;
        part = end;
    }
    if (!at) {
        return mo_schema_wrong(s, "$ref", "'%.100s' does not exist", ref);
    }
    s->path_length = 0;
    for (const char *p = ref + 1; *p && s->path_length < MO_SCHEMA_PATH - 1; p++) {
        s->path[s->path_length++] = *p;
    }
    s->path[s->path_length] = '\0';
    *out = at;
    return MO_OK;
}
