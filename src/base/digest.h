/* Digest: SHA-256, for data that must resist deliberate collisions. */
#ifndef MO_BASE_DIGEST_H
#define MO_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

enum { MO_DIGEST_BYTES = 32, MO_DIGEST_BLOCK = 64 };

typedef struct mo_digest {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t block[MO_DIGEST_BLOCK]; /* bytes not hashed yet: the first bytes % MO_DIGEST_BLOCK */
} mo_digest;

void mo_digest_begin(mo_digest *d);
void mo_digest_add(mo_digest *d, const void *data, size_t bytes);
void mo_digest_end(mo_digest *d, uint8_t out[MO_DIGEST_BYTES]);

#endif
