#include "plan/postfetch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#define PREFIX           "LLAMA_POSTFETCH_"
#define TRANSFERS_MOST   1024
#define CPU_LIMIT_MOST   1024
#define SCRATCH_MOST_MIB ((int64_t)1 << 30)

/* Names of the original design. */
enum { ENABLE, FORCE_CPU, BLOCK_ON_MISS, MAX_TRANSFERS, SCRATCHPAD_MB, STREAMS, CPU_LIMIT, DEBUG, VARIABLES };

static const struct variable {
    const char *name;
    int64_t least, most, standard;
} variables[VARIABLES] = {
    [ENABLE] = {PREFIX "ENABLE", 0, 1, 1},
    [FORCE_CPU] = {PREFIX "FORCE_CPU", 0, 1, 0},
    [BLOCK_ON_MISS] = {PREFIX "BLOCK_ON_MISS", 0, 1, 1},
    [MAX_TRANSFERS] = {PREFIX "MAX_TRANSFERS", 1, TRANSFERS_MOST, 8},
    [SCRATCHPAD_MB] = {PREFIX "SCRATCHPAD_MB", 0, SCRATCH_MOST_MIB, 0},
    [STREAMS] = {PREFIX "USE_DEDICATED_STREAMS", 0, 1, 1},
    [CPU_LIMIT] = {PREFIX "CPU_LIMIT", 0, CPU_LIMIT_MOST, 6},
    [DEBUG] = {PREFIX "DEBUG", 0, 1, 0},
};

static void note(mo_postfetch_notes *notes, const char *fmt, ...) MO_PRINTF(2, 3);
static void note(mo_postfetch_notes *notes, const char *fmt, ...)
{
    if (notes && notes->count < MO_POSTFETCH_NOTES) {
        va_list args;
        va_start(args, fmt);
        vsnprintf(notes->line[notes->count++], sizeof notes->line[0], fmt, args);
        va_end(args);
    }
}

/* ---- The environment ---- */

static const char *from_environment(void *user, const char *name)
{
    (void)user;
    return getenv(name);
}

typedef struct value {
    int64_t number;
    bool given;
} value;

static mo_status read_value(const struct variable *v, const char *text, value *out, mo_error *err)
{
    *out = (value){.number = v->standard};
    if (!text || !*text) {
        return MO_OK;
    }
    char *end;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    if (*end || errno || number < v->least || number > v->most) {
        if (v->most == 1) {
            return mo_fail(err, MO_EINVAL, "%s=%.60s: must be 0 or 1; change or unset it", v->name, text);
        }
        return mo_fail(err, MO_EINVAL,
                       "%s=%.60s: must be an integer from %" PRId64 " to %" PRId64 "; change or unset it",
                       v->name, text, v->least, v->most);
    }
    *out = (value){.number = number, .given = true};
    return MO_OK;
}

/* LLAMA_POSTFETCH_MODE is our addition: the original design has only one mode. */
static const char mode_name[] = PREFIX "MODE";

static mo_status read_mode(const char *text, mo_postfetch_mode *out, mo_error *err)
{
    static const struct {
        const char *word;
        mo_postfetch_mode mode;
    } modes[] = {{"down", MO_POSTFETCH_DOWN}, {"expert", MO_POSTFETCH_EXPERT}, {"auto", MO_POSTFETCH_AUTO}};
    *out = MO_POSTFETCH_DEFAULT;
    if (!text || !*text) {
        return MO_OK;
    }
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(text, modes[i].word) == 0) {
            *out = modes[i].mode;
            return MO_OK;
        }
    }
    return mo_fail(err, MO_EINVAL, "%s=%.60s: must be down, expert or auto; change or unset it", mode_name,
                   text);
}

/* ---- Settings ---- */

static const char *mode_text(mo_postfetch_mode mode)
{
    switch (mode) {
    case MO_POSTFETCH_OFF: return "off";
    case MO_POSTFETCH_DOWN: return "down";
    case MO_POSTFETCH_EXPERT: return "expert";
    case MO_POSTFETCH_DEFAULT:
    case MO_POSTFETCH_AUTO: break;
    }
    return "auto";
}

