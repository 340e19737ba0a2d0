/* Allowance: what the wires allow when sequences are decoded together and experts are not in VRAM. A step needs each expert that some
 * token chose once, however many chose it: its bytes are read by the CPU or cross the link, in copies as large as an expert's
 * matrices, and both read the same memory. By the probed rates that takes a time below which no step with these experts can be; the rest of a step counts as nothing. */
#ifndef MO_CLI_ALLOWANCE_H
#define MO_CLI_ALLOWANCE_H

#include <moraine_server.h>

#include <jansson.h>

typedef struct cli_allowance {
    mo_device_report before;         /* when the steps began that count */
    uint64_t steps, chosen, missing; /* experts, distinct in their step and layer; of them not in VRAM */
    double expert_bytes;             /* of one, on average */
    double cpu_bytes_s, link_bytes_s, host_bytes_s; /* as probed; 0: not probed */
} cli_allowance;

/* Around decoding steps. Several rounds are added up. */
void cli_allowance_begin(cli_allowance *a, mo_model *model);
void cli_allowance_end(cli_allowance *a, mo_model *model);

/* tps: what all sequences generated together. Nothing is printed where no expert was missing from VRAM, or there is no device. */
void cli_allowance_print(const cli_allowance *a, int64_t sequences, double tps);
json_t *cli_allowance_json(const cli_allowance *a, int64_t sequences, double tps); /* null likewise */

#endif
