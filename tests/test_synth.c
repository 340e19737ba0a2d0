/* Synthetic models: shapes are the published ones, random blocks have the asked statistics, and a file is
 * the same for any number of threads, whole or not there at all. */
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "folder.h"
#include "gguf/read.h"
#include "numeric/block.h"
#include "synth/noise.h"
#include "synth/synth.h"
#include "tiny_shape.h"

typedef struct bytes {
    uint8_t *data;
    size_t size;
} bytes;

static bytes read_all(int fd)
{
    bytes b = {malloc(1 << 16), 0};
    size_t capacity = 1 << 16;
    for (ssize_t n; (n = read(fd, b.data + b.size, capacity - b.size)) > 0;) {
        b.size += (size_t)n;
        if (b.size == capacity) {
            capacity *= 2;
            b.data = realloc(b.data, capacity);
        }
    }
    return b;
}

static bytes read_file(const char *path)
{
    const int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    const bytes b = read_all(fd);
    close(fd);
    return b;
}

static uint64_t hash_of(const uint8_t *data, size_t size)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ data[i]) * 0x100000001B3u;
    }
    return hash;
}

/* ---- Shapes ----------------------------------------------------------------------------------- */

static void shapes_have_the_published_size(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double billions;
    } published[] = {
        /* clang-format off */
        {"gpt-oss-20b", 20.9},
        {"gpt-oss-120b", 116.8},
        {"qwen3-30b-a3b", 30.5},
        {"qwen3-next-80b-a3b", 79.7},
        {"qwen3.6-35b-a3b", 34.7},
        {"qwen3.6-27b", 26.9},
        {"mixtral-8x7b", 46.7},
        {"olmoe-1b-7b", 6.92},
        {"gemma-4-26b-a4b", 25.2},
        {"llama-3-8b", 8.03},
        {"llama-3-70b", 70.6},
        {"qwen1.5-moe-a2.7b", 14.3},
        {"smollm2-135m", 0.1345},
        {"smollm2-1.7b", 1.711},
        {"glm-4.5-air", 106.9},
        {"deepseek-v3.2", 671.9}, {"glm-5", 744.0}, {"glm-5.2", 743.0},
        {"deepseek-v3", 671.0},       {"kimi-k2", 1026.0},         {"glm-4.7-flash", 29.9},
        {"deepseek-v2-lite", 15.7},
        {"lfm2-8b-a1b", 8.34},
        {"lfm2-1.2b", 1.17}, {"jamba-mini", 51.6}, {"granite-4.0-h-tiny", 6.94}, {"granite-4.0-h-small", 32.2},
        {"minimax-m2", 228.7},
        {"ernie-4.5-21b-a3b", 21.8},
        {"granite-3.1-3b-a800m", 3.30},
        {"ling-mini-2.0", 16.26},
        {"dots.llm1", 142.8},
        {"hunyuan-a13b", 80.4},
        {"phi-3.5-moe", 41.87},
        {"phi-3.5-mini", 3.821},
        {"hunyuan-7b", 7.50},
        {"qwen2.5-7b", 7.616},
        {"gemma-3-4b", 3.88},
        {"glm-4-9b", 9.40},
        {"granite-3.3-8b", 8.17},
        {"ernie-4.5-0.3b", 0.3607},
        {"qwen3-235b-a22b", 235.1}, {"qwen3-coder-480b-a35b", 480.2}, {"glm-4.5", 352.8}, {"glm-4.6", 352.8},
        {"trinity-mini", 26.1}, {"laguna-xs.2", 33.4}, {"step-3.5-flash", 196.9}, {"mimo-v2-flash", 308.8},
        {"mistral-small-3.2", 23.57}, {"ministral-3-8b", 8.49}, {"mistral-small-4", 119.0},
        {"qwen3-vl-30b-a3b", 30.5}, {"qwen3-vl-235b-a22b", 235.1}, {"hy3", 295.0}, {"k-exaone-236b-a23b", 236.6},
        {"north-mini-code", 30.5}, {"nemotron-3-nano-30b-a3b", 31.6}, {"nemotron-h-8b", 8.1},
        {"kimi-linear-48b-a3b", 49.1}, {"deepseek-v4-flash", 284.3},
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        mo_synth_info info;
        const mo_synth_options options = mo_synth_options_default();
        assert_int_equal(mo_synth_measure(published[i].name, &options, &info, sizeof info, NULL), MO_OK);
        const double billions = (double)info.parameters / 1e9;
        if (fabs(billions / published[i].billions - 1.0) > 0.01) {
            fail_msg("%s has %.3f billion parameters, not %.3f", published[i].name, billions,
                     published[i].billions);
        }
        assert_non_null(mo_synth_name((int)i));
    }
    assert_null(mo_synth_name((int)(sizeof published / sizeof *published)));
    assert_null(mo_synth_name(-1));
}

