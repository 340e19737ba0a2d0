/* Answers taken apart: outputs of every family, cut anywhere, give the same pieces; and nothing that a model may write is an
 * error. The answers are in data/dialogue/answers.json: "want" is a list of ["text", T], ["thought", T] and
 * ["call", NAME, ARGUMENTS]. */
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
#include "dialogue/reply.h"
#include "dialogues.h"
#include "failing_memory.h"
#include "random.h"
#include "sanitized.h"
#include "toyvocab.h"

#define BAR  "\xEF\xBD\x9C"
#define MARK "\xE2\x96\x81"

/* ---- Pieces written down ---- */

/* What came, in a form that does not depend on how it was cut: text(...)thought(...)call NAME(...). */
typedef struct record {
    char text[1 << 16];
    size_t length;
    int kind; /* of the parenthesis that is open; -1: none */
    int calls, ended;
    size_t certain; /* where the arguments of the last call begin, or else the end */
    char ids[8][160];
} record;

static void record_add(record *r, const char *text, size_t n)
{
    assert_true(r->length + n + 1 < sizeof r->text);
    memcpy(r->text + r->length, text, n);
    r->length += n;
    r->text[r->length] = 0;
}

static void record_close(record *r)
{
    if (r->kind >= 0) {
        record_add(r, ")", 1);
    }
    r->kind = -1;
}

/* Adds pieces, which must come in an order that makes sense. */
static void record_pieces(record *r, const mo_piece *pieces, size_t count)
{
    static const char *const names[] = {"text(", "thought("};
    for (size_t i = 0; i < count; i++) {
        const mo_piece *p = &pieces[i];
        assert_int_equal(p->text.data[p->text.length], 0);
        if (p->kind == MO_PIECE_TEXT || p->kind == MO_PIECE_THOUGHT) {
            assert_int_equal(p->call, -1);
            assert_int_equal(r->calls, r->ended);
            assert_true(p->text.length > 0);
            if (r->kind != (int)p->kind) {
                record_close(r);
                record_add(r, names[p->kind], strlen(names[p->kind]));
                r->kind = (int)p->kind;
            }
            record_add(r, p->text.data, p->text.length);
            r->certain = r->length;
        } else if (p->kind == MO_PIECE_CALL) {
            record_close(r);
            assert_int_equal(p->call, r->calls);
            assert_int_equal(r->calls, r->ended);
            assert_true(p->id.length >= 9);
            assert_true(p->text.length > 0);
            if (r->calls < 8) {
                snprintf(r->ids[r->calls], sizeof r->ids[0], "%s", p->id.data);
            }
            r->calls++;
            record_add(r, "call ", 5);
            record_add(r, p->text.data, p->text.length);
            record_add(r, "(", 1);
            r->certain = r->length;
        } else if (p->kind == MO_PIECE_ARGUMENTS) {
            assert_int_equal(p->call, r->calls - 1);
            assert_int_equal(r->calls, r->ended + 1);
            record_add(r, p->text.data, p->text.length);
        } else {
            assert_int_equal(p->kind, MO_PIECE_CALL_END);
            assert_int_equal(p->call, r->calls - 1);
            r->ended++;
            record_add(r, ")", 1);
        }
    }
}

/* ---- The stored answers ---- */

static json_t *stored;
static char *tools_text;
static size_t tools_length;

static int load(void **state)
{
    json_error_t at;
    (void)state;
    stored = json_load_file(MO_TEST_DATA "/dialogue/answers.json", 0, &at);
    assert_non_null(stored);
    tools_text = json_dumps(json_object_get(stored, "tools"), 0);
    tools_length = strlen(tools_text);
    return 0;
}

static int unload(void **state)
{
    (void)state;
    free(tools_text);
    json_decref(stored);
    return 0;
}

static mo_style_id style_named(const char *name)
{
    for (int i = 0; i < MO_STYLES; i++) {
        if (!strcmp(mo_style_get((mo_style_id)i)->name, name)) {
            return (mo_style_id)i;
        }
    }
    fail_msg("no style %s", name);
    return MO_STYLE_GENERIC;
}

