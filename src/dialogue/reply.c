/* Reply: finds the marks. A byte waits as long as it may belong to one; the machine (answer.h) says which marks count now. */
#include "dialogue/reply.h"

#include <string.h>

#include "base/growing.h"
#include "base/status.h"
#include "dialogue/answer.h"

/* ---- Beginning ---- */

static void add_mark(mo_reply *r, mo_role role, const char *text)
{
    if (text && r->mark_count < MO_REPLY_MARKS && strlen(text) < MO_REPLY_MARK_BYTES) {
        r->marks[r->mark_count++] = (mo_mark){role, text};
        r->begins[(uint8_t)text[0]] = true;
    }
}

static void add_marks(mo_reply *r, const mo_dialogue *d)
{
    for (const mo_mark *m = d->style->marks; m->text; m++) {
        add_mark(r, m->role, m->text);
    }
    if (d->thought) {
        add_mark(r, MO_ROLE_THOUGHT_OPEN, d->thought->open);
        add_mark(r, MO_ROLE_THOUGHT_CLOSE, d->thought->close);
        add_mark(r, MO_ROLE_AROUND_ANSWER, d->thought->around[0]);
        add_mark(r, MO_ROLE_AROUND_ANSWER, d->thought->around[1]);
    }
}

mo_status mo_reply_init(mo_reply *r, const mo_tokenizer *t, mo_dialogue dialogue,
                        const mo_reply_options *options, mo_error *err)
{
    *r = (mo_reply){0};
    if (options->tools) {
        const mo_status status = mo_tools_open(options->tools, options->tools_length, &r->tools, err);
        if (status != MO_OK) {
            return status;
        }
        if (mo_tools_count(r->tools) == 0) {
            mo_tools_close(r->tools);
            r->tools = NULL;
        }
    }
    mo_stream_init(&r->stream, t, MO_DETOKENIZE_CONTINUE);
    mo_reading_init(&r->reading, dialogue, r->tools, options->in_thought, &r->pieces);
    r->reading.keep_thought = options->keep_thought;
    r->reading.single = options->single;
    add_marks(r, &dialogue);
    for (size_t i = 0; i < r->mark_count && t; i++) {
        const int32_t id = mo_token_find(t, r->marks[i].text);
        r->by_token[i] = mo_token_is_control(t, id) || (dialogue.id == MO_STYLE_HARMONY && id >= 0);
    }
    return MO_OK;
}

void mo_reply_free(mo_reply *r)
{
    mo_stream_free(&r->stream);
    mo_reading_free(&r->reading);
    mo_piece_list_free(&r->pieces);
    mo_tools_close(r->tools);
    free(r->thought_end);
    *r = (mo_reply){0};
}

/* ---- Marks ---- */

/* The mark with one of the roles that the waiting bytes are, or else begin (*begins). */
static const mo_mark *match(const mo_reply *r, unsigned roles, bool *begins)
{
    *begins = false;
    for (size_t i = 0; i < r->mark_count; i++) {
        const mo_mark *m = &r->marks[i];
        if (!(m->role & roles) || (r->by_token[i] && !r->letters) ||
            strncmp(m->text, r->pending, r->pending_length) != 0) {
            continue;
        }
        if (m->text[r->pending_length] == 0) {
            return m;
        }
        *begins = true;
    }
    return NULL;
}

static void release(mo_reply *r)
{
    const char c = r->pending[0];
    memmove(r->pending, r->pending + 1, --r->pending_length);
    mo_answer_byte(&r->reading, c);
}

static void put_byte(mo_reply *r, char c)
{
    if (r->pending_length == 0 && !r->begins[(uint8_t)c]) {
        mo_answer_byte(&r->reading, c);
        return;
    }
    r->pending[r->pending_length++] = c;
    while (r->pending_length > 0) { /* what is released may change which marks count */
        bool begins;
        const mo_mark *m = match(r, mo_answer_roles(&r->reading), &begins);
        if (m) {
            r->pending_length = 0;
            mo_answer_mark(&r->reading, m->role, m->text);
        } else if (begins) {
            return;
        } else {
            release(r);
        }
    }
}

static void put_bytes(mo_reply *r, mo_text text)
{
    for (size_t i = 0; i < text.length; i++) {
        put_byte(r, text.data[i]);
    }
}

static void release_all(mo_reply *r)
{
    while (r->pending_length > 0) {
        release(r);
    }
}

/* Is the token a mark by itself? Some vocabularies call harmony's marks user-defined. */
static bool is_mark(const mo_reply *r, int32_t token)
{
    const mo_tokenizer *t = r->stream.tokenizer;
    if (mo_token_is_control(t, token)) {
        return true;
    }
    const mo_text name = mo_token_text(t, token);
    for (size_t i = 0; i < r->mark_count && r->reading.dialogue.id == MO_STYLE_HARMONY; i++) {
        if (strlen(r->marks[i].text) == name.length && !memcmp(r->marks[i].text, name.data, name.length)) {
            return true;
        }
    }
    return false;
}

