/* Probe of ranks: moraine probe with several ranks. */
#ifndef MO_CLI_PROBE_RANKS_H
#define MO_CLI_PROBE_RANKS_H

#include <moraine_server.h>

#include <stdbool.h>

/* Measures the network with the other ranks; rank 0 stores and prints the results of all. own: this rank's
   measurements; NULL: the stored ones. Returns the exit code. */
int cli_probe_ranks(const mo_probe_report *own, const char *output, bool keep, bool json);

#endif
