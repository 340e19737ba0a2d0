#include "grammar/writer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(mo_writer *w, size_t more)
{
    if (w->failed) {
        return false;
    }
    if (w->limit && more > w->limit - w->length) {
        w->failed = true;
        w->length = w->limit + 1;
        return false;
    }
    if (w->length + more + 1 > w->space) {
        const size_t space = 2 * (w->length + more) + 256;
        char *text = realloc(w->text, space);
        if (!text) {
            w->failed = true;
            return false;
        }
        w->text = text;
        w->space = space;
    }
    return true;
}

void mo_writer_bytes(mo_writer *w, const char *bytes, size_t length)
{
    if (reserve(w, length)) {
        memcpy(w->text + w->length, bytes, length);
        w->length += length;
        w->text[w->length] = '\0';
    }
}

void mo_writer_print(mo_writer *w, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const int length = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (length >= 0 && reserve(w, (size_t)length)) {
        va_start(args, fmt);
        vsnprintf(w->text + w->length, (size_t)length + 1, fmt, args);
        va_end(args);
        w->length += (size_t)length;
    }
}

void mo_writer_literal(mo_writer *w, const char *bytes, size_t length)
{
    mo_writer_bytes(w, "\"", 1);
    for (size_t i = 0; i < length; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        if (c == '"' || c == '\\') {
            mo_writer_print(w, "\\%c", c);
        } else if (c < 0x20 || c == 0x7F) {
            mo_writer_print(w, "\\x%02X", c);
        } else {
            mo_writer_bytes(w, bytes + i, 1);
        }
    }
    mo_writer_bytes(w, "\"", 1);
}

void mo_writer_class_character(mo_writer *w, uint32_t c)
{
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
        mo_writer_print(w, "%c", (int)c);
    } else if (c < 0x100) {
        mo_writer_print(w, "\\x%02X", c);
    } else if (c < 0x10000) {
        mo_writer_print(w, "\\u%04X", c);
    } else {
        mo_writer_print(w, "\\U%08X", c);
    }
}

bool mo_writer_is_name(const char *text)
{
    size_t n = 0;
    while ((text[n] >= 'a' && text[n] <= 'z') || (text[n] >= 'A' && text[n] <= 'Z') ||
           (text[n] >= '0' && text[n] <= '9') || text[n] == '-' || text[n] == '_') {
        n++;
    }
    return n > 0 && n <= 200 && text[n] == '\0';
}
