/* Writer: see writer.h. */
#include "server/common/writer.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

static void put_control(srv_writer *w, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    static const char letters[] = "btn\0fr"; /* of 8 to 13; 11 has none in JSON */
    if (c >= 8 && c <= 13 && letters[c - 8]) {
        srv_put(w, (const char[]){'\\', letters[c - 8]}, 2);
    } else {
        srv_put(w, (const char[]){'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]}, 6);
    }
}

void srv_put_escaped(srv_writer *w, const char *text, size_t length)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t begin = 0, i = 0;
    while (i < length) {
        if (s[i] >= 0x20 && s[i] < 0x7f && s[i] != '"' && s[i] != '\\') { /* the most */
            i++;
            continue;
        }
        size_t bytes = mo_utf8_length(s + i, length - i);
        if (bytes > 1) {
            i += bytes;
            continue;
        }
        srv_put(w, text + begin, i - begin);
        if (bytes == 0) {
            srv_put_literal(w, "\xef\xbf\xbd");
        } else if (s[i] == '"' || s[i] == '\\') {
            srv_put(w, (const char[]){'\\', (char)s[i]}, 2);
        } else {
            put_control(w, s[i]);
        }
        begin = ++i;
    }
    if (begin < length) {
        srv_put(w, text + begin, length - begin);
    }
}

void srv_put_string(srv_writer *w, const char *text, size_t length)
{
    srv_put_literal(w, "\"");
    srv_put_escaped(w, text, length);
    srv_put_literal(w, "\"");
}

void srv_put_cstring(srv_writer *w, const char *text)
{
    if (text) {
        srv_put_string(w, text, strlen(text));
    } else {
        srv_put_literal(w, "null");
    }
}

void srv_put_int(srv_writer *w, int64_t value)
{
    char digits[24], *end = digits + sizeof digits, *at = end;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do {
        *--at = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (value < 0) {
        *--at = '-';
    }
    srv_put(w, at, (size_t)(end - at));
}

void srv_put_float(srv_writer *w, float value)
{
    if (!isfinite(value)) {
        srv_puts(w, isnan(value) ? "0" : value < 0 ? "-9999" : "9999");
        return;
    }
    char text[32];
    int length = 0;
    for (int digits = 6; digits <= 9; digits++) {
        length = snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value) {
            break;
        }
    }
    srv_put(w, text, (size_t)length);
}

void srv_put_fixed(srv_writer *w, double value, int digits)
{
    if (!isfinite(value) || fabs(value) > 1e15) {
        srv_puts(w, "0");
        return;
    }
    char text[64];
    int length = snprintf(text, sizeof text, "%.*f", digits, value);
    if (digits > 0) {
        while (text[length - 1] == '0') {
            length--;
        }
        if (text[length - 1] == '.') {
            length--;
        }
    }
    srv_put(w, text, (size_t)length);
}

void srv_put_bool(srv_writer *w, bool value)
{
    srv_puts(w, value ? "true" : "false");
}

const char *srv_time_text(struct timespec at, int digits, char *text, size_t size)
{
    struct tm parts;
    long unit = 1;
    gmtime_r(&at.tv_sec, &parts);
    for (int i = digits; i < 9; i++) {
        unit *= 10;
    }
    const size_t used = strftime(text, size, "%Y-%m-%dT%H:%M:%S", &parts);
    if (digits > 0) {
        snprintf(text + used, size - used, ".%0*ldZ", digits, at.tv_nsec / unit);
    } else {
        snprintf(text + used, size - used, "Z");
    }
    return text;
}

/* Writes the value that the conversion behind a percent sign is for. Returns where the conversion ends. */
static const char *print_value(srv_writer *w, const char *at, va_list *args)
{
    switch (*at) {
    case '%': srv_put_literal(w, "%"); return at + 1;
    case 's': srv_put_cstring(w, va_arg(*args, const char *)); return at + 1;
    case 'd': srv_put_int(w, va_arg(*args, int)); return at + 1;
    case 'l': srv_put_int(w, va_arg(*args, long)); return at + 2;
    case 'g': srv_put_float(w, (float)va_arg(*args, double)); return at + 1;
    default: break;
    }
    assert(*at == '.');
    if (at[1] == '*') {
        const int length = va_arg(*args, int);
        srv_put_string(w, va_arg(*args, const char *), (size_t)length);
    } else {
        srv_put_fixed(w, va_arg(*args, double), at[1] - '0');
    }
    return at + 3;
}

void srv_print(srv_writer *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    for (const char *at = format; *at;) {
        const size_t plain = strcspn(at, "%");
        srv_put(w, at, plain);
        at += plain;
        if (*at) {
            at = print_value(w, at + 1, &args);
        }
    }
    va_end(args);
}
