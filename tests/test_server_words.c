/* What the server writes: JSON strings and numbers, and errors in the shapes of the dialects; bodies that there is no memory for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "failing_memory.h"
#include "random.h"
#include "server/common/body.h"
#include "server/common/fault.h"
#include "server/common/writer.h"

static json_t *read_back(const srv_writer *w)
{
    json_error_t err;
    assert_false(w->failed);
    json_t *value = json_loadb(w->data, w->length, JSON_DECODE_ANY | JSON_ALLOW_NUL, &err);
    if (!value) {
        fail_msg("%s: %.*s", err.text, (int)w->length, w->data);
    }
    return value;
}

static void strings_are_read_back(void **state)
{
    (void)state;
    char text[256 + 5];
    for (int i = 0; i < 128; i++) {
        text[i] = (char)i;
    }
    const size_t length =
        128 + (size_t)snprintf(text + 128, sizeof text - 128, "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80/\x7f");
    srv_writer w = {0};
    srv_put_string(&w, text, length);
    json_t *value = read_back(&w);
    assert_int_equal(json_string_length(value), length);
    assert_memory_equal(json_string_value(value), text, length);
    json_decref(value);
    srv_writer_free(&w);
}

static void bytes_that_are_no_text_are_replaced(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "\xff", "\xc3", "\xe2\x82", "\xed\xa0\x80", "\xc0\x80", "\xf4\x90\x80\x80", "\xf0\x80\x80\x80"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        srv_writer w = {0};
        srv_put_string(&w, wrong[i], strlen(wrong[i]));
        json_t *value = read_back(&w);
        assert_memory_equal(json_string_value(value), "\xef\xbf\xbd", 3);
        json_decref(value);
        srv_writer_free(&w);
    }
    srv_writer w = {0};
    uint64_t seed = 7;
    for (int i = 0; i < 2000; i++) {
        char bytes[24];
        for (size_t k = 0; k < sizeof bytes; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            bytes[k] = (char)(seed >> 56);
        }
        srv_writer_empty(&w);
        srv_put_string(&w, bytes, sizeof bytes);
        json_decref(read_back(&w));
    }
    srv_writer_free(&w);
}

static void numbers_are_read_back(void **state)
{
    (void)state;
    static const int64_t whole[] = {0, 1, -1, 1234567890123, INT64_MAX, INT64_MIN};
    static const float real[] = {0, -0.1F, 1e-30F, -3.4e38F, 0.333333343F, 16777217.0F};
    srv_writer w = {0};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        srv_writer_empty(&w);
        srv_put_int(&w, whole[i]);
        json_t *value = read_back(&w);
        assert_true(json_integer_value(value) == whole[i]);
        json_decref(value);
    }
    for (size_t i = 0; i < sizeof real / sizeof *real; i++) {
        srv_writer_empty(&w);
        srv_put_float(&w, real[i]);
        json_t *value = read_back(&w);
        assert_true((float)json_number_value(value) == real[i]);
        json_decref(value);
    }
    srv_writer_empty(&w);
    srv_put_literal(&w, "[");
    srv_put_float(&w, -INFINITY);
    srv_put_literal(&w, ",");
    srv_put_float(&w, NAN);
    srv_put_literal(&w, ",");
    srv_put_fixed(&w, 12.5, 3);
    srv_put_literal(&w, ",");
    srv_put_fixed(&w, 12.0, 3);
    srv_put_literal(&w, "]");
    assert_int_equal(w.length, strlen("[-9999,0,12.5,12]"));
    assert_memory_equal(w.data, "[-9999,0,12.5,12]", w.length);
    srv_writer_free(&w);
}

static void memory_that_ends_is_remembered(void **state)
{
    (void)state;
    srv_writer w = {0};
    fail_after = 0;
    srv_puts(&w, "lost");
    fail_after = -1;
    assert_true(w.failed);
    srv_puts(&w, "more");
    assert_int_equal(w.length, 0);
    srv_writer_free(&w);
    assert_false(w.failed);
}

/* The request is not at fault, and no line of it is named. Its numbers are short: without memory for one of more than 15 bytes
 * jansson 2.14 ends the program itself (load.c, lex_unget_unsave). */
