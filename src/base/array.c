#include "base/array.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

bool mo_array_reserve(void *array, size_t *space, size_t count, size_t bytes)
{
    void *old, *memory; /* copied with memcpy, because the pointer may have any type */
    size_t total;
    if (count <= *space) {
        return true;
    }
    if (count > SIZE_MAX / 4 || __builtin_mul_overflow(2 * count + 16, bytes, &total)) {
        return false;
    }
    memcpy(&old, array, sizeof old);
    memory = realloc(old, total);
    if (memory) {
        memcpy(array, &memory, sizeof memory);
        *space = 2 * count + 16;
    }
    return memory != NULL; /* cppcheck-suppress memleak ; the array owns it */
}
