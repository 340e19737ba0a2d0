/* Keys and values by default: no further from exact floats than F16 was. Prompts in bfloat16: no further from F32 than the exact path
 * is, only where it is asked for and steps are long, told where it does nothing, and never mixed with what is exact. The device is a simulated
 * one, or that of MO_TEST_DEVICE. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>

#include "program.h"
#include "sanitized.h"

#define DEVICE "${MO_TEST_DEVICE:-sim}" /* the shell looks it up */
#define EXACT  " --device " DEVICE " --profile off"
#define BF16   EXACT " --prompt-precision bf16"

enum { BYTES = SANITIZED ? 500 : 2400 }; /* of text */

static int prepare(void **state)
{
    static char text[BYTES];
    FILE *f = fopen(MO_TEST_TEXT, "rb");
    if (make_folder(state) != 0 || !f || fread(text, 1, sizeof text, f) != sizeof text) {
        return -1;
    }
    fclose(f);
    write_file("tale", text, sizeof text);
    write_file("line", text, 160);
    unsetenv("MORAINE_SIM");
    return setenv("LLAMA_FP4_PREFILL_M", "64", 1);
}

static bool same_files(const char *a, const char *b)
{
    char command[256];
    snprintf(command, sizeof command, "cmp -s '%s/%s' '%s/%s'", folder, a, folder, b);
    return system(command) == 0;
}

static double kl_of(const char *arguments)
{
    char command[512];
    snprintf(command, sizeof command, "eval %s --compare real --json", arguments);
    assert_int_equal(run(command), 0);
    json_t *root = json_loads(output, 0, NULL);
    assert_non_null(root);
    const double kl = json_real_value(json_object_get(root, "kl_divergence"));
    json_decref(root);
    return kl;
}

/* The same weights as floats, whose products are floats' too, are what both are measured by. */
static void is_as_near_to_f32_as_exact(void **state)
{
    static const char *const formats[] = {"nvfp4", "q8_0"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        char command[256];
        snprintf(command, sizeof command, "quantize '%s' model --force --experts %s --rest %s", MO_TEST_MODEL,
                 formats[i], formats[i]);
        assert_int_equal(run(command), 0);
        assert_int_equal(run("quantize model floats --force --experts f32 --rest f32"), 0);
        assert_int_equal(run("eval floats tale --kv f32 --device none --profile off --save-logits real"), 0);
        const double exact = kl_of("model tale --kv f32" EXACT), bf16 = kl_of("model tale --kv f32" BF16);
        print_message("%s: KL of exact products %.3e, in bfloat16 %.3e\n", formats[i], exact, bf16);
        assert_true(bf16 > 0.0 && bf16 <= exact);
        /* Experts that cross the link go the same way when they have crossed: the same bits, and so the same gate. */
        assert_int_equal(run("eval model tale --kv f32 --ctx 512 --batch 256" BF16 " --save-logits here"), 0);
        assert_int_equal(
            run("eval model tale --kv f32 --ctx 512 --batch 256" BF16 " --cpu-moe --save-logits crossed"), 0);
        assert_int_equal(
            run("eval model tale --kv f32 --ctx 512 --batch 256" EXACT " --cpu-moe --save-logits exact"), 0);
        assert_true(same_files("here", "crossed") && !same_files("crossed", "exact"));
        assert_true(kl_of("model tale --kv f32 --ctx 512 --batch 256" BF16 " --cpu-moe") <= exact);
    }
}

/* What keys and values in F16 had before they were codes (bench/RESULTS.md: the same text, 2048 tokens a window); the bits, and with them this
 * number, are the same on every machine. */
static void the_kv_cache_is_nearer_to_f32_than_f16(void **state)
{
    (void)state;
    if (SANITIZED) {
        print_message("skipped: nothing new for a sanitizer to see in 9,626 tokens\n");
        skip();
    }
#define TEXT MO_TEST_MODEL " " MO_TEST_TEXT " --window 2048 --device none --profile off"
    assert_int_equal(run("eval " TEXT " --kv f32 --save-logits real"), 0);
    const double kl = kl_of(TEXT);
    print_message("KL from --kv f32: %.3e\n", kl);
    assert_true(kl > 0.0 && kl <= 3.133e-3);
}

