#include "cli/version.h"

#include <moraine_server.h>
#include <moraine_tools.h>

#include <stdio.h>

#ifdef MO_PULL
#include "hub/pull.h"
#endif

void cli_version_print(void)
{
    printf("moraine %s\n", mo_version());
    printf("instruction sets  "); /* the built-in instruction sets that this machine supports */
    for (int i = 0; mo_isa_name(i); i++) {
        printf("%s%s", i ? " " : "", mo_isa_name(i));
    }
    printf("\nCUDA kernels      %s\n", MO_CUDA_FOR);
#ifdef MO_SERVER
    printf("server            yes, %s\n", MO_HAS_PAGE ? "with web page" : "without web page");
#else
    printf("server            no\n");
#endif
#ifdef MO_PULL
    printf("pull              yes, %s\n", hub_pull_library());
#else
    printf("pull              no, built without libcurl\n");
#endif
    printf("several machines  %s%s\n", mo_cluster_library() ? "yes, " : "no, the MPI module is not installed",
           mo_cluster_library() ? mo_cluster_library() : "");
    printf("io_uring          %s\n", MO_HAS_URING ? "yes" : "no");
}
