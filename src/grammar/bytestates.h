/* Byte states: sets of characters as one automaton over UTF-8 bytes. Constant after creation. */
#ifndef MO_GRAMMAR_BYTESTATES_H
#define MO_GRAMMAR_BYTESTATES_H

#include "grammar/charset.h"

enum { MO_BYTE_ARCS = 1 << 19 };

/* A transition between states within a character. */
typedef struct mo_byte_arc {
    uint8_t low, high;
    uint32_t to; /* MO_CHARACTER_DONE: the character is complete */
} mo_byte_arc;

typedef struct mo_byte_state {
    uint32_t at, count; /* arcs, ascending */
} mo_byte_state;

#define MO_CHARACTER_DONE UINT32_MAX

typedef struct mo_byte_states {
    mo_byte_arc *arcs;
    uint32_t arc_count;
    size_t arc_space;
    mo_byte_state *states; /* [0] has no transitions */
    uint32_t count;
    size_t space;
    uint32_t *starts; /* first state of each set */
} mo_byte_states;

/* MO_EINVAL: the sets together are too large. On failure *out is empty. */
mo_status mo_byte_states_make(const mo_charset *sets, uint32_t count, mo_byte_states *out, mo_error *err);
void mo_byte_states_free(mo_byte_states *b);

/* The state after one more byte. MO_CHARACTER_DONE: complete; 0: the byte is not allowed. */
uint32_t mo_byte_states_step(const mo_byte_states *b, uint32_t state, uint8_t byte);

#endif
