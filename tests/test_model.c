/* Models: every family's files become the same parts whatever the layout of the file (split, merged, one tensor
 * for each expert, fused) and the method of loading (read, rearranged, mapped). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "folder.h"
#include "gguf/summary.h"
#include "gguf/write.h"
#include "gguf_file.h"
#include "model/nearest.h"
#include "model_draft.h"
#include "numeric/block.h"
#include "synth/shapes.h"

/* Every model of the families; those that the tree leaves out are found in the folder MO_TEST_ORACLE names. */
static const char *const models[] = {
    "llama",          "llama-moe",      "qwen3",          "qwen3moe",
    "qwen3moe-nvfp4", "qwen2moe",       "olmoe",          "gpt-oss",
    "qwen35moe",      "qwen3next",      "gpt-oss-mxfp4",  "qwen35",
    "qwen3next-mixq", "gemma4",         "qwen3moe-q4k",   "llama31",
    "glm4moe",        "granitemoe",     "minimax-m2",     "ernie4_5-moe",
    "bailingmoe2",    "dots1",          "phimoe",         "hunyuan-moe",
    "jamba",          "granitehybrid",  "lfm2moe",        "afmoe",
    "laguna",         "step35",         "mimo2",          "jamba",
    "granitehybrid",  "lfm2moe",        "mistral3",       "mistral4",
    "qwen3vlmoe",     "hy_v3",          "hy_v3-mtp",      "exaone-moe",
    "cohere2moe",     "cohere2moe-mtp", "nemotron_h_moe", "nemotron_h_moe-mtp",
    "kimi-linear",    "bailingmoe3",    "deepseek4",
};
enum { MODELS = sizeof models / sizeof *models };

/* ---- Comparing ---- */

/* Values of row r, whatever the layout. */
static void row_values(const mo_weights *w, int64_t r, float *out)
{
    const mo_format *f = mo_format_of(w->type);
    uint8_t space[MO_BLOCK_BYTES_MAX];
    for (int64_t b = 0; b < w->cols / f->block_values; b++) {
        mo_row_dequantize(w->type, mo_weights_block(w, r, b, space), f->block_values,
                          out + b * f->block_values);
    }
}

static void same_matrix(const mo_weights *a, const mo_weights *b)
{
    static float x[4096], y[4096];
    assert_int_equal(a->rows, b->rows);
    assert_int_equal(a->cols, b->cols);
    for (int64_t r = 0; r < a->rows; r++) {
        row_values(a, r, x);
        row_values(b, r, y);
        assert_memory_equal(x, y, (size_t)a->cols * sizeof *x);
    }
}

static void same_vector(const float *a, const float *b, int64_t n)
{
    assert_true(!a == !b);
    if (a) {
        assert_memory_equal(a, b, (size_t)n * sizeof *a);
    }
}

static void same_linear(const mo_linear *a, const mo_linear *b)
{
    assert_int_equal(mo_linear_present(a), mo_linear_present(b));
    if (mo_linear_present(a)) {
        same_matrix(&a->w, &b->w);
        same_vector(a->scale, b->scale, 1);
        same_vector(a->bias, b->bias, a->w.rows);
    }
}

static void same_compressor(const mo_compressor *a, const mo_compressor *b, int64_t ratio)
{
    assert_int_equal(a->length, b->length);
    same_linear(&a->values, &b->values);
    same_linear(&a->gate, &b->gate);
    same_vector(a->place, b->place, a->gate.w.rows * ratio);
    same_vector(a->norm, b->norm, a->length);
}

static void same_compressed(const mo_compressed *a, const mo_compressed *b)
{
    assert_int_equal(a->groups, b->groups);
    assert_int_equal(a->ratio, b->ratio);
    assert_int_equal(a->overlaps, b->overlaps);
    same_linear(&a->q_a, &b->q_a);
    same_linear(&a->group_out, &b->group_out);
    same_vector(a->q_norm, b->q_norm, a->q_a.w.rows);
    same_compressor(&a->keys, &b->keys, a->ratio);
    same_compressor(&a->index, &b->index, a->ratio);
}

static void same_attention(const mo_attention *a, const mo_attention *b)
{
    assert_int_equal(a->heads, b->heads);
    assert_int_equal(a->kv_heads, b->kv_heads);
    assert_int_equal(a->window, b->window);
    same_linear(&a->q, &b->q);
    same_linear(&a->k, &b->k);
    same_linear(&a->v, &b->v);
    same_linear(&a->out, &b->out);
    same_linear(&a->gate, &b->gate);
    same_vector(a->q_norm, b->q_norm, a->norm_all ? a->heads * a->k_len : a->k_len);
    same_vector(a->k_norm, b->k_norm, a->norm_all ? a->kv_heads * a->k_len : a->k_len);
    same_vector(a->sinks, b->sinks, a->heads);
    assert_int_equal(a->latent.plain, b->latent.plain);
    assert_int_equal(a->latent.out_len, b->latent.out_len);
    same_linear(&a->latent.q_a, &b->latent.q_a);
    same_linear(&a->latent.k_b, &b->latent.k_b);
    same_linear(&a->latent.v_b, &b->latent.v_b);
    same_vector(a->latent.q_norm, b->latent.q_norm, a->latent.q_a.w.rows);
    same_vector(a->latent.norm, b->latent.norm, a->v_len);
    same_compressed(&a->compressed, &b->compressed);
    assert_true((a->rope == NULL) == (b->rope == NULL));
    if (a->rope) {
        assert_memory_equal(a->rope, b->rope, sizeof *a->rope);
    }
}

static void same_delta(const mo_delta *a, const mo_delta *b)
{
    assert_int_equal(a->decay, b->decay);
    assert_true(a->bound == b->bound);
    same_linear(&a->qkv, &b->qkv);
    same_linear(&a->k, &b->k);
    same_linear(&a->v, &b->v);
    same_linear(&a->alpha_in, &b->alpha_in);
    same_linear(&a->gate_in, &b->gate_in);
    same_linear(&a->gate, &b->gate);
    same_linear(&a->ba, &b->ba);
    same_linear(&a->beta, &b->beta);
    same_linear(&a->alpha, &b->alpha);
    same_linear(&a->out, &b->out);
    same_vector(a->conv, b->conv, a->taps * a->qkv.w.rows);
    same_vector(a->k_conv, b->k_conv, a->taps * a->k.w.rows);
    same_vector(a->v_conv, b->v_conv, a->taps * a->v.w.rows);
    same_vector(a->dt, b->dt, a->decay == MO_DECAY_HEADS ? a->v_heads : a->v_heads * a->head);
    same_vector(a->a, b->a, a->v_heads);
    same_vector(a->norm, b->norm, a->head);
}

static void same_short_conv(const mo_short_conv *a, const mo_short_conv *b)
{
    same_linear(&a->in, &b->in);
    same_linear(&a->out, &b->out);
    same_vector(a->conv, b->conv, a->taps * a->channels);
}

static void same_mamba(const mo_mamba *a, const mo_mamba *b)
{
    const int64_t channels = mo_mamba_channels(a);
    assert_int_equal(a->heads, b->heads);
    assert_int_equal(a->groups, b->groups);
    same_linear(&a->x, &b->x);
    same_linear(&a->z, &b->z);
    same_linear(&a->dt_in, &b->dt_in);
    same_linear(&a->parts, &b->parts);
    same_linear(&a->dt, &b->dt);
    same_linear(&a->out, &b->out);
    same_vector(a->conv, b->conv, a->taps * channels);
    same_vector(a->conv_bias, b->conv_bias, channels);
    same_vector(a->dt_norm, b->dt_norm, a->rank);
    same_vector(a->b_norm, b->b_norm, a->states);
    same_vector(a->c_norm, b->c_norm, a->states);
    same_vector(a->dt_bias, b->dt_bias, a->heads);
    same_vector(a->a, b->a, a->heads ? a->heads : a->states * a->inner);
    same_vector(a->d, b->d, a->heads ? a->heads : a->inner);
    same_vector(a->norm, b->norm, a->inner);
}