static const char *text_of(const json_t *c, const char *key)
{
    const char *text = json_string_value(json_object_get(c, key));
    return text ? text : "";
}

static mo_status open_reply(mo_reply *reply, const json_t *c, const mo_tokenizer *t, mo_error *err)
{
    const mo_dialogue d = dialogue_of(style_named(text_of(c, "style")), text_of(c, "thought"));
    const bool with_tools = !json_is_false(json_object_get(c, "tools"));
    const mo_reply_options o = {.size = sizeof o,
                                .in_thought = json_is_true(json_object_get(c, "in_thought")),
                                .keep_thought = json_is_true(json_object_get(c, "keep_thought")),
                                .single = json_is_true(json_object_get(c, "single")),
                                .tools = with_tools ? tools_text : NULL,
                                .tools_length = tools_length};
    return mo_reply_init(reply, t, d, &o, err);
}

static void put(mo_reply *reply, record *r, const char *text, size_t length)
{
    const mo_piece *pieces;
    size_t count;
    assert_int_equal(mo_reply_put_text(reply, text, length, &pieces, &count, NULL), MO_OK);
    record_pieces(r, pieces, count);
}

static void finish(mo_reply *reply, record *r)
{
    const mo_piece *pieces;
    size_t count;
    assert_int_equal(mo_reply_flush(reply, &pieces, &count, NULL), MO_OK);
    record_pieces(r, pieces, count);
    assert_int_equal(r->calls, r->ended);
    record_close(r);
    mo_reply_free(reply);
}

static void begin(mo_reply *reply, record *r, const json_t *c, const mo_tokenizer *t)
{
    mo_error err;
    r->length = 0;
    r->text[0] = 0;
    r->kind = -1;
    r->calls = r->ended = 0;
    r->certain = 0;
    assert_int_equal(open_reply(reply, c, t, &err), MO_OK);
}

/* The text in parts that end at the cuts. */
static void read_cut(record *r, const json_t *c, const char *text, size_t length, size_t first, size_t second)
{
    mo_reply reply;
    begin(&reply, r, c, NULL);
    put(&reply, r, text, first);
    put(&reply, r, text + first, second - first);
    put(&reply, r, text + second, length - second);
    finish(&reply, r);
}

static void write_wanted(const json_t *c, record *r)
{
    size_t i;
    json_t *item;
    *r = (record){.kind = -1};
    json_array_foreach(json_object_get(c, "want"), i, item)
    {
        const char *kind = json_string_value(json_array_get(item, 0));
        const json_t *a = json_array_get(item, 1), *b = json_array_get(item, 2);
        if (!strcmp(kind, "call")) {
            record_add(r, "call ", 5);
            record_add(r, json_string_value(a), json_string_length(a));
            record_add(r, "(", 1);
            record_add(r, json_string_value(b), json_string_length(b));
        } else {
            record_add(r, kind, strlen(kind));
            record_add(r, "(", 1);
            record_add(r, json_string_value(a), json_string_length(a));
        }
        record_add(r, ")", 1);
    }
}

static void expect(const json_t *c, const record *got, const record *want, size_t first, size_t second)
{
    if (strcmp(got->text, want->text) != 0) {
        print_error("%s, %s, cut at %zu and %zu:\n%s\nnot\n%s\n", text_of(c, "style"), text_of(c, "name"),
                    first, second, got->text, want->text);
        fail();
    }
}

static record got, want;

static void answers_are_the_same_however_they_are_cut(void **state)
{
    size_t i;
    json_t *c;
    (void)state;
    json_array_foreach(json_object_get(stored, "cases"), i, c)
    {
        const json_t *text = json_object_get(c, "text");
        const char *s = json_string_value(text);
        const size_t n = json_string_length(text);
        write_wanted(c, &want);
        for (size_t first = 0; first <= n; first++) {
            const size_t last = n <= (SANITIZED ? 24 : 60) ? n : first;
            for (size_t second = first; second <= last; second++) {
                read_cut(&got, c, s, n, first, second);
                expect(c, &got, &want, first, second);
            }
        }
        mo_reply reply;
        begin(&reply, &got, c, NULL);
        for (size_t k = 0; k < n; k++) {
            put(&reply, &got, s + k, 1);
        }
        finish(&reply, &got);
        expect(c, &got, &want, 1, 1);
    }
}

