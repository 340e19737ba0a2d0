#include "numeric/streams.h"

#include <string.h>

/* ---- Shares ----------------------------------------------------------------------------------- */

/* y[n] = sigmoid(mix * scale + base). */
static void open_shares(const mo_kernels *k, const float *mix, const float *base, float scale, float *y,
                        int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float scaled = mix[i] * scale;
        y[i] = scaled + base[i];
    }
    k->sigmoid(y, y, n);
}

static void divide_columns(float (*c)[MO_STREAMS], float eps)
{
    for (int to = 0; to < MO_STREAMS; to++) {
        float sum = 0.0f;
        for (int of = 0; of < MO_STREAMS; of++) {
            sum += c[of][to];
        }
        for (int of = 0; of < MO_STREAMS; of++) {
            c[of][to] /= sum + eps;
        }
    }
}

static void divide_rows(float (*c)[MO_STREAMS], float eps)
{
    for (int of = 0; of < MO_STREAMS; of++) {
        float sum = 0.0f;
        for (int to = 0; to < MO_STREAMS; to++) {
            sum += c[of][to];
        }
        for (int to = 0; to < MO_STREAMS; to++) {
            c[of][to] /= sum + eps;
        }
    }
}

void mo_streams_balance(const mo_kernels *k, const mo_streams_rule *r, const float *mix, const float *base,
                        const float *scale, mo_streams_shares *out)
{
    float(*c)[MO_STREAMS] = out->mix;
    mo_streams_last(k, r, mix, base, scale, out->in);
    open_shares(k, mix + MO_STREAMS, base + MO_STREAMS, scale[1], out->out, MO_STREAMS);
    k->scale(out->out, 2.0f, MO_STREAMS);
    for (int of = 0; of < MO_STREAMS; of++) {
        for (int to = 0; to < MO_STREAMS; to++) {
            const int64_t i = 2 * MO_STREAMS + of * MO_STREAMS + to;
            const float scaled = mix[i] * scale[2];
            c[of][to] = scaled + base[i];
        }
        k->softmax(c[of], MO_STREAMS);
        for (int to = 0; to < MO_STREAMS; to++) {
            c[of][to] += r->eps;
        }
    }
    divide_columns(c, r->eps);
    for (int i = 1; i < r->iterations; i++) {
        divide_rows(c, r->eps);
        divide_columns(c, r->eps);
    }
}

void mo_streams_last(const mo_kernels *k, const mo_streams_rule *r, const float *mix, const float *base,
                     const float *scale, float in[MO_STREAMS])
{
    open_shares(k, mix, base, scale[0], in, MO_STREAMS);
    for (int s = 0; s < MO_STREAMS; s++) {
        in[s] += r->eps;
    }
}

/* ---- Streams ---------------------------------------------------------------------------------- */

void mo_streams_read(const mo_kernels *k, const mo_streams_rule *r, const float *in, const float *x, float *u)
{
    memset(u, 0, sizeof *u * (size_t)r->width);
    for (int s = 0; s < MO_STREAMS; s++) {
        k->axpy(u, in[s], x + s * r->width, r->width);
    }
}

/* Piece by piece: every new value needs the old ones of all streams. */
bool mo_streams_write(const mo_kernels *k, const mo_streams_rule *r, const mo_streams_shares *s,
                      const float *y, float *x)
{
    enum { PIECE = 128 };
    float old[MO_STREAMS][PIECE];
    bool finite = true;
    for (int64_t from = 0; from < r->width; from += PIECE) {
        const int64_t n = r->width - from < PIECE ? r->width - from : PIECE;
        for (int of = 0; of < MO_STREAMS; of++) {
            memcpy(old[of], x + of * r->width + from, sizeof(float) * (size_t)n);
        }
        for (int to = 0; to < MO_STREAMS; to++) {
            float *now = x + to * r->width + from;
            memcpy(now, y + from, sizeof *now * (size_t)n);
            k->scale(now, s->out[to], n);
            for (int of = 0; of < MO_STREAMS; of++) {
                k->axpy(now, s->mix[of][to], old[of], n);
            }
            finite = k->finite(now, n) && finite;
        }
    }
    return finite;
}
