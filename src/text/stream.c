/* Stream: at most three bytes are held back. */
#include "text/stream.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/growing.h"
#include "base/status.h"
#include "base/utf8.h"

void mo_stream_init(mo_stream *s, const mo_tokenizer *t, unsigned flags)
{
    *s = (mo_stream){.tokenizer = t, .flags = flags, .begun = flags & MO_DETOKENIZE_CONTINUE};
}

void mo_stream_free(mo_stream *s)
{
    free(s->text);
    *s = (mo_stream){0};
}

/* Makes space for `bytes` of input; each may become three bytes of output. */
static mo_status reserve(mo_stream *s, size_t bytes, mo_error *err)
{
    const size_t want = 3 * (bytes + sizeof s->waiting) + 1;
    return mo_array_reserve(&s->text, &s->capacity, want, 1)
               ? MO_OK
               : mo_fail(err, MO_ENOMEM, "out of memory for %zu bytes of text", want);
}

/* Moves complete characters from the pending bytes to the text. */
static size_t drain(mo_stream *s, size_t used, bool last)
{
    while (s->waiting_count > 0) {
        size_t n = mo_utf8_length(s->waiting, s->waiting_count);
        if (n == 0 && !last && mo_utf8_is_prefix(s->waiting, s->waiting_count)) {
            break;
        }
        if (n > 0) {
            memcpy(s->text + used, s->waiting, n);
            used += n;
        } else {
            memcpy(s->text + used, "\xEF\xBF\xBD", 3);
            used += 3;
            n = 1;
        }
        s->waiting_count -= n;
        memmove(s->waiting, s->waiting + n, s->waiting_count);
    }
    return used;
}

mo_status mo_stream_put_bytes(mo_stream *s, const char *bytes, size_t length, mo_text *out, mo_error *err)
{
    *out = (mo_text){"", 0};
    const mo_status status = reserve(s, length, err);
    if (status != MO_OK) {
        return status;
    }
    size_t used = 0;
    for (size_t i = 0; i < length; i++) {
        s->waiting[s->waiting_count++] = (uint8_t)bytes[i];
        used = drain(s, used, false);
    }
    s->text[used] = 0;
    *out = (mo_text){s->text, used};
    return MO_OK;
}

mo_status mo_stream_put(mo_stream *s, int32_t id, mo_text *out, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE_AS(err, "stream, out", s, out)
    *out = (mo_text){"", 0};
    if (id < 0 || id >= mo_tokenizer_size(s->tokenizer)) {
        return mo_fail(err, MO_EINVAL, "token %d is outside the vocabulary of %d", id,
                       mo_tokenizer_size(s->tokenizer));
    }
    mo_text piece = mo_token_piece(s->tokenizer, id, s->flags & MO_DETOKENIZE_SPECIAL);
    if (!s->begun && !mo_token_is_control(s->tokenizer, id)) {
        s->begun = true;
        if (mo_tokenizer_adds_space(s->tokenizer) && piece.length > 0 && piece.data[0] == ' ') {
            piece.data++;
            piece.length--;
        }
    }
    return mo_stream_put_bytes(s, piece.data, piece.length, out, err);
}

mo_status mo_stream_flush(mo_stream *s, mo_text *out, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE_AS(err, "stream, out", s, out)
    *out = (mo_text){"", 0};
    mo_status status = reserve(s, 0, err);
    if (status == MO_OK) {
        const size_t used = drain(s, 0, true);
        s->text[used] = 0;
        s->begun = s->flags & MO_DETOKENIZE_CONTINUE;
        *out = (mo_text){s->text, used};
    }
    return status;
}
