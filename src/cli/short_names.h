/* Short names: "gpt-oss-20b" or "gpt-oss:20b", and the pulled model or repository that they mean. */
#ifndef MO_CLI_SHORT_NAMES_H
#define MO_CLI_SHORT_NAMES_H

#include <stdbool.h>

#include "hub/store.h"

/* Could this word, which is not a file, be a short name? */
bool cli_short_name(const char *text);

/* The usual "owner/repo" or "owner/repo:quant" for a short name. NULL: unknown. A constant. */
const char *cli_short_name_usual(const char *text);

/* Does the name mean this model? 2: equals the name of its repository; 1: is a prefix of it; 0: no. */
int cli_short_name_means(const char *text, const hub_model *model);

#endif
