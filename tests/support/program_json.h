/* What a command of the program printed, as JSON. */
#ifndef MO_TESTS_PROGRAM_JSON_H
#define MO_TESTS_PROGRAM_JSON_H

#include <jansson.h>

#include "program.h"

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

#endif
