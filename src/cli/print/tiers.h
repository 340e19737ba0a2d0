/* Tiers: how commands show where a model was and what its disk has done. */
#ifndef MO_CLI_TIERS_H
#define MO_CLI_TIERS_H

#include <jansson.h>
#include <moraine_server.h>

/* Takes the counters of `before` off those of `report`. */
void cli_tiers_subtract(mo_tier_report *report, const mo_tier_report *before);

/* A few lines on stdout; nothing when the whole model is in RAM. Bytes are given per generated token, of which a pass
 * computed this many together; seconds is the time to generate them. */
void cli_tiers_print(const mo_tier_report *report, uint64_t generated, int together, double seconds);

/* What RAM and a device's memory hold together. */
typedef struct cli_tiers_sum {
    int64_t ram_bytes, vram_bytes; /* that are taken; VRAM 0: no device */
    int64_t experts, held;         /* of the model, or of rank 0's part; places for them, each counted once */
    int layers, kept;              /* likewise; whose core is in one of the two */
    bool shared;                   /* other ranks have more of it */
} cli_tiers_sum;

/* shared: other ranks have more of the model. */
cli_tiers_sum cli_tiers_add_up(mo_model *model, bool shared);
/* One line on stderr; nothing where there is RAM alone and it holds everything. */
void cli_tiers_print_sum(const cli_tiers_sum *sum);
json_t *cli_tiers_sum_json(const cli_tiers_sum *sum);

/* Says on stderr how many experts --skip-missing has left out, if any. NULL is allowed. */
void cli_tiers_left_out(const char *command, mo_model *model);

json_t *cli_tiers_json(const mo_tier_report *report);

#endif
