/* Grammars of calls: whatever they allow, taken apart, is calls whose arguments follow the schemas; what models write is
 * allowed; and where a call is required nothing else is. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check.h"
#include "dialogue/call_grammar.h"
#include "dialogue/reply.h"
#include "dialogues.h"
#include "grammar/grammar.h"
#include "random.h"
#include "toyvocab.h"

#define BAR  "\xEF\xBD\x9C"
#define MARK "\xE2\x96\x81"

static const char tools_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{"
    "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"unit\":{\"enum\":[\"c\",\"f\"]}},"
    "\"required\":[\"city\"],"
    "\"additionalProperties\":false}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"edit\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"lines\":{"
    "\"type\":\"array\",\"items\":{\"type\":\"integer\"}},\"deep\":{\"type\":\"object\",\"properties\":{"
    "\"on\":{\"type\":"
    "\"boolean\"}},\"required\":[\"on\"],\"additionalProperties\":false}},\"required\":[\"lines\",\"deep\"],"
    "\"additionalProperties\":false}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"now\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{},"
    "\"additionalProperties\":false}}}]";

static mo_tools *tools;

/* ---- Vocabularies: all bytes, with or without the marks as tokens ---- */

typedef struct words {
    mo_tokenizer *tokenizer;
    mo_lexicon *lexicon;
    int64_t count;
} words;

static words vocabularies[2];
static const char *const ends[] = {"<|im_end|>", "<|return|>", "<|call|>"};

static void open_words(words *w, bool marks)
{
    static toy v;
    mo_error err;
    v = (toy){.model = "llama"};
    toy_add_bytes(&v);
    for (size_t i = 0; i < 3; i++) {
        if (marks || i == 0) {
            toy_add(&v, ends[i], 3, 0);
        }
    }
    for (int s = 0; s < MO_STYLES && marks; s++) {
        for (const mo_mark *m = mo_style_get((mo_style_id)s)->marks; m->text; m++) {
            const size_t n = strlen(m->text);
            if (n > 3 && strchr("<[", m->text[0]) && strchr(">]", m->text[n - 1]) && m->role != MO_ROLE_END) {
                toy_add(&v, m->text, strchr(m->text, '|') ? 3 : 4, 0);
            }
        }
    }
    if (marks) {
        toy_add(&v, "<|end|>", 3, 0);
        toy_add(&v, "<think>", 4, 0);
        toy_add(&v, "</think>", 4, 0);
        toy_add(&v, "<|channel>", 3, 0);
        toy_add(&v, "<channel|>", 3, 0);
    }
    mo_gguf *g = toy_open(&v);
    assert_non_null(g);
    check_status(mo_tokenizer_create(g, &w->tokenizer, &err), &err);
    check_status(mo_lexicon_open(w->tokenizer, v.count, &w->lexicon, &err), &err);
    check_status(mo_lexicon_fill(w->lexicon, &err), &err);
    w->count = v.count;
    mo_gguf_close(g);
}

static int open_all(void **state)
{
    mo_error err;
    (void)state;
    open_words(&vocabularies[0], false);
    open_words(&vocabularies[1], true);
    return mo_tools_open(tools_json, strlen(tools_json), &tools, &err) == MO_OK ? 0 : -1;
}

static int close_all(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        mo_lexicon_close(vocabularies[i].lexicon);
        mo_tokenizer_destroy(vocabularies[i].tokenizer);
    }
    mo_tools_close(tools);
    return 0;
}

static mo_grammar *grammar_of(const mo_dialogue *d, const words *w, const mo_tools_options *o)
{
    const mo_grammar_options none = {.size = sizeof none};
    char *gbnf, *unenforced;
    mo_grammar *g;
    mo_error err;
    check_status(mo_call_grammar_write(d, w->tokenizer, tools, o, &gbnf, &unenforced, &err), &err);
    if (mo_grammar_make(w->lexicon, gbnf, strlen(gbnf), &none, NULL, unenforced, &g, &err) != MO_OK) {
        fail_msg("%s: %s\n%s", d->style->name, err.detail, gbnf);
    }
    free(gbnf);
    return g;
}

