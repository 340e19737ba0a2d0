/* Memory that is counted: malloc, calloc and realloc of a program (FAILING_MEMORY in CMakeLists.txt) are these, for tests of what must not
 * allocate. */
#ifndef MO_TESTS_COUNTED_MEMORY_H
#define MO_TESTS_COUNTED_MEMORY_H

#include <stdatomic.h>
#include <stddef.h>

static atomic_int allocations; /* so far, by all threads */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __real_realloc(memory, bytes);
}

#endif
