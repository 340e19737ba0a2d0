/* Plan words: a plan in a few words. */
#ifndef MO_CLI_PLAN_WORDS_H
#define MO_CLI_PLAN_WORDS_H

#include <moraine_server.h>

/* Where the model is: "everything is in RAM". A constant. */
const char *cli_plan_words(const mo_plan_report *report);

#endif
