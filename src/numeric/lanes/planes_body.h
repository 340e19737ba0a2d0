/* Planes body: sum_planes() of lanes/planes.h, or SUM_PLANES where a set has a better one of this name. Included after
 *   sum_some(a, b, both, begin, end, units, out, space): the same, where it is known whether b has a low plane. */
#ifndef MO_NUMERIC_LANES_PLANES_BODY_H
#define MO_NUMERIC_LANES_PLANES_BODY_H

#ifndef SUM_PLANES
#define SUM_PLANES sum_planes
#endif

static void SUM_PLANES(const plane_rows *a, const plane_block *b, int64_t begin, int64_t end, int64_t units,
                       int32_t *out, void *space)
{
    if (b->low) {
        sum_some(a, b, true, begin, end, units, out, space);
    } else {
        sum_some(a, b, false, begin, end, units, out, space);
    }
}

#endif