static const mo_shape_tensor *find(const mo_shape_tensor *list, int64_t count, const char *name)
{
    for (int64_t i = 0; i < count; i++) {
        if (strcmp(list[i].name, name) == 0) {
            return &list[i];
        }
    }
    return NULL;
}

static void formats_are_the_published_ones(void **state)
{
    (void)state;
    static const struct {
        const char *model, *tensor;
        int64_t size[3];
        mo_type type;
    } expected[] = {
        {"gpt-oss-20b", "blk.23.ffn_down_exps.weight", {2880, 2880, 32}, MO_MXFP4},
        {"gpt-oss-20b", "blk.0.attn_q.weight", {2880, 4096, 1}, MO_Q8_0},
        {"gpt-oss-20b", "token_embd.weight", {2880, 201088, 1}, MO_Q8_0},
        {"gpt-oss-120b", "blk.35.ffn_gate_inp.weight", {2880, 128, 1}, MO_F32},
        {"gpt-oss-120b", "blk.35.ffn_up_exps.bias", {2880, 128, 1}, MO_F32},
        {"gpt-oss-120b", "blk.0.attn_sinks.weight", {64, 1, 1}, MO_F32},
        {"qwen3-30b-a3b", "blk.0.ffn_down_exps.weight", {768, 2048, 128}, MO_Q6_K},
        {"qwen3-30b-a3b", "blk.6.ffn_down_exps.weight", {768, 2048, 128}, MO_Q4_K},
        {"qwen3-30b-a3b", "blk.8.attn_v.weight", {2048, 512, 1}, MO_Q6_K},
        {"qwen3-30b-a3b", "output.weight", {2048, 151936, 1}, MO_Q6_K},
        {"qwen3-next-80b-a3b", "blk.0.attn_qkv.weight", {2048, 8192, 1}, MO_Q5_K},
        {"qwen3-next-80b-a3b", "blk.3.attn_q.weight", {2048, 8192, 1}, MO_Q4_K},
        {"qwen3-next-80b-a3b", "blk.0.ssm_ba.weight", {2048, 64, 1}, MO_Q4_K},
        {"qwen3.6-35b-a3b", "blk.38.ssm_alpha.weight", {2048, 32, 1}, MO_Q4_K},
        {"mixtral-8x7b", "blk.31.attn_v.weight", {4096, 1024, 1}, MO_Q8_0},
        {"mixtral-8x7b", "blk.31.ffn_gate_exps.weight", {4096, 14336, 8}, MO_Q4_K},
        {"gemma-4-26b-a4b", "blk.0.ffn_down_exps.weight", {704, 2816, 128}, MO_Q8_0},
        {"gemma-4-26b-a4b", "blk.5.attn_k.weight", {2816, 1024, 1}, MO_Q4_K},
        {"gemma-4-26b-a4b", "blk.4.attn_v.weight", {2816, 2048, 1}, MO_Q4_K},
        {"gemma-4-26b-a4b", "rope_freqs.weight", {256, 1, 1}, MO_F32},
        {"trinity-mini", "blk.0.attn_gate.weight", {2048, 4096, 1}, MO_Q4_K},
        {"laguna-xs.2", "blk.4.attn_gate.weight", {2048, 48, 1}, MO_Q4_K},
        {"step-3.5-flash", "blk.1.attn_output.weight", {12288, 4096, 1}, MO_Q4_K},
        {"mimo-v2-flash", "blk.1.attn_v.weight", {4096, 1024, 1}, MO_Q6_K},
        {"mimo-v2-flash", "blk.0.attn_output.weight", {8192, 4096, 1}, MO_Q4_K},
        {"qwen1.5-moe-a2.7b", "blk.4.ffn_down_exps.weight", {1408, 2048, 60}, MO_Q5_0},
        {"smollm2-135m", "token_embd.weight", {576, 49152, 1}, MO_Q8_0},
        {"smollm2-135m", "blk.0.attn_q.weight", {576, 576, 1}, MO_Q5_0},
        {"llama-3-70b", "blk.79.ffn_down.weight", {28672, 8192, 1}, MO_Q6_K},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const mo_shape *s = mo_shape_named(expected[i].model);
        const int64_t count = mo_shape_tensors(s, s->layers, NULL, 0);
        mo_shape_tensor *list = calloc((size_t)count, sizeof *list);
        assert_int_equal(mo_shape_tensors(s, s->layers, list, count), count);
        const mo_shape_tensor *t = find(list, count, expected[i].tensor);
        assert_non_null(t);
        assert_memory_equal(t->size, expected[i].size, sizeof t->size);
        assert_int_equal(mo_shape_format(s, t), expected[i].type);
        free(list);
    }
    const mo_shape *gemma = mo_shape_named("GEMMA-4-26b-a4b");
    const int64_t count = mo_shape_tensors(gemma, 6, NULL, 0);
    mo_shape_tensor *list = calloc((size_t)count, sizeof *list);
    mo_shape_tensors(gemma, 6, list, count);
    assert_null(find(list, count, "blk.5.attn_v.weight")); /* full layers take their keys */
    assert_null(find(list, count, "output.weight"));
    free(list);
}

