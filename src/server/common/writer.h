/* Writer: a growing buffer (base/bytes.h) with JSON output. A cleared writer keeps its memory for reuse. */
#ifndef SRV_WRITER_H
#define SRV_WRITER_H

#include <time.h>

#include "base/bytes.h"

typedef mo_bytes srv_writer;

static inline void srv_writer_free(srv_writer *w)
{
    mo_bytes_free(w);
}
static inline void srv_writer_empty(srv_writer *w)
{
    mo_bytes_clear(w);
}
static inline void srv_put(srv_writer *w, const char *bytes, size_t length)
{
    mo_bytes_add(w, bytes, length);
}
static inline void srv_puts(srv_writer *w, const char *text)
{
    mo_bytes_add_text(w, text);
}
#define srv_put_literal(w, text) srv_put((w), "" text, sizeof(text) - 1)
/* A quoted JSON string. Invalid UTF-8 becomes U+FFFD. */
void srv_put_string(srv_writer *w, const char *text, size_t length);
void srv_put_cstring(srv_writer *w, const char *text); /* NULL: null */
/* The same without quotes, for strings written in pieces. */
void srv_put_escaped(srv_writer *w, const char *text, size_t length);
void srv_put_int(srv_writer *w, int64_t value);
/* The shortest number that reads back as the same float. Infinity is -9999 or 9999, NaN is 0. */
void srv_put_float(srv_writer *w, float value);
/* At most this many decimals, without trailing zeros. */
void srv_put_fixed(srv_writer *w, double value, int digits);
void srv_put_bool(srv_writer *w, bool value);
/* RFC 3339 with this many second decimals (Go programs write 9). size at least 40 bytes. Returns text. */
const char *srv_time_text(struct timespec at, int digits, char *text, size_t size);
/* Formatted JSON: %s is srv_put_cstring(), %.*s srv_put_string(), %d and %ld srv_put_int(), %g
 * srv_put_float(), %.3f srv_put_fixed() with 3 digits, %% a percent sign. Everything else is copied. */
void srv_print(srv_writer *w, const char *format, ...) MO_PRINTF(2, 3);

#endif
