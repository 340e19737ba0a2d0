/* Writing. parse.c reads. */
#include "profile/json.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/status.h"
#include "profile/keys.h"

/* Writes the members of one object; the first failure is stored. */
typedef struct writer {
    json_t *object;
    bool failed;
} writer;

static writer begin(void)
{
    json_t *object = json_object();
    return (writer){object, object == NULL};
}

/* Takes ownership of value, which may be NULL. */
static void put(writer *w, const char *key, json_t *value)
{
    if (w->failed || !value) {
        json_decref(value);
        w->failed = true;
    } else if (json_object_set_new(w->object, key, value) != 0) {
        w->failed = true;
    }
}

static void put_count(writer *w, const char *key, uint64_t n)
{
    put(w, key, json_integer(n > INT64_MAX ? INT64_MAX : (json_int_t)n));
}

static void put_real(writer *w, const char *key, double x)
{
    put(w, key, json_real(x));
}

static void put_text(writer *w, const char *key, const char *text)
{
    put(w, key, json_string(text));
}

/* The object, or NULL if a member could not be created. */
static json_t *end(writer *w)
{
    if (w->failed) {
        json_decref(w->object);
        w->object = NULL;
    }
    return w->object;
}

/* ---- Sparse lists ---- */

typedef uint64_t (*count_fn)(const mo_profile_layer *l, int32_t expert);

static uint64_t count_all(const mo_profile_layer *l, int32_t e)
{
    return mo_profile_hits(l, e, false);
}

static uint64_t count_hot(const mo_profile_layer *l, int32_t e)
{
    return mo_profile_hits_at(l, e, MO_FOUND_HOT, false);
}

static uint64_t count_cold(const mo_profile_layer *l, int32_t e)
{
    return mo_profile_hits_at(l, e, MO_FOUND_COLD, false);
}

static uint64_t count_prompt_hot(const mo_profile_layer *l, int32_t e)
{
    return l->hits[MO_TRACE_PROMPT][MO_FOUND_HOT][e];
}

static uint64_t count_prompt_cold(const mo_profile_layer *l, int32_t e)
{
    return l->hits[MO_TRACE_PROMPT][MO_FOUND_COLD][e];
}

static uint64_t count_prompts(const mo_profile_layer *l, int32_t e)
{
    return l->prompts[e];
}

