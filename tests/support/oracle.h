/* Oracle: tiny models with the values expected of them, as tests/data/oracle/index.txt lists them. Files that the tree leaves
 * out are looked for in the folder that MO_TEST_ORACLE names (and its folders more/, iq/ and 2026/). */
#ifndef MO_TESTS_ORACLE_H
#define MO_TESTS_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Tests that compare a model with itself take the first ORACLE_TOKENS of a prompt, which every prompt has. */
enum {
    ORACLE_TOKENS = 48,
    ORACLE_PROMPT_MAX = 136,
    ORACLE_GREEDY = 32,
    ORACLE_MODELS_MAX = 80,
    ORACLE_DRAFT_MAX = 8
};

typedef struct oracle {
    char name[64];
    char path[512];
    int32_t tokens[ORACLE_PROMPT_MAX];
    int prompt;                    /* how many of them there are: ORACLE_TOKENS at least */
    int32_t greedy[ORACLE_GREEDY]; /* what follows the whole prompt */
    int64_t vocab;
    float *logits; /* [prompt][vocab], exact */
    int32_t *topk; /* [moe layers][prompt][used], or NULL */
    int moe_layers, used;
    int moe_layer[64];
    int32_t *
        kept; /* [kept layers][prompt][kept_most] positions that a layer's indexer keeps, ascending, then -1; or NULL */
    int kept_layers, kept_most;
    int kept_layer[64];
    float *
        mtp_logits; /* [mtp heads][prompt][vocab]: a head run on each token with the trunk's state of the one before; or NULL */
    int mtp_heads;
    int32_t
        mtp_draft[ORACLE_DRAFT_MAX]; /* what the heads propose after the prompt and the first greedy token */
    int mtp_drafts;
    bool quantized; /* the expected values belong to the same weights without rounding of activations */
    bool cpu_only;  /* no device computes the family's layers, experts at most */
} oracle;

/* Reads every model whose file is there; returns how many, and prints how many are not. Ends the program when the data are damaged. */
int oracle_read(oracle *out);
/* The same of another list than index.txt: mtp.txt has models with MTP heads, whose rest is like a model of index.txt;
 * mtp-formula.txt those that llama.cpp does not run, with values of a program in double precision by the published formula, and without tokenizers;
 * cpu.txt and cpu-mtp.txt those of whose layers no device computes more than experts. */
int oracle_read_list(const char *name, oracle *out);
void oracle_free(oracle *o, int count);

/* Sum of squared differences over sum of squares. */
double oracle_nmse(const float *got, const float *want, size_t n);

#endif
