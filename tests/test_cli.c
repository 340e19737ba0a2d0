/* The program as people meet it: exit codes, what goes to stdout and what to stderr, valid JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gguf/write.h"
#include "gguf_file.h"
#include "program.h"
#include "program_json.h"
#include "sanitized.h"

static void test_help(void **state)
{
    (void)state;
    assert_int_equal(run("--help"), 0);
    assert_non_null(strstr(output, "inspect"));
    assert_int_equal(run("inspect --help"), 0);
    assert_non_null(strstr(output, "usage: moraine inspect"));
    assert_non_null(strstr(output, "--json"));
    assert_non_null(strstr(output, "Examples"));
    assert_int_equal(strlen(errors), 0);
    assert_int_equal(run("help inspect"), 0);
    assert_non_null(strstr(output, "usage: moraine inspect"));
    assert_int_equal(run("--version"), 0);
    assert_int_equal(strncmp(output, "moraine ", 8), 0);
    assert_non_null(strstr(output, "\nCUDA kernels "));
    assert_non_null(strstr(output, "\npull "));
}

static void test_usage(void **state)
{
    (void)state;
    expect_failure("inspect --bogus x", 2, "--bogus");
    expect_failure("inspect -z x", 2, "-z");
    expect_failure("inspect a b", 2, "argument: b");
    expect_failure("bogus", 2, "bogus");
    expect_failure("--bogus", 2, "--bogus");
    assert_int_equal(run(""), 2);
    assert_non_null(strstr(errors, "moraine chat"));
    assert_non_null(strstr(errors, "moraine --help"));
}

static void test_mistyped_words(void **state)
{
    (void)state;
    expect_failure("isnpect x", 2, "did you mean inspect?");
    expect_failure("servr", 2, "did you mean serve?");
    expect_failure("inspect --jsno x", 2, "did you mean --json?");
    expect_failure("run --tempp=1 x", 2, "did you mean --temp?");
    expect_failure("run --max_tokns 5 x", 2, "did you mean --max-tokens?");
    expect_failure("run --moe-hot-cahe x", 2, "did you mean --moe-hot-cache?");
    expect_failure("zzzzz", 2, "unknown command zzzzz; see");
    expect_failure("model.gguf -p x", 2, "such as moraine run MODEL -p TEXT");
    expect_failure("create x", 2, "moraine serve --models-file FILE");
    expect_failure("llama-perplexity -m x", 2, "did you mean eval?");
    expect_failure("inspect --zzzzz x", 2, "option --zzzzz; see");
    expect_failure(
        "inspect "
        "--aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa x",
        2, "; see");
}

static void test_bad_files(void **state)
{
    (void)state;
    static char model[1 << 20];
    FILE *f = fopen(MO_TEST_DATA "/oracle/llama31.gguf", "rb");
    assert_non_null(f);
    size_t size = fread(model, 1, sizeof model, f);
    fclose(f);
    expect_failure("inspect absent.gguf", 1, "absent.gguf");
    expect_failure("inspect .", 1, "moraine inspect");
    write_file("empty.gguf", "", 0);
    expect_failure("inspect empty.gguf", 1, "empty");
    write_file("page.gguf", "<!DOCTYPE html>", 15);
    expect_failure("inspect page.gguf", 1, "web page");
    write_file("cut.gguf", model, size / 2);
    expect_failure("inspect cut.gguf", 1, "are missing");
    expect_failure("inspect --json cut.gguf", 1, "are missing");
    write_file("head.gguf", model, 1000);
    expect_failure("inspect head.gguf", 1, "cut short");
    expect_failure("inspect " MO_TEST_DATA "/llama31-split-00002-of-00003.gguf", 1, "00001-of-00003");
}

static void test_tables(void **state)
{
    (void)state;
    assert_int_equal(run("inspect " MO_TEST_DATA "/oracle/deepseek2-mtp.gguf"), 0);
    assert_non_null(strstr(output, "MTP head "));
    assert_non_null(strstr(output, "it can guess tokens"));
    assert_int_equal(run("inspect " MO_TEST_DATA "/oracle/llama31.gguf"), 0);
    assert_int_equal(strlen(errors), 0);
    assert_non_null(strstr(output, "tiny random llama"));
    assert_non_null(strstr(output, "Read per token"));
    assert_null(strchr(output, '\033')); /* no colours into a file */
    assert_null(strstr(output, "blk.0.attn_q.weight"));
    assert_int_equal(run("inspect --tensors --metadata " MO_TEST_DATA "/llama31-split-00001-of-00003.gguf"),
                     0);
    assert_non_null(strstr(output, "blk.0.attn_q.weight"));
    assert_non_null(strstr(output, "tokenizer.ggml.tokens"));
    assert_non_null(strstr(output, "string[320]"));
    assert_int_equal(run("machine"), 0);
    assert_non_null(strstr(output, "cores"));
}

static void test_json(void **state)
{
    (void)state;
    json_int_t bytes[2];
    const char *const files[] = {"oracle/llama31.gguf", "llama31-split-00001-of-00003.gguf"};
    for (int i = 0; i < 2; i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments, "inspect --json %s/%s", MO_TEST_DATA, files[i]);
        assert_int_equal(run(arguments), 0);
        json_t *root = parse_output();
        assert_int_equal(json_array_size(json_object_get(root, "parts")), i ? 3 : 1);
        assert_int_equal(json_array_size(json_object_get(root, "tensors")), 30);
        assert_int_equal(number(root, "summary", "tensors"), 30);
        assert_int_equal(number(root, "summary", "layers"), 3);
        bytes[i] = number(root, "token_bytes", "total");
        json_t *metadata = json_object_get(root, "metadata"), *entry;
        size_t index, found = 0;
        json_array_foreach(metadata, index, entry)
        {
            if (strcmp(json_string_value(json_object_get(entry, "key")), "tokenizer.ggml.tokens") == 0) {
                found = json_array_size(json_object_get(entry, "value"));
            }
        }
        assert_int_equal(found, 320); /* complete */
        json_decref(root);
    }
    assert_int_equal(bytes[0], bytes[1]);
    assert_int_equal(run("machine --json"), 0);
    json_t *root = parse_output();
    assert_true(json_integer_value(json_object_get(root, "cores_usable")) >= 1);
    json_decref(root);
}

