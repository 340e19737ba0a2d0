#include "grammar/opening.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "grammar/until.h"

enum { STRINGS = 64 };

/* Strings that end free text, as texts and as tokens. */
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
        return mo_fail(err, MO_EINVAL, "at most %d triggers are allowed", STRINGS);
    }
    for (size_t i = 0; i < count; i++) {
        if (!strings || !strings[i] || !strings[i][0]) {
            return mo_fail(err, MO_EINVAL, "trigger %zu is empty", i + 1);
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

/* Writes rules named `name` for free text before `next` (NULL: nothing must follow). */
static mo_status write_free(mo_bytes *w, const ends *e, const char *name, const char *next, mo_error *err)
{
    mo_bytes others = {0};
    mo_bytes_print(&others, " | <[*");
    for (size_t i = 0; i < e->token_count; i++) {
        mo_bytes_print(&others, "-%d", e->tokens[i]);
    }
    mo_bytes_print(&others, "]> %s%s%s", name, next ? " | " : "", next ? next : "");
    mo_status status = others.failed ? mo_fail(err, MO_ENOMEM, "out of memory for a grammar")
                                     : mo_until_write(w, e->texts, e->text_count, name, others.data, err);
    free(others.data);
    return status;
}

/* ---- The form of an answer ---- */

static void write_mark(mo_bytes *w, const mo_tokenizer *t, const char *text)
{
    const int32_t token = mo_token_find(t, text);
    mo_bytes_print(w, " ");
    if (token >= 0 && (mo_token_is_control(t, token) || mo_token_is_user(t, token))) {
        mo_bytes_print(w, "<[%d]>", token);
    } else {
        mo_writer_literal(w, text, strlen(text));
    }
}

/* Rule mo-answer: the reasoning, which the prompt may have begun, and the answer with its marks. */
static mo_status write_answer(mo_bytes *w, const mo_tokenizer *t, const mo_answer_form *form,
                              const char *inner, mo_error *err)
{
    const char *close = form->channels ? "<|end|>" : form->close;
    ends e;
    mo_status status = MO_OK;
    if (!close) {
        mo_bytes_print(w, "mo-answer ::= %s\n", inner);
        return MO_OK;
    }
    status = sort_out(t, &close, 1, &e, err);
    status = status == MO_OK ? write_free(w, &e, "mo-thought", NULL, err) : status;
    mo_bytes_print(w, "mo-answer ::= (");
    if (!form->in_thought && form->channels) {
        write_mark(w, t, "<|channel|>");
        mo_bytes_print(w, " \"analysis\"");
        write_mark(w, t, "<|message|>");
    } else if (!form->in_thought) {
        write_mark(w, t, form->open);
    }
    mo_bytes_print(w, " mo-thought");
    write_mark(w, t, close);
    if (form->channels) {
        write_mark(w, t, "<|start|>");
        mo_bytes_print(w, " \"assistant\"");
    } else {
        mo_bytes_print(w, " [ \\t\\n]{0,4}");
    }
    mo_bytes_print(w, form->in_thought ? ")" : ")?");
    if (form->channels) {
        write_mark(w, t, "<|channel|>");
        mo_bytes_print(w, " \"final\"");
        write_mark(w, t, "<|message|>");
    }
    if (form->around[0]) {
        mo_bytes_print(w, " (");
        write_mark(w, t, form->around[0]);
        mo_bytes_print(w, " %s", inner);
        write_mark(w, t, form->around[1]);
        mo_bytes_print(w, " | %s)\n", inner);
    } else {
        mo_bytes_print(w, " %s\n", inner);
    }
    return status;
}

mo_status mo_opening_write(mo_bytes *w, const mo_tokenizer *tokenizer, const mo_grammar_options *options,
                           const mo_answer_form *form, mo_error *err)
{
    ends e;
    const char *inner = options->trigger_count ? "mo-free" : "root";
    mo_status status = MO_OK;
    mo_writer_end_rules(w);
    if (options->trigger_count) {
        status = sort_out(tokenizer, options->triggers, options->trigger_count, &e, err);
        if (status == MO_OK) {
            status = write_free(w, &e, "mo-free", "root", err);
        }
    }
    if (status == MO_OK && form) {
        status = write_answer(w, tokenizer, form, inner, err);
        inner = "mo-answer";
    }
    if (status == MO_OK && options->after) {
        status = sort_out(tokenizer, &options->after, 1, &e, err);
        if (status == MO_OK) {
            status = write_free(w, &e, "mo-before", NULL, err);
        }
        mo_bytes_print(w, MO_OPENING_ROOT " ::= mo-before");
        write_mark(w, tokenizer, options->after);
        mo_bytes_print(w, " %s\n", inner);
    } else {
        mo_bytes_print(w, MO_OPENING_ROOT " ::= %s\n", inner);
    }
    if (status == MO_OK && w->failed) {
        status = mo_fail(err, MO_ENOMEM, "out of memory for a grammar");
    }
    return status;
}
