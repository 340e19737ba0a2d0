/* Reading: beginning, and putting text out. */
#include "dialogue/reading.h"

void mo_reading_init(mo_reading *r, mo_dialogue dialogue, const mo_tools *tools, bool in_thought,
                     mo_piece_list *out)
{
    const bool harmony = dialogue.id == MO_STYLE_HARMONY;
    *r = (mo_reading){.dialogue = dialogue, .fresh = true, .out = out};
    r->calls = (mo_calls){.out = out, .style = dialogue.style, .tools = tools, .function = -1};
    r->drops = dialogue.thought != NULL;
    if (in_thought && (dialogue.thought || harmony)) {
        r->state = MO_READING_THOUGHT;
        r->has_thought = true;
    } else if (harmony) {
        r->state = MO_READING_HEADER;
    }
}

void mo_reading_free(mo_reading *r)
{
    mo_bytes *const all[] = {&r->held, &r->raw,   &r->name, &r->id,
                             &r->key,  &r->value, &r->json, &r->header.text};
    for (size_t i = 0; i < sizeof all / sizeof(void *); i++) {
        mo_bytes_free(all[i]);
    }
    mo_object_free(&r->object);
    mo_gemma_free(&r->gemma);
}

bool mo_reading_failed(const mo_reading *r)
{
    const mo_bytes *const all[] = {&r->held,       &r->raw,         &r->name,        &r->id,
                                   &r->key,        &r->value,       &r->json,        &r->header.text,
                                   &r->object.key, &r->object.name, &r->object.text, &r->gemma.word};
    bool failed = r->out->failed;
    for (size_t i = 0; i < sizeof all / sizeof(void *); i++) {
        failed |= all[i]->failed;
    }
    return failed;
}

void mo_reading_put(mo_reading *r, mo_piece_kind kind, mo_text text)
{
    kind = r->keep_thought ? MO_PIECE_TEXT : kind;
    mo_piece_list_add(r->out, kind, -1, mo_bytes_text(&r->held));
    mo_piece_list_add(r->out, kind, -1, text);
    mo_bytes_clear(&r->held);
    r->fresh = r->after_call = r->in_fence = false;
}

void mo_reading_give_up(mo_reading *r)
{
    r->state = MO_READING_TEXT;
    r->in_section = r->name_line = false;
    if (r->raw.length > 0) {
        mo_reading_put(r, MO_PIECE_TEXT, mo_bytes_text(&r->raw));
        mo_bytes_clear(&r->raw);
    }
}

void mo_reading_enter_text(mo_reading *r)
{
    r->state = MO_READING_TEXT;
    r->fresh = r->drops = true;
    mo_bytes_clear(&r->held);
}
