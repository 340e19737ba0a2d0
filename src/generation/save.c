/* Save: a generation with its session's state as bytes, and back: a header, the options and tokens as JSON, a
 * snapshot, and pixels of pictures. The answer's tokens restore the state of grammar, stop strings and
 * parser. Numbers of other types than int64 are stored by their bits, so that all values are exact. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "api/model.h"
#include "base/growing.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/status.h"
#include "engine/session.h"
#include "generation/generation.h"
#include "generation/save_pictures.h"
#include "sampling/pick.h"

typedef struct header {
    char magic[8];
    uint64_t text_bytes, snapshot_bytes; /* the second includes the pixels */
    uint64_t hash;                       /* of the data after the header */
} header;

static const char magic[8] = {'M', 'O', 'G', 'E', 'N', '0', '0', '1'};

/* ---- Writing ---------------------------------------------------------------------------------- */

static uint64_t fingerprint_of(const mo_model *model)
{
    mo_model_info info;
    mo_model_describe(model, &info, sizeof info);
    return info.fingerprint;
}

static int64_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static json_t *text_or_null(const char *text)
{
    return text ? json_string(text) : json_null();
}

static json_t *texts_json(char *const *list, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < count; i++) {
        if (json_array_append_new(array, json_string(list[i])) != 0) {
            json_decref(array);
            array = NULL;
        }
    }
    return array;
}

/* A number of the sampling options, as an integer. */
static json_int_t field_of(const mo_sampler_options *s, const mo_sampling_field *f)
{
    float real;
    int64_t whole;
    if (f->whole) {
        memcpy(&whole, (const char *)s + f->sampler, sizeof whole);
        return whole;
    }
    memcpy(&real, (const char *)s + f->sampler, sizeof real);
    return bits_of(real);
}

static json_t *sampling_json(const mo_generation *g)
{
    const mo_sampler_options *s = &g->set.sampler;
    const mo_sampler_state state = mo_sampler_save(g->sampler);
    json_t *bias = json_array();
    for (size_t i = 0; bias && i < g->set.own_bias; i++) {
        if (json_array_append_new(
                bias, json_pack("[i,I]", s->bias[i].token, (json_int_t)bits_of(s->bias[i].bias))) != 0) {
            json_decref(bias);
            bias = NULL;
        }
    }
    json_t *root = bias ? json_pack("{s:I,s:I,s:I,s:o,s:o,s:o}", "seed", (json_int_t)s->seed, "state",
                                    (json_int_t)state.random, "mu", (json_int_t)bits_of(state.mu), "bias",
                                    bias, "samplers", text_or_null(g->set.samplers), "dry_breakers",
                                    texts_json(g->set.dry_breakers, g->set.dry_breaker_count))
                        : NULL;
    for (int i = 0; root && i < MO_SAMPLING_FIELDS; i++) {
        const mo_sampling_field *f = &mo_sampling_fields[i];
        if (json_object_set_new(root, f->name, json_integer(field_of(s, f))) != 0) {
            json_decref(root);
            root = NULL;
        }
    }
    return root;
}

/* A token that no event has reported. */
static json_t *sampled_json(const mo_sampled *t)
{
    json_t *top = json_array();
    for (int i = 0; top && i < t->top_count; i++) {
        if (json_array_append_new(
                top, json_pack("[i,I]", t->top[i].token, (json_int_t)bits_of(t->top[i].logprob))) != 0) {
            json_decref(top);
            top = NULL;
        }
    }
    return top ? json_pack("{s:i,s:I,s:o}", "id", t->id, "logprob", (json_int_t)bits_of(t->logprob), "top",
                           top)
               : NULL;
}

static json_t *waiting_json(mo_events *events)
{
    size_t count;
    const mo_sampled *list = mo_events_waiting(events, &count);
    json_t *array = json_array();
    for (size_t i = 0; array && i < count; i++) {
        if (json_array_append_new(array, sampled_json(&list[i])) != 0) {
            json_decref(array);
            array = NULL;
        }
    }
    return array;
}

static json_t *tokens_json(const int32_t *tokens, int64_t count)
{
    json_t *array = json_array();
    for (int64_t i = 0; array && i < count; i++) {
        if (json_array_append_new(array, json_integer(tokens[i])) != 0) {
            json_decref(array);
            array = NULL;
        }
    }
    return array;
}

