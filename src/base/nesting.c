#include "base/nesting.h"

#include <stdbool.h>

size_t mo_nesting_beyond(const char *json, size_t length, int most)
{
    int depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < length; i++) {
        const char c = json[i];
        if (quoted) {
            i += c == '\\';
            quoted = c != '"';
        } else if (c == '"') {
            quoted = true;
        } else if (c == '[' || c == '{') {
            if (++depth > most) {
                return i + 1;
            }
        } else if (c == ']' || c == '}') {
            depth--;
        }
    }
    return 0;
}