/* [[expert, count], ...] for counts other than 0. */
static json_t *pairs(const mo_profile_layer *l, count_fn count)
{
    json_t *list = json_array();
    for (int e = 0; list && e < l->experts; e++) {
        const uint64_t n = count(l, e);
        const json_int_t shown = n > INT64_MAX ? INT64_MAX : (json_int_t)n;
        if (n && json_array_append_new(list, json_pack("[iI]", e, shown)) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

/* ---- Layers and summary ---- */

typedef struct sums {
    uint64_t calls, hot, cold, timed, time_ns[MO_TIMES];
    uint64_t lanes[MO_LANE_COUNTS], fallbacks[MO_FALLBACKS];
} sums;

static sums layer_sums(const mo_profile_layer *l)
{
    sums s = {.calls = mo_profile_calls(l),
              .hot = mo_profile_slots(l, MO_FOUND_HOT),
              .cold = mo_profile_slots(l, MO_FOUND_COLD),
              .timed = l->timed};
    memcpy(s.time_ns, l->time_ns, sizeof s.time_ns);
    memcpy(s.lanes, l->lanes, sizeof s.lanes);
    memcpy(s.fallbacks, l->fallbacks, sizeof s.fallbacks);
    return s;
}

static bool is_empty(const sums *s)
{
    return s->calls == 0 && s->hot == 0 && s->cold == 0;
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static double per_call_us(const sums *s, mo_layer_time time)
{
    return ratio((double)s->time_ns[time] / 1e3, (double)s->timed);
}

/* Is the time recorded only in some modes? Other times are written even if 0. */
static bool is_rare(int time)
{
    return time >= MO_TIME_WORKLIST;
}

/* Does an update of the hot set need the time? */
static bool is_brief(int time)
{
    return time == MO_TIME_HOT || time == MO_TIME_COLD || time == MO_TIME_JOIN;
}

/* Writes reasons only if there are any, as the schema requires. */
static void put_lanes(writer *w, const sums *s)
{
    uint64_t all = 0;
    writer reasons = begin();
    for (int i = 0; i < MO_LANE_COUNTS; i++) {
        put_count(w, mo_profile_key_lane[i], s->lanes[i]);
    }
    for (int i = 0; i < MO_FALLBACKS; i++) {
        all = mo_profile_add(all, s->fallbacks[i]);
        if (s->fallbacks[i]) {
            put_count(&reasons, mo_fallback_text((mo_fallback)i), s->fallbacks[i]);
        }
    }
    json_t *object = end(&reasons);
    put_count(w, MO_PROFILE_KEY_FALLBACKS, all);
    if (all) {
        put(w, MO_PROFILE_KEY_REASONS, object);
    } else {
        json_decref(object);
    }
}

static void put_times(writer *w, const sums *s, mo_profile_mode mode)
{
    put_real(w, "hot_slot_ratio", ratio((double)s->hot, (double)s->hot + (double)s->cold));
    for (int t = 0; t < MO_TIMES; t++) {
        if ((mode == MO_PROFILE_FULL && !(is_rare(t) && s->time_ns[t] == 0)) || is_brief(t)) {
            put_real(w, mo_profile_key_time[t], per_call_us(s, (mo_layer_time)t));
        }
    }
    if (mode == MO_PROFILE_FULL) {
        const double over =
            per_call_us(s, MO_TIME_HOT) + per_call_us(s, MO_TIME_COLD) - per_call_us(s, MO_TIME_REGION);
        put_real(w, "parallel_overlap_estimate_per_call_us", over > 0 ? over : 0);
        put_lanes(w, s);
    }
}

/* The upper tier is one lane: lane 0 has all hot slots. */
static void put_slots(writer *w, const sums *s)
{
    const double calls = (double)s->calls;
    put_count(w, "hot_slots_total", s->hot);
    put_count(w, "cold_slots_total", s->cold);
    put_real(w, "hot_slots_per_call", ratio((double)s->hot, calls));
    put_real(w, "cold_slots_per_call", ratio((double)s->cold, calls));
    for (int lane = 0; lane < 3; lane++) {
        char key[32];
        snprintf(key, sizeof key, "hot%d_slots_total", lane);
        put_count(w, key, lane == 0 ? s->hot : 0);
        snprintf(key, sizeof key, "hot%d_slots_per_call", lane);
        put_real(w, key, lane == 0 ? ratio((double)s->hot, calls) : 0);
    }
}

static json_t *layer_json(const mo_profile_layer *l, mo_profile_mode mode)
{
    const sums s = layer_sums(l);
    writer w = begin();
    put_count(&w, "layer", (uint64_t)l->layer);
    put_count(&w, "calls", s.calls);
    put_slots(&w, &s);
    put_times(&w, &s, mode);
    put(&w, "experts", pairs(l, count_all));
    put(&w, "hot_experts", pairs(l, count_hot));
    put(&w, "cold_experts", pairs(l, count_cold));
    return end(&w);
}

static sums all_sums(const mo_profile *p)
{
    sums all = {0};
    for (int i = 0; i < p->layers; i++) {
        const sums s = layer_sums(&p->layer[i]);
        all.calls = mo_profile_add(all.calls, s.calls);
        all.hot = mo_profile_add(all.hot, s.hot);
        all.cold = mo_profile_add(all.cold, s.cold);
        all.timed = mo_profile_add(all.timed, s.timed);
        for (int t = 0; t < MO_TIMES; t++) {
            all.time_ns[t] = mo_profile_add(all.time_ns[t], s.time_ns[t]);
        }
        for (int k = 0; k < MO_LANE_COUNTS; k++) {
            all.lanes[k] = mo_profile_add(all.lanes[k], s.lanes[k]);
        }
        for (int k = 0; k < MO_FALLBACKS; k++) {
            all.fallbacks[k] = mo_profile_add(all.fallbacks[k], s.fallbacks[k]);
        }
    }
    return all;
}

static json_t *summary_json(const mo_profile *p, mo_profile_mode mode)
{
    const sums all = all_sums(p);
    writer w = begin();
    put_count(&w, "layer_calls", all.calls);
    put_times(&w, &all, mode);
    return end(&w);
}

/* ---- The "moraine" part ---- */

static json_t *own_layer_json(const mo_profile_layer *l, mo_profile_mode mode)
{
    (void)mode; /* written in full in every mode, so that nothing is lost */
    writer times = begin();
    for (int t = 0; t < MO_TIMES; t++) {
        put_count(&times, mo_profile_key_own_time[t], l->time_ns[t]);
    }
    writer w = begin();
    put_count(&w, "layer", (uint64_t)l->layer);
    put_count(&w, "experts", (uint64_t)l->experts);
    put_count(&w, "prompt_calls", l->calls[MO_TRACE_PROMPT]);
    put(&w, "prompt_hot", pairs(l, count_prompt_hot));
    put(&w, "prompt_cold", pairs(l, count_prompt_cold));
    put(&w, "prompts", pairs(l, count_prompts));
    put_count(&w, "timed", l->timed);
    put(&w, "time_ns", end(&times));
    return end(&w);
}

typedef json_t *(*layer_fn)(const mo_profile_layer *l, mo_profile_mode mode);

static json_t *layers_json(const mo_profile *p, mo_profile_mode mode, layer_fn layer)
{
    json_t *list = json_array();
    for (int i = 0; list && i < p->layers; i++) {
        const sums s = layer_sums(&p->layer[i]);
        if (!is_empty(&s) && json_array_append_new(list, layer(&p->layer[i], mode)) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

static json_t *own_json(const mo_profile *p, mo_profile_mode mode)
{
    char hex[20];
    snprintf(hex, sizeof hex, "%016" PRIx64, p->fingerprint);
    writer w = begin();
    put_count(&w, "format", MO_PROFILE_OWN_FORMAT);
    put_text(&w, "fingerprint", hex);
    put_count(&w, "prompts", p->prompts);
    put(&w, "layers", layers_json(p, mode, own_layer_json));
    return end(&w);
}

/* ---- The whole profile ---- */

const char *mo_profile_mode_name(mo_profile_mode mode)
{
    switch (mode) {
    case MO_PROFILE_OFF: return "off";
    case MO_PROFILE_UPDATE: return "update";
    case MO_PROFILE_FULL: return "full";
    }
    return "unknown";
}

const char *mo_fallback_text(mo_fallback why)
{
    switch (why) {
    case MO_FALLBACK_LATE: return "late_copy";
    case MO_FALLBACK_FAILED: return "failed_copy";
    case MO_FALLBACK_NO_STAGE: return "no_stage";
    case MO_FALLBACK_ON_DISK: return "not_in_ram";
    case MO_FALLBACK_UNPINNED: return "not_pinned";
    case MO_FALLBACK_OTHER:
    case MO_FALLBACKS: break;
    }
    return "other";
}

static json_t *root_json(const mo_profile *p, mo_profile_mode mode)
{
    writer w = begin();
    put(&w, "enabled", json_boolean(mode != MO_PROFILE_OFF));
    put_text(&w, "mode", mo_profile_mode_name(mode));
    put_text(&w, "schema", MO_PROFILE_SCHEMA);
    if (mode == MO_PROFILE_OFF) {
        put(&w, "layers", json_array());
        return end(&w);
    }
    put_count(&w, "n_expert", (uint64_t)p->experts);
    put_count(&w, "n_expert_used", (uint64_t)p->used);
    put_count(&w, "updates", all_sums(p).calls); /* each call of a layer updates its counters */
    put_count(&w, "overflow_resets", 0);         /* counts saturate */
    put(&w, "summary", summary_json(p, mode));
    put(&w, "layers", layers_json(p, mode, layer_json));
    put(&w, "moraine", own_json(p, mode));
    return end(&w);
}

mo_status mo_profile_json_write(const mo_profile *p, mo_profile_mode mode, char **text, size_t *length,
                                mo_error *err)
{
    json_t *root = root_json(p, mode);
    *text = root ? mo_json_dump(root, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    *length = *text ? strlen(*text) : 0;
    json_decref(root);
    return *text ? MO_OK
                 : mo_fail(err, MO_ENOMEM, "out of memory for the profile as JSON; free some and try again");
}
