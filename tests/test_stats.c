/* Statistics by name: every name is there once and can be read, on the CPU and on a device, at any index that it has; values are those
 * of the reports; and what a plan expects is what the run has, where both have a name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "api/stats.h"
#include "tier_case.h"

static mo_model *open_fed(const setting *s)
{
    mo_error err = {.detail = ""};
    mo_model *model = open_model(MO_TEST_MODEL, s);
    mo_session *session = open_session(model, MO_KV_I16);
    for (int64_t count = 40; count < 48; count++) {
        const mo_feed f = {.size = sizeof f, .session = session, .tokens = tokens, .count = count};
        check_status(mo_session_feed(&f, 1, &err), &err);
    }
    mo_session_close(session);
    return model;
}

static double stat_of(mo_model *model, const char *name, int64_t index)
{
    mo_error err = {.detail = ""};
    double value = -1;
    check_status(mo_model_stat(model, name, index, &value, &err), &err);
    return value;
}

static int64_t values_of(const mo_stat *stat, const mo_model_info *info)
{
    return stat->list == MO_STAT_ONE       ? 1
           : stat->list == MO_STAT_EXPERTS ? info->layers * info->experts
                                           : info->layers;
}

static void every_name_can_be_read(void **state)
{
    (void)state;
    const setting cpu = {0}, tiers = tiers_of(0.3, 0.3);
    const setting *const settings[] = {&cpu, &tiers};
    for (int n = 0; n < 2; n++) {
        mo_model *model = open_fed(settings[n]);
        mo_model_info info;
        mo_model_describe(model, &info, sizeof info);
        const char *name, *about = NULL;
        for (int i = 0; (name = mo_stat_name(i, &about)) != NULL; i++) {
            mo_error err = {.detail = ""};
            double value = -1;
            const mo_stat *stat = mo_stat_at(i);
            assert_true(about[0] != '\0' && strchr(about, '\n') == NULL);
            assert_true((strstr(about, "index") != NULL) == (stat->list != MO_STAT_ONE));
            for (int j = 0; j < i; j++) {
                assert_string_not_equal(name, mo_stat_name(j, NULL));
            }
            if (stat->run.type == MO_STAT_NONE) {
                assert_true(stat->plan.type != MO_STAT_NONE);
                assert_int_equal(mo_model_stat(model, name, 0, &value, &err), MO_EUNSUPPORTED);
                assert_non_null(strstr(err.detail, name));
                continue;
            }
            const int64_t count = values_of(stat, &info);
            check_status(mo_model_stat(model, name, 0, &value, &err), &err);
            assert_true(value >= 0);
            check_status(mo_model_stat(model, name, count - 1, &value, &err), &err);
            assert_int_equal(mo_model_stat(model, name, count, &value, &err), MO_EINVAL);
            assert_int_equal(mo_model_stat(model, name, -1, &value, NULL), MO_EINVAL);
        }
        mo_model_close(model);
    }
}

static void unknown_names_get_a_hint(void **state)
{
    (void)state;
    mo_error err = {.detail = ""};
    double value[2] = {7, 7};
    mo_model *model = open_model(MO_TEST_MODEL, &(setting){0});
    assert_int_equal(mo_model_stat(model, "tier.ram.hist", 0, value, &err), MO_ENOENT);
    assert_non_null(strstr(err.detail, "did you mean tier.ram.hits?"));
    assert_int_equal(mo_model_stat(model, "nothing like it", 0, value, &err), MO_ENOENT);
    assert_non_null(strstr(err.detail, "mo_stat_name()"));
    assert_int_equal(mo_model_stats(model, (const char *const[]){"engine.steps", NULL}, 2, value, &err),
                     MO_EINVAL);
    assert_int_equal(mo_model_stats(model, NULL, 0, NULL, &err), MO_OK);
    assert_null(mo_stat_name(-1, NULL));
    mo_model_close(model);
}

/* No step runs: the reports do not change, but for experts that are still moving. */
static void values_are_those_of_the_reports(void **state)
{
    (void)state;
    const setting s = tiers_of(0.3, 0.3);
    mo_model *model = open_fed(&s);
    mo_counter_report counters;
    mo_kept_report kept;
    mo_traffic_report traffic;
    const counts c = count(model);
    mo_device_layer layers[64];
    mo_expert_report experts[64];
    mo_model_counters(model, &counters, sizeof counters);
    mo_model_kept(model, &kept, sizeof kept);
    mo_model_traffic(model, &traffic, sizeof traffic);
    assert_true(counters.tokens == 47 && counters.single_steps == 7 && counters.prompt_tokens == 40);
    assert_true(stat_of(model, "engine.tokens", 0) == 47);
    assert_true(stat_of(model, "tokens_per_second", 0) == 1e9 * (7 / (double)counters.single_ns));
    assert_true(stat_of(model, "tier.ram.asked", 0) == (double)(c.ram.prompt.asked + c.ram.generation.asked));
    assert_true(stat_of(model, "tier.ram.prompt.hits", 0) == (double)c.ram.prompt.hits);
    assert_true(stat_of(model, "disk.read_bytes", 0) == (double)c.ram.disk_bytes);
    assert_true(stat_of(model, "device.present", 0) == 1);
    assert_true(stat_of(model, "device.asked", 0) == (double)c.vram.asked && c.vram.asked > 0);
    assert_true(stat_of(model, "device.lanes.region_ns", 0) == (double)c.vram.lanes.region_ns);
    assert_true(stat_of(model, "kept.free_bytes", 0) == (double)kept.free_bytes);
    assert_true(stat_of(model, "traffic.ranks", 0) == 1 && traffic.ranks == 1);
    const int found = mo_model_device_layers(model, layers, sizeof *layers, 64);
    assert_in_range(found, 1, 64);
    for (int i = 0; i < found; i++) {
        assert_true(stat_of(model, "device.layer.served", layers[i].layer) == (double)layers[i].served);
        assert_true(stat_of(model, "device.layer.core_ns", layers[i].layer) == (double)layers[i].core_ns);
    }
    mo_model_info info;
    mo_model_describe(model, &info, sizeof info);
    for (int layer = 0; layer < info.layers; layer++) {
        const int all = mo_model_experts(model, layer, experts, sizeof *experts, 64);
        assert_true(stat_of(model, "layer.experts", layer) == all);
        for (int e = 0; e < all && e < 64; e++) {
            const double place = stat_of(model, "expert.place", layer * info.experts + e);
            assert_true(place == MO_EXPERT_DISK || place == MO_EXPERT_RAM || place == MO_EXPERT_DEVICE);
            assert_true(stat_of(model, "expert.bytes", layer * info.experts + e) == (double)experts[e].bytes);
            assert_true(stat_of(model, "expert.picks", layer * info.experts + e) == (double)experts[e].picks);
        }
    }
    for (int why = 0; why < MO_FALLBACKS; why++) {
        char name[64];
        snprintf(name, sizeof name, "device.fallback.%s", mo_fallback_text((mo_fallback)why));
        assert_true(stat_of(model, name, 0) == (double)c.vram.lanes.fallbacks[why]);
        snprintf(name, sizeof name, "device.layer.fallback.%s", mo_fallback_text((mo_fallback)why));
        assert_true(stat_of(model, name, layers[0].layer) == (double)layers[0].fallbacks[why]);
    }
    mo_model_close(model);
}

