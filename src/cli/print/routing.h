/* Routing: statistics of the experts that a text is routed to, by layer. */
#ifndef MO_CLI_ROUTING_H
#define MO_CLI_ROUTING_H

#include <moraine_server.h>

#include "cli/print/json.h"

typedef struct cli_routing cli_routing;

/* For the model's routed layers. NULL after printing the error: there are none, or out of memory. */
cli_routing *cli_routing_open(const char *command, const mo_model *model);
void cli_routing_close(cli_routing *r); /* NULL is allowed */

/* A mo_routing_observer; user is a cli_routing. Consecutive positions count as neighbours, so a new sequence
   must begin at position 0. */
void cli_routing_observe(void *user, int layer, int64_t position, const int32_t *ids, const float *weights,
                         int used);

/* The similarity of two texts in a layer: the sum over experts of the smaller of their shares of the picks.
   1: equal, 0: no common expert. Both are of the same model. Negative past the last layer. */
double cli_routing_overlap(const cli_routing *a, const cli_routing *b, int index);

/* The average over all layers. */
double cli_routing_overlap_mean(const cli_routing *a, const cli_routing *b);

/* Prints a table on stdout, with a bar for the share of the top quarter. */
void cli_routing_print(const cli_routing *r);
json_t *cli_routing_json(const cli_routing *r);

#endif
