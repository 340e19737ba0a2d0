/* Session file: a conversation with the state of its session, so that it can continue later. */
#ifndef MO_CLI_SESSION_FILE_H
#define MO_CLI_SESSION_FILE_H

#include "cli/conversation.h"
#include "cli/generate.h"

typedef struct cli_session_file cli_session_file;

/* Reads and checks a file before a model is loaded. NULL with *code CLI_OK if it does not exist but can be
   created; NULL after printing the error. */
cli_session_file *cli_session_file_open(const char *command, const char *path, int *code);
void cli_session_file_close(cli_session_file *f);

bool cli_session_file_is_raw(const cli_session_file *f); /* a continued text, not a conversation */

/* Restores the conversation, g's tokens and its session. False after printing the error: another model,
   another KV cache format, context too small. The conversation is then unchanged. */
bool cli_session_file_restore(const cli_session_file *f, cli_generation *g, cli_conversation *c);

/* Writes the session atomically; only replaces an older session file. False after printing the error. */
bool cli_session_file_write(const char *path, const cli_generation *g, const cli_conversation *c, bool raw);

#endif
