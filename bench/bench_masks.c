/* bench_masks [TOKENS | MODEL.gguf]: what masks of constraints take: with a made-up vocabulary of so many tokens (200,000), or with a
 * model's. The made-up one has words of several scripts, with and without a space before them, numbers, blanks and punctuation
 * as code has it, in shares like those of published vocabularies. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gguf/write.h"
#include "grammar/grammar.h"
#include "grammar/schema.h"

static uint64_t seed = 1;

static uint32_t random_below(uint32_t limit)
{
    uint64_t z = (seed += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (uint32_t)((z ^ (z >> 31)) % limit);
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void fail(const char *what)
{
    fprintf(stderr, "bench_masks: %s\n", what);
    exit(1);
}

/* ---- A vocabulary ---- */

enum { TOKEN_BYTES = 64 };

static void append(char *to, const char *text)
{
    const size_t length = strlen(to);
    snprintf(to + length, TOKEN_BYTES - length, "%s", text);
}

static void add_character(char *to, uint32_t c)
{
    char text[5] = {0};
    if (c < 0x80) {
        text[0] = (char)c;
    } else if (c < 0x800) {
        text[0] = (char)(0xC0 | c >> 6);
        text[1] = (char)(0x80 | (c & 0x3F));
    } else {
        text[0] = (char)(0xE0 | c >> 12);
        text[1] = (char)(0x80 | (c >> 6 & 0x3F));
        text[2] = (char)(0x80 | (c & 0x3F));
    }
    append(to, text);
}

static void make_token(char *to)
{
    static const char letters[] = "eeeeettttaaaooiinnsshhrrddlucmfwypvbgkjqxz";
    static const char marks[] = "\"\"\"\\'(){}[]<>=+-*/.,:;!?#$%&@_|~\n\t";
    const uint32_t kind = random_below(100);
    const uint32_t length = 1 + random_below(4) + random_below(5) + (kind < 70 ? random_below(4) : 0);
    to[0] = '\0';
    if (kind < 82 && random_below(2)) {
        append(to, "\xE2\x96\x81"); /* a space */
    }
    for (uint32_t i = 0; i < length; i++) {
        if (kind < 70) {
            const char c = letters[random_below(sizeof letters - 1)];
            add_character(to, (uint32_t)(i == 0 && kind < 20 ? c - 32 : c));
        } else if (kind < 80) {
            add_character(to, 0x430 + random_below(32));
        } else if (kind < 91) {
            add_character(to, 0x4E00 + random_below(8000));
        } else if (kind < 93) {
            add_character(to, '0' + random_below(10));
        } else {
            add_character(to, (uint32_t)marks[random_below(sizeof marks - 1)]);
        }
    }
}

static mo_tokenizer *make_vocabulary(int32_t count)
{
    mo_text *tokens = calloc((size_t)count, sizeof *tokens);
    int32_t *types = calloc((size_t)count, sizeof *types);
    float *scores = calloc((size_t)count, sizeof *scores);
    char *texts = malloc((size_t)count * TOKEN_BYTES);
    mo_gguf_writer *w = mo_gguf_writer_create(0);
    mo_gguf *g = NULL;
    mo_tokenizer *t = NULL;
    mo_error err;
    if (!tokens || !types || !scores || !texts || !w) {
        fail("no memory");
    }
    for (int32_t i = 0; i < count; i++) {
        char *text = texts + (size_t)i * TOKEN_BYTES;
        types[i] = 1;
        if (i < 256) {
            snprintf(text, TOKEN_BYTES, "<0x%02X>", (unsigned)i);
            types[i] = 6;
        } else if (i == 256) {
            snprintf(text, TOKEN_BYTES, "%s", "</s>");
            types[i] = 3;
        } else {
            make_token(text);
        }
        tokens[i] = (mo_text){text, strlen(text)};
    }
    mo_gguf_put_string(w, "general.architecture", "llama");
    mo_gguf_put_string(w, "tokenizer.ggml.model", "llama");
    mo_gguf_put_texts(w, "tokenizer.ggml.tokens", tokens, (uint64_t)count);
    mo_gguf_put_array(w, "tokenizer.ggml.token_type", MO_VALUE_I32, types, (uint64_t)count);
    mo_gguf_put_array(w, "tokenizer.ggml.scores", MO_VALUE_F32, scores, (uint64_t)count);
    mo_gguf_put_u32(w, "tokenizer.ggml.eos_token_id", 256);
    const mo_gguf_layout *file = mo_gguf_writer_layout(w, &err) == MO_OK ? mo_gguf_writer_file(w) : NULL;
    if (!file || mo_gguf_open_memory(file->header, file->header_bytes, "made.gguf", &g, &err) != MO_OK ||
        mo_tokenizer_create(g, &t, &err) != MO_OK) {
        fail(err.detail);
    }
    mo_gguf_close(g);
    mo_gguf_writer_destroy(w);
    free(tokens);
    free(types);
    free(scores);
    free(texts);
    return t;
}

static mo_tokenizer *read_vocabulary(const char *path)
{
    mo_gguf *g;
    mo_tokenizer *t;
    mo_error err;
    if (mo_gguf_open(path, &g, &err) != MO_OK || mo_tokenizer_create(g, &t, &err) != MO_OK) {
        fail(err.detail);
    }
    mo_gguf_close(g);
    return t;
}

