#include "fiber.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define MO_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MO_ASAN 1
#endif
#endif

#ifdef MO_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
enum { STACK_BYTES = 512 * 1024 }; /* its frames are several times as large */
#else
enum { STACK_BYTES = 128 * 1024 };
#endif

/* void mo_fiber_jump(void **save, void *to): pushes the registers that belong to the caller, exchanges the stacks. */
extern "C" void mo_fiber_jump(void **save, void *to);
#if defined(__x86_64__)
asm(".text\n.p2align 4\n.globl mo_fiber_jump\n.hidden mo_fiber_jump\n.type mo_fiber_jump,@function\n"
    "mo_fiber_jump:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".size mo_fiber_jump,.-mo_fiber_jump\n");
enum { SAVED_WORDS = 8, RETURN_WORD = 6 }; /* six registers, the return address, one word that aligns */
#elif defined(__aarch64__)
asm(".text\n.p2align 4\n.globl mo_fiber_jump\n.hidden mo_fiber_jump\n.type mo_fiber_jump,%function\n"
    "mo_fiber_jump:\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp, #0]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
    "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, "
    "#144]\n"
    "  mov x9, sp\n"
    "  str x9, [x0]\n"
    "  mov sp, x1\n"
    "  ldp x19, x20, [sp, #0]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n"
    "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, "
    "#144]\n"
    "  add sp, sp, #160\n"
    "  ret\n"
    ".size mo_fiber_jump,.-mo_fiber_jump\n");
enum { SAVED_WORDS = 20, RETURN_WORD = 11 }; /* x30 */
#else
#error "fibers are written for x86-64 and aarch64"
#endif

#ifdef MO_ASAN
static __thread const void *home_bottom; /* of the thread's own stack; address sanitizer wants to know */
static __thread size_t home_bytes;
#endif

void mo_fiber_stacks(mo_fiber *fibers, size_t count)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < count; i++) {
        void *p = mmap(NULL, page + STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED || mprotect(p, page, PROT_NONE) != 0) {
            fprintf(stderr, "emulation: no memory for the stacks of %zu threads\n", count);
            abort();
        }
        fibers[i] = mo_fiber{NULL, (char *)p + page, NULL};
    }
}

void mo_fiber_free(mo_fiber *fibers, size_t count)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < count; i++) {
        munmap(fibers[i].stack - page, page + STACK_BYTES);
    }
}

void mo_fiber_reclaim(mo_fiber *fibers, size_t count)
{
#ifdef MO_ASAN /* the red zones of frames that nobody left */
    for (size_t i = 0; i < count; i++) {
        __asan_unpoison_memory_region(fibers[i].stack, STACK_BYTES);
    }
#else
    (void)fibers, (void)count;
#endif
}

void mo_fiber_prepare(mo_fiber *fiber, void (*main_function)())
{
    uintptr_t *words = (uintptr_t *)(fiber->stack + STACK_BYTES) - SAVED_WORDS;
    for (int i = 0; i < SAVED_WORDS; i++) {
        words[i] = 0;
    }
    words[RETURN_WORD] = (uintptr_t)main_function;
    fiber->sp = words;
    fiber->fake_stack = NULL;
}

void mo_fiber_switch(mo_fiber *from, mo_fiber *to, bool leaving)
{
#ifdef MO_ASAN
    __sanitizer_start_switch_fiber(leaving ? NULL : &from->fake_stack, to->stack ? to->stack : home_bottom,
                                   to->stack ? (size_t)STACK_BYTES : home_bytes);
#else
    (void)leaving;
#endif
    mo_fiber_jump(&from->sp, to->sp);
#ifdef MO_ASAN
    __sanitizer_finish_switch_fiber(from->fake_stack, NULL, NULL);
#endif
}

void mo_fiber_arrived()
{
#ifdef MO_ASAN
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(NULL, &bottom, &bytes);
    if (home_bottom == NULL) { /* the first fiber of a thread is always entered from its own stack */
        home_bottom = bottom;
        home_bytes = bytes;
    }
#endif
}
