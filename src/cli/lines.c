#include "lines.h"

#include <histedit.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HISTORY = 1000 };

struct cli_lines {
    const char *prompt;
    EditLine *edit;   /* NULL: stdin is no terminal */
    History *history; /* with edit */
    char *line;
    size_t room;
};

static char *give_prompt(EditLine *edit)
{
    void *user = NULL;
    el_get(edit, EL_CLIENTDATA, &user);
    return (char *)((cli_lines *)user)->prompt;
}

cli_lines *cli_lines_open(const char *prompt)
{
    HistEvent event;
    cli_lines *l = calloc(1, sizeof *l);
    if (!l) {
        return NULL;
    }
    l->prompt = prompt;
    if (isatty(STDIN_FILENO)) {
        l->edit = el_init("moraine", stdin, stdout, stderr);
        l->history = history_init();
    }
    if (l->edit && l->history) {
        history(l->history, &event, H_SETSIZE, HISTORY);
        history(l->history, &event, H_SETUNIQUE, 1);
        el_set(l->edit, EL_CLIENTDATA, l);
        el_set(l->edit, EL_PROMPT, give_prompt);
        el_set(l->edit, EL_EDITOR, "emacs");
        el_set(l->edit, EL_HIST, history, l->history);
        el_set(l->edit, EL_SIGNAL, 0);
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
        free(lines->line);
        free(lines);
    }
}

static volatile sig_atomic_t given_up;

static void on_interrupt(int number)
{
    (void)number;
    given_up = 1;
}

/* One edited line; NULL at the end of input. */
static const char *edit_line(cli_lines *l)
{
    struct sigaction mine = {.sa_handler = on_interrupt}, before; /* no SA_RESTART: reading ends */
    int count = 0;
    const char *line;
    sigaction(SIGINT, &mine, &before);
    do {
        given_up = 0;
        line = el_gets(l->edit, &count);
        if (given_up) {
            fputs("^C (Ctrl-D leaves)\n", stdout);
            el_reset(l->edit);
        }
    } while (given_up);
    sigaction(SIGINT, &before, NULL);
    return count > 0 ? line : NULL;
}

const char *cli_lines_read(cli_lines *l)
{
    HistEvent event;
    if (!l->edit) {
        const ssize_t got = getline(&l->line, &l->room, stdin);
        if (got < 0) {
            return NULL;
        }
        l->line[strcspn(l->line, "\r\n")] = '\0';
        return l->line;
    }
    const char *line = edit_line(l);
    free(l->line);
    l->line = line ? strdup(line) : NULL;
    if (l->line) {
        l->line[strcspn(l->line, "\r\n")] = '\0';
        if (l->line[0]) {
            history(l->history, &event, H_ENTER, line);
        }
    }
    return l->line;
}
