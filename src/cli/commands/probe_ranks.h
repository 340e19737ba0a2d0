/* Probe of ranks: what moraine probe prints when mpirun started several. */
#ifndef MO_CLI_PROBE_RANKS_H
#define MO_CLI_PROBE_RANKS_H

#include <moraine_server.h>

#include <stdbool.h>

/* Measures the network with the other ranks; rank 0 keeps and prints what all have. own: what was measured here; NULL: what is kept. Returns
 * the exit code. */
int cli_probe_ranks(const mo_probe_report *own, const char *output, bool keep, bool json);

#endif
