/* Depth: how many drafts pay. A model has the time of a step by its sequences and drafts, as measured; a session has, by how sure the
 * source is, how often a draft was accepted when those before it were. From both follow the numbers that give the most tokens a second:
 * 0 where none pays, or where another sequence of the step would wait for them. Then it is tried again, ever more rarely. */
#ifndef MO_SPECULATE_DEPTH_H
#define MO_SPECULATE_DEPTH_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    MO_DEPTH_DRAFTS = 64,   /* of a step at most */
    MO_DEPTH_TOGETHER = 16, /* sequences of a step that has drafts at most */
    MO_DEPTH_HEAD =
        5, /* the class of what is computed, and first of its classes, one for each place behind the text, of which */
    MO_DEPTH_HEAD_AT =
        4, /* there are so many, the last for all behind it; classes before them are of matches in a text */
    MO_DEPTH_CLASSES = MO_DEPTH_HEAD + MO_DEPTH_HEAD_AT,
    MO_DEPTH_LATEST = 4,
};

/* Of a model; any thread. Steps that have one new token of every sequence, and drafts. */
typedef struct mo_step_times {
    pthread_mutex_t lock;
    double ns[MO_DEPTH_TOGETHER][MO_DEPTH_DRAFTS + 1]; /* by sequences - 1 and drafts; 0: not measured yet */
    double plain_ns[MO_DEPTH_TOGETHER]
                   [MO_DEPTH_LATEST]; /* the latest without drafts: the least of them counts */
    bool seen[MO_DEPTH_TOGETHER]
             [MO_DEPTH_DRAFTS +
              1]; /* steps of this kind: the first one may make its program, and is not measured */
    int64_t plain_count[MO_DEPTH_TOGETHER];
    int64_t plain[MO_DEPTH_TOGETHER]; /* steps since one without drafts was measured */
    double
        head_ns[MO_DEPTH_TOGETHER]; /* what one guess of an MTP head for as many takes; 0: not measured yet */
    int64_t shared, next, wait;     /* steps of several sequences; trials among them, as of a session below */
    int64_t turn;                   /* trials so far: which source is tried */
    double right[MO_DEPTH_CLASSES],
        tried[MO_DEPTH_CLASSES]; /* drafts of all sessions: how a new one begins */
    double spent, saved;         /* time of steps; how much more they would have taken without drafts */
} mo_step_times;

void mo_step_times_init(mo_step_times *times);
void mo_step_times_drop(mo_step_times *times);
/* accepted: of the drafts. */
void mo_step_times_add(mo_step_times *times, int sequences, int64_t drafts, int64_t accepted, double ns);
/* Before such a step an MTP head has guessed as many tokens, for some of the sequences: it took this long, and so much more for what it had
 * left of earlier steps. */
void mo_step_times_add_head(mo_step_times *times, int sequences, int64_t drafts, double ns, double behind_ns);
/* Speed over that without drafts, by these times; 1: none was measured. */
double mo_step_times_gain(mo_step_times *times);

/* Of a session; one thread at a time. */
typedef struct mo_depth {
    double right[MO_DEPTH_CLASSES], tried[MO_DEPTH_CLASSES]; /* of recent drafts that were reached */
    int64_t tokens, next,
        wait; /* tokens so far; when something that does not pay is tried, and the time between such trials */
    int64_t turn; /* trials so far */
    bool trying;  /* the latest drafts were a trial, */
    bool again;   /* and all of them were right */
} mo_depth;

void mo_depth_init(mo_depth *depth);

/* The class of a match of this length. */
int mo_depth_class(int64_t match);
/* That of draft number `at`, from 0: what is computed from what was guessed is less often right. */
static inline int mo_depth_class_at(int class, int64_t at)
{
    return class < MO_DEPTH_HEAD ? class
                                 : MO_DEPTH_HEAD + (int)(at < MO_DEPTH_HEAD_AT ? at : MO_DEPTH_HEAD_AT - 1);
}
/* The probability that draft number `at` of the class is accepted if those before it were. */
double mo_depth_acceptance(const mo_depth *depth, mo_step_times *times, int class, int64_t at);

/* What a sequence of a step could have. */
typedef struct mo_depth_wish {
    mo_depth *depth;
    int class;
    int64_t least, most; /* drafts; fewer than `least` are none */
    bool given;          /* `most`, whatever they cost */
    bool head;           /* an MTP head guesses them, which takes time; the result may be that it does not: */
    int match_class;     /* that a match in a text of this class does, */
    int64_t match_most;  /* most tokens of it; 0: there is none */
    int64_t drafts;      /* the result */
} mo_depth_wish;

/* Decides for all sequences of a step that have drafts; rows: most drafts, with the tokens before them. */
void mo_depth_choose(mo_step_times *times, int sequences, mo_depth_wish *wishes, int count, int64_t rows);
/* What came of a step. */
void mo_depth_learn(mo_depth *depth, mo_step_times *times, int class, int64_t drafted, int64_t accepted);

#endif