/* A copy of a stored model, `bad`, in which the first value of an F32 tensor is no number. */
static void write_bad(const char *model, const char *tensor)
{
    char command[512];
    int64_t bytes = 0, at = 0;
    snprintf(command, sizeof command, "inspect " MO_TEST_DATA "/oracle/%s.gguf --tensors", model);
    assert_int_equal(run(command), 0);
    const char *line = strstr(output, tensor);
    assert_non_null(line);
    assert_int_equal(sscanf(line, "%*s F32 %*d x %*d %" SCNd64 " %" SCNd64, &bytes, &at), 2);
    snprintf(command, sizeof command,
             "cp -f " MO_TEST_DATA "/oracle/%s.gguf '%s/bad' && chmod +w '%s/bad' && "
             "printf '\\000\\000\\300\\177' | dd of='%s/bad' bs=1 seek=%" PRId64 " conv=notrunc 2>/dev/null",
             model, folder, folder, folder, at);
    assert_int_equal(system(command), 0);
}

/* Keys that are not finite: codes cannot have them, where floats might; and where floats have them, nothing is left but a damaged model. An
 * indexer's are floats in every format. */
static void keys_that_are_not_finite_are_told(void **state)
{
    (void)state;
    static const char *const devices[] = {"none", DEVICE};
    static const struct {
        const char *model, *tensor, *codes, *floats;
    } cases[] = {{"qwen3moe", "blk.1.attn_k.weight",
                  "layer 1: keys or values exceed the range of this KV cache format; run again with --kv f32",
                  "the output of layer 1 is not finite; the model file is damaged"},
                 {"glm-dsa", "blk.2.indexer.attn_k.weight",
                  "the output of layer 2 is not finite; the model file is damaged",
                  "the output of layer 2 is not finite; the model file is damaged"}};
    char command[256];
    write_file("ids", "1 2 3", 5);
    unsetenv("LLAMA_FP4_PREFILL_M");
    for (int i = 0; i < 4; i++) {
        const char *device = devices[i % 2];
        write_bad(cases[i / 2].model, cases[i / 2].tensor);
        snprintf(command, sizeof command, "eval bad --tokens ids --profile off --device %s", device);
        expect_failure(command, 1, cases[i / 2].codes);
        snprintf(command, sizeof command, "eval bad --tokens ids --profile off --kv f32 --device %s", device);
        expect_failure(command, 1, cases[i / 2].floats);
    }
    setenv("LLAMA_FP4_PREFILL_M", "64", 1);
}

static void begins_above_a_number_of_tokens(void **state)
{
    (void)state;
    assert_int_equal(run("eval " MO_TEST_MODEL " tale --save-logits exact" EXACT), 0);
    assert_non_null(strstr(errors, "LLAMA_FP4_PREFILL_M has no effect: prompts are exact"));
    assert_int_equal(run("eval " MO_TEST_MODEL " tale --save-logits lossy" BF16), 0);
    assert_null(strstr(errors, "LLAMA_FP4_PREFILL_M"));
    assert_false(same_files("exact", "lossy"));
    assert_int_equal(run("eval " MO_TEST_MODEL " tale --save-logits given --prompt-precision exact" EXACT),
                     0);
    assert_true(same_files("exact", "given"));
    /* No step is longer than that, and somebody says so. */
    assert_int_equal(run("eval " MO_TEST_MODEL " tale --batch 64 --save-logits short" BF16), 0);
    assert_true(same_files("exact", "short"));
    assert_non_null(strstr(errors, "at most 64 tokens (--batch), and it applies above 64"));
    expect_failure("eval " MO_TEST_MODEL " tale --prompt-precision fp8" EXACT, 2, "exact or bf16");
    setenv("LLAMA_FP4_PREFILL_M", "many", 1);
    expect_failure("eval " MO_TEST_MODEL " tale" BF16, 2, "LLAMA_FP4_PREFILL_M=many");
    setenv("LLAMA_FP4_PREFILL_M", "64", 1);
}

static void the_cpu_says_once_that_it_does_without(void **state)
{
    (void)state;
    assert_int_equal(run("eval " MO_TEST_MODEL " tale --save-logits exact --profile off --device none"), 0);
    assert_int_equal(run("eval " MO_TEST_MODEL
                         " tale --save-logits lossy --profile off --device none --prompt-precision bf16"),
                     0);
    assert_true(same_files("exact", "lossy"));
    const char *said = strstr(errors, "--prompt-precision bf16 has no effect: the CPU computes");
    assert_non_null(said);
    assert_null(strstr(said + strlen("--prompt-precision"), "prompt-precision"));
}

