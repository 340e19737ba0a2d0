/* Fuzzing the tokenizers: any bytes through any of the synthetic vocabularies, chosen by the first byte.
 * Byte-level vocabularies must give the bytes back (those that compose: the same text in normal form), and a stream must give valid UTF-8. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/compose.h"
#include "text/stream.h"
#include "vocabulary.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {"llama-bpe",      "glm4",         "qwen2",       "qwen35", "smollm",
                                    "gpt-2",          "olmo",         "deepseek-v3", "gpt-4o", "tekken",
                                    "deepseek-coder", "deepseek-llm", "gemma4"};
enum { NAMES = sizeof names / sizeof *names };
static mo_tokenizer *tokenizers[NAMES];

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    for (int i = 0; i < NAMES; i++) {
        mo_gguf *g;
        mo_error err;
        require(vocabulary_open(names[i], &g, &err) == MO_OK);
        require(mo_tokenizer_create(g, &tokenizers[i], &err) == MO_OK);
        mo_gguf_close(g);
    }
    return 0;
}

/* Vocabularies whose publisher puts texts in normal form C. */
static int composes(const char *name)
{
    return strcmp(name, "qwen2") == 0 || strcmp(name, "qwen35") == 0 || strcmp(name, "olmo") == 0;
}

static void require_same_composed(const uint8_t *a, size_t a_length, const uint8_t *b, size_t b_length)
{
    mo_compose left = {0}, right = {0};
    require(mo_compose_run(&left, a, a_length) && mo_compose_run(&right, b, b_length));
    require(left.length == right.length);
    require(!left.length || !memcmp(left.text, right.text, left.length));
    mo_compose_free(&left);
    mo_compose_free(&right);
}

static void check_stream(const mo_tokenizer *t, const int32_t *ids, size_t count)
{
    mo_stream stream;
    mo_text out;
    mo_stream_init(&stream, t, MO_DETOKENIZE_SPECIAL);
    for (size_t i = 0; i <= count; i++) {
        const mo_status s =
            i < count ? mo_stream_put(&stream, ids[i], &out, NULL) : mo_stream_flush(&stream, &out, NULL);
        require(s == MO_OK);
        for (size_t at = 0, n; at < out.length; at += n) {
            n = mo_utf8_length((const uint8_t *)out.data + at, out.length - at);
            require(n > 0);
        }
    }
    mo_stream_free(&stream);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    const int which = data[0] % NAMES;
    const mo_tokenizer *t = tokenizers[which];
    const char *text = (const char *)data + 1;
    const unsigned flags = data[0] & 0x80 ? MO_TOKENIZE_SPECIAL : 0;
    int32_t *ids;
    size_t count, length;
    char *back;
    mo_error err;
    require(mo_tokenizer_encode(t, text, size - 1, flags, &ids, &count, &err) == MO_OK);
    require(mo_detokenize(t, ids, count, MO_DETOKENIZE_SPECIAL, &back, &length, &err) == MO_OK);
    if (composes(names[which])) {
        require_same_composed((const uint8_t *)back, length, data + 1, size - 1);
    } else if (which < NAMES - 1) {
        require(length == size - 1 && !memcmp(back, text, length));
    }
    check_stream(t, ids, count);
    free(back);
    free(ids);
    return 0;
}
