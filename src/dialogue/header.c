/* Header: words between marks. */
#include "dialogue/header.h"

#include <string.h>

#include "dialogue/json.h"

void mo_header_clear(mo_header *h, bool begun)
{
    mo_bytes_clear(&h->text);
    h->has_channel = false;
    h->begun = begun;
}

void mo_header_channel(mo_header *h)
{
    mo_bytes_add(&h->text, " ", 1);
    h->channel_at = h->text.length;
    h->has_channel = h->begun = true;
}

bool mo_header_fits(const mo_header *h)
{
    static const char to[] = " to=";
    const size_t n = h->text.length < 4 ? h->text.length : 4;
    return h->begun || !memcmp(h->text.data ? h->text.data : "", to, n);
}

static mo_text word_at(mo_text t, size_t at)
{
    while (at < t.length && mo_json_is_space(t.data[at])) {
        at++;
    }
    size_t end = at;
    while (end < t.length && !mo_json_is_space(t.data[end]) && t.data[end] != '<') {
        end++;
    }
    return (mo_text){t.data + at, end - at};
}

mo_text mo_header_channel_name(const mo_header *h)
{
    return h->has_channel ? word_at(mo_bytes_text(&h->text), h->channel_at) : (mo_text){"", 0};
}

mo_text mo_header_recipient(const mo_header *h)
{
    const mo_text t = mo_bytes_text(&h->text);
    for (size_t i = 0; i + 3 < t.length; i++) {
        if (!memcmp(t.data + i, "to=", 3) && (i == 0 || mo_json_is_space(t.data[i - 1]))) {
            return word_at(t, i + 3);
        }
    }
    return (mo_text){"", 0};
}
