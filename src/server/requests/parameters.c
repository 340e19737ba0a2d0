/* Parameters: see parameters.h. */
#include "server/requests/parameters.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/seed.h"

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

srv_parameters srv_parameters_default(void)
{
    srv_parameters p = {.generation = mo_generation_options_default(), .n = 1, .cache_prompt = true};
    mo_generation_options_recommend(NULL, &p.generation);
    return p;
}

void srv_parameters_free(srv_parameters *p)
{
    free(p->bias);
    mo_free(p->prediction);
    p->bias = NULL;
    p->prediction = NULL;
    p->generation.prediction = NULL;
    p->generation.prediction_count = 0;
    p->generation.bias = NULL;
    p->generation.bias_count = 0;
}

void srv_parameters_seed(srv_parameters *p)
{
    if (!p->seeded) {
        p->generation.seed = mo_seed_draw();
    }
}

/* ---- Sampling ---- */

static bool read_seed(srv_field f, srv_parameters *p)
{
    int64_t seed = -1;
    const double real = json_is_real(f.value) ? json_real_value(f.value) : 0;
    if (fabs(real) >= 0x1p63) { /* some clients draw 64 bits without a sign: any number will do */
        memcpy(&p->generation.seed, &real, sizeof real);
        p->seeded = true;
        return true;
    }
    if (!srv_read_int(f, INT64_MIN, INT64_MAX, &seed)) {
        return false;
    }
    if (f.value && seed != -1 && seed != 0xffffffff) { /* llama-server's two ways to say random */
        p->generation.seed = seed;
        p->seeded = true;
    } else if (f.value) {
        p->seeded = false;
    }
    return true;
}

/* llama-server's: those that the list does not name are not used. */
bool srv_adapters_read(const srv_field *list, mo_adapter_use *adapters, int count)
{
    if (!list->value) {
        return true;
    }
    if (!srv_is_list(*list)) {
        return false;
    }
    if (srv_count(list) > 0 && count == 0) {
        return srv_wrong(list, "the server was started without adapters; the list must be empty");
    }
    for (int i = 0; i < count; i++) {
        adapters[i].scale = 0.0f;
    }
    for (size_t i = 0; i < srv_count(list); i++) {
        const srv_field item = srv_element(list, i);
        const srv_field id_entry = srv_member(&item, "id");
        int64_t id = -1;
        float scale = 1.0f;
        if (!srv_is_object(item) || !srv_read_int(id_entry, 0, count - 1, &id) ||
            !srv_read_float(srv_member(&item, "scale"), -1e6, 1e6, &scale)) {
            return false;
        }
        if (id < 0) {
            return srv_missing(&id_entry);
        }
        adapters[id].scale = scale;
    }
    int used = 0;
    for (int i = 0; i < count; i++) {
        used += adapters[i].scale != 0.0f;
    }
    return used <= SRV_ADAPTERS_USED ||
           srv_wrong(list, "more than 8 adapters have a scale other than 0; omit some");
}

static bool read_adapters(const srv_field *object, srv_parameters *p)
{
    const srv_field list = srv_member(object, "lora");
    p->adapters_asked |= list.value != NULL;
    return srv_adapters_read(&list, p->adapters, p->adapter_count);
}

/* A list of strings without empty ones; *count is how many. */
static bool read_texts(srv_field f, const char **out, size_t most, size_t *count)
{
    *count = 0;
    if (!json_is_array(f.value)) {
        return srv_wrong_type(&f, "a list of strings");
    }
    for (size_t i = 0; i < srv_count(&f); i++) {
        const srv_field element = srv_element(&f, i);
        mo_text text = {"", 0};
        if (!element.value || !srv_read_text(element, &text)) {
            return srv_wrong_type(&element, "a string");
        }
        if (strlen(text.data) != text.length) {
            return srv_wrong(&element, "must not contain a NUL byte");
        }
        if (text.length == 0) { /* it says nothing */
            continue;
        }
        if (*count == most) {
            return srv_wrong(&f, "must have at most %zu strings", most);
        }
        out[(*count)++] = text.data;
    }
    return true;
}

/* The order of samplers: a list of names, or a text with semicolons between them. */
static bool read_order(srv_field f, srv_parameters *p)
{
    const char *names[16];
    size_t count = 1, used = 0;
    if (!f.value) {
        return true;
    }
    if (json_is_string(f.value)) {
        names[0] = json_string_value(f.value);
    } else if (!read_texts(f, names, 16, &count)) {
        return false;
    }
    for (size_t i = 0; i < count && used < sizeof p->samplers; i++) {
        used +=
            (size_t)snprintf(p->samplers + used, sizeof p->samplers - used, "%s%s", i ? ";" : "", names[i]);
    }
    mo_error err;
    if (used >= sizeof p->samplers) {
        return srv_wrong(&f, "is too long; name each sampler once");
    }
    return mo_samplers_check(p->samplers, &err) == MO_OK || srv_wrong(&f, "%s", err.detail);
}

