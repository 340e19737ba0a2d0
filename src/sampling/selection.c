#include "sampling/selection.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "numeric/math.h"

enum {
    LANES = 16,       /* so that compilers use vectors */
    CHUNK = 256,      /* a multiple of LANES */
    HEAP_MOST = 4096, /* up to this count a heap is used; above, all logits are sorted */
};

/* ---- Maximum ---- */

/* Which of several equal logits is found makes no difference, because only the value is returned. */
float mo_largest(const float *x, int64_t n)
{
    float lane[LANES];
    int64_t i = 0;
    for (int j = 0; j < LANES; j++) {
        lane[j] = -INFINITY;
    }
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) {
            lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
        }
    }
    for (; i < n; i++) {
        lane[0] = x[i] > lane[0] ? x[i] : lane[0];
    }
    float best = lane[0];
    for (int j = 1; j < LANES; j++) {
        best = lane[j] > best ? lane[j] : best;
    }
    return best;
}

int32_t mo_likeliest(const float *logits, int64_t n)
{
    float best = -INFINITY;
    int64_t chunk = -1;
    for (int64_t i = 0; i < n; i += CHUNK) {
        const float here = mo_largest(logits + i, n - i < CHUNK ? n - i : CHUNK);
        if (here > best) {
            best = here;
            chunk = i;
        }
    }
    while (chunk >= 0 && logits[chunk] != best) {
        chunk++;
    }
    return (int32_t)chunk;
}

/* ---- Sorting ---- */

/* Maps descending floats to ascending numbers. Both zeros are equal, NaN is last. */
static uint32_t rank_of(float logit)
{
    const uint32_t bits = mo_bits_of(isnan(logit) ? -INFINITY : logit + 0.0f);
    return bits & 0x80000000u ? bits : ~(bits | 0x80000000u);
}

/* Radix sort by eight bits, lowest first. The number of passes is even, so the result is in `list`. */
void mo_rank_sort(mo_ranked *list, mo_ranked *other, int64_t count)
{
    for (int shift = 0; shift < 32; shift += 8) {
        int32_t at[256] = {0}, next = 0;
        for (int64_t i = 0; i < count; i++) {
            at[list[i].rank >> shift & 255]++;
        }
        for (int digit = 0; digit < 256; digit++) {
            const int32_t here = at[digit];
            at[digit] = next;
            next += here;
        }
        for (int64_t i = 0; i < count; i++) {
            other[at[list[i].rank >> shift & 255]++] = list[i];
        }
        mo_ranked *sorted = other;
        other = list;
        list = sorted;
    }
}

/* Selects and sorts the tokens whose logit is at least `least`. Returns their number. */
static int64_t take_above(const float *logits, int64_t vocab, float least, int32_t *tokens, mo_ranked *ranked)
{
    int64_t count = 0;
    for (int64_t i = 0; i < vocab; i++) {
        ranked[count] = (mo_ranked){rank_of(logits[i]), (int32_t)i};
        count += !(logits[i] < least);
    }
    mo_rank_sort(ranked, ranked + vocab, count);
    for (int64_t i = 0; i < count; i++) {
        tokens[i] = ranked[i].token;
    }
    return count;
}

void mo_select_among(const float *logits, int32_t *tokens, int64_t count, mo_ranked *ranked)
{
    for (int64_t i = 0; i < count; i++) {
        ranked[i] = (mo_ranked){(uint32_t)tokens[i], tokens[i]};
    }
    mo_rank_sort(ranked, ranked + count, count); /* equal logits must be in the order of tokens */
    for (int64_t i = 0; i < count; i++) {
        ranked[i].rank = rank_of(logits[ranked[i].token]);
    }
    mo_rank_sort(ranked, ranked + count, count);
    for (int64_t i = 0; i < count; i++) {
        tokens[i] = ranked[i].token;
    }
}

/* ---- The most likely by number ---- */

static bool before(const float *logits, int32_t a, int32_t b)
{
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

static void sift(const float *logits, int32_t *heap, int64_t n, int64_t i)
{
    const int32_t moving = heap[i];
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child >= n) {
            break;
        }
        if (child + 1 < n && before(logits, heap[child], heap[child + 1])) {
            child++;
        }
        if (before(logits, heap[child], moving)) {
            break;
        }
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moving;
}

void mo_select_count(const float *logits, int64_t vocab, int64_t count, int32_t *tokens, mo_ranked *ranked)
{
    int64_t held = 0;
    if (count > HEAP_MOST) {
        take_above(logits, vocab, -INFINITY, tokens, ranked);
        return;
    }
    /* With the least likely token on top almost every chunk is skipped by one comparison: a later token
       must have a larger logit. */
    for (int64_t from = 0; from < vocab; from += CHUNK) {
        const int64_t to = vocab - from < CHUNK ? vocab : from + CHUNK;
        if (held == count && !(mo_largest(logits + from, to - from) > logits[tokens[0]])) {
            continue;
        }
        for (int64_t i = from; i < to; i++) {
            if (held < count) {
                tokens[held++] = (int32_t)i;
                for (int64_t at = held / 2; held == count && at-- > 0;) {
                    sift(logits, tokens, held, at);
                }
            } else if (logits[i] > logits[tokens[0]]) {
                tokens[0] = (int32_t)i;
                sift(logits, tokens, held, 0);
            }
        }
    }
    while (held > 1) { /* move the least likely to the end */
        const int32_t worst = tokens[0];
        tokens[0] = tokens[--held];
        sift(logits, tokens, held, 0);
        tokens[held] = worst;
    }
}

/* ---- The most likely by probability ---- */

enum {
    STEPS = MO_SHARE_STEPS,
    /* steps below the best logit, and per distance of 1 */
    STEPS_OF_ONE = 16
};

/* The step of a logit below the best. */
static int step_of(float best, float logit)
{
    const float steps = (best - logit) * (float)STEPS_OF_ONE;
    return steps < (float)(STEPS - 1) ? (int)steps : STEPS - 1;
}

void mo_shares_add(mo_shares *shares, const float *logits, int64_t vocab, float best)
{
    *shares = (mo_shares){.best = best};
    for (int64_t from = 0; from < vocab; from += CHUNK) {
        float part[CHUNK];
        const int64_t count = vocab - from < CHUNK ? vocab - from : CHUNK;
        for (int64_t i = 0; i < count; i++) {
            part[i] = mo_exp(logits[from + i] - best);
        }
        for (int64_t i = 0; i < count; i++) {
            shares->total += (double)part[i];
            shares->steps[step_of(best, logits[from + i])] += (double)part[i];
        }
    }
}

/* A logit such that the larger ones reach the sum in any order of adding. -INFINITY: there is none. */
static float border_of(const mo_shares *shares, double sum)
{
    /* Orders of adding differ by less than the vocabulary's size times 2^-52, far below this margin. */
    const double enough = sum * (1.0 + 1e-9);
    double above = 0.0;
    for (int step = 0; step < STEPS - 1; step++) {
        above += shares->steps[step];
        if (above >= enough) { /* one more step, because the borders of steps are rounded */
            return shares->best - (float)(step + 2) / (float)STEPS_OF_ONE;
        }
    }
    return -INFINITY;
}

int64_t mo_select_share(const mo_shares *shares, const float *logits, int64_t vocab, double sum, float least,
                        int32_t *tokens, mo_ranked *ranked)
{
    const float border = border_of(shares, sum);
    return take_above(logits, vocab, border > least ? border : least, tokens, ranked);
}
