/* Tokenizer: special tokens first, then the vocabulary's method for the text between them. */
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "text/bpe.h"
#include "text/special.h"
#include "text/spm.h"

struct mo_tokenizer {
    mo_vocab vocab;
    mo_special special;
    mo_bpe *bpe; /* gpt2 and gemma4 */
    mo_spm spm;  /* llama */
};

/* ---- Creating ---- */

mo_status mo_tokenizer_create(const mo_gguf *g, mo_tokenizer **out, mo_error *err)
{
    *out = NULL;
    mo_tokenizer *t = calloc(1, sizeof *t);
    if (!t) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the tokenizer");
    }
    mo_status s = mo_vocab_load(g, &t->vocab, err);
    if (s == MO_OK) {
        s = mo_special_init(&t->special, &t->vocab, err);
    }
    if (s == MO_OK && t->vocab.model == MO_VOCAB_PIECES) {
        mo_spm_init(&t->spm, &t->vocab);
    } else if (s == MO_OK) {
        s = mo_bpe_create(g, &t->vocab, &t->bpe, err);
    }
    if (s != MO_OK) {
        mo_tokenizer_destroy(t);
        return s;
    }
    *out = t;
    return MO_OK;
}

void mo_tokenizer_destroy(mo_tokenizer *t)
{
    if (t) {
        mo_bpe_destroy(t->bpe);
        mo_special_free(&t->special);
        mo_vocab_free(&t->vocab);
        free(t);
    }
}

/* ---- Text to ids ---- */

/* Does the tokenizer add a space before this fragment, which is first or follows a special token? */
static bool has_prefix(const mo_vocab *v, const uint8_t *text, size_t length, bool first)
{
    if (!v->prefix_once) {
        return v->add_space_prefix;
    }
    const bool spaced = text[0] == ' ' || (length >= 3 && memcmp(text, "\xE2\x96\x81", 3) == 0);
    return v->add_space_prefix && first && !spaced;
}

static mo_status encode(const mo_tokenizer *t, mo_bpe_scratch *scratch, const uint8_t *text, size_t length,
                        bool first, mo_ids *ids, mo_error *err)
{
    if (length == 0) {
        return MO_OK;
    }
    if (t->vocab.model == MO_VOCAB_PIECES) {
        return mo_spm_encode(&t->spm, text, length, has_prefix(&t->vocab, text, length, first), ids, err);
    }
    return mo_bpe_encode(t->bpe, scratch, text, length, ids, err);
}

static mo_status encode_all(const mo_tokenizer *t, mo_bpe_scratch *scratch, const uint8_t *text,
                            size_t length, bool special, const uint8_t *input, mo_ids *ids, mo_error *err)
{
    mo_special_hit *hits;
    size_t count, at = 0;
    mo_status s = mo_special_find(&t->special, text, length, special, input, &hits, &count, err);
    for (size_t i = 0; i < count && s == MO_OK; i++) {
        s = encode(t, scratch, text + at, hits[i].at - at, at == 0, ids, err);
        if (s == MO_OK) {
            s = mo_ids_add(ids, hits[i].id, err);
        }
        at = hits[i].at + hits[i].length;
        if (mo_vocab_strips_after(&t->vocab, hits[i].id)) {
            const size_t next = i + 1 < count ? hits[i + 1].at : length;
            for (; at < next && (text[at] == ' ' || (text[at] >= '\t' && text[at] <= '\r')); at++) {
            }
        }
    }
    if (s == MO_OK) {
        s = encode(t, scratch, text + at, length - at, at == 0, ids, err);
    }
    free(hits);
    return s;
}

mo_status mo_tokenizer_encode(const mo_tokenizer *t, const char *text, size_t length, unsigned flags,
                              int32_t **out, size_t *count, mo_error *err)
{
    return mo_tokenizer_encode_marked(t, text, length, flags, NULL, 0, out, count, err);
}

mo_status mo_tokenizer_encode_marked(const mo_tokenizer *t, const char *text, size_t length, unsigned flags,
                                     const uint8_t *input, size_t most, int32_t **out, size_t *count,
                                     mo_error *err)
{
    const mo_vocab *v = &t->vocab;
    mo_bpe_scratch *scratch = NULL;
    mo_ids ids = {.capacity = length / 3 + 8, .most = most};
    *out = NULL;
    if (length > MO_TOKENIZE_MAX) {
        return mo_fail(err, MO_EINVAL,
                       "a text of %zu bytes exceeds the limit of one call (%zu); split it into parts", length,
                       MO_TOKENIZE_MAX);
    }
    if (most && ids.capacity > most + 8) {
        ids.capacity = most + 8;
    }
    ids.data = malloc(ids.capacity * sizeof *ids.data);
    if (!ids.data || (t->bpe && !(scratch = mo_bpe_scratch_create(t->bpe)))) {
        free(ids.data);
        return mo_fail(err, MO_ENOMEM, "out of memory while tokenizing %zu bytes", length);
    }
    const bool ends = flags & MO_TOKENIZE_ENDS;
    mo_status s = MO_OK;
    if (ends && v->add_bos && v->bos >= 0) {
        s = mo_ids_add(&ids, v->bos, err);
    }
    const size_t first = ids.count;
    if (s == MO_OK) {
        s = encode_all(t, scratch, (const uint8_t *)text, length, flags & MO_TOKENIZE_SPECIAL, input, &ids,
                       err);
    }
    if (s == MO_OK && (flags & MO_TOKENIZE_ONCE) && first == 1 && ids.count > 1 && ids.data[1] == v->bos) {
        memmove(ids.data, ids.data + 1, --ids.count * sizeof *ids.data);
    }
    if (s == MO_OK && ends && v->add_eos && v->eos >= 0) {
        s = mo_ids_add(&ids, v->eos, err);
    }
    mo_bpe_scratch_destroy(scratch);
    if (s == MO_ENOSPC && most && ids.count == most) { /* the caller does not want the rest */
        s = MO_OK;
    }
    if (s != MO_OK) {
        free(ids.data);
        return s;
    }
    *out = ids.data;
    *count = ids.count;
    return MO_OK;
}