/* A control token: a mark, or nothing. What waited is over. */
static mo_status put_control(mo_reply *r, mo_text name, mo_error *err)
{
    const mo_mark *found = NULL, *any = NULL;
    mo_text rest;
    const mo_status status = mo_stream_flush(&r->stream, &rest, err);
    if (status != MO_OK) {
        return status;
    }
    put_bytes(r, rest);
    for (size_t i = 0; i < r->mark_count; i++) {
        if (strlen(r->marks[i].text) == name.length && !memcmp(r->marks[i].text, name.data, name.length)) {
            any = &r->marks[i];
        }
    }
    if (!any) {
        return MO_OK;
    }
    release_all(r);
    for (int turn = 0; turn < 2 && !found; turn++) { /* what was being read may have to be broken off */
        for (size_t i = 0; i < r->mark_count && !found; i++) {
            const mo_mark *m = &r->marks[i];
            found = !strcmp(m->text, any->text) && m->role & mo_answer_roles(&r->reading) ? m : NULL;
        }
        if (!found) {
            mo_answer_break(&r->reading);
        }
    }
    if (found) {
        mo_answer_mark(&r->reading, found->role, found->text);
    }
    return MO_OK;
}

/* ---- The public functions ---- */

static mo_status hand_over(mo_reply *r, mo_status status, const mo_piece **pieces, size_t *count,
                           mo_error *err)
{
    if (status == MO_OK && mo_reading_failed(&r->reading)) {
        status = mo_fail(err, MO_ENOMEM, "out of memory for the pieces of an answer");
    }
    *count = 0;
    *pieces = status == MO_OK ? mo_piece_list_seal(&r->pieces, count) : NULL;
    return status;
}

mo_status mo_reply_put(mo_reply *r, int32_t token, const mo_piece **pieces, size_t *count, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE_AS(err, "reply, pieces, count", r, pieces, count)
    mo_text text;
    mo_status status;
    r->letters = false;
    mo_piece_list_clear(&r->pieces);
    if (is_mark(r, token)) {
        status = put_control(r, mo_token_text(r->stream.tokenizer, token), err);
    } else {
        status = mo_stream_put(&r->stream, token, &text, err);
        if (status == MO_OK) {
            put_bytes(r, text);
        }
    }
    return hand_over(r, status, pieces, count, err);
}

mo_status mo_reply_put_text(mo_reply *r, const char *text, size_t length, const mo_piece **pieces,
                            size_t *count, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE_AS(err, "reply, pieces, count", r, pieces, count)
    if (length > 0) {
        MO_REQUIRE(err, text)
    }
    mo_text whole;
    r->letters = true;
    mo_piece_list_clear(&r->pieces);
    const mo_status status = mo_stream_put_bytes(&r->stream, text, length, &whole, err);
    if (status == MO_OK) {
        put_bytes(r, whole);
    }
    return hand_over(r, status, pieces, count, err);
}

static mo_status end(mo_reply *r, bool cut, const mo_piece **pieces, size_t *count, mo_error *err)
{
    mo_text rest;
    mo_piece_list_clear(&r->pieces);
    const mo_status status = mo_stream_flush(&r->stream, &rest, err);
    if (status == MO_OK &&
        cut) { /* a part of a character, and the beginning of a mark, more likely than not */
        r->pending_length = 0;
    } else if (status == MO_OK) {
        put_bytes(r, rest);
        release_all(r);
    }
    if (status == MO_OK) {
        mo_answer_end(&r->reading, cut);
    }
    return hand_over(r, status, pieces, count, err);
}

mo_status mo_reply_flush(mo_reply *r, const mo_piece **pieces, size_t *count, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE_AS(err, "reply, pieces, count", r, pieces, count)
    return end(r, false, pieces, count, err);
}

mo_status mo_reply_cut(mo_reply *r, const mo_piece **pieces, size_t *count, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE_AS(err, "reply, pieces, count", r, pieces, count)
    return end(r, true, pieces, count, err);
}

bool mo_reply_in_thought(const mo_reply *r)
{
    return mo_answer_in_thought(&r->reading);
}

mo_status mo_reply_thought_end(mo_reply *r, const int32_t **tokens, size_t *count, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE_AS(err, "reply, tokens, count", r, tokens, count)
    const mo_dialogue *d = &r->reading.dialogue;
    *tokens = NULL;
    *count = 0;
    if (!mo_answer_in_thought(&r->reading) || !r->stream.tokenizer) {
        return MO_OK;
    }
    if (!r->thought_end) {
        /* Harmony ends a message, and begins the next one in a channel that is not for thoughts. */
        const char *text = d->id != MO_STYLE_HARMONY ? d->thought->close
                           : r->tools                ? "<|end|><|start|>assistant<|channel|>commentary"
                                                     : "<|end|><|start|>assistant<|channel|>final<|message|>";
        const mo_status status =
            mo_tokenizer_encode(r->stream.tokenizer, text, strlen(text), MO_TOKENIZE_SPECIAL, &r->thought_end,
                                &r->thought_end_count, err);
        if (status != MO_OK) {
            return status;
        }
    }
    *tokens = r->thought_end;
    *count = r->thought_end_count;
    return MO_OK;
}
