/* Span: the position of a grid point between two points of another grid with the same corners. */
#ifndef MO_PICTURE_SPAN_H
#define MO_PICTURE_SPAN_H

#include <stdint.h>

typedef struct mo_span {
    int64_t low, high; /* points in the other grid */
    float t;           /* fraction of the way from low to high */
} mo_span;

/* The distance between two points of a grid of `target` points, measured in a grid of `length` points. */
static inline float mo_span_ratio(int64_t length, int64_t target)
{
    return target > 1 ? (float)(length - 1) / (float)(target - 1) : 0.0f;
}

static inline mo_span mo_span_find(int64_t point, float ratio, int64_t length)
{
    const float at = (float)point * ratio;
    mo_span s;
    s.low = (int64_t)at < length - 1 ? (int64_t)at : length - 1;
    s.high = s.low + 1 < length - 1 ? s.low + 1 : length - 1;
    s.t = at - (float)s.low;
    return s;
}

static inline float mo_span_mix(float low, float high, float t)
{
    return low + (high - low) * t;
}

#endif
