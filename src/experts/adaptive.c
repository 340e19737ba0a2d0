#include "experts/adaptive.h"

#include <assert.h>
#include <math.h>

enum {
    NONE = -1,
    AGES = 11,  /* layer runs without use: 0, 1, 2-3, 4-7, ... 512 and more */
    RATES = 24, /* earlier use rate relative to the average: half octaves around 1 */
    CELLS = AGES * RATES,
    WINDOW = 16, /* runs that a cell remembers, per expert (8192 at least) */
    PRIOR = 64,  /* weight of the initial assumption, in runs */
};

/* Half-lives of the counts. One unit of time is as many touches as there are experts. So it is the time
 * between two uses of an average expert, for any number of experts and of experts per token. */
#define FAST 3.0
#define SLOW 48.0

/* Weight of the fast count in an expert's rate. */
#define SHARE 0.5

/* Weight of a profile: this long a time, in which the most used expert had this many times the average
 * use. */
#define SEED_TIME 16.0
#define SEED_MOST 8.0

/* Added to the time until a layer runs, in passes. It makes the nearest layer worth at most twice the
 * farthest, because it is unknown which of the next steps will use the expert. */
#define NEAR 1.0

typedef struct list {
    int32_t head, tail;
} list;

typedef struct link {
    int32_t before, after;
} link;

typedef struct cell {
    double chances, uses; /* decayed */
    list members;         /* evictable experts, in the order of entry or of their last touch */
} cell;

typedef struct member {
    link by_age, by_cell;
    int32_t layer;
    int16_t cell;
    int8_t age;
    bool listed; /* evictable, and so in its cell's list */
    double time; /* time of its last touch */
} member;

struct mo_adaptive {
    mo_policy_entry *entry;
    member *member;
    int32_t layers; /* highest layer number + 1 */
    double window;  /* layer runs that a cell remembers */
    /* Position in the current step: */
    uint64_t now;
    int32_t layer;
    bool layer_done; /* all touches of the layer have been received */
    cell cells[CELLS];
    list young[AGES - 1]; /* all experts of each age but the last, ordered by last touch */
    double time, tick;    /* tick: the time that a touch adds */
};

/* ---- Lists -------------------------------------------------------------------------------------- */

static link *link_of(mo_adaptive *h, int32_t expert_id, bool by_age)
{
    return by_age ? &h->member[expert_id].by_age : &h->member[expert_id].by_cell;
}

static void append(mo_adaptive *h, list *l, int32_t expert_id, bool by_age)
{
    *link_of(h, expert_id, by_age) = (link){l->tail, NONE};
    if (l->tail != NONE) {
        link_of(h, l->tail, by_age)->after = expert_id;
    } else {
        l->head = expert_id;
    }
    l->tail = expert_id;
}

static void remove_from(mo_adaptive *h, list *l, int32_t expert_id, bool by_age)
{
    const link k = *link_of(h, expert_id, by_age);
    if (k.before != NONE) {
        link_of(h, k.before, by_age)->after = k.after;
    } else {
        l->head = k.after;
    }
    if (k.after != NONE) {
        link_of(h, k.after, by_age)->before = k.before;
    } else {
        l->tail = k.before;
    }
}

/* ---- Cells -------------------------------------------------------------------------------------- */

/* Layer runs without use at which an age begins. */
static int64_t age_begin(int age)
{
    return age ? (int64_t)1 << (age - 1) : 0;
}

/* The half octave of a rate. The first and the last contain everything beyond them. */
static int rate_of(double rate)
{
    int octave;
    const double part = frexp(rate, &octave); /* part in 0.5 .. 1 */
    const int half = 2 * octave + (part >= 0.70710678118654752 ? 0 : -1) + RATES / 2;
    return rate <= 0.0 || half < 0 ? 0 : half < RATES ? half : RATES - 1;
}

static double worth(const cell *c)
{
    return c->uses / c->chances;
}

