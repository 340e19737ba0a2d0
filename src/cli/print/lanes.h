/* Lanes: where the time of layers goes that a device and the host compute together. */
#ifndef CLI_LANES_H
#define CLI_LANES_H

#include <jansson.h>
#include <moraine_server.h>

typedef struct cli_lanes {
    mo_device_report device;
    mo_device_layer *layers; /* [count], NULL: none */
    int count;
} cli_lanes;

/* What the model's device has done since it was opened. False, after a line on stderr, when memory is short. */
bool cli_lanes_read(const char *command, mo_model *model, cli_lanes *out);
void cli_lanes_drop(cli_lanes *l); /* an empty one is allowed */

/* A few lines on stdout; nothing where no layer needed the host. */
void cli_lanes_print(const cli_lanes *l);

/* null where no layer needed the host. */
json_t *cli_lanes_json(const cli_lanes *l);

#endif
