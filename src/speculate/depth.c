#include "speculate/depth.h"

#include <assert.h>
#include <string.h>

/* What must be gained, so that a wrong estimate costs less than it may bring. */
#define LEAST_GAIN 1.04
/* Until it is measured: a row more costs as much of a step of one row, as where experts hardly repeat. */
#define FIRST_SLOPE 0.5
/* Likewise a guess of an MTP head. */
#define FIRST_HEAD 0.1
/* How much of the old is kept by a measurement of a time that is longer, which may have been disturbed, and by a shorter one; and by a new
 * draft, of a session and of the model. */
#define LONGER_KEPT  0.75
#define SHORTER_KEPT 0.5
#define DRAFT_KEPT   0.96
#define ALL_KEPT     0.99
/* A longer time counts as this much longer at most. */
#define LONGER_MOST 1.5
/* Drafts of a model that a new session's estimate counts like. */
#define PRIOR 4.0
/* Steps after which the time of one row is measured again; tokens until what does not pay is tried again, at first and at most; and
 * drafts of such a trial, which may take as long as TRIAL_MOST steps without drafts. */
#define TRIAL_MOST 1.5
/* Computed drafts that do not pay may cost this part of a step for each step. The unused part is kept for later, up to ALLOWED_MOST steps.
 * Matches in a text cost nothing but rows of the step, so they need no limit. */
#define ALLOWED      0.015
#define ALLOWED_MOST 32.0
/* Estimate before the first measurement: a position of an earlier step costs an MTP head this part of a layer's time in a step of one token.
 * By instructions it is 0.46 with the built-in model, and less where a step reads weights once for many positions; but the first time its
 * memory is not in the caches. */
#define FIRST_BEHIND 1.0
/* The first measurement counts at most as this many times the estimate: if it was disturbed, the next trial is not far. */
#define FIRST_MOST 2.0
/* The time that an MTP head takes before its first guess counts as if this many tokens shared it. */
#define BEHIND_SPREAD 64.0
enum { PLAIN_AGAIN = 32, FIRST_WAIT = 64, MOST_WAIT = 8192, TRIAL = 4 };
/* A step with drafts may take this much longer for those who share it; or as long as it wants, if all of them are expected to get at
 * least OWN more tokens by it: then most of their tokens come together with the one before. */
#define BEARABLE 1.03
#define OWN      1.2

void mo_step_times_init(mo_step_times *t)
{
    static const double first[MO_DEPTH_CLASSES] = {0.3, 0.45, 0.65, 0.85, 0.95, 0.6, 0.6, 0.6, 0.6};
    memset(t->ns, 0, sizeof t->ns);
    memset(t->seen, 0, sizeof t->seen);
    memset(t->head_ns, 0, sizeof t->head_ns);
    memset(t->plain, 0, sizeof t->plain);
    memset(t->plain_ns, 0, sizeof t->plain_ns);
    memset(&t->behind_ns, 0, sizeof t->behind_ns);
    t->shared = t->turn = 0;
    t->spent = t->saved = t->allowance = t->head_part = 0.0;
    t->first_behind = 0.0;
    for (int i = 0; i < MO_DEPTH_CLASSES; i++) {
        t->tried[i] = PRIOR;
        t->right[i] = PRIOR * first[i];
    }
    t->next = t->wait = FIRST_WAIT;
    pthread_mutex_init(&t->lock, NULL);
}

void mo_step_times_limit(mo_step_times *t, int layers)
{
    t->first_behind = FIRST_BEHIND / (layers > 1 ? layers : 1);
}

void mo_step_times_drop(mo_step_times *t)
{
    pthread_mutex_destroy(&t->lock);
}

/* 0: nothing was measured. */
static double least_of(const mo_least *l)
{
    double least = l->ns[0];
    for (int i = 1; i < MO_DEPTH_LATEST && i < l->count; i++) {
        least = l->ns[i] < least ? l->ns[i] : least;
    }
    return least;
}

static void add_latest(mo_least *l, double ns)
{
    l->ns[l->count++ % MO_DEPTH_LATEST] = ns;
}

/* A known time after another measurement; 0: the first one. */
static double after(double known, double ns)
{
    const double kept = ns > known ? LONGER_KEPT : SHORTER_KEPT;
    const double bounded = ns > LONGER_MOST * known ? LONGER_MOST * known : ns;
    return known > 0.0 ? kept * known + (1.0 - kept) * bounded : ns;
}

