/* Files of models that cannot be loaded: what is missing, misshapen, of a wrong key or cut short is named; loading tells how far it
 * is, can be stopped, and leaves nothing where memory runs out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "failing_memory.h"
#include "folder.h"
#include "model_draft.h"

/* Without any one of its tensors a model is refused by that tensor's name, but for the few that may be missing:
 * the output (tied then), qwen2moe's biases, gemma4's layer_output_scale. */
static void test_missing(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int optional;
    } cases[] = {{"gpt-oss", 0}, {"qwen3next", 1}, {"gemma4", 1},
                 {"qwen35", 1},  {"olmoe", 0},     {"qwen2moe", 4}};
    for (int i = 0; i < 6; i++) {
        draft *d = draft_open(cases[i].name);
        int accepted = 0;
        for (int t = 0; t < d->count; t++) {
            const entry saved = d->tensors[t];
            if (strncmp(saved.name, "blk.", 4) == 0 && strncmp(saved.name, "blk.1.", 6) != 0) {
                continue; /* one layer is enough */
            }
            d->tensors[t] = d->tensors[--d->count];
            const char *path = draft_write(d, in_folder("missing.gguf"));
            const char *name = strstr(saved.name, "gate_up_exps") ? "blk.1.ffn_gate_exps.weight" : saved.name;
            const mo_load_options options = {.map = true};
            mo_checkpoint *m = NULL;
            mo_error err = {0};
            if (mo_checkpoint_load(path, &options, &m, &err) == MO_OK) {
                accepted++;
            } else if (err.status != MO_ENOENT || !strstr(err.detail, name) || !strstr(err.detail, path)) {
                fail_msg("without %s: %s", saved.name, err.detail);
            }
            mo_checkpoint_free(m);
            d->tensors[d->count++] = d->tensors[t];
            d->tensors[t] = saved;
        }
        assert_int_equal(accepted, cases[i].optional);
        draft_close(d);
    }
}

/* With a dimension more or less every tensor is refused by name, with both shapes. */
static void test_misshapen(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt-oss", "qwen3next", "gemma4", "qwen3moe-nvfp4"};
    for (int i = 0; i < 4; i++) {
        draft *d = draft_open(names[i]);
        for (int t = 0; t < d->count; t++) {
            entry *e = &d->tensors[t];
            const bool used = !strstr(e->name, "input_scale");
            if (strncmp(e->name, "blk.", 4) == 0 && strncmp(e->name, "blk.1.", 6) != 0) {
                continue;
            }
            const entry saved = *e;
            char was[64];
            const int last = e->size[2] > 1 ? 2 : e->size[1] > 1 ? 1 : 0;
            e->size[last]--; /* the data are longer than needed then, which the writer does not mind */
            if (e->size[last] > 0 && used) {
                snprintf(was, sizeof was, "%lld]", (long long)saved.size[last]);
                EXPECT(draft_write(d, in_folder("shape.gguf")), MO_EFORMAT, saved.name, was);
            }
            *e = saved;
        }
        draft_close(d);
    }
}

static void expect_key(const char *model, const char *key, const char *text, int64_t number, mo_status status,
                       const char *word)
{
    draft *d = draft_open(model);
    d->key = key;
    d->text = text;
    d->number = number;
    EXPECT(draft_write(d, in_folder("key.gguf")), status, word);
    draft_close(d);
}

