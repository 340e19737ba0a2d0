#include "cli/idle.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cluster.h"
#include "moraine_server.h"

extern char **environ;

static void note(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void note(const char *command, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "moraine %s: note: ", command);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
}

/* ---- Experts that come and go ---- */

/* The placement of an open model. */
typedef struct standing {
    const char *no_reads;   /* why nothing is read from disk while it runs; NULL: something is */
    const char *no_choice;  /* why experts never compete for slots; NULL: they do */
    const char *no_missing; /* why no expert is copied to a device; NULL: some are */
    bool device, routed;
} standing;

static standing find_standing(mo_model *model)
{
    mo_tier_report t;
    mo_device_report d;
    mo_model_info info;
    int64_t experts = 0;
    mo_model_tiers(model, &t, sizeof t);
    mo_model_device(model, &d, sizeof d);
    mo_model_describe(model, &info, sizeof info);
    for (int i = 0; i < info.layers; i++) {
        experts += mo_model_layer_experts(model, i);
    }
    standing s = {.device = d.name != NULL, .routed = experts > 0};
    if (cli_cluster()) { /* this rank does not know where other ranks keep experts */
        return s;
    }
    const int64_t on_device = d.name ? d.slots : 0;
    if (strcmp(t.mode, "mapped") == 0) {
        s.no_reads = s.no_choice = "with --mmap the system reads the file";
    } else if (strcmp(t.mode, "resident") == 0) {
        s.no_reads = s.no_choice =
            d.name ? "the whole model is in RAM and VRAM" : "the whole model is in RAM";
    } else if (experts == 0) {
        s.no_choice = "the model has no experts";
    } else if (t.slots + on_device >= t.experts) {
        s.no_choice = "every expert fits into RAM or VRAM";
    }
    s.no_missing = !d.name                ? "no GPU in use"
                   : experts == 0         ? "the model has no experts"
                   : on_device >= experts ? "all experts are in VRAM"
                                          : NULL;
    return s;
}

