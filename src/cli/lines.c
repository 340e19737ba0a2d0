#include "cli/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "base/array.h"
#include "cli/history.h"
#include "cli/print/terminal.h"
#include "cli/signals.h"

struct cli_lines {
    const char *prompt;
    EditLine *edit;           /* NULL: stdin is not a terminal */
    History *history;         /* used with `edit` */
    FILE *plain;              /* stdin, used without `edit` */
    bool brackets;            /* the terminal supports bracketed paste */
    bool begun;               /* input was read */
    const char *const *words; /* for Tab completion; NULL: none */
    char *line;
    size_t space;
};

static char *prompt_text(EditLine *edit)
{
    void *user = NULL;
    el_get(edit, EL_CLIENTDATA, &user);
    return (char *)((cli_lines *)user)->prompt;
}

/* ---- Signals while a line is read ---- */

/* A signal handler writes a byte to this pipe to end a wait for input, also one that is only beginning. The
   editor's own writes are not interrupted: stdio would lose the text of a failed write, for example the
   prompt. */
static int wake[2] = {-1, -1};
static volatile sig_atomic_t caught; /* the last signal while a line was read */

static void on_signal(int number)
{
    const int before = errno;
    caught = number;
    const ssize_t written = write(wake[1], "", 1);
    (void)written; /* a full pipe wakes up as well */
    errno = before;
}

/* Events of the terminal since the last check. */
static volatile sig_atomic_t stopped, continued, resized;

static void on_change(int number)
{
    const int before = errno;
    *(number == SIGTSTP ? &stopped : number == SIGCONT ? &continued : &resized) = 1;
    const ssize_t written = write(wake[1], "", 1);
    (void)written;
    errno = before;
}

static bool make_wake(void)
{
    if (wake[0] < 0 && pipe(wake) != 0) {
        return false;
    }
    for (int i = 0; i < 2; i++) {
        fcntl(wake[i], F_SETFL, O_NONBLOCK);
        fcntl(wake[i], F_SETFD, FD_CLOEXEC);
    }
    return true;
}

static void forget_wakes(void)
{
    char bytes[64];
    while (read(wake[0], bytes, sizeof bytes) > 0) {
    }
}

static void forget_signals(void)
{
    caught = 0;
    stopped = continued = resized = 0;
    forget_wakes();
}

/* Bytes of stdin, as read(). EINTR: a signal ends the line; EAGAIN: a signal for the editor. */
static ssize_t read_stdin(void *cookie, char *bytes, size_t most)
{
    struct pollfd ways[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = wake[0], .events = POLLIN}};
    (void)cookie;
    for (;;) {
        const int ready = poll(ways, 2, -1);
        if (caught) {
            errno = EINTR;
            return -1;
        }
        if (stopped || continued || resized) {
            forget_wakes();
            errno = EAGAIN;
            return -1;
        }
        if (ready < 0 && errno != EINTR) {
            return -1;
        }
        if (ready > 0 && ways[0].revents) {
            return read(STDIN_FILENO, bytes, most);
        }
        if (ready > 0) {
            forget_wakes(); /* for a signal that was handled */
        }
    }
}

static void tell_brackets(const cli_lines *l, bool on)
{
    if (l->brackets) {
        fputs(on ? "\033[?2004h" : "\033[?2004l", stdout);
        fflush(stdout);
    }
}

/* Ctrl-Z: restores the terminal for the shell, and stops. */
static void stop(const cli_lines *l)
{
    struct sigaction usual = {.sa_handler = SIG_DFL}, mine;
    el_set(l->edit, EL_PREP_TERM, 0);
    tell_brackets(l, false);
    fputs("\n", stdout);
    fflush(stdout);
    sigaction(SIGTSTP, &usual, &mine);
    raise(SIGTSTP);
    sigaction(SIGTSTP, &mine, NULL);
}

/* The number of rows that prompt and line occupy above the cursor in a window of this width. */
static int rows_above(const cli_lines *l, int width)
{
    const LineInfoW *line = el_wline(l->edit);
    int column = cli_text_columns(l->prompt);
    for (const wchar_t *c = line->buffer; c < line->cursor; c++) {
        const int columns = *c == L'\n' ? width - column % width : wcwidth(*c);
        column += columns > 0 ? columns : 0;
    }
    return column / width;
}

/* Terminals wrap lines anew when their width changes: the drawn line begins this many rows above. */
static void resize(const cli_lines *l)
{
    const int rows = rows_above(l, cli_terminal_width(stdout));
    if (l->brackets) {
        if (rows > 0) {
            fprintf(stdout, "\033[%dA", rows);
        }
        fputs("\r\033[J", stdout);
        fflush(stdout);
    }
    el_resize(l->edit);
    el_set(l->edit, EL_REFRESH);
}

