/* Reply: what a model generates, taken apart while it streams: its reasoning, and the answer. Goes by the
 * special tokens of the chat format; a format without reasoning is all answer. Names of channels, roles
 * and the newlines around a thought are left out.
 *
 * One thread at a time. */
#ifndef MO_TEXT_REPLY_H
#define MO_TEXT_REPLY_H

#include "text/chat.h"
#include "text/stream.h"

typedef enum mo_reply_part { MO_REPLY_ANSWER, MO_REPLY_THOUGHT, MO_REPLY_HEADER } mo_reply_part;

typedef struct mo_reply {
    mo_stream stream;
    mo_chat_format format;
    mo_reply_part part;
    bool fresh;       /* at the beginning of a part: newlines are left out */
    char channel[32]; /* harmony: the name so far */
    size_t channel_length;
    int32_t open, close, message, end; /* the tokens that matter, -1: none */
} mo_reply;

/* thinking: as in the options the prompt was rendered with. t must outlive the reply. */
void mo_reply_init(mo_reply *r, const mo_tokenizer *t, mo_chat_format format, bool thinking);
void mo_reply_free(mo_reply *r);

/* The text that the id completes, perhaps none, and whether it is reasoning; as mo_stream_put(). */
mo_status mo_reply_put(mo_reply *r, int32_t id, mo_text *out, bool *thought, mo_error *err);

/* What still waits, as mo_stream_flush(). */
mo_status mo_reply_flush(mo_reply *r, mo_text *out, bool *thought, mo_error *err);

#endif
