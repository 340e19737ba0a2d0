/* OpenAI's responses: requests, answers and streams. An answer is a list of items; a stream tells of each as it begins, grows
 * and ends, by the index it has in that list. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "server/common/identity.h"
#include "server/dialects/dialects.h"
#include "server/dialects/response_input.h"
#include "server/requests/choice.h"

/* ---- Items ---- */

static void name_item(srv_item *item)
{
    static const char *const prefixes[] = {"msg_", "rs_", "fc_"};
    if (!item->key[0]) {
        srv_identity(prefixes[item->kind], item->key, sizeof item->key);
    }
}

/* The part that holds a text or a thought. */
static void put_part(const srv_generation *g, const srv_item *item, bool done, srv_writer *w)
{
    const size_t length = done ? item->text.length : 0;
    if (item->kind == SRV_ITEM_THOUGHT) {
        srv_print(w, "{\"type\":\"reasoning_text\",\"text\":%.*s}", (int)length, item->text.data);
        return;
    }
    srv_print(w, "{\"type\":\"output_text\",\"text\":%.*s,\"annotations\":[],\"logprobs\":[", (int)length,
              item->text.data);
    if (done && g->parameters.logprobs && srv_choice_last(&g->choices[0]) == item) {
        srv_put(w, g->choices[0].probabilities.data, g->choices[0].probabilities.length);
    }
    srv_put_literal(w, "]}");
}

static void put_item(const srv_generation *g, const srv_item *item, bool done, srv_writer *w)
{
    static const char *const types[] = {"message", "reasoning", "function_call"};
    srv_print(w, "{\"id\":%s,\"type\":%s,\"status\":", item->key, types[item->kind]);
    const bool cut =
        done && srv_generation_is_cut(g, &g->choices[0]) && srv_choice_last(&g->choices[0]) == item;
    srv_put_cstring(w, !done ? "in_progress" : cut ? "incomplete" : "completed");
    if (item->kind == SRV_ITEM_CALL) {
        srv_print(w, ",\"call_id\":%s,\"name\":%s,\"arguments\":%.*s", item->id, item->name,
                  (int)(done ? item->text.length : 0), item->text.data);
    } else {
        srv_puts(w, item->kind == SRV_ITEM_TEXT ? ",\"role\":\"assistant\",\"content\":["
                                                : ",\"summary\":[],\"content\":[");
        if (done) {
            put_part(g, item, true, w);
        }
        srv_put_literal(w, "]");
    }
    srv_put_literal(w, "}");
}

/* ---- The response ---- */

