#include "net/mpi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "net/mpi_module.h"

static const mo_mpi_calls *module; /* NULL: not found */
static char unlike[1200];          /* path of a module of another version */
static char above[1100];           /* the library directory next to the program's directory */
static pthread_once_t looked = PTHREAD_ONCE_INIT;

static bool is_ours(const mo_mpi_stamp *stamp)
{
    static const mo_mpi_stamp own = MO_MPI_STAMP;
    return stamp && strncmp(stamp->version, own.version, sizeof own.version) == 0 &&
           stamp->interface == own.interface && stamp->message_bytes == own.message_bytes &&
           stamp->transport_bytes == own.transport_bytes && stamp->calls_bytes == own.calls_bytes;
}

/* RTLD_GLOBAL, because MPI loads parts of itself that need its symbols. */
static void load(const char *path)
{
    void *handle = module || access(path, R_OK) != 0 ? NULL : dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (handle && is_ours(dlsym(handle, "mo_mpi_module_stamp"))) {
        module = dlsym(handle, "mo_mpi_module");
    } else if (handle) { /* not closed, because MPI does not support unloading */
        snprintf(unlike, sizeof unlike, "%s", path);
    }
}

/* Searches next to the program, in the lib directory next to the program's, and where it is installed. */
static void look(void)
{
    char program[1024], path[sizeof above + 32];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length > 0) {
        program[length] = 0;
        char *end = strrchr(program, '/');
        *(end ? end : program) = 0;
        snprintf(path, sizeof path, "%s/moraine-mpi.so", program);
        load(path);
        end = strrchr(program, '/');
        *(end ? end : program) = 0;
        snprintf(above, sizeof above, "%s/lib/moraine", program);
        snprintf(path, sizeof path, "%s/moraine-mpi.so", above);
        load(path);
    }
    load(MO_LIBRARIES "/moraine/moraine-mpi.so");
}

static const mo_mpi_calls *find(void)
{
    pthread_once(&looked, look);
    return module;
}

const char *mo_mpi_library(void)
{
    return find() ? find()->library() : NULL;
}

mo_status mo_mpi_open(mo_mpi **out, mo_error *err)
{
    *out = NULL;
    if (find()) {
        return find()->open(out, err);
    }
    if (unlike[0]) {
        return mo_fail(err, MO_EUNSUPPORTED,
                       "%s belongs to another version of moraine than " MO_VERSION
                       "; install the program and its module from one build",
                       unlike);
    }
    return mo_fail(
        err, MO_EUNSUPPORTED,
        "ranks communicate through moraine-mpi.so, which is not in %s; install libopenmpi-dev, then "
        "build and install moraine again",
        above[0] ? above : MO_LIBRARIES "/moraine");
}

mo_transport *mo_mpi_data(mo_mpi *mpi)
{
    return module->data(mpi);
}

mo_transport *mo_mpi_beats(mo_mpi *mpi)
{
    return module->beats(mpi);
}

int mo_mpi_local_ranks(const mo_mpi *mpi)
{
    return module->local_ranks(mpi);
}

void mo_mpi_close(mo_mpi *mpi, bool orderly)
{
    if (mpi) {
        module->close(mpi, orderly);
    }
}
