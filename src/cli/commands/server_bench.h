/* Server bench: sends concurrent requests to a running server and measures its answers as clients see
   them. */
#ifndef MO_CLI_SERVER_BENCH_H
#define MO_CLI_SERVER_BENCH_H

#include <stdbool.h>
#include <stdint.h>

typedef struct cli_server_bench {
    const char *url, *key;
    int64_t streams, prompt, generated, rounds;
    bool json;
} cli_server_bench;

/* Returns the exit code. */
int cli_server_bench_run(const cli_server_bench *b);

#endif
