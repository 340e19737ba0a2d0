/* Reads a profile's JSON. The first pass checks it and computes the memory; the second reads the counts. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/nesting.h"
#include "base/status.h"
#include "profile/json.h"
#include "profile/keys.h"

/* One element of "layers". */
typedef struct seen {
    const json_t *json;
    const json_t *own; /* its part in "moraine", or NULL */
    int32_t number;
    int32_t experts; /* highest expert with picks, plus one */
    bool split;      /* has hot or cold picks: "experts" is ignored */
} seen;

typedef struct parser {
    seen *layers; /* sorted by number; numbers may repeat */
    int count;
    mo_error *err;
} parser;

/* ---- Values ---- */

/* Reads an integer from 0 to max; `otherwise` if missing. False for any other value. */
static bool integer(const json_t *object, const char *key, int64_t max, uint64_t otherwise, uint64_t *out)
{
    const json_t *v = json_object_get(object, key);
    *out = otherwise;
    if (!v) {
        return true;
    }
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > max) {
        return false;
    }
    *out = (uint64_t)json_integer_value(v);
    return true;
}

/* Reads a number; missing and negative ones are 0. */
static bool number(const json_t *object, const char *key, double *out)
{
    const json_t *v = json_object_get(object, key);
    *out = v && json_is_number(v) ? fmax(json_number_value(v), 0) : 0;
    return !v || json_is_number(v);
}

static uint64_t whole(double x)
{
    return x >= 0x1p64 ? UINT64_MAX : x > 0 ? (uint64_t)(x + 0.5) : 0;
}

/* ---- Lists of pairs ---- */

/* Reads element i as expert and count. False if it is not a valid pair of integers. */
static bool pair_at(const json_t *list, size_t i, int32_t *expert, uint64_t *count)
{
    const json_t *pair = json_array_get(list, i);
    const json_t *id = json_array_get(pair, 0), *n = json_array_get(pair, 1);
    if (json_array_size(pair) != 2 || !json_is_integer(id) || !json_is_integer(n) ||
        json_integer_value(id) < 0 || json_integer_value(id) >= MO_PROFILE_ID_MAX ||
        json_integer_value(n) < 0) {
        return false;
    }
    *expert = (int32_t)json_integer_value(id);
    *count = (uint64_t)json_integer_value(n);
    return true;
}

/* Checks a list. Raises *most to the highest expert with a count, plus one. */
static mo_status scan_pairs(const json_t *object, int32_t layer, const char *key, int32_t *most,
                            mo_error *err)
{
    const json_t *list = json_object_get(object, key);
    if (list && !json_is_array(list)) {
        return mo_fail(err, MO_EFORMAT, "%s of layer %d is not a list; the profile is damaged", key,
                       (int)layer);
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        int32_t expert;
        uint64_t n;
        if (!pair_at(list, i, &expert, &n)) {
            return mo_fail(err, MO_EFORMAT,
                           "%s of layer %d: entry %zu is not a pair [expert, "
                           "count] of integers; the profile is damaged",
                           key, (int)layer, i);
        }
        if (n && expert >= *most) {
            *most = expert + 1;
        }
    }
    return MO_OK;
}

/* Adds a checked list to counts[most]. */
static void add_pairs(const json_t *object, const char *key, uint64_t *counts, int32_t most)
{
    const json_t *list = json_object_get(object, key);
    for (size_t i = 0; i < json_array_size(list); i++) {
        int32_t expert;
        uint64_t n;
        if (pair_at(list, i, &expert, &n) && n && expert < most) {
            counts[expert] = mo_profile_add(counts[expert], n);
        }
    }
}

/* ---- First pass ---- */

static mo_status scan_layer(const json_t *json, seen *s, mo_error *err)
{
    uint64_t id;
    if (!json_is_object(json) || !json_object_get(json, "layer") ||
        !integer(json, "layer", MO_PROFILE_ID_MAX - 1, 0, &id)) {
        return mo_fail(err, MO_EFORMAT, "an entry of \"layers\" has no layer number; the profile is damaged");
    }
    *s = (seen){.json = json, .number = (int32_t)id};
    int32_t all = 0;
    mo_status status = scan_pairs(json, s->number, "hot_experts", &s->experts, err);
    status = status ? status : scan_pairs(json, s->number, "cold_experts", &s->experts, err);
    status = status ? status : scan_pairs(json, s->number, "experts", &all, err);
    s->split = s->experts > 0;
    s->experts = s->split ? s->experts : all;
    return status;
}

