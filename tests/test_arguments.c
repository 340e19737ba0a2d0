/* Arguments and members of option structs that are out of range: MO_EINVAL, with a sentence that names the argument or the member as
 * the header writes it. Each test lists what it refuses, and reports all that is not. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check.h"
#include "moraine_pictures.h"
#include "moraine_tools.h"

enum { CONTEXT = 128 };

static const char chat[] = "[{\"role\": \"user\", \"content\": \"Tell me a story about a fox.\"}]";
static mo_model *model;
static mo_session *session;
static mo_error err;
static int wrong;

/* One case: the status that came, and what the sentence must name. */
static void refused(const char *what, mo_status status, const char *words)
{
    if (status != MO_EINVAL || err.status != MO_EINVAL || !strstr(err.detail, words)) {
        print_error("%s: %s, \"%s\" does not say %s\n", what, mo_status_text(status),
                    status != MO_OK ? err.detail : "", words);
        wrong++;
    }
}

static void nothing_is_wrong(void)
{
    const int found = wrong;
    wrong = 0;
    assert_int_equal(found, 0);
}

#define ARGUMENT(call, words) refused(#call, call, words)

static int open_model(void **state)
{
    mo_model_options o = mo_model_options_default();
    (void)state;
    o.context = CONTEXT;
    o.device = "none";
    return mo_model_open(MO_TEST_MODEL, &o, &model, &err) != MO_OK ||
           mo_session_open(model, NULL, &session, &err) != MO_OK;
}

static int close_model(void **state)
{
    (void)state;
    mo_session_close(session);
    mo_model_close(model);
    return 0;
}

/* ---- Models ----------------------------------------------------------------------------------- */

static mo_status opens(const mo_model_options *o)
{
    mo_model *opened = NULL;
    const mo_status status = mo_model_open(MO_TEST_MODEL, o, &opened, &err);
    mo_model_close(opened);
    return status;
}

