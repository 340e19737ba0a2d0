/* Log: the server's log, one line per event, as text or JSON. It never contains a prompt, an answer or a
 * key. */
#ifndef SRV_LOG_H
#define SRV_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "moraine_server.h"

typedef enum srv_log_format { SRV_LOG_TEXT, SRV_LOG_JSON } srv_log_format;

/* Call before other threads log. Default: text up to MO_LOG_INFO on stderr. */
void srv_log_set(srv_log_format format, mo_log_level level);

/* A field of an event. */
typedef struct srv_log_field {
    const char *name; /* NULL ends a list */
    enum { SRV_LOG_FIELD_TEXT, SRV_LOG_FIELD_INT, SRV_LOG_FIELD_REAL } kind;
    const char *text; /* NULL: the field is left out */
    int64_t integer;
    double real;
} srv_log_field;

#define SRV_TEXT_FIELD(n, v) ((srv_log_field){.name = (n), .kind = SRV_LOG_FIELD_TEXT, .text = (v)})
#define SRV_INT_FIELD(n, v)  ((srv_log_field){.name = (n), .kind = SRV_LOG_FIELD_INT, .integer = (v)})
#define SRV_REAL_FIELD(n, v) ((srv_log_field){.name = (n), .kind = SRV_LOG_FIELD_REAL, .real = (v)})

/* Writes one line; any thread. event is one word. */
void srv_log(mo_log_level level, const char *event, const srv_log_field *fields);
/* An event with only a message. */
void srv_say(mo_log_level level, const char *event, const char *format, ...) MO_PRINTF(3, 4);

/* Receives one kept line as it was written. The text is valid until it returns. */
typedef void (*srv_log_line)(void *user, uint64_t number, const char *text, size_t length);
/* Passes the kept lines from this number on (the first is 1), oldest first, and returns the number of the
 * next line. Long lines are truncated. Any thread; fn must not log. */
uint64_t srv_log_read(uint64_t from, srv_log_line fn, void *user);

#endif
