/* Tiers: prints where a model was and what its disk did. */
#ifndef MO_CLI_TIERS_H
#define MO_CLI_TIERS_H

#include <jansson.h>
#include <moraine_server.h>

/* Subtracts the counters of `before` from those of `report`. */
void cli_tiers_subtract(mo_tier_report *report, const mo_tier_report *before);

/* Prints a few lines on stdout; nothing if the whole model is in RAM. Bytes are given per generated token; a
   pass computed this many together. seconds: time of generation. */
void cli_tiers_print(const mo_tier_report *report, uint64_t generated, int together, double seconds);

/* The contents of RAM and a device's memory together. */
typedef struct cli_tiers_sum {
    int64_t ram_bytes, vram_bytes; /* used bytes; VRAM 0: no device */
    /* experts of the model, or of rank 0's part; slots for them, each expert counted once */
    int64_t experts, held;
    int layers, kept; /* the same for layers; those whose core is in RAM or VRAM */
    bool shared;      /* other ranks have parts of the model */
} cli_tiers_sum;

/* shared: other ranks have parts of the model. */
cli_tiers_sum cli_tiers_add_up(mo_model *model, bool shared);
/* Prints one line on stderr; nothing if RAM holds everything. */
void cli_tiers_print_sum(const cli_tiers_sum *sum);
json_t *cli_tiers_sum_json(const cli_tiers_sum *sum);

/* Prints on stderr how many experts --skip-missing skipped, if any. NULL is allowed. */
void cli_tiers_left_out(const char *command, mo_model *model);

json_t *cli_tiers_json(const mo_tier_report *report);

#endif
