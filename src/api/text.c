/* The public API of text: tokens, streams, conversations. What works on an open stream is implemented in text/
 * under its public name. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/model.h"
#include "base/growing.h"
#include "base/status.h"
#include "moraine_tools.h"
#include "text/conversation.h"
#include "text/stream.h"

/* ---- Tokens ---- */

static unsigned tokenizer_flags(int flags)
{
    if (flags & MO_TOKEN_CHAT) {
        return MO_TOKENIZE_CHAT;
    }
    const bool both = flags & MO_TOKEN_SPECIAL;
    return (both || flags & MO_TOKEN_NAMES ? MO_TOKENIZE_SPECIAL : 0u) |
           (both || flags & MO_TOKEN_ENDS ? MO_TOKENIZE_ENDS : 0u);
}

static mo_status need_tokenizer(const mo_model *model, mo_error *err)
{
    return model->tokenizer ? MO_OK : mo_fail(err, MO_EUNSUPPORTED, "%s", model->no_tokenizer.detail);
}

mo_status mo_tokenize(const mo_model *model, const char *text, size_t length, int flags, int32_t **ids,
                      size_t *count, mo_error *err)
{
    MO_OWN_ERROR(err)
    const mo_status status = need_tokenizer(model, err);
    return status != MO_OK
               ? status
               : mo_tokenizer_encode(model->tokenizer, text, length, tokenizer_flags(flags), ids, count, err);
}

mo_status mo_tokenize_file(const char *path, const char *text, size_t length, int flags, int32_t **ids,
                           size_t *count, mo_error *err)
{
    MO_OWN_ERROR(err)
    mo_gguf *g = NULL;
    mo_tokenizer *t = NULL;
    mo_status status = mo_gguf_open(path, &g, err);
    if (status == MO_OK) {
        status = mo_tokenizer_create(g, &t, err);
    }
    if (status == MO_OK) {
        status = mo_tokenizer_encode(t, text, length, tokenizer_flags(flags), ids, count, err);
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

static const mo_chat_options chat_defaults = {.size = sizeof(mo_chat_options)};

void mo_chat_options_init(mo_chat_options *options, size_t size)
{
    mo_options_write(options, size, &chat_defaults, sizeof chat_defaults);
}

mo_status mo_stream_open(const mo_model *model, mo_stream **out, mo_error *err)
{
    MO_OWN_ERROR(err)
    *out = NULL;
    const mo_status status = need_tokenizer(model, err);
    if (status != MO_OK) {
        return status;
    }
    *out = malloc(sizeof **out);
    if (!*out) {
        return mo_fail(err, MO_ENOMEM, "no memory for a text stream");
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

/* ---- Conversations ---- */

/* With the date of today, unless the caller names one or none. */
static mo_status render(const mo_model *model, const mo_chat_message *messages, size_t count,
                        const mo_chat_options *options, char **text, mo_error *err)
{
    mo_chat_options o = *options;
    char date[16];
    struct tm today;
    const time_t now = time(NULL);
    size_t length;
    strftime(date, sizeof date, "%Y-%m-%d", localtime_r(&now, &today));
    o.date = !o.date ? date : o.date[0] ? o.date : NULL;
    return mo_chat_render(model->chat, messages, count, &o, text, &length, err);
}

mo_status mo_model_chat(const mo_model *model, const mo_message *messages, size_t count,
                        const mo_chat_options *options, char **text, mo_error *err)
{
    mo_chat_options o = chat_defaults;
    MO_OWN_ERROR(err)
    *text = NULL;
    mo_status status = mo_options_read(&o, sizeof o, options, "mo_chat_options", err);
    if (status != MO_OK) {
        return status;
    }
    mo_chat_message *list = calloc(count ? count : 1, sizeof *list);
    if (!list) {
        return mo_fail(err, MO_ENOMEM, "no memory for %zu messages", count);
    }
    for (size_t i = 0; i < count && status == MO_OK; i++) {
        list[i].content = messages[i].content;
        if (!messages[i].role || !mo_chat_role_find(messages[i].role, &list[i].role)) {
            status = mo_fail(err, MO_EINVAL,
                             "message %zu: there is no role '%.40s'; use system, user or assistant", i + 1,
                             messages[i].role ? messages[i].role : "");
        }
    }
    if (status == MO_OK) {
        status = render(model, list, count, &o, text, err);
    }
    free(list);
    return status;
}

mo_status mo_model_chat_json(const mo_model *model, const char *json, size_t length,
                             const mo_chat_options *options, char **text, mo_error *err)
{
    mo_chat_options o = chat_defaults;
    mo_conversation c = {0};
    MO_OWN_ERROR(err)
    *text = NULL;
    mo_status status = mo_options_read(&o, sizeof o, options, "mo_chat_options", err);
    if (status == MO_OK) {
        status = mo_conversation_read(model->chat, json, length, &c, err);
    }
    if (status == MO_OK) {
        status = render(model, c.messages, c.count, &o, text, err);
    }
    mo_conversation_free(&c);
    return status;
}

const char *mo_model_chat_name(const mo_model *model)
{
    return mo_chat_format_name(model->chat);
}
