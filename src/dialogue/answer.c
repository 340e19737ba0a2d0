/* Answer: text, thoughts, and the ways into calls. What is within a call is in call.c. */
#include "dialogue/answer.h"

#include <string.h>

#include "dialogue/call.h"

static bool is_harmony(const mo_reading *r)
{
    return r->dialogue.id == MO_STYLE_HARMONY;
}

bool mo_answer_in_thought(const mo_reading *r)
{
    return r->state == MO_READING_THOUGHT || r->state == MO_READING_THOUGHT_NAME;
}

/* ---- Roles ---- */

static bool looks_for_calls(const mo_reading *r)
{
    return r->calls.tools && !(r->single && r->calls.count > 0);
}

static bool at_line_start(const mo_reading *r)
{
    return r->fresh || r->held.length > 0;
}

static unsigned text_roles(const mo_reading *r)
{
    unsigned roles = 0;
    if (r->dialogue.thought && r->fresh) { /* later it is only written about */
        roles |= MO_ROLE_THOUGHT_OPEN;
    }
    if (r->has_thought && !r->keep_thought) {
        roles |= MO_ROLE_AROUND_ANSWER;
    }
    if (looks_for_calls(r)) {
        roles |= MO_ROLE_SECTION_OPEN | MO_ROLE_CALL_OPEN | MO_ROLE_PYTHON;
        /* Behind a call in a fence it is the closing one. */
        roles |= mo_dialogue_bare(&r->dialogue) && at_line_start(r) && !(r->after_call && r->in_fence)
                     ? MO_ROLE_FENCE
                     : 0;
    }
    if (r->after_call && r->fresh) {
        roles |= MO_ROLE_SECTION_CLOSE | MO_ROLE_CALL_CLOSE;
    }
    return roles;
}

unsigned mo_answer_roles(const mo_reading *r)
{
    const unsigned message = MO_ROLE_START | MO_ROLE_CHANNEL | MO_ROLE_MESSAGE | MO_ROLE_END;
    switch (r->state) {
    case MO_READING_TEXT: return text_roles(r) | message;
    case MO_READING_THOUGHT: /* some models open what the prompt has opened */
        return MO_ROLE_THOUGHT_CLOSE | message | (r->fresh && !r->keep_thought ? MO_ROLE_THOUGHT_OPEN : 0);
    case MO_READING_THOUGHT_NAME: return MO_ROLE_THOUGHT_CLOSE | message;
    case MO_READING_HEADER: return message | MO_ROLE_CONSTRAIN;
    case MO_READING_DROPPED: return message;
    default: return mo_call_roles(r) | (mo_call_in_string(r) ? 0 : message);
    }
}

/* ---- Text ---- */

/* Newlines wait where a mark may follow: next to one they are left out. */
static bool holds_newlines(const mo_reading *r)
{
    const mo_thought *thought = r->dialogue.thought;
    return !is_harmony(r) && (r->calls.tools || (r->has_thought && thought && thought->around[0]));
}

static void text_byte(mo_reading *r, char c)
{
    const bool newline = c == '\n' || c == '\r';
    const char *leftovers = r->in_fence ? "`}];," : "}];,"; /* of a call */
    if (r->after_call && r->fresh && (mo_json_is_space(c) || mo_json_among(c, leftovers))) {
        return;
    }
    if (newline && r->fresh && r->drops) {
        return;
    }
    const bool indents = (c == ' ' || c == '\t') && mo_dialogue_bare(&r->dialogue) && at_line_start(r);
    if ((newline || indents) && holds_newlines(r)) {
        mo_bytes_add(&r->held, &c, 1);
    } else if (c == '{' && mo_dialogue_bare(&r->dialogue) && looks_for_calls(r) && at_line_start(r)) {
        mo_call_begin_object(r, c, true);
    } else {
        mo_reading_put(r, MO_PIECE_TEXT, (mo_text){&c, 1});
    }
}

static void text_mark(mo_reading *r, mo_role role, const char *text)
{
    switch (role) {
    case MO_ROLE_THOUGHT_OPEN:
        if (r->keep_thought) {
            mo_reading_put(r, MO_PIECE_TEXT, (mo_text){text, strlen(text)});
        }
        mo_reading_enter_text(r);
        r->state = r->dialogue.thought->named ? MO_READING_THOUGHT_NAME : MO_READING_THOUGHT;
        r->has_thought = true;
        r->after_call = false;
        break;
    case MO_ROLE_AROUND_ANSWER: mo_reading_enter_text(r); break;
    case MO_ROLE_SECTION_CLOSE:
    case MO_ROLE_CALL_CLOSE: break; /* of the call before */
    default: mo_call_open(r, role, text);
    }
}

/* ---- Thoughts ---- */

static void thought_byte(mo_reading *r, char c)
{
    const bool newline = c == '\n' || c == '\r';
    if (!newline || is_harmony(r) || r->keep_thought) {
        mo_reading_put(r, MO_PIECE_THOUGHT, (mo_text){&c, 1});
    } else if (!r->fresh) {
        mo_bytes_add(&r->held, &c, 1);
    }
}