/* ---- Answers that the grammar allows ---- */

/* Arguments as the schemas say. */
static void check_arguments(const char *name, const char *text)
{
    json_error_t at;
    json_t *a = json_loads(text, JSON_ALLOW_NUL, &at);
    if (!json_is_object(a)) {
        fail_msg("%s: %s is no object", name, text);
    }
    const char *key;
    json_t *value;
    json_object_foreach(a, key, value)
    {
        const bool fits = !strcmp(key, "city")   ? json_is_string(value)
                          : !strcmp(key, "days") ? json_is_integer(value) || json_is_real(value)
                          : !strcmp(key, "unit")
                              ? json_is_string(value) && strchr("cf", json_string_value(value)[0])
                          : !strcmp(key, "lines") ? json_is_array(value)
                          : !strcmp(key, "deep")  ? json_is_boolean(json_object_get(value, "on"))
                                                  : false;
        if (!fits) {
            fail_msg("%s: %s does not fit in %s", name, key, text);
        }
    }
    if (!strcmp(name, "get_weather")) {
        assert_non_null(json_object_get(a, "city"));
    } else if (!strcmp(name, "edit")) {
        assert_non_null(json_object_get(a, "lines"));
        assert_non_null(json_object_get(a, "deep"));
    } else {
        assert_string_equal(name, "now");
        assert_int_equal(json_object_size(a), 0);
    }
    json_decref(a);
}

typedef struct heard {
    char name[64], arguments[8192];
    size_t length;
    int calls;
    bool text;
    char whole[16384]; /* the answer as it was written */
} heard;

static void hear(heard *h, const mo_piece *pieces, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const mo_piece *p = &pieces[i];
        if (p->kind == MO_PIECE_CALL) {
            snprintf(h->name, sizeof h->name, "%s", p->text.data);
            h->length = 0;
            h->calls++;
        } else if (p->kind == MO_PIECE_ARGUMENTS) {
            assert_true(h->length + p->text.length < sizeof h->arguments);
            memcpy(h->arguments + h->length, p->text.data, p->text.length);
            h->length += p->text.length;
        } else if (p->kind == MO_PIECE_CALL_END) {
            h->arguments[h->length] = 0;
            check_arguments(h->name, h->arguments);
        } else if (p->kind == MO_PIECE_TEXT && p->text.data[strspn(p->text.data, " \n")]) {
            h->text = true;
        }
    }
}

/* A token that may come. Now and then what closes something is tried, so that answers come to an end. */
static int32_t pick(const uint32_t *mask, const words *w, uint64_t *seed)
{
    static const char *const closing[] = {
        "\"}",        "}",     "]", "</think>", "</parameter>", "</" BAR "DSML" BAR "parameter>",
        "\n",         "\"",    "e", ">",        "</arg_value>", "<|end|>",
        "<channel|>", "<|\"|>"};
    static const char *trying = "";
    int32_t allowed[512];
    int count = 0;
    if (*trying && mo_bit(mask, (uint8_t)*trying)) {
        return (uint8_t)*trying++;
    }
    trying = "";
    for (int32_t i = 256; i < w->count; i++) {
        if (mo_bit(mask, i) && random_next(seed) % 3 != 0) {
            return i;
        }
    }
    if (random_next(seed) % 2 == 0) {
        trying = closing[random_next(seed) % (sizeof closing / sizeof *closing)];
        if (mo_bit(mask, (uint8_t)*trying)) {
            return (uint8_t)*trying++;
        }
        trying = "";
    }
    for (int32_t i = 0; i < w->count; i++) {
        if (mo_bit(mask, i) && count < 512) {
            allowed[count++] = i;
        }
    }
    assert_true(count > 0);
    return count > 0 ? allowed[random_next(seed) % (uint64_t)count] : -1;
}

