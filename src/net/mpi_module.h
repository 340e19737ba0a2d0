/* The functions of net/mpi.h in the module, as symbol mo_mpi_module. */
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

/* Symbol mo_mpi_module_stamp: a module of another version is not used. */
typedef struct mo_mpi_stamp {
    char version[32];
    uint32_t interface; /* increased when one of these structs changes */
    uint32_t message_bytes, transport_bytes, calls_bytes;
} mo_mpi_stamp;

#define MO_MPI_STAMP                                                                                         \
    {                                                                                                        \
        MO_VERSION, 2, sizeof(mo_net_message), sizeof(mo_transport), sizeof(mo_mpi_calls)                    \
    }

extern const mo_mpi_stamp mo_mpi_module_stamp;

#endif
