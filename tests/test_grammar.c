/* Constraints from GBNF: what a grammar accepts, by an independent definition and by examples; what is refused, where; special
 * tokens; free text before a grammar; hostile grammars in bounded time; threads; memory that ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/utf8.h"
#include "check.h"
#include "failing_memory.h"
#include "grammar/gbnf.h"
#include "random.h"
#include "sanitized.h"
#include "toygrammar.h"

static int setup(void **state)
{
    (void)state;
    return toy_words_open();
}

static int teardown(void **state)
{
    (void)state;
    toy_words_close();
    return 0;
}

static mo_grammar *open_grammar(const char *gbnf)
{
    mo_grammar *g;
    mo_error err;
    check_status(toy_grammar(gbnf, NULL, &g, &err), &err);
    return g;
}

/* ---- Examples ---- */

typedef struct example {
    const char *gbnf, *yes[8], *no[8];
} example;

static const example examples[] = {
    {"root ::= \"abc\"", {"abc"}, {"", "ab", "abcd", "xbc"}},
    {"root ::= \"\"", {""}, {"a"}},
    {"root ::= \"a\" | \"bc\" |", {"a", "bc", ""}, {"b", "abc"}},
    {"root ::= [a-c]+ [^a-c]", {"abcx", "a\xC3\xA4", "a\n"}, {"abc", "x", "abca"}},
    {"root ::= \"a\"* \"b\"? \"c\"+", {"c", "aabccc", "ac"}, {"", "bb", "aab", "bbc"}},
    {"root ::= \"a\"{3}", {"aaa"}, {"aa", "aaaa"}},
    {"root ::= \"a\"{2,}", {"aa", "aaaaaaa"}, {"a", ""}},
    {"root ::= \"ab\"{1,2} \"c\"", {"abc", "ababc"}, {"c", "abababc"}},
    {"root ::= (\"a\" | \"bc\"){2,3}", {"aa", "bcbc", "abca"}, {"a", "aaaa", "abb"}},
    {"root ::= \"a\"{0,0} \"b\"", {"b"}, {"ab"}},
    {"root ::= .",
     {"a", "\n", "\xC3\xA4", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"},
     {"", "ab", "\xC3", "\xC3\xC3"}},
    {"root ::= [\\u00e4-\\u20ac]",
     {"\xC3\xA4", "\xE2\x82\xAC", "\xDF\xBF", "\xE0\xA0\x80"},
     {"\xC3\xA3", "\xE2\x82\xAD", "a", "\xED\xA0\x80"}},
    {"root ::= [\\U0001F600\\x41\\-\\]]", {"\xF0\x9F\x98\x80", "A", "-", "]"}, {"\xF0\x9F\x98\x81", "B"}},
    {"root ::= \"\\x41\\u00e4\\n\\\"\"", {"A\xC3\xA4\n\""}, {"A\xC3\xA4\n"}},
    {"# a comment\nroot ::= # another\n  a b # and\n\n\na ::= \"x\" |\n  \"y\"\nb ::= (\n \"1\"\n | \"2\"\n)",
     {"x1", "y2"},
     {"x", "1x"}},
    {"root ::= \"a\"\n  | \"b\"\n\nother ::= \"c\"", {"a", "b"}, {"c"}},
    {"root ::= \"(\" root \")\" | \"x\"", {"x", "((x))"}, {"((x)", "x)"}},
    {"root ::= \"a\" root | \"b\"", {"b", "aaab"}, {"aaa"}},
    {"root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"d\"", {"d", "aadbc", "aadcc"}, {"aadb", "adbb"}},
    {"root ::= (\"a\"? \"b\"?){0,3} \"c\"", {"c", "abababc", "aaac", "bac"}, {"ababababc", "aaaac"}},
    {"root ::= (\"a\"*)* (\"b\"?)+ ((\"\"))*", {"", "aaa", "aaabbb", "b"}, {"ba"}},
    {"root ::= e{2,3}\ne ::= x x\nx ::= \"a\"?", {"", "a", "aaaaaa"}, {"aaaaaaa"}},
    {"root ::= [^]", {"a"}, {"", "aa"}},
    {"root ::= \"\xE2\x82\xAC\" [\xC3\xA4\xC3\xB6]", {"\xE2\x82\xAC\xC3\xB6"}, {"\xE2\x82\xAC\xC3\xBC"}},
};

static void grammars_accept_what_they_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        mo_grammar *g = open_grammar(examples[i].gbnf);
        for (int k = 0; k < 8 && examples[i].yes[k]; k++) {
            const char *text = examples[i].yes[k];
            if (!toy_matches(g, text, strlen(text), false) || !toy_matches(g, text, strlen(text), true)) {
                fail_msg("'%s' is not in: %s", text, examples[i].gbnf);
            }
        }
        for (int k = 0; k < 8 && examples[i].no[k]; k++) {
            const char *text = examples[i].no[k];
            if (toy_matches(g, text, strlen(text), false) || toy_matches(g, text, strlen(text), true)) {
                fail_msg("'%s' is in: %s", text, examples[i].gbnf);
            }
        }
        mo_grammar_close(g);
    }
}

