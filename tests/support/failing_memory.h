/* Allocation that fails on demand. For programs linked with -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc
 * (mo_test(... FAILING_MEMORY) in tests/CMakeLists.txt); included once. */
#ifndef MO_TESTS_FAILING_MEMORY_H
#define MO_TESTS_FAILING_MEMORY_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

/* Allocations of this thread that still succeed; -1: all. */
static _Thread_local long fail_after = -1;
/* One fails, and those after it succeed. */
static _Thread_local bool fail_once;
/* Those that did not. */
static _Thread_local long refusals;
/* The most bytes that it asked for at once. */
static _Thread_local size_t largest_request;

static bool refuse(size_t bytes)
{
    largest_request = bytes > largest_request ? bytes : largest_request;
    if (fail_after == 0) {
        errno = ENOMEM;
        refusals++;
        fail_after = fail_once ? -1 : 0;
        return true;
    }
    fail_after -= fail_after > 0;
    return false;
}

void *__wrap_malloc(size_t bytes)
{
    return refuse(bytes) ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return refuse(count * bytes) ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    return refuse(bytes) ? NULL : __real_realloc(old, bytes);
}

#endif