/* However early a limit ends it: no mark, and nothing of a call, becomes text. */
static void an_answer_that_is_cut_short_is_the_beginning_of_the_whole(void **state)
{
    size_t i;
    json_t *c;
    (void)state;
    json_array_foreach(json_object_get(stored, "cases"), i, c)
    {
        const json_t *text = json_object_get(c, "text");
        const char *s = json_string_value(text);
        write_wanted(c, &want);
        for (size_t n = 0; n <= json_string_length(text); n++) {
            mo_reply reply;
            const mo_piece *pieces;
            size_t count;
            begin(&reply, &got, c, NULL);
            put(&reply, &got, s, n);
            assert_int_equal(mo_reply_cut(&reply, &pieces, &count, NULL), MO_OK);
            record_pieces(&got, pieces, count);
            assert_int_equal(got.calls, got.ended);
            mo_reply_free(&reply);
            size_t same = 0;
            while (same < got.certain && got.text[same] == want.text[same]) {
                same++;
            }
            if (same < got.certain) {
                print_error("%s, %s, ended after %zu:\n%.*s\nnot\n%s\n", text_of(c, "style"),
                            text_of(c, "name"), n, (int)got.certain, got.text, want.text);
                fail();
            }
        }
    }
}

/* ---- Tokens ---- */

/* A vocabulary of all bytes, and of the marks of every family as control tokens (3) or user-defined ones (4). */
static mo_tokenizer *open_vocabulary(int kind)
{
    static toy v;
    mo_tokenizer *t;
    mo_error err;
    memset(&v, 0, sizeof v);
    v.model = "gemma4";
    v.pre = "gemma4";
    v.no_scores = true;
    toy_add_bytes(&v);
    toy_add(&v, MARK, 1, 0); /* a blank */
    for (int i = 0; i < MO_STYLES; i++) {
        for (const mo_mark *m = mo_style_get((mo_style_id)i)->marks; m->text; m++) {
            const size_t n = strlen(m->text);
            const bool whole = n > 3 && (m->text[0] == '<' || m->text[0] == '[') &&
                               (m->text[n - 1] == '>' || m->text[n - 1] == ']');
            if (whole) {
                toy_add(&v, m->text, kind, 0);
            }
        }
    }
    static const char *const thoughts[] = {"<think>",    "</think>", "<|channel>",
                                           "<channel|>", "[THINK]",  "[/THINK]"};
    for (size_t i = 0; i < sizeof thoughts / sizeof *thoughts; i++) {
        toy_add(&v, thoughts[i], kind, 0);
    }
    toy_add(&v, "<|im_end|>", 3, 0);
    mo_gguf *g = toy_open(&v);
    assert_non_null(g);
    assert_int_equal(mo_tokenizer_create(g, &t, &err), MO_OK);
    mo_gguf_close(g);
    return t;
}

static void read_tokens(record *r, const json_t *c, const mo_tokenizer *t, const char *text, size_t length)
{
    int32_t *ids;
    size_t count, n;
    mo_reply reply;
    mo_error err;
    const mo_piece *pieces;
    assert_int_equal(mo_tokenizer_encode(t, text, length, MO_TOKENIZE_SPECIAL, &ids, &count, &err), MO_OK);
    begin(&reply, r, c, t);
    for (size_t i = 0; i <= count; i++) {
        const int32_t id = i < count ? ids[i] : mo_token_find(t, "<|im_end|>");
        assert_int_equal(mo_reply_put(&reply, id, &pieces, &n, &err), MO_OK);
        record_pieces(r, pieces, n);
    }
    finish(&reply, r);
    free(ids);
}