static json_t *drafts_json(const mo_generation_settings *set)
{
    return json_pack("{s:i,s:i,s:I,s:o}", "max", set->draft_max, "min", set->draft_min, "p_min",
                     (json_int_t)bits_of(set->draft_p_min), "prediction",
                     tokens_json(set->prediction, (int64_t)set->prediction_count));
}

static json_t *generation_json(const mo_generation *g)
{
    const mo_generation_settings *set = &g->set;
    return json_pack(
        "{s:I,s:i,s:o,s:o,s:o,s:o,s:o,s:o,s:I,s:I,s:i,s:b,s:b,s:b,s:b,s:o,s:o,s:I,s:I,s:I,s:I,s:i,s:o,s:o}",
        "fingerprint", (json_int_t)fingerprint_of(g->model), "numerics", mo_numerics_version(), "sampling",
        sampling_json(g), "stop", texts_json(set->stop, set->stop_count), "grammar",
        text_or_null(set->grammar), "schema", text_or_null(set->schema), "tools", text_or_null(set->tools),
        "tool_choice", text_or_null(set->tool_choice), "max_tokens", (json_int_t)set->max_tokens,
        "thought_tokens", (json_int_t)set->thought_tokens, "logprobs", set->logprobs, "strict", set->strict,
        "single_call", set->single_call, "raw", set->raw, "ignore_end", set->ignore_end, "drafts",
        drafts_json(set), "tokens", tokens_json(g->tokens, g->count), "prompt", (json_int_t)g->prompt, "held",
        (json_int_t)g->held, "computed", (json_int_t)g->computed, "parsed",
        (json_int_t)mo_events_tokens(g->events), "end", (int)g->end, "waiting", waiting_json(g->events),
        "pictures", mo_saved_pictures_json(g));
}

/* True if every event has been taken. */
static bool is_drained(mo_generation *g)
{
    mo_generation_event event;
    pthread_mutex_lock(&g->lock);
    const bool empty = !g->list_count && (g->list_end == MO_END_NONE || g->end_told);
    pthread_mutex_unlock(&g->lock);
    return empty && g->taken_first == g->taken_count && !mo_events_take(g->events, &event);
}

static mo_status join(const mo_generation *g, const char *text, const uint8_t *snapshot,
                      size_t snapshot_bytes, uint8_t **bytes, size_t *size, mo_error *err)
{
    const size_t rest = snapshot_bytes + mo_saved_pictures_bytes(g);
    header h = {.text_bytes = strlen(text), .snapshot_bytes = rest};
    const size_t total = sizeof h + (size_t)h.text_bytes + rest;
    uint8_t *all = malloc(total);
    if (!all) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a saved generation of %zu bytes", total);
    }
    memcpy(h.magic, magic, sizeof magic);
    memcpy(all + sizeof h, text, (size_t)h.text_bytes);
    memcpy(all + sizeof h + h.text_bytes, snapshot, snapshot_bytes);
    mo_saved_pictures_write(g, all + sizeof h + h.text_bytes + snapshot_bytes);
    h.hash = mo_hash_words(MO_HASH_SEED, all + sizeof h, total - sizeof h);
    memcpy(all, &h, sizeof h);
    *bytes = all;
    *size = total;
    return MO_OK;
}

mo_status mo_generation_save(const mo_generation *generation, uint8_t **bytes, size_t *size, mo_error *err)
{
    mo_generation *g = (mo_generation *)generation; /* looking at events does not take them */
    mo_snapshot *snapshot = NULL;
    uint8_t *state = NULL;
    size_t state_bytes = 0;
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, generation, bytes, size)
    *bytes = NULL;
    *size = 0;
    const mo_session *session = atomic_load(&g->session);
    if (!session) {
        return MO_REFUSE(err, "generation", "has nothing to save; call mo_generation_prompt() first");
    }
    if (g->set.compiled || g->set.reply_given) {
        return mo_fail(err, MO_EUNSUPPORTED, "a generation with a compiled grammar cannot be saved");
    }
    if (g->failure.status != MO_OK || !is_drained(g)) {
        return mo_fail(err, MO_EINVAL,
                       "take all events with mo_generation_next() before saving the generation");
    }
    mo_status status = mo_snapshot_open(session, &snapshot, err);
    if (status == MO_OK) {
        status = mo_snapshot_write(snapshot, &state, &state_bytes, err);
    }
    mo_snapshot_close(snapshot);
    if (status != MO_OK) {
        return status;
    }
    json_t *root = generation_json(g);
    char *text = root ? mo_json_dump(root, JSON_COMPACT) : NULL;
    status = text ? join(g, text, state, state_bytes, bytes, size, err)
                  : mo_fail(err, MO_ENOMEM, "out of memory for a saved generation");
    json_decref(root);
    free(text);
    mo_free(state);
    return status;
}

