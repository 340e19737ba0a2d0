/* Traffic: prints the messages between ranks. */
#ifndef MO_CLI_TRAFFIC_H
#define MO_CLI_TRAFFIC_H

#include <jansson.h>
#include <moraine_server.h>

/* Subtracts an earlier report. */
void cli_traffic_subtract(mo_traffic_report *of, const mo_traffic_report *earlier);
/* Prints one line; nothing if the model is not divided. */
void cli_traffic_print(const mo_traffic_report *traffic);
json_t *cli_traffic_json(const mo_traffic_report *traffic); /* null if it is not divided */

#endif
