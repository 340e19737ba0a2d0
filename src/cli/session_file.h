/* Session file: a conversation with the state of its session, to go on with later as if nothing had been between. */
#ifndef MO_CLI_SESSION_FILE_H
#define MO_CLI_SESSION_FILE_H

#include "cli/conversation.h"
#include "cli/generate.h"

typedef struct cli_session_file cli_session_file;

/* Reads and checks a file before a model is loaded. NULL with *code CLI_OK when there is none yet but one can be made there;
 * NULL after saying what is wrong. */
cli_session_file *cli_session_file_open(const char *command, const char *path, int *code);
void cli_session_file_close(cli_session_file *f);

bool cli_session_file_is_raw(const cli_session_file *f); /* a text that is continued, not a conversation */

/* Brings the conversation, g's tokens and its session to what was saved. False after saying what is wrong: another model,
 * another KV cache format, too small a context. The conversation is then unchanged. */
bool cli_session_file_restore(const cli_session_file *f, cli_generation *g, cli_conversation *c);

/* Writes all of it, as the whole file or not at all, in place of an older session and of nothing else. False after saying what
 * is wrong. */
bool cli_session_file_write(const char *path, const cli_generation *g, const cli_conversation *c, bool raw);

#endif