/* One answer at random; false when it became too long. */
static bool walk(mo_grammar *g, const words *w, const mo_dialogue *d, bool in_thought, uint64_t *seed,
                 heard *h)
{
    mo_constraint *c;
    mo_error err;
    mo_reply reply;
    const mo_piece *pieces;
    size_t count;
    const mo_reply_options o = {
        .size = sizeof o, .in_thought = in_thought, .tools = tools_json, .tools_length = strlen(tools_json)};
    *h = (heard){0};
    check_status(mo_constraint_open(g, &c, &err), &err);
    check_status(mo_reply_init(&reply, w->tokenizer, *d, &o, &err), &err);
    bool over = false;
    for (int i = 0; i < 2000 && !over; i++) {
        const uint32_t *mask = mo_constraint_mask(c, &err);
        assert_non_null(mask);
        const int32_t token = pick(mask, w, seed);
        over = mo_token_is_end(w->tokenizer, token);
        if (!over) {
            const mo_text t = mo_token_piece(w->tokenizer, token, true);
            strncat(h->whole, t.data, t.length);
            check_status(mo_constraint_accept(c, token, &err), &err);
            check_status(mo_reply_put(&reply, token, &pieces, &count, &err), &err);
            hear(h, pieces, count);
        }
    }
    if (over) {
        check_status(mo_reply_flush(&reply, &pieces, &count, &err), &err);
        hear(h, pieces, count);
    }
    mo_reply_free(&reply);
    mo_constraint_close(c);
    return over;
}

static const char *thought_of(int style)
{
    return style == MO_STYLE_GEMMA4                                ? "gemma4"
           : style == MO_STYLE_HARMONY || style == MO_STYLE_LLAMA3 ? ""
                                                                   : "think";
}

static void required_calls_follow_their_schemas(void **state)
{
    uint64_t seed = 3;
    (void)state;
    for (int s = 0; s < MO_STYLES; s++) {
        for (int v = 0; v < 4; v++) {
            const words *w = &vocabularies[v & 1];
            mo_dialogue d = dialogue_of((mo_style_id)s, thought_of(s));
            d.shows_tools = s != MO_STYLE_GENERIC;
            const bool in_thought = v >= 2 && d.thought;
            const mo_tools_options o = {.size = sizeof o, .required = true, .in_thought = in_thought};
            mo_grammar *g = grammar_of(&d, w, &o);
            int whole = 0;
            for (int round = 0; round < 30; round++) {
                heard h;
                if (walk(g, w, &d, in_thought, &seed, &h)) {
                    whole++;
                    if (h.calls == 0 || (h.text && s != MO_STYLE_HARMONY)) {
                        fail_msg("%s: %d calls, %s: %s", d.style->name, h.calls, h.text ? "text" : "no text",
                                 h.whole);
                    }
                }
            }
            if (whole < 5) {
                fail_msg("%s: only %d answers came to an end", d.style->name, whole);
            }
            mo_grammar_close(g);
        }
    }
}

static void named_and_single_calls(void **state)
{
    uint64_t seed = 5;
    (void)state;
    for (int s = 0; s < MO_STYLES; s++) {
        const words *w = &vocabularies[1];
        const mo_dialogue d = dialogue_of((mo_style_id)s, thought_of(s));
        const mo_tools_options o = {.size = sizeof o, .name = "now", .single = true};
        mo_grammar *g = grammar_of(&d, w, &o);
        for (int round = 0; round < 10; round++) {
            heard h;
            if (walk(g, w, &d, false, &seed, &h)) {
                if (h.calls != 1 || strcmp(h.name, "now") != 0) {
                    fail_msg("%s: %d calls: %s", d.style->name, h.calls, h.whole);
                }
            }
        }
        mo_grammar_close(g);
    }
}

/* ---- What models write ---- */

/* The token at the beginning of the text: the longest mark, or a byte. */
static int32_t token_at(const words *w, const char *text, size_t *length)
{
    int32_t best = (uint8_t)*text;
    *length = 1;
    for (int32_t i = 256; i < w->count; i++) {
        const mo_text t = mo_token_text(w->tokenizer, i);
        if (t.length > *length && !strncmp(t.data, text, t.length)) {
            best = i;
            *length = t.length;
        }
    }
    return best;
}