/* Clip files have no tokens and no layers of a text model. */
static void encoders_of_pictures_are_inspected(void **state)
{
    char path[256];
    (void)state;
    assert_int_equal(run("inspect " MO_TEST_DATA "/pictures/qwen3vlmoe.mmproj.gguf"), 0);
    assert_non_null(strstr(output, "qwen3vl_merger"));
    assert_non_null(strstr(output, "8 to 4096 per picture"));
    assert_non_null(strstr(output, "of width 40 with DeepStack in 2 layers"));
    assert_null(strstr(output, "Read per token"));
    assert_int_equal(run("show " MO_TEST_DATA "/pictures/gemma4.mmproj.gguf"), 0);
    assert_non_null(strstr(output, "gemma4v"));
    assert_int_equal(run("inspect --json " MO_TEST_DATA "/pictures/gemma4.mmproj.gguf"), 0);
    json_t *root = parse_output();
    assert_true(json_is_true(json_object_get(json_object_get(root, "encoder"), "supported")));
    assert_int_equal(number(root, "encoder", "max_tokens"), 280);
    json_decref(root);
    mo_gguf_writer *w = mo_gguf_writer_create(0);
    mo_gguf_put_string(w, "general.architecture", "clip");
    mo_gguf_put_bool(w, "clip.has_vision_encoder", true);
    mo_gguf_put_string(w, "clip.projector_type", "ldpv2");
    mo_gguf_put_tensor(w, "v.patch_embd.weight", MO_F32, 1, (int64_t[]){4});
    snprintf(path, sizeof path, "%s/other-mmproj.gguf", folder);
    assert_true(gguf_save(w, path, NULL));
    mo_gguf_writer_destroy(w);
    assert_int_equal(run("inspect other-mmproj.gguf"), 0);
    assert_non_null(strstr(output, "its projector \"ldpv2\" is not supported"));
    assert_int_equal(run("inspect --json other-mmproj.gguf"), 0);
    root = parse_output();
    assert_true(json_is_false(json_object_get(json_object_get(root, "encoder"), "supported")));
    json_decref(root);
}

/* Files that belong to a model and are not one. */
static void test_files_that_are_not_models(void **state)
{
    (void)state;
    static const struct {
        const char *type, *architecture, *says;
    } others[] = {
        {"adapter", "llama", "is a LoRA adapter, not a model; name the model, and the adapter with --lora"},
        {"mmproj", "clip", "is an encoder of pictures, not a model"},
        {"model", "clip", "is an encoder of pictures, not a model; name the model, and the encoder with"},
        {"imatrix", NULL, "is an importance matrix, not a model"},
    };
    static const char *const lines[] = {
        "run other.gguf -p x", "chat other.gguf", "eval other.gguf --text x", "trace other.gguf -p x -o x",
        "bench other.gguf",    "plan other.gguf", "tokenize other.gguf x"};
    write_file("x", "Hello", 5);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char path[128];
        mo_gguf_writer *w = mo_gguf_writer_create(0);
        mo_gguf_put_string(w, "general.type", others[i].type);
        if (others[i].architecture) {
            mo_gguf_put_string(w, "general.architecture", others[i].architecture);
        }
        snprintf(path, sizeof path, "%s/other.gguf", folder);
        assert_true(gguf_save(w, path, NULL));
        mo_gguf_writer_destroy(w);
        for (size_t k = 0; k < sizeof lines / sizeof *lines; k++) {
            expect_failure(lines[k], 1, others[i].says);
        }
        assert_int_equal(run("show other.gguf"), 0);
        assert_non_null(strstr(output, others[i].type));
    }
}

/* Text in a file may be anything: JSON stays valid, a terminal is not steered. */
static void test_odd_text(void **state)
{
    (void)state;
    static const char model[] = "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0"
                                "\014\0\0\0\0\0\0\0general.name\010\0\0\0"
                                "\012\0\0\0\0\0\0\0\033[31m\xff\0\xc3\xa9\n";
    write_file("odd.gguf", model, sizeof model - 1);
    assert_int_equal(run("inspect -m odd.gguf"), 0);
    assert_null(strchr(output, '\033'));
    assert_non_null(strstr(output, "\\x1b[31m"));
    assert_int_equal(run("inspect --json odd.gguf"), 0);
    json_error_t error;
    json_t *root = json_loads(output, JSON_ALLOW_NUL, &error);
    assert_non_null(root);
    json_t *value = json_object_get(json_array_get(json_object_get(root, "metadata"), 0), "value");
    assert_int_equal(json_string_length(value), 5 + 3 + 1 + 2 + 1);
    json_decref(root);
}

static void test_output_errors(void **state)
{
    (void)state;
    if (access("/dev/full", W_OK) != 0) {
        print_message("skipped: there is no /dev/full here\n");
        skip();
    }
    assert_int_equal(run("inspect " MO_TEST_DATA "/oracle/llama31.gguf >/dev/full"), 1);
    assert_non_null(strstr(errors, "cannot write"));
    assert_int_equal(run("inspect --json " MO_TEST_DATA "/oracle/llama31.gguf >/dev/full"), 1);
    assert_int_equal(run("--version >/dev/full"), 1);
    assert_int_equal(run("inspect --json " MO_TEST_DATA "/oracle/llama31.gguf | : "), 0); /* quiet */
    assert_int_equal(strlen(errors), 0);
}

/* ---- Commands that run a model ---- */

#define TINY MO_TEST_DATA "/oracle/qwen3.gguf"

static long file_size(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    const long size = ftell(f);
    fclose(f);
    return size;
}

