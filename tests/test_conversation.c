/* Conversations from JSON: the same text as from structs, nothing dropped, malformed JSON refused with its position, every
 * failing allocation survived. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "failing_memory.h"
#include "text/conversation.h"

static const char whole[] =
    "{\"messages\": ["
    "{\"role\": \"system\", \"content\": \"Be brief.\", \"name\": null, \"tool_calls\": []},"
    "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"Caf\\u00e9, \"}, {\"text\": "
    "\"now?\", "
    "\"type\": \"text\", \"cache_control\": {}}]},"
    "{\"content\": null, \"role\": \"assistant\", \"refusal\": \"\"},"
    "{\"role\": \"user\"}],"
    "\"tools\": [], \"documents\": null}";

static void read_as_structs(void **state)
{
    (void)state;
    static const mo_message structs[] = {
        {"system", "Be brief."}, {"user", "Caf\xC3\xA9, now?"}, {"assistant", ""}, {"user", ""}};
    mo_conversation c;
    mo_error err;
    check_status(mo_conversation_read("chatml", whole, strlen(whole), false, &c, &err), &err);
    assert_int_equal(c.count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(c.messages[i].role, structs[i].role);
        assert_string_equal(c.messages[i].content, structs[i].content);
    }
    mo_conversation_free(&c);
}

static void refuse_json(const char *json, size_t length, const char *words)
{
    mo_conversation c = {.count = 1};
    mo_error err;
    char *copy = malloc(length ? length : 1); /* exactly so many bytes, for the address sanitizer */
    memcpy(copy, json, length);
    assert_int_equal(mo_conversation_read("chatml", copy, length, false, &c, &err), MO_EINVAL);
    assert_null(c.messages);
    assert_int_equal(c.count, 0);
    check_says(&err, words);
    free(copy);
}

static void nothing_is_dropped(void **state)
{
    (void)state;
#define A "{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}, "
    static const struct {
        const char *json, *words;
    } cases[] = {
        {"[" A "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": 1}]}]",
         "message 3 (assistant): the chat format chatml does not support tool_calls"},
        {"[{\"role\": \"user\", \"name\": \"Ada\"}]",
         "message 1 (user): the chat format chatml does not support name"},
        {"[{\"role\": \"user\", \"flag\": false}]", "support flag"},
        {"[{\"role\": \"user\", \"number\": 0}]", "support number"},
        {"[" A "{\"role\": \"tool\", \"content\": \"7\"}]",
         "message 3 (tool): the chat format chatml does not support this role"},
        {"[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": "
         "\"image_url\"}]}]",
         "message 1 (user): the chat format chatml does not support a content part of type image_url"},
        {"[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\", \"cache\": true}]}]",
         "a content part's cache"},
        {"{\"messages\": [" A "{\"role\": \"user\"}], \"tools\": [{}]}",
         "the conversation: the chat format chatml does not support tools"},
        {"{\"messages\": [], \"enable_thinking\": true}", "support enable_thinking"},
        {"[" A "{\"role\": \"system\", \"content\": \"c\"}]",
         "message 3 is a system message; only the first message can be one"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        refuse_json(cases[i].json, strlen(cases[i].json), cases[i].words);
    }
}

static void malformed(void **state)
{
    (void)state;
    static const struct {
        const char *json, *words;
    } cases[] = {
        {"", "line 1, column 0"},
        {"[\n  {\"role\": user}]", "line 2, column"},
        {"[{\"role\": \"user\"}] x", "line 1, column"},
        {"[{\"role\": \"user\", \"role\": \"system\"}]", "line 1, column"},
        {"[{\"role\": \"user\", \"content\": \"a\\u0000b\"}]", "line 1, column"},
        {"[{\"role\": \"user\", \"content\": \"\xFF\"}]", "line 1, column"},
        {"[{\"role\": \"user\", \"content\": \"\\ud800\"}]", "line 1, column"},
        {"7", "not JSON"},
        {"{}", "messages is not a list"},
        {"{\"messages\": {}}", "messages is not a list"},
        {"[7]", "message 1: not an object"},
        {"[{\"role\": \"user\"}, {}]", "message 2: missing role"},
        {"[{\"role\": 1}]", "message 1: missing role"},
        {"[{\"role\": \"user\", \"content\": 1}]", "message 1 (user): the content is neither"},
        {"[{\"role\": \"user\", \"content\": {\"a\": 1}}]", "the content is neither"},
        {"[{\"role\": \"user\", \"content\": [7]}]", "a content part is not an object with a type"},
        {"[{\"role\": \"user\", \"content\": [{\"text\": \"a\"}]}]", "not an object with a type"},
        {"[{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}]", "has no text"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        refuse_json(cases[i].json, strlen(cases[i].json), cases[i].words);
    }
    for (size_t n = 0; n < strlen(whole); n++) { /* cut off anywhere */
        refuse_json(whole, n, "not JSON");
    }
    char deep[200];
    memset(deep, '[', sizeof deep);
    refuse_json(deep, sizeof deep, "more than 64 levels of lists and objects at byte 65");
    char quoted[200]; /* what is in a string has no depth */
    snprintf(quoted, sizeof quoted, "[{\"role\": \"user\", \"x\": \"\\\"%.*s\"}]", 100, deep);
    refuse_json(quoted, strlen(quoted), "support x");
}

static void memory_ends(void **state)
{
    (void)state;
    mo_status status = MO_ENOMEM;
    for (long after = 0; status != MO_OK; after++) {
        mo_conversation c;
        mo_error err;
        fail_after = after;
        status = mo_conversation_read("chatml", whole, strlen(whole), false, &c, &err);
        fail_after = -1;
        assert_true(status == MO_OK || status == MO_ENOMEM);
        mo_conversation_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read_as_structs),
        cmocka_unit_test(nothing_is_dropped),
        cmocka_unit_test(malformed),
        cmocka_unit_test(memory_ends),
    };
    return cmocka_run_group_tests_name("conversation", tests, NULL, NULL);
}
