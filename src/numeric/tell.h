/* Tell: what functions that are compiled without the thread sanitizer read and write (src/CMakeLists.txt names their files). In
 * other builds this is nothing. Of weights it is told one word of each row: they are written by whole rows. */
#ifndef MO_NUMERIC_TELL_H
#define MO_NUMERIC_TELL_H

#include "numeric/acts.h"
#include "numeric/weights.h"

#ifdef MO_TELL
void __tsan_read_range(void *at, long bytes);
void __tsan_write_range(void *at, long bytes);

static inline void mo_tell_read(const void *at, int64_t bytes)
{
    __tsan_read_range((void *)at, (long)bytes);
}

static inline void mo_tell_write(void *at, int64_t bytes)
{
    __tsan_write_range(at, (long)bytes);
}

static inline void mo_tell_product(const mo_weights *w, int64_t row_begin, int64_t row_end,
                                   const mo_acts *acts, const int32_t *pick, int64_t count, float *y,
                                   int64_t y_stride)
{
    const mo_format *f = mo_format_of(w->type);
    const int64_t row_bytes = mo_format_row_bytes(f, w->cols);
    for (int64_t r = row_begin; r < row_end && row_bytes > 0; r++) {
        mo_tell_read(w->data + r * row_bytes, 1);
    }
    for (int64_t t = 0; t < count && row_begin < row_end; t++) {
        const int64_t a = pick ? pick[t] : t;
        if (f->kind == MO_KIND_FLOAT) {
            mo_tell_read(acts->x + a * acts->cols, 4 * w->cols);
        } else { /* sums are written with the codes and scales */
            mo_tell_read(acts->q + a * acts->cols, w->cols);
            mo_tell_read(acts->d + a * (acts->cols / 32), 4 * (w->cols / 32));
        }
        mo_tell_write(y + t * y_stride + row_begin, 4 * (row_end - row_begin));
    }
    if (pick) {
        mo_tell_read(pick, 4 * count);
    }
}
#else
static inline void mo_tell_read(const void *at, int64_t bytes)
{
    (void)at, (void)bytes;
}

static inline void mo_tell_write(void *at, int64_t bytes)
{
    (void)at, (void)bytes;
}

static inline void mo_tell_product(const mo_weights *w, int64_t row_begin, int64_t row_end,
                                   const mo_acts *acts, const int32_t *pick, int64_t count, float *y,
                                   int64_t y_stride)
{
    (void)w, (void)row_begin, (void)row_end, (void)acts, (void)pick, (void)count, (void)y, (void)y_stride;
}
#endif

#endif