static void test_eval(void **state)
{
    (void)state;
    write_file("ids", "1 2 3\n44\t5", 10);
    assert_int_equal(run("eval " TINY " --tokens ids --save-logits a --kv f32 --threads 1 --batch 2"), 0);
    assert_int_equal(file_size("a"), 5 * 320 * 4);
    assert_int_equal(run("eval " TINY " --tokens ids --save-logits b --kv f32 --isa scalar --threads 3"), 0);
    char command[512];
    snprintf(command, sizeof command, "cmp '%s/a' '%s/b'", folder, folder);
    assert_int_equal(system(command), 0);
    /* The old name of a format: said once, and the same numbers. */
    assert_int_equal(run("eval " TINY " --tokens ids --save-logits c"), 0);
    assert_int_equal(run("eval " TINY " --tokens ids --save-logits d --kv f16"), 0);
    const char *note = strstr(errors, "--kv f16 means i16");
    assert_non_null(note);
    assert_null(strstr(note + 1, "--kv f16"));
    snprintf(command, sizeof command, "cmp '%s/c' '%s/d'", folder, folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(run("eval " TINY " --tokens ids --compare a --kv q8_0 --json"), 0);
    json_t *root = parse_output();
    assert_true(json_real_value(json_object_get(root, "kl_divergence")) < 0.05);
    assert_true(json_real_value(json_object_get(root, "perplexity")) > 1.0);
    json_decref(root);

    write_file("bad", "1 2 x", 5);
    expect_failure("eval " TINY " --tokens bad", 1, "'x' is not a token id");
    write_file("far", "1 2 320", 7);
    expect_failure("eval " TINY " --tokens far", 1, "not in the vocabulary");
    expect_failure("eval " TINY " --tokens none", 1, "none");
    expect_failure("eval " TINY, 2, "--tokens");
    expect_failure("eval " TINY " ids --tokens ids", 2, "either");
    expect_failure("eval " TINY " ids --window 9 --ctx 8", 2, "--ctx 8");
    expect_failure("eval " TINY " --tokens ids --kv f8", 2, "i16, f32 or q8_0");
    expect_failure("eval " TINY " --tokens ids --isa abacus", 2, "scalar");
    expect_failure("eval " TINY " --tokens ids --ctx 3 --save-logits /dev/full", 1, "/dev/full");
    assert_int_equal(run("eval " TINY " ids"), 0);
    assert_non_null(strstr(output, "perplexity"));
}

/* Windows are texts of their own, whatever they share, and their first token is not scored. */
static void test_windows(void **state)
{
    (void)state;
    static char rows[8 * 320 * 4 + 1];
    write_file("thrice", "7 8 9 7 8 9 7 8", 15);
    assert_int_equal(run("eval " TINY " --tokens thrice --window 3 --save-logits rows --json"), 0);
    json_t *root = parse_output();
    assert_int_equal(json_integer_value(json_object_get(root, "tokens")), 8);
    assert_int_equal(json_integer_value(json_object_get(root, "predicted")), 5);
    assert_int_equal(json_integer_value(json_object_get(root, "window")), 3);
    json_decref(root);
    assert_int_equal(file_size("rows"), 8 * 320 * 4);
    slurp("rows", rows, sizeof rows);
    assert_memory_equal(rows, rows + 3 * 320 * 4, 3 * 320 * 4);
    assert_memory_equal(rows, rows + 6 * 320 * 4, 2 * 320 * 4);

    char prose[1501];
    for (size_t i = 0; i < sizeof prose - 1; i++) {
        prose[i] = (char)('a' + i * i % 26);
    }
    write_file("prose", prose, sizeof prose - 1);
    assert_int_equal(run("eval " TINY " prose --json"), 0);
    root = parse_output();
    const json_int_t tokens = json_integer_value(json_object_get(root, "tokens"));
    assert_true(tokens > 1024);
    assert_int_equal(json_integer_value(json_object_get(root, "window")), 512);
    assert_int_equal(json_integer_value(json_object_get(root, "predicted")), tokens - (tokens + 511) / 512);
    const double whole = json_real_value(json_object_get(root, "perplexity"));
    json_decref(root);
    assert_int_equal(run("tokenize " TINY " prose --special"), 0);
    write_file("prose-ids", output, strlen(output));
    assert_int_equal(run("eval " TINY " --tokens prose-ids --window 512 --threads 1 --json"), 0);
    root = parse_output();
    assert_true(json_real_value(json_object_get(root, "perplexity")) == whole);
    json_decref(root);
}

/* ---- Routing ---- */

#define MOE MO_TEST_DATA "/oracle/qwen3moe.gguf" /* 3 layers, 4 of 16 experts */

static double layer_value(json_t *root, int text, int layer, const char *key)
{
    json_t *routing =
        json_object_get(json_array_get(json_object_get(root, "texts"), (size_t)text), "routing");
    json_t *value = json_object_get(json_array_get(routing, (size_t)layer), key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void test_routing(void **state)
{
    (void)state;
    write_file("one", "5", 1);
    assert_int_equal(run("eval " MOE " --tokens one --routing --json"), 0);
    json_t *root = parse_output();
    for (int i = 0; i < 3; i++) {
        assert_true(layer_value(root, 0, i, "layer") == i);
        assert_true(layer_value(root, 0, i, "experts") == 16);
        assert_true(layer_value(root, 0, i, "picks") == 4);
        assert_true(layer_value(root, 0, i, "experts_used") == 4);
        assert_true(fabs(layer_value(root, 0, i, "entropy") - log(4.0)) < 1e-12);
        assert_true(fabs(layer_value(root, 0, i, "perplexity") - 4.0) < 1e-12);
        assert_true(layer_value(root, 0, i, "top_quarter") == 1.0);
        assert_true(layer_value(root, 0, i, "repeat") == 0.0);
    }
    assert_int_equal(json_array_size(json_object_get(root, "overlap")), 0);
    json_decref(root);

    static char first[sizeof output];
    write_file("words", "the quick brown fox jumps over the lazy dog", 43);
    write_file("digits", "0123456789 0123456789", 21);
    const char *const command =
        "eval " MOE " --text words --text digits --text words --routing --window 16 --json";
    char other[512];
    assert_int_equal(run(command), 0);
    memcpy(first, output, sizeof first);
    snprintf(other, sizeof other, "%s --batch 1 --threads 1 --isa scalar", command);
    assert_int_equal(run(other), 0);
    assert_string_equal(output, first);
    root = parse_output();
    for (int t = 0; t < 3; t++) {
        json_t *text = json_array_get(json_object_get(root, "texts"), (size_t)t);
        const double tokens = json_number_value(json_object_get(text, "tokens"));
        for (int i = 0; i < 3; i++) {
            const double used = layer_value(root, t, i, "experts_used");
            const double perplexity = layer_value(root, t, i, "perplexity");
            const double quarter = layer_value(root, t, i, "top_quarter");
            assert_true(layer_value(root, t, i, "picks") == 4.0 * tokens);
            assert_true(used >= 4 && used <= 16 && perplexity >= 4.0 - 1e-9 && perplexity <= used + 1e-9);
            assert_true(quarter >= 4.0 / used - 1e-9 && quarter <= 1.0);
            assert_true(layer_value(root, t, i, "repeat") <= 1.0);
        }
    }
    json_t *overlap = json_object_get(root, "overlap");
    assert_int_equal(json_array_size(overlap), 3); /* words-digits, words-words, digits-words */
    for (size_t i = 0; i < 3; i++) {
        json_t *pair = json_array_get(overlap, i), *layers = json_object_get(pair, "layers");
        double sum = 0.0;
        assert_int_equal(json_array_size(layers), 3);
        for (size_t l = 0; l < 3; l++) {
            sum += json_real_value(json_array_get(layers, l));
        }
        const double mean = json_real_value(json_object_get(pair, "mean"));
        assert_true(fabs(mean - sum / 3.0) < 1e-12);
        assert_true(i == 1 ? fabs(mean - 1.0) < 1e-12 : mean > 0.0 && mean < 1.0);
    }
    json_decref(root);
    assert_int_equal(run("eval " MOE " --text words --text digits --routing"), 0);
    assert_non_null(strstr(output, "routing of digits"));
    assert_non_null(strstr(output, "in common"));
    expect_failure("eval " TINY " words --routing", 1, "no routed experts");
}

/* Two tokens that are the same pick the same experts: with an empty context before each, all of them. */
static void test_routing_repeats(void **state)
{
    (void)state;
    write_file("same", "5 5 5 5", 7);
    assert_int_equal(run("eval " MOE " --tokens same --window 1 --routing --json"), 0);
    json_t *root = parse_output();
    assert_true(layer_value(root, 0, 0, "picks") == 16);
    assert_true(layer_value(root, 0, 0, "experts_used") == 4);
    assert_true(layer_value(root, 0, 0, "repeat") == 0.0); /* windows are not neighbours */
    json_decref(root);
    assert_int_equal(run("eval " MOE " --tokens same --routing --json"), 0);
    root = parse_output();
    assert_true(layer_value(root, 0, 0, "repeat") > 0.0);
    json_decref(root);
}

static void test_tokenize(void **state)
{
    (void)state;
    write_file("text", "<|im_end|> the\xff", 15);
    assert_int_equal(run("tokenize " TINY " text"), 0);
    char plain[4096];
    snprintf(plain, sizeof plain, "%.4000s", output);
    assert_int_equal(run("tokenize " TINY " text --special"), 0);
    assert_true(strlen(output) < strlen(plain)); /* one token instead of its letters */
    assert_int_equal(run("tokenize " TINY " - <text"), 0);
    assert_string_equal(output, plain);
    expect_failure("tokenize " TINY " none", 1, "none");
    expect_failure("tokenize " TINY, 2, "missing text file");
}

/* A number of bytes as it is printed, such as 1.40 GiB. */
static double bytes_at(const char *text)
{
    char *unit;
    const double number = strtod(text, &unit);
    return number * (strncmp(unit, " GiB", 4) == 0   ? 1 << 30
                     : strncmp(unit, " MiB", 4) == 0 ? 1 << 20
                     : strncmp(unit, " KiB", 4) == 0 ? 1 << 10
                                                     : 1);
}

static void test_bench(void **state)
{
    (void)state;
    assert_int_equal(run("bench " TINY " --prefill 16 --decode 4 --rounds 1 --json"), 0);
    json_t *root = parse_output();
    static const char *const keys[] = {"prefill_tps", "decode_tps", "read_gbps"};
    for (int i = 0; i < 3; i++) {
        assert_true(json_real_value(json_object_get(root, keys[i])) > 0.0);
    }
    const json_int_t resident = json_integer_value(json_object_get(root, "resident_bytes"));
    const json_int_t needed = json_integer_value(json_object_get(root, "weight_bytes")) +
                              json_integer_value(json_object_get(root, "session_bytes")) +
                              json_integer_value(json_object_get(root, "work_bytes"));
    assert_true(json_integer_value(json_object_get(root, "bytes_per_token")) > 100000);
    assert_true(needed > 500000 && resident > 1000000); /* a sanitizer's own memory is in it too */
    const json_t *split = json_object_get(root, "prefill_split");
    static const char *const parts[] = {"attention", "products", "experts", "routing",
                                        "other",     "copies",   "host"};
    double sum = 0.0;
    for (int i = 0; i < 7; i++) {
        assert_true(json_is_real(json_object_get(split, parts[i])));
        sum += json_real_value(json_object_get(split, parts[i]));
    }
    assert_int_equal(json_integer_value(json_object_get(split, "tokens")), 16);
    assert_true(fabs(sum - json_real_value(json_object_get(split, "seconds"))) < 1e-6);
    json_decref(root);
    write_file("prose", "the quick brown fox", 19);
    assert_int_equal(run("bench " TINY " --prefill 16 --decode 0 --rounds 1 --text prose"), 0);
    assert_non_null(strstr(output, "text tokens"));
    assert_non_null(strstr(output, "time spent    attention "));
    assert_int_equal(run("bench " TINY " --parallel 3 --prefill 16 --decode 4 --rounds 2 --json"), 0);
    root = json_loads(output, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(root, "parallel")), 3);
    assert_int_equal(json_integer_value(json_object_get(root, "generated_tokens")), 4);
    assert_true(json_real_value(json_object_get(root, "together_tps")) > 0.0);
    assert_true(json_real_value(json_object_get(root, "last_first_token_s")) >=
                json_real_value(json_object_get(root, "first_token_s")));
    json_decref(root);
    assert_int_equal(run("bench " TINY " --parallel 2 --prefill 8 --decode 2 --rounds 1"), 0);
    assert_non_null(strstr(output, "total  "));
    /* What wires allow: each expert that a step chose counts once. */
    for (int n = 2; n <= 12; n += 10) { /* also of steps that go as batches */
        char command[256];
        snprintf(command, sizeof command,
                 "bench " MO_TEST_MODEL
                 " --parallel %d --prefill 8 --decode 3 --rounds 2 --device sim --cpu-moe --json",
                 n);
        assert_int_equal(run(command), 0);
        root = json_loads(output, 0, NULL);
        const json_t *wires = json_object_get(root, "wires");
        const double missing = json_real_value(json_object_get(wires, "missing_per_step"));
        assert_true(missing >= 7 * 6 && missing <= 7 * (n * 6 < 64 ? n * 6 : 64)); /* 7 layers, 6 of 64 */
        assert_true(json_real_value(json_object_get(wires, "bytes_per_step")) > missing);
        json_decref(root);
    }
    /* What one of four tokens of a step reads, not all of them: together no more than the disk gave. */
    assert_int_equal(run("bench " MO_TEST_MODEL
                         " --parallel 4 --prefill 8 --decode 16 --rounds 2 --device none --ram 32M --ctx 64"),
                     0);
    const char *disk = strstr(output, "\ndisk "), *token = disk ? strchr(disk + 1, '\n') : NULL;
    assert_true(token && strstr(token, " per token"));
    assert_true(bytes_at(token) > 0.0 &&
                4 * 16 * 2 * bytes_at(token) <= 1.01 * bytes_at(strstr(disk, ": ") + 1));
    assert_int_equal(run("bench " TINY " --parallel 2 --prefill 8 --decode 2 --rounds 1 --json"), 0);
    assert_non_null(strstr(output, "\"wires\": null"));
    expect_failure("bench " TINY " --parallel 2 --prefill 0", 2, "--prefill 1 or more");
    expect_failure("bench " TINY " --parallel 257", 2, "--parallel");
    expect_failure("bench " TINY " --synthetic gpt-oss-20b", 2, "not both");
    expect_failure("bench " TINY " --layers 2", 2, "--layers requires --synthetic");
    expect_failure("bench " TINY " --rank-timeout 0", 2, "above 0, at most 3600");
    expect_failure("bench " TINY " --prefill 0 --decode 0", 2, "nothing to measure");
    assert_int_equal(run("bench " TINY " --depth 40 --prefill 16 --decode 4 --rounds 2 --json"), 0);
    root = parse_output();
    assert_int_equal(json_integer_value(json_object_get(root, "depth")), 40);
    assert_true(json_real_value(json_object_get(root, "prefill_tps")) > 0.0);
    assert_true(json_real_value(json_object_get(root, "decode_tps")) > 0.0);
    json_decref(root);
    expect_failure("bench " TINY " --depth 40 --prefill 16 --ctx 48", 2, "--ctx 48");
    expect_failure("bench " TINY " --depth 40 --prefill 0 --decode 0", 2, "nothing to measure");
    expect_failure("bench " TINY " --depth 40 --parallel 2", 2, "--depth");
    expect_failure("bench --synthetic nothing", 2, "nothing");
    /* Beyond the 4096 positions of this model speeds are measured too, and bench says so. */
#define OLMOE MO_TEST_DATA "/oracle/olmoe.gguf"
    assert_int_equal(run("bench " OLMOE " --depth 4080 --prefill 16 --decode 0 --rounds 1"), 0);
    assert_null(strstr(errors, "training context"));
    assert_int_equal(run("bench " OLMOE " --depth 4080 --prefill 17 --decode 0 --rounds 1"), 0);
    assert_non_null(
        strstr(errors, "4097 tokens are measured, more than this model's training context of 4096"));
    /* A plan and windows likewise; what was chosen for a text that fits needs no word. */
    assert_int_equal(run("plan " OLMOE " --ctx 4097 --device none"), 0);
    assert_non_null(strstr(errors, "--ctx 4097 exceeds this model's training context of 4096"));
    assert_int_equal(run("plan " OLMOE " --ctx 4096 --device none"), 0);
    assert_null(strstr(errors, "training context"));
    write_file("few", "1 2 3", 5);
    assert_int_equal(run("eval " OLMOE " --tokens few --window 4097 --device none"), 0);
    assert_non_null(strstr(errors, "windows of 4097 tokens exceed this model's training context of 4096"));
    assert_int_equal(run("eval " OLMOE " --tokens few --device none"), 0);
    assert_null(strstr(errors, "training context"));
    assert_int_equal(run("bench " OLMOE " --parallel 1 --prefill 4093 --decode 4 --rounds 1"), 0);
    assert_non_null(strstr(errors, "4097 tokens are measured"));
}

static void test_run(void **state)
{
    (void)state;
    assert_int_equal(run("run " TINY " -p the --raw -n 12 --seed 7 --threads 1"), 0);
    char first[4096];
    snprintf(first, sizeof first, "%.4000s", output);
    assert_non_null(strstr(errors, "tokens/s"));
    assert_int_equal(run("run " TINY " -p the --raw -n 12 --seed 7 --threads 3 --isa scalar --quiet"), 0);
    assert_string_equal(output, first);
    assert_int_equal(strlen(errors), 0);
    write_file("prompt", "the", 3);
    assert_int_equal(run("run " TINY " --raw -n 12 --seed 7 --quiet <prompt"), 0);
    assert_string_equal(output, first);
    assert_int_equal(run("run " TINY " -f prompt --raw -n 12 --seed 7 --quiet --mmap"), 0);
    assert_string_equal(output, first);
    expect_failure("run " TINY " -p '' --raw", 1, "empty");
    expect_failure("run " TINY " -p a -f b", 2, "not both");
    expect_failure("run " TINY " -p a --top-p 2 --seed 1", 2, "top-p");
    expect_failure("run " TINY " -p a --logit-bias 1:x --seed 1", 2, "--logit-bias 1:x");
    expect_failure("run none.gguf -p a", 1, "none.gguf");
    assert_int_equal(run("run " TINY " -p the --raw -n 400 --seed 1 --ctx 20 --ignore-eos"), 0);
    assert_non_null(strstr(errors, "--ctx"));
    char words[400];
    memset(words, 'q', sizeof words);
    write_file("long", words, sizeof words);
    expect_failure("run " TINY " -f long --raw --ctx 20 --seed 1", 1, "--ctx");
}

static void test_chat(void **state)
{
    (void)state;
    write_file("lines", "the\n/speed\n/undo\n/clear\n\nthe\n/exit\n", 36);
    assert_int_equal(run("chat " TINY " -n 6 --temp 0 <lines"), 0);
    assert_non_null(strstr(errors, "tokens/s"));
    assert_true(strlen(output) > 2);
    write_file("help", "/help\n", 6);
    assert_int_equal(run("chat " TINY " --seed 1 <help"), 0);
    assert_non_null(strstr(errors, "/clear"));
}

/* ---- Without a model's name ---- */

/* Runs a copy of the program, which then has other neighbours. */
static int run_copy(const char *arguments)
{
    char line[1024];
    snprintf(line, sizeof line, "--version >/dev/null && '%s/place/bin/moraine' %s", folder, arguments);
    return run(line);
}

static void test_default_model(void **state)
{
    (void)state;
    setenv("MORAINE_MODEL", TINY, 1);
    assert_int_equal(run("run -p the --raw -n 4 --seed 7"), 0);
    assert_ptr_equal(strstr(errors, "model: " TINY " (MORAINE_MODEL)\n"), errors);
    char first[256];
    snprintf(first, sizeof first, "%.250s", output);
    assert_int_equal(run("run " MOE " -p the --raw -n 4 --seed 7"), 0); /* a name goes before */
    assert_null(strstr(errors, "model:"));
    assert_int_equal(run("run -p the --raw -n 4 --seed 7 --quiet"), 0);
    assert_string_equal(output, first);
    assert_int_equal(strlen(errors), 0);
    assert_int_equal(run("inspect --json"), 0);
    assert_int_equal(strlen(errors), 0);
    assert_int_equal(run("bench --prefill 8 --decode 0 --rounds 1 --json"), 0);
    assert_int_equal(strlen(errors), 0);
    write_file("text", "the", 3);
    assert_int_equal(run("tokenize text"), 0);
    assert_int_equal(run("eval --text text --json"), 0);
    assert_int_equal(strlen(errors), 0);
    assert_int_equal(run("chat --temp 0 -n 2 <text"), 0);
    setenv("MORAINE_MODEL", "nowhere.gguf", 1);
    expect_failure("run -p the", 1, "cannot read the model nowhere.gguf");
    unsetenv("MORAINE_MODEL");
}

static void test_built_in_model(void **state)
{
    (void)state;
    shell("mkdir -p place/bin place/models place/share/moraine && cp '" MO_PROGRAM "' place/bin/moraine");
    if (access(MO_INSTALLED_MODEL, R_OK) != 0) { /* otherwise that one is rightly found */
        expect_failure("--version >/dev/null; place/bin/moraine run -p the", 2, "set MORAINE_MODEL");
        expect_failure("--version >/dev/null; place/bin/moraine inspect", 2, "no MODEL given");
    }
    shell("cp '" TINY "' place/share/moraine/pebble.gguf");
    assert_int_equal(run_copy("inspect"), 0);
    assert_non_null(strstr(output, "qwen3\n"));
    assert_string_equal(errors, "model: pebble (built in)\n");
    shell("cp '" MOE "' place/models/pebble.gguf"); /* the source tree goes before */
    assert_int_equal(run_copy("inspect"), 0);
    assert_non_null(strstr(output, "qwen3moe"));
    shell("ln -s place/bin/moraine link"); /* a link elsewhere changes nothing */
    assert_int_equal(run("--version >/dev/null; ./link inspect"), 0);
    assert_non_null(strstr(output, "qwen3moe"));
    assert_int_equal(run("--version >/dev/null; MORAINE_MODEL=" TINY " ./link inspect"), 0);
    assert_null(strstr(output, "qwen3moe"));
}

/* ---- Tokens that must not be picked ---- */

/* A copy of TINY whose vocabulary suppresses every token but `left`. */
static void make_suppressed(const char *name, int32_t left)
{
    static uint8_t model[1 << 20];
    static const void *data[256];
    int32_t ids[320];
    int count = 0;
    char path[256];
    mo_error err;
    mo_gguf *g;
    FILE *f = fopen(TINY, "rb");
    assert_non_null(f);
    assert_true(fread(model, 1, sizeof model, f) < sizeof model);
    fclose(f);
    assert_int_equal(mo_gguf_open(TINY, &g, &err), MO_OK);
    mo_gguf_writer *w = mo_gguf_writer_create(0);
    for (int64_t i = 0; i < mo_gguf_entry_count(g); i++) {
        mo_gguf_put_entry(w, g, mo_gguf_entry_at(g, i));
    }
    for (int32_t id = 0; id < 320; id++) {
        if (id != left) {
            ids[count++] = id;
        }
    }
    mo_gguf_put_array(w, "tokenizer.ggml.suppress_tokens", MO_VALUE_I32, ids, (uint64_t)count);
    for (int64_t i = 0; i < mo_gguf_tensor_count(g); i++) {
        const mo_gguf_tensor *t = mo_gguf_tensor_at(g, i);
        mo_gguf_put_tensor(w, t->name, t->format->type, t->dims, t->size);
        data[i] = model + t->offset;
    }
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_true(gguf_save(w, path, data));
    mo_gguf_writer_destroy(w);
    mo_gguf_close(g);
}

static void test_suppressed(void **state)
{
    (void)state;
    write_file("letter", "q", 1);
    assert_int_equal(run("tokenize " TINY " letter"), 0);
    const int32_t id = atoi(output);
    make_suppressed("one-token.gguf", id);
    assert_int_equal(run("run one-token.gguf -p the --raw -n 5 --temp 0 --quiet"), 0);
    assert_string_equal(output, "qqqqq\n");
    assert_int_equal(run("run one-token.gguf -p the --raw -n 5 --temp 3 --top-k 0 --seed 1 --quiet"), 0);
    assert_string_equal(output, "qqqqq\n");
    write_file("letter", "z", 1);
    assert_int_equal(run("tokenize " TINY " letter"), 0);
    const int32_t other = atoi(output);
    char command[256]; /* what the user says of a token is stronger than what the vocabulary says */
    snprintf(command, sizeof command,
             "run one-token.gguf -p the --raw -n 5 --temp 0 --quiet --logit-bias %d:1000", other);
    assert_int_equal(run(command), 0);
    assert_string_equal(output, "zzzzz\n");
    snprintf(command, sizeof command,
             "run one-token.gguf -p the --raw -n 5 --temp 0 --quiet --logit-bias %d:-inf", other);
    assert_int_equal(run(command), 0);
    assert_string_equal(output, "qqqqq\n");
    write_file("line", "the\n", 4);
    assert_int_equal(run("chat one-token.gguf -n 3 --temp 0 <line"), 0);
    assert_non_null(strstr(output, "qqq"));
}

/* ---- Other formats ---- */

#define LLAMA MO_TEST_DATA "/oracle/llama31.gguf"

static void test_quantize(void **state)
{
    (void)state;
    assert_int_equal(run("quantize " LLAMA " q8.gguf --rest q8_0"), 0);
    assert_int_equal(strlen(output), 0);
    assert_non_null(strstr(errors, "rest"));
    assert_non_null(strstr(errors, "RMS error"));
    assert_true(file_size("q8.gguf") < 300000);
    assert_int_equal(run("quantize " LLAMA " q8b.gguf --rest q8_0 --threads 1"), 0);
    shell("cmp q8.gguf q8b.gguf");
    write_file("ids", "1 2 3 44 5 6 77", 15);
    assert_int_equal(run("eval " LLAMA " --tokens ids --save-logits exact --kv f32"), 0);
    assert_int_equal(run("eval q8.gguf --tokens ids --compare exact --kv f32 --json"), 0);
    json_t *root = parse_output();
    const double q8 = json_real_value(json_object_get(root, "kl_divergence"));
    json_decref(root);
    assert_true(q8 > 0.0 && q8 < 0.01);
    assert_int_equal(run("quantize " LLAMA " q4.gguf --rest q4_0"), 0);
    assert_int_equal(run("eval q4.gguf --tokens ids --compare exact --kv f32 --json"), 0);
    root = parse_output();
    assert_true(json_real_value(json_object_get(root, "kl_divergence")) > q8);
    json_decref(root);

    expect_failure("quantize " LLAMA " q8.gguf --rest q8_0", 2, "--force");
    assert_int_equal(run("quantize " LLAMA " q8.gguf --rest q8_0 --force"), 0);
    expect_failure("quantize " LLAMA " x.gguf", 2, "--experts");
    expect_failure("quantize " LLAMA, 2, "IN OUT");
    expect_failure("quantize " LLAMA " x.gguf --rest q9", 2, "Q8_0");
    expect_failure("quantize none.gguf x.gguf --rest q8_0", 1, "none.gguf");
    expect_failure("quantize " LLAMA " /dev/full --rest q8_0", 1, "/dev/full");
    struct stat there;
    char path[128];
    snprintf(path, sizeof path, "%s/x.gguf", folder);
    assert_int_equal(stat(path, &there), -1);
    assert_int_equal(run("quantize " LLAMA " /dev/stdout --rest q8_0 | cmp - q8.gguf"), 0);
}

/* ---- Learning ---- */

#define MOE_OPTIONS " --raw -p 'The fox' -n 12 --temp 0 -q "

static void test_learning(void **state)
{
    (void)state;
    if (access(MO_TEST_MODEL, R_OK) != 0) {
        skip();
    }
    shell("rm -rf moraine");
    assert_int_equal(run("run " MO_TEST_MODEL MOE_OPTIONS "--profile off --moe-layer-perf-out perf.json"), 0);
    char *plain = strdup(output);
    shell("test ! -e moraine && grep -q moe_layer_opt_perf.v1 perf.json");
    assert_int_equal(run("run " MO_TEST_MODEL MOE_OPTIONS), 0); /* the model's own profile */
    assert_string_equal(output, plain);
    shell("test $(ls moraine/*.json | wc -l) = 1");
    assert_int_equal(run("run " MO_TEST_MODEL MOE_OPTIONS
                         "--ctx 128 --ram 40M --moe-hot-cache perf.json --moe-hot-cache-max-mib 2 "
                         "--moe-hot-cache-update-rate 0.5 --moe-hot-cache-weighting layer-rank"),
                     0);
    assert_string_equal(output, plain);
    assert_int_equal(strlen(errors), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            run("run " MO_TEST_MODEL MOE_OPTIONS
                "--ctx 128 --batch 32 --ram 27M --warm-file warm --discover 2 --profile mine.json"),
            0);
        assert_string_equal(output, plain);
        assert_int_equal(strlen(errors), 0);
    }
    shell("test -s warm && test -s mine.json");
    assert_int_equal(run("run " MO_TEST_MODEL MOE_OPTIONS "--warm-file warm"), 0);
    assert_non_null(strstr(errors, "neither read nor written: all experts are loaded at the start"));
    setenv("MORAINE_SIM", "memory=2G", 1); /* the hot cache's start line, and an update rate */
    assert_int_equal(run("run " MO_TEST_MODEL MOE_OPTIONS "--device sim --cpu-moe --moe-hot-cache perf.json "
                         "--moe-hot-cache-max-mib -1"),
                     0);
    assert_string_equal(output, plain);
    assert_int_equal(strlen(errors), 0);
    assert_int_equal(run("run " MO_TEST_MODEL MOE_OPTIONS "--device sim --moe-hot-cache perf.json "
                         "--moe-hot-cache-max-mib 2 --moe-hot-cache-update-rate 1"),
                     0);
    assert_string_equal(output, plain);
    assert_int_equal(strlen(errors), 0);
    unsetenv("MORAINE_SIM");
    assert_int_equal(run("plan " MO_TEST_MODEL " --device sim --moe-hot-cache perf.json "
                         "--moe-hot-cache-max-mib 2"),
                     0);
    assert_non_null(strstr(output, "of 2.00 MiB in VRAM"));
    assert_non_null(strstr(output, "of 448, in 7 of 7 layers"));
    assert_int_equal(run("plan " MO_TEST_MODEL " --device sim --moe-hot-cache perf.json "
                         "--moe-hot-cache-max-mib 2 --json"),
                     0);
    json_t *root = parse_output();
    const json_t *hot = json_object_get(root, "hot_cache");
    assert_int_equal(json_integer_value(json_object_get(hot, "budget_bytes")), 2 << 20);
    assert_true(json_real_value(json_object_get(hot, "hit_rate")) > 0.1);
    json_decref(root);
    assert_int_equal(run("run " MO_TEST_MODEL MOE_OPTIONS "--cpu-moe"), 0);
    assert_string_equal(output, plain);
    assert_non_null(strstr(errors, "note: --cpu-moe"));
    free(plain);
    expect_failure("run " MO_TEST_MODEL " -p x --moe-hot-cache-update-rate 0.1", 2, "requires a hot cache");
    expect_failure("run " MO_TEST_MODEL " -p x --moe-hot-cache-max-mib 5", 2, "--moe-hot-cache FILE");
    expect_failure("bench " MO_TEST_MODEL " --moe-hot-cache none.json --moe-hot-cache-max-mib -1", 1,
                   "none.json");
    expect_failure("eval " MO_TEST_MODEL
                   " perf.json --moe-hot-cache perf.json --moe-hot-cache-max-mib 1 --mmap",
                   2, "--mmap");
    expect_failure("run " MO_TEST_MODEL " -p x --moe-hot-cache-weighting odd", 2, "flat");
    expect_failure("plan " MO_TEST_MODEL " --moe-hot-cache-update-rate 0.1", 2, "requires a hot cache");
    assert_int_equal(
        run("--version >/dev/null; LLAMA_MOE_LAYER_PERF=loud " MO_PROGRAM " run " MO_TEST_MODEL " -p x"), 2);
}

#define LANES                                                                                                \
    "bench " MO_TEST_MODEL " --device sim --cpu-moe --ctx 64 --prefill 0 --decode 6 --rounds 1 "             \
    "--profile off "

/* Where the time of a device's layers went: for people, for programs, and in the profile by LLAMA_MOE_LAYER_PERF. */
static void test_lanes(void **state)
{
    static const char *const keys[] = {"layer_us",     "core_us",       "round_trip_us", "cpu_lane_us",
                                       "copy_wait_us", "fetch_lane_us", "hidden_us",     "device_wait_us",
                                       "layer_p50_us", "layer_p99_us",  "gpu_busy",      "overlap"};
    (void)state;
    if (access(MO_TEST_MODEL, R_OK) != 0) {
        skip();
    }
    setenv("LLAMA_POSTFETCH_BLOCK_ON_MISS", "1", 1); /* what is late is waited for */
    assert_int_equal(run(LANES "--postfetch down --json --moe-layer-perf-out lanes.json"), 0);
    json_t *root = parse_output(), *lanes = json_object_get(root, "lanes");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        assert_true(json_is_real(json_object_get(lanes, keys[i])));
    }
    assert_true(json_real_value(json_object_get(lanes, "gpu_busy")) <= 1.0);
    const json_int_t layers = json_integer_value(json_object_get(lanes, "layers"));
    assert_true(layers > 0);
    assert_int_equal(json_integer_value(json_object_get(lanes, "passes")), 7 * layers);
    assert_int_equal(json_array_size(json_object_get(lanes, "each")), layers + 1);
    assert_true(json_is_integer(json_object_get(json_object_get(lanes, "fallbacks"), "late_copy")));
    json_decref(root);
    shell("grep -q parallel_region_wall_time_per_call_us lanes.json && grep -q '\"parallel_fallbacks\":0' "
          "lanes.json");
    assert_int_equal(run(LANES "--postfetch down"), 0);
    assert_non_null(strstr(output, "GPU busy"));
    assert_non_null(strstr(output, "fallbacks      0.00 %"));
    setenv("LLAMA_POSTFETCH_DEBUG", "1", 1); /* alone, and with the mode from the environment */
    setenv("LLAMA_POSTFETCH_MODE", "down", 1);
    assert_int_equal(run(LANES), 0);
    assert_non_null(strstr(errors, "postfetch: layer 0: transferring 6 of 6 missing experts, 0."));
    assert_non_null(strstr(errors, ": down, 9216 bytes at offset 0"));
    assert_non_null(strstr(errors, "postfetch: layer 0: transfer "));
    assert_non_null(strstr(errors, " ms, overlap "));
    assert_int_equal(run(LANES "--postfetch-enable 0"), 0);
    assert_null(strstr(errors, "transferring"));
    unsetenv("LLAMA_POSTFETCH_MODE"); /* whether the plan sends any or none */
    assert_int_equal(run(LANES), 0);
    assert_non_null(strstr(errors, "postfetch: layer 0: transferring "));
    unsetenv("LLAMA_POSTFETCH_DEBUG");
    unsetenv("LLAMA_POSTFETCH_BLOCK_ON_MISS");
    assert_int_equal(run(LANES "--postfetch-enable 2"), 2);
    assert_int_equal(run(LANES "--postfetch-enable 1 --postfetch down"), 2);
    setenv("LLAMA_MOE_LAYER_PERF", "update", 1);
    assert_int_equal(run(LANES "--moe-layer-perf-out lanes.json"), 0);
    shell("grep -q parallel_cold_lane_wall_time_per_call_us lanes.json && ! grep -q parallel_region "
          "lanes.json");
    setenv("LLAMA_MOE_LAYER_PERF", "off", 1);
    assert_int_equal(run(LANES "--json"), 0);
    root = parse_output();
    assert_true(json_is_null(json_object_get(root, "lanes")));
    json_decref(root);
    unsetenv("LLAMA_MOE_LAYER_PERF");
    assert_int_equal(
        run("bench " MO_TEST_MODEL " --device none --ctx 64 --prefill 0 --decode 2 --rounds 1 --json"), 0);
    root = parse_output();
    assert_true(json_is_null(json_object_get(root, "lanes")));
    json_decref(root);
}

