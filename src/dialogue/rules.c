/* Rules: texts and marks; schemas and texts that end somewhere are made by grammar/. */
#include "dialogue/rules.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/status.h"
#include "grammar/schema.h"
#include "moraine_server.h"

void mo_rules_free(mo_rules *r)
{
    mo_bytes_free(&r->text);
    mo_bytes_free(&r->unenforced);
}

static void check_memory(mo_rules *r)
{
    if (r->status == MO_OK && (r->text.failed || r->unenforced.failed)) {
        r->status = mo_fail(r->err, MO_ENOMEM, "out of memory for the grammar of tools");
    }
}

void mo_rules_add(mo_rules *r, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    mo_bytes_add_text(&r->text, text);
    check_memory(r);
}

void mo_rules_literal(mo_rules *r, const char *text)
{
    mo_bytes_add(&r->text, " \"", 2);
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        char escaped[8];
        if (c == '"' || c == '\\') {
            mo_bytes_add(&r->text, "\\", 1);
        }
        if (c == '\n') {
            mo_bytes_add_text(&r->text, "\\n");
        } else if (c < ' ') {
            snprintf(escaped, sizeof escaped, "\\x%02X", c);
            mo_bytes_add_text(&r->text, escaped);
        } else {
            mo_bytes_add(&r->text, text, 1);
        }
    }
    mo_bytes_add(&r->text, "\"", 1);
    check_memory(r);
}

void mo_rules_mark(mo_rules *r, const char *text)
{
    size_t k = 0;
    while (k < r->mark_count && strcmp(r->marks[k], text) != 0) {
        k++;
    }
    if (k == MO_RULES_MARKS) {
        mo_rules_literal(r, text);
        return;
    }
    r->marks[k] = text;
    r->mark_count += k == r->mark_count;
    mo_rules_add(r, " mark-%zu", k);
}

/* All tokens of the text; one pass through the vocabulary. */
static void mark_rule(mo_rules *r, size_t k)
{
    const char *text = r->marks[k];
    const size_t n = strlen(text);
    bool found = false;
    mo_rules_add(r, "mark-%zu ::=", k);
    if (r->tokenizer && mo_token_find(r->tokenizer, text) >= 0) {
        for (int32_t i = 0; i < mo_tokenizer_size(r->tokenizer); i++) {
            const mo_text t = mo_token_text(r->tokenizer, i);
            if (t.length == n && !memcmp(t.data, text, n)) {
                mo_rules_add(r, "%s <[%d]>", found ? " |" : "", i);
                found = true;
            }
        }
    }
    if (!found) {
        mo_rules_literal(r, text);
    }
    mo_rules_add(r, "\n");
}

void mo_rules_marks(mo_rules *r)
{
    for (size_t k = 0; k < r->mark_count; k++) {
        mark_rule(r, k);
    }
}

void mo_rules_until(mo_rules *r, const char *name, const char *const *marks, size_t count)
{
    char *gbnf = NULL;
    if (r->status == MO_OK) {
        r->status = mo_until_gbnf(marks, count, name, &gbnf, r->err);
    }
    if (r->status == MO_OK) {
        mo_bytes_add_text(&r->text, gbnf);
        mo_bytes_add_text(&r->text, "\n");
        check_memory(r);
    }
    free(gbnf);
}

void mo_rules_miss(mo_rules *r, const char *where, const char *what)
{
    if (r->status == MO_OK && r->strict) {
        r->status = mo_fail(r->err, MO_EUNSUPPORTED,
                            "%s: %s cannot be enforced in the call format of this model", where, what);
    }
    mo_bytes_add_text(&r->unenforced, where);
    mo_bytes_add_text(&r->unenforced, "/");
    mo_bytes_add_text(&r->unenforced, what);
    mo_bytes_add_text(&r->unenforced, "\n");
    check_memory(r);
}

/* The schema by itself, with the definitions that it may refer to. */
static char *dump(const json_t *schema, const json_t *root)
{
    static const char *const shared[] = {"$defs", "definitions"};
    json_t *whole = schema ? json_copy((json_t *)schema) : json_pack("{s:s}", "type", "object");
    for (size_t i = 0; i < 2 && json_is_object(whole); i++) {
        json_t *definitions = json_object_get(root, shared[i]);
        if (definitions && !json_object_get(whole, shared[i])) {
            json_object_set(whole, shared[i], definitions);
        }
    }
    char *text = whole ? mo_json_dump(whole, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    json_decref(whole);
    return text;
}

void mo_rules_schema(mo_rules *r, const char *name, const json_t *schema, const json_t *root,
                     const char *where)
{
    char *gbnf = NULL, *unenforced = NULL, *json = r->status == MO_OK ? dump(schema, root) : NULL;
    if (r->status != MO_OK) {
        return;
    }
    r->status = json ? mo_schema_write(json, strlen(json), name, r->strict, &gbnf, &unenforced, r->err)
                     : mo_fail(r->err, MO_ENOMEM, "out of memory for a schema");
    if (r->status == MO_OK) {
        mo_bytes_add_text(&r->text, gbnf);
        mo_bytes_add_text(&r->text, "\n");
        for (const char *line = unenforced; line && *line;) {
            const char *end = strchrnul(line, '\n');
            mo_bytes_add_text(&r->unenforced, where);
            mo_bytes_add(&r->unenforced, line, (size_t)(end - line));
            mo_bytes_add_text(&r->unenforced, "\n");
            line = *end ? end + 1 : end;
        }
        check_memory(r);
    } else {
        mo_fail_prefix(r->err, r->status, "%s", where);
    }
    free(json);
    free(gbnf);
    free(unenforced);
}
