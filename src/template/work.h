/* Work: the memory, the limits and the way out of one piece of work on a template, which is parsing it or rendering it once.
 * All memory is an arena's, so whatever fails goes straight back to the beginning by mo_work_fail() and nothing leaks.
 */
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
    struct mo_jknown *known; /* of string.c: lengths and hashes of long strings; NULL: none yet */
    int depth;               /* of what calls itself: expressions, macros, values inside values */
    uintptr_t stack_end;     /* addresses of this thread's stack are above it; 0: not known */
    int line;                /* of the template, for errors; 0: none */
    bool raised;             /* the template itself refused, by raise_exception() */
    mo_error *err;           /* not NULL */
    mo_status status;
    jmp_buf out;
} mo_work;

/* Levels of nesting, where the thread's stack has place for them. Each costs it less than 1 KiB, and is refused when less
 * than MO_WORK_STACK is left. */
enum { MO_WORK_DEPTH = 600, MO_WORK_STACK = 16 * 1024 };

/* Calls the body. False: it failed, and w->status and w->err say why. */
bool mo_work_try(mo_work *w, void (*body)(mo_work *w, void *user), void *user);

/* Ends the work. The sentence gets the line before it. */
__attribute__((noreturn)) void mo_work_fail(mo_work *w, mo_status status, const char *fmt, ...)
    MO_PRINTF(3, 4);
/* The same for a text that is to arrive as it is. */
__attribute__((noreturn)) void mo_work_raise(mo_work *w, const char *text, size_t length);

/* Zeroed memory; never NULL. */
void *mo_work_alloc(mo_work *w, size_t bytes);
void *mo_work_array(mo_work *w, size_t count, size_t bytes);
/* A larger array, of `capacity` elements, that begins with the `count` elements of this one. */
void *mo_work_larger(mo_work *w, const void *array, size_t count, size_t capacity, size_t bytes);

/* Counts n operations. */
void mo_work_spend(mo_work *w, uint64_t n);

/* One level down, until mo_work_up(). */
void mo_work_down(mo_work *w);
static inline void mo_work_up(mo_work *w)
{
    w->depth--;
}

#endif
