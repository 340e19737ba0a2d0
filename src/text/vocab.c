/* Vocab: reads the tokenizer's keys, and corrects published files. */
#include "text/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/utf8.h"
#include "text/split.h"

/* Maximum length of a token. Published ones are below 1 KiB; with this limit lengths fit 24 bits. */
enum { LONGEST_TOKEN = 1 << 20 };

#define KEY(name) "tokenizer.ggml." name

static const char *file_of(const mo_gguf *g)
{
    return mo_gguf_part_path(g, 0);
}

/* ---- The tables ---- */

static mo_status load_model(const mo_gguf *g, mo_vocab *v, mo_error *err)
{
    const char *model, *pre;
    mo_status s = mo_gguf_string_or(g, KEY("model"), "none", &model, err);
    if (s == MO_OK) {
        s = mo_gguf_string_or(g, KEY("pre"), "", &pre, err);
    }
    if (s != MO_OK) {
        return s;
    }
    if (!strcmp(model, "none") || !strcmp(model, "no_vocab")) {
        return mo_fail(err, MO_EUNSUPPORTED,
                       "%s: the model has no tokenizer (tokenizer.ggml.model "
                       "is %s); use token ids instead of text",
                       file_of(g), mo_gguf_find(g, KEY("model")) ? model : "missing");
    }
    if (!strcmp(model, "gpt2")) {
        v->model = MO_VOCAB_BYTES;
    } else if (!strcmp(model, "llama")) {
        v->model = MO_VOCAB_PIECES;
    } else if (!strcmp(model, "gemma4")) {
        v->model = MO_VOCAB_GEMMA;
    } else {
        return mo_fail(err, MO_EUNSUPPORTED,
                       "%s: the tokenizer is of type \"%.100s\"; this version supports "
                       "gpt2, llama and gemma4, so use token ids instead of text",
                       file_of(g), model);
    }
    v->pre = strdup(pre);
    return v->pre ? MO_OK : mo_fail(err, MO_ENOMEM, "out of memory for the vocabulary");
}

static mo_status load_texts(const mo_gguf *g, mo_vocab *v, mo_error *err)
{
    const mo_gguf_entry *tokens;
    mo_metadata_info info;
    mo_value value;
    mo_status s = mo_gguf_array(g, KEY("tokens"), MO_VALUE_STRING, &tokens, err);
    if (s != MO_OK) {
        return s;
    }
    mo_gguf_entry_info(tokens, &info);
    if (info.count == 0 || info.count > INT32_MAX / 8) {
        return mo_fail(err, MO_EFORMAT, "%s: invalid vocabulary size of %llu tokens; download the file again",
                       file_of(g), (unsigned long long)info.count);
    }
    v->count = (int32_t)info.count;
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < info.count; i++) {
        mo_gguf_entry_value(g, tokens, i, &value);
        if (value.as.s.length > LONGEST_TOKEN) {
            return mo_fail(err, MO_EFORMAT,
                           "%s: token %llu has %zu bytes; the "
                           "limit is %d, download the file again",
                           file_of(g), (unsigned long long)i, value.as.s.length, LONGEST_TOKEN);
        }
        bytes += value.as.s.length;
    }
    if (bytes > UINT32_MAX) {
        return mo_fail(err, MO_EFORMAT,
                       "%s: the texts of all tokens have %llu bytes; download the file again", file_of(g),
                       (unsigned long long)bytes);
    }
    v->texts = malloc(bytes ? bytes : 1);
    v->text_at = malloc((info.count + 1) * sizeof *v->text_at);
    if (!v->texts || !v->text_at) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the vocabulary's %llu bytes",
                       (unsigned long long)bytes);
    }
    uint32_t at = 0;
    for (uint64_t i = 0; i < info.count; i++) {
        mo_gguf_entry_value(g, tokens, i, &value);
        v->text_at[i] = at;
        memcpy(v->texts + at, value.as.s.data, value.as.s.length);
        at += (uint32_t)value.as.s.length;
    }
    v->text_at[info.count] = at;
    return MO_OK;
}

/* An array with one element per token. NULL if the key is missing. */
static mo_status per_token(const mo_gguf *g, const mo_vocab *v, const char *key, mo_value_type type,
                           const mo_gguf_entry **out, mo_error *err)
{
    mo_metadata_info info;
    *out = NULL;
    if (!mo_gguf_find(g, key)) {
        return MO_OK;
    }
    mo_status s = mo_gguf_array(g, key, type, out, err);
    if (s != MO_OK) {
        return s;
    }
    mo_gguf_entry_info(*out, &info);
    if (info.count != (uint64_t)v->count) {
        return mo_fail(err, MO_EFORMAT,
                       "%s: key %s has %llu elements for %d tokens; the "
                       "file is malformed, download or convert it again",
                       file_of(g), key, (unsigned long long)info.count, v->count);
    }
    return MO_OK;
}

