#include "grammar/schema_number.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "grammar/decimal.h"

enum { LISTED = 1000, REMAINDERS = 64, DIGITS = 15 };

static const double beyond = 1e15; /* limit of numbers without bounds */

typedef struct limits {
    bool has_low, has_high, above_low, below_high;
    double low, high;
} limits;

static mo_status number_of(mo_schema_rules *s, const json_t *schema, const char *key, const json_t **out)
{
    *out = json_object_get(schema, key);
    if (*out && !json_is_number(*out)) {
        return mo_schema_wrong(s, key, "expected a number");
    }
    return MO_OK;
}

/* Reads minimum or maximum and the exclusive bound, which draft 4 wrote as a separate boolean. */
static mo_status one_side(mo_schema_rules *s, const json_t *schema, const char *key,
                          const char *exclusive_key, int sign, bool *has, double *at, bool *exclusive)
{
    const json_t *bound, *other = json_object_get(schema, exclusive_key);
    mo_status status = number_of(s, schema, key, &bound);
    if (status == MO_OK && other && !json_is_boolean(other)) {
        status = number_of(s, schema, exclusive_key, &other);
    }
    if (status != MO_OK) {
        return status;
    }
    *has = bound != NULL;
    *at = bound ? json_number_value(bound) : 0;
    *exclusive = json_is_true(other);
    if (json_is_number(other)) {
        const double value = json_number_value(other);
        if (!*has || sign * value >= sign * *at) {
            *at = value;
            *exclusive = true;
        }
        *has = true;
    }
    return MO_OK;
}

static mo_status read_limits(mo_schema_rules *s, const json_t *schema, limits *l)
{
    mo_status status =
        one_side(s, schema, "minimum", "exclusiveMinimum", 1, &l->has_low, &l->low, &l->above_low);
    if (status == MO_OK) {
        status =
            one_side(s, schema, "maximum", "exclusiveMaximum", -1, &l->has_high, &l->high, &l->below_high);
    }
    if (status == MO_OK && l->has_low && l->has_high &&
        (l->low > l->high || (l->low == l->high && (l->above_low || l->below_high)))) {
        status = mo_schema_wrong(s, NULL, "no number is between minimum and maximum");
    }
    return status;
}

/* ---- Integers ---- */

/* The integers within the limits. False if there are none. */
static bool whole_limits(const limits *l, int64_t *low, int64_t *high)
{
    const double most = 9.2e18;
    double a = l->has_low ? ceil(l->low) : -(beyond - 1);
    double b = l->has_high ? floor(l->high) : beyond - 1;
    if (l->has_low && l->above_low && a == l->low) {
        a += 1;
    }
    if (l->has_high && l->below_high && b == l->high) {
        b -= 1;
    }
    if (!l->has_high && a > b) {
        b = most;
    }
    if (!l->has_low && b < a) {
        a = -most;
    }
    a = a < -most ? -most : a;
    b = b > most ? most : b;
    *low = (int64_t)a;
    *high = (int64_t)b;
    return a <= b;
}

static void write_integers(mo_bytes *out, int64_t low, int64_t high, const char *zeros)
{
    if (low < 0) {
        mo_bytes_print(out, "\"-\" ");
        mo_decimal_write_whole(out, high < 0 ? (uint64_t)-high : 1, (uint64_t)-low);
        mo_bytes_print(out, "%s%s", zeros, high >= 0 ? " | " : "");
    }
    if (high >= 0 && zeros[0] && low <= 0) {
        mo_bytes_print(out, "\"0\"%s", high > 0 ? " | " : "");
        low = 1;
    }
    if (high >= 0 && low <= high) {
        mo_decimal_write_whole(out, low > 0 ? (uint64_t)low : 0, (uint64_t)high);
        mo_bytes_print(out, "%s", zeros);
    }
}

