/* Toy vocabularies for the tests, written by the GGUF writer and read back from memory. */
#ifndef MO_TESTS_TOYVOCAB_H
#define MO_TESTS_TOYVOCAB_H

#include <stdlib.h>
#include <string.h>

#include "gguf/write.h"

enum { TOY_TOKENS = 1024 };

typedef struct toy {
    const char *model, *pre, *chat_template, *architecture; /* NULL: left out */
    mo_text tokens[TOY_TOKENS];
    int32_t types[TOY_TOKENS];
    float scores[TOY_TOKENS];
    int count;
    mo_text merges[TOY_TOKENS];
    int merge_count;
    /* Faults: how many elements to write more or fewer, and what to leave out. */
    int types_off, scores_off;
    bool no_tokens, no_types, no_scores, no_merges;
    void (*more)(mo_gguf_writer *w); /* further keys */
} toy;

static inline void toy_add(toy *v, const char *text, int32_t type, float score)
{
    v->tokens[v->count] = (mo_text){text, strlen(text)};
    v->types[v->count] = type;
    v->scores[v->count++] = score;
}

static inline void toy_merge(toy *v, const char *text)
{
    v->merges[v->merge_count++] = (mo_text){text, strlen(text)};
}

/* The 256 tokens <0x00> to <0xFF>. */
static inline void toy_add_bytes(toy *v)
{
    static char names[256][8];
    for (int i = 0; i < 256; i++) {
        static const char digits[] = "0123456789ABCDEF";
        memcpy(names[i], "<0x00>", 7);
        names[i][3] = digits[i / 16];
        names[i][4] = digits[i % 16];
        toy_add(v, names[i], 6, 0.0f);
    }
}

/* The model opened, or NULL when the container itself is refused. */
static inline mo_gguf *toy_open(const toy *v)
{
    mo_gguf_writer *w = mo_gguf_writer_create(0);
    mo_error err;
    mo_gguf *g = NULL;
    if (!w) {
        return NULL;
    }
    mo_gguf_put_string(w, "general.architecture", v->architecture ? v->architecture : "llama");
    if (v->model) {
        mo_gguf_put_string(w, "tokenizer.ggml.model", v->model);
    }
    if (v->pre) {
        mo_gguf_put_string(w, "tokenizer.ggml.pre", v->pre);
    }
    if (v->chat_template) {
        mo_gguf_put_string(w, "tokenizer.chat_template", v->chat_template);
    }
    if (!v->no_tokens) {
        mo_gguf_put_texts(w, "tokenizer.ggml.tokens", v->tokens, (uint64_t)v->count);
    }
    if (!v->no_types) {
        mo_gguf_put_array(w, "tokenizer.ggml.token_type", MO_VALUE_I32, v->types,
                          (uint64_t)v->count + (uint64_t)v->types_off);
    }
    if (!v->no_scores) {
        mo_gguf_put_array(w, "tokenizer.ggml.scores", MO_VALUE_F32, v->scores,
                          (uint64_t)v->count + (uint64_t)v->scores_off);
    }
    if (!v->no_merges) {
        mo_gguf_put_texts(w, "tokenizer.ggml.merges", v->merges, (uint64_t)v->merge_count);
    }
    if (v->more) {
        v->more(w);
    }
    if (mo_gguf_writer_layout(w, &err) == MO_OK) { /* without tensors the header is all */
        const mo_gguf_layout *file = mo_gguf_writer_file(w);
        mo_gguf_open_memory(file->header, file->header_bytes, "toy.gguf", &g, &err);
    }
    mo_gguf_writer_destroy(w);
    return g;
}

#endif
