#include "cli/print/terminal.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

/* ---- Text ---- */

int cli_terminal_width(FILE *stream)
{
    struct winsize size;
    int fd = fileno(stream);
    if (fd >= 0 && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20) {
        return size.ws_col;
    }
    return 80;
}

static volatile sig_atomic_t continued;

void cli_terminal_continue(void)
{
    continued++;
}

int cli_terminal_continued(void)
{
    return continued;
}

/* mpirun gives its processes a terminal and copies its text to its own output, which may be a file. */
bool cli_terminal_is(FILE *stream)
{
    return isatty(fileno(stream)) == 1 && !getenv("OMPI_COMM_WORLD_SIZE");
}

static bool coloured(FILE *stream)
{
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
    return cli_terminal_is(stream) && !(none && *none) && !(term && strcmp(term, "dumb") == 0);
}

const char *cli_terminal_bold(void)
{
    return coloured(stdout) ? "\033[1m" : "";
}

const char *cli_terminal_plain(void)
{
    return coloured(stdout) ? "\033[0m" : "";
}

void cli_terminal_wrap(const char *text, int indent)
{
    int width = cli_terminal_width(stdout) - 1, column = indent;
    width = width > 100 ? 100 : width < indent + 20 ? indent + 20 : width;
    while (*text) {
        int length = (int)strcspn(text, " \n");
        if (column > indent && column + 1 + length > width) {
            printf("\n%*s", indent, "");
            column = indent;
        }
        if (column > indent) {
            putchar(' ');
            column++;
        }
        printf("%.*s", length, text);
        column += length;
        text += length;
        if (*text == '\n') {
            printf("\n%*s", indent, "");
            column = indent;
        }
        text += *text != 0;
    }
    putchar('\n');
}

static const char *scaled(double value, double step, const char *const *units, int unit_count, char *text)
{
    int unit = 0;
    while (value >= step - 0.5 && unit + 1 < unit_count) {
        value /= step;
        unit++;
    }
    if (unit == 0) {
        snprintf(text, 32, "%.0f%s%s", value, *units[0] ? " " : "", units[0]);
    } else {
        snprintf(text, 32, "%.*f %s", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value, units[unit]);
    }
    return text;
}

const char *cli_bytes_text(uint64_t bytes, char *text)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    return scaled((double)bytes, 1024, units, 6, text);
}

const char *cli_count_text(uint64_t count, char *text)
{
    static const char *const units[] = {"", "K", "M", "B", "T"};
    return scaled((double)count, 1000, units, 5, text);
}

const char *cli_speed_text(double tokens_per_second, char *text)
{
    if (tokens_per_second > 0 && tokens_per_second < 0.1) {
        snprintf(text, 32, "%.0f", 1 / tokens_per_second);
        return "s a token";
    }
    snprintf(text, 32, tokens_per_second < 1000 ? "%.2f" : "%.0f", tokens_per_second);
    return "tokens/s";
}

const char *cli_seconds_text(double seconds, char *text)
{
    if (seconds < 1) {
        snprintf(text, 32, seconds < 0.0995 ? "%.2g ms" : "%.0f ms", seconds * 1e3);
    } else if (seconds < 9.95) {
        snprintf(text, 32, "%.1f s", seconds);
    } else if (seconds < 600) {
        snprintf(text, 32, "%.0f s", seconds);
    } else {
        snprintf(text, 32, "%.0f min", seconds / 60);
    }
    return text;
}

bool cli_ask(const char *question)
{
    char line[64];
    fprintf(stderr, "%s [y/N] ", question);
    fflush(stderr);
    return fgets(line, sizeof line, stdin) && (line[0] == 'y' || line[0] == 'Y');
}

