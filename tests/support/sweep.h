/* Sweeps: every combination of the values of some axes. A normal run takes a sample: each value of each axis once, and each pair of
 * values of axes that meet in code; under sanitizers each value alone. `make sweep` takes every combination, or cell, in an order that a
 * seed decides, and remembers how many are done, so that an interrupted sweep continues where it stopped.
 *
 *     sweep s = {.name = "store", .axes = {{"model", count}, {"policy", 4}, {"step", 3}}, .meet = {{1, 2}}};
 *     while (sweep_next(&s)) {
 *         check(models[s.at[0]], policies[s.at[1]], s.at[2]);
 *     }
 *
 * In the environment: MO_SWEEP, a folder for the state, asks for every cell; MO_SWEEP_SEED is the seed of a new sweep;
 * MO_SWEEP_CELL=NAME:NUMBER takes that cell alone. A cell that fails is printed with the command that repeats it. */
#ifndef MO_TESTS_SWEEP_H
#define MO_TESTS_SWEEP_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "random.h"
#include "sanitized.h"

enum { SWEEP_AXES = 6, SWEEP_MEETINGS = 6 };

typedef struct sweep_axis {
    const char *name;
    int count;
} sweep_axis;

typedef struct sweep {
    const char *name;
    sweep_axis axes[SWEEP_AXES];
    int meet[SWEEP_MEETINGS][2]; /* axes whose pairs of values a sample takes too */
    int fewer;                   /* of a sample under a sanitizer every such cell; 0: all */
    int at[SWEEP_AXES];          /* this cell's values */
    /* Its own. */
    enum { SWEEP_NEW, SWEEP_SAMPLE, SWEEP_WHOLE, SWEEP_ONE, SWEEP_OVER } mode;
    int64_t cells, cell, done;
    uint64_t seed, factor, offset;
    bool *taken; /* of a sample: values, then pairs */
    int taken_count;
    time_t told;
} sweep;

/* The cell that is being looked at: whoever leaves it behind has failed. */
static sweep sweep_open;

static inline void sweep_print(const sweep *s, FILE *to)
{
    fprintf(to, "# sweep %s, cell %lld:", s->name, (long long)s->cell);
    for (int a = 0; a < SWEEP_AXES && s->axes[a].count; a++) {
        fprintf(to, " %s %d", s->axes[a].name, s->at[a]);
    }
    fprintf(to, "; to repeat it: MO_SWEEP_CELL=%s:%lld %s\n", s->name, (long long)s->cell,
            program_invocation_name);
}

static inline void sweep_failed(void)
{
    if (sweep_open.name) {
        sweep_print(&sweep_open, stdout);
        sweep_open.name = NULL;
    }
}

static inline void sweep_place(sweep *s, int64_t cell)
{
    s->cell = cell;
    for (int a = SWEEP_AXES - 1; a >= 0; a--) {
        const int count = s->axes[a].count ? s->axes[a].count : 1;
        s->at[a] = (int)(cell % count);
        cell /= count;
    }
}

/* ---- State ------------------------------------------------------------------------------------- */

static inline void sweep_path(const sweep *s, char path[512], const char *ending)
{
    snprintf(path, 512, "%s/%s%s", getenv("MO_SWEEP"), s->name, ending);
}

static inline void sweep_save(const sweep *s)
{
    char path[512], next[512];
    sweep_path(s, path, "");
    sweep_path(s, next, ".new");
    FILE *f = fopen(next, "w");
    const bool written = f && fprintf(f, "seed %llu cells %lld done %lld\n", (unsigned long long)s->seed,
                                      (long long)s->cells, (long long)s->done) > 0;
    if (!f || fclose(f) != 0 || !written || rename(next, path) != 0) {
        fprintf(stderr, "sweep %s: %s cannot be written: %s\n", s->name, path, strerror(errno));
        exit(1);
    }
}