static bool read_breakers(srv_field f, srv_parameters *p)
{
    if (!f.value) {
        return true;
    }
    const bool good = read_texts(f, p->breakers, SRV_STOP_MAX, &p->generation.dry_breaker_count);
    p->no_breakers = good && p->generation.dry_breaker_count == 0;
    return good;
}

/* llama-server's and Ollama's. */
static bool read_more_sampling(const srv_field *object, srv_parameters *p)
{
    mo_generation_options *s = &p->generation;
    const srv_field mirostat = srv_member(object, "mirostat");
    const bool good =
        srv_read_float(srv_member(object, "top_n_sigma"), -1, 1e6, &s->top_n_sigma) &&
        srv_read_float(srv_member_of(object, NAMES("typical_p", "typ_p")), 0, 1, &s->typical_p) &&
        srv_read_float(srv_member(object, "xtc_probability"), 0, 1, &s->xtc_probability) &&
        srv_read_float(srv_member(object, "xtc_threshold"), 0, 1, &s->xtc_threshold) &&
        srv_read_float(srv_member(object, "dynatemp_range"), -1, 1000, &s->dynatemp_range) &&
        srv_read_float(srv_member(object, "dynatemp_exponent"), 0, 1000, &s->dynatemp_exponent) &&
        srv_read_int(mirostat, 0, 2, &s->mirostat) &&
        srv_read_float(srv_member(object, "mirostat_tau"), 0, 1000, &s->mirostat_tau) &&
        srv_read_float(srv_member(object, "mirostat_eta"), 0, 1000, &s->mirostat_eta) &&
        srv_read_float(srv_member(object, "dry_multiplier"), -1, 1e6, &s->dry_multiplier) &&
        srv_read_float(srv_member(object, "dry_base"), 0, 1e6, &s->dry_base) &&
        srv_read_int(srv_member(object, "dry_allowed_length"), 0, INT32_MAX, &s->dry_allowed_length) &&
        srv_read_int(srv_member(object, "dry_penalty_last_n"), -1, INT32_MAX, &s->dry_penalty_last) &&
        read_breakers(srv_member(object, "dry_sequence_breakers"), p) &&
        read_order(srv_member(object, "samplers"), p);
    return good && (s->mirostat != 1 || srv_wrong(&mirostat, "must be 0 (off) or 2"));
}

static bool read_sampling(const srv_field *object, srv_parameters *p)
{
    mo_generation_options *s = &p->generation;
    return srv_read_float(srv_member(object, "temperature"), 0, 1000, &s->temperature) &&
           srv_read_float(srv_member(object, "top_p"), 0, 1, &s->top_p) &&
           srv_read_float(srv_member(object, "min_p"), 0, 1, &s->min_p) &&
           srv_read_int(srv_member(object, "top_k"), -1, INT32_MAX, &s->top_k) &&
           srv_read_float(srv_member(object, "frequency_penalty"), -2, 2, &s->frequency_penalty) &&
           srv_read_float(srv_member(object, "presence_penalty"), -2, 2, &s->presence_penalty) &&
           srv_read_float(srv_member_of(object, NAMES("repeat_penalty", "repetition_penalty")), 0, 100,
                          &s->repeat_penalty) &&
           srv_read_int(srv_member(object, "repeat_last_n"), -1, INT32_MAX, &s->penalty_last) &&
           read_seed(srv_member(object, "seed"), p) && read_more_sampling(object, p) &&
           read_adapters(object, p);
}

/* What the sampler calls by other names. */
static void adjust_sampling(mo_generation_options *s)
{
    s->top_k = s->top_k < 0 ? 0 : s->top_k;
    s->top_p = s->top_p > 0 ? s->top_p : FLT_MIN; /* OpenAI's 0: the likeliest token alone */
    s->repeat_penalty = s->repeat_penalty > 0 ? s->repeat_penalty : 1;
    s->top_n_sigma = s->top_n_sigma > 0 ? s->top_n_sigma : 0; /* below 0: off, as at llama-server */
    s->dynatemp_range = s->dynatemp_range > 0 ? s->dynatemp_range : 0;
    s->dry_multiplier = s->dry_multiplier > 0 ? s->dry_multiplier : 0;
    s->dry_base = s->dry_base >= 1 ? s->dry_base : 1.75F;
    s->dry_allowed_length = s->dry_allowed_length > 0 ? s->dry_allowed_length : 1;
}

