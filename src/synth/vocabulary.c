#include "synth/vocabulary.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"

enum {
    BYTES = 256,
    LETTERS = 26,
    PAIRS = LETTERS * LETTERS,
    MERGE_BYTES = 5,  /* two pairs and a blank */
    TOKEN_NORMAL = 1, /* token types in GGUF */
    TOKEN_CONTROL = 3,
    TOKEN_UNUSED = 5
};

/* Bytes of non-ASCII characters can only be input: chosen at random they would be invalid text, at which
   llama-server ends answers. */
static int32_t kind_of(int64_t token, int64_t count)
{
    if (token >= 128 && token < BYTES) {
        return TOKEN_UNUSED;
    }
    return token == count - 1 ? TOKEN_CONTROL : TOKEN_NORMAL;
}

/* The character of a byte in byte-level vocabularies: itself if it is visible, otherwise one from 256 on. */
static int character_of(int byte)
{
    int hidden = 0;
    for (int b = 0; b <= byte; b++) {
        const bool visible = (b > ' ' && b < 127) || (b > 160 && b != 173);
        if (b == byte) {
            return visible ? b : BYTES + hidden;
        }
        hidden += !visible;
    }
    return 0;
}

static mo_text text_of(const char *text, size_t length)
{
    return (mo_text){text, length};
}

/* At most two bytes, because no character is above 511. */
static mo_text byte_token(int byte, char *out)
{
    const int c = character_of(byte);
    if (c < 128) {
        out[0] = (char)c;
        return text_of(out, 1);
    }
    out[0] = (char)(0xC0 | c >> 6);
    out[1] = (char)(0x80 | (c & 63));
    return text_of(out, 2);
}

static void put_pair(int64_t pair, char *out)
{
    out[0] = (char)('a' + pair / LETTERS);
    out[1] = (char)('a' + pair % LETTERS);
}

/* Token `index` after the bytes, and its merge. */
static void put_word(int64_t index, char *out, char *merge, mo_text *token, mo_text *merged)
{
    if (index < PAIRS) {
        put_pair(index, out);
        merge[0] = out[0], merge[1] = ' ', merge[2] = out[1];
        *token = text_of(out, 2);
        *merged = text_of(merge, 3);
        return;
    }
    put_pair((index - PAIRS) / PAIRS, out);
    put_pair((index - PAIRS) % PAIRS, out + 2);
    memcpy(merge, out, 2);
    merge[2] = ' ';
    memcpy(merge + 3, out + 2, 2);
    *token = text_of(out, 4);
    *merged = text_of(merge, MERGE_BYTES);
}

mo_status mo_synth_vocabulary(mo_gguf_writer *w, mo_arena *arena, int64_t count, mo_error *err)
{
    static const char end[] = "<|end|>";
    if (count < MO_SYNTH_TOKENS_LEAST || count > MO_SYNTH_TOKENS_MOST) {
        return mo_fail(err, MO_EINVAL,
                       "a vocabulary of %lld tokens is not supported, only %d to %d; omit `vocabulary`",
                       (long long)count, MO_SYNTH_TOKENS_LEAST, MO_SYNTH_TOKENS_MOST);
    }
    const int64_t words = count - BYTES - 1;
    mo_text *tokens = mo_arena_array(arena, (size_t)count, sizeof *tokens);
    mo_text *merges = mo_arena_array(arena, (size_t)words + 1, sizeof *merges);
    int32_t *kinds = mo_arena_array(arena, (size_t)count, sizeof *kinds);
    char *bytes = mo_arena_array(arena, BYTES, 2);
    char *texts = mo_arena_array(arena, (size_t)words + 1, 4 + MERGE_BYTES);
    if (!tokens || !merges || !kinds || !bytes || !texts) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a vocabulary of %lld tokens", (long long)count);
    }
    for (int64_t i = 0; i < count; i++) {
        kinds[i] = kind_of(i, count);
    }
    for (int i = 0; i < BYTES; i++) {
        tokens[i] = byte_token(i, bytes + 2 * i);
    }
    for (int64_t i = 0; i < words; i++) {
        char *text = texts + i * (4 + MERGE_BYTES);
        put_word(i, text, text + 4, &tokens[BYTES + i], &merges[i]);
    }
    tokens[count - 1] = text_of(end, sizeof end - 1);
    mo_gguf_put_string(w, "tokenizer.ggml.model", "gpt2");
    mo_gguf_put_string(w, "tokenizer.ggml.pre", "qwen2");
    mo_gguf_put_texts(w, "tokenizer.ggml.tokens", tokens, (uint64_t)count);
    mo_gguf_put_array(w, "tokenizer.ggml.token_type", MO_VALUE_I32, kinds, (uint64_t)count);
    mo_gguf_put_texts(w, "tokenizer.ggml.merges", merges, (uint64_t)words);
    mo_gguf_put_u32(w, "tokenizer.ggml.eos_token_id", (uint32_t)(count - 1));
    mo_gguf_put_bool(w, "tokenizer.ggml.add_bos_token", false);
    return MO_OK;
}
