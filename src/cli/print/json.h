/* JSON: helpers for --json with jansson. */
#ifndef MO_CLI_JSON_H
#define MO_CLI_JSON_H

#include <jansson.h>

#include <moraine_tools.h>

/* A JSON string of bytes; invalid UTF-8 becomes U+FFFD. NULL when out of memory. */
json_t *cli_json_text(const char *data, size_t length);

/* The same for a terminated text. */
json_t *cli_json_string(const char *text);

/* A metadata value: numbers as numbers, except those that JSON does not support (NaN, infinities, integers
   above 63 bits), which become strings. */
json_t *cli_json_value(const mo_value *value);

/* Prints *root on stdout with a newline, frees it, and returns an exit code. NULL means out of memory. */
int cli_json_print(json_t *root);

#endif
