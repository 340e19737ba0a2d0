/* Spm: characters, scores, bytes. */
#include "text/spm.h"

#include <math.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/utf8.h"
#include "text/merge.h"

static const uint8_t space_mark[3] = {0xE2, 0x96, 0x81}; /* U+2581, which stands for a space */

static bool is_space_mark(const uint8_t *p, size_t n)
{
    return n >= 3 && !memcmp(p, space_mark, 3);
}

/* The next position after `at` where a word can end: before a space mark that follows another character. */
static size_t word_end(const uint8_t *text, size_t at, size_t length)
{
    for (size_t end = at + 1; end < length; end++) {
        if (is_space_mark(text + end, length - end) && !(end - at >= 3 && is_space_mark(text + end - 3, 3))) {
            return end;
        }
    }
    return length;
}

void mo_spm_init(mo_spm *s, const mo_vocab *v)
{
    *s = (mo_spm){.vocab = v, .words_apart = true};
    for (int32_t i = 0; i < v->count && s->words_apart; i++) {
        const mo_text t = mo_vocab_text(v, i);
        s->words_apart = t.length == 0 || word_end((const uint8_t *)t.data, 0, t.length) == t.length;
    }
}

/* Scores as merge order: highest first, NaN last. */
static uint32_t order_of(float score)
{
    uint32_t bits;
    if (isnan(score)) {
        return MO_SYMBOL_NONE - 1;
    }
    score += 0.0f; /* -0 is 0 */
    memcpy(&bits, &score, sizeof bits);
    bits = bits >> 31 ? bits : ~bits & 0x7FFFFFFFu;
    return bits < MO_SYMBOL_NONE ? bits : MO_SYMBOL_NONE - 1;
}

static mo_pair pair_of(const void *rules, const uint8_t *text, const mo_symbol *left, const mo_symbol *right)
{
    const mo_vocab *v = rules;
    const uint32_t id = mo_lookup_get(&v->plain, text + left->at, (size_t)left->length + right->length);
    if (id == MO_LOOKUP_NONE) {
        return (mo_pair){MO_SYMBOL_NONE, MO_SYMBOL_NONE};
    }
    return (mo_pair){order_of(v->scores[id]), id};
}

typedef struct encoding {
    const mo_vocab *vocab;
    mo_ids *ids;
    size_t before; /* number of ids before the word */
} encoding;

static mo_status emit_one(const encoding *e, const mo_symbol *symbol, const uint8_t *text, mo_error *err)
{
    const mo_vocab *v = e->vocab;
    if (symbol->id != MO_SYMBOL_NONE) {
        return mo_ids_add(e->ids, (int32_t)symbol->id, err);
    }
    mo_status s = MO_OK;
    for (uint32_t i = 0; i < symbol->length && s == MO_OK; i++) {
        const int32_t byte = v->byte_ids[text[symbol->at + i]];
        const int32_t id = byte >= 0 ? byte : v->unknown;
        s = id >= 0 ? mo_ids_add(e->ids, id, err) : MO_OK;
    }
    return s;
}

static mo_status emit(void *user, const uint8_t *text, const mo_symbol *symbols, size_t count, mo_error *err)
{
    const encoding *e = user;
    mo_status s = MO_OK;
    if (!symbols) {
        e->ids->count = e->before;
        return MO_OK;
    }
    for (size_t i = 0; i < count && s == MO_OK; i++) {
        s = emit_one(e, &symbols[i], text, err);
    }
    return s;
}

static mo_symbol first_character(const void *rules, const uint8_t *text, size_t at, size_t length)
{
    const mo_vocab *v = rules;
    const size_t n = mo_utf8_length(text + at, length - at);
    /* a stray byte is a symbol of its own */
    return (mo_symbol){n ? mo_lookup_get(&v->plain, text + at, n) : MO_SYMBOL_NONE, (uint32_t)at,
                       n ? (uint32_t)n : 1};
}

/* The text with a space before it if requested, and with marks instead of spaces. The caller frees it. */
static uint8_t *escape(const uint8_t *text, size_t length, bool prefix, size_t *escaped)
{
    size_t n = prefix ? 3 : 0;
    for (size_t i = 0; i < length; i++) {
        n += text[i] == ' ' ? 3 : 1;
    }
    uint8_t *out = malloc(n ? n : 1), *to = out;
    if (out && prefix) {
        memcpy(to, space_mark, 3);
        to += 3;
    }
    for (size_t i = 0; out && i < length; i++) {
        if (text[i] == ' ') {
            memcpy(to, space_mark, 3);
            to += 3;
        } else {
            *to++ = text[i];
        }
    }
    *escaped = n;
    return out;
}

mo_status mo_spm_encode(const mo_spm *s, const uint8_t *text, size_t length, bool prefix, mo_ids *ids,
                        mo_error *err)
{
    size_t n;
    mo_merge_windows windows = {0};
    encoding e = {s->vocab, ids, 0};
    const mo_merge_rules rules = {s->vocab, pair_of, first_character};
    uint8_t *escaped = escape(text, length, prefix, &n);
    if (!escaped) {
        return mo_fail(err, MO_ENOMEM, "out of memory while tokenizing %zu bytes", length);
    }
    mo_status status = MO_OK;
    for (size_t at = 0, end; at < n && status == MO_OK; at = end) {
        end = s->words_apart ? word_end(escaped, at, n) : n;
        e.before = ids->count;
        status = mo_interrupted(end - at)
                     ? mo_interrupt_fail(err)
                     : mo_merge_text(&windows, &rules, escaped + at, end - at, emit, &e, err);
    }
    mo_merge_windows_free(&windows);
    free(escaped);
    return status;
}
