/* Piece list: what one call of a reply gives, in order. Neighbours of one kind are joined. */
#ifndef MO_DIALOGUE_PIECE_LIST_H
#define MO_DIALOGUE_PIECE_LIST_H

#include "base/bytes.h"
#include "moraine_server.h"

typedef struct mo_piece_list {
    mo_piece *items; /* while they are collected, text.data and id.data are offsets into `bytes` */
    size_t count, capacity;
    mo_bytes bytes;
    bool failed; /* memory was out */
} mo_piece_list;

void mo_piece_list_clear(mo_piece_list *p);
void mo_piece_list_free(mo_piece_list *p);

/* Adds text to the last piece where that is of the same kind and call, otherwise a new piece. Nothing for no text. */
void mo_piece_list_add(mo_piece_list *p, mo_piece_kind kind, int call, mo_text text);

/* A CALL or CALL_END; id may be empty. */
void mo_piece_list_mark(mo_piece_list *p, mo_piece_kind kind, int call, mo_text name, mo_text id);

/* The pieces with their texts, valid until the next change. */
const mo_piece *mo_piece_list_seal(mo_piece_list *p, size_t *count);

#endif