void mo_step_times_add(mo_step_times *t, int sequences, int64_t drafts, int64_t accepted, double ns)
{
    if (sequences < 1 || sequences > MO_DEPTH_TOGETHER || drafts < 0 || drafts > MO_DEPTH_DRAFTS) {
        return;
    }
    pthread_mutex_lock(&t->lock);
    double *known = &t->ns[sequences - 1][drafts];
    bool *seen = &t->seen[sequences - 1][drafts];
    if (!drafts) {
        /* a disturbed step without drafts must not make those with drafts look good */
        add_latest(&t->plain_ns[sequences - 1], ns);
        *known = least_of(&t->plain_ns[sequences - 1]);
    } else if (*seen) {
        const double most =
            (double)(1 + drafts) * t->ns[sequences - 1][0]; /* a longer first one was disturbed */
        *known = after(*known, *known <= 0.0 && most > 0.0 && ns > most ? most : ns);
    }
    *seen = true;
    t->plain[sequences - 1] = drafts ? t->plain[sequences - 1] + 1 : 0;
    t->shared += sequences > 1;
    t->spent += ns;
    const double plain = t->ns[sequences - 1][0];
    t->allowance = t->allowance + ALLOWED < ALLOWED_MOST ? t->allowance + ALLOWED : ALLOWED_MOST;
    t->saved += drafts && plain > 0.0 ? plain * (double)(sequences + accepted) / sequences - ns : 0.0;
    pthread_mutex_unlock(&t->lock);
}

void mo_step_times_add_head(mo_step_times *t, int sequences, int64_t drafts, double ns, int64_t behind,
                            double behind_ns)
{
    if (sequences < 1 || sequences > MO_DEPTH_TOGETHER || drafts < 1) {
        return;
    }
    pthread_mutex_lock(&t->lock);
    const double plain = t->ns[sequences - 1][0];
    double *known = &t->head_ns[sequences - 1], each = ns / (double)drafts;
    if (*known <= 0.0 && plain > 0.0 && each > plain) {
        each = plain; /* so long a guess does not pay, and a disturbed measurement is soon corrected */
    }
    *known = after(*known, each);
    t->head_part = plain > 0.0 ? *known / plain : t->head_part;
    if (behind > 0) {
        const double most = FIRST_MOST * t->first_behind * plain / sequences;
        each = behind_ns / (double)behind;
        add_latest(&t->behind_ns, !t->behind_ns.count && most > 0.0 && each > most ? most : each);
    }
    t->spent += ns + behind_ns;
    t->saved -= ns + behind_ns;
    pthread_mutex_unlock(&t->lock);
}

double mo_step_times_gain(mo_step_times *t)
{
    pthread_mutex_lock(&t->lock);
    const double gain = t->spent > 0.0 ? (t->spent + t->saved) / t->spent : 1.0;
    pthread_mutex_unlock(&t->lock);
    return gain;
}

/* The most drafts of a step that was measured; 0: none. */
static int64_t last_measured(const double *ns)
{
    int64_t last = MO_DEPTH_DRAFTS;
    while (last > 0 && ns[last] <= 0.0) {
        last--;
    }
    return last;
}

/* The most drafts that a step may have: about twice the most that were measured, because the line to them says little about many more. */
static int64_t furthest(int64_t last)
{
    return 2 * last + 1 < MO_DEPTH_DRAFTS ? 2 * last + 1 : MO_DEPTH_DRAFTS;
}

/* Times of steps with 0 .. most drafts: as measured, between two measured ones on the line between them, and behind the last on the line
 * from the first to it. */
static void fill(const double *ns, int64_t last, int sequences, double *out, int64_t most)
{
    int64_t low = 0;
    out[0] = ns[0];
    for (int64_t n = 1; n <= most; n++) {
        int64_t high = n;
        while (high <= last && ns[high] <= 0.0) {
            high++;
        }
        if (high <= last) {
            out[n] = ns[low] + (ns[high] - ns[low]) * (double)(n - low) / (double)(high - low);
            low = high == n ? n : low;
        } else {
            const double slope = low > 0 ? (ns[low] - ns[0]) / (double)low : FIRST_SLOPE * ns[0] / sequences;
            out[n] = ns[low] + (slope > 0.0 ? slope : 0.0) * (double)(n - low);
        }
    }
}

void mo_depth_init(mo_depth *d)
{
    *d = (mo_depth){.next = FIRST_WAIT, .wait = FIRST_WAIT};
}

int mo_depth_class(int64_t match)
{
    return match >= 32 ? 4 : match >= 16 ? 3 : match >= 8 ? 2 : match >= 5 ? 1 : 0;
}