static void put_json(const json_t *value, const char *otherwise, srv_writer *w)
{
    char *text = value ? mo_json_dump(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    srv_puts(w, text ? text : otherwise);
    free(text);
}

/* The tools that are served, in the flat form in which they come here. */
static void put_tools(const srv_generation *g, srv_writer *w)
{
    size_t i;
    json_t *tool;
    srv_put_literal(w, "[");
    json_array_foreach(g->tools.list, i, tool)
    {
        const json_t *function = json_object_get(tool, "function");
        srv_puts(w, i > 0 ? ",{\"type\":\"function\",\"name\":" : "{\"type\":\"function\",\"name\":");
        put_json(json_object_get(function, "name"), "\"\"", w);
        srv_put_literal(w, ",\"description\":");
        put_json(json_object_get(function, "description"), "null", w);
        srv_put_literal(w, ",\"parameters\":");
        put_json(json_object_get(function, "parameters"), "null", w);
        srv_put_literal(w, ",\"strict\":");
        put_json(json_object_get(function, "strict"), "false", w);
        srv_put_literal(w, "}");
    }
    srv_put_literal(w, "]");
}

static void put_usage(const srv_usage *usage, srv_writer *w)
{
    srv_print(w,
              "{\"input_tokens\":%ld,\"input_tokens_details\":{\"cached_tokens\":%ld},\"output_tokens\":%ld,"
              "\"output_tokens_details\":{\"reasoning_tokens\":%ld},\"total_tokens\":%ld}",
              usage->prompt_tokens, usage->cached_tokens, usage->completion_tokens, usage->thought_tokens,
              usage->prompt_tokens + usage->completion_tokens);
}

/* What the request said, as the response repeats it. */
static void put_request(const srv_generation *g, srv_writer *w)
{
    const json_t *format = json_object_get(json_object_get(g->root, "text"), "format");
    srv_put_literal(w, ",\"instructions\":");
    put_json(json_object_get(g->root, "instructions"), "null", w);
    srv_put_literal(w, ",\"max_output_tokens\":");
    put_json(json_object_get(g->root, "max_output_tokens"), "null", w);
    srv_put_literal(w, ",\"tools\":");
    put_tools(g, w);
    srv_put_literal(w, ",\"tool_choice\":");
    put_json(json_object_get(g->root, "tool_choice"), "\"auto\"", w);
    srv_put_literal(w, ",\"parallel_tool_calls\":");
    srv_put_bool(w, !g->tools.single);
    srv_print(w, ",\"temperature\":%g,\"top_p\":%g,\"reasoning\":", g->parameters.generation.temperature,
              g->parameters.generation.top_p);
    put_json(json_object_get(g->root, "reasoning"), "null", w);
    srv_put_literal(w, ",\"text\":{\"format\":");
    put_json(format, "{\"type\":\"text\"}", w);
    srv_put_literal(w, "},\"previous_response_id\":");
    put_json(json_object_get(g->root, "previous_response_id"), "null", w);
    srv_put_literal(w, ",\"store\":");
    srv_put_bool(w, g->history.store);
    srv_put_literal(w, ",\"truncation\":\"disabled\",\"metadata\":");
    put_json(json_object_get(g->root, "metadata"), "{}", w);
}

typedef enum stage { RUNNING, ENDED, FAILED } stage;

static void put_response(const srv_generation *g, stage at, srv_writer *w)
{
    const srv_choice *c = &g->choices[0];
    const bool cut = at == ENDED && srv_generation_is_cut(g, &g->choices[0]);
    srv_print(w, "{\"id\":%s,\"object\":\"response\",\"created_at\":%ld,\"completed_at\":", g->id,
              g->times.created);
    if (at == ENDED && !cut) {
        srv_put_int(w, (int64_t)time(NULL));
    } else {
        srv_put_literal(w, "null");
    }
    srv_print(w, ",\"status\":%s,\"model\":%s,\"output\":[",
              at == RUNNING  ? "in_progress"
              : at == FAILED ? "failed"
              : cut          ? "incomplete"
                             : "completed",
              g->model);
    for (size_t i = 0; i < c->count && at != RUNNING; i++) {
        srv_puts(w, i > 0 ? "," : "");
        put_item(g, &c->items[i], true, w);
    }
    srv_puts(w, !cut ? "],\"incomplete_details\":null,\"error\":"
                : c->finish == SRV_FINISH_LENGTH
                    ? "],\"incomplete_details\":{\"reason\":\"max_output_tokens\"},\"error\":"
                    : "],\"incomplete_details\":{\"reason\":\"cancelled\"},\"error\":");
    if (at == FAILED) {
        srv_print(w, "{\"code\":\"server_error\",\"message\":%s}", g->fault.message);
    } else {
        srv_put_literal(w, "null");
    }
    srv_put_literal(w, ",\"usage\":");
    if (at == ENDED) {
        put_usage(&g->usage, w);
    } else {
        srv_put_literal(w, "null");
    }
    put_request(g, w);
    if (at == ENDED) {
        srv_put_literal(w, ",\"timings\":");
        srv_put_timings(w, &g->usage, &g->timings);
    }
    srv_put_warnings(w, g->unenforced);
    srv_put_literal(w, "}");
}

/* The last word, which is kept. */
static void put_ended(srv_generation *g, srv_writer *w)
{
    const size_t begin = w->length;
    put_response(g, ENDED, w);
    if (!w->failed) {
        srv_response_history_keep(g, w->data + begin, w->length - begin);
    }
}

static void response_whole(srv_generation *g, srv_writer *w)
{
    for (size_t i = 0; i < g->choices[0].count; i++) {
        name_item(&g->choices[0].items[i]);
    }
    put_ended(g, w);
}

/* ---- Streams ---- */

/* An event up to its own members. */
static void open_event(srv_generation *g, const char *type, srv_writer *w)
{
    srv_put_literal(w, "event: ");
    srv_puts(w, type);
    srv_put_literal(w, "\ndata: {\"type\":\"");
    srv_puts(w, type);
    srv_print(w, "\",\"sequence_number\":%ld", g->sequence++);
}

static void close_event(srv_writer *w)
{
    srv_put_literal(w, "}\n\n");
}

static void response_event(srv_generation *g, const char *type, stage at, srv_writer *w)
{
    open_event(g, type, w);
    srv_put_literal(w, ",\"response\":");
    if (at == ENDED) {
        put_ended(g, w);
    } else {
        put_response(g, at, w);
    }
    if (at == ENDED && g->parameters.timings_per_token) {
        srv_put_literal(w, ",\"timings\":");
        srv_put_timings(w, &g->usage, &g->timings);
    }
    close_event(w);
}

/* Where in the answer: which item and which part of it. */
static void put_path(const srv_item *item, size_t index, bool part, srv_writer *w)
{
    srv_print(w, ",\"item_id\":%s,\"output_index\":%ld", item->key, (int64_t)index);
    if (part) {
        srv_put_literal(w, ",\"content_index\":0");
    }
}

static void item_event(srv_generation *g, const srv_item *item, size_t index, bool done, srv_writer *w)
{
    open_event(g, done ? "response.output_item.done" : "response.output_item.added", w);
    srv_print(w, ",\"output_index\":%ld,\"item\":", (int64_t)index);
    put_item(g, item, done, w);
    close_event(w);
}

static void part_event(srv_generation *g, const srv_item *item, size_t index, bool done, srv_writer *w)
{
    open_event(g, done ? "response.content_part.done" : "response.content_part.added", w);
    put_path(item, index, true, w);
    srv_put_literal(w, ",\"part\":");
    put_part(g, item, done, w);
    close_event(w);
}

/* llama-server's, with return_progress and timings_per_token. */
static void put_telemetry(const srv_generation *g, const srv_event *event, srv_writer *w)
{
    if (event->kind == SRV_PROGRESS) {
        srv_put_literal(w, ",\"prompt_progress\":");
        srv_put_progress(w, event->usage, event->timings);
    }
    if (g->parameters.timings_per_token) {
        srv_put_literal(w, ",\"timings\":");
        srv_put_timings(w, event->usage, event->timings);
    }
}

static void delta_event(srv_generation *g, const srv_item *item, size_t index, const srv_event *event,
                        srv_writer *w)
{
    static const char *const types[] = {"response.output_text.delta", "response.reasoning_text.delta",
                                        "response.function_call_arguments.delta"};
    open_event(g, types[item->kind], w);
    put_path(item, index, item->kind != SRV_ITEM_CALL, w);
    srv_print(w, ",\"delta\":%.*s", (int)event->text.length, event->text.data);
    if (item->kind == SRV_ITEM_TEXT) {
        srv_put_literal(w, ",\"logprobs\":[");
        if (g->parameters.logprobs) {
            srv_put_probabilities(w, srv_model_mo(g->model_ref), event, false);
        }
        srv_put_literal(w, "]");
    }
    put_telemetry(g, event, w);
    close_event(w);
}

static void close_items(srv_generation *g, srv_choice *c, size_t before, srv_writer *w)
{
    static const char *const types[] = {"response.output_text.done", "response.reasoning_text.done",
                                        "response.function_call_arguments.done"};
    for (; c->closed < before; c->closed++) {
        const srv_item *item = &c->items[c->closed];
        const bool call = item->kind == SRV_ITEM_CALL;
        open_event(g, types[item->kind], w);
        put_path(item, c->closed, !call, w);
        if (call) {
            srv_print(w, ",\"name\":%s", item->name);
        }
        srv_puts(w, call ? ",\"arguments\":" : ",\"text\":");
        srv_put_string(w, item->text.data, item->text.length);
        srv_puts(w, item->kind == SRV_ITEM_TEXT ? ",\"logprobs\":[]" : "");
        close_event(w);
        if (!call) {
            part_event(g, item, c->closed, true, w);
        }
        item_event(g, item, c->closed, true, w);
    }
}

static void response_begin(srv_generation *g, srv_writer *w)
{
    response_event(g, "response.created", RUNNING, w);
    response_event(g, "response.in_progress", RUNNING, w);
}

static void response_take(srv_generation *g, size_t choice, const srv_event *event, bool fresh, srv_writer *w)
{
    srv_choice *c = &g->choices[choice];
    if (event->kind == SRV_PROGRESS) {
        open_event(g, "response.in_progress", w);
        srv_put_literal(w, ",\"response\":");
        put_response(g, RUNNING, w);
        put_telemetry(g, event, w);
        close_event(w);
    }
    if (fresh) {
        srv_item *item = srv_choice_last(c);
        close_items(g, c, c->count - 1, w);
        name_item(item);
        item_event(g, item, c->count - 1, false, w);
        if (item->kind != SRV_ITEM_CALL) {
            part_event(g, item, c->count - 1, false, w);
        }
    }
    switch (event->kind) {
    case SRV_TEXT:
    case SRV_THOUGHT:
    case SRV_ARGUMENTS:
        if (event->text.length > 0 && c->count > 0) {
            delta_event(g, srv_choice_last(c), c->count - 1, event, w);
        }
        break;
    case SRV_CALL_END:
    case SRV_END: close_items(g, c, c->count, w); break;
    default: break;
    }
}

static void response_end(srv_generation *g, srv_writer *w)
{
    response_event(g, srv_generation_is_cut(g, &g->choices[0]) ? "response.incomplete" : "response.completed",
                   ENDED, w);
}

static void response_fail(srv_generation *g, const srv_fault *fault, srv_writer *w)
{
    (void)fault; /* it is the generation's */
    for (size_t i = 0; i < g->choices[0].count; i++) {
        name_item(&g->choices[0].items[i]);
    }
    response_event(g, "response.failed", FAILED, w);
}

static const srv_dialect_writer response_writer = {
    .stream = SRV_STREAM_SSE,
    .begin = response_begin,
    .event = response_take,
    .end = response_end,
    .fail = response_fail,
    .keep = srv_keep_probabilities,
    .whole = response_whole,
};

/* ---- Requests ---- */

static bool read_include(const srv_field *root, srv_parameters *p)
{
    const srv_field include = srv_member(root, "include");
    if (!srv_is_list(include)) {
        return false;
    }
    for (size_t i = 0; i < srv_count(&include); i++) {
        const char *word = json_string_value(json_array_get(include.value, i));
        p->logprobs = p->logprobs || (word && strcmp(word, "message.output_text.logprobs") == 0);
    }
    return true;
}

bool srv_responses_read(srv_generation *g)
{
    const srv_field root = srv_field_root(g->root, &g->fault);
    return srv_generation_parameters(g, &root) && read_include(&root, &g->parameters) &&
           srv_tools_read(&root, SRV_DIALECT_RESPONSES, &g->tools) &&
           srv_format_read(&root, SRV_DIALECT_RESPONSES, &g->format) && srv_response_history_read(g, &root) &&
           srv_conversation_responses(&root, &g->conversation);
}

void srv_responses(void *owner, srv_request *q)
{
    const srv_response_generator *shared = owner;
    srv_generation *g = srv_generation_open(shared->generator, q, SRV_DIALECT_RESPONSES, &response_writer);
    if (!g) {
        return;
    }
    g->history.kept = shared->kept;
    srv_identity("resp_", g->id, sizeof g->id);
    if (srv_responses_read(g) && srv_generation_chat(g) && srv_generation_constrain(g)) {
        g->parameters.n = 1;
        srv_generation_start(g);
    } else {
        srv_generation_refuse(g);
    }
}
