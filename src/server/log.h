/* Log: what the server tells its operator, a line an event: for people, or as JSON. Never a prompt, an answer or a key. */
#ifndef SRV_LOG_H
#define SRV_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "moraine.h"

typedef enum srv_log_format { SRV_LOG_TEXT, SRV_LOG_JSON } srv_log_format;

/* Before other threads use it; by default text up to MO_LOG_INFO on stderr. */
void srv_log_set(srv_log_format format, mo_log_level level);

/* A member of an event. */
typedef struct srv_field {
    const char *name; /* NULL ends a list */
    enum { SRV_FIELD_TEXT, SRV_FIELD_INT, SRV_FIELD_REAL } kind;
    const char *text; /* NULL: the member is left out */
    int64_t integer;
    double real;
} srv_field;

#define SRV_TEXT_FIELD(n, v) ((srv_field){.name = (n), .kind = SRV_FIELD_TEXT, .text = (v)})
#define SRV_INT_FIELD(n, v)  ((srv_field){.name = (n), .kind = SRV_FIELD_INT, .integer = (v)})
#define SRV_REAL_FIELD(n, v) ((srv_field){.name = (n), .kind = SRV_FIELD_REAL, .real = (v)})

/* One line; any thread. event is one word. */
void srv_log(mo_log_level level, const char *event, const srv_field *fields);
/* With a message alone. */
void srv_say(mo_log_level level, const char *event, const char *format, ...) MO_PRINTF(3, 4);

#endif