static bool allows(mo_grammar *g, const words *w, const char *text)
{
    mo_constraint *c;
    mo_error err;
    bool fits = true;
    size_t n;
    check_status(mo_constraint_open(g, &c, &err), &err);
    for (; *text && fits; text += n) {
        fits = mo_constraint_accept(c, token_at(w, text, &n), &err) == MO_OK;
    }
    fits = fits && mo_constraint_may_end(c);
    mo_constraint_close(c);
    return fits;
}

#define WEATHER "{\"city\": \"Bern\"}"

static const struct {
    mo_style_id style;
    const char *call;
} written[] = {
    {MO_STYLE_HERMES, "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " WEATHER "}\n</tool_call>"},
    {MO_STYLE_CODER,
     "<tool_call>\n<function=get_weather>\n<parameter=city>\nBern <b>\n</parameter>\n<parameter=days>\n3\n"
     "</parameter>\n</function>\n</tool_call>"},
    {MO_STYLE_SEED, "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Bern</parameter>\n</"
                    "function>\n</seed:tool_call>"},
    {MO_STYLE_HARMONY, "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>" WEATHER},
    {MO_STYLE_HARMONY, " to=functions.get_weather<|channel|>commentary json<|message|>" WEATHER},
    {MO_STYLE_GLM,
     "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>\n</tool_call>"},
    {MO_STYLE_GLM, "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Bern</arg_value></tool_call>"},
    {MO_STYLE_DEEPSEEK3,
     "<" BAR "tool" MARK "calls" MARK "begin" BAR "><" BAR "tool" MARK "call" MARK "begin" BAR
     ">function<" BAR "tool" MARK "sep" BAR ">get_weather\n```json\n" WEATHER "\n```<" BAR "tool" MARK
     "call" MARK "end" BAR "><" BAR "tool" MARK "calls" MARK "end" BAR ">"},
    {MO_STYLE_DEEPSEEK31, "<" BAR "tool" MARK "calls" MARK "begin" BAR "><" BAR "tool" MARK "call" MARK
                          "begin" BAR ">get_weather<" BAR "tool" MARK "sep" BAR ">" WEATHER "<" BAR
                          "tool" MARK "call" MARK "end" BAR "><" BAR "tool" MARK "calls" MARK "end" BAR ">"},
    {MO_STYLE_DSML,
     "<" BAR "DSML" BAR "function_calls>\n<" BAR "DSML" BAR "invoke name=\"get_weather\">\n<" BAR "DSML" BAR
     "parameter name=\"city\" string=\"true\">Bern</" BAR "DSML" BAR "parameter>\n</" BAR "DSML" BAR
     "invoke>\n</" BAR "DSML" BAR "function_calls>"},
    {MO_STYLE_DSML4, "<" BAR "DSML" BAR "tool_calls>\n<" BAR "DSML" BAR "invoke name=\"get_weather\">\n<" BAR
                     "DSML" BAR "parameter name=\"city\" string=\"true\">Bern</" BAR "DSML" BAR
                     "parameter>\n</" BAR "DSML" BAR "invoke>\n</" BAR "DSML" BAR "tool_calls>"},
    {MO_STYLE_LLAMA3, "{\"name\": \"get_weather\", \"parameters\": " WEATHER "}"},
    {MO_STYLE_GEMMA4, "<|tool_call>call:get_weather{city:<|\"|>Bern<|\"|>,days:3}<tool_call|>"},
    {MO_STYLE_MINIMAX, "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter "
                       "name=\"city\">Bern</parameter>\n</invoke>\n</minimax:tool_call>"},
    {MO_STYLE_HY,
     "<tool_calls:opensource>\n<tool_call:opensource>get_weather<tool_sep:opensource>\n"
     "<arg_key:opensource>city</arg_key:opensource>\n<arg_value:opensource>Bern</arg_value:opensource>\n"
     "</tool_call:opensource>\n</tool_calls:opensource>"},
    {MO_STYLE_COHERE, "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", "
                      "\"parameters\": " WEATHER "}]<|END_ACTION|>"},
    {MO_STYLE_KIMI, "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_"
                    "argument_begin|>" WEATHER "<|tool_call_end|><|tool_calls_section_end|>"},
    {MO_STYLE_MISTRAL,
     "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": " WEATHER ", \"id\": \"abcdefghi\"}]"},
    {MO_STYLE_MISTRAL3, "[TOOL_CALLS]get_weather[ARGS]" WEATHER},
    {MO_STYLE_GRANITE, "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": " WEATHER "}]"},
    {MO_STYLE_GENERIC, "{\"tool_call\": {\"name\": \"get_weather\", \"arguments\": " WEATHER "}}"},
};

