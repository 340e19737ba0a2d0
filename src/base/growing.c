#include "base/growing.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

void mo_report_write(void *callers, size_t size, const void *own, size_t own_size)
{
    memcpy(callers, own, size < own_size ? size : own_size);
    if (size > own_size) {
        memset((char *)callers + own_size, 0, size - own_size);
    }
}

void mo_options_write(void *callers, size_t size, const void *defaults, size_t own_size)
{
    mo_report_write(callers, size, defaults, own_size);
    if (size >= sizeof size) {
        memcpy(callers, &size, sizeof size);
    }
}

mo_status mo_options_read(void *own, size_t own_size, const void *callers, const char *name, mo_error *err)
{
    size_t size;
    if (!callers) {
        return MO_OK;
    }
    memcpy(&size, callers, sizeof size);
    if (size <= sizeof size || size > ((size_t)1 << 20)) {
        return mo_refuse_member(err, name, "size", "is %zu; it must be sizeof(%s)%s", size, name,
                                strstr(name, "_options") ? ", as its _default() function sets it" : "");
    }
    for (size_t i = own_size; i < size; i++) {
        if (((const char *)callers)[i]) {
            return mo_fail(err, MO_EINVAL,
                           "%s: a field is set that this library does not support yet; it is version %s",
                           name, MO_VERSION);
        }
    }
    memcpy(own, callers, size < own_size ? size : own_size);
    memcpy(own, &own_size, sizeof own_size);
    return MO_OK;
}

mo_status mo_reserve_check(const uint64_t *reserved, size_t count, const char *name, mo_error *err)
{
    for (size_t i = 0; i < count; i++) {
        if (reserved[i]) {
            return mo_refuse_member(err, name, "reserved", "must be 0; start with the defaults");
        }
    }
    return MO_OK;
}

mo_status mo_refuse(mo_error *err, const char *argument, const char *function, const char *fmt, ...)
{
    char what[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return mo_fail(err, MO_EINVAL, "`%s` of %s() %s", argument, function, what);
}

mo_status mo_refuse_member(mo_error *err, const char *structure, const char *member, const char *fmt, ...)
{
    char what[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return mo_fail(err, MO_EINVAL, "`%s` of %s %s", member, structure, what);
}

mo_status mo_check_path(const char *path, const char *argument, const char *function, mo_error *err)
{
    return *path ? MO_OK : mo_refuse(err, argument, function, "is empty; it must name a file");
}

mo_status mo_check_file(const char *path, const char *member, mo_error *err)
{
    return !path || *path ? MO_OK
                          : mo_fail(err, MO_EINVAL, "`%s` is empty; it must name a file, or be NULL", member);
}

bool mo_required(const void *const *pointers, size_t count, const char *function, const char *names,
                 mo_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const size_t length = strcspn(names, ",");
        if (!pointers[i]) {
            mo_fail(err, MO_EINVAL, "`%.*s` of %s() is NULL; it must be given", (int)length, names, function);
            return false;
        }
        names += length + strspn(names + length, ", ");
    }
    return true;
}
