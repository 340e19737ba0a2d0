/* Bpe: merges as pairs of symbols.

   A symbol is a token's id, or, for a text that occurs only in merges, a number past the vocabulary. So
   merging compares numbers, not text. A byte-level vocabulary is stored as bytes, not in the alphabet of its
   file. */
#include "text/bpe.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/interrupt.h"
#include "base/utf8.h"
#include "text/compose.h"
#include "text/merge.h"
#include "text/split.h"

/* Pieces up to this length are looked up whole before they are merged. */
enum { WHOLE = 64 };

/* Whether merging a token's own bytes gives the token. */
enum { REACH_UNKNOWN, REACH_YES, REACH_NO };

typedef struct rule {
    uint32_t left, right; /* left is MO_SYMBOL_NONE in an empty cell */
    uint32_t rank, result;
} rule;

struct mo_bpe {
    const mo_vocab *vocab;
    mo_split *split; /* NULL for gemma4 */
    bool ignores_merges;
    bool words_apart; /* gemma4: no merge crosses from a word into the following space */

    rule *rules;
    size_t rule_mask;
    uint32_t byte_symbols[256];
    mo_lookup extra; /* texts past the vocabulary, owned by `arena` */
    mo_arena *arena;
    uint32_t symbols;         /* number of symbols, including the extra ones */
    _Atomic uint8_t *reached; /* per token */
};

struct mo_bpe_scratch {
    mo_compose composed;
    mo_merge_windows merge;
    mo_split_scratch *split;
    uint8_t *escaped; /* gemma4: the text with its spaces replaced */
    size_t capacity;
};

/* ---- Rules ---- */

static size_t rule_cell(const mo_bpe *b, uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
    h ^= h >> 29;
    return (size_t)(h * 0xD6E8FEB86659FD93u >> 32) & b->rule_mask;
}

static mo_pair pair_of(const void *rules, const uint8_t *text, const mo_symbol *left, const mo_symbol *right)
{
    const mo_bpe *b = rules;
    (void)text;
    if (left->id == MO_SYMBOL_NONE || right->id == MO_SYMBOL_NONE) {
        return (mo_pair){MO_SYMBOL_NONE, MO_SYMBOL_NONE};
    }
    size_t at = rule_cell(b, left->id, right->id);
    while (b->rules[at].left != MO_SYMBOL_NONE) {
        if (b->rules[at].left == left->id && b->rules[at].right == right->id) {
            return (mo_pair){b->rules[at].rank, b->rules[at].result};
        }
        at = (at + 1) & b->rule_mask;
    }
    return (mo_pair){MO_SYMBOL_NONE, MO_SYMBOL_NONE};
}

/* If a merge is listed twice, the first one counts. */
static void put_rule(mo_bpe *b, rule r)
{
    size_t at = rule_cell(b, r.left, r.right);
    while (b->rules[at].left != MO_SYMBOL_NONE) {
        if (b->rules[at].left == r.left && b->rules[at].right == r.right) {
            return;
        }
        at = (at + 1) & b->rule_mask;
    }
    b->rules[at] = r;
}

/* The symbol of a text. A new one if the vocabulary does not have it. MO_SYMBOL_NONE when out of memory. */
static uint32_t symbol_of(mo_bpe *b, const uint8_t *text, size_t length)
{
    uint32_t id = mo_lookup_get(&b->vocab->plain, text, length);
    if (id == MO_LOOKUP_NONE) {
        id = mo_lookup_get(&b->extra, text, length);
    }
    if (id == MO_LOOKUP_NONE) {
        const uint8_t *copy = (const uint8_t *)mo_arena_text(b->arena, (const char *)text, length);
        if (!copy || !mo_lookup_put(&b->extra, copy, length, b->symbols)) {
            return MO_SYMBOL_NONE;
        }
        id = b->symbols++;
    }
    return id;
}

static const uint8_t space_mark[3] = {0xE2, 0x96, 0x81}; /* U+2581 */

static bool is_space_mark(const uint8_t *p, size_t n)
{
    return n >= 3 && !memcmp(p, space_mark, 3);
}

