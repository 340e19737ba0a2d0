/* The program as people meet it: exit codes, what goes to stdout and what to stderr, valid JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/moraine-cli-XXXXXX";
static char output[1 << 20], errors[1 << 16]; /* of the last run */

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void slurp(const char *name, char *to, size_t size)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    to[fread(to, 1, size - 1, f)] = 0;
    fclose(f);
}

/* Runs "moraine ARGUMENTS" in the folder, through the shell; returns the exit code. */
static int run(const char *arguments)
{
    char command[1024];
    snprintf(command, sizeof command, "cd %s && { '%s' %s ; } >out 2>err", folder, MO_PROGRAM, arguments);
    int status = system(command);
    assert_true(WIFEXITED(status));
    slurp("out", output, sizeof output);
    slurp("err", errors, sizeof errors);
    return WEXITSTATUS(status);
}

/* A failed run says one sentence on stderr, nothing on stdout. */
static void expect_failure(const char *arguments, int code, const char *words)
{
    assert_int_equal(run(arguments), code);
    assert_int_equal(strlen(output), 0);
    if (!strstr(errors, words) || strncmp(errors, "moraine", 7) != 0) {
        fail_msg("\"%s\" does not say \"%s\"", errors, words);
    }
    assert_ptr_equal(strchr(errors, '\n'), errors + strlen(errors) - 1);
}

static void write_file(const char *name, const void *bytes, size_t size)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    fclose(f);
}

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
}

static void test_usage(void **state)
{
    (void)state;
    expect_failure("inspect --bogus x", 2, "--bogus");
    expect_failure("inspect -z x", 2, "-z");
    expect_failure("inspect", 2, "MODEL");
    expect_failure("inspect a b", 2, "too many: b");
    expect_failure("bogus", 2, "bogus");
    expect_failure("--bogus", 2, "--bogus");
    assert_int_equal(run(""), 2);
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
    expect_failure("inspect cut.gguf", 1, "bytes are missing");
    expect_failure("inspect --json cut.gguf", 1, "bytes are missing");
    write_file("head.gguf", model, 1000);
    expect_failure("inspect head.gguf", 1, "cut short");
    expect_failure("inspect " MO_TEST_DATA "/llama31-split-00002-of-00003.gguf", 1, "00001-of-00003");
}

static void test_tables(void **state)
{
    (void)state;
    assert_int_equal(run("inspect " MO_TEST_DATA "/oracle/llama31.gguf"), 0);
    assert_int_equal(strlen(errors), 0);
    assert_non_null(strstr(output, "tiny random llama"));
    assert_non_null(strstr(output, "One token reads"));
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

static json_t *parse_output(void)
{
    json_error_t error;
    json_t *root = json_loads(output, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        fail_msg("line %d: %s", error.line, error.text);
    }
    return root;
}

static json_int_t number(json_t *root, const char *section, const char *key)
{
    json_t *value = json_object_get(json_object_get(root, section), key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
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
    assert_int_equal(run("eval " TINY " --tokens ids --compare a --kv q8_0 --json"), 0);
    json_t *root = parse_output();
    assert_true(json_real_value(json_object_get(root, "kl_divergence")) < 0.05);
    assert_true(json_real_value(json_object_get(root, "perplexity")) > 1.0);
    json_decref(root);

    write_file("bad", "1 2 x", 5);
    expect_failure("eval " TINY " --tokens bad", 1, "'x' is no token id");
    write_file("far", "1 2 320", 7);
    expect_failure("eval " TINY " --tokens far", 1, "not in the vocabulary");
    expect_failure("eval " TINY " --tokens none", 1, "none");
    expect_failure("eval " TINY, 2, "--tokens");
    expect_failure("eval " TINY " --tokens ids --kv f8", 2, "f16, f32 or q8_0");
    expect_failure("eval " TINY " --tokens ids --isa abacus", 2, "scalar");
    expect_failure("eval " TINY " --tokens ids --ctx 3 --save-logits /dev/full", 1, "/dev/full");
    assert_int_equal(run("eval " TINY " ids"), 0);
    assert_non_null(strstr(output, "perplexity"));
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
    json_decref(root);
    write_file("prose", "the quick brown fox", 19);
    assert_int_equal(run("bench " TINY " --prefill 16 --decode 0 --rounds 1 --text prose"), 0);
    assert_non_null(strstr(output, "text tokens"));
    expect_failure("bench", 2, "--synthetic");
    expect_failure("bench " TINY " --prefill 0 --decode 0", 2, "something to measure");
    expect_failure("bench --synthetic nothing", 1, "nothing");
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
    expect_failure("run " TINY " -p a --top-p 2 --seed 1", 1, "top-p");
    expect_failure("run " TINY " -p a --logit-bias 1:x --seed 1", 1, "ID:VALUE");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_help),          cmocka_unit_test(test_usage), cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_tables),        cmocka_unit_test(test_json),  cmocka_unit_test(test_odd_text),
        cmocka_unit_test(test_output_errors), cmocka_unit_test(test_eval),  cmocka_unit_test(test_tokenize),
        cmocka_unit_test(test_bench),         cmocka_unit_test(test_run),   cmocka_unit_test(test_chat),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