/* ---- Reading ---------------------------------------------------------------------------------- */

static float real_of(const json_t *object, const char *key)
{
    const uint32_t bits = (uint32_t)json_integer_value(json_object_get(object, key));
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float pair_real(const json_t *pair)
{
    const uint32_t bits = (uint32_t)json_integer_value(json_array_get(pair, 1));
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static int64_t whole_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static mo_status damaged(mo_error *err)
{
    return mo_fail(err, MO_EFORMAT, "the saved generation is damaged, or not one");
}

/* Splits the bytes into validated parts. */
static mo_status split(const uint8_t *bytes, size_t size, json_t **root, const uint8_t **snapshot,
                       size_t *snapshot_bytes, mo_error *err)
{
    header h;
    json_error_t e;
    bool no_memory;
    if (size < sizeof h || memcmp(bytes, magic, sizeof magic) != 0) {
        return damaged(err);
    }
    memcpy(&h, bytes, sizeof h);
    const uint64_t rest = size - sizeof h;
    if (h.text_bytes > rest || h.snapshot_bytes != rest - h.text_bytes ||
        h.hash != mo_hash_words(MO_HASH_SEED, bytes + sizeof h, (size_t)rest)) {
        return damaged(err);
    }
    *root = mo_json_load((const char *)bytes + sizeof h, (size_t)h.text_bytes, 0, &e, &no_memory);
    if (!*root) {
        return no_memory ? mo_fail(err, MO_ENOMEM, "out of memory for a saved generation") : damaged(err);
    }
    size_t pixels;
    const mo_status status =
        mo_saved_pictures_size(json_object_get(*root, "pictures"), (size_t)h.snapshot_bytes, &pixels, err);
    *snapshot = bytes + sizeof h + h.text_bytes;
    *snapshot_bytes = (size_t)h.snapshot_bytes - pixels;
    return status;
}

/* The lists of the saved options. */
typedef struct lists {
    mo_logit_bias *bias;
    const char **stop, **breakers;
    int32_t *prediction;
} lists;

static void lists_free(lists *l)
{
    free(l->bias);
    free(l->stop);
    free(l->breakers);
    free(l->prediction);
}

static bool texts_of(const json_t *array, const char ***out, size_t *count)
{
    *count = json_array_size(array);
    *out = calloc(*count + 1, sizeof **out);
    for (size_t i = 0; *out && i < *count; i++) {
        (*out)[i] = json_string_value(json_array_get(array, i));
    }
    return *out != NULL;
}

static void sampling_of(const json_t *s, mo_generation_options *o)
{
    for (int i = 0; i < MO_SAMPLING_FIELDS; i++) {
        const mo_sampling_field *f = &mo_sampling_fields[i];
        const int64_t whole = whole_of(s, f->name);
        const float real = real_of(s, f->name);
        memcpy((char *)o + f->option, f->whole ? (const void *)&whole : (const void *)&real,
               f->whole ? sizeof whole : sizeof real);
    }
    o->seed = whole_of(s, "seed");
    o->samplers = json_string_value(json_object_get(s, "samplers"));
}

/* Options of speculative decoding; older files have none. */
static bool drafts_of(const json_t *drafts, mo_generation_options *o, lists *l)
{
    const json_t *prediction = json_object_get(drafts, "prediction");
    if (!drafts) {
        return true;
    }
    o->draft_max = (int)whole_of(drafts, "max");
    o->draft_min = (int)whole_of(drafts, "min");
    o->draft_p_min = real_of(drafts, "p_min");
    o->prediction_count = json_array_size(prediction);
    o->prediction = l->prediction = calloc(o->prediction_count + 1, sizeof *l->prediction);
    for (size_t i = 0; l->prediction && i < o->prediction_count; i++) {
        l->prediction[i] = (int32_t)json_integer_value(json_array_get(prediction, i));
    }
    return l->prediction != NULL;
}

/* The original options; lists_free() frees their lists. */
static bool options_of(const json_t *root, mo_generation_options *o, lists *l)
{
    const json_t *s = json_object_get(root, "sampling"), *biases = json_object_get(s, "bias");
    sampling_of(s, o);
    o->max_tokens = whole_of(root, "max_tokens");
    o->thought_tokens = whole_of(root, "thought_tokens");
    o->logprobs = (int)whole_of(root, "logprobs");
    o->strict = json_is_true(json_object_get(root, "strict"));
    o->single_call = json_is_true(json_object_get(root, "single_call"));
    o->raw = json_is_true(json_object_get(root, "raw"));
    o->ignore_end = json_is_true(json_object_get(root, "ignore_end"));
    o->grammar = json_string_value(json_object_get(root, "grammar"));
    o->schema = json_string_value(json_object_get(root, "schema"));
    o->tools = json_string_value(json_object_get(root, "tools"));
    o->tool_choice = json_string_value(json_object_get(root, "tool_choice"));
    o->bias_count = json_array_size(biases);
    o->bias = l->bias = calloc(o->bias_count + 1, sizeof *l->bias);
    for (size_t i = 0; l->bias && i < o->bias_count; i++) {
        const json_t *pair = json_array_get(biases, i);
        l->bias[i] = (mo_logit_bias){(int32_t)json_integer_value(json_array_get(pair, 0)), pair_real(pair)};
    }
    const bool ok = texts_of(json_object_get(root, "stop"), &l->stop, &o->stop_count) &&
                    texts_of(json_object_get(s, "dry_breakers"), &l->breakers, &o->dry_breaker_count) &&
                    drafts_of(json_object_get(root, "drafts"), o, l);
    o->stop = l->stop;
    o->dry_breakers = l->breakers;
    return l->bias && ok;
}

static mo_status check_model(const mo_model *model, const json_t *root, mo_error *err)
{
    if (whole_of(root, "numerics") != mo_numerics_version()) {
        return mo_fail(err, MO_EFORMAT,
                       "the generation was saved with numerics version %lld; this library has %d",
                       (long long)whole_of(root, "numerics"), mo_numerics_version());
    }
    if ((uint64_t)whole_of(root, "fingerprint") != fingerprint_of(model)) {
        return mo_fail(err, MO_EINVAL, "the generation was saved with another model");
    }
    return MO_OK;
}

/* Restores tokens that no event has reported. */
static void restore_waiting(mo_events *events, const json_t *array)
{
    size_t count;
    mo_sampled *list = mo_events_waiting(events, &count);
    for (size_t i = 0; i < count && count == json_array_size(array); i++) {
        const json_t *t = json_array_get(array, i), *top = json_object_get(t, "top");
        list[i].logprob = real_of(t, "logprob");
        for (size_t k = 0; k < json_array_size(top) && k < MO_TOP_MAX; k++) {
            const json_t *pair = json_array_get(top, k);
            list[i].top[k] =
                (mo_logprob){(int32_t)json_integer_value(json_array_get(pair, 0)), pair_real(pair)};
            list[i].top_count = (int)k + 1;
        }
    }
}

/* Replays the answer so far through constraint and parser. */
static mo_status replay(mo_generation *g, const int32_t *tokens, int64_t count, const json_t *root,
                        mo_error *err)
{
    const mo_end end = (mo_end)whole_of(root, "end");
    const int64_t parsed = whole_of(root, "parsed");
    for (int64_t i = g->prompt; i < count; i++) {
        const mo_sampled token = {.id = tokens[i],
                                  .ends = mo_token_ends(g->model, tokens[i]) && !g->set.ignore_end};
        if (g->constraint && !token.ends) {
            const mo_status status = mo_constraint_accept(g->constraint, token.id, err);
            if (status != MO_OK) {
                return status == MO_ENOMEM ? status : damaged(err);
            }
        }
        g->tokens[g->count++] = token.id;
        g->generated++;
        if (i - g->prompt < parsed && mo_events_put(g->events, &token, err) != MO_OK) {
            return err->status;
        }
    }
    restore_waiting(g->events, json_object_get(root, "waiting"));
    if (end != MO_END_NONE) {
        mo_generation_finish(g, end, NULL);
        const mo_status status = mo_events_end(g->events, end, NULL, err);
        if (status != MO_OK) {
            return status;
        }
        g->end_told = true;
    }
    mo_events_forget(g->events);
    return MO_OK;
}

/* The tokens of the file; NULL with err. */
static int32_t *tokens_of(const mo_model *model, const mo_session *session, const json_t *root,
                          int64_t *count, mo_error *err)
{
    const json_t *array = json_object_get(root, "tokens");
    const bool pictures =
        json_is_object(json_object_get(root, "pictures")); /* their rows are numbers below 0 */
    const int64_t prompt = whole_of(root, "prompt"), held = whole_of(root, "held");
    *count = (int64_t)json_array_size(array);
    if (*count < 1 || prompt < 1 || prompt > *count || held < 0 || held > *count) {
        damaged(err);
        return NULL;
    }
    if (*count > session->state.context + 1 || prompt > session->state.context) {
        mo_fail(err, MO_EINVAL,
                "the generation has %lld tokens, but this session holds %lld; increase `context`",
                (long long)*count, (long long)session->state.context);
        return NULL;
    }
    int32_t *tokens = malloc(sizeof *tokens * (size_t)*count);
    if (!tokens) {
        mo_fail(err, MO_ENOMEM, "out of memory for the tokens of a generation");
        return NULL;
    }
    for (int64_t i = 0; i < *count; i++) {
        const int64_t id = json_integer_value(json_array_get(array, (size_t)i));
        const bool row = pictures && i < prompt && id < -1 && id >= INT32_MIN;
        if ((id < 0 && !row) || id >= mo_checkpoint_spec(model->checkpoint)->vocab) {
            free(tokens);
            damaged(err);
            return NULL;
        }
        tokens[i] = (int32_t)id;
    }
    return tokens;
}

static mo_status restore_session(const mo_model *model, mo_session *session, const uint8_t *bytes,
                                 size_t size, mo_error *err)
{
    mo_snapshot *snapshot = NULL;
    mo_status status = mo_snapshot_read(model, bytes, size, &snapshot, err);
    if (status == MO_OK) {
        status = mo_session_restore(session, snapshot, -1, err);
    }
    mo_snapshot_close(snapshot);
    return status;
}

static mo_status load(mo_model *model, mo_session *session, const json_t *root, mo_generation *g,
                      mo_error *err)
{
    int64_t count;
    int32_t *tokens = tokens_of(model, session, root, &count, err);
    if (!tokens) {
        return err->status;
    }
    mo_status status = mo_generation_prompt(g, session, tokens, whole_of(root, "prompt"), err);
    if (status == MO_OK) {
        g->held = whole_of(root, "held");
        g->computed = whole_of(root, "computed");
        const json_t *s = json_object_get(root, "sampling");
        mo_sampler_restore(g->sampler, (mo_sampler_state){(uint64_t)whole_of(s, "state"), real_of(s, "mu")});
        status = replay(g, tokens, count, root, err);
    }
    free(tokens);
    return status;
}

mo_status mo_generation_load(mo_model *model, mo_session *session, const uint8_t *bytes, size_t size,
                             mo_generation **out, mo_error *err)
{
    mo_generation_options o = mo_generation_options_default();
    json_t *root = NULL;
    const uint8_t *snapshot = NULL;
    size_t snapshot_bytes = 0;
    lists l = {0};
    mo_generation *g = NULL;
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, session, bytes, out)
    *out = NULL;
    mo_status status = split(bytes, size, &root, &snapshot, &snapshot_bytes, err);
    if (status == MO_OK) {
        status = check_model(model, root, err);
    }
    if (status == MO_OK && !options_of(root, &o, &l)) {
        status = mo_fail(err, MO_ENOMEM, "out of memory for a saved generation");
    }
    if (status == MO_OK) {
        status = mo_generation_open(model, &o, &g, err);
    }
    if (status == MO_OK) {
        status = mo_saved_pictures_open(g, json_object_get(root, "pictures"), snapshot + snapshot_bytes, err);
    }
    if (status == MO_OK) {
        status = restore_session(model, session, snapshot, snapshot_bytes, err);
    }
    if (status == MO_OK) {
        status = load(model, session, root, g, err);
    }
    json_decref(root);
    lists_free(&l);
    if (status != MO_OK) {
        mo_generation_close(g);
        return status;
    }
    *out = g;
    return MO_OK;
}
