/* MPI: ranks started by mpirun, on one or several machines. The MPI code is a module, found and loaded when
   needed (net/mpi_module.c). If it is missing, opening fails with an error that says so. */
#ifndef MO_NET_MPI_H
#define MO_NET_MPI_H

#include "net/transport.h"

typedef struct mo_mpi mo_mpi;

/* The library that the module was built with, such as "Open MPI v4.1.4". NULL: none. A constant. */
const char *mo_mpi_library(void);

/* Joins the run, once per process. Each transport is used by one thread; they do not wait for each other. */
mo_status mo_mpi_open(mo_mpi **out, mo_error *err);
mo_transport *mo_mpi_data(mo_mpi *mpi);
mo_transport *mo_mpi_beats(mo_mpi *mpi);
int mo_mpi_local_ranks(const mo_mpi *mpi); /* ranks on this machine */

/* Leaves the run. orderly: waits until all ranks leave; otherwise communicates with no rank. */
void mo_mpi_close(mo_mpi *mpi, bool orderly);

#endif
