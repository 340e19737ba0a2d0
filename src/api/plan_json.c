/* Plans as JSON. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/growing.h"
#include "base/json.h"
#include "base/status.h"
#include "moraine_server.h"

/* Names and sentences. Bytes that are not UTF-8 (in paths) are dropped. */
static json_t *text(const char *bytes)
{
    char plain[512];
    size_t used = 0;
    json_t *whole = json_string(bytes);
    for (; !whole && *bytes && used < sizeof plain - 1; bytes++) {
        if ((unsigned char)*bytes < 0x80) {
            plain[used++] = *bytes;
        }
    }
    plain[used] = '\0';
    return whole ? whole : json_string(plain);
}

static json_t *ram_json(const mo_plan_report *r)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "core", (json_int_t)r->core_bytes, "vectors",
                     (json_int_t)r->vector_bytes, "embedding", (json_int_t)r->table_bytes, "experts",
                     (json_int_t)r->slot_bytes, "kv", (json_int_t)r->kv_bytes, "work",
                     (json_int_t)r->work_bytes, "staging", (json_int_t)r->staging_bytes, "other",
                     (json_int_t)r->other_bytes);
}

static json_t *classes_json(const mo_plan_report *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->class_count; i++) {
        const mo_plan_report_class *c = &r->classes[i];
        json_array_append_new(list, json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "bytes", (json_int_t)c->bytes,
                                              "slot_bytes", (json_int_t)c->slot_bytes, "experts",
                                              (json_int_t)c->experts, "slots", (json_int_t)c->slots,
                                              "device_slot_bytes", (json_int_t)c->device_slot_bytes,
                                              "device_slots", (json_int_t)c->device_slots));
    }
    return list;
}

static json_t *token_json(const mo_plan_report *r)
{
    return json_pack("{s:I, s:I, s:f, s:f, s:f, s:f}", "ram_bytes", (json_int_t)r->token_ram_bytes,
                     "disk_bytes", (json_int_t)r->token_disk_bytes, "hit_rate", r->hit_rate, "core_seconds",
                     r->core_seconds, "expert_seconds", r->expert_seconds, "disk_seconds", r->disk_seconds);
}

/* null without a device; why_no_device then gives the reason. */
static json_t *device_json(const mo_plan_report *r)
{
    const mo_plan_report_device *d = &r->device;
    if (d->ceiling_bytes == 0) {
        return json_null();
    }
    json_t *bytes =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "core", (json_int_t)d->core_bytes, "vectors",
                  (json_int_t)d->vector_bytes, "experts", (json_int_t)d->slot_bytes, "kv",
                  (json_int_t)d->kv_bytes, "work", (json_int_t)d->work_bytes, "staging",
                  (json_int_t)d->staging_bytes, "layer_buffers", (json_int_t)d->layer_buffer_bytes);
    json_t *token =
        json_pack("{s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "device_bytes", (json_int_t)d->token_bytes,
                  "link_bytes", (json_int_t)d->token_link_bytes, "hit_rate", d->hit_rate, "core_seconds",
                  d->core_seconds, "hit_seconds", d->hit_seconds, "miss_seconds", d->miss_seconds,
                  "link_seconds", d->link_seconds, "overhead_seconds", d->overhead_seconds);
    json_t *rates = json_pack("{s:f, s:f, s:f, s:b}", "memory_bytes_s", d->memory_bytes_s, "link_bytes_s",
                              d->link_bytes_s, "host_bytes_s", d->host_bytes_s, "measured", (int)d->measured);
    return json_pack(
        "{s:o, s:I, s:o, s:I, s:I, s:I, s:o, s:I, s:i, s:i, s:i, s:i, s:b, s:f, s:o, s:o, s:o, s:i, s:I}",
        "name", text(d->name), "ceiling_bytes", (json_int_t)d->ceiling_bytes, "ceiling", text(d->why),
        "used_bytes", (json_int_t)d->used_bytes, "least_bytes", (json_int_t)d->least_bytes, "whole_bytes",
        (json_int_t)d->whole_bytes, "bytes", bytes, "slots", (json_int_t)d->slots, "layers", d->layers,
        "streamed_layers", d->streamed_layers, "cpu_layers", d->cpu_layers, "layer_buffers", d->layer_buffers,
        "fetch", (int)d->fetch, "fetch_share", d->fetch_share, "fetch_reason", text(d->lane), "token", token,
        "rates", rates, "cold_layers", r->device_cold_layers, "cold_bytes", (json_int_t)r->device_cold_bytes);
}

/* One entry per device; an empty list for one device or none. */
static json_t *devices_json(const mo_plan_report *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->card_count && i < MO_DEVICES_MAX; i++) {
        const mo_plan_report_card *c = &r->cards[i];
        json_array_append_new(
            list, json_pack("{s:o, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "name",
                            text(c->name), "first_layer", c->first_layer, "layers", c->layers,
                            "ceiling_bytes", (json_int_t)c->ceiling_bytes, "used_bytes",
                            (json_int_t)c->used_bytes, "core_bytes", (json_int_t)c->core_bytes, "kv_bytes",
                            (json_int_t)c->kv_bytes, "work_bytes", (json_int_t)c->work_bytes, "staging_bytes",
                            (json_int_t)c->staging_bytes, "expert_bytes", (json_int_t)c->slot_bytes, "slots",
                            (json_int_t)c->slots, "hit_rate", c->hit_rate, "seconds", c->seconds));
    }
    return list;
}