/* Updates the expert's counts to now. Returns their rate relative to the average expert. */
static double bring_up(mo_adaptive *h, int32_t expert_id)
{
    const double ln2 = 0.69314718055994531;
    mo_policy_entry *e = &h->entry[expert_id];
    const double passed = h->time - h->member[expert_id].time;
    if (passed > 0.0) {
        e->score *= exp2(-passed / FAST);
        e->slow *= exp2(-passed / SLOW);
        h->member[expert_id].time = h->time;
    }
    return ln2 * (SHARE * e->score / FAST + (1.0 - SHARE) * e->slow / SLOW);
}

/* Moves the expert to its current cell. */
static void sort_in(mo_adaptive *h, int32_t expert_id, int age)
{
    member *m = &h->member[expert_id];
    if (m->listed) {
        remove_from(h, &h->cells[m->cell].members, expert_id, false);
    }
    m->age = (int8_t)age;
    m->cell = (int16_t)(age * RATES + rate_of(bring_up(h, expert_id)));
    h->entry[expert_id].key = worth(&h->cells[m->cell]);
    if (m->listed) {
        append(h, &h->cells[m->cell].members, expert_id, false);
    }
}

static void learn(mo_adaptive *h, int32_t expert_id, int64_t chances, int uses)
{
    cell *c = &h->cells[h->member[expert_id].cell];
    const double part = (double)chances / h->window, kept = part < 0.5 ? 1.0 - part : 0.5;
    c->chances = c->chances * kept + (double)chances;
    c->uses = c->uses * kept + uses;
}

/* ---- Time --------------------------------------------------------------------------------------- */

/* How often the expert's layer has run since its last use. If layers are not reported, it counts as run when
 * the step is over. */
static int64_t chances_since(const mo_adaptive *h, int32_t expert_id)
{
    const int32_t layer = h->member[expert_id].layer;
    const bool passed = h->layers > 1 && (layer < h->layer || (layer == h->layer && h->layer_done));
    const int64_t steps = (int64_t)(h->now - h->entry[expert_id].last);
    return passed || steps < 1 ? steps : steps - 1;
}

/* Ages experts whose layer ran without using them, and records that in their cells. */
static void grow_older(mo_adaptive *h)
{
    for (int age = 0; age < AGES - 1; age++) {
        list *l = &h->young[age];
        while (l->head != NONE && chances_since(h, l->head) >= age_begin(age + 1)) {
            const int32_t expert_id = l->head;
            learn(h, expert_id, age_begin(age + 1) - age_begin(age), 0);
            remove_from(h, l, expert_id, true);
            sort_in(h, expert_id, age + 1);
            if (age + 1 < AGES - 1) {
                append(h, &h->young[age + 1], expert_id, true);
            }
        }
    }
}

/* ---- Calls -------------------------------------------------------------------------------------- */

mo_adaptive *mo_adaptive_create(mo_arena *memory, mo_policy_entry *entries, int32_t experts)
{
    mo_adaptive *h = mo_arena_alloc(memory, sizeof *h);
    member *members = mo_arena_array(memory, (size_t)experts, sizeof *members);
    if (!h || !members) {
        return NULL;
    }
    h->entry = entries;
    h->member = members;
    h->layers = 1;
    h->window = fmax(8192.0, (double)WINDOW * experts);
    h->tick = 1.0 / experts;
    for (int age = 0; age < AGES - 1; age++) {
        h->young[age] = (list){NONE, NONE};
    }
    for (int i = 0; i < CELLS; i++) {
        /* Initial assumption: a token uses one expert of 16, each as often as before, and a third of the
         * picks repeat the last token's. */
        const double rate = fmin(1.0, exp2(0.5 * (i % RATES) - 0.25 * RATES) / 16.0);
        h->cells[i] = (cell){
            .chances = PRIOR, .uses = PRIOR * (i < RATES ? 0.3 + 0.7 * rate : rate), .members = {NONE, NONE}};
    }
    for (int32_t i = 0; i < experts; i++) {
        sort_in(h, i, AGES - 1);
    }
    return h;
}

void mo_adaptive_place(mo_adaptive *h, int32_t expert_id, int32_t layer)
{
    assert(layer >= 0 && h->entry[expert_id].count == 0);
    h->member[expert_id].layer = layer;
    h->layers = layer >= h->layers ? layer + 1 : h->layers;
}