/* ---- Masks ---- */

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"note\":{\"type\":\"string\","
    "\"maxLength\":500},\"code\":"
    "{\"type\":\"string\",\"maxLength\":12},\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"
    "\"count\":{\"type\":"
    "\"integer\"},\"more\":{}},\"required\":[\"name\",\"note\",\"code\",\"tags\",\"count\",\"more\"]}";

static const char answer[] =
    "{\"name\": \"A fox of some age\", \"note\": \"It lives in the woods, and \\\"eats\\\" what it finds.\", "
    "\"code\": \"ab12\", "
    "\"tags\": [\"red\", \"quick\"], \"count\": 42, \"more\": {\"any\": [1, \"thing\", {\"else\": null}]}}";

static mo_grammar *open_grammar(mo_lexicon *lexicon)
{
    const mo_grammar_options options = {.size = sizeof options};
    char *gbnf, *notes;
    mo_grammar *g;
    mo_error err;
    if (mo_schema_write(schema, strlen(schema), "root", true, &gbnf, &notes, &err) != MO_OK ||
        mo_grammar_make(lexicon, gbnf, strlen(gbnf), &options, NULL, notes, &g, &err) != MO_OK) {
        fail(err.detail);
    }
    free(gbnf);
    return g;
}

static double mask_us(mo_constraint *c)
{
    const double begin = now_us();
    if (!mo_constraint_mask(c, NULL)) {
        fail("no mask");
    }
    return now_us() - begin;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Feeds the answer byte by byte with a mask before each: every state of it, for the first time or again. */
static void walk(mo_grammar *g, const char *what)
{
    double times[sizeof answer], accept = 0, sum = 0;
    const size_t count = sizeof answer - 1;
    mo_constraint *c;
    if (mo_constraint_open(g, &c, NULL) != MO_OK) {
        fail("no constraint");
    }
    for (size_t i = 0; i < count; i++) {
        times[i] = mask_us(c);
        sum += times[i];
        const double begin = now_us();
        if (mo_constraint_accept(c, (unsigned char)answer[i], NULL) != MO_OK) {
            fail("the answer is not accepted");
        }
        accept += now_us() - begin;
    }
    qsort(times, count, sizeof *times, by_value);
    printf("%-34s %9.1f %9.1f %9.1f %9.1f %9.1f\n", what, times[count / 2], times[count * 9 / 10],
           times[count - 1], sum / (double)count, accept / (double)count);
    mo_constraint_close(c);
}

/* The mask after a beginning of the answer, in a grammar that has not been asked yet. */
static void one_state(mo_lexicon *lexicon, const char *what, const char *prefix)
{
    double best = 1e30, first = 0;
    for (int round = 0; round < 5; round++) {
        mo_grammar *g = open_grammar(lexicon);
        mo_constraint *c;
        if (mo_constraint_open(g, &c, NULL) != MO_OK) {
            fail("no constraint");
        }
        for (const char *p = prefix; *p; p++) {
            if (mo_constraint_accept(c, (unsigned char)*p, NULL) != MO_OK) {
                fail("the answer is not accepted");
            }
        }
        const double took = mask_us(c);
        first = round == 0 ? took : first;
        best = took < best ? took : best;
        mo_constraint_close(c);
        mo_grammar_close(g);
    }
    printf("%-34s %9.1f %9.1f\n", what, first, best);
}

int main(int argc, char **argv)
{
    const bool file = argc > 1 && strstr(argv[1], ".gguf");
    const int32_t tokens = argc > 1 && !file ? atoi(argv[1]) : 200000;
    mo_tokenizer *t = file ? read_vocabulary(argv[1]) : make_vocabulary(tokens < 1000 ? 1000 : tokens);
    mo_lexicon *lexicon;
    mo_error err;
    if (mo_lexicon_open(t, mo_tokenizer_size(t), &lexicon, &err) != MO_OK) {
        fail(err.detail);
    }
    double begin = now_us();
    if (mo_lexicon_fill(lexicon, &err) != MO_OK) {
        fail(err.detail);
    }
    printf("vocabulary of %d tokens: trie of %" PRIu32 " nodes in %.1f ms, once per model\n",
           mo_tokenizer_size(t), mo_lexicon_trie(lexicon)->count, (now_us() - begin) * 1e-3);
    begin = now_us();
    mo_grammar *g = open_grammar(lexicon);
    printf("schema compiled in %.1f us\n\nmask of a state that is new (us)        first      best\n",
           now_us() - begin);
    one_state(lexicon, "in a string (first: with its run)", "{\"name\": \"A fo");
    one_state(lexicon, "in a string of at most 500", "{\"name\": \"A fox\", \"note\": \"It l");
    one_state(lexicon, "in a string with 8 to come", "{\"name\":\"A\",\"note\":\"\",\"code\": \"ab12");
    one_state(lexicon, "at the beginning", "");
    one_state(lexicon, "before a list's item", "{\"name\":\"A\",\"note\":\"\",\"code\":\"\",\"tags\": [");
    one_state(lexicon, "in a number", "{\"name\":\"A\",\"note\":\"\",\"code\":\"\",\"tags\":[],\"count\": 4");
    one_state(lexicon, "before any value",
              "{\"name\":\"A\",\"note\":\"\",\"code\":\"\",\"tags\":[],\"count\":4,\"more\": ");
    printf("\nan answer of %zu bytes, us            median       p90       max      mean    accept\n",
           sizeof answer - 1);
    walk(g, "first time");
    walk(g, "again: all masks are kept");
    mo_grammar_close(g);
    mo_lexicon_close(lexicon);
    mo_tokenizer_destroy(t);
    return 0;
}
