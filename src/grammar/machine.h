/* Machine: runs a program over bytes. A state is everything the program may be doing after some bytes: places in nodes that
 * consume something, each with the stacks (stacks.h) it may have there. States are made when they are first reached, kept
 * once and known by a number; where a byte leads from a state is remembered. One thread at a time.
 *
 * Memory and work are bounded: past MO_MACHINE_FULL states the owner starts a new machine between two texts' tokens
 * (mo_machine_import()), and a call that does more than MO_STACKS_WORK fails with MO_ENOSPC. */
#ifndef MO_GRAMMAR_MACHINE_H
#define MO_GRAMMAR_MACHINE_H

#include "grammar/program.h"
#include "grammar/stacks.h"

enum {
    MO_STATE_UNKNOWN = 0,
    MO_STATE_DEAD = 1, /* no text leads on, and none ends here */
    MO_MACHINE_FULL = 8192,
    MO_MACHINE_STATES = 32768,
    MO_MACHINE_ITEMS = 1 << 20, /* of all states */
};

/* A place: how far in a literal, or which byte state in a set, and the stacks there. */
typedef struct mo_item {
    uint32_t node, sub, stacks;
} mo_item;

typedef struct mo_state {
    uint32_t at, count; /* items, by node and sub */
    uint32_t hash;
    bool accepts;     /* the text may end here */
    uint32_t *next;   /* by class of bytes; NULL: none is known yet */
    int32_t mask;     /* for the mask cache: -1 none */
    uint32_t mask_of; /* a state with the same mask; MO_STATE_UNKNOWN: not known yet */
} mo_state;

typedef struct mo_cell { /* of the state under construction */
    mo_item item;        /* with the stacks that were followed; MO_STACKS_NONE: none yet */
    uint32_t stamp;
    uint32_t more; /* stacks that came since: a list in `more`; 0: none */
    bool queued;
} mo_cell;

typedef struct mo_arrival {
    uint32_t stacks, next; /* next: as mo_cell.more */
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

    /* The state under construction. */
    mo_cell *cells; /* a table */
    uint32_t cell_mask, cell_count, stamp;
    uint32_t *order; /* the cells in use */
    uint32_t *queue; /* a ring */
    uint32_t queue_first, queue_count;
    mo_arrival *more;
    uint32_t more_count;
    size_t more_space;
    bool accepts;
    mo_item *gathered;
    mo_status failed; /* MO_ENOMEM or MO_ENOSPC: what was asked for is not to be used */
} mo_machine;

mo_status mo_machine_open(const mo_program *program, mo_machine **out, mo_error *err);
void mo_machine_close(mo_machine *m); /* NULL is allowed */

/* Begins an operation: forgives an earlier failure of work. */
void mo_machine_begin(mo_machine *m);

/* The state after one more byte, MO_STATE_DEAD also when `failed`. */
uint32_t mo_machine_step_new(mo_machine *m, uint32_t state, uint8_t byte);
static inline uint32_t mo_machine_step(mo_machine *m, uint32_t state, uint8_t byte)
{
    const uint32_t *next = m->states[state].next;
    const uint32_t to = next ? next[m->program->classes[byte]] : MO_STATE_UNKNOWN;
    return to != MO_STATE_UNKNOWN ? to : mo_machine_step_new(m, state, byte);
}

/* The state after one character of a set that some items wait for: what only they lead to. */
uint32_t mo_machine_step_set(mo_machine *m, uint32_t state, uint32_t set);

/* The state after a token: what its text leads to (`after_text`, or MO_STATE_DEAD) and what it leads to as a token. */
uint32_t mo_machine_step_token(mo_machine *m, uint32_t state, int32_t token, bool special, bool end,
                               uint32_t after_text);

/* A state whose tokens of at most `longest` bytes are the same: counts of loops that no token can bring to an end are made
 * alike. */
uint32_t mo_machine_alike(mo_machine *m, uint32_t state, uint32_t longest);

/* The state of another machine of the same program in this one. */
uint32_t mo_machine_import(mo_machine *m, mo_machine *from, uint32_t state);

#endif