/* Where marks are control tokens, one within a string or without a role ends what is being read: those answers differ. */
static bool only_by_letters(const json_t *c)
{
    static const char *const names[] = {"nested and unicode",
                                        "mark that began nothing",
                                        "string with tags and newlines",
                                        "no tools",
                                        "single",
                                        "close without open is text",
                                        "open later is text",
                                        "string with tags",
                                        "opening missing",
                                        "values",
                                        "no call",
                                        "broken JSON",
                                        "brackets",
                                        "python code",
                                        "kept thought",
                                        "kept thought of the prompt"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(names[i], text_of(c, "name"))) {
            return true;
        }
    }
    return false;
}

static void tokens_give_what_letters_give(void **state)
{
    (void)state;
    for (int kind = 3; kind <= 4; kind++) {
        mo_tokenizer *t = open_vocabulary(kind);
        size_t i;
        json_t *c;
        json_array_foreach(json_object_get(stored, "cases"), i, c)
        {
            const json_t *text = json_object_get(c, "text");
            if (kind == 4 || !only_by_letters(c)) {
                write_wanted(c, &want);
                read_tokens(&got, c, t, json_string_value(text), json_string_length(text));
                expect(c, &got, &want, 0, 0);
            }
        }
        mo_tokenizer_destroy(t);
    }
}

static json_t *case_of(const char *style, const char *thought, bool tools)
{
    return json_pack("{s:s, s:s, s:b}", "style", style, "thought", thought, "tools", tools);
}

static void letters_of_a_control_token_are_text(void **state)
{
    (void)state;
    mo_tokenizer *t = open_vocabulary(3);
    json_t *c = case_of("harmony", "", true);
    mo_reply reply;
    const mo_piece *pieces;
    size_t n;
    begin(&reply, &got, c, t);
    const char *const head = "<|channel|>final<|message|>", *const text = "A mark: <|end|>.";
    int32_t *ids;
    size_t count;
    assert_int_equal(mo_tokenizer_encode(t, head, strlen(head), MO_TOKENIZE_SPECIAL, &ids, &count, NULL),
                     MO_OK);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(mo_reply_put(&reply, ids[i], &pieces, &n, NULL), MO_OK);
    }
    free(ids);
    assert_int_equal(mo_tokenizer_encode(t, text, strlen(text), 0, &ids, &count, NULL), MO_OK);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(mo_reply_put(&reply, ids[i], &pieces, &n, NULL), MO_OK);
        record_pieces(&got, pieces, n);
    }
    free(ids);
    finish(&reply, &got);
    assert_string_equal(got.text, "text(A mark: <|end|>.)");
    json_decref(c);
    mo_tokenizer_destroy(t);
}

/* A control token breaks off what is being read, wherever it stands. */
static void control_tokens_end_what_is_broken_off(void **state)
{
    (void)state;
    mo_tokenizer *t = open_vocabulary(3);
    json_t *c = case_of("harmony", "", true);
    const char *text = "<|channel|>commentary to=functions.get_weather json<|message|>{\"city\": "
                       "\"B<|end|><|start|>assistant"
                       "<|channel|>final<|message|>ok";
    read_tokens(&got, c, t, text, strlen(text));
    assert_string_equal(got.text, "call get_weather({\"city\": \"B)text(ok)");
    json_decref(c);
    c = case_of("hermes", "think", true);
    text = "<tool_call>\n{\"na<think>\nmore";
    read_tokens(&got, c, t, text, strlen(text));
    assert_string_equal(got.text, "text(<tool_call>\n{\"na\nmore)");
    json_decref(c);
    mo_tokenizer_destroy(t);
}

static void broken_characters_are_replaced(void **state)
{
    (void)state;
    json_t *c = case_of("hermes", "think", true);
    mo_reply reply;
    begin(&reply, &got, c, NULL);
    put(&reply, &got, "<think>\xC3</think>4\xC3", 18);
    finish(&reply, &got);
    assert_string_equal(got.text, "thought(\xEF\xBF\xBD)text(4\xEF\xBF\xBD)");
    json_decref(c);
}

/* ---- What comes early ---- */