static void test_learning_in_chat(void **state)
{
    (void)state;
    if (access(MO_TEST_MODEL, R_OK) != 0) {
        skip();
    }
    static const char lines[] =
        "Tell me a story.\n/profile told.json\n/profile\n/apply told.json\n/apply none.json\n";
    write_file("lines", lines, sizeof lines - 1);
    assert_int_equal(
        run("chat " MO_TEST_MODEL " --profile off --temp 0 -n 8 --ctx 256 --batch 32 --ram 28M <lines"), 0);
    assert_non_null(strstr(output, "\"schema\":\"llama.cpp.moe_layer_opt_perf.v1\""));
    assert_non_null(strstr(output, "{\"success\":true,\"active\":true,\"update_rate\":1.0,\"exchanged\":"));
    assert_non_null(strstr(errors, "told.json"));
    assert_non_null(strstr(errors, "none.json"));
    assert_int_equal(run("chat " MO_TEST_MODEL
                         " --profile off --temp 0 -n 8 --ctx 256 --batch 32 --device sim "
                         "--moe-hot-cache told.json --moe-hot-cache-max-mib 2 <lines"),
                     0); /* what was told fills the slots already, so little is left to do */
    assert_non_null(strstr(output, "{\"success\":true,\"active\":true,\"update_rate\":1.0,\"exchanged\":"));
}

