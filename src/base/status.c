#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *mo_status_text(mo_status status)
{
    switch (status) {
    case MO_OK: return "ok";
    case MO_EINVAL: return "invalid argument";
    case MO_ENOMEM: return "out of memory";
    case MO_EIO: return "I/O error";
    case MO_ENOENT: return "not found";
    case MO_ENOSPC: return "no space";
    case MO_EFORMAT: return "bad format";
    case MO_EUNSUPPORTED: return "not supported";
    case MO_ECANCELLED: return "cancelled";
    case MO_EDEVICE: return "device";
    }
    return "unknown status";
}

mo_status mo_fail(mo_error *err, mo_status status, const char *fmt, ...)
{
    if (err) {
        va_list args;
        err->status = status;
        va_start(args, fmt);
        vsnprintf(err->detail, sizeof err->detail, fmt, args);
        va_end(args);
    }
    return status;
}

mo_status mo_fail_prefix(mo_error *err, mo_status status, const char *fmt, ...)
{
    if (err) {
        char prefix[sizeof err->detail];
        char rest[sizeof err->detail];
        va_list args;
        va_start(args, fmt);
        vsnprintf(prefix, sizeof prefix, fmt, args);
        va_end(args);
        const size_t length = strlen(prefix);
        if (strncmp(err->detail, prefix, length) == 0 && err->detail[length] == ':') {
            err->status = status; /* it says so already */
            return status;
        }
        memcpy(rest, err->detail, sizeof rest);
        int used = snprintf(err->detail, sizeof err->detail, "%.500s: ", prefix);
        snprintf(err->detail + used, sizeof err->detail - (size_t)used, "%.480s", rest);
        err->status = status;
    }
    return status;
}
