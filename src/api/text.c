/* The public API of text: tokens and streams. Functions on an open stream are in text/ under their public
 * names. */
#include <stdlib.h>
#include <string.h>

#include "api/model.h"
#include "base/growing.h"
#include "base/status.h"
#include "model/family.h"
#include "moraine_server.h"
#include "text/stream.h"

/* ---- Tokens ---- */

unsigned mo_model_token_flags(int flags)
{
    if (flags & MO_TOKEN_CHAT) {
        return MO_TOKENIZE_CHAT;
    }
    const bool both = flags & MO_TOKEN_SPECIAL;
    return (both || flags & MO_TOKEN_NAMES ? MO_TOKENIZE_SPECIAL : 0u) |
           (both || flags & MO_TOKEN_ENDS ? MO_TOKENIZE_ENDS : 0u);
}

mo_status mo_model_check_flags(int flags, const char *function, mo_error *err)
{
    const int known = MO_TOKEN_SPECIAL | MO_TOKEN_CHAT | MO_TOKEN_NAMES | MO_TOKEN_ENDS;
    return !(flags & ~known) ? MO_OK
                             : mo_refuse(err, "flags", function, "has 0x%x, which is none of mo_token_flags",
                                         (unsigned)(flags & ~known));
}

static mo_status need_tokenizer(const mo_model *model, mo_error *err)
{
    return model->tokenizer ? MO_OK : mo_fail(err, MO_EUNSUPPORTED, "%s", model->no_tokenizer.detail);
}

mo_status mo_tokenize_first(const mo_model *model, const char *text, size_t length, int flags, size_t most,
                            int32_t **ids, size_t *count, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, ids, count)
    if (length > 0) {
        MO_REQUIRE(err, text)
    }
    mo_status status = mo_model_check_flags(flags, __func__, err);
    if (status == MO_OK) {
        status = need_tokenizer(model, err);
    }
    return status != MO_OK
               ? status
               : mo_tokenizer_encode_marked(model->tokenizer, text, length, mo_model_token_flags(flags), NULL,
                                            most, ids, count, err);
}

mo_status mo_tokenize(const mo_model *model, const char *text, size_t length, int flags, int32_t **ids,
                      size_t *count, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, ids, count)
    if (length > 0) {
        MO_REQUIRE(err, text)
    }
    const mo_status status = mo_model_check_flags(flags, __func__, err);
    return status == MO_OK ? mo_tokenize_first(model, text, length, flags, 0, ids, count, err) : status;
}

mo_status mo_tokenize_file(const char *path, const char *text, size_t length, int flags, int32_t **ids,
                           size_t *count, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, path, ids, count)
    if (length > 0) {
        MO_REQUIRE(err, text)
    }
    mo_gguf *g = NULL;
    mo_tokenizer *t = NULL;
    mo_status status = mo_model_check_flags(flags, __func__, err);
    if (status == MO_OK) {
        status = mo_check_path(path, "path", __func__, err);
    }
    if (status == MO_OK) {
        status = mo_gguf_open(path, &g, err);
    }
    if (status == MO_OK) {
        status = mo_family_check_type(g, err);
    }
    if (status == MO_OK) {
        status = mo_tokenizer_create(g, &t, err);
    }
    if (status == MO_OK) {
        status = mo_tokenizer_encode(t, text, length, mo_model_token_flags(flags), ids, count, err);
    }
    mo_tokenizer_destroy(t);
    mo_gguf_close(g);
    return status;
}

mo_text mo_token_bytes(const mo_model *model, int32_t token)
{
    return model->tokenizer ? mo_token_piece(model->tokenizer, token, true) : (mo_text){"", 0};
}

bool mo_token_ends(const mo_model *model, int32_t token)
{
    return model->tokenizer && mo_token_is_end(model->tokenizer, token);
}

const int32_t *mo_model_suppressed(const mo_model *model, size_t *count)
{
    *count = 0;
    return model->tokenizer ? mo_tokenizer_suppressed(model->tokenizer, count) : NULL;
}

/* ---- Streams ---- */

mo_status mo_stream_open(const mo_model *model, mo_stream **out, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, out)
    *out = NULL;
    const mo_status status = need_tokenizer(model, err);
    if (status != MO_OK) {
        return status;
    }
    *out = malloc(sizeof **out);
    if (!*out) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a text stream");
    }
    mo_stream_init(*out, model->tokenizer, MO_DETOKENIZE_CONTINUE);
    return MO_OK;
}

void mo_stream_close(mo_stream *stream)
{
    if (stream) {
        mo_stream_free(stream);
        free(stream);
    }
}
