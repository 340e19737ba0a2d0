/* Stop: strings that end an answer, found across the borders of tokens. What might be the beginning of one waits. */
#ifndef MO_CLI_STOP_H
#define MO_CLI_STOP_H

#include <moraine.h>

#include "options.h"

#define CLI_STOP_HELP                                                                                        \
    "end the answer before TEXT; may be given several times; a newline is $'\\n' in bash and zsh"

/* False after saying what is wrong with what was given. */
bool cli_stop_check(const char *command, const cli_texts *strings);

typedef struct cli_stop {
    const cli_texts *strings; /* NULL or none: everything passes at once */
    char *held;               /* what came last and might begin a string, after what was given out */
    size_t length, space, given;
    const char *found; /* the string that ended the answer */
} cli_stop;

void cli_stop_open(cli_stop *s, const cli_texts *strings);
void cli_stop_close(cli_stop *s);

/* Adds text; *out is what can be shown now, valid until the next call. With s->found set it ends before that string. False when
 * memory is out. */
bool cli_stop_put(cli_stop *s, const mo_text *text, mo_text *out);

/* What still waits: the answer has ended, and it was no stop string. */
void cli_stop_flush(cli_stop *s, mo_text *out);

#endif
