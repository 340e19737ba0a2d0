/* Attend: one chunk of attention in floats for many queries, a part of ops_body.h on the registers of lanes_*.h.
 *
 * Queries come by rows, as many at a time as share what is loaded. Their scores are made in one of two
 * ways: few queries with keys as they are stored, a sum across lanes for each score; many queries with turned keys,
 * one position per lane, so that the 32 lanes of numerics.md are registers and no lanes meet (where a set gains
 * by it, LANES_TURN). The values are then added with one value per lane. */
#ifndef MO_NUMERIC_LANES_ATTEND_BODY_H
#define MO_NUMERIC_LANES_ATTEND_BODY_H

enum {
    ROWS = 64,     /* queries that share what was loaded */
    MANY = 16,     /* from this many on transposed keys pay, see docs/lab-notes.md */
    LENGTH = 1024, /* the longest key or value on the fast path */
    FLOATS = 8192, /* of all queries of a round */
    VALUES = 32,   /* positions whose values are loaded at a time */
    TILE = 4,      /* queries per register tile */
};

/* What one call keeps in its scratch: 192 KiB, with AVX-512 224. Rows of keys, queries and values follow each other without a gap:
 * at a distance of a power of two they would share too few places in the first cache. */
typedef struct attend_space {
    float score[ROWS][MO_CHUNK]; /* index u mod 256, -infinity where masked; then the weights p */
    union {
        struct {
            /* Both padded to a multiple of 32 with +0. A lane that underflowed to -0 becomes +0 by it,
             * which shows in the sign of a zero score at most, and so in nothing that is made of it. */
            float q[FLOATS];
            float key[LANES * LENGTH];
            vf part[ROWS][LANES]; /* a register before its tree, for each query and position */
        } few;
        float turned[LENGTH][LANES]; /* keys, one position per lane */
        float value[VALUES * LENGTH];
    };
} attend_space;

_Static_assert(sizeof(attend_space) <= sizeof(mo_scratch), "a chunk of attention fits the scratch");

/* The rows of one round: queries q + r * k_len. */
typedef struct attend_round {
    const mo_kv_head *kv;
    const float *q;
    float *o;
    int64_t rows;
    int64_t k_pad; /* k_len to the next multiple of 32 */
    float scale;
    mo_seen seen[ROWS]; /* by each row */
} attend_round;

/* What `rows` rows from `row` on see together. */
MO_INLINE mo_seen seen_by(const attend_round *a, int64_t row, int64_t rows)
{
    mo_seen s = a->seen[row];
    for (int64_t i = row + 1; i < row + rows; i++) {
        s.begin = a->seen[i].begin < s.begin ? a->seen[i].begin : s.begin;
        s.end = a->seen[i].end > s.end ? a->seen[i].end : s.end;
    }
    return s;
}

/* Whether `rows` rows from `row` on see any of the `count` positions from `begin` on. */
MO_INLINE bool sees(const attend_round *a, int64_t row, int64_t rows, int64_t begin, int64_t count)
{
    const mo_seen seen = seen_by(a, row, rows);
    return seen.begin < begin + count && seen.end > begin;
}

/* Whether TILE rows all see the same. */
MO_INLINE bool see_alike(const attend_round *a, int64_t row)
{
    bool alike = true;
    for (int64_t i = row + 1; i < row + TILE; i++) {
        alike = alike && a->seen[i].begin == a->seen[row].begin && a->seen[i].end == a->seen[row].end;
    }
    return alike;
}

/* Rows from `row` on that make one tile: TILE, or 1 if fewer are left. */
MO_INLINE int64_t tile_rows(const attend_round *a, int64_t row)
{
    return row + TILE <= a->rows ? TILE : 1;
}

/* A vector of the cache; elements from n to the next multiple of 32 become 0. */
static void load_vector(const uint8_t *p, int64_t n, float *out)
{
    memcpy(out, p, sizeof *out * (size_t)n);
    for (int64_t i = n; i % 32 != 0; i++) {
        out[i] = 0.0f;
    }
}

/* ---- Few queries ------------------------------------------------------------------------------ */

static void load_few(attend_space *s, const attend_round *a)
{
    for (int64_t r = 0; r < a->rows; r++) {
        float *to = s->few.q + r * a->k_pad;
        memcpy(to, a->q + r * a->kv->k_len, sizeof *to * (size_t)a->kv->k_len);
        for (int64_t i = a->kv->k_len; i < a->k_pad; i++) {
            to[i] = 0.0f;
        }
    }
}

