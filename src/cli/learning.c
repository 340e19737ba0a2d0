#include "learning.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hints.h"
#include "loading.h"
#include "signals.h"

void cli_learning_take(const cli_learning *l, mo_model_options *out)
{
    const char *mode = getenv("LLAMA_MOE_LAYER_PERF"); /* the hot cache's name for it */
    out->learning = l->options;
    out->learning.perf_mode = mode && mode[0] ? mode : NULL;
    out->cpu_moe = l->cpu_moe;
}

void cli_learning_opened(const char *command, const cli_learning *l, mo_model *model)
{
    mo_device_report device;
    mo_model_device(model, &device, sizeof device);
    if (l->cpu_moe && !device.name) {
        fprintf(
            stderr,
            "moraine %s: note: --cpu-moe changes nothing: experts are computed from RAM, and those that do "
            "not fit come from disk\n",
            command);
    }
}

bool cli_learning_done(const char *command, mo_model *model)
{
    mo_error err;
    const mo_status status = mo_model_request_done(model, &err);
    if (status != MO_OK) {
        cli_say_with_hint(command, &err);
    }
    return status == MO_OK;
}

static void show_in(const char *json, const char *path)
{
    FILE *f = fopen(path, "w");
    bool good = f && fprintf(f, "%s\n", json) > 0;
    good = f && fclose(f) == 0 && good;
    if (good) {
        fprintf(stderr, "written to %s\n", path);
    } else {
        perror(path);
    }
}

void cli_learning_show(mo_model *model, const char *path)
{
    mo_error err;
    char *json = NULL;
    if (mo_model_profile(model, &json, &err) != MO_OK) {
        cli_say_with_hint("chat", &err);
    } else if (path) {
        show_in(json, path);
    } else {
        printf("%s\n", json);
    }
    free(json);
}

void cli_learning_apply(mo_model *model, const char *path)
{
    mo_error err;
    mo_profile_report a;
    size_t length = 0;
    char *text = cli_read_file("chat", path, &length);
    if (!text) {
        return;
    }
    const mo_status status = mo_model_profile_apply(model, text, length, &a, sizeof a, &err);
    if (status != MO_OK) {
        fprintf(stderr, "moraine chat: %s: %s\n", path, err.detail);
    }
    if (status == MO_OK || a.active) {
        printf("{\"success\":%s,\"active\":%s,\"update_rate\":%.1f,\"exchanged\":%" PRIu64
               ",\"candidates\":%" PRIu64 ",\"max_exchange\":%" PRIu64 ",\"hot_experts\":%" PRIu64
               ",\"layers_changed\":%" PRIu64 "}\n",
               a.success ? "true" : "false", a.active ? "true" : "false", a.update_rate, a.exchanged,
               a.candidates, a.max_exchange, a.hot_experts, a.layers_changed);
    }
    free(text);
}

bool cli_learning_discover(const char *command, mo_session *session, const int32_t *tokens, int64_t count)
{
    mo_error err;
    if (count < 1 || mo_session_length(session) > 0) {
        return true;
    }
    const mo_status status = cli_discover(session, tokens, count, &err);
    if (status != MO_OK && status != MO_ECANCELLED) {
        cli_say_with_hint(command, &err);
    }
    return status == MO_OK;
}