/* Long prompts touch nearly all experts, so the number of tokens counts too, but less than as many steps. */
static double weight_of(uint32_t picks)
{
    int octave;
    frexp(picks, &octave);
    return octave;
}

void mo_adaptive_touch(mo_adaptive *h, int32_t expert_id, uint64_t now, uint32_t picks)
{
    mo_policy_entry *e = &h->entry[expert_id];
    member *m = &h->member[expert_id];
    if (now != h->now || m->layer != h->layer) {
        h->now = now;
        h->layer = m->layer;
        h->layer_done = false;
        grow_older(h);
    }
    /* among many tokens some always use it: nothing to learn */
    if (e->count && picks == 1 && e->last < now) {
        const int64_t missed = chances_since(h, expert_id) - age_begin(m->age);
        learn(h, expert_id, missed > 0 ? missed + 1 : 1, 1);
    }
    h->time += h->tick;
    bring_up(h, expert_id);
    e->score += weight_of(picks);
    e->slow += weight_of(picks);
    e->last = now;
    if (e->count++ && m->age < AGES - 1) {
        remove_from(h, &h->young[m->age], expert_id, true);
    }
    append(h, &h->young[0], expert_id, true);
    sort_in(h, expert_id, 0);
}

void mo_adaptive_seed(mo_adaptive *h, int32_t expert_id, uint64_t hits, uint64_t most)
{
    const double rate = most ? SEED_MOST * (double)hits / (double)most : 0.0;
    mo_policy_entry *e = &h->entry[expert_id];
    assert(e->count == 0);
    e->score = rate * FAST;
    e->slow = rate * SEED_TIME;
    sort_in(h, expert_id, AGES - 1);
}

/* A layer's experts are released in the order in which they were computed, which depends on disk timing. They
 * are kept in touch order in their cell, so that the choice of the victim does not depend on it. */
static void enter_cell(mo_adaptive *h, int32_t expert_id)
{
    member *m = &h->member[expert_id];
    list *l = &h->cells[m->cell].members;
    int32_t before = l->tail;
    while (before != NONE && h->member[before].time > m->time) {
        before = h->member[before].by_cell.before;
    }
    if (before == l->tail) {
        append(h, l, expert_id, false);
        return;
    }
    const int32_t after = before != NONE ? h->member[before].by_cell.after : l->head;
    m->by_cell = (link){before, after};
    h->member[after].by_cell.before = expert_id;
    if (before != NONE) {
        h->member[before].by_cell.after = expert_id;
    } else {
        l->head = expert_id;
    }
}

void mo_adaptive_enter(mo_adaptive *h, int32_t expert_id)
{
    member *m = &h->member[expert_id];
    assert(!m->listed);
    m->listed = true;
    enter_cell(h, expert_id);
}

void mo_adaptive_leave(mo_adaptive *h, int32_t expert_id)
{
    member *m = &h->member[expert_id];
    assert(m->listed);
    m->listed = false;
    remove_from(h, &h->cells[m->cell].members, expert_id, false);
}

/* The part of a pass until the expert's layer runs: above 0, at most 1. */
static double time_until(const mo_adaptive *h, int32_t expert_id)
{
    const int32_t ahead = h->member[expert_id].layer - h->layer;
    return (double)(ahead > 0 ? ahead : ahead + h->layers) / h->layers;
}

int32_t mo_adaptive_victim(mo_adaptive *h)
{
    int32_t victim = NONE;
    double least = INFINITY;
    h->layer_done = true;
    grow_older(h);
    for (int i = 0; i < CELLS; i++) {
        /* The last expert to enter belongs to the layer that has just run. Among the oldest, the first has
         * waited longest and its counts are the most outdated. */
        const list *l = &h->cells[i].members;
        const int32_t expert_id = i / RATES == AGES - 1 ? l->head : l->tail;
        if (expert_id != NONE) {
            const double value = worth(&h->cells[i]) / (NEAR + time_until(h, expert_id));
            if (value < least) {
                least = value;
                victim = expert_id;
            }
        }
    }
    return victim;
}

double mo_adaptive_chance(const mo_adaptive *h, int32_t expert_id)
{
    return worth(&h->cells[h->member[expert_id].cell]);
}
