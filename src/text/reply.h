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

struct mo_reply {
    mo_stream stream;
    mo_chat_format format;
    mo_reply_part part;
    bool fresh;       /* at the beginning of a part: newlines are left out */
    char channel[32]; /* harmony: the name so far */
    size_t channel_length;
    int32_t open, close, message, end; /* the tokens that matter, -1: none */
};

/* thinking: as in the options the prompt was rendered with. t must outlive the reply. */
void mo_reply_init(mo_reply *r, const mo_tokenizer *t, mo_chat_format format, bool thinking);
void mo_reply_free(mo_reply *r);

/* mo_reply_put() and mo_reply_flush() are as moraine.h says. */

#endif
