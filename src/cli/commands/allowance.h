/* Allowance: the speed limit of shared decoding when experts are outside VRAM. A step needs each chosen
   expert once, however many tokens chose it: the CPU reads its bytes, or they are copied over the link, one
   matrix at a time; both read the same memory. The measured rates give a minimum time of a step; everything
   else counts as zero. */
#ifndef MO_CLI_ALLOWANCE_H
#define MO_CLI_ALLOWANCE_H

#include <moraine_server.h>

#include <jansson.h>

typedef struct cli_allowance {
    mo_device_report before;         /* at the beginning of the counted steps */
    uint64_t steps, chosen, missing; /* distinct experts of all steps and layers; those not in VRAM */
    double expert_bytes;             /* average size */
    double cpu_bytes_s, link_bytes_s, host_bytes_s; /* measured; 0: not measured */
} cli_allowance;

/* Call before and after decoding. Several rounds are added. */
void cli_allowance_begin(cli_allowance *a, mo_model *model);
void cli_allowance_end(cli_allowance *a, mo_model *model);

/* tps: tokens/s of all sequences. Prints nothing if all experts were in VRAM or there is no device. */
void cli_allowance_print(const cli_allowance *a, int64_t sequences, double tps);
/* null in the same cases */
json_t *cli_allowance_json(const cli_allowance *a, int64_t sequences, double tps);

#endif
