#include "template/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/growing.h"
#include "base/status.h"
#include "template/json.h"
#include "template/run.h"

struct mo_template {
    mo_arena *arena;
    mo_jtree tree;
};

static const mo_template_options defaults = {.size = sizeof(mo_template_options)};

enum {
    STEPS = 100 * 1000 * 1000, /* a few seconds */
    BYTES = 256 << 20,         /* plus this many times the size of the context: */
    BYTES_PER_BYTE = 32,
    TEMPLATE_MOST = 16 << 20, /* maximum bytes of a template */
};

void mo_template_options_init(mo_template_options *options, size_t size)
{
    mo_options_write(options, size, &defaults, sizeof defaults);
}

/* ---- Parsing ---- */

typedef struct parsing {
    const char *text;
    size_t length;
    mo_jtree tree;
} parsing;

static void parse(mo_work *w, void *user)
{
    parsing *p = user;
    p->tree = mo_parser_run(w, p->text, p->length);
}

mo_status mo_template_open(const char *text, size_t length, mo_template **out, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, out)
    if (length > 0) {
        MO_REQUIRE(err, text)
    }
    parsing p = {.text = text, .length = length};
    *out = NULL;
    if (length > TEMPLATE_MOST) {
        return mo_fail(err, MO_EFORMAT, "the template has %zu bytes; the limit is %d", length, TEMPLATE_MOST);
    }
    mo_template *t = calloc(1, sizeof *t);
    mo_arena *arena = t ? mo_arena_create(0) : NULL;
    if (!arena) {
        free(t);
        return mo_fail(err, MO_ENOMEM, "out of memory for a template");
    }
    t->arena = arena;
    mo_work w = {
        .arena = arena, .bytes_most = BYTES + 1024 * (uint64_t)length, .steps_most = STEPS, .err = err};
    if (!mo_work_try(&w, parse, &p)) {
        mo_template_close(t);
        return w.status;
    }
    t->tree = p.tree;
    *out = t;
    return MO_OK;
}

void mo_template_close(mo_template *t)
{
    if (t) {
        mo_arena_destroy(t->arena);
        free(t);
    }
}

/* ---- The clock ---- */

/* "2026-01-15T10:20:30", "2026-01-15 10:20" or "2026-01-15". */
static bool read_clock(const char *text, struct tm *out)
{
    static const char form[] = "0000-00-00";
    int year, month, day, hour = 0, minute = 0, second = 0, n = 0, m = 0;
    while (form[n] == '0' ? text[n] >= '0' && text[n] <= '9' : form[n] && text[n] == form[n]) {
        n++;
    }
    if (form[n] || sscanf(text, "%4d-%2d-%2d", &year, &month, &day) != 3) {
        return false;
    }
    if (text[n]) {
        if ((text[n] != 'T' && text[n] != ' ') ||
            sscanf(text + n + 1, "%2d:%2d%n:%2d%n", &hour, &minute, &m, &second, &m) < 2 ||
            (text[n + 1 + m] && text[n + 1 + m] != '.' && text[n + 1 + m] != 'Z')) {
            return false;
        }
    }
    if (month < 1 || month > 12 || hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 ||
        second > 60) {
        return false;
    }
    *out = (struct tm){.tm_year = year - 1900,
                       .tm_mon = month - 1,
                       .tm_mday = day,
                       .tm_hour = hour,
                       .tm_min = minute,
                       .tm_sec = second};
    (void)timegm(out); /* sets the day of the week and of the year; turns 31 February into a day of March */
    return out->tm_mday == day;
}

static mo_status set_clock(const char *text, struct tm *tm, const struct tm **clock, mo_error *err)
{
    if (!text) {
        const time_t now = time(NULL);
        localtime_r(&now, tm);
    } else if (*text && !read_clock(text, tm)) {
        return mo_fail(err, MO_EINVAL,
                       "`date` \"%.40s\" is not a date such as 2026-01-15 or 2026-01-15T10:20:30", text);
    }
    tm->tm_zone = ""; /* without a time zone, as Python's now() */
    *clock = text && !*text ? NULL : tm;
    return MO_OK;
}

/* ---- Rendering ---- */

void mo_rendering_free(mo_rendering *r)
{
    free(r->text);
    free(r->input);
    *r = (mo_rendering){0};
}

static mo_status copy_out(const mo_jbuffer *b, mo_rendering *out, mo_error *err)
{
    out->text = malloc((size_t)b->used + 1);
    out->input = malloc((size_t)b->used + 1);
    if (!out->text || !out->input) {
        mo_rendering_free(out);
        return mo_fail(err, MO_ENOMEM, "out of memory for a rendered template");
    }
    memcpy(out->text, b->data, b->used);
    out->text[b->used] = 0;
    out->length = b->used;
    if (b->marks) {
        memcpy(out->input, b->marks, b->used);
    } else {
        memset(out->input, b->input, b->used);
    }
    return MO_OK;
}

typedef struct request {
    const mo_template *t;
    const struct tm *clock;
    mo_context_fn make;
    void *user;
    mo_rendering *out;
} request;

static void render(mo_work *w, void *user)
{
    const request *q = user;
    mo_jrun r = {.w = w, .tree = &q->t->tree, .clock = q->clock};
    r.context = q->make(w, q->clock, q->user);
    r.out = mo_jbuffer_new(w, 4096);
    r.frame = mo_frame_enter(&r, NULL);
    mo_run_body(&r, &q->t->tree.body);
    w->status = copy_out(r.out, q->out, w->err);
}

mo_status mo_template_run(const mo_template *t, const mo_template_options *options, mo_context_fn make,
                          void *user, size_t input_bytes, mo_rendering *out, mo_error *err)
{
    mo_template_options o = defaults;
    struct tm tm;
    request q = {.t = t, .make = make, .user = user, .out = out};
    *out = (mo_rendering){0};
    mo_status status = mo_options_read(&o, sizeof o, options, "mo_template_options", err);
    if (status == MO_OK) {
        status = set_clock(o.clock, &tm, &q.clock, err);
    }
    if (status != MO_OK) {
        return status;
    }
    mo_work w = {.arena = mo_arena_create(0),
                 .bytes_most = o.bytes ? o.bytes : BYTES + BYTES_PER_BYTE * (uint64_t)input_bytes,
                 .steps_most = o.steps ? o.steps : STEPS,
                 .err = err};
    if (!w.arena) {
        return mo_fail(err, MO_ENOMEM, "out of memory while rendering a template");
    }
    (void)mo_work_try(&w, render, &q);
    out->raised = w.raised;
    mo_arena_destroy(w.arena);
    return w.status;
}

typedef struct source {
    const char *json;
    size_t length;
} source;

static mo_jdict *read_context(mo_work *w, const struct tm *clock, void *user)
{
    (void)clock;
    const source *s = user;
    const mo_jv v = mo_json_read(w, s->json, s->length, true, "the context");
    if (v.kind != MO_J_DICT) {
        mo_work_fail(w, MO_EINVAL, "the context is not a JSON object");
    }
    return v.as.dict;
}

mo_status mo_template_render(const mo_template *t, const char *context, size_t context_length,
                             const mo_template_options *options, char **text, size_t *length, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, t, context, text, length)
    source s = {context, context_length};
    mo_rendering out;
    *text = NULL;
    const mo_status status = mo_template_run(t, options, read_context, &s, context_length, &out, err);
    if (status == MO_OK) {
        free(out.input);
        *text = out.text;
        *length = out.length;
    }
    return status;
}
