/* Piece list: texts lie one behind the other in one buffer, which may move until it is sealed. */
#include "dialogue/piece_list.h"

#include <stdlib.h>

#include "base/array.h"

/* Offsets stand where pointers will: the buffer moves while it grows. */
static const char *offset(size_t at)
{
    return (const char *)(uintptr_t)at;
}

void mo_piece_list_clear(mo_piece_list *p)
{
    p->count = 0;
    mo_bytes_clear(&p->bytes);
}

void mo_piece_list_free(mo_piece_list *p)
{
    free(p->items);
    mo_bytes_free(&p->bytes);
    *p = (mo_piece_list){0};
}

static mo_piece *add(mo_piece_list *p)
{
    if (!mo_array_reserve(&p->items, &p->capacity, p->count + 1, sizeof *p->items)) {
        p->failed = true;
        return NULL;
    }
    return &p->items[p->count++];
}

/* Copies the text behind the others with a terminator. */
static mo_text store(mo_piece_list *p, mo_text text)
{
    const size_t at = p->bytes.length;
    mo_bytes_add(&p->bytes, text.data, text.length);
    mo_bytes_add(&p->bytes, "", 1);
    return (mo_text){offset(at), text.length};
}

void mo_piece_list_add(mo_piece_list *p, mo_piece_kind kind, int call, mo_text text)
{
    if (text.length == 0 || p->failed) {
        return;
    }
    mo_piece *last = p->count > 0 ? &p->items[p->count - 1] : NULL;
    if (last && last->kind == kind && last->call == call) {
        p->bytes.length--; /* its terminator */
        mo_bytes_add(&p->bytes, text.data, text.length);
        mo_bytes_add(&p->bytes, "", 1);
        last->text.length += text.length;
    } else if ((last = add(p)) != NULL) {
        *last = (mo_piece){.kind = kind, .call = call, .text = store(p, text)};
    }
    p->failed |= p->bytes.failed;
}

void mo_piece_list_mark(mo_piece_list *p, mo_piece_kind kind, int call, mo_text name, mo_text id)
{
    mo_piece *piece = p->failed ? NULL : add(p);
    if (piece) {
        *piece = (mo_piece){.kind = kind, .call = call};
        piece->text = store(p, name);
        piece->id = store(p, id);
    }
    p->failed |= p->bytes.failed;
}

const mo_piece *mo_piece_list_seal(mo_piece_list *p, size_t *count)
{
    *count = p->count;
    for (size_t i = 0; i < p->count; i++) {
        mo_piece *piece = &p->items[i];
        piece->text.data = p->bytes.data + (uintptr_t)piece->text.data;
        piece->id.data = piece->kind == MO_PIECE_CALL ? p->bytes.data + (uintptr_t)piece->id.data : "";
    }
    return p->items;
}
