/* The public API of the library itself: its version and its memory. */
#include <stdlib.h>

#include "base/status.h"
#include "moraine_server.h"
#include "numeric/version.h"

const char *mo_version(void)
{
    return MO_VERSION;
}

mo_status mo_version_check(int header_version, mo_error *err)
{
    const int major = header_version / 1000000, minor = header_version / 1000 % 1000;
    const bool fits = major == MORAINE_VERSION_MAJOR &&
                      (major == 0 ? minor == MORAINE_VERSION_MINOR : minor <= MORAINE_VERSION_MINOR);
    return fits ? MO_OK
                : mo_fail(err, MO_EUNSUPPORTED,
                          "the program was compiled for moraine %d.%d, but the library is %s; rebuild it",
                          major, minor, mo_version());
}

int mo_numerics_version(void)
{
    return MO_NUMERICS;
}

void mo_free(void *memory)
{
    free(memory);
}
