/* Pace: how many prompt tokens a step may have in addition to the tokens of running answers, so that these are not delayed by
 * more than a bound (or by what lets the prompt pass at a useful rate), and how many alone, so that a request that comes has its turn soon.
 * Found from the times of steps as they are measured: nothing else is assumed about the machine. */
#ifndef SRV_PACE_H
#define SRV_PACE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct srv_pace {
    int64_t batch;  /* most tokens of a step */
    double bound_s; /* between two tokens of an answer */
    double alone_s; /* what a step without prompts takes now; 0: not known */
    double piece;   /* tokens that were found to fit */
    double rate;    /* tokens/s of prompts alone; 0: not known */
    double slower;  /* tokens/s next to answers, if a token costs more there than alone; 0: it does not */
    int since;      /* steps of answers and prompts since that was found */
    double met_tokens,
        met_s; /* a step of answers and a prompt with which others are compared: its tokens (0: none yet), and what they took */

    /* Prompts without running answers: new requests wait for the step. */
    double lone_piece;          /* tokens of the next step */
    double lone_tokens, lone_s; /* the last step that was full; 0: none yet */
    bool lone_known;            /* more tokens were found to take longer */
    bool lone_beyond;           /* they were not, or are tried: steps may take longer than they should */
} srv_pace;

void srv_pace_init(srv_pace *p, int64_t batch, double bound_s);
/* Prompt tokens of the next step, of which `answers` are others' tokens. At least 1. */
int64_t srv_pace_piece(const srv_pace *p, int answers);
/* How long an idle engine may wait for simultaneous requests before it begins a step with this many prompt tokens. */
double srv_pace_gathering(const srv_pace *p, int64_t prompt);
/* Records the time of a step with these tokens of answers and prompts. */
void srv_pace_learn(srv_pace *p, int answers, int64_t prompt, double seconds);

#endif
