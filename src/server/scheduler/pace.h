/* Pace: the number of prompt tokens per step. Together with running answers, it limits the delay of their
 * tokens to a bound (or to what lets the prompt pass at a useful rate). For prompts alone, it limits the wait
 * of new requests. Learned from measured step times, without other assumptions about the machine. */
#ifndef SRV_PACE_H
#define SRV_PACE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct srv_pace {
    int64_t batch;            /* maximum tokens per step */
    double bound_s;           /* between two tokens of an answer */
    double alone_s;           /* current time of a step without prompts; 0: unknown */
    double piece;             /* tokens found to fit */
    double rate;              /* tokens/s of prompts alone; 0: unknown */
    double slower;            /* tokens/s together with answers, if slower than alone; 0: not slower */
    int since;                /* mixed steps since slower was set */
    double met_tokens, met_s; /* a mixed step used as reference: its tokens (0: none yet) and its time */

    /* Prompts without running answers: new requests wait for the step. */
    double lone_piece;          /* tokens of the next step */
    double lone_tokens, lone_s; /* the last full step; 0: none yet */
    bool lone_known;            /* more tokens were found to take longer */
    /* more tokens were not slower, or are being tried: steps may exceed their limit */
    bool lone_beyond;
} srv_pace;

void srv_pace_init(srv_pace *p, int64_t batch, double bound_s);
/* Prompt tokens of the next step, which also has `answers` other tokens. At least 1. */
int64_t srv_pace_piece(const srv_pace *p, int answers);
/* How long an idle engine may wait for simultaneous requests before it starts a step with this many prompt
 * tokens. */
double srv_pace_gathering(const srv_pace *p, int64_t prompt);
/* Records the time of a step with these tokens of answers and prompts. */
void srv_pace_learn(srv_pace *p, int answers, int64_t prompt, double seconds);

#endif
