/* Ollama's generate and chat: requests, answers and streams. Streams are lines of JSON, and the default. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "server/dialects/dialects.h"
#include "server/requests/choice.h"
#include "server/requests/conversation.h"
#include "server/requests/known_fields.h"
#include "server/requests/parameters.h"
#include "server/requests/thinking.h"

/* Conversation: Ollama's messages, whose calls have objects for arguments and no ids. */

/* Pictures come before the text of their message. */
static bool read_images(const srv_field *in, srv_conversation *out, json_t *message)
{
    const srv_field images = srv_member(in, "images");
    bool good = srv_is_list(images);
    if (good && srv_count(&images) > 0 && !out->pictures.accepted) {
        return srv_wrong(&images, "image input is not supported");
    }
    for (size_t i = 0; i < srv_count(&images) && good; i++) {
        const srv_field image = srv_element(&images, i);
        mo_text text = {"", 0};
        good = srv_read_text(image, &text) && srv_pictures_add_url(&out->pictures, &image, text) &&
               srv_message_picture(message, &image);
    }
    return good;
}

static bool read_calls(const srv_field *list, json_t *message)
{
    if (!srv_is_list(*list)) {
        return false;
    }
    for (size_t i = 0; i < srv_count(list); i++) {
        const srv_field call = srv_element(list, i), function = srv_member(&call, "function");
        const srv_field name = srv_member(&function, "name"), arguments = srv_member(&function, "arguments");
        mo_text id = {NULL, 0}, text = {"", 0};
        if (!function.value) {
            return srv_missing(&function);
        }
        if (!srv_is_object(function) || !srv_read_text(srv_member(&call, "id"), &id)) {
            return false;
        }
        if (!name.value) {
            return srv_missing(&name);
        }
        if (!srv_read_text(name, &text) || !srv_message_call(message, &call, id, text, arguments.value)) {
            return false;
        }
    }
    return true;
}

static bool read_message(const srv_field *f, srv_conversation *out)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    const srv_field role = srv_member(f, "role"), calls = srv_member(f, "tool_calls");
    mo_text name = {NULL, 0}, text = {"", 0}, thought = {NULL, 0}, tool = {NULL, 0}, id = {NULL, 0};
    if (!json_is_object(f->value)) {
        return srv_wrong_type(f, "an object");
    }
    if (!role.value) {
        return srv_missing(&role);
    }
    if (!srv_read_text(role, &name) || !srv_read_text(srv_member(f, "content"), &text) ||
        !srv_read_text(srv_member(f, "thinking"), &thought) ||
        !srv_read_text(srv_member(f, "tool_call_id"), &id) ||
        !srv_read_text(srv_member_of(f, (const char *const[]){"tool_name", "name", NULL}), &tool)) {
        return false;
    }
    const char *known = NULL;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        known = srv_text_is(name, roles[i]) ? roles[i] : known;
    }
    if (!known) {
        return srv_wrong(&role, "must be system, user, assistant or tool, not %.64s", name.data);
    }
    json_t *message = srv_message_add(out, f, known);
    return message && srv_message_append(message, f, "content", (mo_text){"", 0}) &&
           read_images(f, out, message) && srv_message_append(message, f, "content", text) &&
           (!thought.length || srv_message_append(message, f, "reasoning_content", thought)) &&
           (!tool.data || srv_message_append(message, f, "name", tool)) &&
           (!id.data || srv_message_append(message, f, "tool_call_id", id)) && read_calls(&calls, message);
}

bool srv_conversation_ollama(const srv_field *root, srv_conversation *out)
{
    srv_field messages;
    if (!srv_conversation_list(root, 0, &messages)) {
        return false;
    }
    for (size_t i = 0; i < srv_count(&messages); i++) {
        const srv_field message = srv_element(&messages, i);
        if (!read_message(&message, out)) {
            return false;
        }
    }
    return srv_count(&messages) == 0 || srv_conversation_finish(root, out);
}

/* ---- Parts of answers ---- */

static void put_head(const srv_generation *g, srv_writer *w)
{
    struct timespec now;
    char text[64];
    clock_gettime(CLOCK_REALTIME, &now);
    srv_print(w, "{\"model\":%s,\"created_at\":%s", g->model, srv_time_text(now, 6, text, sizeof text));
}

