#include "template/messages.h"

#include <stdio.h>

#include "template/json.h"

/* ---- Contents ---- */

static bool is_mark(mo_work *w, mo_jv text)
{
    return mo_jstring_is(text.as.string, MO_IMAGE_MARK) && !mo_jstring_is_input(w, text.as.string);
}

/* Joins texts with newlines, except next to a picture. */
static mo_jv joined(mo_work *w, const mo_jlist *parts, size_t number)
{
    mo_jbuffer *out = mo_jbuffer_new(w, 0);
    bool any = false;
    for (uint32_t i = 0; i < parts->count; i++) {
        const mo_jv part = parts->items[i];
        const mo_jv *text = part.kind == MO_J_DICT ? mo_jdict_find(part.as.dict, "text") : &part;
        if (!text || text->kind != MO_J_STRING) {
            mo_work_fail(w, MO_EINVAL, "message %zu: the model's template supports only text as content",
                         number);
        }
        const bool mark = is_mark(w, *text);
        if (any && !mark) {
            mo_jbuffer_add(w, out, "\n", 1, true);
        }
        any = !mark;
        mo_jbuffer_add_string(w, out, text->as.string);
    }
    return mo_jv_string(mo_jbuffer_view(out));
}

static mo_jv one_part(mo_work *w, mo_jv text)
{
    mo_jdict *part = mo_jdict_new(w, 2);
    mo_jlist *list = mo_jlist_new(w, MO_SHAPE_LIST, 1);
    mo_jdict_set_text(w, part, "type", mo_jv_text(w, "text"));
    mo_jdict_set_text(w, part, "text", text);
    mo_jlist_add(w, list, mo_jv_dict(part));
    return mo_jv_list(list);
}

static bool is_picture(mo_jv part)
{
    static const char *const kinds[] = {"image", "image_url", "input_image"};
    const mo_jv *kind = part.kind == MO_J_DICT ? mo_jdict_find(part.as.dict, "type") : NULL;
    for (size_t i = 0; kind && kind->kind == MO_J_STRING && i < sizeof kinds / sizeof *kinds; i++) {
        if (mo_jstring_is(kind->as.string, kinds[i])) {
            return true;
        }
    }
    return false;
}

static void fit_pictures(mo_work *w, const mo_jlist *parts)
{
    for (uint32_t i = 0; i < parts->count; i++) {
        if (is_picture(parts->items[i])) {
            parts->items[i] = one_part(w, mo_jv_text(w, MO_IMAGE_MARK)).as.list->items[0];
        }
    }
}

static void fit_content(mo_work *w, mo_jdict *message, const mo_message_needs *needs, mo_message_facts *facts,
                        size_t number)
{
    mo_jv *content = mo_jdict_find(message, "content");
    const bool null = !content || content->kind == MO_J_NONE;
    if (!null && content->kind != MO_J_STRING && content->kind != MO_J_LIST) {
        mo_work_fail(w, MO_EINVAL, "message %zu: the content is neither a string nor a list of parts",
                     number);
    }
    facts->null = facts->null || null;
    if (needs->pictures && !null && content->kind == MO_J_LIST) {
        fit_pictures(w, content->as.list);
    }
    if (null && needs->no_null) {
        mo_jdict_set_text(w, message, "content", mo_jv_text(w, ""));
    } else if (!null && content->kind == MO_J_LIST && !needs->parts) {
        *content = joined(w, content->as.list, number);
    } else if (!null && content->kind == MO_J_STRING && needs->only_parts) {
        *content = one_part(w, *content);
    }
}

/* ---- Reasoning ---- */

/* Reasoning has three names. */
static void fit_thought(mo_work *w, mo_jdict *message, const mo_message_needs *needs, mo_message_facts *facts)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    mo_jv thought = MO_JV_NONE;
    for (size_t i = 0; i < 3 && thought.kind == MO_J_NONE; i++) {
        const mo_jv *v = mo_jdict_find(message, names[i]);
        thought = v && v->kind == MO_J_STRING && v->as.string.length > 0 ? *v : thought;
    }
    if (thought.kind == MO_J_NONE) {
        return;
    }
    facts->alias = true;
    for (size_t i = 0; i < 3; i++) {
        if (i == 0 || !needs->no_alias) {
            mo_jdict_set_text(w, message, names[i], thought);
        } else {
            mo_jdict_remove(w, message, mo_jv_text(w, names[i]));
        }
    }
}

