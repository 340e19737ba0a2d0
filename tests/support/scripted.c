#include "scripted.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "dialogue/style.h"
#include "gguf/write.h"
#include "gguf_file.h"

enum { TOKENS = 4096, HEAD = 64, PIECE = 3 };

/* How strongly tokens follow each other: within a script, and by their words (a word once in a prompt of thousands of tokens
 * must be seen in 32 bits beside the former). */
static const float FOLLOWS = 1e6f;
static const float LIKES[SCRIPTED_SCRIPTS] = {0.0f, 1e2f, 3e3f, 1e5f};

typedef struct vocabulary {
    char *texts[TOKENS]; /* in the alphabet of byte-level vocabularies */
    int32_t kinds[TOKENS];
    int32_t
        previous[TOKENS]; /* the token of a script that it follows; -1: none, -2 - n: the first of script n */
    int32_t count, end;
    int32_t words[SCRIPTED_SCRIPTS];
    int32_t last[SCRIPTED_SCRIPTS]; /* tokens of the scripts */
    bool failed;
} vocabulary;

/* ---- Tokens ---- */

/* The character that stands for a byte: itself where it can be printed, else one from U+0100 on. */
static size_t write_byte(char *to, uint8_t byte)
{
    uint32_t code = byte;
    if (!((byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174)) {
        code = 256 + (uint32_t)(byte < 33 ? byte : byte <= 160 ? byte - 127 + 33 : 67);
    }
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    to[0] = (char)(0xC0 | code >> 6);
    to[1] = (char)(0x80 | (code & 0x3F));
    return 2;
}

static int32_t add(vocabulary *v, const char *text, size_t length, int32_t kind)
{
    char *own = v->count < TOKENS ? malloc(2 * length + 1) : NULL;
    size_t n = 0;
    if (!own) {
        v->failed = true;
        return 0;
    }
    for (size_t i = 0; i < length; i++) {
        if (kind == 1) {
            n += write_byte(own + n, (uint8_t)text[i]);
        } else {
            own[n++] = text[i];
        }
    }
    own[n] = 0;
    v->texts[v->count] = own;
    v->kinds[v->count] = kind;
    v->previous[v->count] = -1;
    return v->count++;
}

static int32_t kind_of_mark(const char *text)
{
    return strchr(text, '|') || text[0] == '[' || strstr(text, "\xEF\xBD\x9C") ? 3 : 4;
}

static const char *const turns[] = {"<|im_end|>",
                                    "<|return|>",
                                    "<|eot_id|>",
                                    "<turn|>",
                                    "<\357\275\234end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
                                    "<|user|>",
                                    "<end_of_turn>",
                                    "<|end_of_text|>",
                                    "</s>",
                                    "<|im_start|>",
                                    "<|start_header_id|>",
                                    "<|end_header_id|>",
                                    "<|turn>",
                                    "<|assistant|>",
                                    "<|observation|>",
                                    "<think>",
                                    "</think>",
                                    "<|channel>",
                                    "<channel|>",
                                    "[THINK]",
                                    "[/THINK]",
                                    "<seed:think>",
                                    "</seed:think>"};

/* The longest mark that the text begins with; NULL: none. */
static const char *mark_at(const char *text)
{
    const char *best = NULL;
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        const size_t n = strlen(turns[i]);
        if (!strncmp(text, turns[i], n) && (!best || n > strlen(best))) {
            best = turns[i];
        }
    }
    for (int s = 0; s < MO_STYLES; s++) {
        for (const mo_mark *m = mo_style_get((mo_style_id)s)->marks; m->text; m++) {
            const size_t n = strlen(m->text);
            const bool whole = n > 3 && strchr("<[", m->text[0]) && strchr(">]", m->text[n - 1]);
            if (whole && !strncmp(text, m->text, n) && (!best || n > strlen(best))) {
                best = m->text;
            }
        }
    }
    return best;
}

static int32_t find(const vocabulary *v, const char *text)
{
    for (int32_t i = 0; i < v->count; i++) {
        if (!strcmp(v->texts[i], text)) {
            return i;
        }
    }
    return -1;
}

static void add_marks(vocabulary *v, const char *text)
{
    for (; *text; text++) {
        const char *mark = mark_at(text);
        if (mark && find(v, mark) < 0) {
            add(v, mark, strlen(mark), kind_of_mark(mark));
        }
    }
}

