/* The functions of net/mpi.h as the module has them, under the name mo_mpi_module. */
#ifndef MO_NET_MPI_MODULE_H
#define MO_NET_MPI_MODULE_H

#include "net/transport.h"

typedef struct mo_mpi mo_mpi;

typedef struct mo_mpi_calls {
    const char *(*library)(void);
    mo_status (*open)(mo_mpi **out, mo_error *err);
    mo_transport *(*data)(mo_mpi *mpi);
    mo_transport *(*beats)(mo_mpi *mpi);
    int (*local_ranks)(const mo_mpi *mpi);
    void (*close)(mo_mpi *mpi, bool orderly);
} mo_mpi_calls;

extern const mo_mpi_calls mo_mpi_module;

#endif