/* Can at most `left` more digits make a remainder 0? Bit r of alive[left]. */
static void find_alive(int64_t k, bool alive[DIGITS][REMAINDERS])
{
    for (int left = 0; left < DIGITS; left++) {
        for (int64_t r = 0; r < k; r++) {
            alive[left][r] = r == 0;
            for (int64_t d = 0; d < 10 && left > 0 && !alive[left][r]; d++) {
                alive[left][r] = alive[left - 1][(r * 10 + d) % k];
            }
        }
    }
}

/* Writes rules for the digits after a known remainder, when `left` more digits may follow. */
static mo_status write_remainders(mo_schema_rules *s, int64_t k, const char *base,
                                  bool alive[DIGITS][REMAINDERS])
{
    mo_status status = MO_OK;
    for (int left = 0; left < DIGITS; left++) {
        for (int64_t r = 0; r < k && status == MO_OK; r++) {
            mo_bytes body = {0};
            char name[MO_RULE_NAME + 32];
            const char *separator = "";
            if (!alive[left][r]) {
                continue;
            }
            for (int64_t first = 0; first < 10 && first < k && left > 0; first++) {
                const int64_t to = (r * 10 + first) % k; /* the same for all digits that differ by k */
                if (!alive[left - 1][to]) {
                    continue;
                }
                mo_bytes_print(&body, "%s[", separator);
                for (int64_t d = first; d < 10; d += k) {
                    mo_bytes_print(&body, "%d", (int)d);
                }
                mo_bytes_print(&body, "] %s-r%d-%d", base, (int)to, left - 1);
                separator = " | ";
            }
            if (r == 0) {
                mo_bytes_print(&body, "%s\"\"", separator);
            }
            snprintf(name, sizeof name, "%s-r%d-%d", base, (int)r, left);
            status = mo_schema_define(s, name, &body);
        }
    }
    return status;
}

static mo_status write_multiples(mo_schema_rules *s, const limits *l, int64_t k, int64_t low, int64_t high,
                                 mo_bytes *out)
{
    const int64_t first = low >= 0 ? (low + k - 1) / k : low / k; /* in multiples of k */
    const int64_t last = high >= 0 ? high / k : -((-high + k - 1) / k);
    int zeros = 0;
    int64_t power = 1;
    if (first > last) {
        return mo_schema_wrong(s, "multipleOf", "no multiple is between minimum and maximum");
    }
    if (last - first < LISTED) {
        for (int64_t i = first; i <= last; i++) {
            mo_bytes_print(out, "%s\"%" PRId64 "\"", i > first ? " | " : "", i * k);
        }
        return MO_OK;
    }
    while (power < k && power < INT64_MAX / 10) {
        power *= 10;
        zeros++;
    }
    if (power == k) {
        char text[40] = " \"";
        for (int i = 0; i < zeros; i++) {
            text[2 + i] = '0';
        }
        text[2 + zeros] = '"';
        write_integers(out, first, last, zeros ? text : "");
        return MO_OK;
    }
    if (k >= REMAINDERS || l->has_high || (l->has_low && low > 1)) {
        write_integers(out, low, high, "");
        return mo_schema_note(s, "multipleOf", "is not enforced for such numbers");
    }
    char base[MO_RULE_NAME];
    bool alive[DIGITS][REMAINDERS];
    find_alive(k, alive);
    mo_schema_name(s, base);
    const mo_status status = write_remainders(s, k, base, alive);
    if (low <= 0) {
        mo_bytes_print(out, "\"0\" | ");
    }
    mo_bytes_print(out, "%s(", low < 0 ? "\"-\"? " : "");
    for (int d = 1; d < 10; d++) {
        mo_bytes_print(out, "%s\"%d\" %s-r%d-%d", d > 1 ? " | " : "", d, base, (int)(d % k), DIGITS - 1);
    }
    mo_bytes_print(out, ")");
    return status;
}

