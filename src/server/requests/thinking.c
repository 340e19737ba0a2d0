/* Thinking: see thinking.h. */
#include "server/requests/thinking.h"

#include <string.h>

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Remembers which field asks for thoughts: a request without a conversation cannot have them. */
static void note(const srv_field *f, srv_parameters *p)
{
    const srv_field *at = f;
    while (at->in && at->in->in) {
        at = at->in;
    }
    p->think_field = at->name;
}

static void turn(const srv_field *f, bool on, srv_parameters *p)
{
    p->thinking = on ? SRV_ON : SRV_OFF;
    if (on) {
        note(f, p);
    }
}

bool srv_effort_read(srv_field f, srv_parameters *p)
{
    static const char *const levels[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    mo_text text = {NULL, 0};
    if (!srv_read_text(f, &text)) {
        return false;
    }
    if (!text.data) {
        return true;
    }
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (srv_text_is(text, levels[i])) {
            p->effort = i > 0 ? levels[i] : NULL;
            p->thinking = i > 0 ? p->thinking : SRV_OFF;
            if (i > 0) {
                note(&f, p);
            }
            return true;
        }
    }
    return srv_wrong(&f, "must be none, minimal, low, medium, high, xhigh or max");
}

static bool read_limit(srv_field f, int64_t least, srv_parameters *p)
{
    if (f.value) {
        note(&f, p);
    }
    return srv_read_int(f, least, INT64_MAX, &p->generation.thought_tokens);
}

/* true, false or a level: Ollama's think. */
static bool read_switch(srv_field f, srv_parameters *p)
{
    if (json_is_boolean(f.value)) {
        turn(&f, json_is_true(f.value), p);
        return true;
    }
    if (f.value && !json_is_string(f.value)) {
        return srv_wrong_type(&f, "true, false or a level");
    }
    if (f.value) {
        turn(&f, true, p);
    }
    return srv_effort_read(f, p);
}

/* {"type","budget_tokens","display"}: Anthropic's thinking, and that of several makers of chats. */
static bool read_typed(const srv_field *f, srv_parameters *p)
{
    const srv_field type = srv_member(f, "type"), budget = srv_member(f, "budget_tokens");
    mo_text kind = {NULL, 0};
    const srv_field display = srv_member(f, "display");
    mo_text shown = {"", 0};
    if (!srv_read_text(type, &kind) || !read_limit(budget, 0, p) || !srv_read_text(display, &shown)) {
        return false;
    }
    p->hide_thought = srv_text_is(shown, "omitted");
    if (shown.length > 0 && !p->hide_thought && !srv_text_is(shown, "summarized")) {
        return srv_wrong(&display, "must be summarized or omitted");
    }
    if (!kind.data) {
        return srv_missing(&type);
    }
    if (srv_text_is(kind, "enabled") || srv_text_is(kind, "disabled")) {
        turn(&type, srv_text_is(kind, "enabled"), p);
        return true;
    }
    return srv_text_is(kind, "adaptive") || srv_text_is(kind, "auto") ||
           srv_wrong(&type, "must be enabled, disabled or adaptive");
}

/* {"effort","enabled","max_tokens","exclude"}: that of responses, and of routers between makers. */
static bool read_reasoning(const srv_field *f, srv_parameters *p)
{
    const srv_field enabled = srv_member(f, "enabled"), exclude = srv_member(f, "exclude");
    bool on = false, hidden = false;
    if (!srv_read_bool(enabled, &on) || !srv_read_bool(exclude, &hidden) ||
        !read_limit(srv_member(f, "max_tokens"), 0, p)) {
        return false;
    }
    if (hidden) {
        return srv_wrong(&exclude, "reasoning is returned in a separate field; ignore that field instead");
    }
    if (enabled.value) {
        turn(&enabled, on, p);
    }
    return srv_effort_read(srv_member(f, "effort"), p);
}

static bool read_format(srv_field f, srv_parameters *p)
{
    mo_text text = {NULL, 0};
    if (!srv_read_text(f, &text)) {
        return false;
    }
    if (text.data) {
        p->keep_thought = srv_text_is(text, "none");
        if (!p->keep_thought && !srv_text_is(text, "auto") && !srv_text_is(text, "deepseek") &&
            !srv_text_is(text, "deepseek-legacy")) {
            return srv_wrong(&f, "must be auto, none or deepseek");
        }
    }
    return true;
}

bool srv_thinking_read(const srv_field *object, srv_parameters *p)
{
    const srv_field kwargs = srv_member(object, "chat_template_kwargs");
    const srv_field thinking = srv_member(object, "thinking"), reasoning = srv_member(object, "reasoning");
    if (!read_format(srv_member(object, "reasoning_format"), p) || !srv_is_object(kwargs)) {
        return false;
    }
    p->template_kwargs = kwargs.value ? kwargs.value : p->template_kwargs;
    return read_switch(srv_member(object, "enable_thinking"), p) &&
           read_switch(srv_member(object, "think"), p) &&
           (json_is_object(thinking.value) ? read_typed(&thinking, p) : read_switch(thinking, p)) &&
           (json_is_object(reasoning.value) ? read_reasoning(&reasoning, p) : read_switch(reasoning, p)) &&
           srv_effort_read(srv_member(object, "reasoning_effort"), p) &&
           read_limit(srv_member_of(object, NAMES("reasoning_budget_tokens", "thinking_budget_tokens",
                                                  "thinking_budget")),
                      -1, p);
}
