/* Slots: llama-server's view of the sequences: what they do, and saving, restoring and erasing what a free one holds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "server/common/body.h"
#include "server/scheduler/slot_file.h"
#include "server/status/model_json.h"
#include "server/status/status.h"

enum { SLOTS_MAX = 256, FILE_NAME_MAX = 200 };

/* ---- What they do ---- */

static json_t *slot_parameters_json(const srv_slot_report *s)
{
    const mo_generation_options *o = &s->generation;
    return json_pack("{s:f, s:I, s:f, s:f, s:I, s:I, s:I, s:f, s:I, s:f, s:f, s:i, s:i, s:f}", "temperature",
                     (double)o->temperature, "top_k", (json_int_t)o->top_k, "top_p", (double)o->top_p,
                     "min_p", (double)o->min_p, "seed", (json_int_t)o->seed, "n_predict",
                     (json_int_t)o->max_tokens, "max_tokens", (json_int_t)o->max_tokens, "repeat_penalty",
                     (double)o->repeat_penalty, "repeat_last_n", (json_int_t)o->penalty_last,
                     "presence_penalty", (double)o->presence_penalty, "frequency_penalty",
                     (double)o->frequency_penalty, "speculative.n_max", o->draft_max, "speculative.n_min",
                     o->draft_min, "speculative.p_min", (double)o->draft_p_min);
}

/* One that is free shows nothing of the last job, and another client's only that it is busy. */
static json_t *slot_json(int id, const srv_slot_report *s, bool own)
{
    json_t *slot = json_pack("{s:i, s:I, s:b, s:b}", "id", id, "n_ctx", (json_int_t)s->context,
                             "is_processing", s->job != 0, "speculative", own && s->speculates);
    if (s->job && own) {
        json_t *next = json_pack("[{s:b, s:b, s:I, s:I}]", "has_next_token", 1, "has_new_line", 0, "n_remain",
                                 (json_int_t)s->remaining, "n_decoded", (json_int_t)s->generated);
        json_t *more =
            json_pack("{s:I, s:I, s:I, s:I, s:o}", "id_task", (json_int_t)s->job, "n_prompt_tokens",
                      (json_int_t)s->prompt_tokens, "n_prompt_tokens_processed", (json_int_t)s->prompt_done,
                      "n_prompt_tokens_cache", (json_int_t)s->cached_tokens, "next_token", next);
        json_object_update(slot, more);
        json_decref(more);
        json_object_set_new(slot, "params", slot_parameters_json(s));
    }
    return slot;
}

static void slots(void *owner, srv_request *q)
{
    const srv_status *status = owner;
    static const char switched_off[] = "this endpoint was disabled when the server was started";
    srv_slot_report list[SLOTS_MAX];
    const char *need = srv_request_query(q, "fail_on_no_slot");
    const srv_caller caller = srv_request_caller(q);
    bool any_free = false;
    if (status->no_slots) {
        srv_reply_refusal(q, SRV_FAULT_NOT_SUPPORTED, NULL, switched_off);
        return;
    }
    const int index = srv_asked_index(status->models, q);
    if (index < 0) {
        return;
    }
    json_t *all = json_array();
    srv_model *model = srv_models_peek(status->models, index);
    if (model) {
        const int count = srv_engine_slots(srv_model_engine(model), list, SLOTS_MAX);
        for (int i = 0; i < count && i < SLOTS_MAX; i++) {
            json_array_append_new(all, slot_json(i, &list[i], srv_caller_sees(&caller, list[i].owner)));
            any_free = any_free || list[i].job == 0;
        }
        srv_models_unpeek(model);
    }
    if (need && *need && strcmp(need, "0") != 0 && !any_free) {
        json_decref(all);
        srv_reply_refusal(q, SRV_FAULT_UNAVAILABLE, NULL, "no slot is free");
        return;
    }
    srv_reply_json(q, 200, all);
    srv_request_end(q);
}

/* ---- Saving, restoring, erasing ---- */

/* A name that stays in its directory, and that no other file there begins with. */
static bool is_file_name(const char *name)
{
    const size_t length = name ? strlen(name) : 0;
    return length > 0 && length <= FILE_NAME_MAX && name[0] != '.' && !strchr(name, '/') &&
           !strchr(name, '\\');
}

/* Files of clients have names of their own, so that none reads another's. Administrators see all by these names. */
static void file_of(const srv_caller *caller, const char *name, char *out, size_t size)
{
    if (caller->admin || !caller->owner) {
        snprintf(out, size, "%s", name ? name : "");
    } else {
        snprintf(out, size, "%016llx.%s", (unsigned long long)caller->owner, name ? name : "");
    }
}