#define RUN "run " MO_TEST_MODEL " --file tale -n 2 --temp 0 --session kept"

static void sessions_are_of_one_precision(void **state)
{
    (void)state;
    static const char *const others[][2] = {{RUN BF16, RUN EXACT}, {RUN EXACT, RUN BF16}};
    for (int i = 0; i < 2; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/kept", folder);
        remove(path);
        assert_int_equal(run(others[i][0]), 0);
        assert_int_equal(run(others[i][0]), 0);
        assert_int_not_equal(run(others[i][1]), 0);
        assert_non_null(strstr(errors, i == 0 ? "computed with --prompt-precision bf16"
                                              : "computed with --prompt-precision exact"));
    }
}

/* Whatever number is asked for, steps of eight tokens are exact: then nothing is marked as anything else. */
static void few_tokens_are_exact(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/kept", folder);
    remove(path);
    setenv("LLAMA_FP4_PREFILL_M", "0", 1);
    assert_int_equal(run("eval " MO_TEST_MODEL " line --save-logits exact" EXACT), 0);
    assert_int_equal(run("eval " MO_TEST_MODEL " line --batch 8 --save-logits few" BF16), 0);
    assert_non_null(strstr(errors, "at most 8 tokens (--batch), and it applies above 8"));
    assert_true(same_files("exact", "few"));
    assert_int_equal(run("eval " MO_TEST_MODEL " line --batch 9 --save-logits nine" BF16), 0);
    assert_false(same_files("exact", "nine"));
    assert_int_equal(run(RUN " --batch 8" BF16), 0);
    assert_int_equal(run(RUN EXACT), 0);
    setenv("LLAMA_FP4_PREFILL_M", "64", 1);
}

static int64_t planned_work(const char *arguments)
{
    assert_int_equal(run(arguments), 0);
    json_t *root = json_loads(output, 0, NULL);
    assert_non_null(root);
    const json_t *device = json_object_get(root, "device");
    const int64_t work = json_integer_value(json_object_get(json_object_get(device, "bytes"), "work"));
    assert_true(work > 0);
    json_decref(root);
    return work;
}

static void the_plan_counts_its_memory(void **state)
{
    (void)state;
    const int64_t exact =
        planned_work("plan " MO_TEST_MODEL " --batch 512 --ctx 512 --json --device " DEVICE);
    const int64_t lossy = planned_work("plan " MO_TEST_MODEL " --batch 512 --ctx 512 --json --device " DEVICE
                                       " --prompt-precision bf16");
    assert_true(lossy > exact);
    assert_null(strstr(errors, "has no effect"));
    assert_int_equal(run("plan " MO_TEST_MODEL " --batch 64 --prompt-precision bf16 --device " DEVICE), 0);
    assert_non_null(strstr(errors, "--prompt-precision bf16 has no effect: the GPU computes exactly, or "
                                   "steps of 64 tokens are too short"));
    assert_int_equal(run("plan " MO_TEST_MODEL " --prompt-precision bf16 --device none"), 0);
    assert_non_null(strstr(errors, "--prompt-precision bf16 has no effect: no GPU in use"));
}

static void speeds_say_what_they_are_of(void **state)
{
    (void)state;
#define SPEED "bench " MO_TEST_MODEL " --prefill 65 --decode 0 --rounds 1 --json"
    static const char *const words[] = {"\"exact\"", "\"bf16\""};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(run(i ? SPEED BF16 : SPEED EXACT), 0);
        const char *precision = strstr(output, "\"prompt_precision\": ");
        assert_non_null(precision);
        assert_memory_equal(precision + strlen("\"prompt_precision\": "), words[i], strlen(words[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_as_near_to_f32_as_exact),
        cmocka_unit_test(the_kv_cache_is_nearer_to_f32_than_f16),
        cmocka_unit_test(keys_that_are_not_finite_are_told),
        cmocka_unit_test(begins_above_a_number_of_tokens),
        cmocka_unit_test(the_cpu_says_once_that_it_does_without),
        cmocka_unit_test(sessions_are_of_one_precision),
        cmocka_unit_test(few_tokens_are_exact),
        cmocka_unit_test(the_plan_counts_its_memory),
        cmocka_unit_test(speeds_say_what_they_are_of),
    };
    return cmocka_run_group_tests(tests, prepare, remove_folder);
}
