/* JSON: helpers over jansson for the --json outputs. */
#ifndef MO_CLI_JSON_H
#define MO_CLI_JSON_H

#include <jansson.h>

#include <moraine_tools.h>

/* A JSON string of bytes that need not be UTF-8: what is not becomes U+FFFD. NULL when out of memory. */
json_t *cli_json_text(const char *data, size_t length);

/* A terminated text, likewise. */
json_t *cli_json_string(const char *text);

/* A metadata value: numbers as numbers, except what JSON has no number for (NaN, infinities, integers
 * above 63 bits), which becomes a string. */
json_t *cli_json_value(const mo_value *value);

/* Prints *root on stdout with a newline, frees it, and returns an exit code. NULL counts as out of
 * memory. */
int cli_json_print(json_t *root);

#endif
