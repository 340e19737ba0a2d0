#include "generation/settings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "api/model.h"
#include "base/clock.h"
#include "base/growing.h"
#include "base/status.h"
#include "sampling/pick.h"

void mo_generation_options_init(mo_generation_options *options, size_t size)
{
    const mo_generation_options defaults = {.size = sizeof defaults,
                                            .temperature = NAN,
                                            .top_p = NAN,
                                            .min_p = NAN,
                                            .top_k = MO_UNSET,
                                            .repeat_penalty = NAN,
                                            .presence_penalty = NAN,
                                            .frequency_penalty = NAN,
                                            .penalty_last = MO_UNSET,
                                            .seed = -1,
                                            .max_tokens = -1,
                                            .thought_tokens = -1,
                                            .logprobs = -1};
    mo_options_write(options, size, &defaults, sizeof defaults);
}

/* ---- Sampling --------------------------------------------------------------------------------- */

static void take_real(float given, float *value)
{
    *value = isnan(given) ? *value : given;
}

static void take_whole(int64_t given, int64_t *value)
{
    *value = given == MO_UNSET ? *value : given;
}

/* Short, so that people can type it. */
static uint64_t random_seed(void)
{
    uint32_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed) {
        seed = (uint32_t)mo_clock_ns();
    }
    return seed;
}

/* What the options say, over what *s is. */
static void take_sampling(const mo_generation_options *o, mo_sampler_options *s)
{
    take_real(o->temperature, &s->temperature);
    take_real(o->top_p, &s->top_p);
    take_real(o->min_p, &s->min_p);
    take_whole(o->top_k, &s->top_k);
    take_real(o->repeat_penalty, &s->repeat_penalty);
    take_real(o->presence_penalty, &s->presence_penalty);
    take_real(o->frequency_penalty, &s->frequency_penalty);
    take_whole(o->penalty_last, &s->penalty_last);
}

void mo_generation_options_recommend(const mo_model *model, mo_generation_options *o)
{
    mo_sampler_options s = mo_sampler_options_default();
    take_sampling(o, &s);
    if (model) {
        mo_model_sampling(model, &s);
    }
    o->temperature = s.temperature;
    o->top_p = s.top_p;
    o->min_p = s.min_p;
    o->top_k = s.top_k;
    o->repeat_penalty = s.repeat_penalty;
    o->presence_penalty = s.presence_penalty;
    o->frequency_penalty = s.frequency_penalty;
    o->penalty_last = s.penalty_last;
}

/* What the caller says over what the file recommends over what is usual. */
static mo_sampler_options sampling_of(const mo_model *model, const mo_generation_options *o, int choice)
{
    mo_sampler_options s = mo_sampler_options_default();
    mo_model_sampling(model, &s);
    take_sampling(o, &s);
    s.seed = (o->seed == -1 ? random_seed() : (uint64_t)o->seed) + (uint64_t)choice;
    return s;
}

/* The caller's biases, and those that forbid the tokens which the vocabulary suppresses, except where the caller names them. */
static bool collect_bias(const mo_model *model, const mo_generation_options *o, mo_generation_settings *set)
{
    size_t forbidden;
    const int32_t *ids = mo_model_suppressed(model, &forbidden);
    uint8_t *named = calloc(1, (size_t)set->vocab / 8 + 1);
    set->bias = malloc(sizeof *set->bias * (o->bias_count + forbidden + 1));
    if (!named || !set->bias) {
        free(named);
        return false;
    }
    if (o->bias_count) {
        memcpy(set->bias, o->bias, sizeof *set->bias * o->bias_count);
    }
    size_t count = set->own_bias = o->bias_count;
    for (size_t i = 0; i < set->own_bias; i++) {
        const int32_t token = set->bias[i].token;
        if (token >= 0 && token < set->vocab) { /* others are refused later */
            named[token / 8] |= (uint8_t)(1U << token % 8);
        }
    }
    for (size_t k = 0; k < forbidden; k++) {
        if (ids[k] < set->vocab && !(named[ids[k] / 8] >> ids[k] % 8 & 1)) {
            set->bias[count++] = (mo_logit_bias){ids[k], -INFINITY};
        }
    }
    free(named);
    set->sampler.bias = set->bias;
    set->sampler.bias_count = count;
    return true;
}

