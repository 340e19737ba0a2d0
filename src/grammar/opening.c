#include "grammar/opening.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "grammar/until.h"

enum { STRINGS = 64 };

/* Strings that end free text: as texts, and as tokens. */
typedef struct ends {
    const char *texts[STRINGS];
    size_t text_count;
    int32_t tokens[STRINGS];
    size_t token_count;
} ends;

static mo_status sort_out(const mo_tokenizer *t, const char *const *strings, size_t count, ends *out,
                          mo_error *err)
{
    *out = (ends){0};
    if (count > STRINGS) {
        return mo_fail(err, MO_EINVAL, "`triggers`: at most %d are possible", STRINGS);
    }
    for (size_t i = 0; i < count; i++) {
        if (!strings[i] || !strings[i][0]) {
            return mo_fail(err, MO_EINVAL, "`triggers`: string %zu is empty", i + 1);
        }
        const int32_t token = mo_token_find(t, strings[i]);
        if (token >= 0 && (mo_token_is_control(t, token) || mo_token_is_user(t, token))) {
            out->tokens[out->token_count++] = token;
        } else {
            out->texts[out->text_count++] = strings[i];
        }
    }
    return MO_OK;
}

/* Free text, in rules named `name`, before `next` (NULL: nothing has to follow). */
static mo_status write_free(mo_writer *w, const ends *e, const char *name, const char *next, mo_error *err)
{
    mo_writer others = {0};
    mo_writer_print(&others, " | <[*");
    for (size_t i = 0; i < e->token_count; i++) {
        mo_writer_print(&others, "-%d", e->tokens[i]);
    }
    mo_writer_print(&others, "]> %s%s%s", name, next ? " | " : "", next ? next : "");
    mo_status status = others.failed ? mo_fail(err, MO_ENOMEM, "no memory for a grammar")
                                     : mo_until_write(w, e->texts, e->text_count, name, others.text, err);
    free(others.text);
    return status;
}

mo_status mo_opening_write(mo_writer *w, const mo_tokenizer *tokenizer, const mo_grammar_options *options,
                           mo_error *err)
{
    ends e;
    const char *inner = options->trigger_count ? "mo-free" : "root";
    mo_status status = MO_OK;
    mo_writer_print(w, "\n");
    if (options->trigger_count) {
        status = sort_out(tokenizer, options->triggers, options->trigger_count, &e, err);
        if (status == MO_OK) {
            status = write_free(w, &e, "mo-free", "root", err);
        }
    }
    if (status == MO_OK && options->after) {
        status = sort_out(tokenizer, &options->after, 1, &e, err);
        if (status == MO_OK) {
            status = write_free(w, &e, "mo-before", NULL, err);
        }
        mo_writer_print(w, MO_OPENING_ROOT " ::= mo-before ");
        if (status == MO_OK && e.token_count) {
            mo_writer_print(w, "<[%d]>", e.tokens[0]);
        } else {
            mo_writer_literal(w, options->after, strlen(options->after));
        }
        mo_writer_print(w, " %s\n", inner);
    } else {
        mo_writer_print(w, MO_OPENING_ROOT " ::= %s\n", inner);
    }
    if (status == MO_OK && w->failed) {
        status = mo_fail(err, MO_ENOMEM, "no memory for a grammar");
    }
    return status;
}
