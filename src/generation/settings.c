#include "generation/settings.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "api/model.h"
#include "base/growing.h"
#include "base/seed.h"
#include "base/status.h"
#include "sampling/pick.h"

#define FIELD(name, is_whole)                                                                                \
    {                                                                                                        \
#name, offsetof(mo_generation_options, name), offsetof(mo_sampler_options, name), is_whole           \
    }

const mo_sampling_field mo_sampling_fields[MO_SAMPLING_FIELDS] = {
    FIELD(temperature, false),
    FIELD(top_p, false),
    FIELD(min_p, false),
    FIELD(top_k, true),
    FIELD(repeat_penalty, false),
    FIELD(presence_penalty, false),
    FIELD(frequency_penalty, false),
    FIELD(penalty_last, true),
    FIELD(top_n_sigma, false),
    FIELD(typical_p, false),
    FIELD(xtc_probability, false),
    FIELD(xtc_threshold, false),
    FIELD(dynatemp_range, false),
    FIELD(dynatemp_exponent, false),
    FIELD(mirostat_tau, false),
    FIELD(mirostat_eta, false),
    FIELD(mirostat, true),
    FIELD(dry_multiplier, false),
    FIELD(dry_base, false),
    FIELD(dry_allowed_length, true),
    FIELD(dry_penalty_last, true),
};

void mo_generation_options_init(mo_generation_options *options, size_t size)
{
    mo_generation_options defaults = {.size = sizeof defaults,
                                      .seed = -1,
                                      .max_tokens = -1,
                                      .thought_tokens = -1,
                                      .logprobs = -1,
                                      .draft_max = -1};
    for (int i = 0; i < MO_SAMPLING_FIELDS; i++) {
        const mo_sampling_field *f = &mo_sampling_fields[i];
        const float unset = NAN;
        const int64_t whole_unset = MO_UNSET;
        memcpy((char *)&defaults + f->option, f->whole ? (const void *)&whole_unset : (const void *)&unset,
               f->whole ? sizeof whole_unset : sizeof unset);
    }
    mo_options_write(options, size, &defaults, sizeof defaults);
}

/* ---- Sampling --------------------------------------------------------------------------------- */

/* Copies the values that the caller has set. */
static void take_field(const mo_sampling_field *f, const mo_generation_options *o, mo_sampler_options *s)
{
    float real;
    int64_t whole;
    memcpy(&real, (const char *)o + f->option, sizeof real);
    if (!f->whole && !isnan(real)) {
        memcpy((char *)s + f->sampler, &real, sizeof real);
    }
    if (f->whole) {
        memcpy(&whole, (const char *)o + f->option, sizeof whole);
        if (whole != MO_UNSET) {
            memcpy((char *)s + f->sampler, &whole, sizeof whole);
        }
    }
}

/* Applies the options to *s. */
static void take_sampling(const mo_generation_options *o, mo_sampler_options *s)
{
    for (int i = 0; i < MO_SAMPLING_FIELDS; i++) {
        take_field(&mo_sampling_fields[i], o, s);
    }
}

void mo_generation_options_recommend(const mo_model *model, mo_generation_options *o)
{
    mo_sampler_options s = mo_sampler_options_default();
    take_sampling(o, &s);
    if (model) {
        mo_model_sampling(model, &s);
    }
    for (int i = 0; i < MO_SAMPLING_FIELDS; i++) {
        const mo_sampling_field *f = &mo_sampling_fields[i];
        memcpy((char *)o + f->option, (const char *)&s + f->sampler,
               f->whole ? sizeof(int64_t) : sizeof(float));
    }
}

/* The caller's options override the file's recommendations, which override the defaults. */
static mo_sampler_options sampling_of(const mo_model *model, const mo_generation_options *o, int choice)
{
    mo_sampler_options s = mo_sampler_options_default();
    mo_model_sampling(model, &s);
    take_sampling(o, &s);
    s.seed = (o->seed == -1 ? mo_seed_draw() : (uint64_t)o->seed) + (uint64_t)choice;
    return s;
}

/* Collects the caller's biases, and biases that forbid the vocabulary's suppressed tokens unless the caller
 * names them. */
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
        if (token >= 0 && token < set->vocab) { /* others are rejected later */
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

/* Copies a list of texts; *copied counts the copies. */
static bool copy_list(const char *const *list, size_t count, char ***out, size_t *copied)
{
    *out = calloc(count + 1, sizeof **out);
    bool ok = *out != NULL;
    for (size_t i = 0; ok && i < count; i++) {
        ok = copy_text(list[i], &(*out)[i]);
        *copied += ok;
    }
    return ok;
}

static void free_list(char **list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(list[i]);
    }
    free(list);
}