/* null if there is none. */
static json_t *hot_json(const mo_plan_report *r)
{
    const mo_plan_report_hot *h = &r->hot;
    if (h->budget_bytes == 0) {
        return json_null();
    }
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:i, s:i, s:i, s:f, s:f}", "place",
                     r->device.ceiling_bytes ? "device" : "ram", "budget_bytes", (json_int_t)h->budget_bytes,
                     "used_bytes", (json_int_t)h->used_bytes, "experts", (json_int_t)h->experts, "filled",
                     (json_int_t)h->filled, "layers", h->layers, "whole_layers", h->whole_layers, "moves",
                     h->moves, "hit_rate", h->hit_rate, "tokens_per_second", h->tokens_per_second);
}

/* The next smaller batch, the current one and the next larger, as far as they fit. */
static json_t *batches_json(const mo_plan_report *r)
{
    json_t *list = json_array();
    for (int i = 0; i < 3; i++) {
        const mo_plan_report_batch *b = &r->batches[i];
        if (b->batch > 0) {
            json_array_append_new(
                list, json_pack("{s:I, s:I, s:I, s:I, s:f, s:f}", "batch", (json_int_t)b->batch,
                                "ram_experts", (json_int_t)b->ram_experts, "vram_experts",
                                (json_int_t)b->vram_experts, "work_bytes", (json_int_t)b->work_bytes,
                                "prompt_seconds", b->prompt_seconds, "seconds", b->seconds));
        }
    }
    return list;
}

static json_t *prompt_json(const mo_plan_report *r)
{
    return json_pack("{s:I, s:f, s:o, s:o}", "tokens", (json_int_t)r->prompt_tokens, "tokens_per_second",
                     r->prompt_tokens_per_second, "batch", text(r->batch_why), "batches", batches_json(r));
}

static json_t *depth_json(const mo_plan_report *r)
{
    return json_pack("{s:f, s:f, s:f, s:f}", "empty_tokens_per_second", r->empty_tokens_per_second,
                     "full_tokens_per_second", r->full_tokens_per_second, "attention_seconds",
                     r->attention_seconds, "full_prompt_tokens_per_second", r->full_prompt_tokens_per_second);
}

/* null: no speculative decoding. */
static json_t *guesses_json(const mo_plan_report *r)
{
    const char *source = r->head_bytes == 0 ? NULL : r->draft_model ? "draft" : "mtp";
    return r->drafts ? json_pack("{s:I, s:I, s:s?, s:I}", "most", (json_int_t)r->drafts, "bytes",
                                 (json_int_t)r->draft_bytes, "computed_by", source, "computing_bytes",
                                 (json_int_t)r->head_bytes)
                     : json_null();
}

static json_t *plan_json(const mo_plan_report *r)
{
    json_t *disk = json_pack("{s:I, s:I, s:I}", "layers", (json_int_t)r->disk_core_bytes, "experts",
                             (json_int_t)r->disk_expert_bytes, "embedding", (json_int_t)r->disk_table_bytes);
    json_t *rates = json_pack("{s:f, s:f, s:f, s:b, s:b}", "ram_bytes_s", r->ram_bytes_s, "compute_share",
                              r->compute_share, "disk_bytes_s", r->disk_bytes_s, "measured", (int)r->measured,
                              "disk_learned", (int)r->disk_learned);
    return json_pack(
        "{s:s, s:I, s:o, s:I, s:I, s:I, s:I, s:o, s:o, s:i, s:i, s:i, s:i, s:i, s:i, s:o, s:I, s:I, s:o, "
        "s:f, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "mode", r->mode, "ceiling_bytes", (json_int_t)r->ceiling_bytes, "ceiling", text(r->why),
        "available_bytes", (json_int_t)r->available_bytes, "used_bytes", (json_int_t)r->used_bytes,
        "least_bytes", (json_int_t)r->least_bytes, "whole_bytes", (json_int_t)r->whole_bytes, "ram_bytes",
        ram_json(r), "disk_bytes", disk, "layers", r->layers, "routed_layers", r->routed_layers, "experts",
        r->experts, "experts_used", r->experts_used, "streamed_layers", r->streamed_layers, "layer_buffers",
        r->layer_buffers, "classes", classes_json(r), "context", (json_int_t)r->context, "batch",
        (json_int_t)r->batch, "token", token_json(r), "tokens_per_second", r->tokens_per_second, "rates",
        rates, "device_bytes", (json_int_t)r->device_bytes, "device", device_json(r), "hot_cache",
        hot_json(r), "why_no_device",
        r->device.ceiling_bytes == 0 && r->device.why[0] ? text(r->device.why) : json_null(), "prompt",
        prompt_json(r), "devices", devices_json(r), "depth", depth_json(r), "described",
        r->described[0] ? text(r->described) : json_null(), "guesses", guesses_json(r));
}

mo_status mo_plan_report_json(const mo_plan_report *report, size_t size, char **json, mo_error *err)
{
    MO_REQUIRE(err, report, json)
    mo_plan_report r = {0};
    *json = NULL;
    if (!report || size == 0 || !report->mode) {
        return mo_fail(err, MO_EINVAL, "expected the report of a plan");
    }
    memcpy(&r, report, size < sizeof r ? size : sizeof r);
    json_t *root = plan_json(&r);
    *json = root ? mo_json_dump(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return *json ? MO_OK : mo_fail(err, MO_ENOMEM, "out of memory for the plan as JSON");
}