/* ---- Tool calls ---- */

/* If the text is a JSON object, parses it. */
static bool read_object(mo_work *w, mo_jstring text, mo_jv *out)
{
    const mo_jstring bare = mo_jstring_trim(w, text, NULL, MO_TRIM_LEFT | MO_TRIM_RIGHT);
    if (bare.length == 0) {
        *out = mo_jv_dict(mo_jdict_new(w, 0));
        return true;
    }
    return mo_jstring_data(bare)[0] == '{' && mo_json_try(w, mo_jstring_data(bare), bare.length, true, out);
}

/* Wraps invalid arguments that a client sends back, because templates iterate over them: an object that
   contains all of the text. */
static void wrap_arguments(mo_work *w, mo_jv *arguments)
{
    mo_jdict *only = mo_jdict_new(w, 1);
    mo_jdict_set_text(w, only, "input", *arguments);
    *arguments = mo_jv_dict(only);
}

static void fit_arguments(mo_work *w, mo_jv *arguments, const mo_message_needs *needs,
                          mo_message_facts *facts)
{
    mo_jv object;
    const bool as_text = needs->text_arguments;
    if (as_text && arguments->kind != MO_J_STRING) {
        const mo_json_style style = mo_json_style_default(w);
        mo_jbuffer *out = mo_jbuffer_new(w, 0);
        mo_json_write(w, out, *arguments, &style);
        *arguments = mo_jv_string(mo_jbuffer_view(out));
    } else if (!as_text && arguments->kind == MO_J_STRING && read_object(w, arguments->as.string, &object)) {
        *arguments = object;
    }
    if (!as_text && arguments->kind != MO_J_DICT) {
        facts->odd_arguments = true;
        if (needs->only_objects) {
            wrap_arguments(w, arguments);
        }
    }
}

static void fit_calls(mo_work *w, mo_jdict *message, const mo_message_needs *needs, mo_message_facts *facts)
{
    const mo_jv *calls = mo_jdict_find(message, "tool_calls");
    if (calls && (calls->kind == MO_J_NONE || (calls->kind == MO_J_LIST && calls->as.list->count == 0))) {
        mo_jdict_remove(w, message, mo_jv_text(w, "tool_calls")); /* some templates test whether it exists */
        return;
    }
    for (uint32_t i = 0; calls && calls->kind == MO_J_LIST && i < calls->as.list->count; i++) {
        const mo_jv call = calls->as.list->items[i];
        const mo_jv *function = call.kind == MO_J_DICT ? mo_jdict_find(call.as.dict, "function") : NULL;
        const mo_jdict *owner = function && function->kind == MO_J_DICT ? function->as.dict
                                : call.kind == MO_J_DICT                ? call.as.dict
                                                                        : NULL;
        mo_jv *arguments = owner ? mo_jdict_find(owner, "arguments") : NULL;
        if (arguments) {
            fit_arguments(w, arguments, needs, facts);
        }
    }
}

/* ---- Roles ---- */

static bool has_role(const mo_jdict *message, const char *role)
{
    const mo_jv *v = mo_jdict_find(message, "role");
    return v && v->kind == MO_J_STRING && mo_jstring_is(v->as.string, role);
}

/* Inserts text before a message's text, with an empty line between. */
static void put_before(mo_work *w, mo_jdict *message, mo_jv text)
{
    mo_jv *content = mo_jdict_find(message, "content");
    if (!content || content->kind == MO_J_NONE) {
        mo_jdict_set_text(w, message, "content", text);
    } else if (content->kind == MO_J_LIST) {
        mo_jlist *list = one_part(w, text).as.list;
        for (uint32_t i = 0; i < content->as.list->count; i++) {
            mo_jlist_add(w, list, content->as.list->items[i]);
        }
        *content = mo_jv_list(list);
    } else {
        mo_jbuffer *out = mo_jbuffer_new(w, 0);
        mo_jbuffer_add_string(w, out, text.as.string);
        mo_jbuffer_add(w, out, "\n\n", content->as.string.length ? 2 : 0, true);
        mo_jbuffer_add_string(w, out, content->as.string);
        *content = mo_jv_string(mo_jbuffer_view(out));
    }
}