static mo_status load_kinds(const mo_gguf *g, mo_vocab *v, mo_error *err)
{
    const mo_gguf_entry *types;
    mo_value value;
    mo_status s = per_token(g, v, KEY("token_type"), MO_VALUE_I64, &types, err);
    if (s != MO_OK) {
        return s;
    }
    v->kinds = malloc((size_t)v->count);
    if (!v->kinds) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the kinds of %d tokens", v->count);
    }
    for (int32_t i = 0; i < v->count; i++) {
        int64_t kind = MO_TOKEN_NORMAL;
        if (types) {
            mo_gguf_entry_value(g, types, (uint64_t)i, &value);
            kind = value.type == MO_VALUE_I8 || value.type == MO_VALUE_I16 || value.type == MO_VALUE_I32 ||
                           value.type == MO_VALUE_I64
                       ? value.as.i
                       : (int64_t)value.as.u;
        }
        if (kind < MO_TOKEN_UNDEFINED || kind > MO_TOKEN_BYTE) {
            return mo_fail(err, MO_EFORMAT,
                           "%s: token %d is of type %lld, outside 0 to 6; download the file again",
                           file_of(g), i, (long long)kind);
        }
        v->kinds[i] = (uint8_t)kind;
    }
    return MO_OK;
}

static mo_status load_scores(const mo_gguf *g, mo_vocab *v, mo_error *err)
{
    const mo_gguf_entry *scores;
    mo_value value;
    mo_status s = per_token(g, v, KEY("scores"), MO_VALUE_F32, &scores, err);
    if (s != MO_OK || v->model != MO_VOCAB_PIECES) {
        return s;
    }
    if (!scores) {
        return mo_fail(err, MO_EFORMAT,
                       "%s: key %s is missing, which this type of "
                       "tokenizer needs to merge; convert the model again",
                       file_of(g), KEY("scores"));
    }
    v->scores = malloc((size_t)v->count * sizeof *v->scores);
    if (!v->scores) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the scores of %d tokens", v->count);
    }
    for (int32_t i = 0; i < v->count; i++) {
        mo_gguf_entry_value(g, scores, (uint64_t)i, &value);
        v->scores[i] = (float)value.as.r;
    }
    return MO_OK;
}

/* ---- Special ids and defaults ---- */

/* Returns `otherwise` if the key is missing, or has all bits set, which some converters write for "none". */
static mo_status load_id(const mo_gguf *g, const mo_vocab *v, const char *key, int32_t otherwise,
                         int32_t *out, mo_error *err)
{
    int64_t id = -1;
    mo_status s = mo_gguf_i64_or(g, key, otherwise, &id, err);
    if (s != MO_OK) {
        return s;
    }
    if (id == UINT32_MAX) {
        id = -1;
    }
    if (id < -1 || id >= v->count) {
        return mo_fail(err, MO_EFORMAT,
                       "%s: key %s is %lld, but there are %d "
                       "tokens; download or convert the file again",
                       file_of(g), key, (long long)id, v->count);
    }
    *out = (int32_t)id;
    return MO_OK;
}

static mo_status load_ids(const mo_gguf *g, mo_vocab *v, mo_error *err)
{
    const bool pieces = v->model == MO_VOCAB_PIECES;
    const struct {
        const char *key;
        int32_t otherwise, *out;
    } ids[] = {
        {KEY("bos_token_id"), pieces && v->count > 1 ? 1 : -1, &v->bos},
        {KEY("eos_token_id"), pieces && v->count > 2 ? 2 : -1, &v->eos},
        {KEY("unknown_token_id"), pieces ? 0 : -1, &v->unknown},
        {KEY("eot_token_id"), -1, &v->eot},
        {KEY("eom_token_id"), -1, &v->eom},
        {KEY("seperator_token_id"), -1, &v->separator},
        {KEY("padding_token_id"), -1, &v->padding},
        {KEY("mask_token_id"), -1, &v->mask},
    };
    mo_status s = MO_OK;
    for (size_t i = 0; i < sizeof ids / sizeof *ids && s == MO_OK; i++) {
        s = load_id(g, v, ids[i].key, ids[i].otherwise, ids[i].out, err);
    }
    if (s == MO_OK) {
        const bool bos = pieces || (v->model == MO_VOCAB_BYTES && mo_split_adds_bos(v->pre));
        s = mo_gguf_bool_or(g, KEY("add_bos_token"), bos, &v->add_bos, err);
    }
    if (s == MO_OK) {
        s = mo_gguf_bool_or(g, KEY("add_eos_token"), false, &v->add_eos, err);
    }
    if (s == MO_OK) {
        s = mo_gguf_bool_or(g, KEY("add_space_prefix"), pieces, &v->add_space_prefix, err);
    }
    v->add_bos = v->add_bos || v->model == MO_VOCAB_GEMMA; /* some files wrongly say false */
    v->add_space_prefix = v->add_space_prefix && pieces;   /* the other kinds have no such prefix */
    return s;
}

