/* Memory that ends at a page that cannot be read: who reads or writes behind it is killed, in every build and under every
 * emulator. Sanitized builds do not look at what the kernels of x86-64 and aarch64 read (src/CMakeLists.txt). */
#ifndef MO_TESTS_GUARDED_H
#define MO_TESTS_GUARDED_H

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { GUARD_BYTES = 65536 }; /* bytes: pages of every size */

typedef struct guarded_map {
    void *base;
    size_t bytes;
} guarded_map;

/* `bytes` that end at the guard, or up to `alignment` - 1 before it; `alignment` is a power of two. */
static inline void *guarded_aligned(size_t alignment, size_t bytes)
{
    const size_t inside =
        (bytes + sizeof(guarded_map) + alignment + GUARD_BYTES - 1) / GUARD_BYTES * GUARD_BYTES;
    guarded_map map = {.bytes = inside + GUARD_BYTES};
    map.base = mmap(NULL, map.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map.base == MAP_FAILED) {
        return NULL;
    }
    mprotect((char *)map.base + inside, GUARD_BYTES, PROT_NONE);
    char *data = (char *)((uintptr_t)((char *)map.base + inside - bytes) & ~(uintptr_t)(alignment - 1));
    memcpy(data - sizeof map, &map, sizeof map);
    return data;
}

static inline void *guarded(size_t bytes)
{
    return guarded_aligned(1, bytes);
}

static inline void guarded_free(void *data)
{
    if (data) {
        guarded_map map;
        memcpy(&map, (char *)data - sizeof map, sizeof map);
        munmap(map.base, map.bytes);
    }
}

#endif
