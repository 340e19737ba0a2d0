/* Input: messages of one or more lines. A line that ends with \ continues on the next one; """ begins and
   ends a message of several lines; text pasted at once is one message. */
#ifndef MO_CLI_INPUT_H
#define MO_CLI_INPUT_H

#include <stdbool.h>

typedef struct cli_input cli_input;

/* history: value of --history, see cli_history_open(). words: commands for Tab completion, see
   cli_lines_complete(). NULL when out of memory. */
cli_input *cli_input_open(const char *history, const char *const *words);
void cli_input_close(cli_input *input);

/* The next message, without surrounding line ends, possibly empty; valid until the next call. NULL at the end
   of input. *literal: never a command, because it has several lines or quotes. */
const char *cli_input_read(cli_input *input, bool *literal);

#endif