/* ---- Noise ------------------------------------------------------------------------------------ */

static const mo_type all_types[] = {MO_WEIGHT_TYPES};
enum { TYPES = sizeof all_types / sizeof *all_types };

static void noise_has_the_asked_deviation(void **state)
{
    (void)state;
    enum { VALUES = 1 << 18 };
    static const double wanted[] = {1.0, 0.0186, 0.006};
    uint8_t *blocks = malloc(VALUES * 4);
    float *x = malloc(VALUES * sizeof *x);
    for (int i = 0; i < TYPES; i++) {
        const mo_format *f = mo_format_of(all_types[i]);
        for (int w = 0; w < 3; w++) {
            mo_noise n;
            mo_noise_matrix(&n, 7, "blk.0.attn_q.weight", f->type, wanted[w]);
            mo_noise_fill(&n, 0, VALUES / f->block_values, blocks);
            assert_int_equal(mo_format_check(f->type, blocks, mo_format_row_bytes(f, VALUES), NULL), MO_OK);
            mo_row_dequantize(f->type, blocks, VALUES, x);
            double sum = 0.0;
            double squares = 0.0;
            double echo = 0.0; /* of neighbouring rows */
            for (int k = 0; k < VALUES; k++) {
                assert_true(isfinite(x[k]));
                sum += (double)x[k];
                squares += (double)x[k] * (double)x[k];
                echo += k >= 512 ? (double)x[k] * (double)x[k - 512] : 0.0;
            }
            const double deviation = sqrt(squares / VALUES);
            if (fabs(deviation / wanted[w] - 1.0) > 0.03 || fabs(sum / VALUES) > 0.02 * wanted[w] ||
                fabs(echo / squares) > 0.01) {
                fail_msg("%s: deviation %g instead of %g, mean %g, echo %g", f->name, deviation, wanted[w],
                         sum / VALUES, echo / squares);
            }
        }
    }
    free(blocks);
    free(x);
}

static void noise_does_not_depend_on_cuts(void **state)
{
    (void)state;
    enum { BLOCKS = 200 };
    uint8_t whole[BLOCKS * 256];
    uint8_t cut[BLOCKS * 256];
    for (int i = 0; i < TYPES; i++) {
        const int64_t size = mo_format_of(all_types[i])->block_bytes;
        mo_noise n;
        mo_noise_matrix(&n, 1, "output.weight", all_types[i], 0.1);
        mo_noise_fill(&n, 0, BLOCKS, whole);
        mo_noise_fill(&n, 64, BLOCKS - 64, cut + 64 * size);
        mo_noise_fill(&n, 8, 56, cut + 8 * size);
        mo_noise_fill(&n, 0, 8, cut);
        assert_memory_equal(whole, cut, (size_t)(BLOCKS * size));
        mo_noise other;
        mo_noise_matrix(&other, 2, "output.weight", all_types[i], 0.1);
        mo_noise_fill(&other, 0, BLOCKS, cut);
        assert_memory_not_equal(whole, cut, (size_t)(BLOCKS * size));
        for (int64_t b = 0; all_types[i] == MO_Q8_0 && b < BLOCKS; b++) {
            assert_null(memchr(whole + b * size + 2, 0x80, 32));
        }
    }
}

/* ---- Router skew ------------------------------------------------------------------------------ */

/* Standard normal enough: the sum of twelve uniforms. */
static float normal(uint64_t *at)
{
    float sum = -6.0f;
    for (int i = 0; i < 12; i++) {
        sum += (float)(mo_noise_word(99, (*at)++) >> 40) * 0x1p-24f;
    }
    return sum;
}

static int descending(const void *a, const void *b)
{
    return *(const int *)b - *(const int *)a;
}

