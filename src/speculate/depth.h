/* Depth: how many draft tokens pay. A model has the measured time of a step by its number of sequences and drafts. A session has the
 * acceptance rate of drafts by class, given that the drafts before were accepted. The depth with the most tokens per second follows from
 * both. It is 0 if no drafts pay, or if another sequence of the step would wait for them; trials follow ever more rarely. */
#ifndef MO_SPECULATE_DEPTH_H
#define MO_SPECULATE_DEPTH_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    MO_DEPTH_DRAFTS = 64,   /* of a step at most */
    MO_DEPTH_TOGETHER = 16, /* sequences of a step that has drafts at most */
    /* Classes below this one are matches in a text, by length. Computed drafts have one class for each position behind the text. */
    MO_DEPTH_HEAD = 5,
    MO_DEPTH_HEAD_AT = 4, /* number of these; the last one counts for all further positions */
    MO_DEPTH_CLASSES = MO_DEPTH_HEAD + MO_DEPTH_HEAD_AT,
    MO_DEPTH_LATEST = 4,
};

/* The least of the latest measurements: a disturbed one does not count. */
typedef struct mo_least {
    double ns[MO_DEPTH_LATEST];
    int64_t count;
} mo_least;

/* Of a model; any thread. Times of steps with one new token of every sequence, and drafts. */
typedef struct mo_step_times {
    pthread_mutex_t lock;
    double ns[MO_DEPTH_TOGETHER][MO_DEPTH_DRAFTS + 1]; /* by sequences - 1 and drafts; 0: not measured yet */
    /* The latest steps without drafts; the shortest counts. */
    mo_least plain_ns[MO_DEPTH_TOGETHER];
    /* True after the first step of a kind, which is not measured: a device may build its program in it. */
    bool seen[MO_DEPTH_TOGETHER][MO_DEPTH_DRAFTS + 1];
    int64_t plain[MO_DEPTH_TOGETHER];  /* steps since one without drafts was measured */
    double head_ns[MO_DEPTH_TOGETHER]; /* one guess of an MTP head by sequences - 1; 0: not measured yet */
    /* An MTP head processes a position of an earlier step: measured; and before that, as a part of a step of one sequence. */
    mo_least behind_ns;
    double first_behind;        /* 0: computed drafts are not limited */
    double head_part;           /* the latest time of a guess as a part of such a step; 0: not measured yet */
    double allowance;           /* what computed drafts may cost at the moment, in steps without drafts */
    int64_t shared, next, wait; /* steps of several sequences; their trials, as in mo_depth */
    int64_t turn;               /* number of trials, which selects the source to try */
    /* Drafts of all sessions, the initial estimate of a new session. */
    double right[MO_DEPTH_CLASSES], tried[MO_DEPTH_CLASSES];
    double spent, saved; /* time of steps; additional time without drafts */
} mo_step_times;

void mo_step_times_init(mo_step_times *times);
void mo_step_times_drop(mo_step_times *times);
/* Limits what computed drafts may cost where they do not pay, for users who did not ask for them. layers: the model's; an MTP head is
 * about one more. Before the first step. */
void mo_step_times_limit(mo_step_times *times, int layers);
/* Adds a step. accepted: number of accepted drafts. */
void mo_step_times_add(mo_step_times *times, int sequences, int64_t drafts, int64_t accepted, double ns);
/* Adds the guesses of an MTP head before such a step. behind_ns: additional time for `behind` positions of earlier steps. */
void mo_step_times_add_head(mo_step_times *times, int sequences, int64_t drafts, double ns, int64_t behind,
                            double behind_ns);
/* Estimated speed with drafts over speed without; 1: not measured. */
double mo_step_times_gain(mo_step_times *times);

/* Of a session; one thread at a time. */
typedef struct mo_depth {
    /* Accepted and evaluated recent drafts by class. */
    double right[MO_DEPTH_CLASSES], tried[MO_DEPTH_CLASSES];
    int64_t tokens, next, wait; /* number of tokens; position of the next trial; tokens between trials */
    int64_t turn;               /* number of trials */
    double worth;               /* steps that each accepted one of the latest computed drafts saves */
    bool trying;                /* the latest drafts were a trial */
    bool again;                 /* all drafts of the latest trial were accepted */
} mo_depth;

void mo_depth_init(mo_depth *depth);

/* Class of a match of this length. */
int mo_depth_class(int64_t match);
/* Class of draft number `at` (from 0). Computed drafts are less often right the further they are. */
static inline int mo_depth_class_at(int class, int64_t at)
{
    return class < MO_DEPTH_HEAD ? class
                                 : MO_DEPTH_HEAD + (int)(at < MO_DEPTH_HEAD_AT ? at : MO_DEPTH_HEAD_AT - 1);
}
/* Probability that draft number `at` of the class is accepted, given that the drafts before it were. */
double mo_depth_acceptance(const mo_depth *depth, mo_step_times *times, int class, int64_t at);

/* Drafts that a sequence of a step could have, and the decision. */
typedef struct mo_depth_wish {
    mo_depth *depth;
    int class;
    int64_t least, most; /* limits; fewer than `least` become 0 */
    bool given;          /* take `most` regardless of cost */
    int64_t behind;      /* positions of earlier steps that the MTP head must process first */
    bool head;           /* an MTP head guesses them; false in the result if the match is used instead */
    int match_class;     /* class of a match in the text */
    int64_t match_most;  /* number of tokens of the match; 0: no match */
    int64_t drafts;      /* result */
} mo_depth_wish;

/* Decides for all sequences of a step that may have drafts. rows: limit for drafts and new tokens together. */
void mo_depth_choose(mo_step_times *times, int sequences, mo_depth_wish *wishes, int count, int64_t rows);
/* Adds the result of a step. */
void mo_depth_learn(mo_depth *depth, mo_step_times *times, int class, int64_t drafted, int64_t accepted);

#endif