/* ---- Copies ----------------------------------------------------------------------------------- */

static bool copy_text(const char *text, char **out)
{
    *out = text ? strdup(text) : NULL;
    return !text || *out;
}

static bool copy_texts(const mo_generation_options *o, mo_generation_settings *set)
{
    bool ok = copy_text(o->grammar, &set->grammar) && copy_text(o->schema, &set->schema) &&
              copy_text(o->tools, &set->tools) && copy_text(o->tool_choice, &set->tool_choice);
    set->stop = calloc(o->stop_count + 1, sizeof *set->stop);
    ok = ok && set->stop;
    for (size_t i = 0; ok && i < o->stop_count; i++) {
        ok = copy_text(o->stop[i], &set->stop[i]);
        set->stop_count += ok;
    }
    if (ok && set->reply.tools) {
        set->reply_tools = strndup(set->reply.tools, set->reply.tools_length);
        set->reply.tools = set->reply_tools;
        ok = set->reply_tools != NULL;
    }
    return ok;
}

void mo_generation_settings_free(mo_generation_settings *set)
{
    for (size_t i = 0; i < set->stop_count; i++) {
        free(set->stop[i]);
    }
    free(set->stop);
    free(set->bias);
    free(set->grammar);
    free(set->schema);
    free(set->tools);
    free(set->tool_choice);
    free(set->reply_tools);
    *set = (mo_generation_settings){0};
}

/* ---- Checks ----------------------------------------------------------------------------------- */

static mo_status check(const mo_generation_options *o, mo_error *err)
{
    if (o->bias_count && !o->bias) {
        return mo_fail(err, MO_EINVAL, "the list of biases is NULL, but it has %zu; give it", o->bias_count);
    }
    if (o->stop_count && !o->stop) {
        return mo_fail(err, MO_EINVAL, "the list of stop strings is NULL, but it has %zu; give it",
                       o->stop_count);
    }
    for (size_t i = 0; i < o->stop_count; i++) {
        if (!o->stop[i]) {
            return mo_fail(err, MO_EINVAL, "stop string %zu is NULL", i);
        }
    }
    if (o->grammar && o->schema) {
        return mo_fail(err, MO_EINVAL, "give `grammar` or `schema`, not both");
    }
    if (o->ignore_end && (o->grammar || o->schema || o->tools)) {
        return mo_fail(err, MO_EINVAL, "`ignore_end` cannot be combined with a grammar, a schema or tools");
    }
    if (o->raw && o->tools) {
        return mo_fail(err, MO_EINVAL, "`raw` text has no calls; give no `tools` with it");
    }
    if (o->tool_choice && !o->tools) {
        return mo_fail(err, MO_EINVAL, "`tool_choice` needs `tools`");
    }
    if (o->logprobs < -1 || o->logprobs > MO_TOP_MAX) {
        return mo_fail(err, MO_EINVAL, "`logprobs` must be -1 (none) to %d, not %d", MO_TOP_MAX, o->logprobs);
    }
    if (o->max_tokens < -1 || o->thought_tokens < -1) {
        return mo_fail(err, MO_EINVAL, "`max_tokens` and `thought_tokens` must be -1 (no limit) or more");
    }
    return MO_OK;
}

/* Is what would be parsed later valid? */
static mo_status try_texts(const mo_generation_settings *set, mo_error *err)
{
    mo_stop *stop = NULL;
    const mo_status status =
        set->stop_count ? mo_stop_open((const char *const *)set->stop, set->stop_count, &stop, err) : MO_OK;
    mo_stop_close(stop);
    if (status == MO_OK && set->stop_count && !set->has_vocabulary) {
        return mo_fail(err, MO_EUNSUPPORTED, "the model has no vocabulary, so no stop string can come");
    }
    return status;
}

