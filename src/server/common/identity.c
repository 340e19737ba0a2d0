/* Identity: see identity.h. */
#include "server/common/identity.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>

/* Without the kernel's numbers names are still unique, if no longer unguessable. */
void srv_identity_bytes(void *out, size_t count)
{
    uint8_t *bytes = out;
    if (getrandom(bytes, count, 0) == (ssize_t)count) {
        return;
    }
    static atomic_uint_fast64_t calls;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t x =
        (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + (atomic_fetch_add(&calls, 1) << 48);
    for (size_t i = 0; i < count; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (uint8_t)(x >> 56);
    }
}

void srv_identity(const char *prefix, char *out, size_t size)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789AB"; /* 64: no modulo */
    uint8_t bytes[24];
    char name[25];
    srv_identity_bytes(bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        name[i] = letters[bytes[i] & 63];
    }
    name[sizeof bytes] = '\0';
    snprintf(out, size, "%s%s", prefix, name);
}