/* ---- Templates ---- */

static void test_template(void **state)
{
    (void)state;
    shell("printf '%s\\n' "
          "'{\"template\": \"{{ x | tojson }} {{ strftime_now(\\\"%d %b %Y\\\") }}\", \"context\": {\"x\": "
          "[1e-7, "
          "99999999999999999999, \"é\"]}, \"clock\": \"2026-01-15T10:20:30\"}' "
          "'{\"context\": {}, \"template\": \"{{ raise_exception(\\\"no\\\") }}\"}' '' "
          "'{\"template\": \"{% if %}\"}' 'none' '{\"template\": \"last\"}' >lines");
    assert_int_equal(run("template <lines"), 0);
    assert_string_equal(output,
                        "{\"text\":\"[1e-07, 99999999999999999999, \\\"é\\\"] 15 Jan 2026\"}\n"
                        "{\"error\":\"no\"}\n"
                        "{\"error\":\"line 1: expected an expression, found %}\"}\n"
                        "{\"error\":\"expected a JSON object with a string \\\"template\\\" and an object "
                        "\\\"context\\\"\"}\n"
                        "{\"text\":\"last\"}\n");
    expect_failure("template model.gguf </dev/null", 2, "template");
}

/* ---- All of them ---- */

/* No option may be there twice: the second would never be reached. */
static void test_options_are_unique(void **state)
{
    static const char *const commands[] = {"run",      "chat",    "plan",     "probe",    "trace",
                                           "replay",   "bench",   "eval",     "tokenize", "inspect",
                                           "template", "machine", "quantize", "synth"};
    char line[128];
    (void)state;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        snprintf(line, sizeof line, "%s --help", commands[i]);
        assert_int_equal(run(line), 0);
        shell("grep -oE '^ +(-[a-z], )?--[a-z-]+' out | grep -oE -- '--[a-z-]+' | sort | uniq -d >twice");
        if (file_size("twice") != 0) {
            slurp("twice", output, sizeof output);
            fail_msg("%s has these options twice: %s", commands[i], output);
        }
    }
}

