/* Log: what the server tells its operator, a line an event: for people, or as JSON. Never a prompt, an answer or a key. */
#ifndef SRV_LOG_H
#define SRV_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "moraine_server.h"

typedef enum srv_log_format { SRV_LOG_TEXT, SRV_LOG_JSON } srv_log_format;

/* Before other threads use it; by default text up to MO_LOG_INFO on stderr. */
void srv_log_set(srv_log_format format, mo_log_level level);

/* A member of an event. */
typedef struct srv_log_field {
    const char *name; /* NULL ends a list */
    enum { SRV_LOG_FIELD_TEXT, SRV_LOG_FIELD_INT, SRV_LOG_FIELD_REAL } kind;
    const char *text; /* NULL: the member is left out */
    int64_t integer;
    double real;
} srv_log_field;

#define SRV_TEXT_FIELD(n, v) ((srv_log_field){.name = (n), .kind = SRV_LOG_FIELD_TEXT, .text = (v)})
#define SRV_INT_FIELD(n, v)  ((srv_log_field){.name = (n), .kind = SRV_LOG_FIELD_INT, .integer = (v)})
#define SRV_REAL_FIELD(n, v) ((srv_log_field){.name = (n), .kind = SRV_LOG_FIELD_REAL, .real = (v)})

/* One line; any thread. event is one word. */
void srv_log(mo_log_level level, const char *event, const srv_log_field *fields);
/* With a message alone. */
void srv_say(mo_log_level level, const char *event, const char *format, ...) MO_PRINTF(3, 4);

/* Hears of the last lines, the oldest first, as they were written; the text is the log's until it returns. */
typedef void (*srv_log_line)(void *user, uint64_t number, const char *text, size_t length);
/* Tells the kept lines from this number on (the first is 1) and returns the number of the next one to come. Of long lines the
 * beginning is kept. Any thread; fn must not log. */
uint64_t srv_log_read(uint64_t from, srv_log_line fn, void *user);

#endif