/* ---- Ids to text ---- */

static bool in_range(const mo_tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->vocab.count;
}

mo_text mo_token_piece(const mo_tokenizer *t, int32_t id, bool special)
{
    if (!in_range(t, id)) {
        return (mo_text){"", 0};
    }
    const uint8_t kind = t->vocab.kinds[id];
    if (!special && (kind == MO_TOKEN_CONTROL || kind == MO_TOKEN_UNKNOWN)) {
        return (mo_text){"", 0};
    }
    return mo_vocab_piece(&t->vocab, id);
}

mo_text mo_token_text(const mo_tokenizer *t, int32_t id)
{
    return in_range(t, id) ? mo_vocab_text(&t->vocab, id) : (mo_text){"", 0};
}

mo_status mo_detokenize(const mo_tokenizer *t, const int32_t *ids, size_t count, unsigned flags, char **text,
                        size_t *length, mo_error *err)
{
    const bool special = flags & MO_DETOKENIZE_SPECIAL;
    size_t bytes = 0;
    *text = NULL;
    for (size_t i = 0; i < count; i++) {
        if (!in_range(t, ids[i])) {
            return mo_fail(err, MO_EINVAL, "token %zu is %d, but the vocabulary has %d tokens", i, ids[i],
                           t->vocab.count);
        }
        const size_t n = mo_token_piece(t, ids[i], special).length;
        if (n > SIZE_MAX / 2 - bytes) {
            return mo_fail(err, MO_ENOMEM, "the text of %zu tokens is too long", count);
        }
        bytes += n;
    }
    char *out = malloc(bytes + 1);
    if (!out) {
        return mo_fail(err, MO_ENOMEM, "out of memory for %zu bytes of text", bytes);
    }
    size_t used = 0;
    bool strip = t->vocab.add_space_prefix && !(flags & MO_DETOKENIZE_CONTINUE);
    for (size_t i = 0; i < count; i++) {
        mo_text piece = mo_token_piece(t, ids[i], special);
        if (strip && !mo_token_is_control(t, ids[i])) { /* the space that tokenizing added */
            strip = false;
            if (piece.length > 0 && piece.data[0] == ' ') {
                piece.data++;
                piece.length--;
            }
        }
        memcpy(out + used, piece.data, piece.length);
        used += piece.length;
    }
    out[used] = 0;
    *text = out;
    *length = used;
    return MO_OK;
}

/* ---- The vocabulary ---- */

int32_t mo_tokenizer_size(const mo_tokenizer *t)
{
    return t->vocab.count;
}

int32_t mo_tokenizer_id(const mo_tokenizer *t, mo_token_role role)
{
    switch (role) {
    case MO_TOKEN_BOS: return t->vocab.bos;
    case MO_TOKEN_EOS: return t->vocab.eos;
    case MO_TOKEN_EOT: return t->vocab.eot;
    case MO_TOKEN_EOM: return t->vocab.eom;
    case MO_TOKEN_UNK: return t->vocab.unknown;
    case MO_TOKEN_PAD: return t->vocab.padding;
    }
    return -1;
}

int32_t mo_token_find(const mo_tokenizer *t, const char *text)
{
    return mo_vocab_find(&t->vocab, text);
}

bool mo_token_is_end(const mo_tokenizer *t, int32_t id)
{
    return in_range(t, id) && t->vocab.ends[id];
}

bool mo_token_is_control(const mo_tokenizer *t, int32_t id)
{
    return in_range(t, id) &&
           (t->vocab.kinds[id] == MO_TOKEN_CONTROL || t->vocab.kinds[id] == MO_TOKEN_UNKNOWN);
}

bool mo_token_is_user(const mo_tokenizer *t, int32_t id)
{
    return in_range(t, id) && t->vocab.kinds[id] == MO_TOKEN_USER;
}

bool mo_tokenizer_adds_end(const mo_tokenizer *t)
{
    return t->vocab.add_eos && t->vocab.eos >= 0;
}

bool mo_tokenizer_adds_space(const mo_tokenizer *t)
{
    return t->vocab.add_space_prefix;
}

const int32_t *mo_tokenizer_suppressed(const mo_tokenizer *t, size_t *count)
{
    *count = t->vocab.suppressed_count;
    return t->vocab.suppressed;
}
