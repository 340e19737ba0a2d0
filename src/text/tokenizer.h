/* Tokenizer: text to token ids and back, for byte-level BPE, SentencePiece-style and gemma4 vocabularies.
   Constant after creation: any thread may use it, also concurrently.

   Text that is not valid UTF-8 is accepted: each invalid byte is tokenized alone. With vocabularies that have
   a token for every byte (all published ones), detokenizing gives the same bytes back. */
#ifndef MO_TEXT_TOKENIZER_H
#define MO_TEXT_TOKENIZER_H

#include "gguf/read.h"

typedef struct mo_tokenizer mo_tokenizer;

/* Reads a model's vocabulary. Everything is copied; g may be closed afterwards. MO_EUNSUPPORTED if the model
   has no vocabulary or one of an unknown kind; such a model still works with token ids. Destroy with
   mo_tokenizer_destroy(). */
mo_status mo_tokenizer_create(const mo_gguf *g, mo_tokenizer **out, mo_error *err);
void mo_tokenizer_destroy(mo_tokenizer *t); /* NULL is allowed */

/* ---- Text to ids ---- */

enum {
    MO_TOKENIZE_SPECIAL = 1, /* recognize control tokens in the text (user-defined ones always are) */
    MO_TOKENIZE_ENDS = 2,    /* add BOS and EOS if the vocabulary says so */
    MO_TOKENIZE_ONCE = 4,    /* with ENDS: no BOS if the text already begins with it */
};

/* For rendered conversations, which contain their own special tokens. */
#define MO_TOKENIZE_CHAT (MO_TOKENIZE_SPECIAL | MO_TOKENIZE_ENDS | MO_TOKENIZE_ONCE)

/* Maximum length of a text. */
#define MO_TOKENIZE_MAX ((size_t)1 << 30)

/* The caller frees *ids; it has *count elements and is never NULL on success. Time is O(n log n) for any
   text. MO_ECANCELLED: the thread was interrupted (base/interrupt.h). */
mo_status mo_tokenizer_encode(const mo_tokenizer *t, const char *text, size_t length, unsigned flags,
                              int32_t **ids, size_t *count, mo_error *err);

/* The same for a text that contains untrusted input. `input` marks these bytes (NULL: none). No control token
   begins or ends with a marked byte. (Inside it may have marked bytes: a template writes "<|" and "|>" around
   a role.) most: maximum number of tokens; 0: no limit. */
mo_status mo_tokenizer_encode_marked(const mo_tokenizer *t, const char *text, size_t length, unsigned flags,
                                     const uint8_t *input, size_t most, int32_t **ids, size_t *count,
                                     mo_error *err);

/* ---- Ids to text ---- */

enum {
    MO_DETOKENIZE_SPECIAL = 1,  /* write control tokens by name; by default they are omitted */
    MO_DETOKENIZE_CONTINUE = 2, /* the ids continue a text: keep the space before the first word */
};

/* The bytes of an id, possibly part of a character. They belong to t. Empty for an id out of range, and for
   control and unknown tokens unless `special`. */
mo_text mo_token_piece(const mo_tokenizer *t, int32_t id, bool special);

/* The token as written in the file, in the vocabulary's alphabet. Empty for an id out of range. */
mo_text mo_token_text(const mo_tokenizer *t, int32_t id);

/* The caller frees *text. It is terminated, but may contain NUL bytes. MO_EINVAL for an id out of range. */
mo_status mo_detokenize(const mo_tokenizer *t, const int32_t *ids, size_t count, unsigned flags, char **text,
                        size_t *length, mo_error *err);

/* ---- The vocabulary ---- */

typedef enum mo_token_role {
    MO_TOKEN_BOS,
    MO_TOKEN_EOS,
    MO_TOKEN_EOT,
    MO_TOKEN_EOM,
    MO_TOKEN_UNK,
    MO_TOKEN_PAD,
} mo_token_role;

int32_t mo_tokenizer_size(const mo_tokenizer *t);
int32_t mo_tokenizer_id(const mo_tokenizer *t, mo_token_role role); /* -1: the vocabulary has none */
int32_t mo_token_find(const mo_tokenizer *t, const char *text);     /* by its text; -1: none */
bool mo_token_is_end(const mo_tokenizer *t, int32_t id);            /* does the token end generation? */
bool mo_token_is_control(const mo_tokenizer *t, int32_t id);
bool mo_token_is_user(const mo_tokenizer *t, int32_t id); /* user-defined tokens are found in any text */
bool mo_tokenizer_adds_space(const mo_tokenizer *t);      /* before the first word */
bool mo_tokenizer_adds_end(const mo_tokenizer *t);        /* EOS, with MO_TOKENIZE_ENDS */

/* Ids that must never be sampled; *count may be 0. They belong to t. */
const int32_t *mo_tokenizer_suppressed(const mo_tokenizer *t, size_t *count);

#endif