static bool begins(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool is(const char *entry, const char *name)
{
    return begins(entry, name) && entry[strlen(name)] == '=';
}

static void add_name(char *names, size_t size, const char *entry)
{
    const size_t used = strlen(names), length = strcspn(entry, "=");
    if (used + length + 8 < size) {
        snprintf(names + used, size - used, "%s%.*s", used ? ", " : "", (int)length, entry);
    }
}

/* Reports settings of Post-Fetch if nothing can be sent. A device reports settings without effect itself. */
static void tell_post_fetch(const char *command, const standing *s)
{
    char names[512] = "";
    for (char **entry = environ; *entry && !s->device; entry++) {
        if (begins(*entry, "LLAMA_POSTFETCH_")) {
            add_name(names, sizeof names, *entry);
        }
    }
    if (names[0]) {
        note(command, "%s: no effect, no GPU in use", names);
    }
}

static const char unguessed[] = "no tokens are guessed; --speculate auto turns that on";

static void tell_tiers(const char *command, const cli_loading *l, const standing *s)
{
    const struct {
        bool given;
        const char *name, *why;
    } options[] = {
        {l->model.policy && strcmp(l->model.policy, "auto") != 0, "--policy", s->no_choice},
        {l->predict && strcmp(l->predict, "off") == 0, "--predict off", s->no_choice},
        {l->predict && strcmp(l->predict, "on") == 0, "--predict on", s->no_choice},
        {l->model.readers > 0, "--readers", s->no_reads},
        {l->model.io != MO_IO_AUTO, "--io", s->no_reads},
        {l->model.skip_missing, "--skip-missing", s->no_choice},
        {l->discovers, "--discover", s->no_choice},
        {l->postfetch != NULL, "--postfetch", s->no_missing},
        {l->model.draft_max > 0 && l->model.speculate == MO_SPECULATE_OFF, "--draft-max", unguessed},
        {l->model.draft_model && l->model.speculate == MO_SPECULATE_OFF, "--draft-model", unguessed},
        {l->model.cpu_moe && s->device && !s->routed, "--cpu-moe", "the model has no experts"},
        {l->model.cpu_moe && !s->device, "--cpu-moe",
         "without a GPU, experts are always computed by the CPU"},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (options[i].given && options[i].why) {
            note(command, "%s has no effect: %s", options[i].name, options[i].why);
        }
    }
    tell_post_fetch(command, s);
}

/* ---- The hot cache ---- */

/* Options with their default value are not reported. */
static void tell_hot_cache(const char *command, const mo_hot_cache_options *h)
{
    static const char none[] = "the hot cache is off";
    const bool off = !h->file || h->max_mib == 0;
    const bool level =
        !h->weighting || strcmp(h->weighting, "flat") == 0 || strcmp(h->weighting, "balanced") == 0;
    const struct {
        bool given;
        const char *name, *why;
    } options[] = {
        {h->weighting != NULL, "weighting", off ? none : NULL},
        {h->layer_curve != 0.5, "layer-curve",
         off     ? none
         : level ? "it applies to the weightings pressure, smooth and time"
                 : NULL},
        {h->auto_reserve_mib != 1024, "auto-reserve-mib",
         off                ? none
         : h->max_mib != -1 ? "it applies to --moe-hot-cache-max-mib -1"
                            : NULL},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (options[i].given && options[i].why) {
            note(command, "--moe-hot-cache-%s has no effect: %s", options[i].name, options[i].why);
        }
    }
}

/* ---- The environment ---- */

/* It has no effect for exact prompts, but would seem to work. */
static void tell_threshold(const char *command, const cli_loading *l)
{
    const char *tokens = getenv("LLAMA_FP4_PREFILL_M");
    if (tokens && *tokens && (!l->prompt_precision || strcmp(l->prompt_precision, "exact") == 0)) {
        note(command, "LLAMA_FP4_PREFILL_M has no effect: prompts are "
                      "exact; it applies to --prompt-precision bf16");
    }
}

void cli_idle_variables(const char *command, const cli_loading *l, bool serve)
{
    static bool told;
    char options[256] = "", others[256] = "";
    for (char **entry = environ; *entry && !told; entry++) {
        if (begins(*entry, "LLAMA_ARG_")) {
            add_name(options, serve ? 0 : sizeof options, *entry);
        } else if (begins(*entry, "GGML_") ||
                   (begins(*entry, "LLAMA_") && !begins(*entry, "LLAMA_POSTFETCH_") &&
                    !begins(*entry, "LLAMA_MOE_HOT_CACHE_") && !is(*entry, "LLAMA_MOE_LAYER_PERF") &&
                    !is(*entry, "LLAMA_FP4_PREFILL_M") && !is(*entry, "LLAMA_API_KEY") &&
                    !(serve && is(*entry, "LLAMA_CHAT_TEMPLATE_KWARGS")))) {
            add_name(others, sizeof others, *entry);
        }
    }
    if (!told) {
        tell_threshold(command, l);
    }
    told = true;
    if (options[0]) {
        note(command, "%s: ignored; only moraine serve reads options from the environment", options);
    }
    if (others[0]) {
        note(command, "%s: ignored; variables of llama.cpp or ggml", others);
    }
}

/* ---- Together ---- */

void cli_idle_streaming(const char *command, const cli_loading *l)
{
    if (l->streaming) {
        note(command, "--streaming is not needed: the plan uses VRAM, RAM and disk automatically");
    }
}

/* Does the chat format support reasoning on and off? */
static bool can_think(const mo_model *model)
{
    const mo_message message = {.role = "user", .content = "?"};
    mo_chat_options options = mo_chat_options_default();
    char *without = NULL, *with = NULL;
    options.thinking = MO_THINKING_OFF;
    mo_model_chat(model, &message, 1, &options, &without, NULL);
    options.thinking = MO_THINKING_ON;
    mo_model_chat(model, &message, 1, &options, &with, NULL);
    const bool differ = with && without && strcmp(with, without) != 0;
    mo_free(with);
    mo_free(without);
    return differ;
}

void cli_idle_tell(const char *command, const cli_loading *l, mo_model *model)
{
    const standing s = find_standing(model);
    tell_tiers(command, l, &s);
    tell_hot_cache(command, &l->model.learning.hot_cache);
    cli_idle_streaming(command, l);
    if ((l->divide || l->rank_timeout > 0) && !cli_cluster()) {
        note(command, "--%s has no effect: there is one rank; mpirun -n N starts several",
             l->divide ? "divide" : "rank-timeout");
    }
    cli_idle_variables(command, l, false);
    if (l->thinking != MO_THINKING_DEFAULT && !can_think(model)) {
        note(command, "--%s has no effect: this model's chat format has no switch for it",
             l->thinking == MO_THINKING_ON ? "think" : "no-think");
    }
}

void cli_idle_tell_plan(const cli_loading *l, const mo_plan_report *r)
{
    int64_t experts = 0;
    for (int i = 0; i < r->class_count; i++) {
        experts += r->classes[i].experts;
    }
    const bool device = r->device.ceiling_bytes > 0;
    const char *why = !device                      ? "no GPU in use"
                      : experts == 0               ? "the model has no experts"
                      : r->device.slots >= experts ? "all experts are in VRAM"
                                                   : NULL;
    if (l->postfetch && why) {
        note("plan", "--postfetch has no effect: %s", why);
    }
    if (l->model.cpu_moe && (!device || experts == 0)) {
        note("plan", "--cpu-moe has no effect: %s", why);
    }
    if (l->model.draft_max > 0 && l->model.speculate == MO_SPECULATE_OFF) {
        note("plan", "--draft-max has no effect: %s", unguessed);
    }
    if (l->model.draft_model && !r->head_bytes) {
        note("plan", "--draft-model has no effect: %s",
             l->model.speculate == MO_SPECULATE_OFF ? unguessed
             : r->batch == 1
                 ? "with --batch 1 no tokens are guessed"
                 : "the model's weights or context need its memory; --speculate draft uses it anyway");
    }
    if (l->model.prompt_precision != r->prompt_precision) {
        note("plan",
             device ? "--prompt-precision bf16 has no effect: the GPU computes exactly, "
                      "or steps of %lld tokens are too short (LLAMA_FP4_PREFILL_M)"
                    : "--prompt-precision bf16 has no effect: no GPU in use",
             (long long)r->batch);
    }
    tell_hot_cache("plan", &l->model.learning.hot_cache);
    cli_idle_variables("plan", l, false);
}
