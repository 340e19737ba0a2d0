/* Size text: readable numbers of bytes. */
#ifndef MO_SIZE_TEXT_H
#define MO_SIZE_TEXT_H

#include <stdint.h>

/* Writes "1.50 GiB" or "512 bytes" to text, which holds at least 32 bytes, and returns it. */
const char *mo_size_text(uint64_t bytes, char *text);

#endif
