/* Hash: FNV-1a, for tables, identities and files that may be damaged. Not secure against deliberate collisions. */
#ifndef MO_BASE_HASH_H
#define MO_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MO_HASH_SEED  UINT64_C(0xCBF29CE484222325)
#define MO_HASH_PRIME UINT64_C(0x100000001B3)

/* Hash of bytes. Start with MO_HASH_SEED; pass the result to continue. */
static inline uint64_t mo_hash(uint64_t hash, const void *data, size_t bytes)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ p[i]) * MO_HASH_PRIME;
    }
    return hash;
}

/* For one of several strings: includes the terminator. */
static inline uint64_t mo_hash_text(uint64_t hash, const char *text, size_t length)
{
    return (mo_hash(hash, text, length) ^ 0xFF) * MO_HASH_PRIME;
}

/* Hash of eight-byte words, almost at memory speed; remaining bytes as above. Gives other values than
   mo_hash_bytes(). High bits are folded into low ones, because a product carries differences only upwards. */
static inline uint64_t mo_hash_words(uint64_t hash, const void *data, size_t bytes)
{
    const uint8_t *p = data;
    for (; bytes >= 8; p += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        hash = (hash ^ word) * MO_HASH_PRIME;
        hash ^= hash >> 32;
    }
    return mo_hash(hash, p, bytes);
}

#endif
