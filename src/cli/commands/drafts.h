/* Drafts: bench's measurement of speculative decoding: the same answers with and without guesses, in turn, in one process. */
#ifndef MO_CLI_DRAFTS_H
#define MO_CLI_DRAFTS_H

#include <moraine_server.h>

enum { CLI_DRAFTS_SEQUENCES = 64 };

typedef struct cli_drafts {
    /* What to do: */
    int64_t sequences, drafting; /* the first `drafting` of them have guesses */
    int64_t prompt, generated;   /* tokens of each */
    int64_t rounds;
    int64_t depth;    /* guesses of a step: the model's own greedy text; 0: those that --speculate finds */
    int64_t accepted; /* percent of them that are right, if those before them are */
    bool chosen;      /* how many of them are computed is decided as with --speculate; else all are */
    mo_kv_type kv;
    bool text; /* tokens are a text's, not random ones */
    /* What was found; medians over rounds: */
    double off_tps, on_tps, ratio, ratio_least; /* of all sequences, and of pairs of rounds */
    double prompt_off_tps, prompt_ratio;
    double
        between_ratio; /* median time between tokens of sequences without guesses, or of all if there are none; the largest */
    double step_ratio; /* time of a step with guesses over that of one without */
    int64_t drafted, right,
        checked; /* guesses, those that were right, and tokens that had some behind them */
    double gain; /* as estimated by the engine, of the whole process */
} cli_drafts;

/* tokens: sequences times `prompt`. False after saying what went wrong, or when the command was interrupted. */
bool cli_drafts_run(mo_model *model, const int32_t *tokens, cli_drafts *d);

int cli_drafts_print_json(mo_model *model, const cli_drafts *d);
void cli_drafts_print(mo_model *model, const cli_drafts *d);

#endif