/* LANES_TILE keys with `rows` (1 or TILE) queries: each dot product up to one register. */
MO_INLINE void score_tile(attend_space *s, int64_t key, int64_t row, int rows, int64_t n)
{
    vf slice[GROUP][LANES_TILE][TILE];
    for (int r = 0; r < GROUP; r++) {
        vf acc[LANES_TILE][TILE];
        for (int u = 0; u < LANES_TILE; u++) {
            for (int h = 0; h < rows; h++) {
                acc[u][h] = vf_set(0.0f);
            }
        }
        for (int64_t i = r * LANES; i < n; i += 32) {
            vf k[LANES_TILE];
            for (int u = 0; u < LANES_TILE; u++) {
                k[u] = vf_load(s->few.key + (key + u) * n + i);
            }
            for (int h = 0; h < rows; h++) {
                const vf q = vf_load(s->few.q + (row + h) * n + i);
                for (int u = 0; u < LANES_TILE; u++) {
                    acc[u][h] = vf_fma(q, k[u], acc[u][h]);
                }
            }
        }
        for (int u = 0; u < LANES_TILE; u++) {
            for (int h = 0; h < rows; h++) {
                slice[r][u][h] = acc[u][h];
            }
        }
    }
    for (int u = 0; u < LANES_TILE; u++) {
        for (int h = 0; h < rows; h++) {
            vf lane[GROUP];
            for (int r = 0; r < GROUP; r++) {
                lane[r] = slice[r][u][h];
            }
            s->few.part[row + h][key + u] = fold_group(lane);
        }
    }
}

/* Scores of the `count` positions from `begin` on, whose keys are at `key`; `at` is the place of the first. */
static void score_few(attend_space *s, const attend_round *a, const uint8_t *key, int64_t count, int64_t at,
                      int64_t begin)
{
    const int64_t n = a->k_pad;
    for (int64_t u = 0; u < LANES; u++) {
        if (u < count) {
            load_vector(key + u * a->kv->k_bytes, a->kv->k_len, s->few.key + u * n);
        } else {
            memset(s->few.key + u * n, 0, sizeof(float) * (size_t)n);
        }
    }
    for (int64_t r = 0; r < a->rows; r += tile_rows(a, r)) {
        const int64_t rows = tile_rows(a, r);
        if (!sees(a, r, rows, begin, count)) {
            continue;
        }
        for (int64_t u = 0; u < LANES; u += LANES_TILE) {
            if (rows == TILE) {
                score_tile(s, u, r, TILE, n);
            } else {
                score_tile(s, u, r, 1, n);
            }
        }
        for (int64_t h = r; h < r + rows; h++) {
            put(s->score[h] + at, vf_mul(vf_set(a->scale), vf_sum_trees(s->few.part[h])), count);
        }
    }
}

/* ---- Many queries ----------------------------------------------------------------------------- */

/* LANES floats of a cache in F32, at any address. */
MO_INLINE vf load_bytes(const uint8_t *p)
{
    float x[LANES];
    memcpy(x, p, sizeof x);
    return vf_load(x);
}

/* Turns `count` keys of floats so that each lane has a position; absent ones are 0. */
static void turn_floats(attend_space *s, const attend_round *a, const uint8_t *key, int64_t count)
{
    for (int64_t i = 0; i < a->kv->k_len; i += LANES) {
        vf row[LANES], zipped[LANES];
        MO_UNROLL
        for (int u = 0; u < LANES; u++) {
            row[u] = u < count ? load_bytes(key + u * a->kv->k_bytes + 4 * i) : vf_set(0.0f);
        }
        MO_UNROLL
        for (int width = 1; width < LANES; width *= 2) { /* rows u and u + LANES/2 become 2u and 2u + 1 */
            MO_UNROLL
            for (int u = 0; u < LANES / 2; u++) {
                vf_zip(row[u], row[u + LANES / 2], &zipped[2 * u], &zipped[2 * u + 1]);
            }
            MO_UNROLL
            for (int u = 0; u < LANES; u++) {
                row[u] = zipped[u];
            }
        }
        MO_UNROLL
        for (int u = 0; u < LANES; u++) {
            vf_store(s->turned[i + u], row[u]);
        }
    }
}

