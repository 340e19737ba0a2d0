/* Log: see log.h. */
#include "server/common/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "server/common/writer.h"

static srv_log_format log_format;
static mo_log_level log_level = MO_LOG_INFO;
static const char *const level_names[] = {"error", "warning", "info", "debug"};

/* The last lines, for those who watch the server from afar: number n is at n modulo LINES. */
enum { LINES = 256, LINE_BYTES = 512 };
static struct {
    pthread_mutex_t mutex;
    uint64_t next;
    uint16_t length[LINES];
    char text[LINES][LINE_BYTES];
} kept = {.mutex = PTHREAD_MUTEX_INITIALIZER, .next = 1};

/* Never in the middle of a character. */
static size_t fitting(const char *text, size_t length)
{
    size_t n = length < LINE_BYTES ? length : LINE_BYTES;
    while (n < length && n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80) {
        n--;
    }
    return n;
}

static void keep_line(const srv_writer *w)
{
    pthread_mutex_lock(&kept.mutex);
    const size_t at = kept.next++ % LINES, n = fitting(w->data, w->length);
    memcpy(kept.text[at], w->data, n);
    kept.length[at] = (uint16_t)n;
    pthread_mutex_unlock(&kept.mutex);
}

uint64_t srv_log_read(uint64_t from, srv_log_line fn, void *user)
{
    pthread_mutex_lock(&kept.mutex);
    const uint64_t next = kept.next, oldest = next > LINES ? next - LINES : 1;
    for (uint64_t n = from > oldest ? from : oldest; n < next; n++) {
        fn(user, n, kept.text[n % LINES], kept.length[n % LINES]);
    }
    pthread_mutex_unlock(&kept.mutex);
    return next;
}

void srv_log_set(srv_log_format format, mo_log_level level)
{
    log_format = format;
    log_level = level;
}

/* A value of the text form: quoted where it would not be one word. Control characters never reach a terminal. */
static void put_word(srv_writer *w, const char *text)
{
    bool plain = *text != '\0';
    for (const char *at = text; *at; at++) {
        const unsigned char c = (unsigned char)*at;
        plain = plain && c > ' ' && c < 0x7f && c != '"' && c != '=' && c != '\\';
    }
    if (plain) {
        srv_puts(w, text);
    } else {
        srv_put_cstring(w, text);
    }
}

static void put_field(srv_writer *w, const srv_log_field *f)
{
    const bool json = log_format == SRV_LOG_JSON;
    if (json) {
        srv_print(w, ",%s:", f->name);
    } else {
        srv_put_literal(w, " ");
        srv_puts(w, f->name);
        srv_put_literal(w, "=");
    }
    switch (f->kind) {
    case SRV_LOG_FIELD_TEXT:
        if (json) {
            srv_put_cstring(w, f->text);
        } else {
            put_word(w, f->text);
        }
        break;
    case SRV_LOG_FIELD_INT: srv_put_int(w, f->integer); break;
    case SRV_LOG_FIELD_REAL: srv_put_fixed(w, f->real, 6); break;
    }
}

/* One write a line, so that lines of several threads do not mix. */
static void put_line(srv_writer *w)
{
    srv_put_literal(w, "\n");
    for (size_t done = 0; !w->failed && done < w->length;) {
        const ssize_t n = write(STDERR_FILENO, w->data + done, w->length - done);
        if (n <= 0) {
            break; /* there is nowhere to report it */
        }
        done += (size_t)n;
    }
}

void srv_log(mo_log_level level, const char *event, const srv_log_field *fields)
{
    srv_writer w = {0};
    struct timespec now;
    char when[48];
    if (level > log_level) {
        return;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    srv_time_text(now, 3, when, sizeof when);
    if (log_format == SRV_LOG_JSON) {
        srv_print(&w, "{\"time\":%s,\"level\":%s,\"event\":%s", when, level_names[level], event);
    } else {
        mo_bytes_print(&w, "%s %s %s", when, level_names[level], event);
    }
    for (; fields->name; fields++) {
        if (fields->kind == SRV_LOG_FIELD_TEXT && !fields->text) {
            continue;
        }
        if (log_format == SRV_LOG_TEXT && strcmp(fields->name, "message") == 0) {
            srv_put_literal(&w, ": ");
            for (const char *at = fields->text; *at; at++) { /* one line, whatever it holds */
                srv_put(&w, (unsigned char)*at < ' ' ? " " : at, 1);
            }
        } else {
            put_field(&w, fields);
        }
    }
    if (log_format == SRV_LOG_JSON) {
        srv_put_literal(&w, "}");
    }
    if (!w.failed) {
        keep_line(&w);
    }
    put_line(&w);
    srv_writer_free(&w);
}

void srv_say(mo_log_level level, const char *event, const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    srv_log(level, event, (srv_log_field[]){SRV_TEXT_FIELD("message", text), {0}});
}