static void same_ffn(const mo_ffn *a, const mo_ffn *b)
{
    same_linear(&a->gate, &b->gate);
    same_linear(&a->up, &b->up);
    same_linear(&a->down, &b->down);
}

static void same_moe(const mo_moe *a, const mo_moe *b)
{
    assert_int_equal(a->experts, b->experts);
    same_linear(&a->router.logits, &b->router.logits);
    same_vector(a->router.input_scale, b->router.input_scale, a->router.logits.w.cols);
    assert_true(!a->router.by_token == !b->router.by_token);
    same_linear(&a->shared_gate, &b->shared_gate);
    same_linear(&a->latent_down, &b->latent_down);
    same_linear(&a->latent_up, &b->latent_up);
    same_ffn(&a->shared, &b->shared);
    for (int e = 0; e < a->experts; e++) {
        same_linear(&a->expert[e].gate, &b->expert[e].gate);
        same_linear(&a->expert[e].up, &b->expert[e].up);
        same_linear(&a->expert[e].down, &b->expert[e].down);
    }
}

static void same_streams(const mo_streams_part *a, const mo_streams_part *b)
{
    same_linear(&a->product, &b->product);
    same_vector(a->base, b->base, a->product.w.rows);
}

static void same_spec(const mo_model_spec *a, const mo_model_spec *b)
{
    assert_int_equal(a->layer_count, b->layer_count);
    same_matrix(&a->embed, &b->embed);
    same_linear(&a->output, &b->output);
    same_vector(a->out_norm, b->out_norm, a->width);
    assert_int_equal(a->streams.count, b->streams.count);
    same_streams(&a->streams.last, &b->streams.last);
    for (int n = 0; n < a->layer_count; n++) {
        const mo_layer *x = &a->layers[n], *y = &b->layers[n];
        assert_int_equal(x->mixer, y->mixer);
        switch (x->mixer) {
        case MO_MIXER_ATTENTION: same_attention(&x->attention, &y->attention); break;
        case MO_MIXER_DELTA: same_delta(&x->delta, &y->delta); break;
        case MO_MIXER_SHORT_CONV: same_short_conv(&x->short_conv, &y->short_conv); break;
        case MO_MIXER_MAMBA: same_mamba(&x->mamba, &y->mamba); break;
        case MO_MIXER_NONE: break;
        }
        same_streams(&x->mixer_streams, &y->mixer_streams);
        same_streams(&x->ffn_streams, &y->ffn_streams);
        same_vector(x->mixer_norm, y->mixer_norm, a->width);
        same_vector(x->post_mixer_norm, y->post_mixer_norm, a->width);
        same_vector(x->ffn_norm, y->ffn_norm, a->width);
        same_vector(x->moe_norm, y->moe_norm, a->width);
        same_vector(x->post_ffn_norm, y->post_ffn_norm, a->width);
        same_vector(x->post_ffn_norm_dense, y->post_ffn_norm_dense, a->width);
        same_vector(x->post_ffn_norm_moe, y->post_ffn_norm_moe, a->width);
        same_vector(x->out_scale, y->out_scale, 1);
        same_ffn(&x->ffn, &y->ffn);
        if (x->routed) {
            same_moe(&x->moe, &y->moe);
        }
    }
}

/* ---- Every model, every variant ---- */

static void test_every_way(void **state)
{
    (void)state;
    mo_pool *pool = NULL;
    int skipped = 0;
    assert_int_equal(mo_pool_create(3, &pool, NULL), MO_OK);
    for (int i = 0; i < MODELS; i++) {
        char path[512];
        if (!model_path(models[i], path)) {
            skipped++;
            continue;
        }
        mo_checkpoint *plain = model_load(path, false, 0, NULL);
        mo_checkpoint *grouped = model_load(path, false, 16, pool);
        mo_checkpoint *odd = model_load(path, false, 3, pool);
        mo_checkpoint *mapped = model_load(path, true, 16, pool);
        const mo_model_spec *spec = mo_checkpoint_spec(plain);
        same_spec(spec, mo_checkpoint_spec(grouped));
        same_spec(spec, mo_checkpoint_spec(odd));
        same_spec(spec, mo_checkpoint_spec(mapped));
        assert_string_equal(mo_checkpoint_path(plain), path);
        assert_int_equal(mo_checkpoint_resident(plain).core, mo_checkpoint_resident(mapped).core);
        assert_int_equal(mo_checkpoint_bytes_per_token(plain), mo_checkpoint_bytes_per_token(mapped));
        assert_int_equal((uintptr_t)spec->embed.data % 64, 0);
        assert_int_equal(mo_checkpoint_spec(grouped)->embed.interleave, 0);
        assert_int_equal(mo_checkpoint_spec(mapped)->output.w.interleave, 0);
        mo_checkpoint_free(plain);
        mo_checkpoint_free(grouped);
        mo_checkpoint_free(odd);
        mo_checkpoint_free(mapped);
    }
    if (skipped) {
        print_message("%d of %d models are not in the tree; MO_TEST_ORACLE may name their folder\n", skipped,
                      MODELS);
    }
    mo_pool_destroy(pool);
}

/* What the summary of the file says, computed from names alone. */
static void test_weight(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        char path[512];
        mo_file_info summary;
        mo_file_format formats[MO_TYPE_LIMIT];
        if (!model_path(models[i], path)) {
            continue;
        }
        mo_checkpoint *m = model_load(path, false, 0, NULL);
        assert_int_equal(mo_gguf_summarize(mo_checkpoint_gguf(m), &summary, formats, NULL), MO_OK);
        const mo_checkpoint_bytes held = mo_checkpoint_resident(m);
        if (strcmp(models[i], "llama31") == 0 || strcmp(models[i], "gemma4") == 0 ||
            strcmp(models[i], "phimoe") == 0) {
            /* the summary counts rope_freqs.weight and the like, which are read once */
            assert_true(summary.token_bytes - (int64_t)mo_checkpoint_bytes_per_token(m) <= 64);
        } else {
            assert_int_equal(mo_checkpoint_bytes_per_token(m), summary.token_bytes);
        }
        assert_true(held.core > 0 && held.table > 0 && held.vectors > 0);
        assert_int_equal(held.experts > 0, summary.experts > 0);
        mo_checkpoint_free(m);
    }
}

/* ---- What the families say ---- */

static void test_glm(void **state)
{
    (void)state;
    char path[512];
    if (!model_path("glm4moe", path)) {
        print_message("glm4moe is not in the tree; MO_TEST_ORACLE may name its folder\n");
        skip();
    }
    mo_checkpoint *m = model_load(path, false, 0, NULL);
    const mo_model_spec *spec = mo_checkpoint_spec(m);
    assert_int_equal(spec->layer_count, 3);
    assert_int_equal(spec->mtp_layers, 1); /* whose tensors are in the file and are left there */
    assert_true(spec->layers[0].dense && !spec->layers[0].routed);
    for (int n = 1; n < 3; n++) {
        const mo_layer *l = &spec->layers[n];
        assert_true(l->routed && !l->dense && l->attention.neox);
        assert_int_equal(l->attention.n_rot * 2, l->attention.k_len);
        assert_int_equal(l->moe.router.gating, MO_GATING_SIGMOID);
        assert_non_null(l->moe.router.select_bias);
        assert_true(l->moe.router.normalize);
        assert_true(mo_linear_present(&l->moe.shared.up) && !mo_linear_present(&l->moe.shared_gate));
        assert_non_null(l->attention.q.bias);
    }
    mo_checkpoint_free(m);
}

