/* Routing: statistics of which experts a text is routed to, layer by layer. */
#ifndef MO_CLI_ROUTING_H
#define MO_CLI_ROUTING_H

#include <moraine_server.h>

#include "cli/print/json.h"

typedef struct cli_routing cli_routing;

/* For the routed layers of the model. NULL after saying what is wrong: the model has none, or memory is out. */
cli_routing *cli_routing_open(const char *command, const mo_model *model);
void cli_routing_close(cli_routing *r); /* NULL is allowed */

/* A mo_routing_observer whose user is a cli_routing. Positions that follow each other are taken for neighbours,
 * so a new sequence must begin at position 0. */
void cli_routing_observe(void *user, int layer, int64_t position, const int32_t *ids, const float *weights,
                         int used);

/* How alike two texts use a layer: the sum over experts of the smaller of their shares of the picks. 1: alike,
 * 0: no expert in common. Both of the same model. Negative past the last layer. */
double cli_routing_overlap(const cli_routing *a, const cli_routing *b, int index);

/* The same averaged over layers. */
double cli_routing_overlap_mean(const cli_routing *a, const cli_routing *b);

/* A table on stdout with a bar for the top quarter's share. */
void cli_routing_print(const cli_routing *r);
json_t *cli_routing_json(const cli_routing *r);

#endif
