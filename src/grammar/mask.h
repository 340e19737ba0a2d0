/* Mask: the tokens that may follow in a state of a machine. Computed by one pass over the vocabulary's bytes,
   and cached for the most recently used states. One thread at a time. */
#ifndef MO_GRAMMAR_MASK_H
#define MO_GRAMMAR_MASK_H

#include "grammar/lexicon.h"
#include "grammar/machine.h"

typedef struct mo_masks mo_masks;

/* The program's sets select the runs of the lexicon. Lexicon and program must outlive the masks. */
mo_status mo_masks_open(mo_lexicon *lexicon, const mo_program *program, mo_masks **out, mo_error *err);
void mo_masks_close(mo_masks *c); /* NULL is allowed */

/* Writes the mask of a state, without end tokens. The caller checks whether the machine failed. */
void mo_masks_get(mo_masks *c, mo_machine *m, uint32_t state, uint32_t *bits);

/* Clears the cache, because the machine is replaced. */
void mo_masks_clear(mo_masks *c);

#endif