static void several_at_once_and_as_json(void **state)
{
    (void)state;
    const setting s = tiers_of(0.3, 0.3);
    mo_model *model = open_fed(&s);
    mo_error err = {.detail = ""};
    static const char *const names[] = {"engine.steps", "tier.ram.slots", "device.slots", "kept.sessions"};
    double values[4];
    char *text = NULL;
    mo_model_info info;
    mo_model_describe(model, &info, sizeof info);
    check_status(mo_model_stats(model, names, 4, values, &err), &err);
    for (int i = 0; i < 4; i++) {
        assert_true(values[i] == stat_of(model, names[i], 0));
    }
    check_status(mo_model_stats_json(model, &text, &err), &err);
    json_t *root = json_loads(text, 0, NULL);
    assert_non_null(root);
    size_t runs = 0;
    for (int i = 0; mo_stat_at(i); i++) {
        const mo_stat *stat = mo_stat_at(i);
        json_t *value = json_object_get(root, stat->name);
        runs += stat->run.type != MO_STAT_NONE;
        assert_int_equal(value != NULL, stat->run.type != MO_STAT_NONE);
        if (value && stat->list == MO_STAT_ONE) {
            assert_true(json_is_number(value));
        } else if (value) {
            assert_int_equal(json_array_size(value), values_of(stat, &info));
        }
    }
    assert_int_equal(json_object_size(root), runs);
    assert_true(json_number_value(json_object_get(root, "engine.tokens")) == 47);
    assert_true(json_number_value(json_array_get(json_object_get(root, "expert.bytes"), 5)) ==
                stat_of(model, "expert.bytes", 5));
    json_decref(root);
    mo_free(text);
    mo_model_close(model);
}