/* Notes settings that contradict each other. */
static void note_overruled(mo_postfetch_mode option, const value *v, mo_postfetch_notes *notes)
{
    const char *mode = mode_text(option);
    if (v[ENABLE].given && (v[ENABLE].number == 1) != (option != MO_POSTFETCH_OFF)) {
        note(notes, "`postfetch` %s overrides %s=%d", mode, variables[ENABLE].name, (int)v[ENABLE].number);
    }
    if (v[FORCE_CPU].number && option != MO_POSTFETCH_OFF) {
        note(notes, "`postfetch` %s overrides %s=1", mode, variables[FORCE_CPU].name);
    }
}

/* Notes settings without effect, because Post-Fetch is off or uses its measurements instead. */
static void note_idle(const mo_postfetch *p, const value *v, mo_postfetch_notes *notes)
{
    const bool automatic = p->mode == MO_POSTFETCH_AUTO && !p->force_cpu;
    const char *why = automatic                     ? "Post-Fetch is auto and uses measured rates"
                      : p->mode == MO_POSTFETCH_OFF ? "Post-Fetch is off"
                                                    : "LLAMA_POSTFETCH_FORCE_CPU is 1";
    char names[224] = "";
    size_t used = 0;
    for (int i = BLOCK_ON_MISS; i < DEBUG; i++) {
        const bool said = v[i].given && v[i].number != variables[i].standard; /* the default needs no note */
        if (said && !(automatic && i == SCRATCHPAD_MB) && used < sizeof names) {
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                                     variables[i].name);
        }
    }
    if (used) {
        note(notes, "%s, which disables %s", why, names);
    }
}

mo_status mo_postfetch_settings(mo_postfetch_mode option, mo_postfetch_get get, void *user, mo_postfetch *out,
                                mo_postfetch_notes *notes, mo_error *err)
{
    value v[VARIABLES];
    mo_status status = MO_OK;
    for (int i = 0; i < VARIABLES && status == MO_OK; i++) {
        const char *text = get ? get(user, variables[i].name) : from_environment(NULL, variables[i].name);
        status = read_value(&variables[i], text, &v[i], err);
    }
    mo_postfetch_mode named = MO_POSTFETCH_DEFAULT;
    if (status == MO_OK) {
        status = read_mode(get ? get(user, mode_name) : from_environment(NULL, mode_name), &named, err);
    }
    if (status != MO_OK) {
        return status;
    }
    const bool asked = option != MO_POSTFETCH_DEFAULT;
    mo_postfetch p = {
        .mode = asked                           ? option
                : !v[ENABLE].number             ? MO_POSTFETCH_OFF
                : named != MO_POSTFETCH_DEFAULT ? named
                                                : MO_POSTFETCH_AUTO,
        .force_cpu = v[FORCE_CPU].number && !asked,
        .block_on_miss = v[BLOCK_ON_MISS].number,
        .block_given = v[BLOCK_ON_MISS].given,
        .max_transfers = (int)v[MAX_TRANSFERS].number,
        .scratch_mb = v[SCRATCHPAD_MB].number,
        .dedicated_streams = v[STREAMS].number,
        .cpu_limit = (int)v[CPU_LIMIT].number,
        .debug = v[DEBUG].number,
    };
    if (asked) {
        note_overruled(option, v, notes);
    }
    if (named != MO_POSTFETCH_DEFAULT && named != p.mode) {
        note(notes, "%s overrides %s=%s", asked ? "`postfetch`" : PREFIX "ENABLE=0", mode_name,
             mode_text(named));
    }
    if (p.mode == MO_POSTFETCH_OFF || p.mode == MO_POSTFETCH_AUTO || p.force_cpu) {
        note_idle(&p, v, notes);
    } else if (p.cpu_limit == 0) {
        note(notes, "%s=0 leaves the CPU no work, so copies cannot overlap with it",
             variables[CPU_LIMIT].name);
    }
    *out = p;
    return MO_OK;
}