/* ---- The definition: which ends a part can have, tried one after the other ---- */

typedef struct matcher {
    const mo_syntax_grammar *g;
    const char *text;
    int length;
    struct {
        bool known;
        uint64_t to;
    } memo[4][2048]; /* of every rule, by where it begins */
} matcher;

static uint64_t match(matcher *m, const mo_syntax *x, uint64_t from);

static uint64_t match_repeat(matcher *m, const mo_syntax *x, uint64_t from)
{
    uint64_t all = x->as.repeat.min == 0 ? from : 0;
    for (int i = 1; i <= 40 && from && (x->as.repeat.max == MO_REPEAT_NO_MAX || i <= x->as.repeat.max); i++) {
        from = match(m, x->as.repeat.item, from);
        if (i >= x->as.repeat.min) {
            from &= ~all; /* what was reached in fewer rounds leads no further */
            all |= from;
        }
    }
    return all;
}

static uint64_t match(matcher *m, const mo_syntax *x, uint64_t from)
{
    uint64_t to = 0;
    if (from == 0) {
        return 0;
    }
    switch (x->kind) {
    case MO_SYNTAX_LITERAL:
        for (int i = 0; i <= m->length; i++) {
            const int n = (int)x->as.literal.length;
            if (from >> i & 1 && n <= m->length - i && !memcmp(m->text + i, x->as.literal.data, (size_t)n)) {
                to |= UINT64_C(1) << (i + n);
            }
        }
        break;
    case MO_SYNTAX_SET:
        for (int i = 0; i < m->length; i++) {
            const uint8_t *p = (const uint8_t *)m->text + i;
            const size_t n = mo_utf8_length(p, (size_t)(m->length - i));
            if (from >> i & 1 && n > 0 && mo_charset_has(&m->g->sets[x->as.set], mo_utf8_decode(p, n))) {
                to |= UINT64_C(1) << (i + (int)n);
            }
        }
        break;
    case MO_SYNTAX_RULE:
        if (!m->memo[x->as.rule][from].known) {
            m->memo[x->as.rule][from].to = match(m, m->g->rules[x->as.rule].body, from);
            m->memo[x->as.rule][from].known = true;
        }
        return m->memo[x->as.rule][from].to;
    case MO_SYNTAX_SEQUENCE:
        to = from;
        for (size_t i = 0; i < x->as.list.count; i++) {
            to = match(m, x->as.list.items[i], to);
        }
        break;
    case MO_SYNTAX_CHOICE:
        for (size_t i = 0; i < x->as.list.count; i++) {
            to |= match(m, x->as.list.items[i], from);
        }
        break;
    case MO_SYNTAX_REPEAT: to = match_repeat(m, x, from); break;
    case MO_SYNTAX_TOKEN: break;
    }
    return to;
}

static bool defined(const mo_syntax_grammar *g, const char *text, int length)
{
    static matcher m;
    m = (matcher){.g = g, .text = text, .length = length};
    return match(&m, g->rules[g->root].body, 1) >> length & 1;
}

static void append(char *to, size_t space, const char *text)
{
    const size_t used = strlen(to);
    snprintf(to + used, space - used, "%s", text);
}

