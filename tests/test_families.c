/* Every family of which the tree has no oracle model, with a tiny model of its published shape: logits as they were recorded when the
 * family agreed with its oracle, and the same bits in other steps, from disk and on a device. */
#include "folder.h"
#include "gpu_case.h"
#include "model/load.h"
#include "sanitized.h"
#include "synth/synth.h"
#include "tiny_shape.h"

enum { TOKENS = 20, VOCABULARY = 300 };

static const struct {
    const char *shape;
    uint64_t f32, i16; /* fingerprints of the logits, by the format of the cache */
} families[] = {
#include "family_fingerprints.inc"
};
enum { FAMILIES = sizeof families / sizeof *families };

static int32_t text[TOKENS];

static uint64_t fingerprint(const float *rows)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < (size_t)TOKENS * VOCABULARY; i++) {
        uint32_t bits;
        memcpy(&bits, &rows[i], sizeof bits);
        hash = (hash ^ bits) * 0x100000001B3u;
    }
    return hash;
}

/* Writes the tiny model of a shape; */
static void make(const char *name, char path[256])
{
    const mo_shape *published = mo_shape_named(name);
    mo_error err = {.detail = ""};
    mo_synth_options options = mo_synth_options_default();
    options.threads = 1;
    options.overwrite = true;
    options.type = "F32";
    assert_non_null(published);
    const mo_shape tiny = tiny_shape(published);
    snprintf(path, 256, "%s/%s.gguf", folder, name);
    if (mo_synth_write(&tiny, path, &options, NULL, NULL, &err) != MO_OK) {
        fail_msg("%s: %s", name, err.detail);
    }
}

static void expect(const char *name, const char *path, const setting *set, const float *want,
                   const char *what)
{
    float *got = logits_of(path, text, TOKENS, VOCABULARY, set);
    if (memcmp(got, want, sizeof(float) * TOKENS * VOCABULARY) != 0) {
        fail_msg("%s: other bits %s", name, what);
    }
    free(got);
}

static void logits_are_the_recorded_ones(void **state)
{
    (void)state;
    int wrong = 0;
    for (int i = 0; i < FAMILIES; i++) {
        char path[256];
        uint64_t hash[2];
        make(families[i].shape, path);
        for (int n = 0; n < 2; n++) {
            const setting set = {.kv = n ? MO_KV_I16 : MO_KV_F32};
            float *rows = logits_of(path, text, TOKENS, VOCABULARY, &set);
            hash[n] = fingerprint(rows);
            free(rows);
        }
        if (hash[0] != families[i].f32 || hash[1] != families[i].i16) {
            wrong++;
            print_message("    {\"%s\", 0x%016llxu, 0x%016llxu},\n", families[i].shape,
                          (unsigned long long)hash[0], (unsigned long long)hash[1]);
        }
        unlink(path);
    }
    assert_int_equal(wrong, 0);
}

/* The lowest ceiling of RAM, under which few experts fit. */
static int64_t least_ram(const char *path)
{
    mo_plan_report plan;
    mo_error err = {.detail = ""};
    const mo_plan_options ask = {
        .size = sizeof(mo_plan_options), .context = 600, .batch = 64, .device = "none", .threads = 2};
    assert_int_equal(mo_plan_file(path, &ask, &plan, sizeof plan, &err), MO_OK);
    assert_true(plan.least_bytes < plan.whole_bytes);
    return plan.least_bytes;
}

