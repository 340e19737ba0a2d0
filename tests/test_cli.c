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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_help),          cmocka_unit_test(test_usage), cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_tables),        cmocka_unit_test(test_json),  cmocka_unit_test(test_odd_text),
        cmocka_unit_test(test_output_errors),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