/* Does a space mark follow another character in the text? */
static bool crosses_words(const uint8_t *text, size_t length)
{
    for (size_t i = 1; i < length; i++) {
        if (is_space_mark(text + i, length - i) && !(i >= 3 && is_space_mark(text + i - 3, 3))) {
            return true;
        }
    }
    return false;
}

/* Reads one merge "left right". Merges with characters that cannot occur are skipped. */
static mo_status read_merge(mo_bpe *b, mo_text text, uint32_t rank, uint8_t *buffer, mo_error *err)
{
    const uint8_t *line = (const uint8_t *)text.data;
    const uint8_t *space = text.length > 1 ? memchr(line + 1, ' ', text.length - 1) : NULL;
    size_t left = space ? (size_t)(space - line) : 0, right = space ? text.length - left - 1 : 0;
    if (!left || !right) {
        return mo_fail(err, MO_EFORMAT,
                       "merge %u of tokenizer.ggml.merges is not two strings "
                       "separated by a space; download or convert the file again",
                       rank);
    }
    if (b->vocab->model == MO_VOCAB_BYTES) {
        size_t n;
        if (!mo_vocab_decode_bytes(line, left, buffer, &n) ||
            !mo_vocab_decode_bytes(space + 1, right, buffer + n, &right)) {
            return MO_OK;
        }
        left = n;
    } else {
        memcpy(buffer, line, left);
        memcpy(buffer + left, space + 1, right);
        b->words_apart = b->words_apart && !crosses_words(buffer, left + right);
    }
    rule r = {.rank = rank};
    r.left = symbol_of(b, buffer, left);
    r.right = symbol_of(b, buffer + left, right);
    r.result = symbol_of(b, buffer, left + right);
    if (r.left == MO_SYMBOL_NONE || r.right == MO_SYMBOL_NONE || r.result == MO_SYMBOL_NONE) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the tokenizer's merges");
    }
    put_rule(b, r);
    return MO_OK;
}

static mo_status read_merges(mo_bpe *b, const mo_gguf *g, mo_error *err)
{
    const mo_gguf_entry *merges;
    mo_metadata_info info;
    mo_value value;
    mo_status s = mo_gguf_array(g, "tokenizer.ggml.merges", MO_VALUE_STRING, &merges, err);
    if (s != MO_OK) {
        return s;
    }
    mo_gguf_entry_info(merges, &info);
    if (info.count > INT32_MAX / 8) {
        return mo_fail(err, MO_EFORMAT, "%llu merges is an invalid number; download the file again",
                       (unsigned long long)info.count);
    }
    size_t cells = 16, longest = 0;
    while (cells < 2 * info.count) {
        cells *= 2;
    }
    for (uint64_t i = 0; i < info.count; i++) {
        mo_gguf_entry_value(g, merges, i, &value);
        longest = value.as.s.length > longest ? value.as.s.length : longest;
    }
    b->rules = malloc(cells * sizeof *b->rules);
    b->rule_mask = cells - 1;
    uint8_t *buffer = malloc(longest + 1);
    if (!b->rules || !buffer) {
        free(buffer);
        return mo_fail(err, MO_ENOMEM, "out of memory for the tokenizer's %llu merges",
                       (unsigned long long)info.count);
    }
    memset(b->rules, 0xFF, cells * sizeof *b->rules); /* all empty */
    for (uint64_t i = 0; i < info.count && s == MO_OK; i++) {
        mo_gguf_entry_value(g, merges, i, &value);
        s = read_merge(b, value.as.s, (uint32_t)i, buffer, err);
    }
    free(buffer);
    return s;
}

/* ---- Creating ---- */

