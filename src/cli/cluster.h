/* Cluster: the program as one of several that mpirun started. Rank 0 runs the command; the others open their
   part of its model and follow. */
#ifndef MO_CLI_CLUSTER_H
#define MO_CLI_CLUSTER_H

#include <moraine_server.h>

#include <stdbool.h>

typedef struct cli_loading cli_loading;

/* Joins the run if there are several ranks and the command supports them. False after printing the error. */
bool cli_cluster_begin(const char *command);
/* Ends the run and returns the exit code. The other ranks end with rank 0. */
int cli_cluster_end(int code);

/* The ranks. NULL: only this process. */
mo_cluster *cli_cluster(void);
int cli_cluster_rank(void);
bool cli_cluster_is_shared(void); /* other ranks have parts of the model */

/* True in every rank but 0, after it has followed to the end with exit code *code. name: the given model. */
bool cli_cluster_follows(const char *command, const char *name, const cli_loading *loading, int *code);

/* Sets --rank-timeout; 0: unchanged. False after printing the error. */
bool cli_cluster_timeout(const char *command, double seconds);

#endif
