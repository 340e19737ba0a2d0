/* Spans body: products along spans. Included by avx2_spans.h and avx512_spans.c, after
 *   span_x, span_lay_out(type, acts, token, x): the activations of a span, and all of a token's;
 *   span_buffer: sums and scales that wait for their fold;
 *   SPAN_ROWS, span_rows(type, job, first, end, y): rows first to end - 1, at most SPAN_ROWS;
 *   SPAN_EACH(X), SPAN_TOKENS(type): the formats, and up to how many tokens a matrix is multiplied faster so than by panels, which are
 *     decoded once for all tokens. */
#ifndef MO_NUMERIC_X86_SPANS_BODY_H
#define MO_NUMERIC_X86_SPANS_BODY_H

typedef struct span_space {
    _Alignas(64) span_x x[SPANS_MAX];
    _Alignas(64) span_buffer buffer;
} span_space;

_Static_assert(sizeof(span_space) <= sizeof(mo_scratch), "spans fit the scratch");

#define SPAN_INSTANCE(name)                                                                                  \
    static void span_rows_##name(const span_job *j, int64_t first, int64_t end, float *y)                    \
    {                                                                                                        \
        span_rows(MO_##name, j, first, end, y);                                                              \
    }
SPAN_EACH(SPAN_INSTANCE)

typedef void span_function(const span_job *j, int64_t first, int64_t end, float *y);
#define SPAN_ENTRY(name) [MO_##name] = span_rows_##name,
static span_function *const span_functions[MO_TYPE_LIMIT] = {SPAN_EACH(SPAN_ENTRY)};

static int64_t spans_tokens(const mo_weights *w)
{
    return span_functions[w->type] && w->cols % 256 == 0 && w->cols / 256 <= SPANS_MAX ? SPAN_TOKENS(w->type)
                                                                                       : 0;
}

static MO_PRODUCT(spans_product)
{
    span_space *space = (void *)scratch;
    /* Rows that are not there have sums and scales of nobody. */
    memset(&space->buffer, 0, sizeof space->buffer);
    for (int64_t t = 0; t < count; t++) {
        const int64_t token = pick ? pick[t] : t, at = token * (acts->cols / 32);
        const span_job j = {w, space->x, acts->sum + at, acts->d + at, &space->buffer};
        span_lay_out(w->type, acts, token, space->x);
        for (int64_t r = row_begin; r < row_end; r += SPAN_ROWS) {
            span_functions[w->type](&j, r, row_end - r < SPAN_ROWS ? row_end : r + SPAN_ROWS,
                                    y + t * y_stride + r);
        }
    }
}

#endif
