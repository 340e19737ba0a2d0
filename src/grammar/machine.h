/* Machine: runs a program over bytes. A state is the set of everything that the program may be doing after
   some bytes: consuming nodes, each with its possible stacks (stacks.h). States are created when first
   reached, stored once and have numbers. Transitions are cached. One thread at a time.

   Memory and work are bounded: after MO_MACHINE_FULL states the owner starts a new machine between two tokens
   (mo_machine_import()), and a call that does more than MO_STACKS_WORK fails with MO_ENOSPC. */
#ifndef MO_GRAMMAR_MACHINE_H
#define MO_GRAMMAR_MACHINE_H

#include "grammar/program.h"
#include "grammar/stacks.h"

enum {
    MO_STATE_UNKNOWN = 0,
    MO_STATE_DEAD = 1, /* no text can follow, and the text cannot end here */
    MO_MACHINE_FULL = 8192,
    MO_MACHINE_STATES = 32768,
    MO_MACHINE_ITEMS = 1 << 20, /* in all states together */
};

/* An item: a position in a literal, or the byte state in a set, and its stacks. */
typedef struct mo_item {
    uint32_t node, sub, stacks;
} mo_item;

typedef struct mo_state {
    uint32_t at, count; /* items, sorted by node and sub */
    uint32_t hash;
    bool accepts;     /* the text may end here */
    uint32_t *next;   /* by class of bytes; NULL: none computed yet */
    int32_t mask;     /* index into the mask cache; -1: none */
    uint32_t mask_of; /* a state with the same mask; MO_STATE_UNKNOWN: not known yet */
} mo_state;

typedef struct mo_cell { /* of the state being built */
    mo_item item;        /* with the stacks followed so far; MO_STACKS_NONE: none yet */
    uint32_t stamp;
    uint32_t more; /* stacks added since then: a list in `more`; 0: none */
    bool queued;
} mo_cell;

typedef struct mo_arrival {
    uint32_t stacks, next; /* next: like mo_cell.more */
} mo_arrival;

typedef struct mo_machine {
    const mo_program *program;
    mo_stacks stacks;
    mo_state *states;
    uint32_t state_count;
    size_t state_space;
    mo_item *items;
    uint32_t item_count;
    size_t item_space;
    uint32_t *table; /* state numbers by hash; 0: empty */
    uint32_t table_mask;
    uint32_t start;

    /* The state being built. */
    mo_cell *cells; /* a hash table */
    uint32_t cell_mask, cell_count, stamp;
    uint32_t *order; /* cells in use */
    uint32_t *queue; /* a ring buffer */
    uint32_t queue_first, queue_count;
    mo_arrival *more;
    uint32_t more_count;
    size_t more_space;
    bool accepts;
    mo_item *gathered;
    mo_status failed; /* MO_ENOMEM or MO_ENOSPC: the result of the operation is invalid */
} mo_machine;

mo_status mo_machine_open(const mo_program *program, mo_machine **out, mo_error *err);
void mo_machine_close(mo_machine *m); /* NULL is allowed */

/* Begins an operation. Clears an earlier MO_ENOSPC. */
void mo_machine_begin(mo_machine *m);

/* The state after one more byte. MO_STATE_DEAD also after a failure. */
uint32_t mo_machine_step_new(mo_machine *m, uint32_t state, uint8_t byte);
static inline uint32_t mo_machine_step(mo_machine *m, uint32_t state, uint8_t byte)
{
    const uint32_t *next = m->states[state].next;
    const uint32_t to = next ? next[m->program->classes[byte]] : MO_STATE_UNKNOWN;
    return to != MO_STATE_UNKNOWN ? to : mo_machine_step_new(m, state, byte);
}

/* The state after one character of the set, for the items that wait for this set. */
uint32_t mo_machine_step_set(mo_machine *m, uint32_t state, uint32_t set);

/* The state after a token: the union of `after_text` (MO_STATE_DEAD: none) and the state after the token as a
   token node. */
uint32_t mo_machine_step_token(mo_machine *m, uint32_t state, int32_t token, bool special, bool end,
                               uint32_t after_text);

/* An equivalent state for tokens of at most `longest` bytes: loop counts are reduced if no such token can
   finish the loop. */
uint32_t mo_machine_alike(mo_machine *m, uint32_t state, uint32_t longest);

/* Copies a state from another machine of the same program. */
uint32_t mo_machine_import(mo_machine *m, mo_machine *from, uint32_t state);

#endif
