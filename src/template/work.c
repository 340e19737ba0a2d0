#include "template/work.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/status.h"

/* Computed once for each thread; for a process's first thread it reads a file. */
static uintptr_t find_stack_end(void)
{
    static _Thread_local uintptr_t known;
    pthread_attr_t attributes;
    void *low = NULL;
    size_t bytes = 0;
    if (!known && pthread_getattr_np(pthread_self(), &attributes) == 0) {
        if (pthread_attr_getstack(&attributes, &low, &bytes) == 0) {
            known = (uintptr_t)low;
        }
        pthread_attr_destroy(&attributes);
    }
    return known;
}

bool mo_work_try(mo_work *w, void (*body)(mo_work *w, void *user), void *user)
{
    w->stack_end = find_stack_end();
    if (setjmp(w->out) != 0) {
        return false;
    }
    body(w, user);
    return true;
}

void mo_work_fail(mo_work *w, mo_status status, const char *fmt, ...)
{
    char text[sizeof w->err->detail - 32];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    w->status = w->line > 0 ? mo_fail(w->err, status, "line %d: %s", w->line, text)
                            : mo_fail(w->err, status, "%s", text);
    longjmp(w->out, 1);
}

void mo_work_raise(mo_work *w, const char *text, size_t length)
{
    w->raised = true;
    w->status = mo_fail(w->err, MO_EINVAL, "%.*s",
                        (int)(length < sizeof w->err->detail ? length : sizeof w->err->detail - 1), text);
    longjmp(w->out, 1);
}

void *mo_work_alloc(mo_work *w, size_t bytes)
{
    if (bytes > w->bytes_most - w->bytes) {
        mo_work_fail(w, MO_ENOSPC, "the template needs more than %llu MiB of memory",
                     (unsigned long long)(w->bytes_most >> 20));
    }
    w->bytes += bytes;
    void *p = mo_arena_alloc(w->arena, bytes ? bytes : 1);
    if (!p) {
        mo_work_fail(w, MO_ENOMEM, "out of memory for a template");
    }
    return p;
}

void *mo_work_array(mo_work *w, size_t count, size_t bytes)
{
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total)) {
        mo_work_fail(w, MO_ENOSPC, "the template needs more memory than is available");
    }
    return mo_work_alloc(w, total);
}

void *mo_work_larger(mo_work *w, const void *array, size_t count, size_t capacity, size_t bytes)
{
    void *larger = mo_work_array(w, capacity, bytes);
    if (count) {
        memcpy(larger, array, count * bytes);
    }
    return larger;
}

void mo_work_spend(mo_work *w, uint64_t n)
{
    if (n > w->steps_most - w->steps) {
        mo_work_fail(w, MO_ENOSPC, "the template takes more than %llu steps",
                     (unsigned long long)w->steps_most);
    }
    w->steps += n;
    if (mo_interrupted(n)) {
        mo_work_fail(w, MO_ECANCELLED, "cancelled");
    }
}

void mo_work_down(mo_work *w)
{
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    if (++w->depth > MO_WORK_DEPTH || here - w->stack_end < MO_WORK_STACK) {
        mo_work_fail(w, MO_ENOSPC, "the template or its values are nested more than %d levels deep",
                     w->depth - 1);
    }
}
