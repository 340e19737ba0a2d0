#include "grammar/decimal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The shortest digits that give the same value, with an exponent: d.ddde+xx. */
static void shortest(double value, char text[40])
{
    for (int digits = 0; digits < 17; digits++) {
        snprintf(text, 40, "%.*e", digits, value);
        if (strtod(text, NULL) == value) {
            return;
        }
    }
}

bool mo_decimal_of(double value, mo_decimal *out)
{
    char text[40], digits[40], *e;
    *out = (mo_decimal){.negative = value < 0};
    if (!(fabs(value) < 1e18)) {
        return false;
    }
    shortest(fabs(value), text);
    e = strchr(text, 'e');
    const int exponent = atoi(e + 1); /* of the first digit */
    size_t count = 0;
    for (const char *p = text; p < e; p++) {
        if (*p != '.') {
            digits[count++] = *p;
        }
    }
    for (int i = 0; i <= exponent; i++) {
        out->whole = out->whole * 10 + (uint64_t)((size_t)i < count ? digits[i] - '0' : 0);
    }
    int length = 0;
    for (int i = exponent + 1; i < (int)count; i++) { /* zeros before the first digit */
        if (length == MO_DECIMAL_DIGITS) {
            return false;
        }
        out->fraction[length++] = i < 0 ? '0' : digits[i];
    }
    while (length > 0 && out->fraction[length - 1] == '0') {
        length--;
    }
    out->fraction[length] = '\0';
    return true;
}

/* ---- Whole numbers ---- */

static bool all(const char *digits, int count, char digit)
{
    for (int i = 0; i < count; i++) {
        if (digits[i] != digit) {
            return false;
        }
    }
    return true;
}

static void any_digits(mo_bytes *w, int count)
{
    if (count > 0) {
        mo_bytes_print(w, count > 1 ? " [0-9]{%d}" : " [0-9]", count);
    }
}

static void one_digit(mo_bytes *w, char low, char high)
{
    mo_bytes_print(w, low == high ? " \"%c\"" : " [%c-%c]", low, high);
}

/* Writes texts of `count` digits from a to b, as part of a sequence. */
static void between(mo_bytes *w, const char *a, const char *b, int count)
{
    while (count > 0 && a[0] == b[0] && !(all(a, count, '0') && all(b, count, '9'))) {
        mo_bytes_print(w, " \"%c\"", a[0]);
        a++;
        b++;
        count--;
    }
    if (count == 0) {
        return;
    }
    const bool from_zero = all(a + 1, count - 1, '0'), to_nine = all(b + 1, count - 1, '9');
    char low = a[0], high = b[0];
    static const char nines[] = "999999999999999999999", zeros[] = "000000000000000000000";
    const char *separator = " (";
    if (!from_zero) {
        mo_bytes_print(w, "%s \"%c\"", separator, low++);
        between(w, a + 1, nines, count - 1);
        separator = " |";
    }
    const char last = to_nine ? high : (char)(high - 1);
    if (low <= last) {
        mo_bytes_print(w, "%s", separator);
        one_digit(w, low, last);
        any_digits(w, count - 1);
        separator = " |";
    }
    if (!to_nine) {
        mo_bytes_print(w, "%s \"%c\"", separator, high);
        between(w, zeros, b + 1, count - 1);
    }
    mo_bytes_print(w, ")");
}

void mo_decimal_write_whole(mo_bytes *w, uint64_t low, uint64_t high)
{
    char a[24], b[24];
    const char *separator = "(";
    for (;;) { /* numbers with as many digits as `low` */
        const int count = snprintf(a, sizeof a, "%" PRIu64, low);
        uint64_t last = 9;
        for (int i = 1; i < count && last < UINT64_MAX / 10; i++) {
            last = last * 10 + 9;
        }
        last = count >= 20 || last > high ? high : last;
        snprintf(b, sizeof b, "%" PRIu64, last);
        mo_bytes_print(w, "%s", separator);
        between(w, a, b, count);
        separator = " |";
        if (last >= high) {
            break;
        }
        low = last + 1;
    }
    mo_bytes_print(w, ")");
}