/* Lanes i and i + 16 of numerics.md for `rows` queries, added. */
MO_INLINE void two_lanes(const attend_space *s, const float *q, int64_t n, int rows, int i, vf *out)
{
    vf low[TILE], high[TILE];
    for (int h = 0; h < rows; h++) {
        low[h] = high[h] = vf_set(0.0f);
    }
    for (int64_t j = i; j < n; j += 32) {
        const vf k_low = vf_load(s->turned[j]), k_high = vf_load(s->turned[j + 16]);
        for (int h = 0; h < rows; h++) {
            low[h] = vf_fma(vf_set(q[h * n + j]), k_low, low[h]);
            high[h] = vf_fma(vf_set(q[h * n + j + 16]), k_high, high[h]);
        }
    }
    for (int h = 0; h < rows; h++) {
        out[h] = vf_add(low[h], high[h]);
    }
}

/* The tree over 16 such pairs: those whose numbers differ in the highest bit meet first, so they are made in
 * the order of reversed bits, and after the pair x as many levels close as x has ones at its end. */
MO_INLINE void score_turned(const attend_space *s, const float *q, int64_t n, int rows, vf *out)
{
    vf open[4][TILE];
    MO_UNROLL
    for (int x = 0; x < 16; x++) {
        const int i = (x & 1) << 3 | (x & 2) << 1 | (x & 4) >> 1 | (x & 8) >> 3;
        vf sum[TILE];
        two_lanes(s, q, n, rows, i, sum);
        int level = 0;
        MO_UNROLL
        for (int l = 0; l < 4; l++) {
            const int ones = (2 << l) - 1;
            for (int h = 0; (x & ones) == ones && h < rows; h++) {
                sum[h] = vf_add(open[l][h], sum[h]);
            }
            level += (x & ones) == ones;
        }
        for (int h = 0; h < rows; h++) {
            *(level < 4 ? &open[level][h] : &out[h]) = sum[h];
        }
    }
}

static void score_many(attend_space *s, const attend_round *a, const uint8_t *key, int64_t count, int64_t at,
                       int64_t begin)
{
    const int64_t n = a->kv->k_len;
    const vf scale = vf_set(a->scale);
    turn_floats(s, a, key, count);
    for (int64_t r = 0; r < a->rows; r += tile_rows(a, r)) {
        const int64_t rows = tile_rows(a, r);
        if (!sees(a, r, rows, begin, count)) {
            continue;
        }
        vf score[TILE];
        if (rows == TILE) {
            score_turned(s, a->q + r * n, n, TILE, score);
        } else {
            score_turned(s, a->q + r * n, n, 1, score);
        }
        for (int64_t h = 0; h < rows; h++) {
            put(s->score[r + h] + at, vf_mul(scale, score[h]), count);
        }
    }
}

/* ---- Values ----------------------------------------------------------------------------------- */

/* o += p v for loaded positions from .. to - 1, `rows` (1 or TILE) queries and `regs` registers of the values,
 * all of them whole but for the last. `at` is the place of the first loaded position. */
MO_INLINE void value_tile(const attend_space *s, const attend_round *a, int64_t at, int64_t from, int64_t to,
                          int64_t row, int rows, int64_t j, int regs, int64_t pad)
{
    const int64_t n = a->kv->v_len;
    float *o = a->o + row * n + j;
    vf acc[TILE][LANES_VALUES];
    for (int h = 0; h < rows; h++) {
        for (int i = 0; i < regs; i++) {
            acc[h][i] = get(o + h * n + i * LANES, n - j - i * LANES);
        }
    }
    for (int64_t u = from; u < to; u++) {
        vf v[LANES_VALUES];
        for (int i = 0; i < regs; i++) {
            v[i] = vf_load(s->value + u * pad + j + i * LANES);
        }
        for (int h = 0; h < rows; h++) {
            const vf p = vf_set(s->score[row + h][at + u]);
            for (int i = 0; i < regs; i++) {
                acc[h][i] = vf_fma(p, v[i], acc[h][i]);
            }
        }
    }
    for (int h = 0; h < rows; h++) {
        for (int i = 0; i < regs; i++) {
            put(o + h * n + i * LANES, acc[h][i], n - j - i * LANES);
        }
    }
}

MO_INLINE void value_rows(const attend_space *s, const attend_round *a, int64_t at, int64_t from, int64_t to,
                          int64_t row, int rows, int64_t pad)
{
    int64_t j = 0;
    for (; j + LANES_VALUES * LANES <= a->kv->v_len; j += LANES_VALUES * LANES) {
        value_tile(s, a, at, from, to, row, rows, j, LANES_VALUES, pad);
    }
    for (; j < a->kv->v_len; j += LANES) {
        value_tile(s, a, at, from, to, row, rows, j, 1, pad);
    }
}