static void a_body_without_memory_is_the_servers_fault(void **state)
{
    (void)state;
    static const char text[] = "{\"a\": [1, \"b\"], \"c\": {\"d\": \"\\ud800\"}}";
    json_t *root = NULL;
    int64_t held = 0;
    long n = 0;
    json_set_alloc_funcs(__wrap_malloc, free);
    for (bool read = false; !read; n++) {
        srv_fault fault = {0};
        fail_after = n;
        read = srv_body_read((mo_text){text, strlen(text)}, &root, &held, &fault);
        fail_after = -1;
        if (!read && (fault.kind != SRV_FAULT_SERVER || !strstr(fault.message, "out of memory"))) {
            fail_msg("allocation %ld: %s", n, fault.message);
        }
    }
    assert_true(n > 10);
    json_decref(root);
    srv_body_release(held);
    json_set_alloc_funcs(malloc, free);
}

/* The member of a path as "error.type"; borrowed. */
static const json_t *member(const json_t *root, const char *path)
{
    char name[64];
    const json_t *at = root;
    while (*path) {
        size_t length = strcspn(path, ".");
        memcpy(name, path, length);
        name[length] = '\0';
        at = json_object_get(at, name);
        path += length + (path[length] == '.');
    }
    return at;
}

static json_t *written(const srv_fault *fault, srv_shape shape)
{
    srv_writer w = {0};
    srv_fault_write(fault, shape, &w);
    json_t *value = read_back(&w);
    srv_writer_free(&w);
    return value;
}

static void faults_name_the_field(void **state)
{
    (void)state;
    srv_fault fault = {0};
    assert_false(
        srv_fault_set(&fault, SRV_FAULT_REQUEST, "messages[3].role", "must be a string, not %s", "a number"));
    json_t *value = written(&fault, SRV_SHAPE_OPENAI);
    assert_string_equal(json_string_value(member(value, "error.message")),
                        "messages[3].role: must be a string, not a number");
    assert_string_equal(json_string_value(member(value, "error.param")), "messages[3].role");
    assert_string_equal(json_string_value(member(value, "error.type")), "invalid_request_error");
    assert_true(json_is_null(member(value, "error.code")));
    json_decref(value);
    value = written(&fault, SRV_SHAPE_ANTHROPIC);
    assert_string_equal(json_string_value(member(value, "type")), "error");
    assert_string_equal(json_string_value(member(value, "error.type")), "invalid_request_error");
    json_decref(value);
    value = written(&fault, SRV_SHAPE_OLLAMA);
    assert_string_equal(json_string_value(member(value, "error")),
                        "messages[3].role: must be a string, not a number");
    json_decref(value);
    assert_int_equal(srv_fault_http(fault.kind, SRV_SHAPE_OPENAI), 400);
}

static void a_prompt_too_long_says_the_numbers(void **state)
{
    (void)state;
    srv_fault fault = {0};
    srv_fault_context(&fault, 9000, 8192);
    json_t *value = written(&fault, SRV_SHAPE_OPENAI);
    assert_string_equal(json_string_value(member(value, "error.code")), "context_length_exceeded");
    assert_string_equal(json_string_value(member(value, "error.type")), "exceed_context_size_error");
    assert_int_equal(json_integer_value(member(value, "error.n_prompt_tokens")), 9000);
    assert_int_equal(json_integer_value(member(value, "error.n_ctx")), 8192);
    assert_non_null(
        strstr(json_string_value(member(value, "error.message")), "exceeds the available context size"));
    json_decref(value);
}