/* Share of the picks that fall on the most picked quarter of the experts. */
static double top_quarter(int experts, int used, float skew)
{
    enum { INPUTS = 2000, WIDTH = 256, MOST = 512 };
    float scale[MOST];
    int picks[MOST] = {0};
    static float rows[MOST * WIDTH];
    mo_noise n;
    uint64_t at = 0;
    mo_noise_matrix(&n, 1, "blk.0.ffn_gate_inp.weight", MO_F32, 1.0 / sqrt(WIDTH));
    mo_synth_skew(1, "blk.0.ffn_gate_inp.weight", skew, experts, scale);
    n.row_scale = scale;
    n.row_values = WIDTH;
    mo_noise_fill(&n, 0, (int64_t)experts * WIDTH, (uint8_t *)rows);
    for (int t = 0; t < INPUTS; t++) {
        float x[WIDTH];
        float logit[MOST];
        for (int i = 0; i < WIDTH; i++) {
            x[i] = normal(&at);
        }
        for (int e = 0; e < experts; e++) {
            logit[e] = 0.0f;
            for (int i = 0; i < WIDTH; i++) {
                logit[e] += rows[e * WIDTH + i] * x[i];
            }
        }
        for (int k = 0; k < used; k++) {
            int best = 0;
            for (int e = 1; e < experts; e++) {
                best = logit[e] > logit[best] ? e : best;
            }
            picks[best]++;
            logit[best] = -INFINITY;
        }
    }
    qsort(picks, (size_t)experts, sizeof *picks, descending);
    int top = 0;
    for (int e = 0; e < experts / 4; e++) {
        top += picks[e];
    }
    return (double)top / ((double)INPUTS * used);
}

/* The figures are those of moraine synth --help. */
static void skew_makes_some_experts_hot(void **state)
{
    (void)state;
    static const struct {
        int experts, used;
        float skew;
        double share; /* expected, within 0.03 */
    } cases[] = {
        {32, 4, 0.0f, 0.27},  {32, 4, 0.7f, 0.47},  {32, 4, 1.4f, 0.60},
        {128, 8, 0.0f, 0.28}, {128, 8, 0.7f, 0.60}, {128, 8, 1.4f, 0.78},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double share = top_quarter(cases[i].experts, cases[i].used, cases[i].skew);
        print_message("%3d experts, skew %.1f: the hottest quarter takes %.1f %%\n", cases[i].experts,
                      (double)cases[i].skew, 100 * share);
        assert_true(fabs(share - cases[i].share) < 0.03);
    }
}

/* ---- Files ------------------------------------------------------------------------------------ */

static bytes make(const mo_shape *shape, mo_synth_options options)
{
    mo_error err = {MO_OK, ""};
    options.overwrite = true;
    if (mo_synth_write(shape, NULL, in_folder("made.gguf"), &options, NULL, NULL, &err) != MO_OK) {
        fail_msg("%s: %s", shape->name, err.detail);
    }
    const bytes made = read_file(in_folder("made.gguf"));
    unlink(in_folder("made.gguf"));
    return made;
}

static void threads_change_nothing(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 5};
    const mo_shape *shape = mo_shape_named("smollm2-135m"); /* its embedding alone has several chunks */
    bytes first = {NULL, 0};
    for (size_t i = 0; i < 3; i++) {
        mo_synth_options options = mo_synth_options_default();
        options.layers = 1;
        options.threads = threads[i];
        const bytes made = make(shape, options);
        if (i == 0) {
            first = made;
            continue;
        }
        assert_int_equal(first.size, made.size);
        assert_memory_equal(first.data, made.data, made.size);
        free(made.data);
    }
    assert_true(hash_of(first.data, first.size) == 0xDAA65B063D2F2ADAu);
    free(first.data);
}

/* Hashes of tiny models: every shape as published, and every format. */
static void files_are_the_same_everywhere(void **state)
{
    (void)state;
    static const struct {
        const char *name; /* of the shape, or of the format */
        uint64_t hash;
    } expected[] = {
#include "synth_fingerprints.inc"
    };
    int shapes = 0, wrong = 0;
    while (mo_shape_at(shapes)) {
        shapes++;
    }
    for (int i = 0; i < shapes + TYPES; i++) {
        const bool type = i >= shapes;
        const mo_shape tiny = tiny_shape(mo_shape_at(type ? (i - shapes) % 13 : i));
        mo_synth_options options = mo_synth_options_default();
        options.skew = 0.5f;
        options.threads = 2;
        options.type = type ? mo_format_of(all_types[i - shapes])->name : NULL;
        const bytes made = make(&tiny, options);
        const char *name = type ? options.type : tiny.name;
        const uint64_t hash = hash_of(made.data, made.size);
        bool found = false;
        for (size_t n = 0; n < sizeof expected / sizeof *expected; n++) {
            found |= strcmp(expected[n].name, name) == 0 && expected[n].hash == hash;
        }
        if (!found) {
            wrong++;
            print_message("    {\"%s\", 0x%016llxu},\n", name, (unsigned long long)hash);
        }
        free(made.data);
    }
    assert_int_equal(wrong, 0);
}

