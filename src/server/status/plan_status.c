/* Plan status: what another budget would give, as `moraine plan --json` says it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "moraine_server.h"
#include "server/status/status.h"

/* A size such as 6G or 512MiB in a query; false: it is none. */
static bool read_size(const char *text, int64_t *bytes)
{
    static const char units[] = "KMGT";
    char *end;
    const double number = strtod(text, &end);
    double factor = 1;
    if (end == text || !(number >= 0) || number > 1e15) {
        return false;
    }
    const char *unit = *end ? strchr(units, *end >= 'a' ? *end - 'a' + 'A' : *end) : NULL;
    if (unit) {
        for (const char *u = units; u <= unit; u++) {
            factor *= 1024;
        }
        end++;
        end += strncmp(end, "iB", 2) == 0 ? 2 : *end == 'B' ? 1 : 0;
    }
    if (*end || number * factor > 9e18) {
        return false;
    }
    *bytes = (int64_t)(number * factor);
    return true;
}

static bool read_query(srv_request *q, const char *name, int64_t *out)
{
    const char *text = srv_request_query(q, name);
    if (text && *text && !read_size(text, out)) {
        srv_reply_refusal(q, SRV_FAULT_REQUEST, name, "expected a size such as 6G, or a number");
        return false;
    }
    return true;
}

/* As the model is, or would be, loaded. Ceilings that the server found for itself are those it found when it loaded the model:
 * the free memory is now less. */
static mo_model_options as_loaded(srv_models *models, int index, const srv_model_report *r)
{
    mo_model_options o = *srv_models_loading(models, index);
    o.positions = o.kept_bytes = o.kept_device_bytes = 0;
    o.context = r->context;
    o.sessions = r->parallel ? r->parallel : 1;
    return o;
}

/* What the loaded model holds would not be there twice. Returned held, until srv_models_unpeek(); NULL: it is not loaded. */
static srv_model *plan_instead(srv_models *models, int index, mo_model_options *o, mo_plan_extra *extra)
{
    srv_model *model = srv_models_peek(models, index);
    if (model) {
        mo_tier_report tiers;
        mo_device_report device;
        mo_model_tiers(srv_model_mo(model), &tiers, sizeof tiers);
        mo_model_device(srv_model_mo(model), &device, sizeof device);
        extra->instead = srv_model_mo(model);
        o->ram_bytes = o->ram_bytes ? o->ram_bytes : tiers.ceiling_bytes;
        if (!o->device || !strchr(o->device, ',')) { /* for several, the sum is not a ceiling */
            o->vram_bytes = o->vram_bytes ? o->vram_bytes : device.limit_bytes;
        }
    }
    return model;
}

/* Reads the questions into *o; false after answering. */
static bool read_questions(srv_request *q, mo_model_options *o)
{
    int64_t parallel = o->sessions;
    if (!read_query(q, "ram", &o->ram_bytes) || !read_query(q, "vram", &o->vram_bytes) ||
        !read_query(q, "ctx", &o->context) || !read_query(q, "batch", &o->batch) ||
        !read_query(q, "parallel", &parallel)) {
        return false;
    }
    if (parallel < 1 || parallel > 256) {
        srv_reply_refusal(q, SRV_FAULT_REQUEST, "parallel", "must be a number from 1 to 256");
        return false;
    }
    o->sessions = (int)parallel;
    return true;
}

/* Sentences of the library name settings; here they name options. */
static void name_options(char *text, size_t size)
{
    mo_error err = {0};
    snprintf(err.detail, sizeof err.detail, "%s", text);
    if (err.detail[0]) {
        srv_fault_words(&err, NULL, text, size);
    }
}

static void reply_plan(srv_request *q, const char *id, const mo_model_options *o, mo_plan_report *report)
{
    char *text = NULL;
    mo_error err;
    name_options(report->why, sizeof report->why);
    name_options(report->device.why, sizeof report->device.why);
    name_options(report->device.lane, sizeof report->device.lane);
    if (mo_plan_report_json(report, sizeof *report, &text, &err) != MO_OK) {
        srv_reply_refusal(q, SRV_FAULT_SERVER, NULL, err.detail);
        return;
    }
    json_t *root = json_pack("{s:s, s:i}", "model", id, "parallel", o->sessions),
           *plan = json_loads(text, 0, NULL);
    mo_free(text);
    json_object_update(root, plan);
    json_decref(plan);
    srv_reply_json(q, 200, root);
    srv_request_end(q);
}

/* The model's own ceilings were not given. */
static void tell_ceilings(mo_plan_report *r)
{
    snprintf(r->why, sizeof r->why, "a RAM ceiling of %.1f MiB, as requested or as loaded",
             (double)r->ceiling_bytes / (1 << 20));
    if (r->device.name[0]) {
        snprintf(r->device.why, sizeof r->device.why, "a ceiling of %.1f MiB, as requested or as loaded",
                 (double)r->device.ceiling_bytes / (1 << 20));
    }
}

static void answer(srv_request *q, const srv_model_report *r, const mo_model_options *o,
                   const mo_plan_extra *extra)
{
    mo_plan_report report;
    mo_error err;
    if (mo_plan_file(r->path, o, extra, &report, sizeof report, &err) != MO_OK) {
        char text[1024];
        srv_fault_words(&err, r->path, text, sizeof text);
        srv_reply_refusal(q, SRV_FAULT_REQUEST, NULL, text);
        return;
    }
    if (extra->instead) {
        tell_ceilings(&report);
    }
    reply_plan(q, r->id, o, &report);
}

static void plan(void *owner, srv_request *q)
{
    srv_models *models = owner;
    const int index = srv_models_find(models, srv_request_query(q, "model"));
    srv_model_report r;
    if (index < 0 || !srv_models_describe(models, index, &r)) {
        srv_reply_refusal(q, SRV_FAULT_MODEL, NULL, "there is no model of that name");
        return;
    }
    mo_model_options o = as_loaded(models, index, &r);
    mo_plan_extra extra = {.size = sizeof extra};
    srv_model *model = plan_instead(models, index, &o, &extra);
    if (read_questions(q, &o)) {
        answer(q, &r, &o, &extra);
    }
    if (model) {
        srv_models_unpeek(model);
    }
}

const srv_route srv_plan_routes[] = {
    {"GET", "[/v1]/moraine/plan", plan, SRV_STATUS},
    {NULL, NULL, NULL, 0},
};