static void write_part(uint64_t *seed, char *to, size_t space, int depth)
{
    static const char *const atoms[] = {"\"a\"", "\"b\"",   "\"ab\"",       "\"\"", "[a-b]",
                                        "[^a]",  "\"aab\"", "\"\xC3\xA4\"", ".",    "[a\xC3\xA4]"};
    static const char *const repeats[] = {"", "", "", "*", "+", "?", "{2}", "{0,2}", "{1,3}", "{2,}"};
    const size_t used = strlen(to);
    if (space - used < 64 + 512) { /* the last for what closes the parts around it */
        snprintf(to + used, space - used, " \"a\"");
        return;
    }
    const int64_t kind = random_below(seed, depth > 3 ? 5 : 10);
    if (kind < 4) {
        snprintf(to + used, space - used, " %s%s", atoms[random_below(seed, 10)],
                 repeats[random_below(seed, 10)]);
    } else if (kind == 4) {
        /* Behind something that is never empty a rule may call any. */
        snprintf(to + used, space - used, " [ab] r%d%s", (int)random_below(seed, 3),
                 repeats[random_below(seed, 10)]);
    } else if (kind < 7) {
        write_part(seed, to, space, depth + 1);
        write_part(seed, to, space, depth + 1);
    } else {
        append(to, space, " (");
        write_part(seed, to, space, depth + 1);
        append(to, space, " |");
        write_part(seed, to, space, depth + 1);
        append(to, space, ")");
        append(to, space, repeats[random_below(seed, 10)]);
    }
}

/* Random grammars and all short texts of an alphabet that makes their borders meet. */
static void masks_accept_what_the_definition_does(void **state)
{
    (void)state;
    static const char *const letters[] = {"a", "b", "\xC3\xA4"};
    uint64_t seed = 11;
    size_t accepted = 0, all = 0;
    for (int round = 0; round < (SANITIZED ? 30 : 300); round++) {
        char gbnf[4096] = "";
        mo_syntax_grammar syntax;
        mo_error err;
        for (int r = 0; r < 3; r++) {
            sprintf(gbnf + strlen(gbnf), "%sr%d ::=", r ? "\n" : "root ::= r0\n", r);
            write_part(&seed, gbnf, sizeof gbnf, 0);
        }
        check_status(mo_gbnf_parse(gbnf, strlen(gbnf), "root", NULL, &syntax, &err), &err);
        mo_grammar *g = open_grammar(gbnf);
        for (int n = 0; n < 364; n++) { /* all texts of up to five letters */
            char text[32] = "";
            for (int k = n, length = 0; k > 0 && length < 5; k = (k - 1) / 3, length++) {
                append(text, sizeof text, letters[(k - 1) % 3]);
            }
            const bool expected = defined(&syntax, text, (int)strlen(text));
            if (toy_matches(g, text, strlen(text), n % 2) != expected) {
                fail_msg("'%s' is%s in:\n%s", text, expected ? "" : " not", gbnf);
            }
            accepted += expected;
            all++;
        }
        mo_syntax_free(&syntax);
        mo_grammar_close(g);
    }
    assert_in_range(accepted, all / 50, all / 2); /* the texts are worth something */
}

/* ---- What is refused ---- */