static void thought_name_byte(mo_reading *r, char c)
{
    if (r->keep_thought) {
        mo_reading_put(r, MO_PIECE_THOUGHT, (mo_text){&c, 1});
    }
    if (c == '\n') {
        r->state = MO_READING_THOUGHT;
        r->fresh = true;
    }
}

static void end_thought(mo_reading *r, const char *text)
{
    if (r->keep_thought) {
        mo_reading_put(r, MO_PIECE_TEXT, (mo_text){text, strlen(text)});
    }
    mo_reading_enter_text(r);
    r->drops = !r->keep_thought;
}

/* ---- Harmony ---- */

static bool is_word(mo_text t, const char *word)
{
    return t.length == strlen(word) && !memcmp(t.data, word, t.length);
}

/* The header is over: what is the message? */
static void begin_message(mo_reading *r)
{
    const mo_text channel = mo_header_channel_name(&r->header);
    mo_text to = mo_header_recipient(&r->header);
    r->fresh = true;
    r->drops = false;
    if (is_word(to, "assistant") || is_word(to, "user")) {
        to.length = 0;
    }
    if (to.length > 0 && looks_for_calls(r)) {
        const bool function = to.length > 10 && !memcmp(to.data, "functions.", 10);
        const mo_text name = function ? (mo_text){to.data + 10, to.length - 10} : to;
        r->state = MO_READING_DROPPED; /* a tool that was not offered */
        if (mo_calls_name_fits(&r->calls, name, !function)) {
            mo_calls_begin(&r->calls, name, (mo_text){"", 0});
            mo_call_begin_arguments(r);
        }
    } else {
        r->state = to.length > 0 || is_word(channel, "analysis") ? MO_READING_THOUGHT : MO_READING_TEXT;
    }
}

static void begin_header(mo_reading *r, mo_role role)
{
    mo_call_close(r, role);
    r->state = MO_READING_HEADER;
    mo_header_clear(&r->header, role != MO_ROLE_END);
    if (role == MO_ROLE_CHANNEL) {
        mo_header_channel(&r->header);
    }
}

static void header_mark(mo_reading *r, mo_role role)
{
    switch (role) {
    case MO_ROLE_CHANNEL: mo_header_channel(&r->header); break;
    case MO_ROLE_CONSTRAIN: mo_bytes_add(&r->header.text, " ", 1); break;
    case MO_ROLE_MESSAGE: begin_message(r); break;
    default: begin_header(r, role);
    }
}

/* Text where no header can be: the answer goes on without one. */
static void header_byte(mo_reading *r, char c)
{
    mo_bytes_add(&r->header.text, &c, 1);
    if (!mo_header_fits(&r->header) || r->header.text.length > 512) {
        r->state = MO_READING_TEXT;
        r->drops = false;
        mo_reading_put(r, MO_PIECE_TEXT, mo_bytes_text(&r->header.text));
    }
}

/* ---- Everything ---- */

void mo_answer_byte(mo_reading *r, char c)
{
    switch (r->state) {
    case MO_READING_TEXT: text_byte(r, c); break;
    case MO_READING_THOUGHT: thought_byte(r, c); break;
    case MO_READING_THOUGHT_NAME: thought_name_byte(r, c); break;
    case MO_READING_HEADER: header_byte(r, c); break;
    case MO_READING_DROPPED: break;
    default:
        if (!mo_call_byte(r, c)) {
            text_byte(r, c);
        }
    }
}

void mo_answer_mark(mo_reading *r, mo_role role, const char *text)
{
    if (r->state == MO_READING_HEADER) {
        header_mark(r, role);
    } else if (role == MO_ROLE_START || role == MO_ROLE_CHANNEL || role == MO_ROLE_END) {
        begin_header(r, role);
    } else if (role == MO_ROLE_MESSAGE) {
        return; /* without a header it says nothing */
    } else if (r->state == MO_READING_TEXT) {
        text_mark(r, role, text);
    } else if (role == MO_ROLE_THOUGHT_OPEN) {
        r->state = r->dialogue.thought->named ? MO_READING_THOUGHT_NAME : MO_READING_THOUGHT;
    } else if (role == MO_ROLE_THOUGHT_CLOSE) {
        end_thought(r, text);
    } else {
        mo_call_mark(r, role, text);
    }
}

void mo_answer_break(mo_reading *r)
{
    if (r->calls.open) {
        mo_call_close(r, 0);
    }
    if (r->state > MO_READING_THOUGHT_NAME && r->state < MO_READING_HEADER) {
        mo_reading_give_up(r);
    }
}

void mo_answer_end(mo_reading *r, bool cut)
{
    if (cut) {
        mo_bytes_clear(&r->held);
    }
    switch (r->state) {
    case MO_READING_TEXT: mo_reading_put(r, MO_PIECE_TEXT, (mo_text){"", 0}); break;
    case MO_READING_THOUGHT: mo_reading_put(r, MO_PIECE_THOUGHT, (mo_text){"", 0}); break;
    case MO_READING_HEADER:
        if (!r->header.begun && !cut) {
            mo_reading_put(r, MO_PIECE_TEXT, mo_bytes_text(&r->header.text));
        }
        break;
    case MO_READING_THOUGHT_NAME:
    case MO_READING_DROPPED: break;
    default: mo_call_end(r, cut);
    }
}
