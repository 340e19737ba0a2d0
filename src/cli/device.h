/* Device: what a GPU did for a model, for people and for programs. */
#ifndef CLI_DEVICE_H
#define CLI_DEVICE_H

#include <jansson.h>
#include <moraine.h>

/* What happened between two reports. */
void cli_device_subtract(mo_device_report *r, const mo_device_report *before);

/* seconds of generation of so many tokens, for the figures per token. Prints nothing without a device. */
void cli_device_print(const mo_device_report *r, const mo_tier_report *tiers, uint64_t tokens,
                      double seconds);

/* null without a device. */
json_t *cli_device_json(const mo_device_report *r);

#endif
