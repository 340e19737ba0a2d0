#include "grammar/schema_rules.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

mo_status mo_schema_no_memory(mo_schema_rules *s)
{
    return mo_fail(s->err, MO_ENOMEM, "out of memory for a schema");
}

/* ---- Paths ---- */

static size_t down(mo_schema_rules *s, const char *key, size_t length)
{
    const size_t before = s->path_length;
    char *to = s->path;
    for (size_t i = 0; i <= length; i++) { /* escaped as in JSON pointers */
        const char c = i == 0 ? '/' : key[i - 1];
        const char *text = i > 0 && c == '~' ? "~0" : i > 0 && c == '/' ? "~1" : NULL;
        for (size_t k = 0; k < (text ? 2u : 1u); k++, s->path_length++) {
            if (s->path_length < MO_SCHEMA_PATH - 1) {
                to[s->path_length] = text ? text[k] : c;
            }
        }
    }
    to[s->path_length < MO_SCHEMA_PATH - 1 ? s->path_length : MO_SCHEMA_PATH - 1] = '\0';
    return before;
}

size_t mo_schema_down(mo_schema_rules *s, const char *key)
{
    return down(s, key, strlen(key));
}

size_t mo_schema_down_index(mo_schema_rules *s, size_t index)
{
    char text[32];
    snprintf(text, sizeof text, "%zu", index);
    return mo_schema_down(s, text);
}

void mo_schema_up(mo_schema_rules *s, size_t length)
{
    s->path_length = length;
    s->path[length < MO_SCHEMA_PATH - 1 ? length : MO_SCHEMA_PATH - 1] = '\0';
}

mo_status mo_schema_wrong(mo_schema_rules *s, const char *key, const char *fmt, ...)
{
    char what[300];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    const size_t before = key ? mo_schema_down(s, key) : s->path_length;
    const mo_status status = mo_fail(s->err, MO_EINVAL, "%s: %s", s->path[0] ? s->path : "/", what);
    mo_schema_up(s, before);
    return status;
}

mo_status mo_schema_note(mo_schema_rules *s, const char *key, const char *why)
{
    const size_t before = mo_schema_down(s, key);
    mo_status status = MO_OK;
    if (s->strict) {
        status = mo_fail(s->err, MO_EUNSUPPORTED, "%s: %s", s->path, why);
    } else {
        mo_bytes_print(&s->notes, "%s: %s\n", s->path, why);
        status = s->notes.failed ? mo_schema_no_memory(s) : MO_OK;
    }
    mo_schema_up(s, before);
    return status;
}

mo_status mo_schema_count(mo_schema_rules *s, const json_t *schema, const char *key, int64_t *out)
{
    const json_t *value = json_object_get(schema, key);
    *out = -1;
    if (!value) {
        return MO_OK;
    }
    const double number = json_number_value(value);
    if (!json_is_number(value) || number < 0 || number != (double)(int64_t)(number < 1e15 ? number : 1e15)) {
        if (!json_is_number(value) || number < 1e15) {
            return mo_schema_wrong(s, key, "expected a non-negative integer");
        }
    }
    *out = number < INT32_MAX - 1 ? (int64_t)number : INT32_MAX - 1; /* larger counts are unreachable */
    return MO_OK;
}

/* ---- Rules ---- */

void mo_schema_name(mo_schema_rules *s, char name[MO_RULE_NAME])
{
    snprintf(name, MO_RULE_NAME, "%s-%d", s->prefix, s->next++);
}

mo_status mo_schema_define(mo_schema_rules *s, const char *name, mo_bytes *body)
{
    mo_status status = body->failed ? mo_schema_no_memory(s) : MO_OK;
    if (status == MO_OK) {
        mo_bytes_print(&s->out, "%s ::= ", name);
        if (body->length) {
            mo_bytes_add(&s->out, body->data, body->length);
        }
        mo_bytes_print(&s->out, "\n");
        if (s->out.failed) {
            status = s->out.length > s->out.limit
                         ? mo_fail(s->err, MO_EINVAL, "the schema is too large: its rules exceed %zu bytes",
                                   s->out.limit)
                         : mo_schema_no_memory(s);
        }
    }
    free(body->data);
    *body = (mo_bytes){0};
    return status;
}