/* Answers of a given form: by a schema, by a grammar. */
static void test_constraints(void **state)
{
    (void)state;
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":8},\"age\":"
        "{\"type\":\"integer\",\"minimum\":1,\"maximum\":99}},\"required\":[\"name\",\"age\"]}";
    static const char loose[] =
        "{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"maxItems\":2,\"uniqueItems\":true}";
    static const char wrong[] = "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"strin\"}}}";
    static const char gbnf[] = "root ::= \"The answer is \" [1-9] [0-9]{0,2} \".\"\n";
    if (access(MO_TEST_MODEL, R_OK) != 0) {
        skip();
    }
    write_file("schema.json", schema, strlen(schema));
    write_file("loose.json", loose, strlen(loose));
    write_file("wrong.json", wrong, strlen(wrong));
    write_file("answer.gbnf", gbnf, strlen(gbnf));
    write_file("wrong.gbnf", "root ::= \"a\"\nx ::= y\n", 21);
    for (int seed = 1; seed <= 5; seed++) {
        char arguments[256];
        snprintf(arguments, sizeof arguments,
                 "run " MO_TEST_MODEL
                 " -p x --schema schema.json --json --device none --profile off --seed %d",
                 seed);
        assert_int_equal(run(arguments), 0);
        json_t *all = json_loads(output, 0, NULL);
        json_t *made =
            json_loads(json_string_value(json_object_get(all, "text")), JSON_REJECT_DUPLICATES, NULL);
        const json_int_t age = json_integer_value(json_object_get(made, "age"));
        assert_string_equal(json_string_value(json_object_get(all, "finish")), "end");
        assert_int_equal(json_object_size(made), 2);
        assert_true(json_is_string(json_object_get(made, "name")));
        assert_in_range(age, 1, 99);
        json_decref(all);
        json_decref(made);
    }
    assert_int_equal(
        run("run " MO_TEST_MODEL " -p x --grammar answer.gbnf --quiet --device none --profile off --raw"), 0);
    int answered = 0, end = 0;
    assert_int_equal(sscanf(output, "The answer is %d.%n", &answered, &end), 1);
    assert_true(end > 0 && answered > 0 && strcmp(output + end, "\n") == 0);
    assert_int_equal(
        run("run " MO_TEST_MODEL " -p x --schema loose.json --quiet --device none --profile off"), 0);
    assert_non_null(
        strstr(errors, "loose.json: /uniqueItems: is not enforced")); /* nothing is dropped silently */
    expect_failure("run absent.gguf -p x --schema wrong.json", 1, "/properties/x/type: unknown type 'strin'");
    expect_failure("run " MO_TEST_MODEL " -p x --grammar wrong.gbnf --device none --seed 1", 1,
                   "line 2, column 7");
    write_file("open.gbnf", "root ::= (\n", 11);
    expect_failure("run " MO_TEST_MODEL " -p x --grammar open.gbnf --device none --seed 1", 1,
                   "line 1, column 10: this parenthesis is not closed");
    expect_failure("run " MO_TEST_MODEL " -p x --schema absent.json", 1, "absent.json");
    expect_failure("run -p x --schema schema.json --grammar answer.gbnf", 2, "not both");
    expect_failure("run -p x --schema schema.json --ignore-eos", 2, "--ignore-eos");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_usage),
        cmocka_unit_test(test_mistyped_words),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_json),
        cmocka_unit_test(encoders_of_pictures_are_inspected),
        cmocka_unit_test(test_files_that_are_not_models),
        cmocka_unit_test(test_odd_text),
        cmocka_unit_test(test_output_errors),
        cmocka_unit_test(test_eval),
        cmocka_unit_test(test_tokenize),
        cmocka_unit_test(test_template),
        cmocka_unit_test(test_bench),
        cmocka_unit_test(test_run),
        cmocka_unit_test(test_constraints),
        cmocka_unit_test(test_chat),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_routing),
        cmocka_unit_test(test_routing_repeats),
        cmocka_unit_test(test_default_model),
        cmocka_unit_test(test_built_in_model),
        cmocka_unit_test(test_suppressed),
        cmocka_unit_test(test_quantize),
        cmocka_unit_test(test_learning),
        cmocka_unit_test(test_lanes),
        cmocka_unit_test(test_learning_in_chat),
        cmocka_unit_test(test_options_are_unique),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
