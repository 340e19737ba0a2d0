/* Work: memory, limits and error exit of one parsing or rendering of a template. An arena owns all memory, so
   mo_work_fail() jumps back to the beginning and nothing leaks. */
#ifndef MO_TEMPLATE_WORK_H
#define MO_TEMPLATE_WORK_H

#include <setjmp.h>
#include <stdint.h>

#include "base/arena.h"
#include "moraine.h"

typedef struct mo_work {
    mo_arena *arena;
    uint64_t bytes, bytes_most;
    uint64_t steps, steps_most;
    struct mo_jknown *known; /* cache of string.c: lengths and hashes of long strings; NULL: empty */
    int depth;               /* recursion depth: expressions, macros, nested values */
    uintptr_t stack_end;     /* lowest address of this thread's stack; 0: unknown */
    int line;                /* line of the template, for errors; 0: unknown */
    bool raised;             /* the template called raise_exception() */
    mo_error *err;           /* not NULL */
    mo_status status;
    jmp_buf out;
} mo_work;

/* Maximum nesting if the thread's stack allows it. A level takes less than 1 KiB of stack and is refused when
   less than MO_WORK_STACK is left. */
enum { MO_WORK_DEPTH = 600, MO_WORK_STACK = 16 * 1024 };

/* Calls the body. False: it failed, see w->status and w->err. */
bool mo_work_try(mo_work *w, void (*body)(mo_work *w, void *user), void *user);

/* Fails the work. The line is put before the sentence. */
__attribute__((noreturn)) void mo_work_fail(mo_work *w, mo_status status, const char *fmt, ...)
    MO_PRINTF(3, 4);
/* The same for a text that is not changed. */
__attribute__((noreturn)) void mo_work_raise(mo_work *w, const char *text, size_t length);

/* Zeroed memory; never NULL. */
void *mo_work_alloc(mo_work *w, size_t bytes);
void *mo_work_array(mo_work *w, size_t count, size_t bytes);
/* A larger copy of an array: `capacity` elements, of which the first `count` are copied. */
void *mo_work_larger(mo_work *w, const void *array, size_t count, size_t capacity, size_t bytes);

/* Counts n operations. */
void mo_work_spend(mo_work *w, uint64_t n);

/* Enters a level of nesting until mo_work_up(). */
void mo_work_down(mo_work *w);
static inline void mo_work_up(mo_work *w)
{
    w->depth--;
}

#endif