/* The tokens of a script: those of text, or those that are marks, in their order in `steps`. Returns how many there are. */
static int add_script(vocabulary *v, const char *text, bool marks, int32_t *steps)
{
    int count = 0;
    for (size_t n; *text && count < TOKENS; text += n, count++) {
        const char *mark = mark_at(text);
        n = mark ? strlen(mark) : 1;
        while (!mark && n < PIECE && text[n] && !mark_at(text + n)) {
            n++;
        }
        if ((mark != NULL) == marks) {
            steps[count] = add(v, text, n, mark ? kind_of_mark(mark) : 1);
        }
    }
    return count;
}

/* Of texts that are there twice, plain text becomes the token added last, and a mark the one added first: prompts must not be
 * made of tokens of scripts. */
static void fill(vocabulary *v, const char *chat_template, const scripted_script *scripts, int count)
{
    static int32_t steps[SCRIPTED_SCRIPTS][TOKENS];
    for (int i = 0; i < count; i++) {
        add_script(v, scripts[i].text, false, steps[i]);
    }
    for (int i = 0; i < 256; i++) {
        const char byte = (char)i;
        add(v, &byte, 1, 1);
    }
    add_marks(v, chat_template);
    for (int i = 0; i < count; i++) {
        add_marks(v, scripts[i].text);
        v->words[i] = scripts[i].word ? add(v, scripts[i].word, strlen(scripts[i].word), 4) : -1;
    }
    v->end = -1;
    for (size_t i = 0; i < 9 && v->end < 0; i++) { /* those that end a turn */
        v->end = find(v, turns[i]);
    }
    if (v->end < 0) {
        v->end = add(v, turns[0], strlen(turns[0]), 3);
    }
    for (int i = 0; i < count; i++) {
        const int length = add_script(v, scripts[i].text, true, steps[i]);
        v->last[i] = -1;
        for (int k = 0; k < length; k++) {
            v->previous[steps[i][k]] = k > 0 ? steps[i][k - 1] : -2 - i;
            v->last[i] = steps[i][k];
        }
    }
}

/* ---- Weights ---- */

typedef struct weights {
    int64_t width;
    float *embedding, *output, *ones, *value, *mix, *zeros;
} weights;

static bool make_weights(weights *w, const vocabulary *v, int count)
{
    const size_t width = (size_t)w->width, tokens = (size_t)v->count;
    w->embedding = calloc(tokens * width, sizeof(float));
    w->output = calloc(tokens * width, sizeof(float));
    w->ones = malloc(width * sizeof(float));
    w->value = calloc(width * width, sizeof(float));
    w->mix = calloc(width * width, sizeof(float));
    w->zeros = calloc(width * width, sizeof(float));
    if (!w->embedding || !w->output || !w->ones || !w->value || !w->mix || !w->zeros) {
        return false;
    }
    for (size_t i = 0; i < width; i++) {
        w->ones[i] = 1.0f;
    }
    for (size_t i = 0; i < tokens; i++) {
        const int32_t previous = v->previous[i];
        w->embedding[i * width + i] = 1.0f;
        if (previous >= 0) {
            w->output[i * width + (size_t)previous] = FOLLOWS;
        } else if (previous < -1) {
            for (size_t b = 0; b < tokens; b++) {
                w->output[i * width + b] = v->previous[b] == -1 ? FOLLOWS : 0.0f;
            }
            w->output[i * width + tokens + (size_t)(-2 - previous)] = LIKES[-2 - previous];
        }
    }
    for (int i = 0; i < count; i++) {
        if (v->last[i] >= 0) {
            w->output[(size_t)v->end * width + (size_t)v->last[i]] = FOLLOWS;
        }
        if (v->words[i] >= 0) {
            const size_t word = (size_t)v->words[i];
            w->value[word * width + word] = 1.0f;
            w->mix[(tokens + (size_t)i) * width + word] = 1.0f;
        }
    }
    return true;
}

static void free_weights(weights *w)
{
    free(w->embedding);
    free(w->output);
    free(w->ones);
    free(w->value);
    free(w->mix);
    free(w->zeros);
}

/* ---- The file ---- */