static int64_t nanoseconds(double seconds)
{
    return (int64_t)llround(seconds * 1e9);
}

static void put_number(srv_writer *w, const char *name, int64_t value)
{
    srv_puts(w, name);
    srv_put_int(w, value);
}

static void put_end(const srv_generation *g, const char *reason, srv_writer *w)
{
    srv_print(w, ",\"done\":true,\"done_reason\":%s", reason);
    put_number(w, ",\"total_duration\":", mo_clock_ns() - g->times.begun_ns);
    put_number(w, ",\"load_duration\":", g->times.load_ns);
    put_number(w, ",\"prompt_eval_count\":", g->usage.prompt_tokens);
    put_number(w, ",\"prompt_eval_duration\":", nanoseconds(g->timings.prompt_s));
    put_number(w, ",\"eval_count\":", g->usage.completion_tokens);
    put_number(w, ",\"eval_duration\":", nanoseconds(g->timings.predicted_s));
    srv_put_warnings(w, g->unenforced);
    srv_put_literal(w, "}");
}

static const char *reason_of(const srv_generation *g)
{
    return srv_generation_is_cut(g, &g->choices[0]) ? "length" : "stop";
}

static void put_probabilities(srv_writer *w, const srv_writer *elements)
{
    srv_put_literal(w, ",\"logprobs\":[");
    srv_put(w, elements->data, elements->length);
    srv_put_literal(w, "]");
}

/* Arguments are an object here. Those that a limit cut off are none: they are returned as text, which clients will not call. */
static void put_call(const srv_item *item, size_t index, srv_writer *w)
{
    srv_print(w, "{\"id\":%s,\"function\":{\"index\":%ld,\"name\":%s,\"arguments\":", item->id,
              (int64_t)index, item->name);
    srv_item_arguments(item, w);
    srv_put_literal(w, "}}");
}

static void line_fail(srv_generation *g, const srv_fault *fault, srv_writer *w)
{
    (void)g;
    srv_fault_write(fault, SRV_SHAPE_OLLAMA, w);
    srv_put_literal(w, "\n");
}

static void no_begin(srv_generation *g, srv_writer *w)
{
    (void)g;
    (void)w;
}

/* ---- Chat ---- */

static void chat_whole(srv_generation *g, srv_writer *w)
{
    const srv_choice *c = &g->choices[0];
    put_head(g, w);
    srv_put_literal(w, ",\"message\":{\"role\":\"assistant\",\"content\":");
    srv_put_joined(w, c, SRV_ITEM_TEXT);
    if (srv_choice_has(c, SRV_ITEM_THOUGHT)) {
        srv_put_literal(w, ",\"thinking\":");
        srv_put_joined(w, c, SRV_ITEM_THOUGHT);
    }
    size_t calls = 0;
    for (size_t i = 0; i < c->count; i++) {
        if (c->items[i].kind == SRV_ITEM_CALL) {
            srv_puts(w, calls > 0 ? "," : ",\"tool_calls\":[");
            put_call(&c->items[i], calls++, w);
        }
    }
    srv_puts(w, calls > 0 ? "]}" : "}");
    if (g->parameters.logprobs) {
        put_probabilities(w, &c->probabilities);
    }
    put_end(g, reason_of(g), w);
}

/* The probabilities of the tokens of one piece. */
static void put_piece_end(srv_generation *g, const srv_event *event, srv_writer *w)
{
    if (g->parameters.logprobs && event->token_count > 0) {
        srv_put_literal(w, ",\"logprobs\":[");
        srv_put_probabilities(w, srv_model_mo(g->model_ref), event, false);
        srv_put_literal(w, "]");
    }
    srv_put_literal(w, ",\"done\":false}\n");
}

static void chat_event(srv_generation *g, size_t choice, const srv_event *event, bool fresh, srv_writer *w)
{
    const srv_choice *c = &g->choices[choice];
    (void)fresh;
    const bool call = event->kind == SRV_CALL_END && c->count > 0;
    if (!call && (event->text.length == 0 || (event->kind != SRV_TEXT && event->kind != SRV_THOUGHT))) {
        return;
    }
    put_head(g, w);
    if (call) {
        srv_put_literal(w, ",\"message\":{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[");
        put_call(srv_choice_last(c), srv_choice_calls(c) - 1, w);
        srv_put_literal(w, "]}");
    } else {
        srv_puts(w, event->kind == SRV_TEXT
                        ? ",\"message\":{\"role\":\"assistant\",\"content\":"
                        : ",\"message\":{\"role\":\"assistant\",\"content\":\"\",\"thinking\":");
        srv_print(w, "%.*s}", (int)event->text.length, event->text.data);
    }
    put_piece_end(g, event, w);
}