/* Kinds of layers by their KV heads; the rows of joint matrices; states of one channel beside each other in the file. */
static void test_mamba(void **state)
{
    (void)state;
    mo_checkpoint *m = model_load_named("jamba", false, 0);
    const mo_model_spec *spec = mo_checkpoint_spec(m);
    int attends = 0, routed = 0;
    for (int n = 0; n < spec->layer_count; n++) {
        const mo_layer *l = &spec->layers[n];
        attends += l->mixer == MO_MIXER_ATTENTION;
        routed += l->routed;
        assert_true(l->mixer == MO_MIXER_ATTENTION || l->mixer == MO_MIXER_MAMBA);
        assert_true(l->routed != l->dense && l->attention.rope == NULL);
        assert_true(!l->routed || !l->moe.router.normalize);
    }
    assert_true(attends > 0 && attends < spec->layer_count && routed == 2);
    draft *d = draft_open("jamba");
    for (int n = 0; n < spec->layer_count; n++) {
        const mo_mamba *mamba = &spec->layers[n].mamba;
        char name[MO_GGUF_NAME];
        snprintf(name, sizeof name, "blk.%d.ssm_a", n);
        const float *a = spec->layers[n].mixer == MO_MIXER_MAMBA
                             ? (const float *)(const void *)draft_find(d, name)->data
                             : NULL;
        for (int64_t i = 0; a && i < mamba->inner; i++) {
            for (int64_t j = 0; j < mamba->states; j++) {
                assert_true(mamba->a[j * mamba->inner + i] == a[i * mamba->states + j]);
            }
        }
    }
    draft_close(d);
    mo_checkpoint_free(m);

    m = model_load_named("granitehybrid", false, 0);
    spec = mo_checkpoint_spec(m);
    const mo_mamba *first = &spec->layers[0].mamba;
    assert_int_equal(spec->layers[0].mixer, MO_MIXER_MAMBA);
    assert_true(first->heads > 0 && first->x.w.rows == first->inner + 2 * first->groups * first->states);
    assert_int_equal(first->dt_in.w.rows, first->heads);
    assert_non_null(first->out.scale); /* of what is added to the stream */
    mo_checkpoint_free(m);
}

static void test_families(void **state)
{
    (void)state;
    mo_checkpoint *m = model_load_named("gpt-oss", false, 0);
    const mo_layer *layer = mo_checkpoint_spec(m)->layers;
    for (int n = 0; n < 4; n++) {
        assert_int_equal(layer[n].attention.window, n % 2 ? 0 : 16);
        assert_non_null(layer[n].attention.sinks);
        assert_non_null(layer[n].attention.out.bias);
        assert_non_null(layer[n].moe.router.logits.bias);
        assert_non_null(layer[n].moe.expert[9].down.bias);
        assert_true(layer[n].attention.neox);
        assert_int_equal(layer[n].moe.activation, MO_SWIGLU_OSS);
        assert_int_equal(layer[n].moe.router.gating, MO_GATING_SOFTMAX_SELECTED);
    }
    assert_true(layer[0].attention.rope->magnitude > 1.3465 && layer[0].attention.rope->magnitude < 1.3466);
    assert_false(mo_checkpoint_spec(m)->tied);
    mo_checkpoint_free(m);

    m = model_load_named("gemma4", false, 0);
    layer = mo_checkpoint_spec(m)->layers;
    for (int n = 0; n < 4; n++) {
        const mo_attention *a = &layer[n].attention;
        const bool full = n % 2;
        assert_int_equal(a->window, full ? 0 : 16);
        assert_int_equal(a->kv_heads, full ? 1 : 2);
        assert_int_equal(a->k_len, full ? 32 : 16);
        assert_int_equal(a->n_rot, full ? 32 : 16);
        assert_int_equal(mo_linear_present(&a->v), !full);
        assert_true(a->v_norm && a->scale == 1.0f);
        assert_true(layer[n].dense && layer[n].routed);
        assert_non_null(layer[n].moe.router.input_scale);
        assert_null(layer[n].moe.router.logits.scale);
        assert_ptr_equal(layer[n].moe.expert[5].down.scale, layer[n].moe.expert[0].down.scale + 5);
        assert_non_null(layer[n].out_scale);
        /* the factors of full layers say that most pairs stand still */
        assert_int_equal(a->rope->rate[a->rope->pairs - 1] == 0.0, full);
        assert_true(a->rope->rate[0] == 1.0);
    }
    assert_true(mo_checkpoint_spec(m)->tied && mo_checkpoint_spec(m)->softcap == 30.0f);
    assert_true(mo_checkpoint_spec(m)->embed_scale == 8.0f);
    assert_ptr_equal(mo_checkpoint_spec(m)->output.w.data, mo_checkpoint_spec(m)->embed.data);
    mo_checkpoint_free(m);

    m = model_load_named("olmoe", false, 0);
    layer = mo_checkpoint_spec(m)->layers;
    assert_true(layer[0].attention.norm_all && !layer[0].moe.router.normalize);
    assert_int_equal(layer[0].moe.experts, 16);
    assert_int_equal(layer[0].moe.used, 4);
    assert_int_equal(layer[0].moe.width, 24);
    mo_checkpoint_free(m);

    m = model_load_named("llama-moe", false, 0);
    layer = mo_checkpoint_spec(m)->layers;
    assert_true(layer[0].routed && !layer[0].dense && layer[0].moe.router.normalize);
    assert_false(layer[0].attention.neox);
    assert_true(layer[0].attention.scale == 0.25f);
    mo_checkpoint_free(m);

    m = model_load_named("qwen2moe", false, 0);
    layer = mo_checkpoint_spec(m)->layers;
    assert_non_null(layer[0].attention.q.bias);
    assert_null(layer[0].attention.out.bias);
    assert_null(layer[0].attention.q_norm);
    assert_false(layer[0].moe.router.normalize);
    assert_int_equal(layer[0].moe.shared.up.w.rows, 96);
    assert_int_equal(layer[0].moe.shared_gate.w.rows, 1);
    mo_checkpoint_free(m);
}

/* A gemma4 layer without experts has a dense part alone. */
static void test_dense_layer(void **state)
{
    (void)state;
    static const char *const gone[] = {
        "ffn_gate_inp.weight", "ffn_gate_inp.scale",     "ffn_gate_up_exps.weight", "ffn_down_exps.weight",
        "ffn_down_exps.scale", "post_ffw_norm_1.weight", "pre_ffw_norm_2.weight",   "post_ffw_norm_2.weight"};
    draft *d = draft_open("gemma4");
    for (int i = 0; i < 8; i++) {
        char name[MO_GGUF_NAME];
        snprintf(name, sizeof name, "blk.1.%s", gone[i]);
        draft_drop(d, name);
    }
    mo_checkpoint *m = model_load(draft_write(d, in_folder("dense.gguf")), false, 0, NULL);
    const mo_layer *layer = mo_checkpoint_spec(m)->layers;
    assert_true(layer[1].dense && !layer[1].routed && layer[2].routed);
    assert_non_null(layer[1].post_ffn_norm);
    assert_null(layer[1].post_ffn_norm_dense);
    mo_checkpoint_free(m);
    draft_close(d);
}