/* What was done of this sweep; of one with other cells nothing counts. */
static inline void sweep_load(sweep *s)
{
    const char *seed = getenv("MO_SWEEP_SEED");
    unsigned long long number = 0;
    long long cells = 0, done = 0;
    char path[512];
    sweep_path(s, path, "");
    FILE *f = fopen(path, "r");
    const bool known = f && fscanf(f, "seed %llu cells %lld done %lld", &number, &cells, &done) == 3 &&
                       cells == s->cells && done >= 0 && done <= cells;
    if (f) {
        fclose(f);
    }
    s->seed = seed ? strtoull(seed, NULL, 10) : 1;
    if (known && (!seed || s->seed == number)) {
        s->seed = number;
        s->done = done;
    }
}

static inline void sweep_progress(sweep *s)
{
    const time_t now = time(NULL);
    if (now >= s->told + 5 || s->done == s->cells) {
        s->told = now;
        fprintf(stderr, "sweep %s: %lld of %lld cells, seed %llu\n", s->name, (long long)s->done,
                (long long)s->cells, (unsigned long long)s->seed);
    }
}

/* ---- Samples ----------------------------------------------------------------------------------- */

/* Where the mark of a value is, or of a pair of values of axes that meet. */
static inline bool *sweep_value(const sweep *s, int axis, int value)
{
    int at = value;
    for (int a = 0; a < axis; a++) {
        at += s->axes[a].count;
    }
    return &s->taken[at];
}

static inline bool *sweep_pair(const sweep *s, int meeting, int first, int second)
{
    bool *at = sweep_value(s, SWEEP_AXES, 0);
    for (int m = 0; m < meeting; m++) {
        at += s->axes[s->meet[m][0]].count * s->axes[s->meet[m][1]].count;
    }
    return at + first * s->axes[s->meet[meeting][1]].count + second;
}

static inline bool sweep_meets(const sweep *s, int m)
{
    return s->meet[m][0] != s->meet[m][1];
}

/* How many new values and pairs a cell brings; axes that are -1 are not decided yet. */
static inline int sweep_gain(const sweep *s, const int *at)
{
    int gain = 0;
    for (int a = 0; a < SWEEP_AXES && s->axes[a].count; a++) {
        gain += at[a] >= 0 && !*sweep_value(s, a, at[a]);
    }
    for (int m = 0; m < SWEEP_MEETINGS && sweep_meets(s, m); m++) {
        const int first = at[s->meet[m][0]], second = at[s->meet[m][1]];
        gain += 2 * (first >= 0 && second >= 0 && !*sweep_pair(s, m, first, second));
    }
    return gain;
}

static inline void sweep_take(sweep *s)
{
    for (int a = 0; a < SWEEP_AXES && s->axes[a].count; a++) {
        *sweep_value(s, a, s->at[a]) = true;
    }
    for (int m = 0; m < SWEEP_MEETINGS && sweep_meets(s, m); m++) {
        *sweep_pair(s, m, s->at[s->meet[m][0]], s->at[s->meet[m][1]]) = true;
    }
}

/* Something that no cell has had yet: a pair, or a value. */
static inline bool sweep_wanted(const sweep *s, int *at)
{
    for (int m = 0; m < SWEEP_MEETINGS && sweep_meets(s, m); m++) {
        const int x = s->meet[m][0], y = s->meet[m][1];
        for (int i = 0; i < s->axes[x].count * s->axes[y].count; i++) {
            at[x] = i / s->axes[y].count;
            at[y] = i % s->axes[y].count;
            if (!*sweep_pair(s, m, at[x], at[y])) {
                return true;
            }
        }
        at[x] = at[y] = -1;
    }
    for (int a = 0; a < SWEEP_AXES && s->axes[a].count; a++) {
        for (at[a] = 0; at[a] < s->axes[a].count; at[a]++) {
            if (!*sweep_value(s, a, at[a])) {
                return true;
            }
        }
        at[a] = -1;
    }
    return false;
}