static void chat_end(srv_generation *g, srv_writer *w)
{
    put_head(g, w);
    srv_put_literal(w, ",\"message\":{\"role\":\"assistant\",\"content\":\"\"}");
    put_end(g, reason_of(g), w);
    srv_put_literal(w, "\n");
}

static const srv_dialect_writer chat_writer = {
    .stream = SRV_STREAM_NDJSON,
    .begin = no_begin,
    .event = chat_event,
    .end = chat_end,
    .fail = line_fail,
    .keep = srv_keep_unsent,
    .whole = chat_whole,
};

/* ---- Generate ---- */

/* The tokens of prompt and answer, which a client may send back to go on: not where there are pictures among them. */
static void put_context(const srv_generation *g, srv_writer *w)
{
    if (g->conversation.pictures.count) {
        return;
    }
    srv_put_literal(w, ",\"context\":[");
    for (size_t i = 0; i < g->prompts[0].count; i++) {
        srv_puts(w, i > 0 ? "," : "");
        srv_put_int(w, g->prompts[0].ids[i]);
    }
    srv_puts(w, g->choices[0].tokens.length > 0 ? "," : "");
    srv_put(w, g->choices[0].tokens.data, g->choices[0].tokens.length);
    srv_put_literal(w, "]");
}

static void generate_whole(srv_generation *g, srv_writer *w)
{
    const srv_choice *c = &g->choices[0];
    put_head(g, w);
    srv_put_literal(w, ",\"response\":");
    srv_put_joined(w, c, SRV_ITEM_TEXT);
    if (srv_choice_has(c, SRV_ITEM_THOUGHT)) {
        srv_put_literal(w, ",\"thinking\":");
        srv_put_joined(w, c, SRV_ITEM_THOUGHT);
    }
    put_context(g, w);
    if (g->parameters.logprobs) {
        put_probabilities(w, &c->probabilities);
    }
    put_end(g, reason_of(g), w);
}

static void generate_event(srv_generation *g, size_t choice, const srv_event *event, bool fresh,
                           srv_writer *w)
{
    (void)choice;
    (void)fresh;
    if (event->text.length == 0 || (event->kind != SRV_TEXT && event->kind != SRV_THOUGHT)) {
        return;
    }
    put_head(g, w);
    srv_puts(w, event->kind == SRV_TEXT ? ",\"response\":" : ",\"response\":\"\",\"thinking\":");
    srv_put_string(w, event->text.data, event->text.length);
    put_piece_end(g, event, w);
}

static void generate_end(srv_generation *g, srv_writer *w)
{
    put_head(g, w);
    srv_put_literal(w, ",\"response\":\"\"");
    put_context(g, w);
    put_end(g, reason_of(g), w);
    srv_put_literal(w, "\n");
}

static void generate_keep(srv_generation *g, srv_choice *c, const srv_event *event)
{
    srv_keep_unsent(g, c, event);
    srv_keep_tokens(g, c, event);
}

static const srv_dialect_writer generate_writer = {
    .stream = SRV_STREAM_NDJSON,
    .begin = no_begin,
    .event = generate_event,
    .end = generate_end,
    .fail = line_fail,
    .keep = generate_keep,
    .whole = generate_whole,
};

/* ---- Requests ---- */

/* "5m", "1h30m", "300ms"; a number is seconds. False: it is none. */
static bool read_duration(const char *text, double *seconds)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {"s", 1}, {"m", 60}, {"h", 3600}};
    const double sign = *text == '-' ? -1 : 1;
    text += *text == '-' || *text == '+';
    double sum = 0;
    bool any = false;
    while (*text) {
        char *end;
        errno = 0;
        const double value = strtod(text, &end);
        if (end == text || errno || !isfinite(value) || value < 0) {
            return false;
        }
        size_t i = 0, length = 0;
        for (; i < sizeof units / sizeof *units; i++) {
            length = strlen(units[i].unit);
            if (strncmp(end, units[i].unit, length) == 0) {
                break;
            }
        }
        if (i == sizeof units / sizeof *units) {
            if (*end || any) {
                return false;
            }
            length = 0;
        }
        sum += value * (length ? units[i].seconds : 1);
        text = end + length;
        any = true;
    }
    *seconds = sign * sum;
    return any;
}