static void refuse_deed(srv_request *q, const mo_error *err)
{
    char text[1024];
    srv_fault_words(err, NULL, text, sizeof text);
    switch (err->status) {
    case MO_ECANCELLED: srv_reply_refusal(q, SRV_FAULT_UNAVAILABLE, NULL, text); break;
    case MO_EUNSUPPORTED: srv_reply_refusal(q, SRV_FAULT_NOT_SUPPORTED, NULL, text); break;
    case MO_ENOENT: srv_reply_refusal(q, SRV_FAULT_FORBIDDEN, NULL, text); break;
    case MO_EINVAL:
    case MO_EFORMAT: srv_reply_refusal(q, SRV_FAULT_REQUEST, NULL, text); break;
    default: srv_reply_refusal(q, SRV_FAULT_SERVER, NULL, text); break;
    }
}

/* Does it, and answers. */
static void act(const srv_status *status, srv_request *q, srv_engine *engine, int slot, const char *action,
                const char *name)
{
    const double begin = mo_clock_s();
    const srv_caller caller = srv_request_caller(q);
    char file[FILE_NAME_MAX + 32];
    srv_slot_file_report r;
    mo_error err = {0};
    int64_t erased;
    file_of(&caller, name, file, sizeof file);
    if (strcmp(action, "erase") == 0) {
        if (srv_slot_erase(engine, slot, &caller, &erased, &err) != MO_OK) {
            refuse_deed(q, &err);
            return;
        }
        srv_reply_json(q, 200, json_pack("{s:i, s:I}", "id_slot", slot, "n_erased", (json_int_t)erased));
    } else if (strcmp(action, "save") == 0) {
        if (srv_slot_save(engine, slot, &caller, status->slot_directory, file, &r, &err) != MO_OK) {
            refuse_deed(q, &err);
            return;
        }
        srv_reply_json(q, 200,
                       json_pack("{s:i, s:s, s:I, s:I, s:{s:f}}", "id_slot", slot, "filename", name,
                                 "n_saved", (json_int_t)r.tokens, "n_written", (json_int_t)r.bytes, "timings",
                                 "save_ms", 1e3 * (mo_clock_s() - begin)));
    } else {
        if (srv_slot_restore(engine, slot, &caller, status->slot_directory, file, &r, &err) != MO_OK) {
            refuse_deed(q, &err);
            return;
        }
        srv_reply_json(q, 200,
                       json_pack("{s:i, s:s, s:I, s:I, s:{s:f}}", "id_slot", slot, "filename", name,
                                 "n_restored", (json_int_t)r.tokens, "n_read", (json_int_t)r.bytes, "timings",
                                 "restore_ms", 1e3 * (mo_clock_s() - begin)));
    }
    srv_request_end(q);
}

static void change_slot(void *owner, srv_request *q)
{
    const srv_status *status = owner;
    static const char *const actions[] = {"save", "restore", "erase"};
    const char *action = srv_request_query(q, "action"), *part = srv_request_part(q, 0);
    bool known = false;
    for (size_t i = 0; action && i < sizeof actions / sizeof *actions; i++) {
        known = known || strcmp(action, actions[i]) == 0;
    }
    if (!status->slot_directory) { /* --no-slots is about the list, as in llama-server */
        srv_reply_refusal(q, SRV_FAULT_NOT_SUPPORTED, NULL,
                          "saving and restoring slots requires a directory given when the server is started; "
                          "prefixes are cached automatically");
        return;
    }
    if (!known) {
        srv_reply_refusal(q, SRV_FAULT_REQUEST, "action", "must be save, restore or erase");
        return;
    }
    const mo_text body = srv_request_body(q);
    json_t *root = srv_body_json(body);
    const char *name = json_string_value(json_object_get(root, "filename"));
    const int index = strlen(part) < 4 && strspn(part, "0123456789") == strlen(part)
                          ? srv_asked_index(status->models, q)
                          : -2;
    srv_model *model = index >= 0 ? srv_models_peek(status->models, index) : NULL;
    if (index == -2) {
        srv_reply_refusal(q, SRV_FAULT_REQUEST, NULL, "expected a slot number");
    } else if (index >= 0 && !model) {
        srv_reply_refusal(q, SRV_FAULT_UNAVAILABLE, NULL, "the model is not loaded");
    } else if (model && strcmp(action, "erase") != 0 && !is_file_name(name)) {
        srv_reply_refusal(q, SRV_FAULT_REQUEST, "filename", "expected a file name without a path");
    } else if (model) {
        act(status, q, srv_model_engine(model), atoi(part), action, name);
    }
    if (model) {
        srv_models_unpeek(model);
    }
    json_decref(root);
}

const srv_route srv_slot_routes[] = {
    {"GET", "/slots", slots, SRV_QUICK},
    {"POST", "/slots/{}", change_slot, 0},
    {NULL, NULL, NULL, 0},
};