static void attend(EditLine *edit)
{
    void *user = NULL;
    el_get(edit, EL_CLIENTDATA, &user);
    const cli_lines *l = user;
    if (stopped) {
        stopped = 0;
        stop(l);
        continued = 1;
    }
    if (resized && !continued) {
        resize(l);
    }
    if (continued) { /* other programs may have changed the terminal's mode */
        el_resize(edit);
        el_set(edit, EL_PREP_TERM, 0);
        el_set(edit, EL_PREP_TERM, 1);
        tell_brackets(l, true);
        el_set(edit, EL_REFRESH);
    }
    continued = resized = 0;
}

/* The editor's callback for the next character. Skips invalid bytes. */
static int next_character(EditLine *edit, wchar_t *out)
{
    mbstate_t state = {0};
    bool begun = false; /* a character is incomplete */
    char byte;
    for (;;) {
        const ssize_t got = read_stdin(NULL, &byte, 1);
        if (got < 0 && errno == EAGAIN && (stopped || continued || resized)) {
            attend(edit);
            continue;
        }
        if (got <= 0) {
            return (int)got;
        }
        size_t used = mbrtowc(out, &byte, 1, &state);
        if (used == (size_t)-1) {
            state = (mbstate_t){0};
            used = begun ? mbrtowc(out, &byte, 1, &state) : used; /* it may begin another character */
        }
        if (used <= 1) {
            return 1;
        }
        begun = used == (size_t)-2;
        if (!begun) {
            state = (mbstate_t){0};
        }
    }
}

/* ---- Pasting ---- */

#define PASTE_BEGIN "\033[200~"
#define PASTE_END   L"\033[201~"

/* Bound to PASTE_BEGIN: inserts everything up to PASTE_END, so that a newline does not end the line. */
static unsigned char on_paste(EditLine *edit, int key)
{
    static const size_t end = sizeof PASTE_END / sizeof(wchar_t) - 1;
    wchar_t *text = NULL, c, before = 0;
    size_t count = 0, space = 0;
    (void)key;
    while (el_wgetc(edit, &c) == 1) {
        if (!mo_array_reserve(&text, &space, count + 2, sizeof *text)) {
            break;
        }
        const bool second_half = c == L'\n' && before == L'\r';
        before = c;
        if (!second_half && c) {
            text[count++] = c == L'\r' ? L'\n' : c;
        }
        if (count >= end && wmemcmp(text + count - end, PASTE_END, end) == 0) {
            count -= end;
            break;
        }
    }
    if (count > 0) {
        text[count] = L'\0';
        el_winsertstr(edit, text);
    }
    free(text);
    return CC_REFRESH;
}

/* ---- Completion ---- */

/* The number of words with this prefix; the first *common bytes of all are equal; *first is one of them. */
static int count_matches(const cli_lines *l, const char *text, size_t length, const char **first,
                         size_t *common)
{
    int count = 0;
    for (const char *const *word = l->words; *word; word++) {
        if (strncmp(*word, text, length) != 0) {
            continue;
        }
        if (count++ == 0) {
            *first = *word;
            *common = strlen(*word);
        }
        size_t same = 0;
        while (same < *common && (*word)[same] == (*first)[same]) {
            same++;
        }
        *common = same;
    }
    return count;
}

static void list_matches(const cli_lines *l, const char *text, size_t length)
{
    fputs("\n", stdout);
    for (const char *const *word = l->words; *word; word++) {
        if (strncmp(*word, text, length) == 0) {
            printf("%s  ", *word);
        }
    }
    fputs("\n", stdout);
    fflush(stdout);
}

static unsigned char on_tab(EditLine *edit, int key)
{
    void *user = NULL;
    el_get(edit, EL_CLIENTDATA, &user);
    const cli_lines *l = user;
    const LineInfo *line = el_line(edit);
    const size_t length = (size_t)(line->cursor - line->buffer);
    const char *first = NULL;
    size_t common = 0;
    char more[64];
    if (!l->words || length == 0 || line->buffer[0] != '/') {
        return CC_ERROR;
    }
    if (memchr(line->buffer, ' ', length)) {
        return _el_fn_complete(edit, key);
    }
    const int count = count_matches(l, line->buffer, length, &first, &common);
    if (count == 0) {
        return CC_ERROR;
    }
    if (count > 1 && common == length) {
        list_matches(l, line->buffer, length);
        return CC_REDISPLAY;
    }
    snprintf(more, sizeof more, "%.*s%s", (int)(common - length), first + length, count == 1 ? " " : "");
    el_insertstr(edit, more);
    return CC_REFRESH;
}

/* ---- Opening ---- */