static int by_number(const void *a, const void *b)
{
    const int32_t x = ((const seen *)a)->number, y = ((const seen *)b)->number;
    return (x > y) - (x < y);
}

static seen *find(const parser *p, int32_t layer)
{
    const seen key = {.number = layer};
    return p->count ? bsearch(&key, p->layers, (size_t)p->count, sizeof key, by_number) : NULL;
}

static mo_status scan_layers(parser *p, const json_t *list)
{
    p->layers = calloc(json_array_size(list) + 1, sizeof *p->layers);
    if (!p->layers) {
        return mo_fail(p->err, MO_ENOMEM, "out of memory while reading the profile; free some and try again");
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const mo_status status = scan_layer(json_array_get(list, i), &p->layers[p->count], p->err);
        if (status) {
            return status;
        }
        p->count += p->layers[p->count].experts > 0;
    }
    qsort(p->layers, (size_t)p->count, sizeof *p->layers, by_number);
    return MO_OK;
}

/* The layer's part in "moraine", attached to the layer it belongs to. */
static mo_status scan_own_layer(const parser *p, const json_t *json)
{
    uint64_t id, experts;
    if (!json_is_object(json) || !integer(json, "layer", MO_PROFILE_ID_MAX - 1, UINT64_MAX, &id) ||
        id == UINT64_MAX || !integer(json, "experts", MO_PROFILE_ID_MAX, 0, &experts)) {
        return mo_fail(p->err, MO_EFORMAT,
                       "\"moraine\" has a layer without a number; the profile is damaged");
    }
    seen *s = find(p, (int32_t)id);
    int32_t most = s ? s->experts : 0;
    const char *const lists[] = {"prompt_hot", "prompt_cold", "prompts"};
    for (int i = 0; i < 3; i++) {
        const mo_status status = scan_pairs(json, (int32_t)id, lists[i], &most, p->err);
        if (status) {
            return status;
        }
    }
    if (!s) {
        return MO_OK; /* a layer without picks */
    }
    if (s->own || (uint64_t)most > experts) {
        return mo_fail(
            p->err, MO_EFORMAT,
            "\"moraine\" and \"layers\" are inconsistent in layer %d; the profile is damaged or was "
            "edited: remove \"moraine\" to read the rest",
            (int)id);
    }
    s->own = json;
    s->experts = (int32_t)experts;
    return MO_OK;
}

static mo_status scan_own(const parser *p, const json_t *own, mo_profile_shape *shape, uint64_t *prompts)
{
    uint64_t format;
    const char *hex = json_string_value(json_object_get(own, "fingerprint"));
    if (!integer(own, "format", INT64_MAX, 0, &format) || format != MO_PROFILE_OWN_FORMAT) {
        return mo_fail(p->err, MO_EFORMAT,
                       "\"moraine\" has a format other than %d, written by "
                       "another version: remove \"moraine\" to read the rest",
                       MO_PROFILE_OWN_FORMAT);
    }
    if (!hex || strlen(hex) != 16 || strspn(hex, "0123456789abcdef") != 16 ||
        !integer(own, "prompts", INT64_MAX, 0, prompts)) {
        return mo_fail(
            p->err, MO_EFORMAT,
            "\"moraine\" has no fingerprint of 16 hexadecimal digits or no number of prompts; the profile "
            "is damaged");
    }
    shape->fingerprint = strtoull(hex, NULL, 16);
    const json_t *list = json_object_get(own, "layers");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const mo_status status = scan_own_layer(p, json_array_get(list, i));
        if (status) {
            return status;
        }
    }
    return MO_OK;
}

/* ---- Second pass ---- */

static mo_status fail_layer(const seen *s, mo_error *err)
{
    return mo_fail(err, MO_EFORMAT, "layer %d has a field that is not a number; the profile is damaged",
                   (int)s->number);
}