/* ---- Biases ---- */

typedef struct bias_list {
    const mo_model *model;
    int64_t vocab;
    mo_logit_bias *items;
    size_t count, capacity;
} bias_list;

static bool bias_add(bias_list *list, const srv_field *f, int64_t token, float bias)
{
    if (token < 0 || token >= list->vocab) {
        return srv_wrong(f, "token %lld is not in the vocabulary of %lld tokens", (long long)token,
                         (long long)list->vocab);
    }
    if (list->count == SRV_BIAS_MAX) {
        return srv_wrong(f, "has more than %d entries", SRV_BIAS_MAX);
    }
    if (!mo_array_reserve(&list->items, &list->capacity, list->count + 1, sizeof *list->items)) {
        return srv_fault_set(f->fault, SRV_FAULT_SERVER, NULL, "out of memory");
    }
    list->items[list->count++] = (mo_logit_bias){(int32_t)token, bias};
    return true;
}

/* All tokens of a text. */
static bool bias_add_text(bias_list *list, const srv_field *f, mo_text text, float bias)
{
    int32_t *ids = NULL;
    size_t count = 0;
    mo_error err;
    if (mo_tokenize(list->model, text.data, text.length, MO_TOKEN_NAMES, &ids, &count, &err) != MO_OK) {
        return srv_fault_status(f->fault, &err, "logit_bias");
    }
    bool good = true;
    for (size_t i = 0; i < count && good; i++) {
        good = bias_add(list, f, ids[i], bias);
    }
    mo_free(ids);
    return good;
}

/* The value of a token: a number, from -100 on never; or false. */
static bool bias_value(const srv_field *f, float *bias)
{
    if (json_is_false(f->value)) {
        *bias = -INFINITY;
        return true;
    }
    if (!json_is_number(f->value)) {
        return srv_wrong_type(f, "a number or false");
    }
    const double value = json_number_value(f->value);
    *bias = value <= -100 ? -INFINITY : (float)value;
    return isfinite(value) && value <= 1e6 ? true : srv_wrong(f, "must be at most 1000000");
}

static bool bias_member(bias_list *list, const srv_field *in, const char *key, size_t length)
{
    const srv_field f = srv_member(in, key);
    if (!f.value) { /* null for a token: nothing */
        return true;
    }
    float bias = 0;
    if (!bias_value(&f, &bias)) {
        return false;
    }
    char *end;
    errno = 0;
    const long long id = strtoll(key, &end, 10);
    return end != key && *end == '\0' && errno == 0 ? bias_add(list, &f, id, bias)
                                                    : bias_add_text(list, &f, (mo_text){key, length}, bias);
}

static bool bias_element(bias_list *list, const srv_field *in, size_t index)
{
    const srv_field f = srv_element(in, index);
    if (!json_is_array(f.value) || srv_count(&f) != 2) {
        return srv_wrong(&f, "must be a list of a token and a bias");
    }
    const srv_field token = srv_element(&f, 0), value = srv_element(&f, 1);
    float bias = 0;
    if (!bias_value(&value, &bias)) {
        return false;
    }
    if (json_is_string(token.value)) {
        return bias_add_text(
            list, &token, (mo_text){json_string_value(token.value), json_string_length(token.value)}, bias);
    }
    return json_is_integer(token.value) ? bias_add(list, &token, json_integer_value(token.value), bias)
                                        : srv_wrong_type(&token, "a token id or a string");
}

static bool read_bias(srv_field f, const mo_model *model, srv_parameters *p)
{
    if (!f.value) {
        return true;
    }
    mo_model_info info;
    mo_model_describe(model, &info, sizeof info);
    bias_list list = {.model = model, .vocab = info.vocab};
    bool good = true;
    if (json_is_object(f.value)) {
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)f.value, key, value)
        {
            good = good && bias_member(&list, &f, key, strlen(key));
        }
    } else if (json_is_array(f.value)) {
        for (size_t i = 0; i < srv_count(&f) && good; i++) {
            good = bias_element(&list, &f, i);
        }
    } else {
        good = srv_wrong_type(&f, "an object or a list");
    }
    free(p->bias);
    p->bias = list.items;
    p->generation.bias = list.items;
    p->generation.bias_count = list.count;
    return good;
}

/* ---- Ends ---- */

static bool read_stop(srv_field f, srv_parameters *p)
{
    if (!f.value) {
        return true;
    }
    p->generation.stop_count = 0;
    if (json_is_string(f.value)) {
        p->stop[0] = json_string_value(f.value);
        p->generation.stop_count = *p->stop[0] != '\0';
        return true;
    }
    if (!json_is_array(f.value)) {
        return srv_wrong_type(&f, "a string or a list of strings");
    }
    return read_texts(f, p->stop, SRV_STOP_MAX, &p->generation.stop_count);
}

