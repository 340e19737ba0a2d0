/* Stream: token ids to text during generation. The output is always valid UTF-8: an incomplete character is
   held back. Bytes that cannot become a character are replaced by U+FFFD, one for each invalid byte; so is an
   incomplete character when the stream is flushed. An id out of range is MO_EINVAL.

   One thread at a time. */
#ifndef MO_TEXT_STREAM_H
#define MO_TEXT_STREAM_H

#include "moraine_server.h"
#include "text/tokenizer.h"

struct mo_stream {
    const mo_tokenizer *tokenizer; /* must outlive the stream */
    unsigned flags;                /* MO_DETOKENIZE_... */
    bool begun;
    uint8_t waiting[4];
    size_t waiting_count;
    char *text; /* space for the result of a call */
    size_t capacity;
};

/* flags: MO_DETOKENIZE_SPECIAL, MO_DETOKENIZE_CONTINUE. Nothing is allocated yet. */
void mo_stream_init(mo_stream *s, const mo_tokenizer *t, unsigned flags);
void mo_stream_free(mo_stream *s);

/* The same as mo_stream_put(), for bytes instead of a token. The stream needs no tokenizer. */
mo_status mo_stream_put_bytes(mo_stream *s, const char *bytes, size_t length, mo_text *out, mo_error *err);

/* moraine.h declares mo_stream_put() and mo_stream_flush(). After a flush the stream can be used again. */

#endif