/* Reads lane counts. Unknown reasons, and fallbacks without a reason, become "other". */
static bool read_lanes(const seen *s, mo_profile_layer *l)
{
    const json_t *reasons = json_object_get(s->json, MO_PROFILE_KEY_REASONS);
    uint64_t n, all, known = 0;
    for (int i = 0; i < MO_LANE_COUNTS; i++) {
        if (!integer(s->json, mo_profile_key_lane[i], INT64_MAX, 0, &n)) {
            return false;
        }
        l->lanes[i] = mo_profile_add(l->lanes[i], n);
    }
    if (!integer(s->json, MO_PROFILE_KEY_FALLBACKS, INT64_MAX, 0, &all) ||
        (reasons && !json_is_object(reasons))) {
        return false;
    }
    for (int i = 0; i < MO_FALLBACK_OTHER; i++) {
        if (!integer(reasons, mo_fallback_text((mo_fallback)i), INT64_MAX, 0, &n)) {
            return false;
        }
        l->fallbacks[i] = mo_profile_add(l->fallbacks[i], n);
        known = mo_profile_add(known, n);
    }
    uint64_t *other = &l->fallbacks[MO_FALLBACK_OTHER];
    *other = mo_profile_add(*other, all > known ? all - known : 0);
    return true;
}

/* Converts averages to sums: over the calls, or over one call if their number is missing. */
static mo_status read_layer(const seen *s, mo_profile_layer *l, mo_error *err)
{
    uint64_t calls, cold_total;
    double cold_per_call;
    if (!integer(s->json, "calls", INT64_MAX, 0, &calls) ||
        !integer(s->json, "cold_slots_total", INT64_MAX, 0, &cold_total) ||
        !number(s->json, "cold_slots_per_call", &cold_per_call) || !read_lanes(s, l)) {
        return fail_layer(s, err);
    }
    const uint64_t of = calls ? calls : 1;
    uint64_t *const *hits = l->hits[MO_TRACE_GENERATION];
    add_pairs(s->json, "hot_experts", hits[MO_FOUND_HOT], l->experts);
    add_pairs(s->json, s->split ? "cold_experts" : "experts", hits[MO_FOUND_COLD], l->experts);
    l->cold_slots += cold_per_call > 0 ? cold_per_call * (double)of : calls ? (double)cold_total : 0;
    bool timed = false;
    for (int t = 0; t < MO_TIMES; t++) {
        double us;
        if (!number(s->json, mo_profile_key_time[t], &us)) {
            return fail_layer(s, err);
        }
        timed = timed || us > 0;
        l->time_ns[t] = mo_profile_add(l->time_ns[t], whole(us * 1e3 * (double)of));
    }
    l->timed = mo_profile_add(l->timed, timed ? of : 0);
    l->calls[MO_TRACE_GENERATION] =
        mo_profile_add(l->calls[MO_TRACE_GENERATION], calls || cold_per_call > 0 || timed ? of : 0);
    return MO_OK;
}

/* Moves the prompts' part of the counts to their phase. False if it is larger than the count. */
static bool move(uint64_t *from, const uint64_t *part, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        if (part[i] > from[i]) {
            return false;
        }
        from[i] -= part[i];
    }
    return true;
}

static mo_status read_own(const seen *s, mo_profile_layer *l, mo_error *err)
{
    uint64_t calls;
    bool good = integer(s->own, "prompt_calls", INT64_MAX, 0, &calls) &&
                integer(s->own, "timed", INT64_MAX, 0, &l->timed) && calls <= l->calls[MO_TRACE_GENERATION];
    const json_t *times = json_object_get(s->own, "time_ns");
    for (int t = 0; good && t < MO_TIMES; t++) {
        good = integer(times, mo_profile_key_own_time[t], INT64_MAX, 0, &l->time_ns[t]);
    }
    static const char *const keys[MO_FOUNDS] = {
        [MO_FOUND_COLD] = "prompt_cold", [MO_FOUND_HOT] = "prompt_hot"};
    for (int place = 0; good && place < MO_FOUNDS; place++) {
        uint64_t *part = l->hits[MO_TRACE_PROMPT][place];
        add_pairs(s->own, keys[place], part, l->experts);
        good = move(l->hits[MO_TRACE_GENERATION][place], part, l->experts);
    }
    if (!good) {
        return mo_fail(
            err, MO_EFORMAT,
            "\"moraine\" and \"layers\" are inconsistent in layer %d; the profile is damaged or was "
            "edited: remove \"moraine\" to read the rest",
            (int)s->number);
    }
    l->calls[MO_TRACE_PROMPT] = calls;
    l->calls[MO_TRACE_GENERATION] -= calls;
    add_pairs(s->own, "prompts", l->prompts, l->experts);
    l->cold_slots = (double)mo_profile_slots(l, MO_FOUND_COLD);
    return MO_OK;
}

