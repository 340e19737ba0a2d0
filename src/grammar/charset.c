#include "grammar/charset.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

void mo_charset_free(mo_charset *s)
{
    free(s->ranges);
    *s = (mo_charset){0};
}

bool mo_charset_add(mo_charset *s, uint32_t low, uint32_t high)
{
    if (!mo_array_reserve(&s->ranges, &s->space, s->count + 1, sizeof *s->ranges)) {
        return false;
    }
    s->ranges[s->count++] = (mo_code_range){low, high};
    return true;
}

static int by_low(const void *a, const void *b)
{
    const mo_code_range *x = a, *y = b;
    return (x->low > y->low) - (x->low < y->low);
}

static void merge(mo_charset *s)
{
    size_t kept = 0;
    if (s->count > 1) {
        qsort(s->ranges, s->count, sizeof *s->ranges, by_low);
    }
    for (size_t i = 0; i < s->count; i++) {
        const mo_code_range r = s->ranges[i];
        if (kept > 0 && r.low <= s->ranges[kept - 1].high + 1) {
            mo_code_range *last = &s->ranges[kept - 1];
            last->high = r.high > last->high ? r.high : last->high;
        } else {
            s->ranges[kept++] = r;
        }
    }
    s->count = kept;
}

/* All code points outside the merged ranges. */
static bool invert(mo_charset *s)
{
    mo_charset other = {0};
    uint32_t next = 0;
    bool ok = true;
    for (size_t i = 0; i < s->count && ok; i++) {
        if (s->ranges[i].low > next) {
            ok = mo_charset_add(&other, next, s->ranges[i].low - 1);
        }
        next = s->ranges[i].high + 1;
    }
    if (ok && next <= MO_CODE_POINT_MAX) {
        ok = mo_charset_add(&other, next, MO_CODE_POINT_MAX);
    }
    mo_charset_free(s);
    *s = other;
    return ok;
}

bool mo_charset_settle(mo_charset *s, bool inverted)
{
    merge(s);
    if (!inverted && !invert(s)) {
        return false;
    }
    if (!mo_charset_add(s, 0xD800, 0xDFFF)) { /* removed in any case */
        return false;
    }
    merge(s);
    return invert(s);
}

bool mo_charset_has(const mo_charset *s, uint32_t c)
{
    size_t low = 0, high = s->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (s->ranges[middle].high < c) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < s->count && s->ranges[low].low <= c;
}

bool mo_charset_equal(const mo_charset *a, const mo_charset *b)
{
    return a->count == b->count &&
           (a->count == 0 || memcmp(a->ranges, b->ranges, a->count * sizeof *a->ranges) == 0);
}

bool mo_charset_meets(const mo_charset *a, const mo_charset *b)
{
    size_t i = 0, k = 0;
    while (i < a->count && k < b->count) {
        if (a->ranges[i].high < b->ranges[k].low) {
            i++;
        } else if (b->ranges[k].high < a->ranges[i].low) {
            k++;
        } else {
            return true;
        }
    }
    return false;
}

uint64_t mo_charset_size(const mo_charset *s)
{
    uint64_t size = 0;
    for (size_t i = 0; i < s->count; i++) {
        size += s->ranges[i].high - s->ranges[i].low + 1;
    }
    return size;
}

bool mo_charset_copy(mo_charset *to, const mo_charset *from)
{
    *to = (mo_charset){0};
    for (size_t i = 0; i < from->count; i++) {
        if (!mo_charset_add(to, from->ranges[i].low, from->ranges[i].high)) {
            mo_charset_free(to);
            return false;
        }
    }
    return true;
}
