/* Vocabulary: the made-up vocabularies of tests/data/text. All but gemma4's are one, which differ in the pre-tokenizer they name alone. */
#ifndef MO_TEST_VOCABULARY_H
#define MO_TEST_VOCABULARY_H

#include <stdio.h>
#include <string.h>

#include "gguf/read.h"
#include "gguf/write.h"

/* The vocabulary of g under the name of another pre-tokenizer. */
static inline mo_status vocabulary_named(const mo_gguf *g, const char *pre, mo_gguf **out, mo_error *err)
{
    mo_gguf_writer *w = mo_gguf_writer_create(0);
    for (int64_t i = 0; i < mo_gguf_entry_count(g); i++) {
        const mo_gguf_entry *entry = mo_gguf_entry_at(g, i);
        if (entry == mo_gguf_find(g, "tokenizer.ggml.pre")) {
            mo_gguf_put_string(w, "tokenizer.ggml.pre", pre);
        } else {
            mo_gguf_put_entry(w, g, entry);
        }
    }
    mo_status status = mo_gguf_writer_layout(w, err);
    if (status == MO_OK) { /* without tensors the header is all */
        const mo_gguf_layout *file = mo_gguf_writer_file(w);
        status = mo_gguf_open_memory(file->header, file->header_bytes, pre, out, err);
    }
    mo_gguf_writer_destroy(w);
    return status;
}

/* The made-up vocabulary of a pre-tokenizer. */
static inline mo_status vocabulary_open(const char *pre, mo_gguf **out, mo_error *err)
{
    if (strcmp(pre, "gemma4") == 0) {
        return mo_gguf_open(MO_TEST_DATA "/text/synth-gemma4.gguf", out, err);
    }
    mo_gguf *g;
    mo_status status = mo_gguf_open(MO_TEST_DATA "/text/synth-qwen2.gguf", &g, err);
    if (status == MO_OK) {
        status = vocabulary_named(g, pre, out, err);
        mo_gguf_close(g);
    }
    return status;
}

#endif
