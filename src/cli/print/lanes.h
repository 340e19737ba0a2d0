/* Lanes: the time of layers that device and host compute together. */
#ifndef CLI_LANES_H
#define CLI_LANES_H

#include <jansson.h>
#include <moraine_server.h>

typedef struct cli_lanes {
    mo_device_report device;
    mo_device_layer *layers; /* [count], NULL: none */
    int count;
} cli_lanes;

/* Reads the device's counters since the model was opened. False, after a message, when out of memory. */
bool cli_lanes_read(const char *command, mo_model *model, cli_lanes *out);
void cli_lanes_drop(cli_lanes *l); /* an empty one is allowed */

/* Prints a few lines on stdout; nothing if no layer needed the host. */
void cli_lanes_print(const cli_lanes *l);

/* null if no layer needed the host. */
json_t *cli_lanes_json(const cli_lanes *l);

#endif
