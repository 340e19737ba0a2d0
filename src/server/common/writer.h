/* Writer: text that grows (base/bytes.h), with what JSON needs. A writer may be emptied and used again, which allocates nothing. */
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
/* A JSON string with its quotes. Bytes that are no UTF-8 become U+FFFD. */
void srv_put_string(srv_writer *w, const char *text, size_t length);
void srv_put_cstring(srv_writer *w, const char *text); /* NULL: null */
/* The same without quotes, for a string that is written in pieces. */
void srv_put_escaped(srv_writer *w, const char *text, size_t length);
void srv_put_int(srv_writer *w, int64_t value);
/* The shortest number that reads back as the same float; what JSON cannot write is -9999 or 9999, or 0 for NaN. */
void srv_put_float(srv_writer *w, float value);
/* At most this many digits after the point, without trailing zeros. */
void srv_put_fixed(srv_writer *w, double value, int digits);
void srv_put_bool(srv_writer *w, bool value);
/* RFC 3339 with this many digits behind the second (Go's programs write 9); at least 40 bytes. Returns text. */
const char *srv_time_text(struct timespec at, int digits, char *text, size_t size);
/* JSON by a format: %s is srv_put_cstring(), %.*s srv_put_string(), %d and %ld srv_put_int(), %g srv_put_float(), and %.3f
 * srv_put_fixed() with 3 digits. All else is written as it is; %% is a percent sign. */
void srv_print(srv_writer *w, const char *format, ...) MO_PRINTF(2, 3);

#endif
