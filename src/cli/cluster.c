#include "cli/cluster.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/default_model.h"
#include "cli/loading.h"
#include "cli/messages.h"
#include "moraine_server.h"

static mo_cluster *cluster;
static atomic_bool lost, said, ending;
static char lost_why[512];       /* written once, before `lost` is set */
static atomic_int own_rank = -1; /* unknown at first */
static bool serves;
static char joined[32]; /* the command */

mo_cluster *cli_cluster(void)
{
    return cluster;
}

bool cli_cluster_is_shared(void)
{
    return cli_cluster() && mo_cluster_ranks(cli_cluster()) > 1;
}

int cli_cluster_rank(void)
{
    return cluster ? mo_cluster_rank(cluster) : 0;
}

static bool can_be_divided(const char *command)
{
    static const char *const commands[] = {"run", "serve", "bench", "eval", "probe"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(command, commands[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Did mpirun start several processes? Open MPI and Slurm set their number. With PMIx, Slurm also sets this
   process' rank; a single Slurm task has a number too. */
static bool in_company(void)
{
    const char *size = getenv("OMPI_COMM_WORLD_SIZE"), *tasks = getenv("SLURM_STEP_NUM_TASKS");
    return size ? atoi(size) > 1 : getenv("PMIX_RANK") && (!tasks || atoi(tasks) > 1);
}

/* MPICH and its derivatives (Intel MPI, MVAPICH), and Slurm without PMIx, are not supported: each process
   would run the whole model. Returns what to do; NULL: no such environment. */
static const char *foreign_company(void)
{
    const char *size = getenv("PMI_SIZE"), *tasks = getenv("SLURM_STEP_NUM_TASKS");
    if (getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK")) {
        return NULL;
    }
    if (tasks && atoi(tasks) > 1) {
        return "srun started several tasks without PMIx, and each would run the whole "
               "model: use srun --mpi=pmix or Open MPI's mpirun; if this is intended, unset "
               "SLURM_STEP_NUM_TASKS";
    }
    return size && atoi(size) > 1 ? "several ranks were started, but not by Open MPI: use "
                                    "its mpirun (mpirun.openmpi on Debian) or srun --mpi=pmix"
                                  : NULL;
}

static void say_lost(void)
{
    if (atomic_load(&own_rank) == 0 && !atomic_exchange(&said, true)) {
        fprintf(stderr, "moraine %s: %s\n", joined, lost_why);
    }
}

/* Other commands report the failed step themselves. A server exits so that its manager restarts it. */
static void on_lost(void *user, const char *why)
{
    (void)user;
    snprintf(lost_why, sizeof lost_why, "%s", why);
    atomic_store(&lost, true);
    if (serves || atomic_load(&ending)) {
        say_lost();
    }
    if (serves && !atomic_load(&ending) && atomic_load(&own_rank) == 0) {
        kill(getpid(), SIGTERM);
    }
}

bool cli_cluster_begin(const char *command)
{
    mo_cluster_options options = mo_cluster_options_default();
    mo_error err;
    const bool uses_model =
        can_be_divided(command) || strcmp(command, "chat") == 0 || strcmp(command, "trace") == 0;
    const char *const foreign = uses_model ? foreign_company() : NULL;
    if (foreign) {
        fprintf(stderr, "moraine %s: %s\n", command, foreign);
        return false;
    }
    if (!in_company()) {
        return true;
    }
    if (strcmp(command, "chat") == 0 ||
        strcmp(command, "trace") == 0) { /* each rank would run its own model */
        fprintf(stderr, "moraine %s: only run, serve, bench and eval support several ranks\n", command);
        return false;
    }
    if (!can_be_divided(command)) {
        return true;
    }
    serves = strcmp(command, "serve") == 0;
    snprintf(joined, sizeof joined, "%s", command);
    options.lost = on_lost;
    if (mo_cluster_open(&options, &cluster, &err) != MO_OK) {
        cli_say_error(command, &err);
        return false;
    }
    atomic_store(&own_rank, cli_cluster_rank());
    return true;
}

int cli_cluster_end(int code)
{
    atomic_store(&ending, true);
    mo_cluster_close(cluster);
    cluster = NULL;
    if (!atomic_load(&lost) || code != CLI_OK) {
        return code;
    }
    say_lost(); /* the link was lost after the last step, so no command has reported it */
    return CLI_FAILED;
}

bool cli_cluster_follows(const char *command, const char *name, const cli_loading *loading, int *code)
{
    cli_loading l = *loading;
    mo_error err = {0};
    if (cli_cluster_rank() == 0) {
        return false;
    }
    if (!cli_loading_set(command, &l)) {
        *code = CLI_USAGE;
        return true;
    }
    const char *path = cli_model_path(command, name, true, code); /* rank 0 gets the error */
    const mo_status status = mo_cluster_follow(cluster, path ? path : name ? name : "", &l.model, &err);
    if (status != MO_OK && strncmp(err.detail, "rank 0 ends", 11) != 0) { /* otherwise rank 0 reports it */
        fprintf(stderr, "moraine %s: rank %d: %s\n", command, cli_cluster_rank(), err.detail);
    }
    *code = status == MO_OK ? CLI_OK : CLI_FAILED;
    return true;
}

bool cli_cluster_timeout(const char *command, double seconds)
{
    mo_error err;
    if (seconds > 0 && cluster && mo_cluster_set_timeout(cluster, seconds, &err) != MO_OK) {
        cli_say_error(command, &err);
        return false;
    }
    return true;
}
