/* Poison: the __shared__ variables of all kernels of this program, found in its symbol table, because C++ has no way to
 * ask for them. Filled before every block, so that a kernel cannot live on what the block before it left there. */
#ifndef MO_EMULATION_POISON_H
#define MO_EMULATION_POISON_H

#include <stddef.h>

/* Fills the calling thread's copies of all __shared__ variables with words of MO_EMULATED_POISON. */
void mo_poison_shared();

/* Fills memory with the same words. */
void mo_poison_fill(void *memory, size_t bytes);

#endif
