#include "template/system_tools.h"

#include "template/json.h"

static mo_jv json_text(mo_work *w, mo_jv v)
{
    const mo_json_style style = mo_json_style_default(w);
    mo_jbuffer *out = mo_jbuffer_new(w, 0);
    mo_json_write(w, out, v, &style);
    return mo_jv_string(mo_jbuffer_view(out));
}

static mo_jv function_of(mo_jv v)
{
    const mo_jv *function = v.kind == MO_J_DICT ? mo_jdict_find(v.as.dict, "function") : NULL;
    return function ? *function : v;
}

/* ---- Tools ---- */

static void show_tools(mo_work *w, mo_jlist *messages, const mo_jlist *tools)
{
    mo_jlist *functions = mo_jlist_new(w, MO_SHAPE_LIST, tools->count);
    for (uint32_t i = 0; i < tools->count; i++) {
        mo_jlist_add(w, functions, function_of(tools->items[i]));
    }
    const mo_jv *role = messages->count ? mo_jdict_find(messages->items[0].as.dict, "role") : NULL;
    if (!role || !mo_jstring_is(role->as.string, "system")) {
        mo_jlist *all = mo_jlist_new(w, MO_SHAPE_LIST, messages->count + 1);
        mo_jdict *system = mo_jdict_new(w, 3);
        mo_jdict_set_text(w, system, "role", mo_jv_text(w, "system"));
        mo_jdict_set_text(w, system, "content", mo_jv_text(w, "You are an assistant that has these tools."));
        mo_jlist_add(w, all, mo_jv_dict(system));
        for (uint32_t i = 0; i < messages->count; i++) {
            mo_jlist_add(w, all, messages->items[i]);
        }
        *messages = *all;
    }
    mo_jdict_set_text(w, messages->items[0].as.dict, "tools", json_text(w, mo_jv_list(functions)));
}

/* ---- Calls and results ---- */

/* Appends the calls to the text of the message, between the marks of the model's vocabulary. */
static void write_calls(mo_work *w, mo_jdict *message, const mo_jlist *calls)
{
    const mo_jv *content = mo_jdict_find(message, "content");
    mo_jlist *list = mo_jlist_new(w, MO_SHAPE_LIST, calls->count);
    for (uint32_t i = 0; i < calls->count; i++) {
        const mo_jv function = function_of(calls->items[i]);
        mo_jdict *call = mo_jdict_new(w, 2);
        static const char *const keys[] = {"name", "arguments"};
        for (int k = 0; k < 2; k++) {
            const mo_jv *v = function.kind == MO_J_DICT ? mo_jdict_find(function.as.dict, keys[k]) : NULL;
            mo_jdict_set_text(w, call, keys[k], v ? *v : MO_JV_NONE);
        }
        mo_jlist_add(w, list, mo_jv_dict(call));
    }
    mo_jbuffer *out = mo_jbuffer_new(w, 0);
    if (content && content->kind == MO_J_STRING) {
        mo_jbuffer_add_string(w, out, content->as.string);
    }
    mo_jbuffer_put(w, out, "<|tool_call|>");
    mo_jbuffer_add_string(w, out, json_text(w, mo_jv_list(list)).as.string);
    mo_jbuffer_put(w, out, "<|/tool_call|>");
    mo_jdict_set_text(w, message, "content", mo_jv_string(mo_jbuffer_view(out)));
}

void mo_system_tools_fit(mo_work *w, mo_jlist *messages, const mo_jlist *tools)
{
    if (tools && tools->count > 0) {
        show_tools(w, messages, tools);
    }
    for (uint32_t i = 0; i < messages->count; i++) {
        mo_jdict *message = messages->items[i].as.dict;
        mo_jv *role = mo_jdict_find(message, "role");
        const mo_jv *calls = mo_jdict_find(message, "tool_calls");
        if (calls && calls->kind == MO_J_LIST) {
            write_calls(w, message, calls->as.list);
            mo_jdict_remove(w, message, mo_jv_text(w, "tool_calls"));
        }
        if (mo_jstring_is(role->as.string, "tool")) { /* the template makes a token of its name */
            *role = mo_jv_text(w, "tool_response");
        }
    }
}