#define MODEL(member, value)                                                                                 \
    {                                                                                                        \
        mo_model_options o = mo_model_options_default();                                                     \
        o.context = CONTEXT;                                                                                 \
        o.device = "none";                                                                                   \
        o.member = value;                                                                                    \
        refused(#member " " #value, opens(&o), "`" #member "`");                                             \
    }

static void options_of_models(void **state)
{
    (void)state;
    MODEL(threads, -1)
    MODEL(threads, 1025)
    MODEL(isa, "mmx")
    MODEL(isa, "")
    MODEL(context, -1)
    MODEL(context, INT64_MAX)
    MODEL(batch, -1)
    MODEL(batch, INT64_MAX)
    MODEL(ram_bytes, -1)
    MODEL(kv, (mo_kv_type)3)
    MODEL(kv, (mo_kv_type)-1)
    MODEL(policy, "newest")
    MODEL(policy, "")
    MODEL(readers, -1)
    MODEL(readers, 65)
    MODEL(io, (mo_io)3)
    MODEL(device, "tpu")
    MODEL(device, "")
    MODEL(device, "cuda:-1")
    MODEL(device, "none,sim")
    MODEL(vram_bytes, -1)
    MODEL(postfetch, (mo_postfetch_mode)5)
    MODEL(sessions, -1)
    MODEL(positions, -1)
    MODEL(positions, 1)
    MODEL(positions, INT64_MAX)
    MODEL(kept_bytes, -1)
    MODEL(kept_bytes, INT64_MAX)
    MODEL(kept_device_bytes, -1)
    MODEL(chat_template, "nonsense")
    MODEL(adapter_count, -1)
    MODEL(adapter_count, 17)
    MODEL(adapter_bytes, -1)
    MODEL(prompt_precision, (mo_precision)2)
    MODEL(vram_each_count, -1)
    MODEL(vram_each_count, MO_DEVICES_MAX + 1)
    MODEL(divide, (mo_divide)3)
    MODEL(speculate, (mo_speculate)5)
    MODEL(speculate, MO_SPECULATE_DRAFT)
    MODEL(draft_max, -1)
    MODEL(draft_max, 65)
    MODEL(draft_model, "draft.gguf")
    MODEL(mmproj, "")
    MODEL(image_min_tokens, -1)
    MODEL(image_max_tokens, -1)
    nothing_is_wrong();
}

static void lists_of_models(void **state)
{
    static const float scales[] = {NAN, INFINITY};
    static const int64_t sizes[] = {-1, 1};
    const char *adapters[] = {NULL};
    mo_model_options o = mo_model_options_default();
    (void)state;
    o.context = CONTEXT;
    o.device = "sim";
    o.vram_each = sizes;
    o.vram_each_count = 1;
    refused("a negative ceiling", opens(&o), "`vram_each`");
    static const int64_t positive[] = {1 << 28, 1 << 28};
    o.vram_each = positive;
    o.vram_each_count = 2;
    refused("more ceilings than devices", opens(&o), "`vram_each`");
    o.device = "none";
    o.vram_each_count = 0;
    o.adapters = adapters;
    o.adapter_count = 1;
    refused("no path of an adapter", opens(&o), "`adapters`");
    adapters[0] = "";
    refused("an empty path of an adapter", opens(&o), "`adapters`");
    adapters[0] = "adapter.gguf";
    o.adapter_scales = scales;
    refused("the scale NaN", opens(&o), "`adapter_scales`");
    o.adapter_scales = scales + 1;
    refused("an infinite scale", opens(&o), "`adapter_scales`");
    o.adapter_count = 0;
    o.image_min_tokens = 8;
    o.image_max_tokens = 4;
    refused("fewer tokens at most than at least", opens(&o), "`image_max_tokens`");
    nothing_is_wrong();
}

#define LEARNING(member, value, words)                                                                       \
    {                                                                                                        \
        mo_model_options o = mo_model_options_default();                                                     \
        o.context = CONTEXT;                                                                                 \
        o.device = "none";                                                                                   \
        o.learning.member = value;                                                                           \
        refused(#member " " #value, opens(&o), words);                                                       \
    }
#define HOT(member, value) LEARNING(hot_cache.member, value, "`hot_cache." #member "`")

static void options_of_learning(void **state)
{
    (void)state;
    LEARNING(reserved[0], 1, "`reserved` of mo_learning_options")
    LEARNING(hot_cache.reserved[3], 1, "`reserved` of mo_hot_cache_options")
    LEARNING(profile, "", "`profile`")
    LEARNING(perf_mode, "all", "`perf_mode`")
    LEARNING(perf_mode, "", "`perf_mode`")
    LEARNING(perf_out, "", "`perf_out`")
    LEARNING(warm_file, "", "`warm_file`")
    HOT(file, "")
    HOT(max_mib, -2)
    HOT(max_mib, 16)
    HOT(max_mib, INT64_MAX)
    HOT(auto_reserve_mib, -1)
    HOT(auto_reserve_mib, INT64_MAX)
    HOT(update_rate, -0.5)
    HOT(update_rate, 1.5)
    HOT(update_rate, NAN)
    HOT(update_rate, 0.5)
    HOT(weighting, "heavy")
    HOT(weighting, "")
    HOT(layer_curve, -1)
    HOT(layer_curve, 2)
    HOT(layer_curve, NAN)
    nothing_is_wrong();
}

static void arguments_about_models(void **state)
{
    mo_model *opened = NULL;
    mo_adapter *adapter = NULL;
    int32_t *ids = NULL;
    size_t count = 0;
    (void)state;
    ARGUMENT(mo_model_open("", NULL, &opened, &err), "`path`");
    ARGUMENT(mo_adapter_open(model, "", &adapter, &err), "`path`");
    ARGUMENT(mo_tokenize(model, "x", 1, 16, &ids, &count, &err), "`flags`");
    ARGUMENT(mo_tokenize(model, "x", 1, -1, &ids, &count, &err), "`flags`");
    ARGUMENT(mo_tokenize_file(MO_TEST_MODEL, "x", 1, 16, &ids, &count, &err), "`flags`");
    ARGUMENT(mo_tokenize_file("", "x", 1, 0, &ids, &count, &err), "`path`");
    ARGUMENT(mo_images_tokenize(model, "x", 1, 16, &ids, &count, &err), "`flags`");
    assert_null(ids);
    assert_int_equal(mo_token_bytes(model, -1).length, 0);
    assert_int_equal(mo_token_bytes(model, INT32_MAX).length, 0);
    assert_false(mo_token_ends(model, -1));
    assert_null(mo_isa_name(-1));
    assert_null(mo_policy_name(-1, NULL));
    assert_null(mo_stat_name(-1, NULL));
    assert_null(mo_model_adapter(model, -1));
    assert_null(mo_model_text(model, "nonsense"));
    assert_non_null(mo_status_text((mo_status)77));
    nothing_is_wrong();
}

/* ---- Prompts ---------------------------------------------------------------------------------- */

static mo_status renders(const mo_chat_options *o, const char *json)
{
    mo_prompt *prompt = NULL;
    const mo_status status = mo_prompt_open(model, json, strlen(json), o, &prompt, &err);
    mo_prompt_close(prompt);
    return status;
}

#define CHAT(member, value)                                                                                  \
    {                                                                                                        \
        mo_chat_options o = mo_chat_options_default();                                                       \
        o.member = value;                                                                                    \
        refused(#member " " #value, renders(&o, chat), "`" #member "`");                                     \
    }

static void options_of_prompts(void **state)
{
    (void)state;
    CHAT(thinking, (mo_thinking)77)
    CHAT(thinking, (mo_thinking)-1)
    CHAT(date, "2026-02-31")
    CHAT(date, "2025-02-29")
    CHAT(date, "2026-13-01")
    CHAT(date, "2026-00-01")
    CHAT(date, "2026-01-00")
    CHAT(date, "yesterday")
    CHAT(date, "2026-1-1")
    CHAT(date, "2026-01-01T25:00")
    CHAT(date, "-026-01-01")
    CHAT(chat_template, "nonsense")
    CHAT(chat_template, "")
    mo_chat_options o = mo_chat_options_default();
    o.date = "2024-02-29";
    check_status(renders(&o, chat), &err);
    o.date = "";
    check_status(renders(&o, chat), &err);
    o.chat_template = "harmony";
    o.effort = "extreme";
    refused("an unknown effort", renders(&o, chat), "`effort`");
    nothing_is_wrong();
}

/* ---- Sessions --------------------------------------------------------------------------------- */

static mo_status opens_session(mo_kv_type kv, int64_t context)
{
    mo_session_options o = mo_session_options_default();
    mo_session *opened = NULL;
    o.kv = kv;
    o.context = context;
    const mo_status status = mo_session_open(model, &o, &opened, &err);
    mo_session_close(opened);
    return status;
}

static void nothing_fed(void *user, int64_t position, const float *row)
{
    (void)user;
    (void)position;
    (void)row;
}

static void nothing_routed(void *user, int layer, int64_t position, const int32_t *ids, const float *weights,
                           int used)
{
    (void)layer;
    (void)ids;
    (void)weights;
    (void)used;
    nothing_fed(user, position, NULL);
}

static bool nothing_accepted(void *user, const mo_feed_report *picked)
{
    (void)user;
    (void)picked;
    return true;
}

#define FEED(member, value)                                                                                  \
    {                                                                                                        \
        mo_feed f = {.size = sizeof f, .session = session, .tokens = tokens, .count = 2};                    \
        f.image_count = !strcmp(#member, "images");                                                          \
        f.member = value;                                                                                    \
        refused("feed " #member " " #value, mo_session_feed(&f, 1, &err), "`" #member "`");                  \
    }

static void arguments_of_sessions(void **state)
{
    const int32_t tokens[2] = {1, 2}, unknown[2] = {1, INT32_MAX}, negative[2] = {1, -5};
    mo_image *image = NULL;
    const mo_adapter_use use = {.adapter = NULL, .scale = 1};
    mo_snapshot *snapshot;
    int64_t experts;
    (void)state;
    ARGUMENT(opens_session((mo_kv_type)3, 0), "`kv`");
    ARGUMENT(opens_session(MO_KV_I16, -1), "`context`");
    ARGUMENT(opens_session(MO_KV_I16, INT64_MAX), "`context`");
    FEED(size, 0)
    FEED(size, SIZE_MAX)
    FEED(session, NULL)
    FEED(tokens, NULL)
    FEED(tokens, unknown)
    FEED(tokens, negative)
    FEED(count, 0)
    FEED(count, -1)
    FEED(step, -1)
    FEED(top, -1)
    FEED(top, 1)
    FEED(top, 21)
    FEED(logprobs, true)
    FEED(drafts, -1)
    FEED(drafts, 1)
    FEED(image_count, -1)
    FEED(images, &image)
    FEED(images, NULL)
    mo_feed f = {.size = sizeof f, .session = session, .tokens = tokens, .count = 2};
    f.logits = nothing_fed;
    f.routes = nothing_routed;
    f.accept = nothing_accepted;
    check_status(mo_session_feed(&f, 1, &err), &err);
    ARGUMENT(mo_session_feed(&f, 0, &err), "`count`");
    ARGUMENT(mo_session_feed(&f, -1, &err), "`count`");
    ARGUMENT(mo_session_feed(&f, 257, &err), "`count`");
    check_status(mo_snapshot_open(session, &snapshot, &err), &err);
    ARGUMENT(mo_session_restore(session, snapshot, -2, &err), "`length`");
    ARGUMENT(mo_session_restore(session, snapshot, 3, &err), "`length`");
    mo_snapshot_close(snapshot);
    ARGUMENT(mo_session_adapt(session, &use, 1, &err), "`adapter`");
    ARGUMENT(mo_session_adapt(session, &use, -1, &err), "`count`");
    ARGUMENT(mo_session_discover(session, tokens, -1, &experts, &err), "`count`");
    ARGUMENT(mo_session_discover(session, unknown, 2, &experts, &err), "`tokens`");
    nothing_is_wrong();
}

/* ---- Generations ------------------------------------------------------------------------------ */

static mo_status generates(const mo_generation_options *o)
{
    mo_generation *g = NULL;
    const mo_status status = mo_generation_open(model, o, &g, &err);
    mo_generation_close(g);
    return status;
}

#define GENERATION(member, value)                                                                            \
    {                                                                                                        \
        mo_generation_options o = mo_generation_options_default();                                           \
        o.dry_multiplier = 1.0f;                                                                             \
        o.member = value;                                                                                    \
        refused(#member " " #value, generates(&o), "`" #member "`");                                         \
    }

static void options_of_sampling(void **state)
{
    (void)state;
    GENERATION(temperature, -1.0f)
    GENERATION(temperature, INFINITY)
    GENERATION(top_p, 0.0f)
    GENERATION(top_p, 1.5f)
    GENERATION(top_p, -INFINITY)
    GENERATION(min_p, -0.5f)
    GENERATION(min_p, 1.5f)
    GENERATION(top_k, -1)
    GENERATION(repeat_penalty, 0.0f)
    GENERATION(repeat_penalty, INFINITY)
    GENERATION(presence_penalty, INFINITY)
    GENERATION(frequency_penalty, -INFINITY)
    GENERATION(penalty_last, -2)
    GENERATION(top_n_sigma, -1.0f)
    GENERATION(top_n_sigma, INFINITY)
    GENERATION(typical_p, -1.0f)
    GENERATION(typical_p, 2.0f)
    GENERATION(xtc_probability, -1.0f)
    GENERATION(xtc_probability, 2.0f)
    GENERATION(xtc_threshold, -1.0f)
    GENERATION(xtc_threshold, 2.0f)
    GENERATION(dynatemp_range, -1.0f)
    GENERATION(dynatemp_exponent, -1.0f)
    GENERATION(mirostat_tau, -1.0f)
    GENERATION(mirostat_eta, -1.0f)
    GENERATION(mirostat, 1)
    GENERATION(mirostat, 3)
    GENERATION(dry_multiplier, -1.0f)
    GENERATION(dry_base, 0.5f)
    GENERATION(dry_allowed_length, 0)
    GENERATION(dry_penalty_last, -2)
    GENERATION(dry_breaker_count, 1)
    GENERATION(samplers, "top_k;newest")
    GENERATION(samplers, "top_k;top_k")
    GENERATION(bias_count, 1)
    nothing_is_wrong();
}

static void biases(void **state)
{
    static const mo_logit_bias bad[] = {{1, NAN}, {1, INFINITY}, {-1, 1.0f}, {INT32_MAX, 1.0f}};
    mo_generation_options o = mo_generation_options_default();
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        o.bias = &bad[i];
        o.bias_count = 1;
        refused("a bias", generates(&o), "`bias`");
    }
    const mo_logit_bias good = {1, -INFINITY};
    o.bias = &good;
    check_status(generates(&o), &err);
    nothing_is_wrong();
}

static void options_of_generations(void **state)
{
    static const char *const invalid[] = {"x\xff"}, *const empty[] = {""}, *const missing[] = {NULL};
    static const int32_t unknown[] = {INT32_MAX}, negative[] = {-1};
    (void)state;
    GENERATION(max_tokens, -2)
    GENERATION(thought_tokens, -2)
    GENERATION(stop_count, 1)
    GENERATION(logprobs, -2)
    GENERATION(logprobs, 21)
    GENERATION(draft_max, -2)
    GENERATION(draft_min, -1)
    GENERATION(draft_p_min, -1.0f)
    GENERATION(draft_p_min, 2.0f)
    GENERATION(draft_p_min, NAN)
    GENERATION(prediction_count, 1)
    GENERATION(tool_choice, "auto")
    GENERATION(tools, "{}")
    GENERATION(tools, "[")
    GENERATION(tools, "[1]")
    GENERATION(grammar, "")
    GENERATION(grammar, "root = 1")
    GENERATION(grammar, "root ::= other")
    GENERATION(schema, "")
    GENERATION(schema, "{")
    GENERATION(schema, "[]")
    mo_generation_options o = mo_generation_options_default();
    o.stop = invalid;
    o.stop_count = 1;
    refused("a stop string that is not UTF-8", generates(&o), "string 1 of `stop`");
    o.stop = empty;
    refused("an empty stop string", generates(&o), "string 1 of `stop`");
    o.stop = missing;
    refused("a missing stop string", generates(&o), "string 1 of `stop`");
    o.stop_count = SIZE_MAX;
    refused("too many stop strings", generates(&o), "`stop_count`");
    o.stop_count = 0;
    o.dry_breakers = empty;
    o.dry_breaker_count = 1;
    refused("an empty breaker", generates(&o), "`dry_breakers`");
    o.dry_breakers = missing;
    refused("a missing breaker", generates(&o), "`dry_breakers`");
    o.dry_breaker_count = 0;
    o.prediction = unknown;
    o.prediction_count = 1;
    refused("a prediction", generates(&o), "`prediction`");
    o.prediction = negative;
    refused("a prediction", generates(&o), "`prediction`");
    o.prediction_count = 0;
    o.tools = "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}]";
    o.tool_choice = "g";
    refused("a choice that is no tool", generates(&o), "`tool_choice`");
    nothing_is_wrong();
}

/* Whatever is put around a grammar, its errors have its own lines. */
static void lines_of_grammars(void **state)
{
    static const char *const wrong_ones[] = {"root ::= item\nitem ::= other", "root ::= [z-a]",
                                             "root ::= \"a\nb ::= c", "item ::= \"a\"",
                                             "\n\n  root ::= (\"a\""};
    (void)state;
    for (size_t i = 0; i < sizeof wrong_ones / sizeof *wrong_ones; i++) {
        mo_generation_options o = mo_generation_options_default();
        mo_error alone;
        o.grammar = wrong_ones[i];
        o.raw = true;
        refused(wrong_ones[i], generates(&o), "`grammar`: ");
        alone = err;
        o.raw = false;
        refused(wrong_ones[i], generates(&o), alone.detail);
        o.tools = "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}]";
        refused(wrong_ones[i], generates(&o), alone.detail);
    }
    nothing_is_wrong();
}

static void arguments_of_generations(void **state)
{
    const int32_t tokens[1] = {1}, unknown[1] = {INT32_MAX}, negative[1] = {-1};
    mo_generation *g, *loaded = NULL, *twice[2];
    mo_image *image = NULL;
    uint8_t *bytes = NULL;
    size_t size = 0;
    (void)state;
    check_status(mo_generation_open(model, NULL, &g, &err), &err);
    twice[0] = twice[1] = g;
    ARGUMENT(mo_generation_step(&g, 1, &err) < 0 ? err.status : MO_OK, "mo_generation_prompt()");
    ARGUMENT(mo_generation_prompt(g, session, tokens, 0, &err), "`count`");
    ARGUMENT(mo_generation_prompt(g, session, tokens, -1, &err), "`count`");
    ARGUMENT(mo_generation_prompt(g, session, tokens, INT64_MAX, &err), "`context`");
    ARGUMENT(mo_generation_prompt(g, session, unknown, 1, &err), "`tokens`");
    ARGUMENT(mo_generation_prompt(g, session, negative, 1, &err), "`tokens`");
    ARGUMENT(mo_generation_images(g, &image, 1, &err), "`images`");
    ARGUMENT(mo_generation_images(g, &image, -1, &err), "`count`");
    ARGUMENT(mo_generation_images(g, NULL, 1, &err), "`images`");
    check_status(mo_generation_prompt(g, session, tokens, 1, &err), &err);
    ARGUMENT(mo_generation_step(&g, 0, &err) < 0 ? err.status : MO_OK, "`count`");
    ARGUMENT(mo_generation_step(&g, 257, &err) < 0 ? err.status : MO_OK, "`count`");
    ARGUMENT(mo_generation_step(twice, 2, &err) < 0 ? err.status : MO_OK, "`list`");
    twice[1] = NULL;
    ARGUMENT(mo_generation_step(twice, 2, &err) < 0 ? err.status : MO_OK, "`list`");
    mo_generation_close(g);
    assert_int_equal(mo_generation_load(model, session, (const uint8_t *)"x", 0, &loaded, &err), MO_EFORMAT);
    assert_int_equal(mo_generation_load(model, session, (const uint8_t *)"x", 1, &loaded, &err), MO_EFORMAT);
    check_status(mo_generation_open(model, NULL, &g, &err), &err);
    ARGUMENT(mo_generation_save(g, &bytes, &size, &err), "mo_generation_prompt()");
    mo_generation_close(g);
    nothing_is_wrong();
}

/* ---- Statistics ------------------------------------------------------------------------------- */

static void arguments_of_statistics(void **state)
{
    static const char *const unknown[] = {"engine.steps", "expert.hits"}, *const missing[] = {NULL};
    double values[2];
    mo_plan *plan;
    (void)state;
    ARGUMENT(mo_model_stat(model, "engine.steps", 1, values, &err), "`index`");
    ARGUMENT(mo_model_stat(model, "engine.steps", -1, values, &err), "`index`");
    ARGUMENT(mo_model_stat(model, "layer.experts", 1 << 20, values, &err), "`index`");
    ARGUMENT(mo_model_stats(model, missing, 1, values, &err), "`names`");
    ARGUMENT(mo_model_stats(model, unknown, -1, values, &err), "`count`");
    assert_int_equal(mo_model_stat(model, "engine.step", 0, values, &err), MO_ENOENT);
    check_says(&err, "engine.steps");
    assert_int_equal(mo_model_stat(model, "", 0, values, &err), MO_ENOENT);
    check_status(mo_plan_open(MO_TEST_MODEL, NULL, NULL, &plan, &err), &err);
    ARGUMENT(mo_plan_stat(plan, "tokens_per_second", -1, values, &err), "`index`");
    ARGUMENT(mo_plan_stat(plan, "tokens_per_second", 1, values, &err), "`index`");
    mo_plan_close(plan);
    nothing_is_wrong();
}

/* ---- Tools ------------------------------------------------------------------------------------ */

#define PLAN(member, value)                                                                                  \
    {                                                                                                        \
        mo_plan_extra extra = {.size = sizeof extra};                                                        \
        mo_plan *plan = NULL;                                                                                \
        extra.member = value;                                                                                \
        refused("plan " #member " " #value, mo_plan_open(MO_TEST_MODEL, NULL, &extra, &plan, &err),          \
                "`" #member "`");                                                                            \
        mo_plan_close(plan);                                                                                 \
    }
#define SYNTH(member, value)                                                                                 \
    {                                                                                                        \
        mo_synth_options o = mo_synth_options_default();                                                     \
        mo_synth_info info;                                                                                  \
        o.member = value;                                                                                    \
        refused("synth " #member " " #value,                                                                 \
                mo_synth_measure(mo_synth_name(0), &o, &info, sizeof info, &err), "`" #member "`");          \
    }
#define QUANTIZE(member, value)                                                                              \
    {                                                                                                        \
        mo_quantize_options o = mo_quantize_options_default();                                               \
        o.member = value;                                                                                    \
        refused("quantize " #member " " #value,                                                              \
                mo_quantize(MO_TEST_MODEL, "never-written.gguf", &o, NULL, NULL, &err), "`" #member "`");    \
    }

static void options_of_tools(void **state)
{
    (void)state;
    PLAN(size, 0)
    PLAN(machine, "")
    PLAN(gpu, "voodoo")
    PLAN(cpu, "voodoo")
    PLAN(disk, "voodoo")
    PLAN(pc_ram_bytes, -1)
    SYNTH(layers, -1)
    SYNTH(layers, INT32_MAX)
    SYNTH(type, "Q9")
    SYNTH(experts, "Q9")
    SYNTH(skew, -1.0f)
    SYNTH(skew, 9.0f)
    SYNTH(skew, NAN)
    SYNTH(threads, -1)
    QUANTIZE(experts, "Q9")
    QUANTIZE(rest, "Q9")
    QUANTIZE(output, "")
    QUANTIZE(embedding, "Q9")
    QUANTIZE(threads, -1)
    nothing_is_wrong();
}

static void arguments_of_tools(void **state)
{
    mo_file *file = NULL;
    mo_doctor *doctor = NULL;
    mo_trace *trace = NULL;
    mo_tracer *tracer;
    mo_plan *plan = NULL;
    mo_cluster *cluster = NULL;
    char saved[64];
    (void)state;
    ARGUMENT(mo_file_open("", &file, &err), "`path`");
    ARGUMENT(mo_trace_open("", &trace, &err), "`path`");
    ARGUMENT(mo_plan_open("", NULL, NULL, &plan, &err), "`path`");
    ARGUMENT(mo_synth(mo_synth_name(0), "", NULL, NULL, NULL, &err), "`path`");
    ARGUMENT(mo_quantize("", "never-written.gguf", NULL, NULL, NULL, &err), "`source`");
    ARGUMENT(mo_quantize(MO_TEST_MODEL, "", NULL, NULL, NULL, &err), "`path`");
    mo_doctor_options d = mo_doctor_options_default();
    d.model = "";
    ARGUMENT(mo_doctor_open(&d, &doctor, &err), "`model`");
    d = mo_doctor_options_default();
    d.device = "tpu";
    ARGUMENT(mo_doctor_open(&d, &doctor, &err), "`device`");
    mo_doctor_close(doctor);
    mo_probe_options p = mo_probe_options_default();
    p.threads = -1;
    ARGUMENT(mo_probe_machine(&p, "never-written.json", saved, sizeof saved, &err), "`threads`");
    p = mo_probe_options_default();
    p.device = "tpu";
    ARGUMENT(mo_probe_machine(&p, "never-written.json", saved, sizeof saved, &err), "`device`");
    p = mo_probe_options_default();
    p.device = "none";
    p.model = "";
    ARGUMENT(mo_probe_machine(&p, "never-written.json", saved, sizeof saved, &err), "`model`");
    p.model = NULL;
    p.directory = "";
    ARGUMENT(mo_probe_machine(&p, "never-written.json", saved, sizeof saved, &err), "`directory`");
    p.directory = NULL;
    ARGUMENT(mo_probe_machine(&p, "", saved, sizeof saved, &err), "`path`");
    ARGUMENT(mo_probe_machine(&p, "never-written.json", saved, 4, &err), "`size`");
    check_status(mo_tracer_open(model, &tracer, &err), &err);
    ARGUMENT(mo_tracer_step(tracer, 0, 0, MO_TRACE_PROMPT, &err), "`tokens`");
    ARGUMENT(mo_tracer_step(tracer, -1, 0, MO_TRACE_PROMPT, &err), "`tokens`");
    ARGUMENT(mo_tracer_step(tracer, 1, -1, MO_TRACE_PROMPT, &err), "`text`");
    ARGUMENT(mo_tracer_step(tracer, 1, 65536, MO_TRACE_PROMPT, &err), "`text`");
    ARGUMENT(mo_tracer_step(tracer, 1, 0, (mo_trace_phase)2, &err), "`phase`");
    assert_int_equal(mo_tracer_save(tracer, "", &err), MO_EINVAL);
    mo_tracer_close(tracer);
    mo_cluster_options c = mo_cluster_options_default();
    c.timeout_s = NAN;
    ARGUMENT(mo_cluster_open(&c, &cluster, &err), "`timeout_s`");
    c.timeout_s = 0;
    ARGUMENT(mo_cluster_open(&c, &cluster, &err), "`timeout_s`");
    assert_int_equal(mo_synth_measure("nonsense", NULL, &(mo_synth_info){0}, sizeof(mo_synth_info), &err),
                     MO_ENOENT);
    assert_string_equal(mo_value_type_text((mo_value_type)9), "unknown");
    nothing_is_wrong();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_of_models),      cmocka_unit_test(lists_of_models),
        cmocka_unit_test(options_of_learning),    cmocka_unit_test(arguments_about_models),
        cmocka_unit_test(options_of_prompts),     cmocka_unit_test(arguments_of_sessions),
        cmocka_unit_test(options_of_sampling),    cmocka_unit_test(biases),
        cmocka_unit_test(options_of_generations), cmocka_unit_test(arguments_of_generations),
        cmocka_unit_test(lines_of_grammars),      cmocka_unit_test(arguments_of_statistics),
        cmocka_unit_test(options_of_tools),       cmocka_unit_test(arguments_of_tools),
    };
    return cmocka_run_group_tests_name("arguments", tests, open_model, close_model);
}
