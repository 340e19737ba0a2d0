/* Cluster: the program as one of several that mpirun started. Rank 0 does what the command says; the others open their layers of the
 * model that it names and follow. */
#ifndef MO_CLI_CLUSTER_H
#define MO_CLI_CLUSTER_H

#include <moraine_server.h>

#include <stdbool.h>

typedef struct cli_loading cli_loading;

/* Joins the run, where there are several ranks and the command can be divided among them. False after saying what is wrong. */
bool cli_cluster_begin(const char *command);
/* What the exit code becomes. Rank 0's end is the others'. */
int cli_cluster_end(int code);

/* The ranks; NULL: this program is alone. */
mo_cluster *cli_cluster(void);
int cli_cluster_rank(void);
bool cli_cluster_is_shared(void); /* other ranks have parts of the model */

/* True in every rank but 0: it has followed to the end, and *code says how. name: the model's, as the command line has it. */
bool cli_cluster_follows(const char *command, const char *name, const cli_loading *loading, int *code);

/* Sets that of --rank-timeout; 0: as it is. False after saying what is wrong. */
bool cli_cluster_timeout(const char *command, double seconds);

#endif