int cli_text_columns(const char *text)
{
    int columns = 0;
    for (; *text; text++) {
        columns += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return columns;
}

/* ---- Progress ---- */

void cli_progress_begin(cli_progress *p, const char *label, uint64_t total)
{
    *p = (cli_progress){
        .label = label, .total = total, .start_ns = mo_clock_ns(), .shown = cli_terminal_is(stderr)};
}

static const char *amount_text(const cli_progress *p, uint64_t amount, char *text)
{
    return p->tokens ? (snprintf(text, 32, "%" PRIu64, amount), text) : cli_bytes_text(amount, text);
}

/* Writes " 1.2 GiB of 3.4 GiB, 56.7 MiB/s, 0:42 left" and returns its length. */
static int describe(const cli_progress *p, uint64_t done, int64_t now, char *tail, size_t size)
{
    char done_text[32], total_text[32], rate_text[32];
    const double seconds = (double)(now - p->start_ns) / 1e9;
    const uint64_t since = done > p->before ? done - p->before : 0;
    const double rate = seconds > 0 ? (double)since / seconds : 0;
    int used = snprintf(tail, size, " %s", amount_text(p, done, done_text));
    if (p->total) {
        used += snprintf(tail + used, size - (size_t)used, " of %s", amount_text(p, p->total, total_text));
    }
    used += snprintf(tail + used, size - (size_t)used, "%s, %s/s", p->tokens ? " tokens" : "",
                     amount_text(p, (uint64_t)rate, rate_text));
    if (p->total > done && rate > 0) {
        long left = (long)((double)(p->total - done) / rate + 0.5);
        used += left < 3600
                    ? snprintf(tail + used, size - (size_t)used, ", %ld:%02ld left", left / 60, left % 60)
                    : snprintf(tail + used, size - (size_t)used, ", %ld h %02ld min left", left / 3600,
                               left / 60 % 60);
    }
    return used;
}

static void draw(cli_progress *p, uint64_t done, int64_t now)
{
    char tail[128], bar[128];
    const int used = describe(p, done, now, tail, sizeof tail);
    int width = cli_terminal_width(stderr) - 1 - cli_text_columns(p->label) - used - 3;
    width = width > 60 ? 60 : width;
    bar[0] = 0;
    if (p->total && width >= 8) {
        double share = (double)done / (double)p->total;
        int full = (int)((share > 1 ? 1 : share) * width);
        bar[0] = ' ';
        bar[1] = '[';
        memset(bar + 2, '#', (size_t)full);
        memset(bar + 2 + full, '.', (size_t)(width - full));
        memcpy(bar + 2 + width, "]", 2);
    }
    fprintf(stderr, "\r%s%s%s\033[K", p->label, bar, tail);
    fflush(stderr);
    p->drawn_ns = now;
    p->drawn = true;
}

void cli_progress_update(cli_progress *p, uint64_t done)
{
    if (p->shown) {
        int64_t now = mo_clock_ns();
        if (now - p->drawn_ns >= 100000000) {
            draw(p, done, now);
        }
    } else if (p->lines) {
        int64_t now = mo_clock_ns();
        if (now - (p->drawn_ns ? p->drawn_ns : p->start_ns) >= 10000000000) {
            char tail[128];
            describe(p, done, now, tail, sizeof tail);
            fprintf(stderr, "%s:%s\n", p->label, tail);
            p->drawn_ns = now;
        }
    }
}

void cli_progress_end(cli_progress *p)
{
    if (p->drawn) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
        p->drawn = false;
    }
}

void cli_rounds_show(int64_t round, int64_t rounds, const char *part)
{
    if (cli_terminal_is(stderr)) {
        fprintf(stderr, "\rround %" PRId64 " of %" PRId64 ": %s\033[K", round + 1, rounds, part);
        fflush(stderr);
    }
}

void cli_rounds_hide(void)
{
    if (cli_terminal_is(stderr)) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
}

/* of the first failed flush; later writes may succeed and leave a gap */
static int stdout_errno;

bool cli_stdout_flush(void)
{
    errno = 0;
    const bool flushed = fflush(stdout) == 0;
    if (!flushed && !stdout_errno) {
        stdout_errno = errno;
    }
    return flushed;
}

bool cli_stdout_finish(void)
{
    const bool earlier = ferror(stdout) != 0;
    bool fine = cli_stdout_flush() && !earlier;
    if (fine && close(STDOUT_FILENO) != 0 && errno != EBADF) { /* network file systems report errors here */
        stdout_errno = errno;
        fine = false;
    }
    if (!fine && stdout_errno != EPIPE) {
        fprintf(stderr, "moraine: cannot write to standard output: %s\n",
                stdout_errno ? strerror(stdout_errno) : "the output is incomplete");
    }
    return fine;
}
