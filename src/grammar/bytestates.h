/* Byte states: sets of characters as one automaton over the bytes of UTF-8. Constant once made. */
#ifndef MO_GRAMMAR_BYTESTATES_H
#define MO_GRAMMAR_BYTESTATES_H

#include "grammar/charset.h"

enum { MO_BYTE_ARCS = 1 << 19 };

/* From one state within a character to the next. */
typedef struct mo_byte_arc {
    uint8_t low, high;
    uint32_t to; /* MO_CHARACTER_DONE: the character is whole */
} mo_byte_arc;

typedef struct mo_byte_state {
    uint32_t at, count; /* arcs, ascending */
} mo_byte_state;

#define MO_CHARACTER_DONE UINT32_MAX

typedef struct mo_byte_states {
    mo_byte_arc *arcs;
    uint32_t arc_count;
    size_t arc_space;
    mo_byte_state *states; /* from [0] nothing leads on */
    uint32_t count;
    size_t space;
    uint32_t *starts; /* of every set: its first state */
} mo_byte_states;

/* MO_EINVAL: the sets are too large together. On failure *out is empty. */
mo_status mo_byte_states_make(const mo_charset *sets, uint32_t count, mo_byte_states *out, mo_error *err);
void mo_byte_states_free(mo_byte_states *b);

/* The state after one more byte: MO_CHARACTER_DONE, or 0 when it cannot come. */
uint32_t mo_byte_states_step(const mo_byte_states *b, uint32_t state, uint8_t byte);

#endif
