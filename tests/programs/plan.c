/* plan MODEL [RAM_MB]: what a plan expects under a ceiling, and what a run measures. */
#include <moraine_tools.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool generate(mo_model *model, mo_error *err)
{
    static const char text[] = "Once upon a time";
    mo_session *session = NULL;
    mo_generation *generation = NULL;
    mo_generation_event event = {0};
    int32_t *ids = NULL;
    size_t count = 0;
    mo_generation_options options = mo_generation_options_default();
    options.temperature = 0;
    options.raw = options.ignore_end = true;
    options.max_tokens = 100;
    bool ok = mo_tokenize(model, text, strlen(text), MO_TOKEN_SPECIAL, &ids, &count, err) == MO_OK &&
              mo_session_open(model, NULL, &session, err) == MO_OK &&
              mo_generation_open(model, &options, &generation, err) == MO_OK &&
              mo_generation_prompt(generation, session, ids, (int64_t)count, err) == MO_OK;
    for (int running = 1; ok && running > 0;) {
        running = mo_generation_step(&generation, 1, err);
        ok = running >= 0;
        while (mo_generation_next(generation, &event, sizeof event)) {
            fputs(event.text.data, stdout);
        }
    }
    printf("\n");
    if (ok && event.end != MO_END_LENGTH) {
        ok = false;
        *err = event.error ? *event.error : *err;
    }
    mo_generation_close(generation);
    mo_session_close(session);
    mo_free(ids);
    return ok;
}

int main(int argc, char **argv)
{
    mo_error err = {0};
    mo_plan *plan = NULL;
    mo_model *model = NULL;
    char *json = NULL;
    const char *path = argc > 1 ? argv[1] : "", *about, *name;
    double expected, measured;
    mo_model_options options = mo_model_options_default();
    options.device = "none";
    options.ram_bytes = (argc > 2 ? atoll(argv[2]) : 30) * 1000000;
    options.context = 512;
    bool ok = mo_version_check(MORAINE_VERSION, &err) == MO_OK &&
              mo_plan_open(path, &options, NULL, &plan, &err) == MO_OK;
    if (ok) {
        printf("plan: %s; %s\n", mo_plan_text(plan, "tier.mode"), mo_plan_text(plan, "ceiling"));
        ok = mo_model_open(path, &options, &model, &err) == MO_OK && generate(model, &err);
    }
    for (int i = 0; ok && (name = mo_stat_name(i, &about)); i++) {
        const mo_status p = mo_plan_stat(plan, name, 0, &expected, &err);
        const mo_status m = mo_model_stat(model, name, 0, &measured, &err);
        if (p == MO_OK) {
            printf("%-32s expected %-14.6g measured ", name, expected);
            m == MO_OK ? printf("%-14.6g", measured) : printf("%-14s", mo_status_text(m));
            printf(" %s\n", about);
        }
        /* Each is of plans, of runs, or of both; MO_EINVAL: there is no index 0, as of devices without one. */
        ok = p != MO_EUNSUPPORTED || m != MO_EUNSUPPORTED;
        ok = ok && (p == MO_OK || p == MO_EUNSUPPORTED || p == MO_EINVAL);
        ok = ok && (m == MO_OK || m == MO_EUNSUPPORTED || m == MO_EINVAL);
    }
    ok = ok && mo_model_stats_json(model, &json, &err) == MO_OK;
    if (ok) {
        printf("model: %s\n%s\n", mo_model_text(model, "tier.mode"), json);
    } else {
        fprintf(stderr, "plan: %s\n", err.detail);
    }
    mo_free(json);
    mo_model_close(model);
    mo_plan_close(plan);
    return !ok;
}