static mo_status load_suppressed(const mo_gguf *g, mo_vocab *v, mo_error *err)
{
    const mo_gguf_entry *ids;
    mo_metadata_info info;
    mo_value value;
    if (!mo_gguf_find(g, KEY("suppress_tokens"))) {
        return MO_OK;
    }
    mo_status s = mo_gguf_array(g, KEY("suppress_tokens"), MO_VALUE_I64, &ids, err);
    if (s != MO_OK) {
        return s;
    }
    mo_gguf_entry_info(ids, &info);
    v->suppressed = malloc((size_t)(info.count ? info.count : 1) * sizeof *v->suppressed);
    if (!v->suppressed) {
        return mo_fail(err, MO_ENOMEM, "out of memory for %llu suppressed tokens",
                       (unsigned long long)info.count);
    }
    for (uint64_t i = 0; i < info.count; i++) {
        mo_gguf_entry_value(g, ids, i, &value);
        if (value.as.u >= (uint64_t)v->count) { /* negative values are huge here */
            return mo_fail(err, MO_EFORMAT,
                           "%s: key %s names token %lld of %d; download or convert the file again",
                           file_of(g), KEY("suppress_tokens"), (long long)value.as.i, v->count);
        }
        v->suppressed[v->suppressed_count++] = (int32_t)value.as.u;
    }
    return MO_OK;
}

/* ---- The bytes of each token ---- */

bool mo_vocab_decode_bytes(const uint8_t *text, size_t length, uint8_t *to, size_t *bytes)
{
    /* The bytes whose character is not their own code point, ascending, have U+0100, U+0101, ... */
    *bytes = 0;
    for (size_t at = 0, n; at < length; at += n) {
        n = mo_utf8_length(text + at, length - at);
        if (n == 0) {
            return false;
        }
        uint32_t c = mo_utf8_decode(text + at, n);
        if (c >= 0x100 && c <= 0x120) {
            c -= 0x100; /* 00 to 20 */
        } else if (c >= 0x121 && c <= 0x142) {
            c = c - 0x121 + 0x7F; /* 7F to A0 */
        } else if (c == 0x143) {
            c = 0xAD;
        } else if (c <= 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD || c > 0xFF) {
            return false;
        }
        to[(*bytes)++] = (uint8_t)c;
    }
    return true;
}