static void errors_name_line_and_column(void **state)
{
    (void)state;
    static const struct {
        const char *gbnf, *says;
    } wrong[] = {
        {"", "line 1, column 1: the start rule root is not defined"},
        {"roo ::= \"a\"", "the start rule root is not defined"},
        {"root ::= \"a\"\nx ::= y", "line 2, column 7: rule y is not defined"},
        {"root ::= \"abc", "line 1, column 10: unterminated literal"},
        {"root ::= \"a\nb\"", "line 1, column 10: unterminated literal"},
        {"root ::= \"\xC3\xA4\" [a", "line 1, column 14: unterminated character class"},
        {"root ::= [z-a]", "line 1, column 11: the range ends before it starts"},
        {"root ::= \"\\q\"", "line 1, column 11: unknown escape"},
        {"root ::= \"\\u12\"", "4 hexadecimal digits"},
        {"root ::= \"\\uD800\"", "is not a character"},
        {"root ::= \"\\UFFFFFFFF\"", "is not a character"},
        {"root ::= (\"a\"", "line 1, column 10: this parenthesis"},
        {"root ::= \"a\")", "line 1, column 13: unexpected character"},
        {"root ::= *", "line 1, column 10: unexpected character"},
        {"root = \"a\"", "line 1, column 6: expected ::="},
        {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: rule root is already defined"},
        {"root ::= \"a\"{", "line 1, column 14: expected a number"},
        {"root ::= \"a\"{3,2}", "line 1, column 13: the maximum of 2"},
        {"root ::= \"a\"{1;2}", "line 1, column 15: expected }"},
        {"root ::= root \"a\" | \"b\"", "line 1, column 1: rule root can start with itself"},
        {"root ::= a\na ::= \"x\"* b\nb ::= a", "can start with itself"},
        {"root ::= a* b\na ::= \"\"\nb ::= (\"x\"? root)+", "can start with itself"},
        {"root ::= <[12345]>", "line 1, column 12: there is no token 12345"},
        {"root ::= <nothing>", "line 1, column 10: the vocabulary has no token <nothing>"},
        {"root ::= <[1>", "expected ]>"},
        {"root ::= !a", "a token in < and >"},
        {"root ::= \xFF", "line 1, column 10: unexpected character"},
        {"root ::= \"\xFF\"", "line 1, column 11: the grammar is not valid UTF-8"},
        {"? ::= \"a\"", "line 1, column 1: expected the name of a rule"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        mo_grammar *g;
        mo_error err;
        assert_int_equal(toy_grammar(wrong[i].gbnf, NULL, &g, &err), MO_EINVAL);
        assert_null(g);
        check_says(&err, wrong[i].says);
    }
}

/* Of a core: what else runs does not count. */
static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Feeds a text as long as the grammar goes along; MO_OK, or how it failed. */
static mo_status try_text(const char *gbnf, const char *repeated, int times, mo_error *err)
{
    mo_grammar *g;
    mo_constraint *c;
    mo_status status = toy_grammar(gbnf, NULL, &g, err);
    if (status != MO_OK) {
        return status;
    }
    check_status(mo_constraint_open(g, &c, err), err);
    for (int i = 0; i < times && status == MO_OK; i++) {
        for (const char *p = repeated; *p && status == MO_OK; p++) {
            status = mo_constraint_mask(c, err) ? mo_constraint_accept(c, toy_byte(*p), err) : err->status;
        }
    }
    mo_constraint_close(c);
    mo_grammar_close(g);
    return status;
}

static void hostile_grammars_take_bounded_time(void **state)
{
    (void)state;
    static const struct {
        const char *gbnf, *text;
        int times;
        mo_status status;
    } cases[] = {
        {"root ::= \"a\"{0,1000000000} \"b\"", "a", 2000, MO_OK},
        {"root ::= ((((\"a\"{0,1000}){0,1000}){0,1000}){0,1000}){0,1000} \"b\"", "a", 50, MO_OK},
        {"root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"d\"", "a", 1500, MO_OK},
        {"root ::= \"a\" root root | \"a\"", "a", 200, MO_OK},
        {"root ::= (\"a\" | \"a\" | \"aa\"){0,100} \"b\"", "a", 90, MO_OK},
        {"root ::= (\"a\"* \"a\"* \"a\"* \"a\"* \"a\"*)* \"b\"", "a", 200, MO_OK},
        {"root ::= \"[\" root \"]\" | \"x\"", "[", 2000, MO_OK},
        {"root ::= \"[\" root \"]\" | \"x\"", "[", 4000, MO_EINVAL}, /* too deep: no longer offered */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mo_error err = {0};
        const double begin = seconds();
        const mo_status status = try_text(cases[i].gbnf, cases[i].text, cases[i].times, &err);
        if (status != cases[i].status && !(status == MO_ENOSPC && cases[i].status == MO_OK)) {
            fail_msg("%s: %s", cases[i].gbnf, err.detail);
        }
        if (seconds() - begin > (SANITIZED ? 60 : 10)) {
            fail_msg("%s took %.1f s", cases[i].gbnf, seconds() - begin);
        }
    }
}

static void large_grammars_are_refused(void **state)
{
    (void)state;
    char *text = malloc(3 << 20);
    mo_error err;
    mo_grammar *g;
    assert_non_null(text);
    char *p = text + sprintf(text, "root ::= ");
    memset(p, '(', 1000);
    sprintf(p + 1000, "\"a\"");
    assert_int_equal(toy_grammar(text, NULL, &g, &err), MO_EINVAL);
    check_says(&err, "parentheses");
    p = text + sprintf(text, "root ::=");
    for (int i = 0; i < 300000; i++) {
        p += sprintf(p, " \"a\"");
    }
    assert_int_equal(toy_grammar(text, NULL, &g, &err), MO_EINVAL);
    check_says(&err, "parts");
    memset(text, ' ', (3 << 20) - 1);
    text[(3 << 20) - 1] = 0;
    assert_int_equal(toy_grammar(text, NULL, &g, &err), MO_EINVAL);
    check_says(&err, "bytes");
    p = text + sprintf(text, "root ::= r0\n");
    for (int i = 0; i < 5000; i++) {
        p += sprintf(p, "r%d ::= r%d\n", i, i + 1);
    }
    sprintf(p, "r5000 ::= \"a\"\n");
    assert_int_equal(toy_grammar(text, NULL, &g, &err), MO_EINVAL);
    check_says(&err, "start with one another");
    free(text);
}

/* A text so long that the machine is renewed on the way, for two constraints at once. */
static void long_texts_renew_the_machine(void **state)
{
    (void)state;
    mo_grammar *g = open_grammar("root ::= (\"[\" [a-z]{5,20000} \"]\"){3,4}");
    mo_constraint *a, *b;
    mo_error err;
    check_status(mo_constraint_open(g, &a, &err), &err);
    check_status(mo_constraint_open(g, &b, &err), &err);
    for (int part = 0; part < 3; part++) {
        assert_true(toy_feed(a, "[", 1, false));
        assert_true(toy_feed(b, "[", 1, false));
        for (int i = 0; i < 20000 / 4 - 1; i++) {
            assert_true(toy_feed(a, "abab", 4, i % 8));
            if (i % 64 == 0) {
                assert_true(toy_feed(b, "abcab", 5, true));
            }
        }
        assert_true(toy_feed(a, "xxxx", 4, false));
        assert_false(toy_allowed(a, toy_byte('x')));
        assert_true(toy_allowed(b, toy_byte('x')));
        assert_true(toy_feed(a, "]", 1, false));
        assert_true(toy_feed(b, "]", 1, false));
    }
    assert_true(mo_constraint_may_end(a));
    assert_true(mo_constraint_may_end(b));
    mo_constraint_close(a);
    mo_constraint_close(b);
    mo_grammar_close(g);
}

/* ---- Tokens ---- */

static void special_tokens_are_never_text(void **state)
{
    (void)state;
    mo_grammar *g = open_grammar("root ::= .*");
    mo_constraint *c;
    mo_error err;
    check_status(mo_constraint_open(g, &c, &err), &err);
    assert_false(toy_allowed(c, TOY_MARK));
    assert_false(toy_allowed(c, TOY_MARK + 1));
    assert_true(toy_allowed(c, TOY_BLANKS));
    assert_true(toy_allowed(c, TOY_END));
    assert_true(toy_allowed(c, TOY_END + 1));
    for (int32_t id = (int32_t)mo_tokenizer_size(toy_words.tokenizer); id < toy_words.size; id++) {
        assert_false(toy_allowed(c, id)); /* beyond the vocabulary */
    }
    assert_int_equal(mo_constraint_accept(c, TOY_MARK, &err), MO_EINVAL);
    assert_int_equal(mo_constraint_accept(c, -1, &err), MO_EINVAL);
    assert_int_equal(mo_constraint_accept(c, 100000, &err), MO_EINVAL);
    mo_constraint_close(c);
    mo_grammar_close(g);
}

static void tokens_can_be_named(void **state)
{
    (void)state;
    mo_grammar *g = open_grammar("root ::= <mark> \"a\" !<[97]> <[98]>? <[*-258]>");
    mo_constraint *c;
    mo_error err;
    check_status(mo_constraint_open(g, &c, &err), &err);
    assert_true(toy_allowed(c, TOY_MARK));
    assert_false(toy_allowed(c, toy_byte('<')));
    check_status(mo_constraint_accept(c, TOY_MARK, &err), &err);
    assert_false(toy_allowed(c, TOY_FIRST_LONG)); /* abc: what follows a is a token of its own */
    assert_true(toy_feed(c, "a", 1, false));
    assert_false(toy_allowed(c, 97));
    assert_true(toy_allowed(c, 98));
    assert_true(toy_allowed(c, TOY_MARK));
    assert_false(toy_allowed(c, TOY_END));
    check_status(mo_constraint_accept(c, TOY_FIRST_LONG, &err), &err);
    assert_true(toy_allowed(c, 98));
    assert_false(toy_allowed(c, 97));
    assert_false(toy_allowed(c, TOY_MARK));
    assert_true(toy_allowed(c, TOY_MARK + 1));
    check_status(mo_constraint_accept(c, TOY_MARK + 1, &err), &err);
    assert_true(mo_constraint_ended(c));
    mo_constraint_close(c);
    mo_grammar_close(g);
}

static void only_an_end_token_follows_what_is_whole(void **state)
{
    (void)state;
    mo_grammar *g = open_grammar("root ::= \"a\" \"b\"?");
    mo_constraint *c, *copy;
    mo_error err;
    check_status(mo_constraint_open(g, &c, &err), &err);
    assert_false(toy_allowed(c, TOY_END));
    assert_int_equal(mo_constraint_accept(c, TOY_END, &err), MO_EINVAL);
    assert_true(toy_feed(c, "a", 1, false));
    assert_true(mo_constraint_may_end(c));
    assert_false(mo_constraint_ended(c));
    check_status(mo_constraint_copy(c, &copy, &err), &err);
    assert_true(toy_feed(c, "b", 1, false));
    assert_true(mo_constraint_ended(c));
    const uint32_t *mask = mo_constraint_mask(c, &err);
    for (int32_t id = 0; id < toy_words.size; id++) {
        assert_int_equal(mo_bit(mask, id), mo_token_is_end(toy_words.tokenizer, id));
    }
    check_status(mo_constraint_accept(copy, TOY_END, &err), &err);
    assert_true(mo_constraint_ended(copy));
    assert_false(toy_allowed(copy, toy_byte('b')));
    assert_true(toy_allowed(copy, TOY_END));
    assert_int_equal(mo_constraint_accept(copy, toy_byte('b'), &err), MO_EINVAL);
    mo_constraint_close(c);
    mo_constraint_close(copy);
    mo_grammar_close(g);
}

/* ---- Free text ---- */

static void free_text_comes_before_a_trigger(void **state)
{
    (void)state;
    static const char *const strings[] = {"{\"a", "[["};
    const mo_grammar_options options = {.size = sizeof options, .triggers = strings, .trigger_count = 2};
    mo_grammar *g;
    mo_constraint *c;
    mo_error err;
    check_status(
        toy_grammar("root ::= \"{\\\"a\\\":\" [0-9] \"}\" | \"[[\" [a-z] \"]]\"", &options, &g, &err), &err);
    static const char *const yes[] = {"", "hello [ {", "{{\"a\":1}", "x [ [[a]]", "{\"b", "{[{[["};
    static const char *const no[] = {"{\"a", "{\"a\":x", "{\"a\":1}x", "x[[[", "[[ab]]"};
    for (size_t i = 0; i < 5; i++) {
        assert_true(toy_matches(g, yes[i], strlen(yes[i]), i % 2));
        assert_false(toy_matches(g, no[i], strlen(no[i]), i % 2));
    }
    check_status(mo_constraint_open(g, &c, &err), &err);
    assert_true(toy_allowed(c, TOY_MARK));
    check_status(mo_constraint_accept(c, TOY_MARK, &err), &err);
    assert_true(toy_feed(c, "{\"", 2, true));
    assert_true(toy_feed(c, "a", 1, false));
    assert_false(toy_allowed(c, TOY_MARK));
    assert_false(toy_allowed(c, TOY_END));
    assert_true(toy_allowed(c, toy_byte('"')));
    mo_constraint_close(c);
    mo_grammar_close(g);
}

static void a_special_token_can_be_a_trigger(void **state)
{
    (void)state;
    static const char *const strings[] = {"<mark>"};
    const mo_grammar_options options = {.size = sizeof options, .triggers = strings, .trigger_count = 1};
    mo_grammar *g;
    mo_constraint *c;
    mo_error err;
    check_status(toy_grammar("root ::= <mark> [0-9]+", &options, &g, &err), &err);
    check_status(mo_constraint_open(g, &c, &err), &err);
    assert_true(toy_feed(c, "hello <mark> 12", 15, true));
    assert_true(toy_allowed(c, TOY_MARK + 1));
    check_status(mo_constraint_accept(c, TOY_MARK, &err), &err);
    assert_false(toy_allowed(c, toy_byte('a')));
    assert_false(toy_allowed(c, TOY_END));
    assert_true(toy_feed(c, "12", 2, true));
    assert_true(toy_allowed(c, TOY_END));
    mo_constraint_close(c);
    mo_grammar_close(g);
}

static void a_grammar_can_begin_after_a_thought(void **state)
{
    (void)state;
    static const char *const strings[] = {"[["};
    const mo_grammar_options options = {
        .size = sizeof options, .triggers = strings, .trigger_count = 1, .after = "</t>"};
    mo_grammar *g;
    mo_error err;
    check_status(toy_grammar("root ::= \"[[\" [a-z] \"]]\"", &options, &g, &err), &err);
    assert_true(toy_matches(g, "[[</</t>x", 9, false));
    assert_true(toy_matches(g, "1[[12]]</t>x[[a]]", 17, true));
    assert_false(toy_matches(g, "hello", 5, true));
    assert_false(toy_matches(g, "</t>[[1", 7, true));
    mo_grammar_close(g);
}

/* The form of a chat model's answer: a thought, and marks around what the grammar says. */
static void an_answer_may_begin_with_a_thought(void **state)
{
    (void)state;
    const mo_grammar_options none = {.size = sizeof none};
    const char gbnf[] = "root ::= [0-9]+";
    for (int inside = 0; inside < 2; inside++) {
        const mo_answer_form form = {
            .open = "<t>", .close = "</t>", .around = {"(", ")"}, .in_thought = inside};
        mo_grammar *g;
        mo_error err;
        check_status(mo_grammar_make(toy_words.lexicon, gbnf, strlen(gbnf), &none, &form, NULL, &g, &err),
                     &err);
        assert_int_equal(toy_matches(g, "12", 2, true), !inside);
        assert_int_equal(toy_matches(g, "<t>hello 1</t>\n\n12", 18, true), true);
        assert_int_equal(toy_matches(g, "hello</t>(12)", 13, true), inside);
        assert_false(toy_matches(g, "<t>12", 5, true));
        assert_false(toy_matches(g, "<t></t>x", 8, true));
        mo_grammar_close(g);
    }
}

static void channels_stand_before_the_answer(void **state)
{
    (void)state;
    const mo_grammar_options none = {.size = sizeof none};
    const mo_answer_form form = {.channels = true};
    const char gbnf[] = "root ::= [0-9]+", text[] =
                                               "<|channel|>analysis<|message|>hello<|end|><|start|>assistant"
                                               "<|channel|>final<|message|>12";
    mo_grammar *g;
    mo_error err;
    check_status(mo_grammar_make(toy_words.lexicon, gbnf, strlen(gbnf), &none, &form, NULL, &g, &err), &err);
    assert_true(toy_matches(g, text, strlen(text), true)); /* the toy vocabulary has them as text */
    assert_true(toy_matches(g, text + strlen(text) - 29, 29, true));
    assert_false(toy_matches(g, "12", 2, true));
    mo_grammar_close(g);
    const char open[] = "root ::= \"1\" |\n\n"; /* an empty alternative at the end */
    const mo_answer_form plain = {0};
    check_status(mo_grammar_make(toy_words.lexicon, open, strlen(open), &none, &plain, NULL, &g, &err), &err);
    assert_true(toy_matches(g, "1", 1, true));
    assert_true(toy_matches(g, "", 0, true));
    mo_grammar_close(g);
}

static void text_until_a_string(void **state)
{
    (void)state;
    static const char *const strings[] = {"</p>", "aab", "\xC3\xA4\xC3\xA4"};
    char *rules, gbnf[8192];
    mo_error err;
    check_status(mo_until_gbnf(strings, 3, "free", &rules, &err), &err);
    snprintf(gbnf, sizeof gbnf, "root ::= free\n%s", rules);
    free(rules);
    mo_grammar *g = open_grammar(gbnf);
    uint64_t seed = 3;
    for (int i = 0; i < (SANITIZED ? 300 : 3000); i++) {
        static const char *const letters[] = {"a", "b", "<", "/", "p", ">", "</p", "\xC3\xA4"};
        char text[128] = "";
        for (int64_t k = random_below(&seed, 12); k >= 0; k--) {
            append(text, sizeof text, letters[random_below(&seed, 8)]);
        }
        const bool clean =
            !strstr(text, strings[0]) && !strstr(text, strings[1]) && !strstr(text, strings[2]);
        assert_int_equal(toy_matches(g, text, strlen(text), i % 2), clean);
    }
    mo_grammar_close(g);
    assert_int_equal(mo_until_gbnf((const char *const[]){""}, 1, "x", &rules, &err), MO_EINVAL);
    assert_int_equal(mo_until_gbnf((const char *const[]){"\xFF"}, 1, "x", &rules, &err), MO_EINVAL);
    assert_int_equal(mo_until_gbnf(strings, 3, "x y", &rules, &err), MO_EINVAL);
}

/* ---- Threads and memory ---- */

static void *one_of_many(void *user)
{
    mo_grammar *g = user;
    for (int i = 0; i < 20; i++) {
        mo_constraint *c;
        if (mo_constraint_open(g, &c, NULL) != MO_OK) {
            return user;
        }
        for (int k = 0; k < 40; k++) {
            if (!mo_constraint_mask(c, NULL) ||
                mo_constraint_accept(c, toy_byte("[ab]"[k % 4]), NULL) != MO_OK) {
                mo_constraint_close(c);
                return user;
            }
        }
        mo_constraint_close(c);
    }
    return NULL;
}

static void threads_share_a_grammar(void **state)
{
    (void)state;
    mo_grammar *g = open_grammar("root ::= (\"[\" [^\\x00-\\x1F\\]]* \"]\"){3,40}");
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, one_of_many, g), 0);
    }
    for (int i = 0; i < 8; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    mo_grammar_close(g);
}

