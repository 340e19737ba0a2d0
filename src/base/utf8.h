/* Utf8: characters in bytes that may not be valid UTF-8. */
#ifndef MO_BASE_UTF8_H
#define MO_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* The length of the valid character at p, 1 to 4, or 0: overlong forms, surrogates, code points above
   U+10FFFF, stray and missing continuation bytes are invalid. n is at least 1. */
static inline size_t mo_utf8_length(const uint8_t *p, size_t n)
{
    const uint8_t c = p[0];
    if (c < 0x80) {
        return 1;
    }
    if (c < 0xC2 || c > 0xF4) {
        return 0;
    }
    const size_t length = c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    if (n < length || (p[1] & 0xC0) != 0x80) {
        return 0;
    }
    if ((c == 0xE0 && p[1] < 0xA0) || (c == 0xED && p[1] > 0x9F) || (c == 0xF0 && p[1] < 0x90) ||
        (c == 0xF4 && p[1] > 0x8F)) {
        return 0;
    }
    for (size_t i = 2; i < length; i++) {
        if ((p[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    return length;
}

/* Can the n bytes at p (fewer than 4) be the beginning of a valid character? */
static inline int mo_utf8_is_prefix(const uint8_t *p, size_t n)
{
    uint8_t whole[4] = {0x80, 0x80, 0x80, 0x80};
    if (n == 0 || n > 3 || p[0] < 0xC2 || p[0] > 0xF4) {
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        whole[i] = p[i];
    }
    /* the second byte's range depends on the first; this one is valid after every first byte */
    if (n == 1) {
        whole[1] = p[0] == 0xE0 || p[0] == 0xF0 ? 0xA0 : 0x80;
        whole[1] = p[0] == 0xF4 || p[0] == 0xED ? 0x80 : whole[1];
    }
    return mo_utf8_length(whole, 4) > n;
}

/* The code point of the valid character of `length` bytes at p. */
static inline uint32_t mo_utf8_decode(const uint8_t *p, size_t length)
{
    switch (length) {
    case 1: return p[0];
    case 2: return (uint32_t)(p[0] & 0x1F) << 6 | (p[1] & 0x3F);
    case 3: return (uint32_t)(p[0] & 0x0F) << 12 | (uint32_t)(p[1] & 0x3F) << 6 | (p[2] & 0x3F);
    default:
        return (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3F) << 12 | (uint32_t)(p[2] & 0x3F) << 6 |
               (p[3] & 0x3F);
    }
}

/* Writes the bytes of a code point and returns their number, 1 to 4. Invalid code points become U+FFFD. */
static inline size_t mo_utf8_encode(uint32_t code, char *bytes)
{
    uint32_t c = code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF) ? 0xFFFD : code;
    if (c < 0x80) {
        bytes[0] = (char)c;
        return 1;
    }
    const size_t length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, c >>= 6) {
        bytes[i] = (char)(0x80 | (c & 0x3F));
    }
    bytes[0] = (char)((0xF00 >> length & 0xFF) | c);
    return length;
}

#endif
