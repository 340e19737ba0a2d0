/* Vocab: the tokens of a model and their properties. Private to the module; others use tokenizer.h.
   Everything is copied from the file. Constant after loading: any thread may read it. */
#ifndef MO_TEXT_VOCAB_H
#define MO_TEXT_VOCAB_H

#include "gguf/read.h"
#include "text/lookup.h"

typedef enum mo_vocab_model {
    MO_VOCAB_BYTES,  /* "gpt2": byte-level BPE */
    MO_VOCAB_PIECES, /* "llama": SentencePiece-style, merges by score */
    MO_VOCAB_GEMMA,  /* "gemma4": BPE over characters */
} mo_vocab_model;

typedef enum mo_token_kind {
    MO_TOKEN_UNDEFINED = 0,
    MO_TOKEN_NORMAL = 1,
    MO_TOKEN_UNKNOWN = 2,
    MO_TOKEN_CONTROL = 3,
    MO_TOKEN_USER = 4,
    MO_TOKEN_UNUSED = 5,
    MO_TOKEN_BYTE = 6,
} mo_token_kind;

typedef struct mo_vocab {
    mo_vocab_model model;
    char *pre; /* name of the pre-tokenizer, "" if the file has none */
    int32_t count;

    uint8_t *texts;    /* tokens as written in the file, one after the other */
    uint32_t *text_at; /* count + 1 offsets */
    uint8_t *pieces;   /* bytes of the tokens */
    uint32_t *piece_at;
    uint8_t *kinds; /* mo_token_kind, corrected */
    float *scores;  /* MO_VOCAB_PIECES only */

    mo_lookup by_text; /* every token */
    /* Tokens that plain text can become, by the bytes that are merged: pieces for MO_VOCAB_BYTES, texts
       for the others. Without control, unknown and byte tokens, so that text cannot forge them. */
    mo_lookup plain;
    int32_t byte_ids[256]; /* the token that stands for one byte, -1: none */

    int32_t bos, eos, eot, eom, unknown, separator, padding, mask; /* -1: none */
    bool add_bos, add_eos, add_space_prefix;
    /* add a space only before a text that does not begin with one, and not after special tokens (Mistral
       v0.3) */
    bool prefix_once;

    /* gpt-oss's channel tokens: printed, but text cannot become them; -1: none */
    int32_t channel_marks[4];
    bool strips_after; /* white space after a special token belongs to the token (Phi-3) */

    uint8_t *ends; /* one flag per token: it ends generation */
    int32_t *suppressed;
    size_t suppressed_count;
} mo_vocab;

/* Loads the tokenizer's keys. MO_EUNSUPPORTED if the file has no tokenizer or one of another kind; MO_EFORMAT
   if the keys contradict each other. On failure *out is empty. */
mo_status mo_vocab_load(const mo_gguf *g, mo_vocab *out, mo_error *err);
void mo_vocab_free(mo_vocab *v);

/* Is the token always searched in texts, also without MO_TOKENIZE_SPECIAL? */
bool mo_vocab_found_anywhere(const mo_vocab *v, int32_t id);

/* Does white space after the token belong to it? */
bool mo_vocab_strips_after(const mo_vocab *v, int32_t id);

static inline mo_text mo_vocab_text(const mo_vocab *v, int32_t id)
{
    return (mo_text){(const char *)v->texts + v->text_at[id], v->text_at[id + 1] - v->text_at[id]};
}

static inline mo_text mo_vocab_piece(const mo_vocab *v, int32_t id)
{
    return (mo_text){(const char *)v->pieces + v->piece_at[id], v->piece_at[id + 1] - v->piece_at[id]};
}

/* The id of the token with this text, -1: none. */
int32_t mo_vocab_find(const mo_vocab *v, const char *text);

/* Decodes text in the alphabet of byte-level BPE (one character per byte) into bytes. `to` has space for
   length bytes. False if a character is not in the alphabet. */
bool mo_vocab_decode_bytes(const uint8_t *text, size_t length, uint8_t *to, size_t *bytes);

#endif