/* Token by token, with few experts in RAM, and on a device that has all, some or none of the experts. */
static void bits_are_the_same_everywhere(void **state)
{
    (void)state;
    for (int i = 0; i < FAMILIES; i++) {
        const char *name = families[i].shape;
        char path[256];
        make(name, path);
        const bool routed = mo_shape_named(name)->experts > 0;
        float *want = logits_of(path, text, TOKENS, VOCABULARY, &(setting){.kv = MO_KV_I16});
        expect(name, path, &(setting){.kv = MO_KV_I16, .step = 1}, want, "token by token");
        expect(name, path, &(setting){.kv = MO_KV_I16, .device = "sim"}, want, "on a device");
        expect(name, path, &(setting){.kv = MO_KV_I16, .device = "sim", .step = 1}, want,
               "on a device, token by token");
        if (routed && !(SANITIZED && i % 2)) {
            expect(name, path, &(setting){.kv = MO_KV_I16, .device = "sim", .cpu_moe = true, .step = 1}, want,
                   "with the CPU's experts");
        }
        if (routed && !SANITIZED) { /* other programs look for faults in tiers */
            expect(name, path, &(setting){.kv = MO_KV_I16, .ram = least_ram(path), .step = 1}, want,
                   "from disk");
            expect(name, path,
                   &(setting){.kv = MO_KV_I16,
                              .device = "sim",
                              .cpu_moe = true,
                              .postfetch = MO_POSTFETCH_EXPERT,
                              .step = 1},
                   want, "with Post-Fetch");
        }
        free(want);
        unlink(path);
    }
}

/* Files with factors for short and for long texts: which of them count is decided by the context of a session. */
static void long_contexts_have_factors_of_their_own(void **state)
{
    (void)state;
    char path[256];
    mo_error err = {.detail = ""};
    make("phi-3.5-mini", path);
    double rate[3];
    static const int64_t contexts[3] = {0, 4096, 4097};
    for (int i = 0; i < 3; i++) {
        mo_checkpoint *m = NULL;
        if (mo_checkpoint_load(path, &(mo_load_options){.context = contexts[i]}, &m, &err) != MO_OK) {
            fail_msg("%s", err.detail);
        }
        const mo_rope *rope = mo_checkpoint_spec(m)->layers[0].attention.rope;
        rate[i] = rope->rate[1];
        assert_true(rope->magnitude > 1.19 && rope->magnitude < 1.1903);
        mo_checkpoint_free(m);
    }
    assert_true(rate[0] == rate[1] && rate[1] != rate[2]);
    unlink(path);
}

/* A tensor gets another name of the same length. */
static void rename_tensor(const char *path, const char *from, const char *to)
{
    FILE *f = fopen(path, "r+b");
    char head[1 << 16];
    assert_non_null(f);
    const size_t length = fread(head, 1, sizeof head, f);
    const char *at = memmem(head, length, from, strlen(from));
    assert_true(at && strlen(from) == strlen(to));
    assert_int_equal(fseek(f, at - head, SEEK_SET), 0);
    assert_true(fwrite(to, 1, strlen(to), f) == strlen(to));
    assert_int_equal(fclose(f), 0);
}

/* Before the context is known, a plan takes what there is. */
static void factors_for_long_contexts_may_be_alone(void **state)
{
    (void)state;
    char path[256];
    static const int64_t contexts[3] = {0, 4097, 4096};
    make("phi-3.5-mini", path);
    rename_tensor(path, "rope_factors_short", "rope_factors_other");
    for (int i = 0; i < 3; i++) {
        mo_checkpoint *m = NULL;
        mo_error err = {.detail = ""};
        const mo_load_options options = {.describe = i == 0, .context = contexts[i]};
        assert_int_equal(mo_checkpoint_load(path, &options, &m, &err), i == 2 ? MO_ENOENT : MO_OK);
        assert_true(i < 2 || strstr(err.detail, "rope_factors_short"));
        mo_checkpoint_free(m);
    }
    unlink(path);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_the_recorded_ones),
        cmocka_unit_test(bits_are_the_same_everywhere),
        cmocka_unit_test(long_contexts_have_factors_of_their_own),
        cmocka_unit_test(factors_for_long_contexts_may_be_alone),
    };
    for (int t = 0; t < TOKENS; t++) {
        text[t] = (7 + 31 * t) % VOCABULARY;
    }
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("families", tests, folder_make, folder_remove_empty);
}