static mo_status fill(mo_bpe *b, const mo_gguf *g, mo_error *err)
{
    b->arena = mo_arena_create(0);
    b->reached = calloc((size_t)b->vocab->count, sizeof *b->reached);
    if (!b->arena || !b->reached || !mo_lookup_init(&b->extra, 256)) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the tokenizer");
    }
    if (b->vocab->model == MO_VOCAB_BYTES) {
        mo_status s = mo_split_create(b->vocab->pre, &b->split, err);
        if (s != MO_OK) {
            return s;
        }
        b->ignores_merges = mo_split_ignores_merges(b->split);
    }
    b->words_apart = true;
    mo_status s = read_merges(b, g, err);
    for (int i = 0; i < 256 && s == MO_OK; i++) {
        const uint8_t byte = (uint8_t)i;
        b->byte_symbols[i] = symbol_of(b, &byte, 1);
    }
    return s;
}

mo_status mo_bpe_create(const mo_gguf *g, const mo_vocab *v, mo_bpe **out, mo_error *err)
{
    *out = NULL;
    mo_bpe *b = calloc(1, sizeof *b);
    if (!b) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the tokenizer");
    }
    b->vocab = v;
    b->symbols = (uint32_t)v->count;
    mo_status s = fill(b, g, err);
    if (s != MO_OK) {
        mo_bpe_destroy(b);
        return s;
    }
    *out = b;
    return MO_OK;
}

void mo_bpe_destroy(mo_bpe *b)
{
    if (b) {
        mo_split_destroy(b->split);
        mo_lookup_free(&b->extra);
        mo_arena_destroy(b->arena);
        free(b->rules);
        free(b->reached);
        free(b);
    }
}

mo_bpe_scratch *mo_bpe_scratch_create(const mo_bpe *b)
{
    mo_bpe_scratch *scratch = calloc(1, sizeof *scratch);
    if (scratch && b->split) {
        scratch->split = mo_split_scratch_create(b->split);
        if (!scratch->split) {
            free(scratch);
            return NULL;
        }
    }
    return scratch;
}

void mo_bpe_scratch_destroy(mo_bpe_scratch *scratch)
{
    if (scratch) {
        mo_merge_windows_free(&scratch->merge);
        mo_split_scratch_destroy(scratch->split);
        free(scratch->escaped);
        mo_compose_free(&scratch->composed);
        free(scratch);
    }
}

/* ---- Encoding ---- */

typedef struct encoding {
    const mo_bpe *bpe;
    mo_bpe_scratch *scratch;
    mo_ids *ids;
    size_t before; /* number of ids before the piece */
} encoding;

/* Symbols that are not tokens become the tokens of their bytes. A byte without a token is dropped. */
static mo_status emit(void *user, const uint8_t *piece, const mo_symbol *symbols, size_t count, mo_error *err)
{
    const encoding *e = user;
    const mo_vocab *v = e->bpe->vocab;
    mo_status s = MO_OK;
    if (!symbols) {
        e->ids->count = e->before;
        return MO_OK;
    }
    for (size_t i = 0; i < count && s == MO_OK; i++) {
        const mo_symbol *symbol = &symbols[i];
        if (symbol->id < (uint32_t)v->count) {
            s = mo_ids_add(e->ids, (int32_t)symbol->id, err);
            continue;
        }
        for (uint32_t k = 0; k < symbol->length && s == MO_OK; k++) {
            const int32_t id = v->byte_ids[piece[symbol->at + k]];
            s = id >= 0 ? mo_ids_add(e->ids, id, err) : MO_OK;
        }
    }
    return s;
}

static mo_symbol first_byte(const void *rules, const uint8_t *text, size_t at, size_t length)
{
    const mo_bpe *b = rules;
    (void)length;
    return (mo_symbol){b->byte_symbols[text[at]], (uint32_t)at, 1};
}

static mo_symbol first_character(const void *rules, const uint8_t *text, size_t at, size_t length)
{
    const mo_bpe *b = rules;
    const size_t n = mo_utf8_length(text + at, length - at);
    uint32_t id = MO_SYMBOL_NONE; /* for a stray byte, which merges with nothing */
    if (n > 0) {
        id = mo_lookup_get(&b->vocab->plain, text + at, n);
        id = id == MO_LOOKUP_NONE ? mo_lookup_get(&b->extra, text + at, n) : id;
    }
    return (mo_symbol){id, (uint32_t)at, n ? (uint32_t)n : 1};
}

/* Most pieces are tokens as a whole. But merging a token's bytes does not give every token, so this is tested
   when a token first occurs, and the result is stored. */
