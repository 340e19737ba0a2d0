/* Reply: what a model generates, taken apart while it streams: text, thoughts, tool calls. Marks that are control tokens of
 * the vocabulary are known by the token; all others by their letters, however the text is cut. mo_reply_put() and its
 * kin are as moraine.h says.
 *
 * One thread at a time. */
#ifndef MO_DIALOGUE_REPLY_H
#define MO_DIALOGUE_REPLY_H

#include "dialogue/reading.h"
#include "text/stream.h"

enum { MO_REPLY_MARKS = 40, MO_REPLY_MARK_BYTES = 48 };

struct mo_reply {
    mo_stream stream;
    mo_tools *tools; /* NULL: none */
    mo_reading reading;
    mo_piece_list pieces;
    mo_mark marks[MO_REPLY_MARKS]; /* of thoughts and calls */
    size_t mark_count;
    bool by_token
        [MO_REPLY_MARKS]; /* the mark is a control token: its letters in a token's text are only text */
    bool letters;         /* text is put, not tokens */
    bool begins[256];     /* some mark begins with the byte */
    char pending[MO_REPLY_MARK_BYTES]; /* what may be the beginning of a mark */
    size_t pending_length;
    int32_t *thought_end;
    size_t thought_end_count;
};

/* t (NULL: only texts will be put) must outlive the reply. options are read: mo_options_read() has been done. */
mo_status mo_reply_init(mo_reply *r, const mo_tokenizer *t, mo_dialogue dialogue,
                        const mo_reply_options *options, mo_error *err);
void mo_reply_free(mo_reply *r);

#endif
