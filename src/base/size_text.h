/* Size text: numbers of bytes as people read them. */
#ifndef MO_SIZE_TEXT_H
#define MO_SIZE_TEXT_H

#include <stdint.h>

/* "1.50 GiB", "512 bytes"; text holds at least 32 bytes and is returned. */
const char *mo_size_text(uint64_t bytes, char *text);

#endif