static mo_status write_whole(mo_schema_rules *s, const limits *l, double multiple, mo_bytes *out)
{
    int64_t low, high;
    if (!l->has_low && !l->has_high && multiple == 1) {
        char name[MO_RULE_NAME];
        mo_schema_common(s, MO_RULE_INTEGER, name);
        mo_bytes_print(out, "%s", name);
        return MO_OK;
    }
    if (!whole_limits(l, &low, &high)) {
        return mo_schema_wrong(s, NULL, "no integer is between minimum and maximum");
    }
    if (multiple != 1) {
        return write_multiples(s, l, (int64_t)multiple, low, high, out);
    }
    write_integers(out, low, high, "");
    return MO_OK;
}

/* ---- Numbers ---- */

static bool bound_of(bool has, double value, bool exclusive, double otherwise, mo_bound *out)
{
    out->exclusive = has && exclusive;
    return mo_decimal_of(has ? value : otherwise, &out->at);
}

static mo_status write_decimals(mo_schema_rules *s, const limits *l, int digits, mo_bytes *out)
{
    mo_bound low, high;
    char name[MO_RULE_NAME];
    const bool known = bound_of(l->has_low, l->low, l->above_low, -(beyond - 1), &low) &&
                       bound_of(l->has_high, l->high, l->below_high, beyond - 1, &high);
    if (!known) {
        mo_schema_common(s, MO_RULE_NUMBER, name);
        mo_bytes_print(out, "%s", name);
        return mo_schema_note(s, l->has_low ? "minimum" : "maximum", "has too many digits to be enforced");
    }
    if (!l->has_high && l->low >= beyond - 1) {
        high.at.whole = (uint64_t)9e18;
    }
    if (!l->has_low && l->high <= -(beyond - 1)) {
        low.at.whole = (uint64_t)9e18;
    }
    if (!mo_decimal_write(out, low, high, digits)) {
        return mo_schema_wrong(s, NULL, "no number of at most %d digits is between minimum and maximum",
                               digits);
    }
    return MO_OK;
}

/* The number of digits for 0.1, 0.01, ...; 0 for other values. */
static int digits_of(double multiple)
{
    double power = 1;
    for (int digits = 1; digits <= 10; digits++) {
        power /= 10;
        if (fabs(multiple - power) < power * 1e-9) {
            return digits;
        }
    }
    return 0;
}

mo_status mo_schema_number(mo_schema_rules *s, const json_t *schema, bool integer, mo_bytes *out)
{
    limits l = {0};
    const json_t *multiple_of;
    mo_status status = read_limits(s, schema, &l);
    if (status == MO_OK) {
        status = number_of(s, schema, "multipleOf", &multiple_of);
    }
    if (status != MO_OK) {
        return status;
    }
    const double multiple = multiple_of ? json_number_value(multiple_of) : integer ? 1 : 0;
    if (multiple_of && multiple <= 0) {
        return mo_schema_wrong(s, "multipleOf", "expected a number above 0");
    }
    const bool whole = multiple >= 1 && multiple < 1e15 && multiple == floor(multiple);
    if (whole) {
        return write_whole(s, &l, multiple, out);
    }
    int digits = MO_DECIMAL_DIGITS;
    if (multiple != 0) {
        digits = digits_of(multiple);
        if (digits == 0 || integer) {
            status = integer && digits ? MO_OK
                                       : mo_schema_note(s, "multipleOf", "is not enforced for such a number");
            if (status != MO_OK || integer) {
                return status == MO_OK ? write_whole(s, &l, 1, out) : status;
            }
            digits = MO_DECIMAL_DIGITS;
        }
    }
    if (!l.has_low && !l.has_high && digits == MO_DECIMAL_DIGITS) {
        char name[MO_RULE_NAME];
        mo_schema_common(s, MO_RULE_NUMBER, name);
        mo_bytes_print(out, "%s", name);
        return MO_OK;
    }
    return write_decimals(s, &l, digits, out);
}