static int hex(uint8_t c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte of a text like <0x0A>, or -1. */
static int byte_of_text(mo_text t)
{
    if (t.length != 6 || memcmp(t.data, "<0x", 3) != 0 || t.data[5] != '>') {
        return -1;
    }
    const int high = hex((uint8_t)t.data[3]), low = hex((uint8_t)t.data[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Replaces U+2581 by a space. Returns the number of bytes written. */
static size_t unescape_spaces(mo_text t, uint8_t *to)
{
    size_t n = 0;
    for (size_t i = 0; i < t.length; i++) {
        if (t.length - i >= 3 && !memcmp(t.data + i, "\xE2\x96\x81", 3)) {
            to[n++] = ' ';
            i += 2;
        } else {
            to[n++] = (uint8_t)t.data[i];
        }
    }
    return n;
}

/* Writes the bytes of token i into `to`. Sets *plain if plain text can become this token. */
static size_t piece_of(mo_vocab *v, int32_t i, uint8_t *to, bool *plain)
{
    const mo_text t = mo_vocab_text(v, i);
    const uint8_t kind = v->kinds[i];
    size_t n = t.length;
    const int byte = byte_of_text(t);
    *plain = t.length > 0 && kind != MO_TOKEN_CONTROL && kind != MO_TOKEN_UNKNOWN;
    if (v->model == MO_VOCAB_BYTES) {
        /* Special tokens are literal, as are tokens outside the alphabet, which text cannot
           become. */
        if (kind != MO_TOKEN_CONTROL && kind != MO_TOKEN_USER && kind != MO_TOKEN_UNKNOWN &&
            mo_vocab_decode_bytes((const uint8_t *)t.data, t.length, to, &n)) {
            if (n == 1 && *plain) {
                v->byte_ids[to[0]] = i;
            }
            return n;
        }
        *plain = false;
        n = t.length;
    } else if (byte >= 0 && (kind == MO_TOKEN_BYTE || v->model == MO_VOCAB_GEMMA)) {
        v->byte_ids[byte] = i;
        *plain = false;
        to[0] = (uint8_t)byte;
        return 1;
    } else if (kind != MO_TOKEN_CONTROL && kind != MO_TOKEN_USER) {
        return unescape_spaces(t, to);
    }
    memcpy(to, t.data, n);
    return n;
}

static mo_status make_tables(mo_vocab *v, mo_error *err)
{
    const size_t count = (size_t)v->count, bytes = v->text_at[count];
    v->pieces = malloc(bytes ? bytes : 1);
    v->piece_at = malloc((count + 1) * sizeof *v->piece_at);
    if (!v->pieces || !v->piece_at || !mo_lookup_init(&v->by_text, count) ||
        !mo_lookup_init(&v->plain, count)) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the tables of %zu tokens", count);
    }
    memset(v->byte_ids, -1, sizeof v->byte_ids);
    uint32_t at = 0;
    for (int32_t i = 0; i < v->count; i++) {
        const mo_text t = mo_vocab_text(v, i);
        bool plain;
        const size_t n = piece_of(v, i, v->pieces + at, &plain);
        const bool by_piece = v->model == MO_VOCAB_BYTES;
        v->piece_at[i] = at;
        if (!mo_lookup_put(&v->by_text, (const uint8_t *)t.data, t.length, (uint32_t)i) ||
            (plain && !mo_lookup_put(&v->plain, by_piece ? v->pieces + at : (const uint8_t *)t.data,
                                     by_piece ? n : t.length, (uint32_t)i))) {
            return mo_fail(err, MO_ENOMEM, "out of memory for the tables of %zu tokens", count);
        }
        at += (uint32_t)n;
    }
    v->piece_at[count] = at;
    return MO_OK;
}

int32_t mo_vocab_find(const mo_vocab *v, const char *text)
{
    const uint32_t id = mo_lookup_get(&v->by_text, (const uint8_t *)text, strlen(text));
    return id == MO_LOOKUP_NONE ? -1 : (int32_t)id;
}

/* ---- Corrections ---- */

static const char deepseek_end[] = "<\xEF\xBD\x9C"
                                   "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>";

static const char hy_end[] = "<\xEF\xBD\x9C"
                             "hy_eos:opensource\xEF\xBD\x9C>";

static const char *const end_of_turn[] = {
    "<|eot_id|>",    "<|im_end|>",    "<|end|>",
    "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>",
    "<EOT>",         "<turn|>",       deepseek_end,
    "</assistant>", /* Laguna's */
    "<|endofturn|>", hy_end,          "<|END_OF_TURN_TOKEN|>",
};

static const char *const other_ends[] = {
    "<|return|>",  "<|call|>",  "</s>",       "<|eom_id|>",   "<eos>",        "<|tool_response>",
    "<|fim_pad|>", "<fim-pad>", "<fim_pad>",  "<PAD>",        "<|fim_repo|>", "<|repo_name|>",
    "<fim-repo>",  "<REPO>",    "<reponame>", "<|file_sep|>", "<|eom|>", /* Jamba's */
};

static const char *const harmony[] = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"};

/* Files often declare a token that ends a turn as normal. It is always a control token. */
static void mark_end(mo_vocab *v, const char *text)
{
    const int32_t id = mo_vocab_find(v, text);
    if (id >= 0) {
        v->ends[id] = 1;
        v->kinds[id] = MO_TOKEN_CONTROL;
    }
}

/* In SentencePiece vocabularies </s> ends the text. In byte-level ones, Qwen's for example, it is a plain
   token for HTML, so the file decides. */
static bool ends_by_name(const mo_vocab *v)
{
    const int32_t id = mo_vocab_find(v, "</s>");
    return id >= 0 && (v->model != MO_VOCAB_BYTES || v->kinds[id] != MO_TOKEN_NORMAL);
}

/* The published tokenizer of Mistral v0.3 adds a space before a text only if the text does not begin with
   one. Files do not say so. It is recognized as a SentencePiece vocabulary with tool tokens. */
static bool prefixes_once(const mo_vocab *v)
{
    static const char *const marks[] = {"[INST]", "[AVAILABLE_TOOLS]", "[TOOL_CALLS]"};
    bool once = v->model == MO_VOCAB_PIECES;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        const int32_t id = mo_vocab_find(v, marks[i]);
        once = once && id >= 0 && v->kinds[id] == MO_TOKEN_CONTROL;
    }
    return once;
}

static mo_status adjust(mo_vocab *v, mo_error *err)
{
    v->prefix_once = prefixes_once(v);
    v->ends = calloc((size_t)v->count, 1);
    if (!v->ends) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the flags of %d tokens", v->count);
    }
    const bool gpt_oss = mo_vocab_find(v, "<|return|>") >= 0 && mo_vocab_find(v, "<|call|>") >= 0;
    const bool tool_response = mo_vocab_find(v, "<|tool_response>") >= 0;
    for (size_t i = 0; i < sizeof end_of_turn / sizeof *end_of_turn; i++) {
        if (v->eot < 0) {
            v->eot = mo_vocab_find(v, end_of_turn[i]);
        }
        mark_end(v, end_of_turn[i]);
    }
    for (size_t i = 0; i < sizeof other_ends / sizeof *other_ends; i++) {
        if (strcmp(other_ends[i], "</s>") != 0 || (!tool_response && ends_by_name(v))) {
            mark_end(v, other_ends[i]);
        }
    }
    const int32_t ids[] = {v->eos, v->eot, v->eom};
    for (size_t i = 0; i < 3; i++) {
        if (ids[i] >= 0) {
            v->ends[ids[i]] = 1;
        }
    }
    if (gpt_oss) { /* <|end|> ends a message; others may follow */
        const int32_t end = mo_vocab_find(v, "<|end|>");
        if (end >= 0) {
            v->ends[end] = 0;
            v->eot = v->eot == end ? v->eos : v->eot;
        }
    }
    for (size_t i = 0; i < sizeof harmony / sizeof *harmony; i++) {
        const int32_t id = mo_vocab_find(v, harmony[i]);
        v->channel_marks[i] = id;
        if (id >= 0) {
            v->kinds[id] = MO_TOKEN_USER;
        }
    }
    return MO_OK;
}

bool mo_vocab_found_anywhere(const mo_vocab *v, int32_t id)
{
    bool mark = false;
    for (size_t i = 0; i < sizeof harmony / sizeof *harmony; i++) {
        mark = mark || v->channel_marks[i] == id;
    }
    return v->kinds[id] == MO_TOKEN_USER && !mark;
}

bool mo_vocab_strips_after(const mo_vocab *v, int32_t id)
{
    static const char *const not [] = {"<unk>", "<s>", "<|endoftext|>"};
    bool strips = v->strips_after;
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++) {
        strips = strips && mo_vocab_find(v, not [i]) != id;
    }
    return strips;
}