static bool copy_prediction(const mo_generation_options *o, mo_generation_settings *set)
{
    if (!o->prediction_count) {
        return true;
    }
    set->prediction = malloc(sizeof *set->prediction * o->prediction_count);
    if (!set->prediction) {
        return false;
    }
    memcpy(set->prediction, o->prediction, sizeof *set->prediction * o->prediction_count);
    set->prediction_count = o->prediction_count;
    return true;
}

static bool copy_texts(const mo_generation_options *o, mo_generation_settings *set)
{
    static const char *const breakers[] = {"\n", ":", "\"", "*"};
    const char *const *given = o->dry_breakers ? o->dry_breakers : breakers;
    const size_t given_count = o->dry_breakers ? o->dry_breaker_count : sizeof breakers / sizeof *breakers;
    bool ok = copy_text(o->grammar, &set->grammar) && copy_text(o->schema, &set->schema) &&
              copy_text(o->tools, &set->tools) && copy_text(o->tool_choice, &set->tool_choice) &&
              copy_text(o->samplers, &set->samplers) &&
              copy_list(o->stop, o->stop_count, &set->stop, &set->stop_count) &&
              copy_list(given, given_count, &set->dry_breakers, &set->dry_breaker_count);
    set->sampler.order = set->samplers;
    if (ok && set->reply.tools) {
        set->reply_tools = strndup(set->reply.tools, set->reply.tools_length);
        set->reply.tools = set->reply_tools;
        ok = set->reply_tools != NULL;
    }
    return ok;
}

void mo_generation_settings_free(mo_generation_settings *set)
{
    free_list(set->stop, set->stop_count);
    free_list(set->dry_breakers, set->dry_breaker_count);
    free(set->breakers);
    free(set->samplers);
    free(set->bias);
    free(set->grammar);
    free(set->schema);
    free(set->tools);
    free(set->tool_choice);
    free(set->reply_tools);
    free(set->prediction);
    *set = (mo_generation_settings){0};
}

/* ---- Checks ----------------------------------------------------------------------------------- */

/* Lists with more are not lists. */
#define LIST_MOST ((size_t)1 << 24)

/* A count without a list. */
static mo_status check_lists(const mo_generation_options *o, mo_error *err)
{
    const struct {
        const char *list, *count;
        bool missing;
        size_t value;
    } rules[] = {
        {"bias", "bias_count", !o->bias, o->bias_count},
        {"stop", "stop_count", !o->stop, o->stop_count},
        {"prediction", "prediction_count", !o->prediction, o->prediction_count},
        {"dry_breakers", "dry_breaker_count", !o->dry_breakers, o->dry_breaker_count},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (rules[i].value > LIST_MOST) {
            return mo_fail(err, MO_EINVAL, "`%s` must be at most %zu, not %zu", rules[i].count, LIST_MOST,
                           rules[i].value);
        }
        if (rules[i].value && rules[i].missing) {
            return mo_fail(err, MO_EINVAL, "`%s` is NULL, but `%s` is %zu; give the list", rules[i].list,
                           rules[i].count, rules[i].value);
        }
    }
    for (size_t i = 0; o->dry_breakers && i < o->dry_breaker_count; i++) {
        if (!o->dry_breakers[i] || !*o->dry_breakers[i]) {
            return mo_fail(err, MO_EINVAL, "string %zu of `dry_breakers` is empty", i + 1);
        }
    }
    return MO_OK;
}

