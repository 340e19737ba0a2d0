/* Choice: see choice.h. */
#include "server/requests/choice.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

void srv_choice_free(srv_choice *c)
{
    for (size_t i = 0; i < c->count; i++) {
        srv_writer_free(&c->items[i].text);
        free(c->items[i].name);
        free(c->items[i].id);
    }
    free(c->items);
    srv_writer_free(&c->probabilities);
    srv_writer_free(&c->tokens);
    for (int i = 0; i < 4; i++) {
        srv_writer_free(&c->legacy[i]);
    }
    *c = (srv_choice){0};
}

static srv_item *begin(srv_choice *c, srv_item_kind kind)
{
    if (!c->items || c->count == c->capacity) {
        const size_t capacity = c->capacity ? 2 * c->capacity : 4;
        srv_item *items = realloc(c->items, capacity * sizeof *items);
        if (!items) {
            c->failed = true;
            return NULL;
        }
        c->items = items;
        c->capacity = capacity;
    }
    srv_item *item = &c->items[c->count++];
    *item = (srv_item){.kind = kind};
    c->open = true;
    return item;
}

/* Text goes on in an open item of its kind, or begins one. */
static bool take_text(srv_choice *c, srv_item_kind kind, mo_text text)
{
    srv_item *item = srv_choice_last(c);
    const bool fresh = !c->open || !item || item->kind != kind;
    if (fresh) {
        item = begin(c, kind);
    }
    if (item) {
        srv_put(&item->text, text.data, text.length);
        c->failed = c->failed || item->text.failed;
    }
    return fresh && item;
}

static bool take_call(srv_choice *c, const srv_event *event)
{
    srv_item *item = begin(c, SRV_ITEM_CALL);
    if (item) {
        item->name = strdup(event->text.data);
        item->id = strdup(event->call_id ? event->call_id : "");
        c->failed = c->failed || !item->name || !item->id;
    }
    return item != NULL;
}

bool srv_choice_take(srv_choice *c, const srv_event *event)
{
    bool fresh = false;
    switch (event->kind) {
    case SRV_TEXT: fresh = event->text.length > 0 && take_text(c, SRV_ITEM_TEXT, event->text); break;
    case SRV_THOUGHT: fresh = event->text.length > 0 && take_text(c, SRV_ITEM_THOUGHT, event->text); break;
    case SRV_CALL: fresh = take_call(c, event); break;
    case SRV_ARGUMENTS:
        if (c->count > 0) {
            srv_put(&c->items[c->count - 1].text, event->text.data, event->text.length);
            c->failed = c->failed || c->items[c->count - 1].text.failed;
        }
        break;
    case SRV_CALL_END: c->open = false; break;
    case SRV_END:
        c->finish = event->finish;
        c->stop = event->stop;
        c->open = false;
        break;
    default: break;
    }
    c->completion_tokens = event->completion_tokens;
    return fresh;
}

size_t srv_choice_calls(const srv_choice *c)
{
    size_t calls = 0;
    for (size_t i = 0; i < c->count; i++) {
        calls += c->items[i].kind == SRV_ITEM_CALL;
    }
    return calls;
}

void srv_choice_join(const srv_choice *c, srv_item_kind kind, srv_writer *out)
{
    for (size_t i = 0; i < c->count; i++) {
        if (c->items[i].kind == kind) {
            srv_put(out, c->items[i].text.data, c->items[i].text.length);
        }
    }
}

void srv_item_arguments(const srv_item *item, srv_writer *w)
{
    const char *text = item->text.data ? item->text.data : "";
    json_t *input = json_loadb(text, item->text.length, JSON_ALLOW_NUL, NULL);
    if (json_is_object(input)) {
        srv_put(w, text, item->text.length);
    } else if (item->text.length > 0) {
        srv_put_literal(w, "{\"_incomplete\":");
        srv_put_string(w, text, item->text.length);
        srv_put_literal(w, "}");
    } else {
        srv_put_literal(w, "{}");
    }
    json_decref(input);
}
