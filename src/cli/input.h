/* Input: messages of one or more lines. A line that ends with \ goes on with the next one; """ begins and ends a message
 * of several lines; what is pasted at once is one message. */
#ifndef MO_CLI_INPUT_H
#define MO_CLI_INPUT_H

#include <stdbool.h>

typedef struct cli_input cli_input;

/* history: as --history says, see cli_history_open(). words: commands that Tab completes, see cli_lines_complete(). NULL when memory is out. */
cli_input *cli_input_open(const char *history, const char *const *words);
void cli_input_close(cli_input *input);

/* The next message, without line ends around it and perhaps empty; valid until the next call. NULL at the end of input.
 * *literal: it is no command even if it looks like one, because it has several lines or quotes. */
const char *cli_input_read(cli_input *input, bool *literal);

#endif