static void test_keys(void **state)
{
    (void)state;
    expect_key("llama31", "general.architecture", "mamba", 0, MO_EUNSUPPORTED, "README");
    expect_key("llama31", "general.architecture", "mamba", 0, MO_EUNSUPPORTED, "\"mamba\"");
    expect_key("llama31", "general.architecture", "qwen3omnimoe", 0, MO_EUNSUPPORTED,
               "nearest supported one is qwen3moe");
    expect_key("llama31", "llama.rope.scaling.type", "longrope", 0, MO_EUNSUPPORTED, "longrope");
    expect_key("llama31", "llama.rope.dimension_count", NULL, 8, MO_EFORMAT, "dimension_count");
    expect_key("llama31", "llama.block_count", NULL, 0, MO_EFORMAT, "llama.block_count");
    expect_key("llama31", "llama.block_count", NULL, 4, MO_ENOENT, "blk.3.attn_q.weight is missing");
    expect_key("llama31", "llama.block_count", NULL, -1, MO_EFORMAT, "llama.block_count");
    expect_key("llama31", "llama.nextn_predict_layers", NULL, 3, MO_EFORMAT, "nextn_predict_layers");
    expect_key("llama31", "llama.embedding_length", NULL, INT64_MAX, MO_EFORMAT, "embedding_length");
    expect_key("llama31", "llama.attention.head_count_kv", NULL, 0, MO_EFORMAT, "head_count_kv");
    expect_key("llama31", "llama.rope.freq_base", NULL, 0, MO_EFORMAT, "rope.freq_base");
    expect_key("llama31", "llama.attention.layer_norm_rms_epsilon", NULL, 2, MO_EFORMAT, "epsilon");
    expect_key("llama-moe", "llama.expert_used_count", NULL, 9, MO_EFORMAT, "expert_used_count");
    expect_key("llama-moe", "llama.expert_count", NULL, 5000, MO_EFORMAT, "expert_count");
    expect_key("qwen3moe", "qwen3moe.expert_count", NULL, 0, MO_EFORMAT, "expert");
    expect_key("qwen3next", "qwen3next.ssm.inner_size", NULL, 64, MO_EFORMAT, "inner size");
    expect_key("qwen3next", "qwen3next.rope.dimension_count", NULL, 7, MO_EFORMAT, "rope.dimension_count");
    expect_key("qwen3next", "qwen3next.rope.dimension_count", NULL, 34, MO_EFORMAT, "34 of 32");
    expect_key("qwen3next", "qwen3next.ssm.conv_kernel", NULL, 17, MO_EFORMAT, "conv_kernel");
    expect_key("jamba", "jamba.ssm.conv_kernel", NULL, 17, MO_EFORMAT, "conv_kernel");
    expect_key("jamba", "jamba.ssm.time_step_rank", NULL, 4096, MO_EFORMAT, "time_step_rank");
    expect_key("granitehybrid", "granitehybrid.ssm.group_count", NULL, 0, MO_EFORMAT, "group_count");
    expect_key("gemma4", "gemma4.embedding_length_per_layer_input", NULL, 8, MO_EUNSUPPORTED, "per-layer");
    expect_key("gemma4", "gemma4.attention.shared_kv_layers", NULL, 2, MO_EUNSUPPORTED,
               "shares the KV cache");
    expect_key("deepseek2", "deepseek2.attention.temperature_scale", NULL, 1, MO_EFORMAT, "same temperature");
    expect_key("deepseek2", "deepseek2.attention.kv_lora_rank", NULL, 2048, MO_EFORMAT, "kv_lora_rank");
    expect_key("deepseek2", "deepseek2.attention.key_length_mla", NULL, 16, MO_EFORMAT, "rotated");
    expect_key("deepseek2", "deepseek2.attention.value_length_mla", NULL, 32, MO_EFORMAT, "attn_v_b");
    expect_key("deepseek2", "deepseek2.expert_group_used_count", NULL, 0, MO_EFORMAT, "groups");
    static const char *const needed[] = {"block_count",          "embedding_length",    "context_length",
                                         "attention.head_count", "feed_forward_length", "general"};
    for (int i = 0; i < 6; i++) {
        char key[128];
        snprintf(key, sizeof key, i == 5 ? "general.architecture" : "llama.%s", needed[i]);
        draft *d = draft_open("llama31");
        d->key = key;
        d->leave_out = true;
        EXPECT(draft_write(d, in_folder("key.gguf")), i == 5 ? MO_ENOENT : MO_EFORMAT, key);
        draft_close(d);
    }
}

static void test_bad_exponent(void **state)
{
    (void)state;
    draft *d = draft_open("gpt-oss-mxfp4");
    entry *e = draft_find(d, "blk.2.ffn_down_exps.weight");
    e->data[17 * 5] = 250;
    EXPECT(draft_write(d, in_folder("exponent.gguf")), MO_EFORMAT, "blk.2.ffn_down_exps.weight");
    draft_close(d);
}

