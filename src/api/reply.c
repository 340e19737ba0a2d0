/* The public API of answers and tools. Functions on an open reply are in dialogue/ under their public
 * names. */
#include "dialogue/reply.h"

#include <stdlib.h>
#include <string.h>

#include "api/model.h"
#include "base/growing.h"
#include "base/status.h"
#include "dialogue/call_grammar.h"
#include "dialogue/tools_prompt.h"
#include "grammar/grammar.h"

static const mo_reply_options reply_defaults = {.size = sizeof(mo_reply_options)};

void mo_reply_options_init(mo_reply_options *options, size_t size)
{
    mo_options_write(options, size, &reply_defaults, sizeof reply_defaults);
}

mo_status mo_reply_open(const mo_model *model, const mo_reply_options *options, mo_reply **out, mo_error *err)
{
    mo_reply_options o = reply_defaults;
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, out)
    *out = NULL;
    mo_status status = mo_options_read(&o, sizeof o, options, "mo_reply_options", err);
    if (status == MO_OK && !model->tokenizer) {
        status = mo_fail(err, MO_EUNSUPPORTED, "%s", model->no_tokenizer.detail);
    }
    if (status != MO_OK) {
        return status;
    }
    mo_reply *reply = malloc(sizeof *reply);
    if (!reply) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a reply");
    }
    status = mo_reply_init(reply, model->tokenizer, model->dialogue, &o, err);
    if (status != MO_OK) {
        free(reply);
        return status;
    }
    *out = reply;
    return MO_OK;
}

void mo_reply_close(mo_reply *reply)
{
    if (reply) {
        mo_reply_free(reply);
        free(reply);
    }
}

/* Markers of thoughts have at most a few tokens. */
enum { TAIL = 32 };

bool mo_model_in_thought(const mo_model *model, const int32_t *tokens, size_t count)
{
    char *text = NULL;
    size_t length;
    size_t tail = 0; /* after the last image */
    while (tail < TAIL && tail < count && tokens[count - 1 - tail] >= 0) {
        tail++;
    }
    if (!model->tokenizer || tail == 0 ||
        mo_detokenize(model->tokenizer, tokens + count - tail, tail,
                      MO_DETOKENIZE_SPECIAL | MO_DETOKENIZE_CONTINUE, &text, &length,
                      &(mo_error){0}) != MO_OK) {
        return false;
    }
    const bool in_thought = mo_dialogue_in_thought(&model->dialogue, text, length);
    free(text);
    return in_thought;
}

/* ---- Tools ---- */

const char *mo_model_tool_format(const mo_model *model)
{
    return model->dialogue.style->name;
}

bool mo_model_shows_tools(const mo_model *model)
{
    return model->dialogue.shows_tools;
}

bool mo_model_shows_calls(const mo_model *model)
{
    return model->shows_calls;
}

mo_status mo_tools_text(const mo_model *model, const char *tools, size_t length, bool required, char **text,
                        mo_error *err)
{
    mo_tools *read;
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, tools, text)
    *text = NULL;
    mo_status status = mo_tools_open(tools, length, &read, err);
    if (status == MO_OK) {
        status = mo_tools_prompt_text(&model->dialogue, read, required, text, err);
        mo_tools_close(read);
    }
    return status;
}

static const mo_tools_options tools_defaults = {.size = sizeof(mo_tools_options)};

void mo_tools_options_init(mo_tools_options *options, size_t size)
{
    mo_options_write(options, size, &tools_defaults, sizeof tools_defaults);
}

static mo_status need_lexicon(const mo_model *model, mo_error *err)
{
    return model->lexicon ? mo_lexicon_fill(model->lexicon, err)
                          : mo_fail(err, MO_EUNSUPPORTED, "%s", model->no_tokenizer.detail);
}

mo_status mo_tools_grammar(const mo_model *model, const mo_tools_options *options, mo_grammar **out,
                           mo_error *err)
{
    mo_tools_options o = tools_defaults;
    mo_tools *tools = NULL;
    char *gbnf = NULL, *unenforced = NULL;
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, out)
    *out = NULL;
    mo_status status = mo_options_read(&o, sizeof o, options, "mo_tools_options", err);
    if (status == MO_OK) {
        status = need_lexicon(model, err);
    }
    if (status == MO_OK) {
        status = mo_tools_open(o.tools ? o.tools : "[]", o.tools ? o.tools_length : 2, &tools, err);
    }
    if (status == MO_OK) {
        status =
            mo_call_grammar_write(&model->dialogue, model->tokenizer, tools, &o, &gbnf, &unenforced, err);
    }
    if (status == MO_OK) { /* moves the list of unenforced constraints */
        const mo_grammar_options own = {.size = sizeof own};
        status = mo_grammar_make(model->lexicon, gbnf, strlen(gbnf), &own, NULL, unenforced, out, err);
    }
    free(gbnf);
    mo_tools_close(tools);
    return status;
}

mo_status mo_answer_grammar(const mo_model *model, const char *gbnf, size_t length, bool in_thought,
                            char **out, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, gbnf, out)
    *out = NULL;
    return mo_answer_grammar_write(&model->dialogue, model->tokenizer, gbnf, length, in_thought, out, err);
}
