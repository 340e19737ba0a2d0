#include "hotcache/toggles.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "LLAMA_MOE_HOT_CACHE_"

/* Settings of ggml's graph: how it splits, pads and merges lanes. */
static const char *const graph[] = {
    "PARALLEL_MIN_SLOTS",
    "HOT_DUMMY_PADDING",
    "PREFIX_REDUCE_TASKS",
    "CPU_DECODE_ROUTING",
    "DECODE_DIRECT_MERGE",
    "DECODE_STRIDED_SUM_ROWS",
    "MERGE_SUM_ROWS",
    "SHARED_INPUT_ROW",
    "COLD_FIRST_ROW_INPUT",
    "DECODE_REPEAT_HOT_INPUT",
    "COLD_PREFIX_SUM",
    "COLD_PREFIX_WEIGHTED_SUM",
    "BRANCH_REDUCE_MERGE",
    "PP_DENSE",
    "PP_DENSE_MIN_TOKENS",
    "PP_REDUCE_MERGE",
    "PP_MIN_HOT_EXPERT_RATIO",
    "PP_COLD_BACKEND",
    "PP_WORKLIST_ORDER",
    "PP_BYPASS",
    "PP_BYPASS_MIN_TOKENS",
    "PP_INDIRECT_COLD_INPUTS",
    "PP_FUSED_COLD_DOWN_REDUCE",
    "PP_HOT_DUMMY_PADDING",
    "PP_HOT_LANE_CAPACITY_DIVISOR",
    "PP_WEIGHTED_COLD_REDUCE",
};

static const char *const weightings[MO_HOT_FAMILIES] = {"WEIGHTING", "QWEN_WEIGHTING", "GEMMA4_WEIGHTING"};
static const char *const curves[MO_HOT_FAMILIES] = {"LAYER_CURVE", "QWEN_LAYER_CURVE", "GEMMA4_LAYER_CURVE"};

static bool among(const char *name, size_t length, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strlen(list[i]) == length && strncmp(list[i], name, length) == 0) {
            return true;
        }
    }
    return false;
}

/* Adds a name to a list, if it fits. */
static void add_name(char *list, size_t size, const char *name, size_t length)
{
    const size_t used = strlen(list);
    snprintf(list + used, size - used, "%s" PREFIX "%.*s", used ? ", " : "", (int)(length < 60 ? length : 60),
             name);
}

static void say(mo_hot_toggles *t, const char *fmt, ...) MO_PRINTF(2, 3);
static void say(mo_hot_toggles *t, const char *fmt, ...)
{
    if (t->lines < MO_HOT_TOGGLE_LINES) {
        va_list args;
        va_start(args, fmt);
        vsnprintf(t->line[t->lines++], sizeof t->line[0], fmt, args);
        va_end(args);
    }
}

static void read_parallel(mo_hot_toggles *t, const char *value)
{
    t->serial = strcmp(value, "off") == 0;
    if (!t->serial && strcmp(value, "auto") != 0 && strcmp(value, "force") != 0) {
        say(t, PREFIX "PARALLEL=%.60s: must be auto, off or force; using auto", value);
    }
}

static void read_fill(mo_hot_toggles *t, const char *value)
{
    t->no_fill = strcmp(value, "off") == 0 || strcmp(value, "0") == 0;
    if (!t->no_fill && strcmp(value, "on") != 0 && strcmp(value, "1") != 0) {
        say(t, PREFIX "FILL_RANDOM=%.60s: must be on or off; using on", value);
    }
}

/* Reads a name of weighting or curve. False: it is another name. */
static bool read_words(mo_hot_toggles *t, const char *name, size_t length, const char *value)
{
    for (int i = 0; i < MO_HOT_FAMILIES; i++) {
        mo_hot_words *w = &t->words[i];
        if (among(name, length, &weightings[i], 1)) {
            mo_error err = {0};
            w->mode_given = mo_weighting_find(value, &w->mode, &err) == MO_OK;
            if (!w->mode_given) {
                say(t, PREFIX "%s=%.60s: ignored; must be flat, balanced, pressure, smooth or time",
                    weightings[i], value);
            }
            return true;
        }
        if (among(name, length, &curves[i], 1)) {
            char *end;
            w->curve = strtod(value, &end);
            w->curve_given = end != value && !*end && w->curve >= 0 && w->curve <= 1;
            if (!w->curve_given) {
                say(t, PREFIX "%s=%.60s: ignored; must be a number from 0 to 1", curves[i], value);
            }
            return true;
        }
    }
    return false;
}

void mo_hot_toggles_read(char *const *environment, mo_hot_toggles *out)
{
    char inside[200] = "", unknown[200] = "";
    *out = (mo_hot_toggles){0};
    for (; environment && *environment; environment++) {
        const char *entry = *environment, *equals = strchr(entry, '=');
        if (strncmp(entry, PREFIX, strlen(PREFIX)) != 0 || !equals || !equals[1]) {
            continue; /* an empty value counts as not set */
        }
        const char *name = entry + strlen(PREFIX);
        const size_t length = (size_t)(equals - name);
        if (among(name, length, (const char *const[]){"PARALLEL"}, 1)) {
            read_parallel(out, equals + 1);
        } else if (among(name, length, (const char *const[]){"FILL_RANDOM"}, 1)) {
            read_fill(out, equals + 1);
        } else if (among(name, length, graph, sizeof graph / sizeof *graph)) {
            add_name(inside, sizeof inside, name, length);
        } else if (!read_words(out, name, length, equals + 1)) {
            add_name(unknown, sizeof unknown, name, length);
        }
    }
    if (inside[0]) {
        say(out,
            "%s: ignored; it controls ggml's graph, while lists "
            "here are always exact and merged in the router's order",
            inside);
    }
    if (unknown[0]) {
        say(out, "%s: not a setting of the hot cache; see moraine(1)", unknown);
    }
}