static void test_hybrids(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int interval;
        bool tiled, routed;
    } cases[] = {{"qwen3next", 4, false, true}, {"qwen35", 3, true, false}, {"qwen35moe", 4, true, true}};
    for (int i = 0; i < 3; i++) {
        mo_checkpoint *m = model_load_named(cases[i].name, false, 0);
        const mo_model_spec *spec = mo_checkpoint_spec(m);
        for (int n = 0; n < spec->layer_count; n++) {
            const mo_layer *layer = &spec->layers[n];
            const bool full = (n + 1) % cases[i].interval == 0;
            assert_int_equal(layer->mixer, full ? MO_MIXER_ATTENTION : MO_MIXER_DELTA);
            assert_int_equal(layer->routed, cases[i].routed);
            assert_int_equal(layer->dense, !cases[i].routed);
            if (full) {
                const mo_attention *a = &layer->attention;
                assert_true(a->gated && a->n_rot < a->k_len && a->neox);
                assert_int_equal(a->q.w.rows, 2 * a->heads * a->k_len);
            } else {
                assert_int_equal(layer->delta.tiled, cases[i].tiled);
                assert_int_equal(mo_linear_present(&layer->delta.ba), !cases[i].tiled);
                assert_int_equal(layer->delta.taps, 4);
                assert_int_equal(layer->delta.v_heads, 4);
                assert_int_equal(layer->delta.k_heads, 2);
            }
        }
        mo_checkpoint_free(m);
    }
}

/* The convolution's taps: file [4, channels], memory [4][channels]. */
static void test_taps(void **state)
{
    (void)state;
    draft *d = draft_open("qwen3next");
    mo_checkpoint *m = model_load_named("qwen3next", false, 0);
    const mo_delta *delta = &mo_checkpoint_spec(m)->layers[0].delta;
    const float *file = (const float *)(const void *)draft_find(d, "blk.0.ssm_conv1d.weight")->data;
    const int64_t channels = delta->qkv.w.rows;
    for (int64_t c = 0; c < channels; c++) {
        for (int t = 0; t < 4; t++) {
            assert_true(delta->conv[t * channels + c] == file[c * 4 + t]);
        }
    }
    mo_checkpoint_free(m);
    draft_close(d);
}

/* A expert's rows are the bytes of the file. */
static void test_experts(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt-oss-mxfp4", "qwen3moe-nvfp4", "gemma4", "qwen3next-mixq"};
    for (int i = 0; i < 4; i++) {
        draft *d = draft_open(names[i]);
        mo_checkpoint *m = model_load_named(names[i], false, 0);
        const mo_moe *moe = &mo_checkpoint_spec(m)->layers[1].moe;
        const bool merged = strcmp(names[i], "gemma4") == 0;
        const entry *up =
            draft_find(d, merged ? "blk.1.ffn_gate_up_exps.weight" : "blk.1.ffn_up_exps.weight");
        const entry *down = draft_find(d, "blk.1.ffn_down_exps.weight");
        for (int e = 0; e < moe->experts; e++) {
            const mo_weights *w = &moe->expert[e].up.w;
            const int64_t row = mo_format_row_bytes(mo_format_of(w->type), w->cols);
            const int64_t at = e * (up->bytes / moe->experts) + (merged ? w->rows * row : 0);
            assert_memory_equal(w->data, up->data + at, (size_t)(w->rows * row));
            assert_memory_equal(moe->expert[e].down.w.data, down->data + e * (down->bytes / moe->experts),
                                (size_t)(down->bytes / moe->experts));
        }
        if (strcmp(names[i], "qwen3moe-nvfp4") == 0) {
            const float *scales = (const float *)(const void *)draft_find(d, "blk.1.ffn_up_exps.scale")->data;
            assert_true(*moe->expert[6].up.scale == scales[6]);
        }
        if (strcmp(names[i], "gpt-oss-mxfp4") == 0) {
            const float *bias = (const float *)(const void *)draft_find(d, "blk.1.ffn_up_exps.bias")->data;
            assert_memory_equal(moe->expert[3].up.bias, bias + 3 * moe->width, (size_t)moe->width * 4);
        }
        mo_checkpoint_free(m);
        draft_close(d);
    }
}

/* ---- Layouts of older and other files ---- */

static void compare_with(const char *name, const char *path)
{
    mo_checkpoint *usual = model_load_named(name, false, 0);
    for (int variant = 0; variant < 3; variant++) {
        mo_checkpoint *other = model_load(path, variant == 2, variant == 1 ? 8 : 0, NULL);
        same_spec(mo_checkpoint_spec(usual), mo_checkpoint_spec(other));
        assert_int_equal(mo_checkpoint_bytes_per_token(usual), mo_checkpoint_bytes_per_token(other));
        mo_checkpoint_free(other);
    }
    mo_checkpoint_free(usual);
}

static void test_split(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s/llama31-split-00001-of-00003.gguf", MO_TEST_DATA);
    compare_with("llama31", path);
    mo_checkpoint *m = model_load_named("llama31", false, 0);
    draft *d = draft_open("llama31");
    draft_drop(d, "rope_freqs.weight");
    mo_checkpoint *bare = model_load(draft_write(d, in_folder("bare.gguf")), false, 0, NULL);
    const mo_rope *a = mo_checkpoint_spec(m)->layers[0].attention.rope;
    const mo_rope *b = mo_checkpoint_spec(bare)->layers[0].attention.rope;
    assert_true(a->rate[0] == b->rate[0] && a->rate[a->pairs - 1] < b->rate[a->pairs - 1]);
    mo_checkpoint_free(m);
    mo_checkpoint_free(bare);
    draft_close(d);
}

/* gate and up of an expert in one tensor, biases too. */
static void test_merged(void **state)
{
    (void)state;
    draft *d = draft_open("gpt-oss-mxfp4");
    for (int n = 0; n < 4; n++) {
        static const char *const suffixes[] = {"weight", "bias"};
        for (int s = 0; s < 2; s++) {
            char name[MO_GGUF_NAME];
            snprintf(name, sizeof name, "blk.%d.ffn_gate_exps.%s", n, suffixes[s]);
            const entry gate = *draft_find(d, name);
            snprintf(name, sizeof name, "blk.%d.ffn_up_exps.%s", n, suffixes[s]);
            const entry up = *draft_find(d, name);
            snprintf(name, sizeof name, "blk.%d.ffn_gate_up_exps.%s", n, suffixes[s]);
            entry *both = s ? draft_add(d, name, gate.type, 2 * gate.size[0], gate.size[1], 1)
                            : draft_add(d, name, gate.type, gate.size[0], 2 * gate.size[1], gate.size[2]);
            const int64_t experts = s ? gate.size[1] : gate.size[2], one = gate.bytes / experts;
            for (int64_t e = 0; e < experts; e++) {
                memcpy(both->data + 2 * e * one, gate.data + e * one, (size_t)one);
                memcpy(both->data + (2 * e + 1) * one, up.data + e * one, (size_t)one);
            }
            draft_drop(d, gate.name);
            draft_drop(d, up.name);
        }
    }
    compare_with("gpt-oss-mxfp4", draft_write(d, in_folder("merged.gguf")));
    draft_close(d);
}

/* A tensor for each expert of layer n in the place of the stack of all. */
static void lone_experts(draft *d, const char *kind, int n)
{
    char name[MO_GGUF_NAME];
    snprintf(name, sizeof name, "blk.%d.ffn_%s_exps.weight", n, kind);
    const entry stack = *draft_find(d, name);
    for (int64_t e = 0; e < stack.size[2]; e++) {
        snprintf(name, sizeof name, "blk.%d.ffn_%s.%lld.weight", n, kind, (long long)e);
        entry *one = draft_add(d, name, stack.type, stack.size[0], stack.size[1], 1);
        memcpy(one->data, stack.data + e * one->bytes, (size_t)one->bytes);
    }
    draft_drop(d, stack.name);
}