static void what_models_write_is_allowed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
        for (int v = 0; v < 2; v++) {
            const words *w = &vocabularies[v];
            mo_dialogue d = dialogue_of(written[i].style, thought_of((int)written[i].style));
            d.shows_tools = d.id != MO_STYLE_GENERIC;
            const char *text = d.id == MO_STYLE_HARMONY   ? "<|channel|>final<|message|>Hello."
                               : d.id == MO_STYLE_GENERIC ? "{\"response\": \"Hello.\"}"
                                                          : "Hello. {}<tool\n";
            char both[1024], cut[1024];
            const bool joins = d.id != MO_STYLE_LLAMA3 && d.id != MO_STYLE_GENERIC;
            snprintf(both, sizeof both, "%s%s",
                     d.id == MO_STYLE_HARMONY ? "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"
                     : joins                  ? "Look.\n"
                                              : "",
                     written[i].call);
            snprintf(cut, sizeof cut, "%.*s", (int)strlen(written[i].call) - 6, written[i].call);
            for (int required = 0; required < 2; required++) {
                const mo_tools_options o = {.size = sizeof o, .required = required};
                mo_grammar *g = grammar_of(&d, w, &o);
                if (!allows(g, w, written[i].call)) {
                    fail_msg("%s: %s is not allowed", d.style->name, written[i].call);
                }
                if (allows(g, w, text) != !required) {
                    fail_msg("%s: text is%s allowed", d.style->name, required ? "" : " not");
                }
                if (allows(g, w, both) != (!required || d.id == MO_STYLE_HARMONY || !joins)) {
                    fail_msg("%s: %s is%s allowed", d.style->name, both, required ? "" : " not");
                }
                if (allows(g, w, cut)) {
                    fail_msg("%s: %s is allowed", d.style->name, cut);
                }
                mo_grammar_close(g);
            }
        }
    }
}

static void thoughts_come_first(void **state)
{
    const words *w = &vocabularies[1];
    const char *call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    char text[256];
    (void)state;
    const mo_dialogue d = dialogue_of(MO_STYLE_HERMES, "think");
    for (int in_thought = 0; in_thought < 2; in_thought++) {
        const mo_tools_options o = {.size = sizeof o, .required = true, .in_thought = in_thought};
        mo_grammar *g = grammar_of(&d, w, &o);
        snprintf(text, sizeof text, "%sAny <text> \n</think>\n\n%s", in_thought ? "" : "<think>\n", call);
        assert_true(allows(g, w, text));
        assert_int_equal(allows(g, w, call), !in_thought);
        mo_grammar_close(g);
    }
}