static mo_status encode_piece(void *user, const uint8_t *piece, size_t length, mo_error *err)
{
    encoding *e = user;
    const mo_bpe *b = e->bpe;
    const mo_merge_rules rules = {b, pair_of,
                                  b->vocab->model == MO_VOCAB_BYTES ? first_byte : first_character};
    uint32_t whole = MO_LOOKUP_NONE;
    if (mo_interrupted(length)) {
        return mo_interrupt_fail(err);
    }
    if (length <= WHOLE || b->ignores_merges) {
        whole = mo_lookup_get(&b->vocab->plain, piece, length);
    }
    if (whole != MO_LOOKUP_NONE &&
        (b->ignores_merges || atomic_load_explicit(&b->reached[whole], memory_order_relaxed) == REACH_YES)) {
        return mo_ids_add(e->ids, (int32_t)whole, err);
    }
    e->before = e->ids->count;
    const mo_status s = mo_merge_text(&e->scratch->merge, &rules, piece, length, emit, e, err);
    if (whole != MO_LOOKUP_NONE && s == MO_OK) {
        const bool yes = e->ids->count == e->before + 1 && e->ids->data[e->before] == (int32_t)whole;
        atomic_store_explicit(&b->reached[whole], yes ? REACH_YES : REACH_NO, memory_order_relaxed);
    }
    return s;
}

/* ---- gemma4 ---- */

/* Replaces spaces by their mark. False when out of memory. */
static bool escape(mo_bpe_scratch *scratch, const uint8_t *text, size_t length, size_t *escaped)
{
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        n += text[i] == ' ' ? 3 : 1;
    }
    if (!mo_array_reserve(&scratch->escaped, &scratch->capacity, n, 1)) {
        return false;
    }
    uint8_t *to = scratch->escaped;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == ' ') {
            memcpy(to, space_mark, 3);
            to += 3;
        } else {
            *to++ = text[i];
        }
    }
    *escaped = n;
    return true;
}

/* A run of newlines becomes one token if the vocabulary has it. */
static mo_status encode_newlines(encoding *e, const uint8_t *text, size_t length, mo_error *err)
{
    const uint32_t id = mo_lookup_get(&e->bpe->vocab->plain, text, length);
    return id != MO_LOOKUP_NONE ? mo_ids_add(e->ids, (int32_t)id, err) : encode_piece(e, text, length, err);
}

static mo_status encode_characters(encoding *e, const uint8_t *text, size_t length, mo_error *err)
{
    mo_status s = MO_OK;
    for (size_t at = 0, end; at < length && s == MO_OK; at = end) {
        const bool newline = text[at] == '\n';
        for (end = at + 1; end < length && (text[end] == '\n') == newline; end++) {
            if (!newline && e->bpe->words_apart && is_space_mark(text + end, length - end) &&
                !(end - at >= 3 && is_space_mark(text + end - 3, 3))) {
                break;
            }
        }
        s = newline ? encode_newlines(e, text + at, end - at, err)
                    : encode_piece(e, text + at, end - at, err);
    }
    return s;
}

mo_status mo_bpe_encode(const mo_bpe *b, mo_bpe_scratch *scratch, const uint8_t *text, size_t length,
                        mo_ids *ids, mo_error *err)
{
    encoding e = {b, scratch, ids, 0};
    size_t escaped;
    if (b->split && mo_split_composes(b->split) && !mo_compose_needless(text, length)) {
        if (!mo_compose_run(&scratch->composed, text, length)) {
            return mo_fail(err, MO_ENOMEM, "out of memory while normalizing %zu bytes", length);
        }
        text = scratch->composed.text;
        length = scratch->composed.length;
    }
    if (b->split) {
        return mo_split_run(b->split, scratch->split, text, length, encode_piece, &e, err);
    }
    if (!escape(scratch, text, length, &escaped)) {
        return mo_fail(err, MO_ENOMEM, "out of memory while tokenizing %zu bytes", length);
    }
    return encode_characters(&e, scratch->escaped, escaped, err);
}
