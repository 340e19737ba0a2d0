#include "numeric/kernels.h"

#include <stdio.h>
#include <string.h>

#include "base/host.h"
#include "base/status.h"
#include "numeric/products.h"

int mo_kernels_list(const mo_kernels **out, int limit)
{
    const mo_cpu *cpu = mo_host_cpu();
    const struct {
        bool usable;
        const mo_kernels *set;
    } sets[] = {
#if defined(__x86_64__)
        {cpu->amx_int8, &mo_kernels_amx},
        {cpu->avx512_vnni, &mo_kernels_avx512},
        {cpu->avx_vnni, &mo_kernels_avxvnni},
        {cpu->avx2, &mo_kernels_avx2},
#elif defined(__aarch64__)
        {cpu->i8mm && cpu->dotprod, &mo_kernels_i8mm},
        {cpu->dotprod, &mo_kernels_dotprod},
#endif
        {cpu != NULL, &mo_kernels_scalar},
    };
    int count = 0;
    for (size_t i = 0; i < sizeof sets / sizeof *sets && count < limit; i++) {
        if (sets[i].usable) {
            out[count++] = sets[i].set;
        }
    }
    return count;
}

mo_status mo_kernels_select(const char *name, const mo_kernels **out, mo_error *err)
{
    const mo_kernels *sets[8];
    const int count = mo_kernels_list(sets, 8);
    char names[128] = "";
    for (int i = 0; i < count; i++) {
        if (!name || strcmp(name, "auto") == 0 || strcmp(name, sets[i]->name) == 0) {
            *out = sets[i];
            return MO_OK;
        }
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", sets[i]->name);
    }
    return mo_fail(err, MO_EINVAL, "`isa` \"%.60s\" is not available on this machine; choose one of auto, %s",
                   name, names);
}
