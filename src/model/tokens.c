#include "model/tokens.h"

#include <string.h>

#include "base/status.h"

static const char *const tokens_key = "tokenizer.ggml.tokens";

/* The token's text; "": none, or not a text. */
static mo_text token_at(const mo_gguf *g, const mo_gguf_entry *list, uint64_t index)
{
    mo_value v;
    const bool good = mo_gguf_entry_value(g, list, index, &v) && v.type == MO_VALUE_STRING;
    return good ? v.as.s : (mo_text){"", 0};
}

static bool same_text(mo_text a, mo_text b)
{
    return a.length == b.length && (a.length == 0 || memcmp(a.data, b.data, a.length) == 0);
}

/* Length shown in a message. */
static int shown(mo_text t)
{
    return t.length < 24 ? (int)t.length : 24;
}

mo_status mo_tokens_same(const mo_gguf *draft, const mo_gguf *model, mo_error *err)
{
    const mo_gguf_entry *a = mo_gguf_find(draft, tokens_key), *b = mo_gguf_find(model, tokens_key);
    const char *path = mo_gguf_part_path(draft, 0);
    mo_metadata_info of_a = {0}, of_b = {0};
    if (a) {
        mo_gguf_entry_info(a, &of_a);
    }
    if (b) {
        mo_gguf_entry_info(b, &of_b);
    }
    const uint64_t least = of_a.count < of_b.count ? of_a.count : of_b.count;
    for (uint64_t i = 0; i < least; i++) {
        const mo_text one = token_at(draft, a, i), other = token_at(model, b, i);
        if (!same_text(one, other)) {
            return mo_fail(err, MO_EINVAL,
                           "%s cannot guess for the model: its token %llu is \"%.*s\", the model's is "
                           "\"%.*s\"; name a draft model with the same tokens",
                           path, (unsigned long long)i, shown(one), one.data, shown(other), other.data);
        }
    }
    return of_a.count == of_b.count
               ? MO_OK
               : mo_fail(err, MO_EINVAL,
                         "%s cannot guess for the model: it has %llu tokens, the model %llu; name a draft "
                         "model with the same tokens",
                         path, (unsigned long long)of_a.count, (unsigned long long)of_b.count);
}
