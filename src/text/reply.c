/* Reply: a small machine over special tokens.
 *
 *   <think> formats   open = <think>     close = </think>
 *   gemma4            open = <|channel>  close = <channel|>; the first line inside is the channel's name
 *   harmony           open = <|channel|> message = <|message|> end = <|end|>: a header, then a text */
#include "text/reply.h"

#include <string.h>

#include "base/growing.h"

static bool opened_by_prompt(mo_chat_format format, bool thinking)
{
    switch (format) {
    case MO_CHAT_QWEN3_ON:
    case MO_CHAT_DEEPSEEK_R1: return true;
    case MO_CHAT_QWEN35:
    case MO_CHAT_GLM47: return thinking;
    default: return false;
    }
}

void mo_reply_init(mo_reply *r, const mo_tokenizer *t, mo_chat_format format, bool thinking)
{
    *r = (mo_reply){.format = format, .fresh = true, .open = -1, .close = -1, .message = -1, .end = -1};
    mo_stream_init(&r->stream, t, MO_DETOKENIZE_CONTINUE);
    switch (format) {
    case MO_CHAT_HARMONY:
        r->open = mo_token_find(t, "<|channel|>");
        r->message = mo_token_find(t, "<|message|>");
        r->close = mo_token_find(t, "<|start|>");
        r->end = mo_token_find(t, "<|end|>");
        r->part = MO_REPLY_HEADER;
        break;
    case MO_CHAT_GEMMA4:
        r->open = mo_token_find(t, "<|channel>");
        r->close = mo_token_find(t, "<channel|>");
        break;
    case MO_CHAT_NONE:
    case MO_CHAT_CHATML:
    case MO_CHAT_LLAMA3:
    case MO_CHAT_LLAMA31:
    case MO_CHAT_MIXTRAL:
    case MO_CHAT_GEMMA: r->fresh = false; break; /* every byte is the answer's */
    default:
        r->open = mo_token_find(t, "<think>");
        r->close = mo_token_find(t, "</think>");
        r->part = opened_by_prompt(format, thinking) ? MO_REPLY_THOUGHT : MO_REPLY_ANSWER;
    }
}

void mo_reply_free(mo_reply *r)
{
    mo_stream_free(&r->stream);
}

static void enter(mo_reply *r, mo_reply_part part)
{
    r->part = part;
    r->fresh = true;
}

/* Whether the id is one that only steers. */
static bool steer(mo_reply *r, int32_t id)
{
    const bool harmony = r->format == MO_CHAT_HARMONY;
    if (id == r->open || (harmony && (id == r->close || id == r->end))) {
        r->channel_length = 0;
        enter(r, harmony || r->format == MO_CHAT_GEMMA4 ? MO_REPLY_HEADER : MO_REPLY_THOUGHT);
    } else if (id == r->close) {
        enter(r, MO_REPLY_ANSWER);
    } else if (id == r->message) {
        const bool final = r->channel_length >= 5 && !memcmp(r->channel, "final", 5);
        enter(r, final ? MO_REPLY_ANSWER : MO_REPLY_THOUGHT);
    } else {
        return false;
    }
    return true;
}

/* Keeps the header's text to itself; what follows a gemma4 header's line is the thought. */
static void read_header(mo_reply *r, mo_text *text)
{
    if (r->format == MO_CHAT_GEMMA4) {
        const char *newline = memchr(text->data, '\n', text->length);
        if (!newline) {
            text->length = 0;
            return;
        }
        text->length -= (size_t)(newline + 1 - text->data);
        text->data = newline + 1;
        enter(r, MO_REPLY_THOUGHT);
        return;
    }
    for (size_t i = 0; i < text->length && r->channel_length < sizeof r->channel; i++) {
        r->channel[r->channel_length++] = text->data[i];
    }
    text->length = 0;
}

static void deliver(mo_reply *r, mo_text *text, bool *thought)
{
    if (r->part == MO_REPLY_HEADER) {
        read_header(r, text);
    }
    while (r->fresh && text->length > 0 && text->data[0] == '\n') {
        text->data++;
        text->length--;
    }
    if (text->length > 0 && r->part != MO_REPLY_HEADER) {
        r->fresh = false;
    }
    *thought = r->part == MO_REPLY_THOUGHT;
}

mo_status mo_reply_put(mo_reply *r, int32_t id, mo_text *out, bool *thought, mo_error *err)
{
    MO_OWN_ERROR(err)
    mo_status s;
    *thought = r->part == MO_REPLY_THOUGHT;
    const mo_reply_part before = r->part;
    if (id >= 0 && steer(r, id)) { /* a character that still waits is broken, and the ending part's */
        s = mo_stream_flush(&r->stream, out, err);
        out->length = before == MO_REPLY_HEADER ? 0 : out->length;
        return s;
    }
    s = mo_stream_put(&r->stream, id, out, err);
    if (s == MO_OK) {
        deliver(r, out, thought);
    }
    return s;
}

mo_status mo_reply_flush(mo_reply *r, mo_text *out, bool *thought, mo_error *err)
{
    MO_OWN_ERROR(err)
    mo_status s = mo_stream_flush(&r->stream, out, err);
    if (s == MO_OK) {
        deliver(r, out, thought);
    }
    return s;
}