/* The next cell of the sample: one thing that is wanted, and of the other axes the values that bring most. */
static inline bool sweep_sample(sweep *s)
{
    int at[SWEEP_AXES] = {-1, -1, -1, -1, -1, -1};
    if (!sweep_wanted(s, at)) {
        return false;
    }
    int64_t cell = 0;
    for (int a = 0; a < SWEEP_AXES && s->axes[a].count; a++) {
        const int count = s->axes[a].count;
        int best = at[a], most = -1;
        for (int i = 0; at[a] < 0 && i < count; i++) {
            int other[SWEEP_AXES];
            memcpy(other, at, sizeof other);
            other[a] = (int)((s->done + i) % count); /* where all bring the same, each in its turn */
            const int gain = sweep_gain(s, other);
            if (gain > most) {
                most = gain;
                best = other[a];
            }
        }
        at[a] = best;
        cell = cell * count + best;
    }
    sweep_place(s, cell);
    sweep_take(s);
    return true;
}

/* ---- Walking ----------------------------------------------------------------------------------- */

static inline void sweep_begin(sweep *s)
{
    static bool registered;
    if (!registered) {
        registered = true;
        atexit(sweep_failed);
    }
    sweep_failed();
    s->cells = 1;
    int values = 0;
    for (int a = 0; a < SWEEP_AXES && s->axes[a].name; a++) {
        s->cells *= s->axes[a].count;
        values += s->axes[a].count;
    }
    const char *one = getenv("MO_SWEEP_CELL");
    if (one) {
        const size_t length = strlen(s->name);
        const bool ours = strncmp(one, s->name, length) == 0 && one[length] == ':';
        const long long cell = ours ? strtoll(one + length + 1, NULL, 10) : -1;
        if (ours && (cell < 0 || cell >= s->cells)) {
            fprintf(stderr, "sweep %s has cells 0 to %lld\n", s->name, (long long)s->cells - 1);
            exit(2);
        }
        s->cell = cell;
        s->mode = ours ? SWEEP_ONE : SWEEP_OVER;
    } else if (getenv("MO_SWEEP")) {
        sweep_load(s);
        /* Numbers modulo the count, times a factor without a common divisor: every cell once. */
        uint64_t random = s->seed ^ fingerprint(s->name, strlen(s->name));
        s->offset = random_next(&random) % (uint64_t)(s->cells ? s->cells : 1);
        for (uint64_t a = 0, b = 0; b != 1 && s->cells > 1;) {
            s->factor = a = 1 + random_next(&random) % (uint64_t)s->cells;
            for (b = (uint64_t)s->cells; a != 0;) {
                const uint64_t rest = b % a;
                b = a;
                a = rest;
            }
        }
        s->mode = SWEEP_WHOLE;
    } else {
        for (int m = 0; m < SWEEP_MEETINGS && SANITIZED; m++) {
            s->meet[m][0] = s->meet[m][1] = 0;
        }
        for (int m = 0; m < SWEEP_MEETINGS && sweep_meets(s, m); m++) {
            values += s->axes[s->meet[m][0]].count * s->axes[s->meet[m][1]].count;
        }
        s->taken = calloc((size_t)values + 1, 1);
        s->mode = SWEEP_SAMPLE;
    }
}

static inline bool sweep_find(sweep *s)
{
    if (s->mode == SWEEP_ONE) {
        s->mode = SWEEP_OVER;
        sweep_place(s, s->cell);
        return true;
    }
    if (s->mode == SWEEP_WHOLE) {
        sweep_save(s);
        sweep_progress(s);
        if (s->done < s->cells) {
            sweep_place(s, (int64_t)(((unsigned __int128)s->factor * (uint64_t)s->done + s->offset) %
                                     (uint64_t)s->cells));
            return true;
        }
    }
    while (s->mode == SWEEP_SAMPLE && sweep_sample(s)) {
        if (!SANITIZED || s->fewer < 2 || s->done % s->fewer == 0) {
            return true;
        }
        s->done++;
    }
    return false;
}

/* Goes to the next cell, whose values are then in `at`. False: there is none. */
static inline bool sweep_next(sweep *s)
{
    if (s->mode == SWEEP_NEW) {
        sweep_begin(s);
    } else {
        s->done++;
    }
    if (!sweep_find(s)) {
        free(s->taken);
        s->taken = NULL;
        s->mode = SWEEP_OVER;
        sweep_open.name = NULL;
        return false;
    }
    sweep_open = *s;
    return true;
}

#endif
