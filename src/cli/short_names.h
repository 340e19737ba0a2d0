/* Short names: models as people call them, "gpt-oss-20b" or "gpt-oss:20b", and which pulled model or repository is meant. */
#ifndef MO_CLI_SHORT_NAMES_H
#define MO_CLI_SHORT_NAMES_H

#include <stdbool.h>

#include "hub/store.h"

/* Could this word, which is no file, be such a name? */
bool cli_short_name(const char *text);

/* "owner/repo" or "owner/repo:quant" that most people mean by it; NULL: nobody knows. A constant. */
const char *cli_short_name_usual(const char *text);

/* Does it mean this model? 2: its repository has this name; 1: the repository's name begins with it; 0: no. */
int cli_short_name_means(const char *text, const hub_model *model);

#endif
