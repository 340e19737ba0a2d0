#include "grammar/writer.h"

#include <string.h>

void mo_writer_literal(mo_bytes *w, const char *bytes, size_t length)
{
    mo_bytes_add(w, "\"", 1);
    for (size_t i = 0; i < length; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        if (c == '"' || c == '\\') {
            mo_bytes_print(w, "\\%c", c);
        } else if (c < 0x20 || c == 0x7F) {
            mo_bytes_print(w, "\\x%02X", c);
        } else {
            mo_bytes_add(w, bytes + i, 1);
        }
    }
    mo_bytes_add(w, "\"", 1);
}

void mo_writer_class_character(mo_bytes *w, uint32_t c)
{
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
        mo_bytes_print(w, "%c", (int)c);
    } else if (c < 0x100) {
        mo_bytes_print(w, "\\x%02X", c);
    } else if (c < 0x10000) {
        mo_bytes_print(w, "\\u%04X", c);
    } else {
        mo_bytes_print(w, "\\U%08X", c);
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

void mo_writer_end_rules(mo_bytes *w)
{
    size_t end = w->data ? w->length : 0;
    while (end > 0 && strchr(" \t\r\n", w->data[end - 1])) {
        end--;
    }
    mo_bytes_print(w, "%s\n", end > 0 && w->data[end - 1] == '|' ? " \"\"" : "");
}