static mo_status read_counts(const parser *p, mo_profile *profile)
{
    mo_status status = MO_OK;
    for (int i = 0; !status && i < p->count; i++) {
        status = read_layer(&p->layers[i], mo_profile_find(profile, p->layers[i].number), p->err);
    }
    for (int i = 0; !status && i < p->count; i++) {
        if (p->layers[i].own) {
            status = read_own(&p->layers[i], mo_profile_find(profile, p->layers[i].number), p->err);
        }
    }
    return status;
}

/* ---- The whole profile ---- */

/* Creates the profile with each layer once, with all its experts. */
static mo_status make(const parser *p, mo_profile_shape *shape, mo_profile **out)
{
    int32_t *numbers = calloc(2 * (size_t)p->count + 1, sizeof *numbers);
    if (!numbers) {
        return mo_fail(p->err, MO_ENOMEM, "out of memory while reading the profile; free some and try again");
    }
    int32_t *experts = numbers + p->count;
    int32_t n = 0;
    for (int i = 0; i < p->count; i++) {
        const seen *s = &p->layers[i];
        n += n == 0 || numbers[n - 1] != s->number;
        numbers[n - 1] = s->number;
        experts[n - 1] = s->experts > experts[n - 1] ? s->experts : experts[n - 1];
    }
    shape->layers = n;
    shape->layer = numbers;
    shape->experts = experts;
    mo_status status = mo_profile_create(shape, out, p->err);
    free(numbers);
    return status == MO_EINVAL ? mo_fail_prefix(p->err, MO_EFORMAT, "the profile is invalid") : status;
}

static mo_status check_root(const json_t *root, mo_error *err)
{
    const char *schema = json_string_value(json_object_get(root, "schema"));
    if (!schema || (strcmp(schema, MO_PROFILE_SCHEMA) != 0 && strcmp(schema, MO_PROFILE_SCHEMA_OLD) != 0)) {
        return mo_fail(err, MO_EFORMAT,
                       "its schema is %s%.100s; expected " MO_PROFILE_SCHEMA " or " MO_PROFILE_SCHEMA_OLD,
                       schema ? "" : "missing", schema ? schema : "");
    }
    return json_is_array(json_object_get(root, "layers"))
               ? MO_OK
               : mo_fail(err, MO_EFORMAT, "it has no list \"layers\"; the profile is damaged");
}

static mo_status parse(parser *p, const json_t *root, mo_profile **out)
{
    mo_profile_shape shape = {0};
    uint64_t n_expert = 0, used = 0, prompts = 0;
    mo_status status = check_root(root, p->err);
    if (!status && (!integer(root, "n_expert", MO_PROFILE_ID_MAX, 0, &n_expert) ||
                    !integer(root, "n_expert_used", MO_PROFILE_ID_MAX, 0, &used))) {
        status = mo_fail(p->err, MO_EFORMAT, "n_expert or n_expert_used is not a number of experts");
    }
    status = status ? status : scan_layers(p, json_object_get(root, "layers"));
    const json_t *own = json_object_get(root, "moraine");
    if (!status && own) {
        status = scan_own(p, own, &shape, &prompts);
    }
    if (status) {
        return status;
    }
    shape.used = (int32_t)used;
    status = make(p, &shape, out);
    if (*out) {
        (*out)->experts = (int32_t)n_expert;
        (*out)->prompts = prompts;
        status = read_counts(p, *out);
    }
    return status;
}

/* A profile has five levels; the parser recurses once for each. */
enum { LEVELS_MAX = 32 };

mo_status mo_profile_json_read(const char *text, size_t length, mo_profile **out, mo_error *err)
{
    json_error_t fault;
    bool no_memory;
    *out = NULL;
    if (mo_nesting_beyond(text, length, LEVELS_MAX)) {
        return mo_fail(err, MO_EFORMAT,
                       "it is not a profile: it has more than %d levels of lists and objects", LEVELS_MAX);
    }
    json_t *root = mo_json_load(text, length, 0, &fault, &no_memory);
    if (!root) {
        return no_memory ? mo_fail(err, MO_ENOMEM,
                                   "out of memory while reading the profile; free some and try again")
                         : mo_fail(err, MO_EFORMAT, "it is not JSON: %s (line %d)", fault.text, fault.line);
    }
    parser p = {.err = err};
    const mo_status status = parse(&p, root, out);
    if (status) {
        mo_profile_free(*out);
        *out = NULL;
    }
    free(p.layers);
    json_decref(root);
    return status;
}