/* ---- Numbers with fractions ---- */

typedef struct span { /* not negative */
    uint64_t whole;
    const char *low, *high; /* fractions; high is NULL: up to the next integer */
    bool above_low, below_high;
} span;

/* The first `count` digits of a fraction as a number. *more: there are further digits. */
static uint64_t scaled(const char *fraction, int count, bool *more)
{
    uint64_t value = 0;
    const int length = (int)strlen(fraction);
    for (int i = 0; i < count; i++) {
        value = value * 10 + (uint64_t)(i < length ? fraction[i] - '0' : 0);
    }
    *more = length > count;
    return value;
}

/* Writes one integer with the fractions of the span. False if there are none. */
static bool write_span(mo_bytes *w, const char **separator, const span *s, int digits)
{
    bool some = false;
    if (s->low[0] == '\0' && !s->above_low) {
        const bool alone = s->high && s->high[0] == '\0' && s->below_high;
        if (!alone) {
            mo_bytes_print(w, "%s \"%" PRIu64 "\"", *separator, s->whole);
            *separator = " |";
            some = true;
        }
    }
    for (int n = 1; n <= digits; n++) {
        bool more_low, more_high = false;
        uint64_t limit = 1;
        for (int i = 0; i < n; i++) {
            limit *= 10;
        }
        uint64_t low = scaled(s->low, n, &more_low), high = limit - 1;
        low += more_low || s->above_low;
        if (s->high) {
            high = scaled(s->high, n, &more_high);
            if (!more_high && s->below_high) {
                if (high == 0) {
                    continue;
                }
                high--;
            }
        }
        if (low > high) {
            continue;
        }
        char a[24], b[24];
        snprintf(a, sizeof a, "%0*" PRIu64, n, low);
        snprintf(b, sizeof b, "%0*" PRIu64, n, high);
        mo_bytes_print(w, "%s \"%" PRIu64 ".\"", *separator, s->whole);
        between(w, a, b, n);
        *separator = " |";
        some = true;
    }
    return some;
}

/* Writes the numbers from low to high, both not negative. */
static bool write_positive(mo_bytes *w, const char **separator, const char *sign, mo_bound low, mo_bound high,
                           int digits)
{
    const char *inner = " (";
    bool some = false;
    mo_bytes part = {0};
    const span first = {low.at.whole, low.at.fraction, NULL, low.exclusive, false};
    const span last = {high.at.whole, "", high.at.fraction, false, high.exclusive};
    const span only = {low.at.whole, low.at.fraction, high.at.fraction, low.exclusive, high.exclusive};
    if (low.at.whole == high.at.whole) {
        some = write_span(&part, &inner, &only, digits);
    } else if (low.at.whole < high.at.whole) {
        some = write_span(&part, &inner, &first, digits);
        if (low.at.whole + 1 < high.at.whole) {
            mo_bytes_print(&part, "%s ", inner);
            mo_decimal_write_whole(&part, low.at.whole + 1, high.at.whole - 1);
            if (digits > 0) {
                mo_bytes_print(&part, " (\".\" [0-9]{1,%d})?", digits);
            }
            inner = " |";
            some = true;
        }
        some |= write_span(&part, &inner, &last, digits);
    }
    if (some) {
        mo_bytes_print(w, "%s%s", *separator, sign);
        mo_bytes_add(w, part.data ? part.data : "", part.length);
        mo_bytes_print(w, ")");
        *separator = " |";
        w->failed |= part.failed;
    }
    free(part.data);
    return some;
}

bool mo_decimal_write(mo_bytes *w, mo_bound low, mo_bound high, int digits)
{
    const char *separator = "";
    bool some = false;
    mo_bound zero = {0};
    if (low.at.negative) {
        mo_bound near = high.at.negative ? high : zero, far = low;
        near.at.negative = far.at.negative = false;
        near.exclusive |= !high.at.negative; /* do not write 0 as -0 */
        some = write_positive(w, &separator, " \"-\"", near, far, digits);
    }
    if (!high.at.negative) {
        some |= write_positive(w, &separator, "", low.at.negative ? zero : low, high, digits);
    }
    return some;
}