mo_status mo_generation_settings_make(const mo_model *model, const mo_generation_options *options,
                                      const mo_generation_extra *extra, mo_generation_settings *out,
                                      mo_error *err)
{
    mo_generation_options o = mo_generation_options_default();
    mo_generation_settings set = {0};
    mo_status status = mo_options_read(&o, sizeof o, options, "mo_generation_options", err);
    *out = set;
    if (status == MO_OK) {
        status = check(&o, err);
    }
    if (status != MO_OK) {
        return status;
    }
    set = (mo_generation_settings){.vocab = model->engine->spec->vocab,
                                   .has_vocabulary = model->tokenizer != NULL,
                                   .sampler = sampling_of(model, &o, extra ? extra->choice : 0),
                                   .max_tokens = o.max_tokens,
                                   .thought_tokens = o.thought_tokens,
                                   .reply = mo_reply_options_default(),
                                   .strict = o.strict,
                                   .single_call = o.single_call,
                                   .raw = o.raw,
                                   .ignore_end = o.ignore_end,
                                   .logprobs = o.logprobs,
                                   .progress = o.progress,
                                   .user = o.user};
    if (extra) {
        set.compiled = extra->grammar;
        set.reply_given = extra->reply != NULL;
        set.reply = extra->reply ? *extra->reply : set.reply;
    }
    if (!set.reply_given && o.tools && (!o.tool_choice || strcmp(o.tool_choice, "none") != 0)) {
        set.reply.tools = o.tools;
        set.reply.tools_length = strlen(o.tools);
        set.reply.single = set.single_call;
    }
    if (!collect_bias(model, &o, &set) || !copy_texts(&o, &set)) {
        status = mo_fail(err, MO_ENOMEM, "out of memory for the options of a generation");
    }
    if (status == MO_OK) {
        status = mo_sampler_options_check(&set.sampler, set.vocab, err);
    }
    if (status == MO_OK) {
        status = try_texts(&set, err);
    }
    if (status != MO_OK) {
        mo_generation_settings_free(&set);
        return status;
    }
    *out = set;
    return MO_OK;
}

/* ---- Grammars --------------------------------------------------------------------------------- */

static mo_status compile_tools(const mo_generation_settings *set, const mo_model *model, bool in_thought,
                               mo_grammar **out, mo_error *err)
{
    mo_tools_options tools = mo_tools_options_default();
    const char *choice = set->tool_choice && strcmp(set->tool_choice, "auto") != 0 ? set->tool_choice : NULL;
    char *rules = NULL;
    mo_status status = MO_OK;
    if (set->schema) {
        mo_grammar_options strict = mo_grammar_options_default();
        strict.strict = set->strict;
        status = mo_schema_gbnf(set->schema, strlen(set->schema), "root", &strict, &rules, NULL, err);
    }
    tools.tools = set->tools;
    tools.tools_length = strlen(set->tools);
    tools.required = choice != NULL;
    tools.name = choice && strcmp(choice, "required") != 0 ? choice : NULL;
    tools.single = set->single_call;
    tools.in_thought = in_thought;
    tools.strict = set->strict;
    tools.text_gbnf = rules ? rules : set->grammar;
    if (status == MO_OK) {
        status = mo_tools_grammar(model, &tools, out, err);
    }
    mo_free(rules);
    return status;
}

mo_status mo_generation_settings_compile(const mo_generation_settings *set, const mo_model *model,
                                         bool in_thought, mo_grammar **out, mo_error *err)
{
    mo_grammar_options options = mo_grammar_options_default();
    *out = NULL;
    if (set->tools && set->reply.tools) {
        return compile_tools(set, model, in_thought, out, err);
    }
    options.strict = set->strict;
    options.answer = !set->raw;
    options.in_thought = in_thought;
    if (set->schema) {
        return mo_grammar_open_schema(model, set->schema, strlen(set->schema), &options, out, err);
    }
    return set->grammar ? mo_grammar_open(model, set->grammar, strlen(set->grammar), &options, out, err)
                        : MO_OK;
}