/* As the first Mixtral files had them. */
static void test_lone(void **state)
{
    (void)state;
    static const char *const kinds[] = {"gate", "up", "down"};
    draft *d = draft_open("llama-moe");
    for (int n = 0; n < 3; n++) {
        for (int k = 0; k < 3; k++) {
            lone_experts(d, kinds[k], n);
        }
    }
    compare_with("llama-moe", draft_write(d, in_folder("lone.gguf")));
    draft_drop(d, "blk.1.ffn_up.5.weight");
    EXPECT(draft_write(d, in_folder("lone.gguf")), MO_ENOENT, "blk.1.ffn_up.5.weight is missing");
    draft_close(d);
}

/* bailingmoe3: YaRN changes no scores, and a shared expert without a width in the keys is as wide as its tensors. */
static void look_at_ling(const char *key, const char *text, const char *other)
{
    draft *d = draft_open("bailingmoe3");
    d->key = key;
    d->text = text;
    d->leave_out = !text;
    d->other_key = other;
    d->other_number = 40;
    mo_checkpoint *m = model_load(draft_write(d, in_folder("ling.gguf")), false, 0, NULL);
    const mo_model_spec *spec = mo_checkpoint_spec(m);
    int attends = 0;
    for (int n = 0; n < spec->layer_count; n++) {
        const mo_layer *layer = &spec->layers[n];
        const mo_attention *a = &layer->attention;
        if (layer->mixer == MO_MIXER_ATTENTION) {
            assert_true(fabs((double)a->scale - 1.0 / sqrt((double)(a->latent.plain + a->n_rot))) < 1e-6);
            assert_int_equal(a->rope->magnitude > 1.3, other != NULL);
            attends++;
        }
        assert_int_equal(layer->moe.shared.up.w.rows, layer->routed ? 24 : 0);
    }
    assert_true(attends > 0);
    mo_checkpoint_free(m);
    draft_close(d);
}

/* Kimi delta attention that is not supported or makes no sense. */
static void test_kda(void **state)
{
    (void)state;
    draft *d = draft_open("bailingmoe3");
    d->key = "bailingmoe3.kda.gate_lower_bound";
    d->leave_out = true;
    EXPECT(draft_write(d, in_folder("kda.gguf")), MO_EFORMAT, "kda.gate_lower_bound", "negative");
    d->key = "bailingmoe3.kda.safe_gate";
    d->leave_out = false;
    d->number = 0;
    EXPECT(draft_write(d, in_folder("kda.gguf")), MO_EUNSUPPORTED, "kda.safe_gate");
    draft_close(d);
    d = draft_open("kimi-linear");
    draft_drop(d, "blk.1.exp_probs_b.bias");
    EXPECT(draft_write(d, in_folder("kda.gguf")), MO_ENOENT, "blk.1.exp_probs_b.bias is missing");
    draft_close(d);
    look_at_ling("bailingmoe3.rope.scaling.type", "yarn", "bailingmoe3.rope.scaling.factor");
    look_at_ling("bailingmoe3.expert_shared_feed_forward_length", NULL, NULL);
}

/* Blocks of one part by two arrays; no gates; experts that read and make less than the stream is wide. */
static void test_blocks(void **state)
{
    (void)state;
    static const char kinds[] = "MEAEME";
    mo_checkpoint *m = model_load_named("nemotron_h_moe", false, 0);
    const mo_model_spec *spec = mo_checkpoint_spec(m);
    for (int n = 0; n < spec->layer_count; n++) {
        const mo_layer *l = &spec->layers[n];
        const mo_moe *moe = &l->moe;
        assert_int_equal(l->mixer, kinds[n] == 'M'   ? MO_MIXER_MAMBA
                                   : kinds[n] == 'A' ? MO_MIXER_ATTENTION
                                                     : MO_MIXER_NONE);
        assert_true(l->routed == (kinds[n] == 'E') && !l->dense && l->mixer_norm && !l->ffn_norm);
        assert_true(!l->attention.rope);
        if (l->routed) {
            assert_true(mo_layer_latent(l) && moe->io == 32 && moe->router.logits.w.cols == spec->width);
            assert_true(moe->router.gating == MO_GATING_SIGMOID && moe->router.select_bias);
            assert_true(!mo_linear_present(&moe->expert[0].gate) && !mo_linear_present(&moe->shared.gate));
            assert_true(moe->activation == MO_RELU2 && moe->shared.activation == MO_RELU2);
        }
    }
    mo_checkpoint_free(m);

    draft *d = draft_open("nemotron_h_moe");
    lone_experts(d, "up", 3);
    lone_experts(d, "down", 3);
    compare_with("nemotron_h_moe", draft_write(d, in_folder("blocks.gguf")));
    draft_drop(d, "blk.4.ssm_conv1d.bias");
    m = model_load(draft_write(d, in_folder("blocks.gguf")), false, 0, NULL);
    const mo_mamba *mamba = &mo_checkpoint_spec(m)->layers[4].mamba;
    for (int64_t i = 0; i < mo_mamba_channels(mamba); i++) {
        assert_true(mamba->conv_bias[i] == 0.0f);
    }
    mo_checkpoint_free(m);
    draft_drop(d, "blk.3.exp_probs_b.bias");
    EXPECT(draft_write(d, in_folder("blocks.gguf")), MO_ENOENT, "blk.3.exp_probs_b.bias is missing");
    draft_drop(d, "blk.1.ffn_latent_up.weight");
    EXPECT(draft_write(d, in_folder("blocks.gguf")), MO_ENOENT, "blk.1.ffn_latent_up.weight is missing");
    draft_close(d);
}

/* Queries, keys and values in one tensor, with one bias. */
static void test_fused(void **state)
{
    (void)state;
    static const char *const kinds[] = {"q", "k", "v"};
    static const char *const suffixes[] = {"weight", "bias"};
    draft *d = draft_open("qwen2moe");
    for (int n = 0; n < 3; n++) {
        for (int s = 0; s < 2; s++) {
            char name[MO_GGUF_NAME];
            snprintf(name, sizeof name, "blk.%d.attn_qkv.%s", n, suffixes[s]);
            entry *fused = s ? draft_add(d, name, MO_F32, 128, 1, 1) : draft_add(d, name, MO_F32, 64, 128, 1);
            uint8_t *to = fused->data;
            for (int k = 0; k < 3; k++) {
                snprintf(name, sizeof name, "blk.%d.attn_%s.%s", n, kinds[k], suffixes[s]);
                const entry *one = draft_find(d, name);
                memcpy(to, one->data, (size_t)one->bytes);
                to += one->bytes;
                draft_drop(d, name);
            }
        }
    }
    compare_with("qwen2moe", draft_write(d, in_folder("fused.gguf")));
    draft_close(d);
}