static void test_integers(void **state)
{
    (void)state;
    draft *d = draft_open("llama31");
    draft_find(d, "blk.1.ffn_up.weight")->type = MO_I32;
    EXPECT(draft_write(d, in_folder("integers.gguf")), MO_EFORMAT, "blk.1.ffn_up.weight", "I32");
    draft_close(d);
}

static void test_no_file(void **state)
{
    (void)state;
    EXPECT(in_folder("nothing.gguf"), MO_ENOENT, "nothing.gguf");
}

/* ---- Progress, cancelling, trouble while reading ---- */

typedef struct watcher {
    pthread_t thread;
    int calls, stop_at; /* which call stops; 0: none */
    int64_t last, total;
    const char *cut; /* a file that loses its end at the first call */
} watcher;

static bool watch(void *user, int64_t done, int64_t total)
{
    watcher *w = user;
    assert_true(pthread_equal(w->thread, pthread_self()));
    assert_true(done >= w->last && done <= total);
    w->last = done;
    w->total = total;
    w->calls++;
    if (w->cut && w->calls == 1) {
        assert_int_equal(truncate(w->cut, 300000), 0);
    }
    return w->calls != w->stop_at;
}

static void test_progress(void **state)
{
    (void)state;
    char path[512];
    mo_pool *pool = NULL;
    assert_int_equal(mo_pool_create(2, &pool, NULL), MO_OK);
    assert_true(model_path("qwen3moe", path));
    for (int stop = 0; stop < 6; stop++) {
        watcher w = {.thread = pthread_self(), .stop_at = stop};
        const mo_load_options options = {
            .pool = stop % 2 ? pool : NULL, .interleave = 16, .progress = watch, .user = &w};
        mo_checkpoint *m = NULL;
        mo_error err = {0};
        const mo_status status = mo_checkpoint_load(path, &options, &m, &err);
        if (stop == 0) {
            assert_int_equal(status, MO_OK);
            assert_int_equal(w.last, w.total);
        } else if (status != MO_OK) { /* with a pool the caller may have fewer pieces than that */
            assert_int_equal(status, MO_ECANCELLED);
            assert_int_equal(w.calls, stop);
            assert_null(m);
        }
        assert_true(stop != 1 || status == MO_ECANCELLED);
        mo_checkpoint_free(m);
    }
    mo_pool_destroy(pool);
}

static void test_cut_short(void **state)
{
    (void)state;
    draft *d = draft_open("qwen3moe");
    mo_pool *pool = NULL;
    assert_int_equal(mo_pool_create(3, &pool, NULL), MO_OK);
    const char *path = draft_write(d, in_folder("cut.gguf"));
    watcher w = {.thread = pthread_self(), .cut = path};
    const mo_load_options options = {.pool = pool, .progress = watch, .user = &w};
    mo_checkpoint *m = NULL;
    mo_error err = {0};
    assert_int_equal(mo_checkpoint_load(path, &options, &m, &err), MO_EFORMAT);
    assert_null(m);
    assert_non_null(strstr(err.detail, "tensor "));
    assert_non_null(strstr(err.detail, "truncated"));
    EXPECT(path, MO_EFORMAT, path); /* now the header knows */
    mo_pool_destroy(pool);
    draft_close(d);
}

/* Every allocation fails in turn: a sentence, and nothing is left (the address sanitizer looks). */
static void test_no_memory(void **state)
{
    (void)state;
    char path[512];
    assert_true(model_path("qwen3moe-nvfp4", path));
    for (long n = 0;; n++) {
        const mo_load_options options = {.map = n % 2, .interleave = 16};
        mo_checkpoint *m = NULL;
        mo_error err = {0};
        fail_after = n / 2;
        const mo_status status = mo_checkpoint_load(path, &options, &m, &err);
        fail_after = -1;
        mo_checkpoint_free(m);
        if (status == MO_OK && n % 2) {
            break;
        }
        assert_true(status == MO_OK || (status == MO_ENOMEM && err.detail[0]));
        assert_true(n < 2000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing),   cmocka_unit_test(test_misshapen),
        cmocka_unit_test(test_keys),      cmocka_unit_test(test_bad_exponent),
        cmocka_unit_test(test_integers),  cmocka_unit_test(test_no_file),
        cmocka_unit_test(test_progress),  cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
