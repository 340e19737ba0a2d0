/* Oracle: tiny models with the values expected of them, as tests/data/oracle/index.txt lists them. Files that the tree leaves
 * out are looked for in the folder that MO_TEST_ORACLE names (and its folders more/ and iq/). */
#ifndef MO_TESTS_ORACLE_H
#define MO_TESTS_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ORACLE_TOKENS = 48, ORACLE_GREEDY = 32, ORACLE_MODELS_MAX = 48 };

typedef struct oracle {
    char name[64];
    char path[512];
    int32_t tokens[ORACLE_TOKENS];
    int32_t greedy[ORACLE_GREEDY];
    int64_t vocab;
    float *logits; /* [ORACLE_TOKENS][vocab], exact */
    int32_t *topk; /* [moe layers][ORACLE_TOKENS][used], or NULL */
    int moe_layers, used;
    int moe_layer[64];
    bool quantized; /* the expected values belong to the same weights without rounding of activations */
} oracle;

/* Reads every model whose file is there; returns how many, and prints how many are not. Ends the program when the data are damaged. */
int oracle_read(oracle *out);
void oracle_free(oracle *o, int count);

/* Sum of squared differences over sum of squares. */
double oracle_nmse(const float *got, const float *want, size_t n);

#endif