static void names_and_arguments_come_at_once(void **state)
{
    static const struct {
        const char *style, *before, *want;
    } table[] = {
        {"hermes", "<tool_call>{\"name\": \"get_weather\"", "call get_weather("},
        {"hermes", "<tool_call>{\"name\": \"edit\", \"arguments\": {\"text\": \"ab",
         "call edit({\"text\": \"ab"},
        {"qwen3-coder", "<tool_call>\n<function=edit>", "call edit("},
        {"qwen3-coder", "<tool_call>\n<function=edit>\n<parameter=text>\nab<", "call edit({\"text\":\"ab"},
        {"glm", "<tool_call>edit\n<arg_key>text</arg_key>\n<arg_value>a\nb", "call edit({\"text\":\"a\\nb"},
        {"gemma4", "<|tool_call>call:edit{text:<|\"|>ab", "call edit({\"text\":\"ab"},
        {"harmony", "<|channel|>commentary to=functions.edit json<|message|>{\"t", "call edit({\"t"},
        {"llama3", "{\"name\": \"edit\", \"parameters\": {\"t", "call edit({\"t"},
        {"generic", "{\"tool_call\": {\"name\": \"edit\", \"arguments\": {\"t", "call edit({\"t"},
        {"generic", "{\"response\": \"He", "text(He"},
        {"hermes", "He", "text(He"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        json_t *c = case_of(table[i].style, "", true);
        mo_reply reply;
        begin(&reply, &got, c, NULL);
        put(&reply, &got, table[i].before, strlen(table[i].before));
        assert_string_equal(got.text, table[i].want);
        finish(&reply, &got);
        json_decref(c);
    }
}

static void ids_are_as_the_family_wants_them(void **state)
{
    size_t i;
    json_t *c;
    char seen[8][160] = {{0}};
    (void)state;
    json_array_foreach(json_object_get(stored, "cases"), i, c)
    {
        const json_t *text = json_object_get(c, "text");
        const json_t *ids = json_object_get(c, "ids");
        read_cut(&got, c, json_string_value(text), json_string_length(text), 0, 0);
        for (int k = 0; k < got.calls; k++) {
            if (ids) {
                assert_string_equal(got.ids[k], json_string_value(json_array_get(ids, (size_t)k)));
            } else if (!strncmp(text_of(c, "style"), "mistral", 7)) {
                assert_int_equal(strlen(got.ids[k]), 9);
                assert_int_equal(
                    strspn(got.ids[k], "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"), 9);
            } else {
                assert_int_equal(strncmp(got.ids[k], "call_", 5), 0);
                assert_int_equal(strlen(got.ids[k]), 29);
            }
            for (int j = 0; j < 8 && !ids; j++) {
                assert_string_not_equal(got.ids[k], seen[j]);
            }
            memcpy(seen[k & 7], got.ids[k], sizeof seen[0]);
        }
    }
}

/* ---- Reasoning ---- */

static void thoughts_can_be_ended(void **state)
{
    static const struct {
        const char *style, *thought, *before, *want;
        bool tools;
    } table[] = {
        {"hermes", "think", "<think>\nhm", "</think>", true},
        {"gemma4", "gemma4", "<|channel>thought\nhm", "<channel|>", false},
        {"harmony", "", "<|channel|>analysis<|message|>hm",
         "<|end|><|start|>assistant<|channel|>final<|message|>", false},
        {"harmony", "", "<|channel|>analysis<|message|>hm", "<|end|><|start|>assistant<|channel|>commentary",
         true},
        {"hermes", "think", "<think>\nhm</think>", "", true},
        {"hermes", "think", "text", "", true},
    };
    (void)state;
    mo_tokenizer *t = open_vocabulary(3);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        json_t *c = case_of(table[i].style, table[i].thought, table[i].tools);
        mo_reply reply;
        const int32_t *ids;
        int32_t *given;
        size_t count, n, wanted;
        const mo_piece *pieces;
        begin(&reply, &got, c, t);
        assert_int_equal(mo_tokenizer_encode(t, table[i].before, strlen(table[i].before), MO_TOKENIZE_SPECIAL,
                                             &given, &n, NULL),
                         MO_OK);
        for (size_t k = 0; k < n; k++) {
            assert_int_equal(mo_reply_put(&reply, given[k], &pieces, &count, NULL), MO_OK);
        }
        free(given);
        assert_int_equal(mo_tokenizer_encode(t, table[i].want, strlen(table[i].want), MO_TOKENIZE_SPECIAL,
                                             &given, &wanted, NULL),
                         MO_OK);
        assert_int_equal(mo_reply_thought_end(&reply, &ids, &count, NULL), MO_OK);
        assert_int_equal(count, wanted);
        assert_memory_equal(ids, given, count * sizeof *ids);
        assert_int_equal(mo_reply_in_thought(&reply), count > 0);
        for (size_t k = 0; k < wanted; k++) {
            assert_int_equal(mo_reply_put(&reply, given[k], &pieces, &count, NULL), MO_OK);
        }
        assert_false(mo_reply_in_thought(&reply));
        free(given);
        mo_reply_free(&reply);
        json_decref(c);
    }
    mo_tokenizer_destroy(t);
}