static double acceptance(const mo_depth *d, const mo_step_times *t, int class, int64_t at)
{
    class = mo_depth_class_at(class, at);
    return (d->right[class] + PRIOR * t->right[class] / t->tried[class]) / (d->tried[class] + PRIOR);
}

double mo_depth_acceptance(const mo_depth *d, mo_step_times *t, int class, int64_t at)
{
    pthread_mutex_lock(&t->lock);
    const double right = acceptance(d, t, class, at);
    pthread_mutex_unlock(&t->lock);
    return right;
}

/* What the drafts of a step bring while they are given out, one after the other. */
typedef struct offer {
    const mo_step_times *times;
    double next[MO_DEPTH_TOGETHER]; /* probability of the next draft with all before it, */
    double own[MO_DEPTH_TOGETHER];  /* and tokens that are expected of those given so far */
    int64_t drafts[MO_DEPTH_TOGETHER];
    int64_t rows; /* left */
    double tokens;
    bool fair; /* first OWN tokens for each */
} offer;

/* Is a draft better given to a than to b? */
static bool goes_first(const offer *o, int a, int b)
{
    if (o->fair && (o->own[a] < OWN || o->own[b] < OWN)) {
        return o->own[a] < o->own[b];
    }
    return o->next[a] > o->next[b] || (o->next[a] == o->next[b] && o->drafts[a] < o->drafts[b]);
}

/* Gives one draft, to whose next one is the most probable unless it is to be fair. False: none may have more. */
static bool give_one(offer *o, const mo_depth_wish *wishes, int count)
{
    int best = -1;
    for (int i = 0; i < count; i++) {
        const int64_t rows = o->drafts[i] ? 1 : 2; /* the first comes with the token before it */
        if (o->drafts[i] < wishes[i].most && rows <= o->rows && (best < 0 || goes_first(o, i, best))) {
            best = i;
        }
    }
    if (best < 0) {
        return false;
    }
    o->rows -= o->drafts[best]++ ? 1 : 2;
    o->own[best] += o->next[best];
    o->tokens += o->next[best];
    o->next[best] *= acceptance(wishes[best].depth, o->times, wishes[best].class, o->drafts[best]);
    return true;
}

/* May the sequences be made to wait so long? */
static bool is_bearable(const offer *o, int count, int sequences, double slower)
{
    bool all = o->fair && count == sequences;
    for (int i = 0; i < count; i++) {
        all = all && o->own[i] >= OWN;
    }
    return sequences == 1 || slower <= BEARABLE || all;
}

static void take_offer(const offer *o, mo_depth_wish *wishes, int count)
{
    for (int i = 0; i < count; i++) {
        wishes[i].drafts = o->drafts[i];
    }
}

/* What MTP heads take for that many guesses: those of several sequences are made side by side. */
static double head_time(const mo_step_times *t, const double *ns, int sequences, const mo_depth_wish *wishes,
                        const int64_t *drafts, int count)
{
    const double known = t->head_ns[sequences - 1];
    int64_t most = 0;
    for (int i = 0; i < count; i++) {
        most = wishes[i].head && drafts[i] > most ? drafts[i] : most;
    }
    const double part = t->head_part > 0.0 ? t->head_part : FIRST_HEAD;
    return (double)most * (known > 0.0 ? known : part * ns[0]);
}

/* Time that they take before that for positions of earlier steps. */
static double behind_time(const mo_step_times *t, const double *ns, int sequences,
                          const mo_depth_wish *wishes, const int64_t *drafts, int count)
{
    const double each = t->behind_ns.count ? least_of(&t->behind_ns) : t->first_behind * ns[0] / sequences;
    int64_t behind = 0;
    for (int i = 0; i < count; i++) {
        behind += wishes[i].head && drafts[i] ? wishes[i].behind : 0;
    }
    return (double)behind * each;
}

/* A head that was never measured needs a trial first; and before it may be used again, what it costs to process earlier positions must be
 * allowed, because the text may not be worth it for long. */
static bool is_allowed(const mo_step_times *t, double plain, double guessing, double before)
{
    return guessing <= 0.0 || t->first_behind <= 0.0 ||
           (t->head_part > 0.0 && (before <= 0.0 || before <= t->allowance * plain));
}