static bool read_keep_alive(srv_generation *g, const srv_field *root, double *seconds)
{
    const srv_field f = srv_member(root, "keep_alive");
    *seconds = NAN;
    if (!f.value) {
        return true;
    }
    if (json_is_number(f.value)) {
        *seconds = json_number_value(f.value);
    } else if (!json_is_string(f.value) || !read_duration(json_string_value(f.value), seconds)) {
        return srv_wrong(&f, "must be a number of seconds, or a duration such as 5m");
    }
    if (srv_request_caller(g->request).admin) { /* how long models stay is not for other clients to say */
        srv_model_keep(g->model_ref, *seconds);
    }
    return true;
}

/* A window that is smaller than ours is obeyed: the answer ends there. A larger one cannot be had, and nothing is cut. */
static bool obey_num_ctx(srv_generation *g, const srv_field *options)
{
    const srv_field f = srv_member(options, "num_ctx");
    int64_t n_ctx = 0;
    if (!srv_read_int(f, 1, INT64_MAX, &n_ctx)) {
        return false;
    }
    const int64_t count = (int64_t)g->prompts[0].count;
    if (!f.value || n_ctx >= srv_model_context(g->model_ref)) {
        return true;
    }
    if (count >= n_ctx) {
        return srv_fault_context(&g->fault, count, n_ctx);
    }
    const int64_t left = n_ctx - count;
    int64_t *most = &g->parameters.generation.max_tokens;
    *most = *most < 0 || *most > left ? left : *most;
    return true;
}

static bool read_common(srv_generation *g, const srv_field *root, const srv_field *options, double *keep)
{
    g->parameters.stream = true;
    if (!srv_is_object(*options)) {
        return false;
    }
    const srv_defaults *defaults = srv_model_defaults(g->model_ref);
    float *top_p = &g->parameters.generation.top_p;
    *top_p = isnan(defaults->top_p) ? 0.9F : *top_p;
    return srv_known_fields_check(root, SRV_DIALECT_OLLAMA, false) && srv_generation_parameters(g, options) &&
           srv_read_bool(srv_member(root, "stream"), &g->parameters.stream) &&
           srv_probabilities_read(root, SRV_DIALECT_OLLAMA, &g->parameters) &&
           srv_thinking_read(root, &g->parameters) && srv_format_read(root, SRV_DIALECT_OLLAMA, &g->format) &&
           srv_format_read(options, SRV_DIALECT_OLLAMA, &g->format) && read_keep_alive(g, root, keep);
}

/* Nothing is asked: the model is there, or goes. */
static void answer_load(srv_generation *g, bool chat, double keep)
{
    srv_choice none = {.stop = -1};
    if (keep == 0 && !srv_request_caller(g->request).admin) {
        srv_fault_set(&g->fault, SRV_FAULT_FORBIDDEN, "keep_alive", "%s", SRV_NEEDS_ADMIN);
        srv_generation_refuse(g);
        return;
    }
    g->choices = &none; /* cppcheck-suppress autoVariables ; taken back below */
    srv_writer w = {0};
    put_head(g, &w);
    srv_puts(&w, chat ? ",\"message\":{\"role\":\"assistant\",\"content\":\"\"}" : ",\"response\":\"\"");
    put_end(g, keep == 0 ? "unload" : "load", &w);
    srv_reply_writer(g->request, 200, &w);
    srv_writer_free(&w);
    g->choices = NULL;
    srv_generation_close(g);
}