/* attn_kv_b: head by head its rows of keys, which the two tensors of later files have transposed, then those of values. */
static void test_older_latent(void **state)
{
    (void)state;
    enum { HEADS = 4, PLAIN = 16, OUT = 24, RANK = 32 };
    draft *d = draft_open("deepseek2");
    for (int n = 0; n < 4; n++) {
        char name[MO_GGUF_NAME];
        snprintf(name, sizeof name, "blk.%d.attn_k_b.weight", n);
        const entry k = *draft_find(d, name);
        snprintf(name, sizeof name, "blk.%d.attn_v_b.weight", n);
        const entry v = *draft_find(d, name);
        snprintf(name, sizeof name, "blk.%d.attn_kv_b.weight", n);
        entry *both = draft_add(d, name, MO_F32, RANK, HEADS * (PLAIN + OUT), 1);
        float *to = (float *)(void *)both->data;
        for (int h = 0; h < HEADS; h++) {
            const float *from = (const float *)(const void *)k.data + h * RANK * PLAIN;
            for (int i = 0; i < PLAIN; i++) {
                for (int r = 0; r < RANK; r++) {
                    *to++ = from[r * PLAIN + i];
                }
            }
            memcpy(to, (const float *)(const void *)v.data + h * OUT * RANK, sizeof *to * OUT * RANK);
            to += OUT * RANK;
        }
        draft_drop(d, k.name);
        draft_drop(d, v.name);
    }
    compare_with("deepseek2", draft_write(d, in_folder("older.gguf")));
    const float two = 2.0f;
    memcpy(draft_add(d, "blk.1.attn_kv_b.scale", MO_F32, 1, 1, 1)->data, &two, sizeof two);
    mo_checkpoint *m = model_load(draft_write(d, in_folder("scaled.gguf")), false, 0, NULL);
    const mo_latent *l = &mo_checkpoint_spec(m)->layers[1].attention.latent;
    assert_true(l->k_b.scale && *l->k_b.scale == 2.0f && l->v_b.scale && *l->v_b.scale == 2.0f);
    mo_checkpoint_free(m);
    draft_add(d, "blk.1.attn_kv_b.bias", MO_F32, HEADS * (PLAIN + OUT), 1, 1);
    EXPECT(draft_write(d, in_folder("biased.gguf")), MO_EUNSUPPORTED, "blk.1.attn_kv_b.bias", "per-head");
    draft_drop(d, "blk.2.attn_kv_b.weight");
    draft_drop(d, "blk.1.attn_kv_b.bias");
    EXPECT(draft_write(d, in_folder("older.gguf")), MO_ENOENT, "blk.2.attn_k_b.weight is missing");
    draft_close(d);
}

/* Queries by one product, as small models have them; dense layers, then routed ones with a shared expert. */
static void test_latent(void **state)
{
    (void)state;
    mo_checkpoint *m = model_load_named("deepseek2", false, 0);
    const mo_model_spec *spec = mo_checkpoint_spec(m);
    for (int n = 0; n < spec->layer_count; n++) {
        const mo_layer *l = &spec->layers[n];
        const mo_attention *a = &l->attention;
        assert_true(a->kv_heads == 1 && a->k_len == 48 && a->v_len == 32 && a->n_rot == 16 && !a->neox);
        assert_true(a->latent.plain == 16 && a->latent.out_len == 24 && a->latent.q_a.w.rows == 48);
        assert_true(fabsf(a->scale - 1.8738f * 0.17678f) < 1e-4f); /* (1 + 0.1 ln 40)^2 / sqrt(32) */
        assert_true(a->rope->magnitude == 1.0);
        assert_int_equal(l->routed, n > 0);
        assert_true(!l->routed || (l->moe.router.groups == 4 && l->moe.router.groups_used == 2));
        assert_true(!l->routed || (l->moe.router.gating == MO_GATING_SIGMOID && l->moe.router.scale == 2.5f));
        assert_true(!l->routed || (l->moe.shared.up.w.rows == 24 && !mo_linear_present(&l->moe.shared_gate)));
    }
    mo_checkpoint_free(m);
    draft *d = draft_open("deepseek2");
    for (int n = 0; n < 4; n++) {
        char name[MO_GGUF_NAME];
        snprintf(name, sizeof name, "blk.%d.attn_q.weight", n);
        draft_add(d, name, MO_F32, 64, 128, 1);
    }
    d->key = "deepseek2.attention.q_lora_rank";
    d->leave_out = true;
    m = model_load(draft_write(d, in_folder("lite.gguf")), false, 0, NULL);
    assert_int_equal(mo_checkpoint_spec(m)->layers[1].attention.q.w.cols, 64);
    assert_false(mo_linear_present(&mo_checkpoint_spec(m)->layers[1].attention.latent.q_a));
    mo_checkpoint_free(m);
    draft_close(d);
    for (int i = 0; i < 2; i++) { /* no device adds one part by part */
        const char *name = i ? "blk.3.attn_v_b.bias" : "blk.3.attn_k_b.bias";
        d = draft_open("deepseek2");
        draft_add(d, name, MO_F32, i ? 4 * 24 : 4 * 32, 1, 1);
        EXPECT(draft_write(d, in_folder("biased.gguf")), MO_EUNSUPPORTED, name, "per-head");
        draft_close(d);
    }
}