static mo_status check(const mo_generation_options *o, mo_error *err)
{
    const mo_status status = check_lists(o, err);
    if (status != MO_OK) {
        return status;
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
    if (o->draft_max < -1) {
        return mo_fail(err, MO_EINVAL, "`draft_max` must be -1 (as the model) or more, not %d", o->draft_max);
    }
    if (o->draft_min < 0) {
        return mo_fail(err, MO_EINVAL, "`draft_min` must be 0 or more, not %d", o->draft_min);
    }
    if (!(o->draft_p_min >= 0.0f && o->draft_p_min <= 1.0f)) {
        return mo_fail(err, MO_EINVAL, "`draft_p_min` must be 0 to 1, not %g", (double)o->draft_p_min);
    }
    if (o->max_tokens < -1) {
        return mo_fail(err, MO_EINVAL, "`max_tokens` must be -1 (no limit) or more, not %lld",
                       (long long)o->max_tokens);
    }
    if (o->thought_tokens < -1) {
        return mo_fail(err, MO_EINVAL, "`thought_tokens` must be -1 (no limit) or more, not %lld",
                       (long long)o->thought_tokens);
    }
    return MO_OK;
}

static bool is_empty_list(const char *json)
{
    static const char space[] = " \t\r\n";
    json += strspn(json, space);
    if (*json != '[') {
        return false;
    }
    json += 1 + strspn(json + 1, space);
    return *json == ']' && !json[1 + strspn(json + 1, space)];
}

/* An empty list of tools is no list, unless a call is required. */
static void drop_empty_tools(mo_generation_options *o)
{
    const char *choice = o->tool_choice ? o->tool_choice : "auto";
    if (o->tools && is_empty_list(o->tools) && (!strcmp(choice, "auto") || !strcmp(choice, "none"))) {
        o->tools = o->tool_choice = NULL;
    }
}

static mo_status check_prediction(const mo_generation_settings *set, mo_error *err)
{
    for (size_t i = 0; i < set->prediction_count; i++) {
        if (set->prediction[i] < 0 || set->prediction[i] >= set->vocab) {
            return mo_fail(err, MO_EINVAL, "`prediction` has token %d, but the vocabulary has %lld tokens",
                           set->prediction[i], (long long)set->vocab);
        }
    }
    return MO_OK;
}

/* Marks the tokens that end a repetition: those that contain a breaker; if no token contains it, the last
 * token of its text. */
static mo_status find_breakers(const mo_model *model, mo_generation_settings *set, mo_error *err)
{
    if (!(set->sampler.dry_multiplier > 0.0f)) {
        return MO_OK;
    }
    set->breakers = calloc((size_t)set->vocab / 32 + 1, sizeof *set->breakers);
    if (!set->breakers) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the options of a generation");
    }
    set->sampler.dry_breakers = set->breakers;
    for (size_t i = 0; i < set->dry_breaker_count && set->has_vocabulary; i++) {
        const char *breaker = set->dry_breakers[i];
        const size_t length = strlen(breaker);
        bool found = false;
        for (int64_t t = 0; t < set->vocab; t++) {
            const mo_text text = mo_token_bytes(model, (int32_t)t);
            if (text.length >= length && memmem(text.data, text.length, breaker, length)) {
                set->breakers[t / 32] |= 1u << (t % 32);
                found = true;
            }
        }
        int32_t *ids = NULL;
        size_t count = 0;
        if (!found && mo_tokenize(model, breaker, length, 0, &ids, &count, err) != MO_OK) {
            return err->status;
        }
        if (count) {
            set->breakers[ids[count - 1] / 32] |= 1u << (ids[count - 1] % 32);
        }
        mo_free(ids);
    }
    return MO_OK;
}

/* Validates texts that are parsed later. */
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
    drop_empty_tools(&o);
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
                                   .draft_max = o.draft_max,
                                   .draft_min = o.draft_min,
                                   .draft_p_min = o.draft_p_min,
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
    if (!collect_bias(model, &o, &set) || !copy_texts(&o, &set) || !copy_prediction(&o, &set)) {
        status = mo_fail(err, MO_ENOMEM, "out of memory for the options of a generation");
    }
    if (status == MO_OK) {
        status = check_prediction(&set, err);
    }
    if (status == MO_OK) {
        status = mo_sampler_options_check(&set.sampler, set.vocab, err);
    }
    if (status == MO_OK) {
        status = find_breakers(model, &set, err);
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

/* The error of a member's text. */
static mo_status blame(const char *member, mo_status status, mo_error *err)
{
    return status == MO_OK || status == MO_ENOMEM ? status : mo_fail_prefix(err, status, "%s", member);
}

/* Lines and columns in the error of a grammar among others are those of all of them; the caller knows only this one. */
static bool is_wrong_alone(const mo_generation_settings *set, const mo_model *model, mo_error *err)
{
    mo_grammar *alone = NULL;
    mo_error own = {.status = MO_OK};
    if (set->grammar &&
        mo_grammar_open(model, set->grammar, strlen(set->grammar), NULL, &alone, &own) != MO_OK) {
        *err = own;
    }
    mo_grammar_close(alone);
    return own.status != MO_OK;
}

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
        status =
            blame("`schema`",
                  mo_schema_gbnf(set->schema, strlen(set->schema), "root", &strict, &rules, NULL, err), err);
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
        if (status != MO_OK) {
            status = is_wrong_alone(set, model, err) ? blame("`grammar`", err->status, err)
                                                     : blame("`tools`", status, err);
        }
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
        return blame("`schema`",
                     mo_grammar_open_schema(model, set->schema, strlen(set->schema), &options, out, err),
                     err);
    }
    return set->grammar
               ? blame("`grammar`",
                       mo_grammar_open(model, set->grammar, strlen(set->grammar), &options, out, err), err)
               : MO_OK;
}