static bool everything(mo_error *err)
{
    static const char *const strings[] = {"[["};
    const mo_grammar_options options = {
        .size = sizeof options, .triggers = strings, .trigger_count = 1, .after = "</t>"};
    mo_grammar *g = NULL;
    mo_constraint *c = NULL, *d = NULL;
    bool ok = toy_grammar("root ::= \"[[\" ([a-z] | \"x\" | .){2,300} r \"]]\"\nr ::= \"a\" r | \"b\"",
                          &options, &g, err) == MO_OK &&
              mo_constraint_open(g, &c, err) == MO_OK;
    for (const char *p = "</t>[[aaaaa"; *p && ok; p++) {
        ok = mo_constraint_mask(c, err) && mo_constraint_accept(c, toy_byte(*p), err) == MO_OK;
    }
    ok = ok && mo_constraint_copy(c, &d, err) == MO_OK;
    mo_constraint_close(c);
    mo_constraint_close(d);
    mo_grammar_close(g);
    return ok;
}

static void memory_may_end_anywhere(void **state)
{
    (void)state;
    mo_error err;
    assert_true(everything(&err));
    long n = 0;
    for (bool ok = false; !ok; n++) {
        fail_after = n;
        refusals = 0;
        ok = everything(&err);
        fail_after = -1;
        assert_true(ok || err.status == MO_ENOMEM);
        assert_in_range(n, 0, 5000);
    }
    assert_in_range(n, 20, 5000);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grammars_accept_what_they_say),
        cmocka_unit_test(masks_accept_what_the_definition_does),
        cmocka_unit_test(errors_name_line_and_column),
        cmocka_unit_test(hostile_grammars_take_bounded_time),
        cmocka_unit_test(large_grammars_are_refused),
        cmocka_unit_test(long_texts_renew_the_machine),
        cmocka_unit_test(special_tokens_are_never_text),
        cmocka_unit_test(tokens_can_be_named),
        cmocka_unit_test(only_an_end_token_follows_what_is_whole),
        cmocka_unit_test(free_text_comes_before_a_trigger),
        cmocka_unit_test(a_special_token_can_be_a_trigger),
        cmocka_unit_test(a_grammar_can_begin_after_a_thought),
        cmocka_unit_test(an_answer_may_begin_with_a_thought),
        cmocka_unit_test(channels_stand_before_the_answer),
        cmocka_unit_test(text_until_a_string),
        cmocka_unit_test(threads_share_a_grammar),
        cmocka_unit_test(memory_may_end_anywhere),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