static void put_keys(mo_gguf_writer *w, const vocabulary *v, int64_t width, const char *chat_template)
{
    static mo_text texts[TOKENS];
    for (int32_t i = 0; i < v->count; i++) {
        texts[i] = (mo_text){v->texts[i], strlen(v->texts[i])};
    }
    mo_gguf_put_string(w, "general.architecture", "llama");
    mo_gguf_put_string(w, "general.name", "scripted");
    mo_gguf_put_u32(w, "llama.block_count", 1);
    mo_gguf_put_u32(w, "llama.context_length", 32768);
    mo_gguf_put_u32(w, "llama.embedding_length", (uint32_t)width);
    mo_gguf_put_u32(w, "llama.feed_forward_length", HEAD);
    mo_gguf_put_u32(w, "llama.attention.head_count", (uint32_t)(width / HEAD));
    mo_gguf_put_u32(w, "llama.attention.head_count_kv", (uint32_t)(width / HEAD));
    mo_gguf_put_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-6f);
    mo_gguf_put_u32(w, "llama.rope.dimension_count", HEAD);
    mo_gguf_put_f32(w, "llama.rope.freq_base", 10000.0f);
    mo_gguf_put_string(w, "tokenizer.ggml.model", "gpt2");
    mo_gguf_put_string(w, "tokenizer.ggml.pre", "gpt-2");
    mo_gguf_put_texts(w, "tokenizer.ggml.tokens", texts, (uint64_t)v->count);
    mo_gguf_put_array(w, "tokenizer.ggml.token_type", MO_VALUE_I32, v->kinds, (uint64_t)v->count);
    mo_gguf_put_texts(w, "tokenizer.ggml.merges", NULL, 0);
    mo_gguf_put_u32(w, "tokenizer.ggml.eos_token_id", (uint32_t)v->end);
    mo_gguf_put_bool(w, "tokenizer.ggml.add_bos_token", false);
    mo_gguf_put_string(w, "tokenizer.chat_template", chat_template);
}

static mo_status write_file(const char *path, const vocabulary *v, const weights *p,
                            const char *chat_template, mo_error *err)
{
    const int64_t width = p->width;
    const struct {
        const char *name;
        int dims;
        int64_t size[2];
        const float *data;
    } tensors[] = {
        {"token_embd.weight", 2, {width, v->count}, p->embedding},
        {"output_norm.weight", 1, {width, 0}, p->ones},
        {"output.weight", 2, {width, v->count}, p->output},
        {"blk.0.attn_norm.weight", 1, {width, 0}, p->ones},
        {"blk.0.attn_q.weight", 2, {width, width}, p->zeros},
        {"blk.0.attn_k.weight", 2, {width, width}, p->zeros},
        {"blk.0.attn_v.weight", 2, {width, width}, p->value},
        {"blk.0.attn_output.weight", 2, {width, width}, p->mix},
        {"blk.0.ffn_norm.weight", 1, {width, 0}, p->ones},
        {"blk.0.ffn_gate.weight", 2, {width, HEAD}, p->zeros},
        {"blk.0.ffn_up.weight", 2, {width, HEAD}, p->zeros},
        {"blk.0.ffn_down.weight", 2, {HEAD, width}, p->zeros},
    };
    enum { COUNT = sizeof tensors / sizeof *tensors };
    const void *data[COUNT];
    mo_gguf_writer *w = mo_gguf_writer_create(0);
    put_keys(w, v, width, chat_template);
    for (int i = 0; i < COUNT; i++) {
        mo_gguf_put_tensor(w, tensors[i].name, MO_F32, tensors[i].dims, tensors[i].size);
        data[i] = tensors[i].data;
    }
    mo_status status = mo_gguf_writer_layout(w, err);
    if (status == MO_OK && !gguf_save(w, path, data)) {
        status = mo_fail(err, MO_EIO, "%s: cannot be written", path);
    }
    mo_gguf_writer_destroy(w);
    return status;
}

mo_status scripted_write(const char *path, const char *chat_template, const scripted_script *scripts,
                         int count, mo_error *err)
{
    vocabulary *v = calloc(1, sizeof *v);
    weights p = {0};
    mo_status status = MO_ENOMEM;
    if (count < 1 || count > SCRIPTED_SCRIPTS || scripts[0].word) {
        free(v);
        return mo_fail(err, MO_EINVAL, "1 to %d scripts, the first without a word", SCRIPTED_SCRIPTS);
    }
    if (v) {
        fill(v, chat_template, scripts, count);
        p.width = (v->count + count + HEAD - 1) / HEAD * HEAD;
        status = v->failed ? mo_fail(err, MO_EINVAL, "the scripts are too long") : MO_OK;
        if (status == MO_OK) {
            status = make_weights(&p, v, count) ? write_file(path, v, &p, chat_template, err)
                                                : mo_fail(err, MO_ENOMEM, "no memory for the weights");
        }
        for (int32_t i = 0; i < v->count; i++) {
            free(v->texts[i]);
        }
    }
    free_weights(&p);
    free(v);
    return status;
}
