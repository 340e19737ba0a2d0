/* Digest: SHA-256, for what must not be made equal on purpose. */
#ifndef MO_BASE_DIGEST_H
#define MO_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

enum { MO_DIGEST_BYTES = 32, MO_DIGEST_BLOCK = 64 };

typedef struct mo_digest {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t block[MO_DIGEST_BLOCK]; /* what has not been taken in yet: bytes % MO_DIGEST_BLOCK of it */
} mo_digest;

void mo_digest_begin(mo_digest *d);
void mo_digest_add(mo_digest *d, const void *data, size_t bytes);
void mo_digest_end(mo_digest *d, uint8_t out[MO_DIGEST_BYTES]);

#endif