/* A file of one value a row; head_count_kv is head_count. */
static const char *write_heads(const char *architecture, int64_t layers, int64_t heads, int64_t length)
{
    static const char *const names[] = {"token_embd",     "output_norm",       "blk.0.attn_norm",
                                        "blk.0.ffn_norm", "blk.0.attn_q",      "blk.0.attn_k",
                                        "blk.0.attn_v",   "blk.0.attn_output", "blk.0.ffn_gate",
                                        "blk.0.ffn_up",   "blk.0.ffn_down"};
    const struct {
        const char *name;
        int64_t value;
    } keys[] = {
        {"block_count", layers},           {"embedding_length", 1},         {"context_length", 64},
        {"feed_forward_length", 1},        {"attention.head_count", heads}, {"attention.key_length", length},
        {"attention.value_length", length}};
    enum { TENSORS = sizeof names / sizeof *names, KEYS = sizeof keys / sizeof *keys };
    mo_gguf_writer *w = mo_gguf_writer_create(0);
    const void *data[TENSORS];
    char key[128];
    void *zeros = calloc((size_t)(heads * length), sizeof(float));
    mo_gguf_put_string(w, "general.architecture", architecture);
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "%s.%s", architecture, keys[i].name);
        mo_gguf_put_i64(w, key, keys[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", architecture);
    mo_gguf_put_f32(w, key, 1e-6f);
    for (int i = 0; i < TENSORS; i++) {
        char name[MO_GGUF_NAME];
        const int64_t many = heads * length, size[4] = {i == 7 ? many : 1, i >= 4 && i <= 6 ? many : 1, 1, 1};
        snprintf(name, sizeof name, "%s.weight", names[i]);
        mo_gguf_put_tensor(w, name, MO_F32, 2, size);
        data[i] = zeros;
    }
    const char *path = in_folder("heads.gguf");
    assert_true(gguf_save(w, path, data));
    mo_gguf_writer_destroy(w);
    free(zeros);
    return path;
}

static void test_heads(void **state)
{
    (void)state;
    mo_checkpoint_free(model_load(write_heads("llama", 1, 1024, 512), false, 0, NULL));
    EXPECT(write_heads("llama", 1, 1024, 514), MO_EFORMAT, "514 values in 1024 heads");
    EXPECT(write_heads("gemma3", 62, 2, 16), MO_EFORMAT, "2 heads of width 1");
}

/* ssm_in: key head by key head, [q | k | its v | its z]. */
static void test_older_delta(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen3next", "qwen3next-mixq"};
    for (int i = 0; i < 2; i++) {
        draft *d = draft_open(names[i]);
        for (int n = 0; n < 3; n++) {
            enum { HEAD = 32, K_HEADS = 2, V_HEADS = 4, PART = V_HEADS / K_HEADS * HEAD };
            char name[MO_GGUF_NAME];
            snprintf(name, sizeof name, "blk.%d.attn_qkv.weight", n);
            const entry qkv = *draft_find(d, name);
            snprintf(name, sizeof name, "blk.%d.attn_gate.weight", n);
            entry z = *draft_find(d, name);
            if (z.type != qkv.type) { /* one tensor has one type: its z is not compared then */
                z = qkv;
            }
            const int64_t row = mo_format_row_bytes(mo_format_of(qkv.type), qkv.size[0]);
            snprintf(name, sizeof name, "blk.%d.ssm_in.weight", n);
            entry *in = draft_add(d, name, qkv.type, qkv.size[0], 2 * K_HEADS * HEAD + 2 * V_HEADS * HEAD, 1);
            uint8_t *to = in->data;
            for (int g = 0; g < K_HEADS; g++) {
                const uint8_t *v = qkv.data + (2 * K_HEADS * HEAD + g * PART) * row;
                memcpy(to, qkv.data + g * HEAD * row, (size_t)(HEAD * row));
                memcpy(to + HEAD * row, qkv.data + (K_HEADS + g) * HEAD * row, (size_t)(HEAD * row));
                memcpy(to + 2 * HEAD * row, v, (size_t)(PART * row));
                memcpy(to + (2 * HEAD + PART) * row, z.data + g * PART * row, (size_t)(PART * row));
                to += (2 * HEAD + 2 * PART) * row;
            }
            draft_drop(d, qkv.name);
            snprintf(name, sizeof name, "blk.%d.attn_gate.weight", n);
            draft_drop(d, name);
        }
        const char *path = draft_write(d, in_folder("older.gguf"));
        mo_checkpoint *usual = model_load_named(names[i], false, 0);
        for (int variant = 0; variant < 3; variant++) {
            mo_checkpoint *other = model_load(path, variant == 2, variant == 1 ? 16 : 0, NULL);
            for (int n = 0; n < 3; n++) {
                const mo_delta *x = &mo_checkpoint_spec(usual)->layers[n].delta;
                const mo_delta *y = &mo_checkpoint_spec(other)->layers[n].delta;
                same_linear(&x->qkv, &y->qkv);
                if (x->gate.w.type == x->qkv.w.type) {
                    same_linear(&x->gate, &y->gate);
                }
            }
            mo_checkpoint_free(other);
        }
        mo_checkpoint_free(usual);
        draft_close(d);
    }
}

/* Layers that predict further tokens are left alone, whatever is in them. */
static void test_nextn(void **state)
{
    (void)state;
    draft *d = draft_open("llama31");
    d->key = "llama.nextn_predict_layers";
    d->number = 1;
    draft_drop(d, "blk.2.attn_q.weight");
    mo_checkpoint *m = model_load(draft_write(d, in_folder("nextn.gguf")), false, 0, NULL);
    assert_int_equal(mo_checkpoint_spec(m)->layer_count, 2);
    mo_checkpoint_free(m);
    draft_close(d);
}

/* A key that a shape does not have. */
typedef struct real_key {
    const char *name;
    float value;
} real_key;

/* A shape's file, of which only the header is there; with these keys (NULL: none), the last of which has no name. */
static mo_gguf *open_shape(const mo_shape *shape, const real_key *more)
{
    const int64_t count = mo_shape_tensors(shape, shape->layers, NULL, 0);
    mo_shape_tensor *tensors = calloc((size_t)count, sizeof *tensors);
    mo_gguf_writer *w = mo_gguf_writer_create(0);
    mo_shape_tensors(shape, shape->layers, tensors, count);
    mo_shape_keys(shape, shape->layers, w);
    for (; more && more->name; more++) {
        mo_gguf_put_f32(w, more->name, more->value);
    }
    for (int64_t t = 0; t < count; t++) {
        mo_gguf_put_tensor(w, tensors[t].name, mo_shape_format(shape, &tensors[t]), tensors[t].dims,
                           tensors[t].size);
    }
    assert_int_equal(mo_gguf_writer_layout(w, NULL), MO_OK);
    const mo_gguf_layout *whole = mo_gguf_writer_file(w);
    const char *path = in_folder("shape.gguf");
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(whole->header, 1, whole->header_bytes, file), whole->header_bytes);
    assert_int_equal(ftruncate(fileno(file), whole->file_bytes), 0);
    fclose(file);
    mo_gguf *g = NULL;
    assert_int_equal(mo_gguf_open(path, &g, NULL), MO_OK);
    mo_gguf_writer_destroy(w);
    free(tensors);
    return g;
}

/* Describes it, and calls `look` with what there is then. */
static void describe_shape(const mo_shape *shape, void (*look)(const mo_shape *, const mo_model_spec *))
{
    mo_error err = {0};
    mo_model_spec spec = {0};
    mo_gguf *g = open_shape(shape, NULL);
    mo_binder b = {.gguf = g, .arena = mo_arena_create(0), .err = &err};
    mo_family_describe(&b, &spec);
    if (b.status != MO_OK) {
        fail_msg("%s: %s", shape->name, err.detail);
    }
    assert_int_equal(spec.layer_count, shape->layers);
    assert_true(b.count < 64 * (size_t)shape->layers); /* requests do not grow with the experts */
    if (look) {
        look(shape, &spec);
    }
    mo_bind_free(&b);
    mo_arena_destroy(b.arena);
    mo_gguf_close(g);
}

/* The rotation of a layer of laguna's shape with these keys more. */
static mo_rope rope_with(int layer, const real_key *more)
{
    mo_error err = {0};
    mo_model_spec spec = {0};
    mo_gguf *g = open_shape(mo_shape_named("laguna-xs.2"), more);
    mo_binder b = {.gguf = g, .arena = mo_arena_create(0), .err = &err};
    mo_family_describe(&b, &spec);
    assert_int_equal(b.status, MO_OK);
    const mo_rope rope = *spec.layers[layer].attention.rope;
    mo_bind_free(&b);
    mo_arena_destroy(b.arena);
    mo_gguf_close(g);
    return rope;
}

/* What a file says of YaRN counts for full layers alone. */
static void test_yarn(void **state)
{
    (void)state;
    static const real_key usual[] = {{"laguna.rope.scaling.yarn_beta_fast", 32.0f},
                                     {"laguna.rope.scaling.yarn_beta_slow", 1.0f},
                                     {"laguna.rope.scaling.attn_factor", 1.0f},
                                     {0}};
    static const real_key other[] = {
        {"laguna.rope.scaling.yarn_beta_fast", 64.0f}, {"laguna.rope.scaling.attn_factor", 0.5f}, {0}};
    for (int layer = 0; layer < 2; layer++) {
        const mo_rope none = rope_with(layer, NULL), same = rope_with(layer, usual),
                      changed = rope_with(layer, other);
        assert_memory_equal(&none, &same, sizeof none);
        assert_int_equal(memcmp(none.rate, changed.rate, sizeof none.rate) != 0, layer == 0);
        assert_true(changed.magnitude == (layer == 0 ? 0.5 * none.magnitude : none.magnitude));
    }
}

/* glm-dsa does not read yarn_log_multiplier, deepseek32 does: there nothing is left to the rotated values. */
static void look_at_magnitude(const mo_shape *shape, const mo_model_spec *spec)
{
    const bool glm = strcmp(shape->architecture, "glm-dsa") == 0;
    const mo_attention *a = &spec->layers[0].attention;
    const double usual = 1.0 + 0.1 * log(40.0), length = (double)(shape->plain + shape->rotated);
    assert_true(fabs(a->rope->magnitude - (glm ? usual : 1.0)) < 1e-6);
    assert_true(fabs((double)a->scale - usual * usual / sqrt(length)) < 1e-6);
}

/* Layers with an indexer of their own, in a file of GLM-5.2 that does not list them. */
static void look_at_indexers(const mo_shape *shape, const mo_model_spec *spec)
{
    (void)shape;
    for (int n = 0; n < spec->layer_count; n++) {
        const mo_indexer *x = &spec->layers[n].attention.index;
        assert_int_equal(x->heads > 0, n < 2 || n % 4 == 2);
        assert_int_equal(x->top, 2048);
    }
}