/* Takes the best of all offers that give more tokens per time than *best. */
static void take_best(const mo_step_times *t, const double *ns, int sequences, mo_depth_wish *wishes,
                      int count, int64_t rows, bool fair, double *best)
{
    offer o = {.times = t, .rows = rows, .tokens = sequences, .fair = fair};
    for (int i = 0; i < count; i++) {
        o.next[i] = acceptance(wishes[i].depth, t, wishes[i].class, 0);
    }
    const int64_t most = furthest(last_measured(t->ns[sequences - 1]));
    for (int64_t k = 1; k <= most && give_one(&o, wishes, count); k++) {
        const double guessing = head_time(t, ns, sequences, wishes, o.drafts, count), took = ns[k] + guessing;
        const double before = behind_time(t, ns, sequences, wishes, o.drafts, count);
        const double rate = o.tokens / (took + before * o.tokens / (BEHIND_SPREAD * sequences));
        if (rate > *best && is_allowed(t, ns[0], guessing, before) &&
            is_bearable(&o, count, sequences, took / ns[0])) {
            *best = rate;
            take_offer(&o, wishes, count);
        }
    }
}

static void take_match(mo_depth_wish *wish)
{
    wish->class = wish->match_class;
    wish->most = wish->match_most;
    wish->match_most = 0;
    wish->head = false;
}

/* Which of two sources guesses where there are two: the head for all, the match for all, or for each the one that is more often right. */
typedef enum by { BY_HEAD, BY_MATCH, BY_RIGHT, WAYS } by;

static void take_way(const mo_step_times *t, by way, mo_depth_wish *wishes, int count)
{
    for (int i = 0; i < count; i++) {
        const mo_depth *d = wishes[i].depth;
        if (wishes[i].match_most && way != BY_HEAD &&
            (way == BY_MATCH ||
             acceptance(d, t, wishes[i].match_class, 0) >= acceptance(d, t, wishes[i].class, 0))) {
            take_match(&wishes[i]);
        }
    }
}

/* The best of all. False: nothing gives more than *best tokens per time. */
static bool take_best_way(const mo_step_times *t, const double *ns, int sequences, mo_depth_wish *wishes,
                          int count, int64_t rows, double least)
{
    mo_depth_wish asked[MO_DEPTH_TOGETHER];
    double best = least;
    memcpy(asked, wishes, sizeof *wishes * (size_t)count);
    for (by way = BY_HEAD; way < WAYS; way++) {
        mo_depth_wish now[MO_DEPTH_TOGETHER];
        const double before = best;
        memcpy(now, asked, sizeof *now * (size_t)count);
        take_way(t, way, now, count);
        take_best(t, ns, sequences, now, count, rows, false, &best);
        if (sequences > 1 && count == sequences) {
            take_best(t, ns, sequences, now, count, rows, true, &best);
        }
        if (best > before) {
            memcpy(wishes, now, sizeof *now * (size_t)count);
        }
    }
    return best > least;
}

/* Source `turn` of all that the sequences have, each in its turn. */
static mo_depth_wish *source_at(mo_depth_wish *wishes, int count, int64_t turn)
{
    int64_t all = 0;
    assert(count > 0);
    for (int i = 0; i < count; i++) {
        all += wishes[i].match_most ? 2 : 1;
    }
    turn %= all;
    for (int i = 0; i < count; i++) {
        const int own = wishes[i].match_most ? 2 : 1;
        if (turn < own) {
            if (turn == 1) {
                take_match(&wishes[i]);
            }
            return &wishes[i];
        }
        turn -= own;
    }
    return wishes;
}

/* Number of drafts of a trial. *took: time of its step and guesses; *cost: if all are wrong, in steps without drafts. */
static int64_t trial_of(const mo_step_times *t, const double *ns, int sequences, const mo_depth_wish *wish,
                        int64_t rows, double *took, double *cost)
{
    int64_t most = wish->most < TRIAL ? wish->most : TRIAL;
    most = most < rows ? most : rows - 1;
    while (most > 1 && ns[most] + head_time(t, ns, sequences, wish, &most, 1) > TRIAL_MOST * ns[0]) {
        most--;
    }
    *took = ns[most] + head_time(t, ns, sequences, wish, &most, 1);
    *cost = (*took + behind_time(t, ns, sequences, wish, &most, 1)) / ns[0] - 1.0;
    return most;
}

static bool is_too_much(const mo_step_times *t, const mo_depth_wish *wish, double cost)
{
    return wish->head && t->first_behind > 0.0 && cost > t->allowance;
}

/* Something that does not pay as far as is known, to know more: by a session alone after so many tokens, by several after so many
 * steps of the model. */
