/* MPI: ranks that mpirun started, on one machine or several. The MPI code is a module that is found and loaded on demand
 * (net/mpi_module.c); where there is none, opening says so. */
#ifndef MO_NET_MPI_H
#define MO_NET_MPI_H

#include "net/transport.h"

typedef struct mo_mpi mo_mpi;

/* The library that it was built with, such as "Open MPI v4.1.4"; NULL: none. A constant. */
const char *mo_mpi_library(void);

/* Joins the run, once in a process. One thread at a time uses each of the two transports, which do not wait for each other. */
mo_status mo_mpi_open(mo_mpi **out, mo_error *err);
mo_transport *mo_mpi_data(mo_mpi *mpi);
mo_transport *mo_mpi_beats(mo_mpi *mpi);
int mo_mpi_local_ranks(const mo_mpi *mpi); /* on this machine */

/* Leaves. Orderly: with all other ranks, for which it waits; otherwise it leaves them alone, who may be gone. */
void mo_mpi_close(mo_mpi *mpi, bool orderly);

#endif
