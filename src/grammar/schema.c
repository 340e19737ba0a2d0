#include "grammar/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/nesting.h"
#include "base/status.h"
#include "grammar/gbnf.h"
#include "grammar/schema_value.h"

/* Checked before parsing, because the parser recurses once per level. */
static mo_status check_depth(const char *json, size_t length, mo_error *err)
{
    const size_t deep = mo_nesting_beyond(json, length, 2 * MO_SCHEMA_DEPTH);
    return deep == 0 ? MO_OK
                     : mo_fail(err, MO_EINVAL,
                               "the schema has more than %d levels of lists and objects at byte %zu",
                               2 * MO_SCHEMA_DEPTH, deep);
}

static mo_status parse(const char *json, size_t length, json_t **out, mo_error *err)
{
    const size_t flags = JSON_DECODE_ANY | JSON_REJECT_DUPLICATES;
    json_error_t e;
    bool no_memory;
    if (length > MO_SCHEMA_BYTES) {
        return mo_fail(err, MO_EINVAL, "the schema has %zu bytes; the limit is %d", length, MO_SCHEMA_BYTES);
    }
    const mo_status status = check_depth(json, length, err);
    if (status != MO_OK) {
        return status;
    }
    *out = mo_json_load(json, length, flags, &e, &no_memory);
    if (!*out && !no_memory &&
        json_error_code(&e) == json_error_numeric_overflow) { /* for example 2^64 as a bound */
        *out = mo_json_load(json, length, flags | JSON_DECODE_INT_AS_REAL, &e, &no_memory);
    }
    if (*out) {
        return MO_OK;
    }
    if (no_memory) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a schema");
    }
    return mo_fail(err, MO_EINVAL, "the schema is not JSON: line %d, column %d: %s", e.line, e.column,
                   e.text);
}

/* A schema may directly refer to itself. */
static mo_status check_rules(const mo_bytes *w, const char *prefix, mo_error *err)
{
    mo_syntax_grammar syntax;
    mo_error inner = {MO_OK, {0}};
    const mo_status status = mo_gbnf_parse(w->data, w->length, prefix, NULL, &syntax, &inner);
    if (status == MO_OK) {
        mo_syntax_free(&syntax);
        return MO_OK;
    }
    if (strstr(inner.detail, "left recursion")) {
        return mo_fail(err, MO_EINVAL,
                       "/: the schema refers to itself without a property or an item in between");
    }
    return mo_fail(err, status, "/: the schema is too large: %s", inner.detail);
}

mo_status mo_schema_write(const char *json, size_t length, const char *prefix, bool strict, char **gbnf,
                          char **unenforced, mo_error *err)
{
    mo_schema_rules s = {.prefix = prefix, .strict = strict, .err = err, .out = {.limit = MO_GBNF_BYTES}};
    char name[MO_RULE_NAME];
    *gbnf = *unenforced = NULL;
    mo_status status = parse(json, length, &s.root, err);
    if (status != MO_OK) {
        return status;
    }
    s.made = json_array();
    status = s.made ? mo_schema_rule(&s, s.root, name) : mo_schema_no_memory(&s);
    if (status == MO_OK) {
        mo_bytes body = {0};
        mo_bytes_print(&body, "%s", name);
        status = mo_schema_define(&s, prefix, &body);
    }
    status = status == MO_OK ? check_rules(&s.out, prefix, err) : status;
    mo_schema_forget(&s);
    json_decref(s.made);
    json_decref(s.root);
    if (status == MO_OK && !s.notes.data && !(s.notes.data = calloc(1, 1))) {
        status = mo_fail(err, MO_ENOMEM, "out of memory for a schema");
    }
    if (status != MO_OK) {
        free(s.out.data);
        free(s.notes.data);
        return status;
    }
    *gbnf = s.out.data;
    *unenforced = s.notes.data;
    return MO_OK;
}