cli_lines *cli_lines_open(void)
{
    HistEvent event;
    cli_lines *l = calloc(1, sizeof *l);
    if (!l) {
        return NULL;
    }
    if (!make_wake()) {
        free(l);
        return NULL;
    }
    l->prompt = "";
    if (isatty(STDIN_FILENO)) {
        /* Only this category: numbers and messages do not change. */
        if (!setlocale(LC_CTYPE, "C.UTF-8")) {
            setlocale(LC_CTYPE, "");
        }
        l->edit = el_init("moraine", stdin, stdout, stderr);
        l->history = history_init();
    }
    if (l->edit && l->history) {
        const char *term = getenv("TERM");
        l->brackets = isatty(STDOUT_FILENO) && term && *term && strcmp(term, "dumb") != 0;
        history(l->history, &event, H_SETSIZE, CLI_HISTORY_MAX);
        history(l->history, &event, H_SETUNIQUE, 1);
        el_set(l->edit, EL_CLIENTDATA, l);
        el_set(l->edit, EL_PROMPT, prompt_text);
        el_set(l->edit, EL_EDITOR, "emacs");
        el_set(l->edit, EL_HIST, history, l->history);
        el_set(l->edit, EL_SIGNAL, 0);
        el_set(l->edit, EL_GETCFN, next_character);
        el_set(l->edit, EL_ADDFN, "paste", "Insert pasted text", on_paste);
        el_set(l->edit, EL_BIND, PASTE_BEGIN, "paste", NULL);
        el_set(l->edit, EL_ADDFN, "complete", "Complete a command", on_tab);
        el_set(l->edit, EL_BIND, "^I", "complete", NULL);
    } else {
        l->plain = fopencookie(NULL, "r", (cookie_io_functions_t){.read = read_stdin});
        if (!l->plain) {
            cli_lines_close(l);
            return NULL;
        }
    }
    return l;
}

void cli_lines_close(cli_lines *lines)
{
    if (lines) {
        if (lines->history) {
            history_end(lines->history);
        }
        if (lines->edit) {
            el_end(lines->edit);
        }
        if (lines->plain) {
            fclose(lines->plain);
        }
        free(lines->line);
        free(lines);
    }
}

bool cli_lines_edited(const cli_lines *lines)
{
    return lines->edit != NULL;
}

void cli_lines_complete(cli_lines *lines, const char *const *words)
{
    lines->words = words;
}

void cli_lines_remember(cli_lines *lines, const char *text)
{
    HistEvent event;
    if (lines->history && text[0]) {
        history(lines->history, &event, H_ENTER, text);
    }
}

/* ---- Reading ---- */

/* The first three end a line; the others matter only to the editor. */
enum { ENDING = 3, SIGNALS = 6 };
static const int signals[SIGNALS] = {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT, SIGWINCH};

static const char *edit_line(cli_lines *l)
{
    int count = 0;
    tell_brackets(l, true);
    const char *line = el_gets(l->edit, &count);
    tell_brackets(l, false);
    free(l->line);
    l->line = line && count > 0 && !caught ? strdup(line) : NULL;
    return l->line;
}

static const char *plain_line(cli_lines *l)
{
    const ssize_t got = getline(&l->line, &l->space, l->plain);
    if (got < 0) {
        return NULL;
    }
    if (strlen(l->line) < (size_t)got) {
        fprintf(stderr, "moraine chat: a line contains a NUL byte; the message ends there\n");
    }
    if (!l->begun && strncmp(l->line, "\xef\xbb\xbf", 3) == 0) { /* a byte order mark is not text */
        memmove(l->line, l->line + 3, (size_t)got - 2);
    }
    return l->line;
}

/* Removes a line end: \n or \r\n. */
static void cut_end(char *line)
{
    size_t length = strlen(line);
    if (length > 0 && line[length - 1] == '\n') {
        line[--length] = '\0';
        if (length > 0 && line[length - 1] == '\r') {
            line[length - 1] = '\0';
        }
    }
}

cli_line cli_lines_read(cli_lines *l, const char *prompt, const char **line)
{
    const struct sigaction ends = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct sigaction before[SIGNALS];
    const struct sigaction changes = {.sa_handler = on_change, .sa_flags = SA_RESTART};
    const int count = l->plain ? ENDING : SIGNALS;
    l->prompt = prompt;
    forget_signals();
    for (int i = 0; i < count; i++) {
        if (sigaction(signals[i], NULL, &before[i]) == 0 && before[i].sa_handler != SIG_IGN) {
            sigaction(signals[i], i < ENDING ? &ends : &changes, NULL);
        }
    }
    if (!l->plain) { /* a Ctrl-C between two lines ends nothing */
        cli_interrupt_forget();
    }
    const bool ending = cli_interrupted(); /* a signal before these handlers were installed */
    *line = ending ? NULL : l->plain ? plain_line(l) : edit_line(l);
    for (int i = 0; i < count; i++) {
        sigaction(signals[i], &before[i], NULL);
    }
    l->begun = true;
    if (caught == SIGINT && !l->plain) {
        fputs("^C (Ctrl-D exits)\n", stdout);
        el_reset(l->edit);
        return CLI_LINE_GIVEN_UP;
    }
    if (caught) {
        cli_interrupt_note(caught);
        return CLI_LINE_END;
    }
    if (!*line) {
        return CLI_LINE_END;
    }
    cut_end(l->line);
    return CLI_LINE;
}
