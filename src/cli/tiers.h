/* Tiers: how commands show where a model was and what its disk has done. */
#ifndef MO_CLI_TIERS_H
#define MO_CLI_TIERS_H

#include <jansson.h>
#include <moraine.h>

/* Takes the counters of `before` off those of `report`. */
void cli_tiers_subtract(mo_tier_report *report, const mo_tier_report *before);

/* A few lines on stdout; nothing when the whole model is in RAM. Bytes and waiting are given per generated
 * token; seconds is how long generating them took. */
void cli_tiers_print(const mo_tier_report *report, uint64_t generated, double seconds);

/* Says on stderr how many experts --skip-missing has left out, if any. NULL is allowed. */
void cli_tiers_left_out(const char *command, mo_model *model);

json_t *cli_tiers_json(const mo_tier_report *report);

#endif