static void prompts_that_open_a_thought_are_known(void **state)
{
    static const struct {
        mo_style_id style;
        const char *thought, *prompt;
        bool want;
    } table[] = {
        {MO_STYLE_HERMES, "think", "<|im_start|>assistant\n<think>\n", true},
        {MO_STYLE_HERMES, "think", "<|im_start|>assistant\n<think>\n\n</think>\n\n", false},
        {MO_STYLE_HERMES, "", "<think>", false},
        {MO_STYLE_GLM, "think", "<|assistant|><think>", true},
        {MO_STYLE_HY, "hy", "<think:opensource>", true},
        {MO_STYLE_HY, "hy", "<think:opensource></think:opensource>", false},
        {MO_STYLE_COHERE, "cohere", "<|CHATBOT_TOKEN|><|START_THINKING|>", true},
        {MO_STYLE_COHERE, "cohere", "<|START_THINKING|><|END_THINKING|>", false},
        {MO_STYLE_HARMONY, "", "<|start|>assistant", false},
        {MO_STYLE_HARMONY, "", "<|start|>assistant<|channel|>analysis<|message|>", true},
        {MO_STYLE_GEMMA4, "gemma4", "<|turn>model\n<|channel>thought\n", true},
        {MO_STYLE_GEMMA4, "gemma4", "<|channel>thought\n<channel|>", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const mo_dialogue d = dialogue_of(table[i].style, table[i].thought);
        assert_int_equal(mo_dialogue_in_thought(&d, table[i].prompt, strlen(table[i].prompt)), table[i].want);
    }
}

/* ---- Who is who ---- */

static void templates_say_how_a_model_writes(void **state)
{
    static const struct {
        const char *template_text, *style, *thought_close;
        bool tools;
    } table[] = {
        {"{{ tools }} <tool_call> <think></think>", "hermes", "</think>", true},
        {"tools <tool_call>\\n<function= <parameter=", "qwen3-coder", NULL, true},
        {"tools <seed:tool_call> <function= <parameter= </seed:think>", "seed", "</seed:think>", true},
        {"<|start|> <|channel|> <|message|> tools", "harmony", NULL, true},
        {"tools <tool_call> <arg_key> </think>", "glm", "</think>", true},
        {"<" BAR "tool" MARK "calls" MARK "begin" BAR "> ```json", "deepseek-v3", NULL, false},
        {"<" BAR "tool" MARK "calls" MARK "begin" BAR "> tools", "deepseek-v3.1", NULL, true},
        {"<" BAR "DSML" BAR "function_calls>", "dsml", NULL, false},
        {"tools <" BAR "DSML" BAR "function_calls> message['tool_calls']", "dsml", NULL, true},
        {"tools <" BAR "DSML" BAR "tool_calls>", "dsml4", NULL, true},
        {"tools '" BAR "DSML" BAR "' '<' + mark + 'tool_calls>'", "dsml4", NULL, true},
        {"<|start_header_id|> tools", "llama3", NULL, true},
        {"<|start_header_id|>", "generic", NULL, false},
        {"<|turn> <|tool_call>call: <|channel> <channel|> tools", "gemma4", "<channel|>", true},
        {"<minimax:tool_call> tools </think>", "minimax", "</think>", true},
        {"tools <tool_call:opensource> <tool_sep:opensource> <arg_key:opensource> </think:opensource>", "hy",
         "</think:opensource>", true},
        {"tools <|START_ACTION|> <|START_TEXT|> <|END_THINKING|>", "cohere", "<|END_THINKING|>", true},
        {"<|tool_calls_section_begin|> tools", "kimi", NULL, true},
        {"[TOOL_CALLS] tools", "mistral", NULL, true},
        {"[TOOL_CALLS] tools [ARGS] [THINK] [/THINK]", "mistral3", "[/THINK]", true},
        {"<|tool_call|> available_tools <think></think> <response>", "granite", "</think>", true},
        {"tools <tool_calls>", "jamba", NULL, true},
        {"tools <tool_calls> <think></think> <answer></answer>", "jamba", "</think>", true}, /* Hunyuan */
        {"message['tools'] <|tool|> <|/tool|>", "phi4", NULL, true},
        {"tools <|im_start|> <|tool_list_start|>", "lfm2", NULL, true},
        {"<start_of_turn>", "generic", NULL, false},
        {"", "generic", NULL, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const mo_dialogue d = mo_dialogue_detect(table[i].template_text, table[i].tools, NULL);
        assert_string_equal(d.style->name, table[i].style);
        if (table[i].thought_close) {
            assert_non_null(d.thought);
            assert_string_equal(d.thought->close, table[i].thought_close);
        } else {
            assert_null(d.thought);
        }
    }
    mo_tokenizer *t = open_vocabulary(3);
    assert_string_equal(mo_dialogue_detect("", false, t).style->name, "harmony");
    mo_tokenizer_destroy(t);
}

static void real_templates_are_known(void **state)
{
    static const struct {
        const char *file, *style, *thought_close;
        bool tools;
    } table[] = {
        {"deepseek-v3.1", "deepseek-v3.1", "</think>", false},
        {"gemma-4", "gemma4", "<channel|>", true},
        {"glm-4.6", "glm", "</think>", true},
        {"gpt-oss", "harmony", NULL, true},
        {"granite-3.3", "granite", "</think>", true},
        {"mistral-nemo", "mistral", NULL, true},
        {"mixtral-8x7b", "generic", NULL, false},
        {"olmo2", "generic", NULL, false},
        {"qwen2.5", "hermes", NULL, true},
        {"qwen3-coder", "qwen3-coder", NULL, true},
        {"qwen3", "hermes", "</think>", true},
        {"smollm2", "generic", NULL, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        static char text[1 << 16];
        char path[512];
        snprintf(path, sizeof path, MO_TEST_DATA "/templates/text/%s.jinja", table[i].file);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        text[fread(text, 1, sizeof text - 1, f)] = 0;
        fclose(f);
        const mo_dialogue d = mo_dialogue_detect(text, table[i].tools, NULL);
        assert_string_equal(d.style->name, table[i].style);
        assert_string_equal(d.thought ? d.thought->close : "",
                            table[i].thought_close ? table[i].thought_close : "");
    }
}

static void tools_that_make_no_sense_are_refused(void **state)
{
    static const struct {
        const char *json, *says;
    } table[] = {
        {"{}", "list"},
        {"[", "line 1"},
        {"[{}]", "name"},
        {"[{\"type\": \"function\", \"function\": {\"name\": 3}}]", "name"},
        {"[{\"name\": \"a b\"}]", "a b"},
        {"[{\"name\": \"a\"}, {\"name\": \"a\"}]", "another"},
        {"[{\"name\": \"a\", \"parameters\": []}]", "schema"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        mo_tools *tools;
        mo_error err;
        assert_int_equal(mo_tools_open(table[i].json, strlen(table[i].json), &tools, &err), MO_EINVAL);
        assert_null(tools);
        assert_non_null(strstr(err.detail, table[i].says));
    }
}

static void hostile_schemas_take_no_time(void **state)
{
    const char *json =
        "[{\"name\": \"f\", \"parameters\": {\"$defs\": {\"a\": {\"anyOf\": [{\"$ref\": \"#/$defs/a\"}, "
        "{\"$ref\": "
        "\"#/$defs/a\"}, {\"$ref\": \"#/$defs/a\"}]}}, \"properties\": {\"x\": {\"$ref\": \"#/$defs/a\"}}}}]";
    mo_tools *tools;
    mo_error err;
    (void)state;
    assert_int_equal(mo_tools_open(json, strlen(json), &tools, &err), MO_OK);
    assert_int_equal(mo_tools_types(tools, 0, "x", 1), 0);
    mo_tools_close(tools);
}

/* ---- Hostile answers ---- */

/* Pieces of the stored answers and noise, put together at random: in one part and byte by byte they give the same. */
static void anything_may_come(void **state)
{
    const json_t *cases = json_object_get(stored, "cases");
    static char text[4096];
    uint64_t seed = 7;
    (void)state;
    for (int round = 0; round < 3000; round++) {
        const json_t *c = json_array_get(cases, random_next(&seed) % json_array_size(cases));
        size_t n = 0;
        for (int part = 0; part < 6; part++) {
            const bool own = random_next(&seed) % 4 != 0;
            const json_t *from = json_object_get(
                own ? c : json_array_get(cases, random_next(&seed) % json_array_size(cases)), "text");
            const size_t length = json_string_length(from), at = random_next(&seed) % (length + 1);
            size_t take = random_next(&seed) % (length - at + 1);
            take = take > 500 ? 500 : take;
            memcpy(text + n, json_string_value(from) + at, take);
            n += take;
            if (random_next(&seed) % 3 == 0) {
                text[n++] = (char)(random_next(&seed) & 0xFF);
            }
        }
        read_cut(&want, c, text, n, 0, 0);
        mo_reply reply;
        begin(&reply, &got, c, NULL);
        for (size_t k = 0; k < n; k++) {
            put(&reply, &got, text + k, 1);
        }
        finish(&reply, &got);
        expect(c, &got, &want, 0, 0);
    }
}

static void memory_may_run_out(void **state)
{
    const json_t *cases = json_object_get(stored, "cases");
    size_t i;
    json_t *c;
    (void)state;
    json_array_foreach(cases, i, c)
    {
        const json_t *text = json_object_get(c, "text");
        bool done = false;
        for (long k = 0; !done; k++) {
            mo_reply reply;
            mo_error err;
            const mo_piece *pieces;
            size_t count;
            refusals = 0;
            fail_after = k;
            mo_status status = open_reply(&reply, c, NULL, &err);
            const bool opened = status == MO_OK;
            if (opened) {
                status = mo_reply_put_text(&reply, json_string_value(text), json_string_length(text), &pieces,
                                           &count, &err);
                if (status == MO_OK) {
                    status = mo_reply_flush(&reply, &pieces, &count, &err);
                }
            }
            done = refusals == 0;
            fail_after = -1;
            assert_true(status == MO_OK || status == MO_ENOMEM || (!opened && status == MO_EINVAL));
            if (opened) {
                mo_reply_free(&reply);
            }
            k += k > 60 ? 7 : 0;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_the_same_however_they_are_cut),
        cmocka_unit_test(an_answer_that_is_cut_short_is_the_beginning_of_the_whole),
        cmocka_unit_test(tokens_give_what_letters_give),
        cmocka_unit_test(letters_of_a_control_token_are_text),
        cmocka_unit_test(control_tokens_end_what_is_broken_off),
        cmocka_unit_test(broken_characters_are_replaced),
        cmocka_unit_test(names_and_arguments_come_at_once),
        cmocka_unit_test(ids_are_as_the_family_wants_them),
        cmocka_unit_test(thoughts_can_be_ended),
        cmocka_unit_test(prompts_that_open_a_thought_are_known),
        cmocka_unit_test(templates_say_how_a_model_writes),
        cmocka_unit_test(real_templates_are_known),
        cmocka_unit_test(tools_that_make_no_sense_are_refused),
        cmocka_unit_test(hostile_schemas_take_no_time),
        cmocka_unit_test(anything_may_come),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests_name("reply", tests, load, unload);
}
