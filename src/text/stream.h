/* Stream: token ids to text while they are generated. What comes out is valid UTF-8 at every moment: the
 * beginning of a character waits for the rest. Bytes that cannot become a character are replaced by
 * U+FFFD, one for each byte that no valid character can begin with or continue; so is what still waits
 * when the stream is flushed. An id out of range is MO_EINVAL.
 *
 * One thread at a time. */
#ifndef MO_TEXT_STREAM_H
#define MO_TEXT_STREAM_H

#include "moraine_server.h"
#include "text/tokenizer.h"

struct mo_stream {
    const mo_tokenizer *tokenizer; /* must outlive the stream */
    unsigned flags;                /* of MO_DETOKENIZE_ */
    bool begun;
    uint8_t waiting[4];
    size_t waiting_count;
    char *text; /* space for what a call returns */
    size_t capacity;
};

/* flags: MO_DETOKENIZE_SPECIAL, MO_DETOKENIZE_CONTINUE. Nothing is allocated yet. */
void mo_stream_init(mo_stream *s, const mo_tokenizer *t, unsigned flags);
void mo_stream_free(mo_stream *s);

/* The same as mo_stream_put() for bytes instead of a token; the stream needs no tokenizer then. */
mo_status mo_stream_put_bytes(mo_stream *s, const char *bytes, size_t length, mo_text *out, mo_error *err);

/* mo_stream_put() and mo_stream_flush() are those of moraine.h. After a flush the stream can be used again. */

#endif