/* What a plan decides is what the model has: equal, or for speeds and rates of hits both there. */
static void plans_and_runs_compare_by_name(void **state)
{
    (void)state;
    const setting cpu = {.ram = plan_of(0, 0).least_bytes + (2 << 20)}, tiers = tiers_of(0.3, 0.3);
    const setting *const settings[] = {&cpu, &tiers};
    static const char *const measured[] = {"tokens_per_second", "prompt.tokens_per_second",
                                           "tier.ram.hit_rate", "device.hit_rate"};
    for (int n = 0; n < 2; n++) {
        mo_error err = {.detail = ""};
        mo_plan *plan = NULL;
        char *json = NULL;
        mo_model_options o = mo_model_options_default();
        o.context = 600;
        o.batch = settings[n]->batch ? settings[n]->batch : 64;
        o.device = settings[n]->device ? settings[n]->device : "none";
        o.ram_bytes = settings[n]->ram;
        o.vram_bytes = settings[n]->vram;
        o.threads = 2;
        check_status(mo_plan_open(MO_TEST_MODEL, &o, NULL, &plan, &err), &err);
        o.learning.profile = "off";
        mo_model *model = NULL;
        check_status(mo_model_open(MO_TEST_MODEL, &o, &model, &err), &err);
        int compared = 0;
        for (int i = 0; mo_stat_at(i); i++) {
            const mo_stat *stat = mo_stat_at(i);
            double expected = -1;
            const mo_status status = mo_plan_stat(plan, stat->name, 0, &expected, &err);
            if (stat->plan.type == MO_STAT_NONE) {
                assert_int_equal(status, MO_EUNSUPPORTED);
                continue;
            }
            if (stat->list != MO_STAT_CARDS) { /* there are not several devices */
                check_status(status, &err);
            }
            bool estimate = false;
            for (int k = 0; k < 4; k++) {
                estimate |= strcmp(stat->name, measured[k]) == 0;
            }
            if (stat->run.type != MO_STAT_NONE && !estimate) {
                if (expected != stat_of(model, stat->name, 0)) {
                    fail_msg("%s: %s: %g is expected, %g found", o.device, stat->name, expected,
                             stat_of(model, stat->name, 0));
                }
                compared++;
            }
        }
        assert_true(compared >= 15);
        double value;
        check_status(mo_plan_stat(plan, "class.slots", 0, &value, &err), &err);
        assert_int_equal(mo_plan_stat(plan, "class.slots", 64, &value, &err), MO_EINVAL);
        assert_int_equal(mo_plan_stat(plan, "device.slot", 0, &value, &err), MO_ENOENT);
        assert_string_equal(mo_plan_text(plan, "tier.mode"), mo_model_text(model, "tier.mode"));
        assert_int_equal(mo_plan_text(plan, "device") != NULL, n == 1);
        assert_true(mo_plan_text(plan, "ceiling")[0] != '\0');
        assert_null(mo_plan_text(plan, "nothing"));
        check_status(mo_plan_json(plan, &json, &err), &err);
        assert_non_null(strstr(json, "\"tokens_per_second\""));
        mo_free(json);
        mo_model_close(model);
        mo_plan_close(plan);
    }
}

static void texts_have_keys(void **state)
{
    (void)state;
    const setting s = tiers_of(0.3, 0.3);
    mo_model *model = open_fed(&s);
    const counts c = count(model);
    assert_string_equal(mo_model_text(model, "tier.mode"), c.ram.mode);
    assert_string_equal(mo_model_text(model, "tier.policy"), c.ram.policy);
    assert_string_equal(mo_model_text(model, "disk_method"), c.ram.disk_method);
    assert_string_equal(mo_model_text(model, "device"), c.vram.name);
    mo_model_close(model);
    mo_model *plain = open_model(MO_TEST_MODEL, &(setting){0});
    assert_null(mo_model_text(plain, "device"));
    assert_string_equal(mo_model_text(plain, "tier.mode"), "resident");
    assert_string_equal(mo_model_text(plain, "chat_format"), mo_model_chat_name(plain));
    assert_string_equal(mo_model_text(plain, "tool_format"), mo_model_tool_format(plain));
    assert_ptr_equal(mo_model_text(plain, "chat_template"), mo_model_chat_template(plain, NULL));
    assert_ptr_equal(mo_model_text(plain, "chat_template.tool_use"),
                     mo_model_chat_template(plain, "tool_use"));
    assert_null(mo_model_text(plain, "chat_templates"));
    assert_null(mo_model_text(plain, NULL));
    mo_model_close(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_can_be_read),          cmocka_unit_test(unknown_names_get_a_hint),
        cmocka_unit_test(values_are_those_of_the_reports), cmocka_unit_test(several_at_once_and_as_json),
        cmocka_unit_test(plans_and_runs_compare_by_name),  cmocka_unit_test(texts_have_keys),
    };
    return cmocka_run_group_tests_name("stats", tests, make_tokens, NULL);
}