void srv_ollama_chat(void *owner, srv_request *q)
{
    srv_generation *g = srv_generation_open(owner, q, SRV_DIALECT_OLLAMA, &chat_writer);
    if (!g) {
        return;
    }
    const srv_field root = srv_field_root(g->root, &g->fault), options = srv_member(&root, "options");
    const srv_field images = srv_member(&root, "images");
    double keep;
    bool good = read_common(g, &root, &options, &keep) && srv_is_list(images) &&
                (srv_count(&images) == 0 || srv_wrong(&images, "belongs to a message")) &&
                srv_tools_read(&root, SRV_DIALECT_OLLAMA, &g->tools) &&
                srv_conversation_ollama(&root, &g->conversation);
    if (good && json_array_size(g->conversation.messages) == 0) {
        answer_load(g, true, keep);
        return;
    }
    g->parameters.n = 1;
    good = good && srv_generation_chat(g) && obey_num_ctx(g, &options) && srv_generation_constrain(g);
    good ? srv_generation_start(g) : srv_generation_refuse(g);
}

/* Tokens that an earlier answer gave as its context come first. */
static bool put_earlier(srv_generation *g, const srv_field *root)
{
    const srv_field context = srv_member(root, "context");
    if (!srv_is_list(context) || srv_count(&context) == 0) {
        return !context.value || json_is_array(context.value);
    }
    srv_tokens earlier = {0};
    size_t count;
    bool several;
    bool good = srv_prompts_read(&context, srv_model_mo(g->model_ref), NULL, &earlier, 1, &count, &several);
    int32_t *all = good ? realloc(earlier.ids, (earlier.count + g->prompts[0].count) * sizeof *all) : NULL;
    if (!all) {
        free(earlier.ids);
        return good ? srv_fault_set(&g->fault, SRV_FAULT_SERVER, NULL, "out of memory") : false;
    }
    memcpy(all + earlier.count, g->prompts[0].ids, g->prompts[0].count * sizeof *all);
    free(g->prompts[0].ids);
    g->prompts[0].ids = all;
    g->prompts[0].count += earlier.count;
    const int64_t n_ctx = srv_model_context(g->model_ref);
    return (int64_t)g->prompts[0].count < n_ctx ||
           srv_fault_context(&g->fault, (int64_t)g->prompts[0].count, n_ctx);
}

static bool read_generate(const srv_field *root, mo_text *prompt, mo_text *system, bool *raw)
{
    return srv_read_text(srv_member(root, "prompt"), prompt) &&
           srv_read_text(srv_member(root, "system"), system) && srv_read_bool(srv_member(root, "raw"), raw);
}

/* The request's pictures are the user's. */
static bool plain_conversation(const srv_field *root, const srv_field *at, mo_text system, mo_text user,
                               srv_conversation *out)
{
    json_t *message;
    const srv_field images = srv_member(root, "images");
    if (srv_is_list(images) && srv_count(&images) == 0) {
        return srv_conversation_plain(at, system, user, out);
    }
    if (system.length > 0 && (!(message = srv_message_add(out, at, "system")) ||
                              !srv_message_append(message, at, "content", system))) {
        return false;
    }
    message = srv_message_add(out, at, "user");
    return message && read_images(root, out, message) && srv_message_append(message, at, "content", user);
}

void srv_ollama_generate(void *owner, srv_request *q)
{
    srv_generation *g = srv_generation_open(owner, q, SRV_DIALECT_OLLAMA, &generate_writer);
    if (!g) {
        return;
    }
    const srv_field root = srv_field_root(g->root, &g->fault), options = srv_member(&root, "options");
    const srv_field text = srv_member(&root, "prompt");
    mo_text prompt = {"", 0}, system = {"", 0};
    bool raw = false;
    double keep;
    bool good = read_common(g, &root, &options, &keep) && read_generate(&root, &prompt, &system, &raw);
    if (good && prompt.length == 0) {
        answer_load(g, false, keep);
        return;
    }
    g->parameters.n = 1;
    const srv_field images = srv_member(&root, "images");
    if (raw) {
        good = good && srv_is_list(images) &&
               (srv_count(&images) == 0 || srv_wrong(&images, "cannot be combined with raw")) &&
               srv_generation_text(g, &text);
    } else {
        good = good && plain_conversation(&root, &text, system, prompt, &g->conversation) &&
               srv_generation_chat(g);
    }
    good = good && put_earlier(g, &root) && obey_num_ctx(g, &options) && srv_generation_constrain(g);
    good ? srv_generation_start(g) : srv_generation_refuse(g);
}
