/* Drafts: bench's measurement of speculative decoding: the same answers with and without drafts,
   alternating. */
#ifndef MO_CLI_DRAFTS_H
#define MO_CLI_DRAFTS_H

#include <moraine_server.h>

enum { CLI_DRAFTS_SEQUENCES = 64 };

typedef struct cli_drafts {
    /* Input: */
    int64_t sequences, drafting; /* the first `drafting` sequences use drafts */
    int64_t prompt, generated;   /* tokens per sequence */
    int64_t rounds;
    int64_t depth;    /* drafts per step, taken from the model's own greedy text; 0: found by --speculate */
    int64_t accepted; /* percent of them that are correct, if the previous ones are */
    bool chosen;      /* choose their number as --speculate does; otherwise use all */
    mo_kv_type kv;
    bool text; /* tokens are from a text, not random */
    /* Results, medians over rounds: */
    double off_tps, on_tps, ratio, ratio_least; /* of all sequences, and of pairs of rounds */
    double prompt_off_tps, prompt_ratio;
    /* median time between tokens of sequences without drafts (of all, if all have drafts), and the
       maximum */
    double between_ratio;
    double step_ratio;               /* time of a step with drafts relative to one without */
    int64_t drafted, right, checked; /* drafts checked, drafts accepted, and tokens that had drafts */
    double gain;                     /* the engine's estimate for the whole process */
} cli_drafts;

/* tokens: sequences times `prompt`. False after printing the error, or if the command was interrupted. */
bool cli_drafts_run(mo_model *model, const int32_t *tokens, cli_drafts *d);

int cli_drafts_print_json(mo_model *model, const cli_drafts *d);
void cli_drafts_print(mo_model *model, const cli_drafts *d);

#endif
