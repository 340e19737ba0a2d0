/* Fiber: a stack of its own and a place where it stopped. Switching saves what a call must preserve and nothing
 * else, a few nanoseconds: one shuffle of a warp is 32 of them. */
#ifndef MO_EMULATION_FIBER_H
#define MO_EMULATION_FIBER_H

#include <stddef.h>

struct mo_fiber {
    void *sp;         /* where it goes on */
    char *stack;      /* lowest byte; NULL for the thread's own stack */
    void *fake_stack; /* address sanitizer's */
};

/* Stacks for `count` fibers, each above a page that may not be touched. Aborts when there is no memory. */
void mo_fiber_stacks(mo_fiber *fibers, size_t count);
void mo_fiber_free(mo_fiber *fibers, size_t count);

/* After fibers were left in the middle: their stacks may be used again. */
void mo_fiber_reclaim(mo_fiber *fibers, size_t count);

/* The next switch to it calls main_function, which must never return. */
void mo_fiber_prepare(mo_fiber *fiber, void (*main_function)());

/* leaving: this fiber will not be switched to again before it is prepared again. */
void mo_fiber_switch(mo_fiber *from, mo_fiber *to, bool leaving);

/* The first thing main_function does. The first fiber of a thread must be entered from the thread's own stack. */
void mo_fiber_arrived();

#endif