/* The text of an answer has a grammar of its own, whose root has another name then. */
static void texts_may_have_a_grammar(void **state)
{
    static const char own[] =
        "# the root\nroot ::= roots | \"[root]\" [root]\nroots ::= \"<root>\" call{1,2}\ncall ::= \"!\"\n";
    (void)state;
    for (int v = 0; v < 2; v++) {
        const words *w = &vocabularies[v];
        const mo_dialogue d = dialogue_of(MO_STYLE_HERMES, "think"), h = dialogue_of(MO_STYLE_HARMONY, "");
        const mo_tools_options o = {.size = sizeof o, .text_gbnf = own};
        const mo_grammar_options none = {.size = sizeof none};
        mo_grammar *g = grammar_of(&d, w, &o);
        assert_true(allows(g, w, "<root>!"));
        assert_true(allows(g, w, "<think>hm</think>\n\n[root]t"));
        assert_true(allows(g, w, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"));
        assert_false(allows(g, w, "text"));
        mo_grammar_close(g);
        char *gbnf;
        mo_error err;
        check_status(mo_answer_grammar_write(&d, w->tokenizer, own, strlen(own), true, &gbnf, &err), &err);
        check_status(mo_grammar_make(w->lexicon, gbnf, strlen(gbnf), &none, NULL, NULL, &g, &err), &err);
        assert_true(allows(g, w, "hm</think>\n<root>!"));
        assert_false(allows(g, w, "hm</think>\ntext"));
        mo_grammar_close(g);
        free(gbnf);
        check_status(mo_answer_grammar_write(&h, w->tokenizer, own, strlen(own), false, &gbnf, &err), &err);
        check_status(mo_grammar_make(w->lexicon, gbnf, strlen(gbnf), &none, NULL, NULL, &g, &err), &err);
        assert_true(allows(
            g, w,
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|><root>!"));
        assert_false(allows(g, w, "<|channel|>final<|message|>text"));
        mo_grammar_close(g);
        free(gbnf);
        static const char open[] =
            "root ::= \"!\" |\n"; /* what follows is not part of the empty alternative */
        check_status(mo_answer_grammar_write(&d, w->tokenizer, open, strlen(open), true, &gbnf, &err), &err);
        check_status(mo_grammar_make(w->lexicon, gbnf, strlen(gbnf), &none, NULL, NULL, &g, &err), &err);
        assert_true(allows(g, w, "hm</think>\n!"));
        assert_false(allows(g, w, "hm</think>\ntext"));
        mo_grammar_close(g);
        free(gbnf);
    }
}

static void what_makes_no_sense_is_refused(void **state)
{
    const mo_dialogue d = dialogue_of(MO_STYLE_CODER, "");
    mo_tools_options o = {.size = sizeof o, .name = "other"};
    char *gbnf, *unenforced;
    mo_tools *none, *odd;
    mo_error err;
    (void)state;
    assert_int_equal(mo_call_grammar_write(&d, NULL, tools, &o, &gbnf, &unenforced, &err), MO_EINVAL);
    check_says(&err, "other");
    o.name = NULL;
    assert_int_equal(mo_tools_open("[]", 2, &none, &err), MO_OK);
    assert_int_equal(mo_call_grammar_write(&d, NULL, none, &o, &gbnf, &unenforced, &err), MO_EINVAL);
    mo_tools_close(none);
    const char *json = "[{\"name\": \"f\", \"parameters\": {\"type\": \"object\", \"properties\": {\"x\": "
                       "{\"type\": \"string\", "
                       "\"pattern\": \"a+\"}}}}]";
    assert_int_equal(mo_tools_open(json, strlen(json), &odd, &err), MO_OK);
    assert_int_equal(mo_call_grammar_write(&d, NULL, odd, &o, &gbnf, &unenforced, &err), MO_OK);
    assert_string_equal(unenforced, "f/properties/x/pattern\n");
    free(gbnf);
    free(unenforced);
    o.strict = true;
    assert_int_equal(mo_call_grammar_write(&d, NULL, odd, &o, &gbnf, &unenforced, &err), MO_EUNSUPPORTED);
    check_says(&err, "pattern");
    mo_tools_close(odd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(required_calls_follow_their_schemas),
        cmocka_unit_test(named_and_single_calls),
        cmocka_unit_test(what_models_write_is_allowed),
        cmocka_unit_test(thoughts_come_first),
        cmocka_unit_test(texts_may_have_a_grammar),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests_name("call grammar", tests, open_all, close_all);
}