static void statuses_follow_the_dialect(void **state)
{
    (void)state;
    assert_int_equal(srv_fault_http(SRV_FAULT_UNAVAILABLE, SRV_SHAPE_OPENAI), 503);
    assert_int_equal(srv_fault_http(SRV_FAULT_UNAVAILABLE, SRV_SHAPE_ANTHROPIC), 529);
    assert_int_equal(srv_fault_http(SRV_FAULT_QUEUE, SRV_SHAPE_OLLAMA), 429);
    assert_true(srv_fault_retry_after(SRV_FAULT_QUEUE) > 0);
    assert_int_equal(srv_fault_retry_after(SRV_FAULT_REQUEST), 0);
    mo_error err = {MO_EIO, "the disk is gone"};
    srv_fault fault = {0};
    srv_fault_status(&fault, &err, "prompt");
    assert_int_equal(fault.kind, SRV_FAULT_SERVER);
    err.status = MO_EINVAL;
    srv_fault_status(&fault, &err, "prompt");
    assert_int_equal(fault.kind, SRV_FAULT_REQUEST);
    assert_string_equal(fault.param, "prompt");
    assert_int_equal(srv_shape_of("/v1/messages"), SRV_SHAPE_ANTHROPIC);
    assert_int_equal(srv_shape_of("/v1/messages/count_tokens"), SRV_SHAPE_ANTHROPIC);
    assert_int_equal(srv_shape_of("/v1/messagesx"), SRV_SHAPE_OPENAI);
    assert_int_equal(srv_shape_of("/api/chat"), SRV_SHAPE_OLLAMA);
    assert_int_equal(srv_shape_of("/v1/chat/completions"), SRV_SHAPE_OPENAI);
}

/* As the program puts options where settings are named. */
static void name_settings(char *text, size_t size)
{
    char *at = strstr(text, "`ram_bytes`");
    if (at) {
        char rest[256];
        snprintf(rest, sizeof rest, "--ram%s", at + strlen("`ram_bytes`"));
        snprintf(at, size - (size_t)(at - text), "%s", rest);
    }
}

static void messages_of_the_library_are_put_into_words_for_clients(void **state)
{
    (void)state;
    srv_fault fault;
    char text[256];
    mo_error err = {
        MO_EINVAL,
        "/home/ada/m/a.gguf: raise `ram_bytes`; /home/ada/m/b.gguf is missing, /home/ada is there"};
    srv_fault_words(&err, "/home/ada/m/a.gguf", text, sizeof text);
    assert_string_equal(text, "a.gguf: raise `ram_bytes`; b.gguf is missing, /home/ada is there");
    srv_fault_name_settings(name_settings);
    srv_fault_words(&err, "/home/ada/m/a.gguf", text, sizeof text);
    assert_string_equal(text, "a.gguf: raise --ram; b.gguf is missing, /home/ada is there");
    srv_fault_words(&err, "a.gguf", text, sizeof text);
    assert_non_null(strstr(text, "/home/ada/m/a.gguf: raise --ram;"));
    srv_fault_status(&fault, &err, "model");
    assert_non_null(strstr(fault.message, "raise --ram"));
    srv_fault_name_settings(NULL);
    srv_fault_words(&(mo_error){MO_ENOMEM, ""}, NULL, text, sizeof text);
    assert_string_equal(text, mo_status_text(MO_ENOMEM));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_are_read_back),
        cmocka_unit_test(bytes_that_are_no_text_are_replaced),
        cmocka_unit_test(numbers_are_read_back),
        cmocka_unit_test(memory_that_ends_is_remembered),
        cmocka_unit_test(a_body_without_memory_is_the_servers_fault),
        cmocka_unit_test(faults_name_the_field),
        cmocka_unit_test(a_prompt_too_long_says_the_numbers),
        cmocka_unit_test(statuses_follow_the_dialect),
        cmocka_unit_test(messages_of_the_library_are_put_into_words_for_clients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