static void test_sparse(void **state)
{
    (void)state;
    mo_shape glm = *mo_shape_named("glm-5"), unlisted = *mo_shape_named("glm-5.2");
    glm.yarn_factor = 40.0f;
    glm.yarn_context = 4096;
    glm.yarn_log = 0.1f;
    unlisted.index_shared = false;
    describe_shape(&glm, look_at_magnitude);
    describe_shape(mo_shape_named("deepseek-v3.2"), look_at_magnitude);
    describe_shape(&unlisted, look_at_indexers);
}

/* Every shape that synth knows is described at its full depth. */
static void test_shapes(void **state)
{
    (void)state;
    for (int i = 0; mo_shape_at(i); i++) {
        describe_shape(mo_shape_at(i), NULL);
    }
}

/* What of attention the four families have in their own way: window, heads, rotation, gate. */
static void look_at_attention(const mo_shape *shape, const mo_model_spec *spec)
{
    const bool laguna = strcmp(shape->name, "laguna-xs.2") == 0,
               step = strcmp(shape->name, "step-3.5-flash") == 0,
               mimo = strcmp(shape->name, "mimo-v2-flash") == 0;
    for (int n = 0; n < spec->layer_count; n++) {
        const mo_attention *a = &spec->layers[n].attention;
        const bool full = mimo ? shape->attends >> n & 1 : laguna || step ? n % 4 == 0 : n % 4 == 3;
        assert_int_equal(a->window, full ? 0 : shape->window);
        assert_int_equal(a->heads, !full && shape->window_heads ? shape->window_heads : shape->heads);
        assert_int_equal(a->kv_heads, mimo && !full ? 8 : shape->kv_heads);
        assert_int_equal(a->v_len, 128);
        assert_int_equal(a->k_len, mimo ? 192 : 128);
        assert_int_equal(mo_attention_gates(a), mimo ? 0 : laguna || step ? 1 : 128);
        assert_int_equal(a->gate_kind, laguna ? MO_GATE_SOFTPLUS : MO_GATE_SIGMOID);
        assert_int_equal(a->out.factor != 0.0f, mimo);
        assert_int_equal(a->rope != NULL, laguna || step || mimo || !full);
        assert_true(!a->rope || a->rope->pairs * 2 == a->n_rot);
        assert_int_equal(a->n_rot, mimo || (laguna && full) || (step && full) ? 64 : 128);
        assert_true(!laguna || (a->rope->magnitude > 1.0) == full);
    }
}

static void test_windows_and_gates(void **state)
{
    static const char *const names[] = {"trinity-mini", "laguna-xs.2", "step-3.5-flash", "mimo-v2-flash"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        describe_shape(mo_shape_named(names[i]), look_at_attention);
    }
}

static void look_at_limits(const mo_shape *shape, const mo_model_spec *spec)
{
    for (int n = 0; n < spec->layer_count; n++) {
        const mo_layer *l = &spec->layers[n];
        const int last = spec->layer_count - 1;
        const mo_activation experts = n >= last - 1 ? MO_SWIGLU_LIMIT : MO_SWIGLU,
                            shared = n == last ? MO_SWIGLU_LIMIT : MO_SWIGLU;
        assert_int_equal(l->routed, n >= shape->dense_layers);
        assert_int_equal(l->moe.activation, experts);
        assert_int_equal(l->moe.shared.activation, shared);
        assert_true(l->moe.limit == (experts == MO_SWIGLU_LIMIT ? shape->expert_limit : 0.0f));
        assert_true(l->moe.shared.limit == (shared == MO_SWIGLU_LIMIT ? shape->shared_limit : 0.0f));
    }
}

/* Parallel layers: one norm, rotation where there is a window and in the dense layer, no bias of the choice. */
static void look_at_parallel(const mo_shape *shape, const mo_model_spec *spec)
{
    assert_int_equal(spec->centered, shape->centered);
    assert_true(spec->output.factor == shape->logit_scale);
    for (int n = 0; n < spec->layer_count; n++) {
        const mo_layer *l = &spec->layers[n];
        assert_true(l->parallel);
        assert_int_equal(l->dense, n < shape->dense_layers);
        assert_int_equal(l->attention.window, n % 4 ? shape->window : 0);
        assert_int_equal(l->attention.rope != NULL, n % 4 || n < shape->dense_layers);
        assert_null(l->moe.router.select_bias);
        assert_true(!l->routed || l->moe.router.gating == MO_GATING_SIGMOID);
    }
}

static void expect_shape_refused(const mo_shape *shape, const char *word)
{
    mo_error err = {0};
    mo_model_spec spec = {0};
    mo_gguf *g = open_shape(shape, NULL);
    mo_binder b = {.gguf = g, .arena = mo_arena_create(0), .err = &err};
    mo_family_describe(&b, &spec);
    assert_int_equal(b.status, MO_EFORMAT);
    if (!strstr(err.detail, word)) {
        fail_msg("no \"%s\" in: %s", word, err.detail);
    }
    mo_bind_free(&b);
    mo_arena_destroy(b.arena);
    mo_gguf_close(g);
}

/* Limits by layer; a file that does not say which layers have a window is refused. */
static void test_limits(void **state)
{
    (void)state;
    mo_shape step = *mo_shape_named("step-3.5-flash"), mimo = *mo_shape_named("mimo-v2-flash");
    describe_shape(&step, look_at_limits);
    mimo.flags = step.flags = false;
    step.full_interval = 0;
    expect_shape_refused(&mimo, "mimo2.attention.sliding_window_pattern");
    expect_shape_refused(&step, "step35.attention.sliding_window_pattern");
}

static void test_parallel(void **state)
{
    (void)state;
    mo_shape north = *mo_shape_named("north-mini-code"), other = *mo_shape_named("olmoe-1b-7b");
    north.logit_scale = 0.25f;
    describe_shape(&north, look_at_parallel);
    north.centered = other.centered = true;
    describe_shape(&north, look_at_parallel);
    expect_shape_refused(&other, "olmoe.attention.layer_norm_rms_epsilon");
    north.window = 0;
    expect_shape_refused(&north, "cohere2moe.attention.sliding_window");
}

/* ---- The list ---- */

static void test_list(void **state)
{
    (void)state;
    int count = 0;
    for (const mo_family *f; (f = mo_family_at(count)); count++) {
        assert_ptr_equal(mo_family_find(f->architecture), f);
    }
    assert_true(count > 10);
    assert_null(mo_family_find("glm"));
    static const char *const unknown[][2] = {
        {"qwen3omnimoe", "qwen3moe"}, {"qwen3vl", "qwen3vlmoe"}, {"gemma3n", "gemma3"},
        {"mistral5", "mistral3"},     {"phi2", "phi3"},          {"bailingmoe", "bailingmoe2"}};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        assert_string_equal(mo_family_nearest(unknown[i][0]), unknown[i][1]);
    }
    assert_null(mo_family_nearest("t5"));
    assert_null(mo_family_nearest(""));
    assert_null(mo_family_at(-1));
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_every_way),
        cmocka_unit_test(test_weight),
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_glm),
        cmocka_unit_test(test_mamba),
        cmocka_unit_test(test_hybrids),
        cmocka_unit_test(test_dense_layer),
        cmocka_unit_test(test_taps),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_merged),
        cmocka_unit_test(test_lone),
        cmocka_unit_test(test_kda),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_fused),
        cmocka_unit_test(test_older_delta),
        cmocka_unit_test(test_latent),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_older_latent),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_nextn),
        cmocka_unit_test(test_windows_and_gates),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_yarn),
        cmocka_unit_test(test_sparse),
        cmocka_unit_test(test_parallel),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