static bool read_limits(const srv_field *object, srv_parameters *p)
{
    const srv_field f = srv_member_of(object, NAMES("max_completion_tokens", "max_tokens",
                                                    "max_output_tokens", "n_predict", "num_predict"));
    int64_t *most = &p->generation.max_tokens;
    if (!srv_read_int(f, INT32_MIN, INT64_MAX, most)) {
        return false;
    }
    if (f.value && *most < -2) {
        return srv_wrong(&f, "must be at least -1; -1 means until the context is full");
    }
    *most = *most < 0 ? -1 : *most; /* Ollama's -2: until the window is full, too */
    return read_stop(srv_member_of(object, NAMES("stop", "stop_sequences")), p) &&
           srv_read_bool(srv_member(object, "ignore_eos"), &p->generation.ignore_end);
}

/* ---- Probabilities ---- */

bool srv_probabilities_read(const srv_field *object, srv_dialect dialect, srv_parameters *p)
{
    const srv_field logprobs = srv_member(object, "logprobs"), n_probs = srv_member(object, "n_probs");
    const srv_field top = srv_member(object, "top_logprobs");
    if (json_is_integer(logprobs.value) && dialect != SRV_DIALECT_CHAT) {
        p->logprobs = true;
        return srv_read_int(logprobs, 0, MO_TOP_MAX, &p->top);
    }
    if (!srv_read_bool(logprobs, &p->logprobs) || !srv_read_int(n_probs, 0, INT32_MAX, &p->top) ||
        !srv_read_int(top, 0, MO_TOP_MAX, &p->top)) {
        return false;
    }
    if (top.value && dialect == SRV_DIALECT_CHAT && !p->logprobs && !n_probs.value && p->top > 0) {
        return srv_wrong(&top, "requires logprobs to be true");
    }
    p->logprobs = p->logprobs || (n_probs.value && p->top > 0) ||
                  (dialect != SRV_DIALECT_CHAT && top.value && p->top > 0);
    p->top = p->top > MO_TOP_MAX ? MO_TOP_MAX : p->top; /* n_probs may be larger there; no more are sent */
    const srv_field post = srv_member(object, "post_sampling_probs");
    if (!srv_read_bool(post, &p->post_sampling_probs)) {
        return false;
    }
    return !p->post_sampling_probs || srv_wrong(&post, "is not supported; omit it");
}

/* ---- Streams and extras ---- */

static bool read_stream(const srv_field *object, srv_parameters *p)
{
    const srv_field options = srv_member(object, "stream_options");
    const srv_field ping = srv_member(object, "sse_ping_interval");
    int64_t seconds = 0;
    if (!srv_read_bool(srv_member(object, "stream"), &p->stream) || !srv_is_object(options) ||
        !srv_read_bool(srv_member(&options, "include_usage"), &p->include_usage) ||
        !srv_read_int(ping, -1, 86400, &seconds)) {
        return false;
    }
    if (ping.value) {
        p->heartbeat_ms = seconds > 0 ? seconds * 1000 : -1;
    }
    return true;
}

static bool read_extras(const srv_field *object, srv_parameters *p)
{
    int64_t slot = -1; /* prefixes are found wherever they are: there is nothing to pin */
    return srv_read_int(srv_member_of(object, NAMES("n", "n_cmpl")), 1, SRV_CHOICES_MAX, &p->n) &&
           srv_read_bool(srv_member(object, "cache_prompt"), &p->cache_prompt) &&
           srv_read_int(srv_member(object, "id_slot"), -1, INT32_MAX, &slot) &&
           srv_read_bool(srv_member(object, "return_tokens"), &p->return_tokens) &&
           srv_read_bool(srv_member(object, "timings_per_token"), &p->timings_per_token) &&
           srv_read_bool(srv_member(object, "return_progress"), &p->return_progress) &&
           srv_read_bool(srv_member(object, "verbose"), &p->verbose) &&
           srv_read_bool(srv_member(object, "trace"), &p->trace);
}

bool srv_parameters_read(const srv_field *object, srv_dialect dialect, const mo_model *model,
                         srv_parameters *p)
{
    const bool good = read_sampling(object, p) && read_limits(object, p) &&
                      (dialect == SRV_DIALECT_ANTHROPIC || dialect == SRV_DIALECT_OLLAMA ||
                       srv_probabilities_read(object, dialect, p)) &&
                      read_stream(object, p) && read_extras(object, p) &&
                      read_bias(srv_member(object, "logit_bias"), model, p);
    adjust_sampling(&p->generation);
    return good;
}