/* Opens a tiny model with a made vocabulary. */
static mo_model *with_vocabulary(int32_t tokens)
{
    mo_shape tiny = tiny_shape(mo_shape_at(0));
    mo_synth_options options = mo_synth_options_default();
    mo_model_options opening = mo_model_options_default();
    mo_model *model = NULL;
    mo_error err = {MO_OK, ""};
    tiny.vocabulary = tokens;
    options.layers = 1;
    options.vocabulary = options.overwrite = true;
    opening.threads = 1;
    if (mo_synth_write(&tiny, NULL, in_folder("words.gguf"), &options, NULL, NULL, &err) != MO_OK ||
        mo_model_open(in_folder("words.gguf"), &opening, &model, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    unlink(in_folder("words.gguf"));
    return model;
}

static void a_made_vocabulary_has_a_token_for_every_text(void **state)
{
    (void)state;
    char text[255];
    int32_t *tokens = NULL;
    size_t count = 0, at = 0;
    for (int i = 0; i < 255; i++) {
        text[i] = (char)(255 - i);
    }
    mo_model *model = with_vocabulary(257);
    assert_int_equal(mo_tokenize(model, text, sizeof text, 0, &tokens, &count, NULL), MO_OK);
    assert_int_equal(count, 255);
    for (size_t i = 0; i < count; i++) {
        const mo_text piece = mo_token_bytes(model, tokens[i]);
        assert_true(at + piece.length <= sizeof text);
        assert_memory_equal(text + at, piece.data, piece.length);
        at += piece.length;
    }
    assert_int_equal(at, sizeof text);
    mo_free(tokens);
    mo_model_close(model);
}

static void a_made_vocabulary_has_words(void **state)
{
    (void)state;
    int32_t *tokens = NULL;
    size_t count = 0;
    mo_model *model = with_vocabulary(2000);
    assert_int_equal(mo_tokenize(model, "aaazzzaa", 8, 0, &tokens, &count, NULL), MO_OK);
    assert_int_equal(count, 3);
    assert_int_equal(tokens[0], 256 + 26 * 26 + 25); /* aaaz is the 26th word */
    assert_int_equal(tokens[1], 256 + 26 * 26 - 1);  /* zz the last pair; zzaa would need more tokens */
    assert_int_equal(tokens[2], 256);
    mo_free(tokens);
    mo_model_close(model);
}

static void a_vocabulary_of_too_few_tokens_is_refused(void **state)
{
    (void)state;
    mo_shape tiny = tiny_shape(mo_shape_at(0));
    mo_synth_options options = mo_synth_options_default();
    mo_synth_info info;
    mo_error err;
    tiny.vocabulary = 256;
    options.vocabulary = true;
    assert_int_equal(mo_synth_plan(&tiny, NULL, &options, &info, &err), MO_EINVAL);
    assert_non_null(strstr(err.detail, "256 tokens"));
}

/* The experts of every token: each is there, and no token has one twice. */
static void expect_experts(const mo_gguf_tensor *t, const uint8_t *data, int32_t experts)
{
    const int64_t used = t->size[0];
    for (int64_t i = 0; i < t->values; i++) {
        int32_t id, other;
        memcpy(&id, data + t->offset + 4 * i, sizeof id);
        assert_true(id >= 0 && id < experts);
        for (int64_t k = i / used * used; k < i; k++) {
            memcpy(&other, data + t->offset + 4 * k, sizeof other);
            assert_int_not_equal(id, other);
        }
    }
}

static void reader_finds_what_was_promised(void **state)
{
    (void)state;
    for (int i = 0; mo_shape_at(i); i++) {
        const mo_shape tiny = tiny_shape(mo_shape_at(i));
        const bytes made = make(&tiny, mo_synth_options_default());
        mo_error err;
        mo_gguf *g = NULL;
        if (mo_gguf_open_memory(made.data, made.size, tiny.name, &g, &err) != MO_OK) {
            fail_msg("%s: %s", tiny.name, err.detail);
        }
        char key[96];
        uint32_t layers, vocabulary;
        snprintf(key, sizeof key, "%s.block_count", tiny.architecture);
        assert_int_equal(mo_gguf_u32_or(g, key, 0, &layers, NULL), MO_OK);
        assert_int_equal(layers, tiny.layers);
        snprintf(key, sizeof key, "%s.vocab_size", tiny.architecture);
        assert_int_equal(mo_gguf_u32_or(g, key, 0, &vocabulary, NULL), MO_OK);
        assert_int_equal(vocabulary, 300);
        assert_int_equal(mo_gguf_tensor_count(g), mo_shape_tensors(&tiny, tiny.layers, NULL, 0));
        for (int64_t t = 0; t < mo_gguf_tensor_count(g); t++) {
            const mo_gguf_tensor *at = mo_gguf_tensor_at(g, t);
            if (at->format->type == MO_I32) {
                expect_experts(at, made.data, tiny.experts);
                continue;
            }
            float *x = malloc((size_t)at->values * sizeof *x);
            mo_row_dequantize(at->format->type, made.data + at->offset, at->values, x);
            const bool below = strstr(at->name, "ssm_a") && !strstr(at->name, "ssm_alpha");
            bool good = true;
            for (int64_t k = 0; k < at->values; k++) {
                good = good && isfinite(x[k]) && (!below || x[k] < 0.0f);
            }
            assert_true(good);
            free(x);
        }
        mo_gguf_close(g);
        free(made.data);
    }
}

static void fewer_layers_are_the_first_layers(void **state)
{
    (void)state;
    const mo_shape tiny = tiny_shape(mo_shape_named("qwen3-next-80b-a3b"));
    mo_synth_options options = mo_synth_options_default();
    const bytes whole = make(&tiny, options);
    options.layers = 2;
    const bytes part = make(&tiny, options);
    mo_gguf *a = NULL;
    mo_gguf *b = NULL;
    assert_int_equal(mo_gguf_open_memory(whole.data, whole.size, "whole", &a, NULL), MO_OK);
    assert_int_equal(mo_gguf_open_memory(part.data, part.size, "part", &b, NULL), MO_OK);
    assert_true(mo_gguf_tensor_count(b) < mo_gguf_tensor_count(a));
    for (int64_t i = 0; i < mo_gguf_tensor_count(b); i++) {
        const mo_gguf_tensor *t = mo_gguf_tensor_at(b, i);
        const mo_gguf_tensor *u = mo_gguf_tensor_find(a, t->name);
        assert_non_null(u);
        assert_int_equal(t->bytes, u->bytes);
        assert_memory_equal(part.data + t->offset, whole.data + u->offset, (size_t)t->bytes);
    }
    mo_gguf_close(a);
    mo_gguf_close(b);
    free(whole.data);
    free(part.data);
}

static void nvfp4_has_scale_tensors(void **state)
{
    (void)state;
    const mo_shape tiny = tiny_shape(mo_shape_named("qwen3-30b-a3b"));
    mo_synth_options options = mo_synth_options_default();
    options.type = "nvfp4";
    const bytes made = make(&tiny, options);
    mo_gguf *g = NULL;
    assert_int_equal(mo_gguf_open_memory(made.data, made.size, "nvfp4", &g, NULL), MO_OK);
    const mo_gguf_tensor *scale = mo_gguf_tensor_find(g, "blk.1.ffn_up_exps.scale");
    assert_non_null(scale);
    assert_int_equal(scale->values, 6);
    assert_null(mo_gguf_tensor_find(g, "token_embd.scale"));
    assert_string_equal(mo_gguf_tensor_find(g, "token_embd.weight")->format->name, "NVFP4");
    assert_string_equal(mo_gguf_tensor_find(g, "blk.0.ffn_down_exps.weight")->format->name, "MXFP4"); /* 96 */
    mo_gguf_close(g);
    free(made.data);
}

static void experts_have_a_format_of_their_own(void **state)
{
    (void)state;
    static const struct {
        const char *type, *tensor, *format;
    } cases[] = {
        {NULL, "blk.0.ffn_up_exps.weight", "IQ2_XXS"},     {NULL, "blk.0.attn_q.weight", "Q4_K"},
        {NULL, "blk.0.ffn_down_exps.weight", "IQ4_NL"}, /* rows of 96 */
        {"q8_0", "blk.0.ffn_gate_exps.weight", "IQ2_XXS"}, {"q8_0", "blk.0.attn_q.weight", "Q8_0"},
        {"q8_0", "blk.0.ffn_gate_inp.weight", "F32"},
    };
    const mo_shape tiny = tiny_shape(mo_shape_named("qwen3-30b-a3b"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mo_synth_options options = mo_synth_options_default();
        options.type = cases[i].type;
        options.experts = "iq2_xxs";
        const bytes made = make(&tiny, options);
        mo_gguf *g = NULL;
        assert_int_equal(mo_gguf_open_memory(made.data, made.size, "mixed", &g, NULL), MO_OK);
        assert_string_equal(mo_gguf_tensor_find(g, cases[i].tensor)->format->name, cases[i].format);
        mo_gguf_close(g);
        free(made.data);
    }
}

static void *drain(void *fd)
{
    bytes *b = malloc(sizeof *b);
    *b = read_all(*(const int *)fd);
    return b;
}

static void holes_are_experts_alone(void **state)
{
    (void)state;
    char whole[256], holes[256];
    mo_error err;
    mo_synth_options options = mo_synth_options_default();
    const mo_shape tiny = tiny_shape(mo_shape_named("qwen3-30b-a3b"));
    snprintf(whole, sizeof whole, "%s/whole.gguf", folder);
    snprintf(holes, sizeof holes, "%s/holes.gguf", folder);
    assert_int_equal(mo_synth_write(&tiny, NULL, whole, &options, NULL, NULL, &err), MO_OK);
    options.holes = true;
    assert_int_equal(mo_synth_write(&tiny, NULL, holes, &options, NULL, NULL, &err), MO_OK);
    const bytes want = read_file(whole), got = read_file(holes);
    mo_gguf *g = NULL;
    assert_int_equal(mo_gguf_open(whole, &g, NULL), MO_OK);
    assert_int_equal(got.size, want.size);
    int experts = 0;
    for (int64_t i = 0; i < mo_gguf_tensor_count(g); i++) {
        const mo_gguf_tensor *t = mo_gguf_tensor_at(g, i);
        if (strstr(t->name, "_exps")) {
            experts++;
            memset(want.data + t->offset, 0, (size_t)t->bytes);
        }
    }
    assert_true(experts >= 3);
    assert_memory_equal(got.data, want.data, want.size);
    mo_gguf_close(g);
    free(want.data);
    free(got.data);
    unlink(whole);
    unlink(holes);
}

static void pipe_gets_the_same_bytes(void **state)
{
    (void)state;
    int ends[2];
    char name[64];
    pthread_t reader;
    void *got;
    const mo_shape tiny = tiny_shape(mo_shape_named("gpt-oss-20b"));
    const mo_synth_options options = mo_synth_options_default();
    const bytes expected = make(&tiny, options);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(pthread_create(&reader, NULL, drain, &ends[0]), 0);
    snprintf(name, sizeof name, "/proc/self/fd/%d", ends[1]);
    mo_error err;
    const mo_status status = mo_synth_write(&tiny, NULL, name, &options, NULL, NULL, &err);
    close(ends[1]);
    pthread_join(reader, &got);
    close(ends[0]);
    assert_int_equal(status, MO_OK);
    bytes *b = got;
    assert_int_equal(b->size, expected.size);
    assert_memory_equal(b->data, expected.data, expected.size);
    free(b->data);
    free(b);
    free(expected.data);
}

/* ---- What goes wrong -------------------------------------------------------------------------- */

static void full_disk_is_said_and_nothing_left(void **state)
{
    (void)state;
    mo_error err;
    mo_synth_options options = mo_synth_options_default();
    options.layers = 1;
    assert_int_equal(mo_synth("smollm2-135m", "/dev/full", &options, NULL, NULL, &err), MO_ENOSPC);
    assert_non_null(strstr(err.detail, "/dev/full"));

    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    const struct rlimit small = {1 << 20, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const mo_status status = mo_synth("smollm2-135m", in_folder("big.gguf"), &options, NULL, NULL, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(status, MO_ENOSPC);
    assert_int_equal(folder_count(), 0);

    assert_int_equal(mo_synth("smollm2-135m", in_folder("no/such/x.gguf"), &options, NULL, NULL, &err),
                     MO_ENOENT);
}

static bool cancel_later(void *user, int64_t done, int64_t total)
{
    int *calls = user;
    assert_true(done <= total);
    return ++*calls < 2;
}

static void cancelling_leaves_nothing(void **state)
{
    (void)state;
    mo_error err;
    int calls = 0;
    mo_synth_options options = mo_synth_options_default();
    options.threads = 1;
    assert_int_equal(mo_synth("smollm2-135m", in_folder("c.gguf"), &options, cancel_later, &calls, &err),
                     MO_ECANCELLED);
    assert_int_equal(calls, 2);
    assert_int_equal(folder_count(), 0);
}

static void existing_file_is_kept(void **state)
{
    (void)state;
    mo_error err;
    const mo_shape tiny = tiny_shape(mo_shape_named("llama-3-8b"));
    mo_synth_options options = mo_synth_options_default();
    FILE *f = fopen(in_folder("mine.gguf"), "w");
    fputs("mine", f);
    fclose(f);
    assert_int_equal(mo_synth_write(&tiny, NULL, in_folder("mine.gguf"), &options, NULL, NULL, &err),
                     MO_EINVAL);
    assert_non_null(strstr(err.detail, "exists"));
    bytes b = read_file(in_folder("mine.gguf"));
    assert_int_equal(b.size, 4);
    free(b.data);
    options.overwrite = true;
    assert_int_equal(mo_synth_write(&tiny, NULL, in_folder("mine.gguf"), &options, NULL, NULL, &err), MO_OK);
    b = read_file(in_folder("mine.gguf"));
    assert_memory_equal(b.data, "GGUF", 4);
    free(b.data);
    unlink(in_folder("mine.gguf"));
    assert_int_equal(folder_count(), 0);
}

static void wrong_options_are_explained(void **state)
{
    (void)state;
    mo_error err;
    mo_synth_info info;
    mo_synth_options options = mo_synth_options_default();
    assert_int_equal(mo_synth_measure("gpt-5", &options, &info, sizeof info, &err), MO_ENOENT);
    for (int i = 0; mo_synth_name(i); i++) {
        assert_non_null(strstr(err.detail, mo_synth_name(i)));
    }
    assert_int_equal(mo_synth("gpt-5", in_folder("x.gguf"), &options, NULL, NULL, &err), MO_ENOENT);
    options.layers = 25;
    assert_int_equal(mo_synth_measure("gpt-oss-20b", &options, &info, sizeof info, &err), MO_EINVAL);
    assert_non_null(strstr(err.detail, "24"));
    options.layers = 0;
    options.type = "q4_2";
    assert_int_equal(mo_synth_measure("gpt-oss-20b", &options, &info, sizeof info, &err), MO_EINVAL);
    assert_non_null(strstr(err.detail, "Q4_0"));
    options.type = "i32";
    assert_int_equal(mo_synth_measure("gpt-oss-20b", &options, &info, sizeof info, &err), MO_EINVAL);
    options.type = NULL;
    options.experts = "q4_2";
    assert_int_equal(mo_synth_measure("gpt-oss-20b", &options, &info, sizeof info, &err), MO_EINVAL);
    options.experts = "q4_k";
    assert_int_equal(mo_synth_measure("llama-3-8b", &options, &info, sizeof info, &err), MO_EINVAL);
    assert_non_null(strstr(err.detail, "no experts"));
    options.experts = NULL;
    options.skew = NAN;
    assert_int_equal(mo_synth_measure("gpt-oss-20b", &options, &info, sizeof info, &err), MO_EINVAL);
    options.skew = -1.0f;
    assert_int_equal(mo_synth_measure("gpt-oss-20b", &options, &info, sizeof info, &err), MO_EINVAL);
    options.skew = 0.0f;
    options.threads = -1;
    assert_int_equal(mo_synth_measure("gpt-oss-20b", &options, &info, sizeof info, &err), MO_EINVAL);
    assert_int_equal(folder_count(), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_have_the_published_size),
        cmocka_unit_test(formats_are_the_published_ones),
        cmocka_unit_test(noise_has_the_asked_deviation),
        cmocka_unit_test(noise_does_not_depend_on_cuts),
        cmocka_unit_test(skew_makes_some_experts_hot),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(files_are_the_same_everywhere),
        cmocka_unit_test(reader_finds_what_was_promised),
        cmocka_unit_test(a_made_vocabulary_has_a_token_for_every_text),
        cmocka_unit_test(a_made_vocabulary_has_words),
        cmocka_unit_test(a_vocabulary_of_too_few_tokens_is_refused),
        cmocka_unit_test(fewer_layers_are_the_first_layers),
        cmocka_unit_test(nvfp4_has_scale_tensors),
        cmocka_unit_test(experts_have_a_format_of_their_own),
        cmocka_unit_test(holes_are_experts_alone),
        cmocka_unit_test(pipe_gets_the_same_bytes),
        cmocka_unit_test(full_disk_is_said_and_nothing_left),
        cmocka_unit_test(cancelling_leaves_nothing),
        cmocka_unit_test(existing_file_is_kept),
        cmocka_unit_test(wrong_options_are_explained),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("synth", tests, folder_make, folder_remove_empty);
}
