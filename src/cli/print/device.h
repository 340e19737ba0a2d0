/* Device: prints what a GPU did for a model, as text and JSON. */
#ifndef CLI_DEVICE_H
#define CLI_DEVICE_H

#include <jansson.h>
#include <moraine_server.h>

/* The difference of two reports. */
void cli_device_subtract(mo_device_report *r, const mo_device_report *before);

/* Times of the device's lanes during generation; prompts are excluded, because their shares differ.
   Initialize with zeros except the model. */
typedef struct cli_device_lanes {
    mo_model *model;
    mo_device_report before;
    uint64_t wait_ns, cpu_ns, fetch_ns, hidden_ns;
} cli_device_lanes;
void cli_device_lanes_begin(cli_device_lanes *l);
void cli_device_lanes_end(cli_device_lanes *l); /* adds the difference since the beginning */

/* seconds: time of generation, for values per token. Prints nothing without a device. */
void cli_device_print(const mo_device_report *r, const mo_tier_report *tiers,
                      const cli_device_lanes *generating, uint64_t tokens, double seconds);

/* null without a device. */
json_t *cli_device_json(const mo_device_report *r);

#endif
