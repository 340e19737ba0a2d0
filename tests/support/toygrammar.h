/* Grammars on a toy vocabulary: all bytes, some longer tokens, special ones, and two that end an answer. */
#ifndef MO_TESTS_TOYGRAMMAR_H
#define MO_TESTS_TOYGRAMMAR_H

#include "check.h"
#include "grammar/grammar.h"
#include "toyvocab.h"

enum { TOY_END = 256, TOY_MARK = 258, TOY_BLANKS = 260, TOY_FIRST_LONG = 261 };

static const char *const toy_long_tokens[] = {
    "abc",  "ab",    "aab",  "bc",  "cab", "\xC3\xA4", "\xC3\xA4\xE2\x82",
    "\xAC", "\"a",   "a\"",  "\":", "\",", "{\"",      "\"}",
    "}",    "hello", "12",   "123", "-",   "e+",       "\n ",
    "  ",   "true",  "null",
};

static struct {
    mo_gguf *file;
    mo_tokenizer *tokenizer;
    mo_lexicon *lexicon;
    int32_t size; /* with some that only the model's output has */
} toy_words;

static inline int toy_words_open(void)
{
    static toy v;
    mo_error err;
    v = (toy){.model = "llama"};
    toy_add_bytes(&v);
    toy_add(&v, "</s>", 3, 0);       /* 256 */
    toy_add(&v, "<|im_end|>", 3, 0); /* 257 */
    toy_add(&v, "<mark>", 3, 0);     /* 258 */
    toy_add(&v, "<think>", 4, 0);    /* 259: a mark, though user-defined */
    toy_add(&v, "    ", 4, 0);       /* 260: text, though user-defined */
    for (size_t i = 0; i < sizeof toy_long_tokens / sizeof *toy_long_tokens; i++) {
        toy_add(&v, toy_long_tokens[i], 1, -1.0f - (float)i);
    }
    toy_words.file = toy_open(&v);
    toy_words.size = v.count + 7;
    if (!toy_words.file || mo_tokenizer_create(toy_words.file, &toy_words.tokenizer, &err) != MO_OK ||
        mo_lexicon_open(toy_words.tokenizer, toy_words.size, &toy_words.lexicon, &err) != MO_OK ||
        mo_lexicon_fill(toy_words.lexicon, &err) != MO_OK) {
        return -1;
    }
    return 0;
}

static inline void toy_words_close(void)
{
    mo_lexicon_close(toy_words.lexicon);
    mo_tokenizer_destroy(toy_words.tokenizer);
    mo_gguf_close(toy_words.file);
}

static inline mo_status toy_grammar(const char *gbnf, const mo_grammar_options *options, mo_grammar **out,
                                    mo_error *err)
{
    const mo_grammar_options none = {.size = sizeof none};
    return mo_grammar_make(toy_words.lexicon, gbnf, strlen(gbnf), options ? options : &none, NULL, NULL, out,
                           err);
}

/* The token of one byte. */
static inline int32_t toy_byte(char c)
{
    return (unsigned char)c;
}

static inline bool toy_allowed(mo_constraint *c, int32_t token)
{
    mo_error err;
    const uint32_t *mask = mo_constraint_mask(c, &err);
    if (!mask) {
        fail_msg("%s", err.detail);
    }
    return mask && mo_bit(mask, token);
}

/* Feeds a text byte by byte, or with the longest tokens; false when some token may not come. Mask and acceptance must agree. */
static inline bool toy_feed(mo_constraint *c, const char *text, size_t length, bool long_tokens)
{
    for (size_t at = 0; at < length;) {
        int32_t token = toy_byte(text[at]);
        size_t n = 1;
        for (size_t i = 0; long_tokens && i < sizeof toy_long_tokens / sizeof *toy_long_tokens; i++) {
            const size_t other = strlen(toy_long_tokens[i]);
            if (other > n && other <= length - at && memcmp(text + at, toy_long_tokens[i], other) == 0) {
                n = other;
                token = TOY_FIRST_LONG + (int32_t)i;
            }
        }
        const bool allowed = toy_allowed(c, token);
        if (allowed != (mo_constraint_accept(c, token, NULL) == MO_OK)) {
            fail_msg("mask and acceptance differ at byte %zu of %s", at, text);
        }
        if (!allowed) {
            return false;
        }
        at += n;
    }
    return true;
}

/* Whether the grammar accepts the whole text. */
static inline bool toy_matches(mo_grammar *g, const char *text, size_t length, bool long_tokens)
{
    mo_constraint *c;
    mo_error err;
    check_status(mo_constraint_open(g, &c, &err), &err);
    const bool fed = toy_feed(c, text, length, long_tokens);
    const bool ends = fed && toy_allowed(c, TOY_END);
    if (fed && ends != mo_constraint_may_end(c)) {
        fail_msg("mask and may_end differ after %s", text);
    }
    mo_constraint_close(c);
    return ends;
}

#endif
