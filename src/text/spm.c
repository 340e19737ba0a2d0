/* Spm: characters, scores, bytes. */
#include "text/spm.h"

#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "text/merge.h"

static const uint8_t space_mark[3] = {0xE2, 0x96, 0x81}; /* U+2581, which stands for a space */

static bool is_space_mark(const uint8_t *p, size_t n)
{
    return n >= 3 && !memcmp(p, space_mark, 3);
}

/* The place after `at` where a word can end: before a space mark that follows something else. */
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

/* Scores in the order of merging: the highest first, what is no number last. */
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

static mo_status emit(const mo_vocab *v, const mo_symbol *symbol, const uint8_t *text, mo_ids *ids,
                      mo_error *err)
{
    if (symbol->id != MO_SYMBOL_NONE) {
        return mo_ids_add(ids, (int32_t)symbol->id, err);
    }
    mo_status s = MO_OK;
    for (uint32_t i = 0; i < symbol->length && s == MO_OK; i++) {
        const int32_t byte = v->byte_ids[text[symbol->at + i]];
        const int32_t id = byte >= 0 ? byte : v->unknown;
        s = id >= 0 ? mo_ids_add(ids, id, err) : MO_OK;
    }
    return s;
}

static mo_status encode_word(const mo_spm *s, mo_merge *m, const uint8_t *word, size_t length, mo_ids *ids,
                             mo_error *err)
{
    m->count = 0;
    for (size_t i = 0, n; i < length; i += n) {
        n = mo_utf8_length(word + i, length - i);
        const uint32_t id = n ? mo_lookup_get(&s->vocab->plain, word + i, n) : MO_SYMBOL_NONE;
        n = n ? n : 1; /* a stray byte is a symbol of its own */
        if (!mo_merge_add(m, id, (uint32_t)i, (uint32_t)n)) {
            return mo_fail(err, MO_ENOMEM, "no memory to tokenize %zu bytes", length);
        }
    }
    if (!mo_merge_run(m, pair_of, s->vocab, word)) {
        return mo_fail(err, MO_ENOMEM, "no memory to tokenize %zu bytes", length);
    }
    mo_status status = MO_OK;
    for (size_t i = 0; i < m->count && status == MO_OK; i++) {
        status = emit(s->vocab, &m->symbols[i], word, ids, err);
    }
    return status;
}

/* The text with a space before it when asked for, and marks for its spaces; freed by the caller. */
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
    mo_merge m = {0};
    uint8_t *escaped = escape(text, length, prefix, &n);
    if (!escaped) {
        return mo_fail(err, MO_ENOMEM, "no memory to tokenize %zu bytes", length);
    }
    mo_status status = MO_OK;
    for (size_t at = 0, end; at < n && status == MO_OK; at = end) {
        end = s->words_apart ? word_end(escaped, at, n) : n;
        status = encode_word(s, &m, escaped + at, end - at, ids, err);
    }
    mo_merge_free(&m);
    free(escaped);
    return status;
}