static void try_some(mo_step_times *t, const double *ns, int sequences, mo_depth_wish *wishes, int count,
                     int64_t rows)
{
    mo_depth *d = wishes[0].depth;
    const int64_t now = sequences > 1 ? t->shared : d->tokens;
    int64_t *next = sequences > 1 ? &t->next : &d->next, *wait = sequences > 1 ? &t->wait : &d->wait;
    double took, cost;
    const bool due = now >= *next, again = d->again;
    d->again = false;
    if (!(due || again) || rows < 2) {
        return;
    }
    mo_depth_wish *wish = source_at(wishes, count, sequences > 1 ? t->turn : d->turn);
    int64_t most = trial_of(t, ns, sequences, wish, rows, &took, &cost);
    if (due && is_too_much(t, wish, cost) && wish->match_most) {
        take_match(wish);
        most = trial_of(t, ns, sequences, wish, rows, &took, &cost);
    }
    /* An MTP head that has just guessed right has no earlier positions to process. */
    if ((due || wish->behind) && is_too_much(t, wish, cost)) {
        return; /* later */
    }
    if (!due && (double)(1 + most) * ns[0] < LEAST_GAIN * took) {
        return; /* it would not pay even if all were right */
    }
    if (due) {
        *wait = 2 * *wait < MOST_WAIT ? 2 * *wait : MOST_WAIT;
        *next = now + *wait;
    }
    wish->drafts = most;
    wish->depth->trying = sequences == 1;
    t->turn += sequences > 1;
}

/* Computed drafts cost this; those that are accepted are worth so much, which is added to the allowance again. */
static void charge(mo_step_times *t, const double *ns, int sequences, const mo_depth_wish *wishes, int count)
{
    int64_t drafts[MO_DEPTH_TOGETHER], all = 0;
    bool head = false;
    for (int i = 0; i < count; i++) {
        drafts[i] = wishes[i].drafts;
        all += drafts[i];
        wishes[i].depth->worth = wishes[i].head && drafts[i] ? 1.0 / sequences : 0.0;
        head = head || wishes[i].depth->worth > 0.0;
    }
    if (head) {
        const double took = ns[all] + head_time(t, ns, sequences, wishes, drafts, count) +
                            behind_time(t, ns, sequences, wishes, drafts, count);
        t->allowance -= took / ns[0] - 1.0;
    }
}

void mo_depth_choose(mo_step_times *t, int sequences, mo_depth_wish *wishes, int count, int64_t rows)
{
    double ns[MO_DEPTH_DRAFTS + 1];
    int given = 0;
    for (int i = 0; i < count; i++) {
        wishes[i].drafts = wishes[i].given ? wishes[i].most : 0;
        wishes[i].depth->trying = false;
        given += wishes[i].given;
    }
    if (count < 1 || given || sequences > MO_DEPTH_TOGETHER) {
        return;
    }
    pthread_mutex_lock(&t->lock);
    if (t->ns[sequences - 1][0] > 0.0 && t->plain[sequences - 1] < PLAIN_AGAIN) {
        const int64_t last = last_measured(t->ns[sequences - 1]), far = furthest(last);
        fill(t->ns[sequences - 1], last, sequences, ns, far > TRIAL ? far : TRIAL);
        if (!take_best_way(t, ns, sequences, wishes, count, rows, LEAST_GAIN * sequences / ns[0])) {
            try_some(t, ns, sequences, wishes, count, rows);
        }
        for (int i = 0; i < count; i++) {
            wishes[i].drafts = wishes[i].drafts < wishes[i].least ? 0 : wishes[i].drafts;
        }
        charge(t, ns, sequences, wishes, count);
    }
    pthread_mutex_unlock(&t->lock);
}

void mo_depth_learn(mo_depth *d, mo_step_times *t, int class, int64_t drafted, int64_t accepted)
{
    pthread_mutex_lock(&t->lock);
    d->tokens += 1 + accepted;
    t->allowance += (double)accepted * d->worth;
    d->worth = 0.0;
    /* Those behind the first wrong one say nothing. */
    for (int64_t i = 0; i < drafted && i <= accepted; i++) {
        const int c = mo_depth_class_at(class, i);
        d->right[c] = DRAFT_KEPT * d->right[c] + (i < accepted);
        d->tried[c] = DRAFT_KEPT * d->tried[c] + 1.0;
        t->right[c] = ALL_KEPT * t->right[c] + (i < accepted);
        t->tried[c] = ALL_KEPT * t->tried[c] + 1.0;
    }
    pthread_mutex_unlock(&t->lock);
    const bool all = drafted && accepted == drafted;
    if (all && d->wait > FIRST_WAIT) { /* the text has changed: trials are worth it again, */
        d->wait = FIRST_WAIT;
        d->next = d->next < d->tokens + FIRST_WAIT ? d->next : d->tokens + FIRST_WAIT;
    }
    d->again = d->trying && all; /* and this one at once */
    d->turn += d->trying && !all;
    d->trying = false;
}