json_t *mo_schema_keep(mo_schema_rules *s, json_t *schema)
{
    if (schema && (!s->made || json_array_append_new(s->made, schema) != 0)) {
        return NULL; /* jansson has released it */
    }
    return schema;
}

/* ---- Common rules ---- */

static const struct {
    const char *name, *text; /* @ is replaced by the prefix and '-' */
    mo_common_rule needs[4]; /* ends with MO_COMMON_RULES if fewer than four */
} common[MO_COMMON_RULES] = {
    /* Bounded, because a model might write blanks forever. */
    [MO_RULE_WS] = {"ws", "(\" \" | \"\\n\" [ \\t]{0,20})?", {MO_COMMON_RULES}},
    /* One character. Surrogates only in pairs, and no NUL, which many parsers reject. */
    [MO_RULE_CHAR] =
        {"char",
         "[^\"\\\\\\x00-\\x1F] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" (\"000\" [1-9a-fA-F] | \"00\" [1-9a-fA-F] "
         "[0-9a-fA-F] | \"0\" [1-9a-fA-F] [0-9a-fA-F]{2} | [1-9a-cA-CefEF] [0-9a-fA-F]{3} | [dD] [0-7] "
         "[0-9a-fA-F]{2} | [dD] [89abAB] [0-9a-fA-F]{2} \"\\\\u\" [dD] [c-fC-F] [0-9a-fA-F]{2}))",
         {MO_COMMON_RULES}},
    [MO_RULE_STRING] = {"string", "\"\\\"\" @char* \"\\\"\"", {MO_RULE_CHAR, MO_COMMON_RULES}},
    [MO_RULE_INTEGER] = {"integer", "\"0\" | \"-\"? [1-9] [0-9]{0,14}", {MO_COMMON_RULES}},
    [MO_RULE_NUMBER] = {"number",
                        "\"-\"? (\"0\" | [1-9] [0-9]{0,14}) (\".\" [0-9]{1,15})? ([eE] [-+]? [0-9]{1,2})?",
                        {MO_COMMON_RULES}},
    [MO_RULE_VALUE] = {"value",
                       "@object | @array | @string | @number | \"true\" | \"false\" | \"null\"",
                       {MO_RULE_OBJECT, MO_RULE_ARRAY, MO_RULE_STRING, MO_RULE_NUMBER}},
    [MO_RULE_OBJECT] =
        {"object",
         "\"{\" @ws (@string \":\" @ws @value (\",\" @ws @string \":\" @ws @value)* @ws)? \"}\"",
         {MO_RULE_WS, MO_RULE_STRING, MO_RULE_VALUE, MO_COMMON_RULES}},
    [MO_RULE_ARRAY] = {"array",
                       "\"[\" @ws (@value (\",\" @ws @value)* @ws)? \"]\"",
                       {MO_RULE_WS, MO_RULE_VALUE, MO_COMMON_RULES}},
};

void mo_schema_common(mo_schema_rules *s, mo_common_rule rule, char name[MO_RULE_NAME])
{
    snprintf(name, MO_RULE_NAME, "%s-%s", s->prefix, common[rule].name);
    if (s->common[rule]) {
        return;
    }
    s->common[rule] = true;
    mo_bytes_print(&s->out, "%s ::= ", name);
    for (const char *p = common[rule].text; *p; p++) {
        if (*p == '@') {
            mo_bytes_print(&s->out, "%s-", s->prefix);
        } else {
            mo_bytes_add(&s->out, p, 1);
        }
    }
    mo_bytes_print(&s->out, "\n");
    for (int i = 0; i < 4 && common[rule].needs[i] != MO_COMMON_RULES; i++) {
        char other[MO_RULE_NAME];
        mo_schema_common(s, common[rule].needs[i], other);
    }
}
