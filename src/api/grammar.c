/* The public API of constraints: opens grammars. Functions on an open grammar are in grammar/ under their
 * public names. */
#include "grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

#include "api/model.h"
#include "base/growing.h"
#include "base/status.h"
#include "grammar/schema.h"
#include "grammar/writer.h"

static const mo_grammar_options defaults = {.size = sizeof(mo_grammar_options)};

void mo_grammar_options_init(mo_grammar_options *options, size_t size)
{
    mo_options_write(options, size, &defaults, sizeof defaults);
}

mo_status mo_model_masks(mo_model *model, mo_mask_thread **out, mo_error *err)
{
    pthread_mutex_lock(&model->masks_lock);
    const mo_status status = model->masks ? MO_OK : mo_mask_thread_open(&model->masks, err);
    *out = model->masks;
    pthread_mutex_unlock(&model->masks_lock);
    return status;
}

static mo_status prepare(const mo_model *model, const mo_grammar_options *options, mo_grammar_options *own,
                         mo_error *err)
{
    *own = defaults;
    const mo_status status = mo_options_read(own, sizeof *own, options, "mo_grammar_options", err);
    if (status != MO_OK) {
        return status;
    }
    if (!model->lexicon) {
        return mo_fail(err, MO_EUNSUPPORTED, "%s", model->no_tokenizer.detail);
    }
    return mo_lexicon_fill(model->lexicon, err);
}

/* How the model writes an answer; false: as plain text. */
static bool form_of(const mo_model *model, const mo_grammar_options *o, mo_answer_form *out)
{
    static const char *const marks[] = {"<|start|>", "<|channel|>", "<|message|>", "<|end|>"};
    const mo_dialogue *d = &model->dialogue;
    *out = (mo_answer_form){.in_thought = o->in_thought, .channels = d->id == MO_STYLE_HARMONY};
    if (d->thought) {
        out->open = d->thought->open;
        out->close = d->thought->close;
        out->around[0] = d->thought->around[0];
        out->around[1] = d->thought->around[1];
    }
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        out->channels &= mo_token_find(model->tokenizer, marks[i]) >= 0;
    }
    return o->answer;
}

mo_status mo_grammar_open(const mo_model *model, const char *gbnf, size_t length,
                          const mo_grammar_options *options, mo_grammar **out, mo_error *err)
{
    mo_grammar_options own;
    mo_answer_form form;
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, gbnf, out)
    *out = NULL;
    const mo_status status = prepare(model, options, &own, err);
    if (status != MO_OK) {
        return status;
    }
    const bool formed = form_of(model, &own, &form);
    return mo_grammar_make(model->lexicon, gbnf, length, &own, formed ? &form : NULL, NULL, out, err);
}

mo_status mo_grammar_open_schema(const mo_model *model, const char *json, size_t length,
                                 const mo_grammar_options *options, mo_grammar **out, mo_error *err)
{
    mo_grammar_options own;
    mo_answer_form form;
    char *gbnf, *unenforced;
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, json, out)
    *out = NULL;
    mo_status status = prepare(model, options, &own, err);
    if (status == MO_OK) {
        status = mo_schema_write(json, length, "root", own.strict, &gbnf, &unenforced, err);
    }
    if (status == MO_OK) {
        const bool formed = form_of(model, &own, &form);
        status = mo_grammar_make(model->lexicon, gbnf, strlen(gbnf), &own, formed ? &form : NULL, unenforced,
                                 out, err);
        free(gbnf);
    }
    return status;
}

mo_status mo_schema_gbnf(const char *json, size_t length, const char *prefix,
                         const mo_grammar_options *options, char **gbnf, char **unenforced, mo_error *err)
{
    mo_grammar_options own = defaults;
    char *notes = NULL;
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, json, prefix, gbnf)
    *gbnf = NULL;
    mo_status status = mo_options_read(&own, sizeof own, options, "mo_grammar_options", err);
    if (status == MO_OK && !mo_writer_is_name(prefix)) {
        status = mo_fail(err, MO_EINVAL, "the prefix is not a valid rule name; use letters, digits, - and _");
    }
    if (status == MO_OK) {
        status = mo_schema_write(json, length, prefix, own.strict, gbnf, &notes, err);
    }
    if (unenforced) {
        *unenforced = notes;
    } else {
        free(notes);
    }
    return status;
}