/* Moves system messages to the beginning of the next user message, or makes one. */
static void merge_system(mo_work *w, mo_jlist *messages)
{
    mo_jlist *kept = mo_jlist_new(w, MO_SHAPE_LIST, messages->count);
    mo_jv waiting = MO_JV_NONE;
    for (uint32_t i = 0; i < messages->count; i++) {
        mo_jdict *m = messages->items[i].as.dict;
        if (has_role(m, "system")) {
            mo_jv *content = mo_jdict_find(m, "content");
            mo_jv text = content && content->kind == MO_J_LIST     ? joined(w, content->as.list, i + 1)
                         : content && content->kind == MO_J_STRING ? *content
                                                                   : mo_jv_text(w, "");
            if (waiting.kind == MO_J_STRING && waiting.as.string.length > 0) {
                mo_jdict *both = mo_jdict_new(w, 1);
                mo_jdict_set_text(w, both, "content", text);
                put_before(w, both, waiting);
                text = *mo_jdict_find(both, "content");
            }
            waiting = text;
            continue;
        }
        if (waiting.kind == MO_J_STRING && waiting.as.string.length > 0 && has_role(m, "user")) {
            put_before(w, m, waiting);
            waiting = MO_JV_NONE;
        }
        mo_jlist_add(w, kept, messages->items[i]);
    }
    if (waiting.kind == MO_J_STRING && waiting.as.string.length > 0) {
        mo_jdict *m = mo_jdict_new(w, 2);
        mo_jdict_set_text(w, m, "role", mo_jv_text(w, "user"));
        mo_jdict_set_text(w, m, "content", waiting);
        mo_jlist_add(w, kept, mo_jv_dict(m));
    }
    *messages = *kept;
}

void mo_messages_fit(mo_work *w, mo_jlist *messages, const mo_message_needs *needs, mo_message_facts *facts)
{
    *facts = (mo_message_facts){0};
    for (uint32_t i = 0; i < messages->count; i++) {
        const mo_jv m = messages->items[i];
        if (m.kind != MO_J_DICT) {
            mo_work_fail(w, MO_EINVAL, "message %u: not an object", i + 1);
        }
        mo_jv *role = mo_jdict_find(m.as.dict, "role");
        if (!role || role->kind != MO_J_STRING) {
            mo_work_fail(w, MO_EINVAL, "message %u: missing role", i + 1);
        }
        if (mo_jstring_is(role->as.string, "developer")) {
            *role = mo_jv_text(w, "system");
        }
        facts->system = facts->system || mo_jstring_is(role->as.string, "system");
        fit_content(w, m.as.dict, needs, facts, i + 1);
        fit_thought(w, m.as.dict, needs, facts);
        fit_calls(w, m.as.dict, needs, facts);
    }
    if (needs->no_system && facts->system) {
        merge_system(w, messages);
    }
}

void mo_tools_fit(mo_work *w, mo_jlist *tools, const mo_message_needs *needs, mo_message_facts *facts)
{
    for (uint32_t i = 0; i < tools->count; i++) {
        const mo_jv tool = tools->items[i];
        const mo_jv *function = tool.kind == MO_J_DICT ? mo_jdict_find(tool.as.dict, "function") : NULL;
        mo_jdict *owner = function && function->kind == MO_J_DICT ? function->as.dict : NULL;
        if (!owner || mo_jdict_find(owner, "description")) {
            continue;
        }
        facts->undescribed = true;
        if (needs->described) {
            mo_jdict_set_text(w, owner, "description", mo_jv_text(w, ""));
        }
    }
}