void mo_postfetch_unknown(char *const *environment, mo_postfetch_notes *notes)
{
    for (; environment && *environment; environment++) {
        const char *entry = *environment, *equals = strchr(entry, '=');
        const size_t length = equals ? (size_t)(equals - entry) : strlen(entry);
        bool known = strncmp(entry, PREFIX, strlen(PREFIX)) != 0 ||
                     (length == sizeof mode_name - 1 && strncmp(entry, mode_name, length) == 0);
        for (int i = 0; i < VARIABLES && !known; i++) {
            known = strlen(variables[i].name) == length && strncmp(entry, variables[i].name, length) == 0;
        }
        if (!known) {
            note(notes, "%.*s is not a setting of Post-Fetch; see moraine(1)",
                 (int)(length < 80 ? length : 80), entry);
        }
    }
}

/* ---- Capacity ---- */

static int64_t mib_of(int64_t bytes)
{
    return (bytes + ((int64_t)1 << 20) - 1) >> 20;
}

/* The requested scratch; the plan has provided it as far as memory allows. */
static mo_status size_given(const mo_postfetch *s, int64_t one, mo_postfetch_capacity *out, mo_error *err)
{
    const int64_t asked = s->scratch_mb << 20;
    if (asked < one) {
        return mo_fail(err, MO_EINVAL,
                       "%s=%" PRId64 ": too small for one transfer; the minimum is %" PRId64
                       ", and 0 means as much as needed",
                       variables[SCRATCHPAD_MB].name, s->scratch_mb, mib_of(one));
    }
    out->scratch_bytes = asked;
    return MO_OK;
}

mo_status mo_postfetch_size(const mo_postfetch *s, const mo_postfetch_facts *f, mo_postfetch_capacity *out,
                            mo_postfetch_notes *notes, mo_error *err)
{
    const int64_t one = s->mode == MO_POSTFETCH_DOWN ? f->down_bytes : f->expert_bytes;
    const int64_t most = f->vram_free_bytes / 10;
    const int wanted = s->max_transfers < f->used ? s->max_transfers : f->used;
    mo_postfetch_capacity capacity = {0};
    if (s->mode == MO_POSTFETCH_OFF || s->force_cpu || one <= 0 || f->used <= 0) {
        *out = capacity;
        return MO_OK;
    }
    if (s->scratch_mb > 0 && s->mode != MO_POSTFETCH_AUTO) {
        const mo_status status = size_given(s, one, &capacity, err);
        if (status != MO_OK) {
            return status;
        }
    } else if (one > most) {
        if (s->mode != MO_POSTFETCH_AUTO) {
            note(notes,
                 "Post-Fetch is off: one transfer takes %" PRId64
                 " MiB, more than a tenth of the free device memory",
                 mib_of(one));
        }
        *out = capacity;
        return MO_OK;
    } else {
        capacity.scratch_bytes = most / one < wanted ? most / one * one : wanted * one;
    }
    if (f->scratch_bytes && f->scratch_bytes < capacity.scratch_bytes) {
        capacity.scratch_bytes = f->scratch_bytes;
    }
    const int64_t fit = capacity.scratch_bytes / one;
    capacity.transfers = (int)(fit < wanted ? fit : wanted);
    if (capacity.transfers < wanted && s->mode != MO_POSTFETCH_AUTO) {
        const bool small = capacity.scratch_bytes < (int64_t)1 << 20;
        note(notes, "scratch of %" PRId64 " %s holds %d transfer%s at once instead of %d; the others queue",
             capacity.scratch_bytes >> (small ? 10 : 20), small ? "KiB" : "MiB", capacity.transfers,
             capacity.transfers == 1 ? "" : "s", wanted);
    }
    *out = capacity;
    return MO_OK;
}