/* Tokenizers of Phi-3 treat white space after a role token as part of it. Files do not say so. */
static mo_status load_stripping(const mo_gguf *g, mo_vocab *v, mo_error *err)
{
    const char *architecture = "";
    const mo_status s = mo_gguf_string_or(g, "general.architecture", "", &architecture, err);
    v->strips_after = v->model == MO_VOCAB_PIECES &&
                      (strcmp(architecture, "phi3") == 0 || strcmp(architecture, "phimoe") == 0);
    return s;
}

/* ---- Loading ---- */

mo_status mo_vocab_load(const mo_gguf *g, mo_vocab *v, mo_error *err)
{
    static mo_status (*const phases[])(const mo_gguf *, mo_vocab *, mo_error *) = {
        load_model, load_texts, load_kinds, load_scores, load_ids, load_suppressed, load_stripping,
    };
    mo_status s = MO_OK;
    memset(v, 0, sizeof *v);
    for (size_t i = 0; i < sizeof phases / sizeof *phases && s == MO_OK; i++) {
        s = phases[i](g, v, err);
    }
    if (s == MO_OK) {
        s = make_tables(v, err);
    }
    if (s == MO_OK) {
        s = adjust(v, err);
    }
    if (s != MO_OK) {
        mo_vocab_free(v);
    }
    return s;
}

void mo_vocab_free(mo_vocab *v)
{
    free(v->pre);
    free(v->texts);
    free(v->text_at);
    free(v->pieces);
    free(v->piece_at);
    free(v->kinds);
    free(v->scores);
    free(v->ends);
    free(v->suppressed);
    mo_lookup_free(&v->by_text);
    mo_lookup_free(&v->plain);
    memset(v, 0, sizeof *v);
}