/* Adds `count` positions, the first of which is `begin`. */
static void add_values(attend_space *s, const attend_round *a, const uint8_t *value, int64_t count,
                       int64_t begin)
{
    const int64_t pad = (a->kv->v_len + 31) / 32 * 32, at = begin % MO_CHUNK;
    for (int64_t u = 0; u < count; u++) {
        load_vector(value + u * a->kv->v_bytes, a->kv->v_len, s->value + u * pad);
    }
    for (int64_t r = 0; r < a->rows;) {
        const int64_t rows = r + TILE <= a->rows && see_alike(a, r) ? TILE : 1;
        const mo_seen seen = a->seen[r];
        const int64_t from = seen.begin > begin ? seen.begin - begin : 0;
        const int64_t to = seen.end < begin + count ? seen.end - begin : count;
        if (from < to && rows == TILE) {
            value_rows(s, a, at, from, to, r, TILE, pad);
        } else if (from < to) {
            value_rows(s, a, at, from, to, r, 1, pad);
        }
        r += rows;
    }
}

/* ---- A chunk ---------------------------------------------------------------------------------- */

/* Masks what a row does not see of the blocks of 32 it sees something of; then weights, their sum and their
 * largest score. */
static void weigh(attend_space *s, const attend_round *a, float *m, float *l)
{
    for (int64_t r = 0; r < a->rows; r++) {
        const mo_seen seen = a->seen[r];
        float *score = s->score[r];
        const int64_t begin = seen.begin % MO_CHUNK, end = begin + seen.end - seen.begin;
        const int64_t from = begin / 32 * 32, to = (end + 31) / 32 * 32;
        for (int64_t i = from; i < begin; i++) {
            score[i] = -INFINITY;
        }
        for (int64_t i = end; i < to; i++) {
            score[i] = -INFINITY;
        }
        m[r] = largest(score + from, to - from);
        l[r] = exp_row(score + from, to - from, m[r]);
    }
}

/* Positions from u on that are taken at once: at most `most`, before `end`, in one block of the cache. */
MO_INLINE int64_t run_of(int64_t u, int64_t end, int64_t most)
{
    const int64_t left = end - u < most ? end - u : most, run = mo_kv_run(u);
    return left < run ? left : run;
}

static void attend_rows(attend_space *s, const attend_round *a, bool many, float *m, float *l)
{
    const mo_kv_head *kv = a->kv;
    const mo_seen all = seen_by(a, 0, a->rows);
    const int64_t begin = all.begin, end = all.end;
    if (!many) {
        load_few(s, a);
    }
    for (int64_t u = begin, some; u < end; u += some) {
        const uint8_t *key = mo_kv_key(kv, u);
        some = run_of(u, end, LANES);
        if (many) {
            score_many(s, a, key, some, u % MO_CHUNK, u);
        } else {
            score_few(s, a, key, some, u % MO_CHUNK, u);
        }
    }
    weigh(s, a, m, l);
    memset(a->o, 0, sizeof *a->o * (size_t)(a->rows * kv->v_len));
    for (int64_t u = begin, some; u < end; u += some) {
        some = run_of(u, end, VALUES);
        add_values(s, a, mo_kv_value(kv, u), some, u);
    }
}

static void attend(const mo_kv_head *kv, const mo_seen *spans, int64_t count, const float *q, int64_t heads,
                   float scale, float *m, float *l, float *o, mo_scratch *scratch)
{
    if (kv->k_len > LENGTH || kv->v_len > LENGTH) {
        mo_reference_attend(kv, spans, count, q, heads, scale, m, l, o, scratch);
        return;
    }
    attend_space *space = (void *)scratch;
    const int64_t all = count * heads, pad = (kv->k_len + 31) / 32 * 32;
    const bool many = LANES_TURN && kv->k_len % 32 == 0 && all >= MANY;
    const int64_t fit = many ? ROWS : FLOATS / pad;
    const int64_t most = fit < ROWS ? fit : ROWS;
    for (int64_t r = 0; r < all; r += most) {
        attend_round round = {.kv = kv,
                              .q = q + r * kv->k_len,
                              .o = o + r * kv->v_len,
                              .rows = all - r < most ? all - r : most,
                              .k_pad = pad,
                              .scale = scale};
        for (int64_t i = 0; i < round.rows; i++) {
            round.seen[i] = spans[(r + i) / heads];
        }
        attend_rows(space, &round, many, m + r, l + r);
    }
}

#endif
