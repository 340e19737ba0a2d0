#include "text/compose.h"

#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/array.h"
#include "base/utf8.h"

void mo_compose_free(mo_compose *c)
{
    free(c->text);
    free(c->points);
    *c = (mo_compose){0};
}

/* Is the character neither a mark nor part of a composition? True below U+0300, for kana without marks and
   for Chinese characters. */
static bool inert(int32_t c)
{
    return c < 0x300 || (c >= 0x3001 && c < 0x302A) || (c >= 0x3041 && c < 0x3099) ||
           (c >= 0x309B && c < 0x3100) || (c >= 0x3400 && c < 0xA000);
}

bool mo_compose_needless(const uint8_t *text, size_t length)
{
    for (size_t i = 0, n; i < length; i += n) {
        n = mo_utf8_length(text + i, length - i);
        if (n > 1 && !inert((int32_t)mo_utf8_decode(text + i, n))) {
            return false;
        }
        n = n ? n : 1;
    }
    return true;
}

static bool put(mo_compose *c, const uint8_t *bytes, size_t n)
{
    if (!mo_array_reserve(&c->text, &c->capacity, c->length + n, sizeof *c->text)) {
        return false;
    }
    memcpy(c->text + c->length, bytes, n);
    c->length += n;
    return true;
}

static int class_of(int32_t point)
{
    return utf8proc_get_property(point)->combining_class;
}

/* Sorts a run of marks by class, stably. A counting sort, because a run may be as long as the text. */
static bool order_run(int32_t *run, size_t count)
{
    size_t first[257] = {0};
    int32_t *sorted = count > 1 ? malloc(count * sizeof *sorted) : NULL;
    if (count > 1 && !sorted) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        first[(class_of(run[i]) & 255) + 1]++;
    }
    for (int i = 0; i < 256; i++) {
        first[i + 1] += first[i];
    }
    for (size_t i = 0; i < count && sorted; i++) {
        sorted[first[class_of(run[i]) & 255]++] = run[i];
    }
    if (sorted) {
        memcpy(run, sorted, count * sizeof *sorted);
    }
    free(sorted);
    return true;
}

static bool order_marks(int32_t *points, size_t count)
{
    for (size_t i = 0, end; i < count; i = end) {
        bool sorted = true;
        for (end = i; end < count && class_of(points[end]) != 0; end++) {
            sorted = sorted && (end == i || class_of(points[end - 1]) <= class_of(points[end]));
        }
        if (!sorted && !order_run(points + i, end - i)) {
            return false;
        }
        end += end == i;
    }
    return true;
}

/* Appends valid characters: decomposed, ordered and composed again. */
static bool put_composed(mo_compose *c, const uint8_t *text, size_t length)
{
    size_t count = 0;
    for (size_t i = 0, n; i < length; i += n) {
        n = mo_utf8_length(text + i, length - i);
        if (!mo_array_reserve(&c->points, &c->limit, count + 32, sizeof *c->points)) {
            return false;
        }
        int boundary = 0;
        const utf8proc_ssize_t made =
            utf8proc_decompose_char((int32_t)mo_utf8_decode(text + i, n), c->points + count, 32,
                                    (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary);
        if (made < 0 || made > 32) { /* not a valid character */
            return false;
        }
        count += (size_t)made;
    }
    if (!order_marks(c->points, count)) {
        return false;
    }
    const utf8proc_ssize_t composed = utf8proc_normalize_utf32(
        c->points, (utf8proc_ssize_t)count, (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    bool good = composed >= 0;
    for (utf8proc_ssize_t i = 0; i < composed && good; i++) {
        uint8_t bytes[4] = {0};
        good = put(c, bytes, (size_t)utf8proc_encode_char(c->points[i], bytes));
    }
    return good;
}

bool mo_compose_run(mo_compose *c, const uint8_t *text, size_t length)
{
    bool good = true;
    c->length = 0;
    for (size_t at = 0, end; at < length && good; at = end) {
        size_t n = 0;
        for (end = at; end < length && (n = mo_utf8_length(text + end, length - end)) > 0; end += n) {
        }
        good = end == at || put_composed(c, text + at, end - at);
        if (good && end < length) { /* an invalid byte */
            good = put(c, text + end, 1);
            end++;
        }
    }
    return good;
}
