/* Mask: which tokens may follow in a state of a machine. Computed by one walk through the vocabulary's bytes and the machine
 * together, and kept for the states that were asked for last. One thread at a time. */
#ifndef MO_GRAMMAR_MASK_H
#define MO_GRAMMAR_MASK_H

#include "grammar/lexicon.h"
#include "grammar/machine.h"

typedef struct mo_masks mo_masks;

/* The program's sets decide which runs of the lexicon are used. Lexicon and program must outlive it. */
mo_status mo_masks_open(mo_lexicon *lexicon, const mo_program *program, mo_masks **out, mo_error *err);
void mo_masks_close(mo_masks *c); /* NULL is allowed */

/* Writes the mask of a state, without end tokens. Whether the machine failed is for the caller to see. */
void mo_masks_get(mo_masks *c, mo_machine *m, uint32_t state, uint32_t *bits);

/* Another machine follows: what is kept belongs to states of the last one. */
void mo_masks_clear(mo_masks *c);

#endif
