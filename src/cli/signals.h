/* Signals: Ctrl-C, SIGTERM, and SIGHUP when a terminal closes, for all commands. The first signal requests an
   end: it cancels the current feed, and callbacks and loops that check cli_interrupted() stop. A timer soon
   ends whatever still runs, so that the user never waits. The exit code is 128 + the signal's number. A
   second signal ends the program at once. Timer and second signal also remove incomplete files. Signals that
   were ignored at start stay ignored. */
#ifndef MO_CLI_SIGNALS_H
#define MO_CLI_SIGNALS_H

#include <moraine_server.h>

/* For main(): catches signals from now on. `stays`: Ctrl-C ends the current work, not the command (chat).
   Signals for failed writes are ignored, because the write reports the error. */
void cli_signals_catch(bool stays);

/* Was the end of the command or of its current work requested? */
bool cli_interrupted(void);

/* Acts as if this signal had been caught; for code with its own handler. */
void cli_interrupt_note(int number);

/* A Ctrl-C was handled: the command continues. */
void cli_interrupt_forget(void);

/* Must the command end, not only its current work? */
bool cli_interrupt_is_final(void);

/* Call around every answer of a command that stays, and at all times while it reads from a terminal. Ctrl-C,
   also repeated, then ends only the answer, unless it does not end within seconds. Earlier signals are
   forgotten, and those during the answer when it is released. */
void cli_interrupt_catch(void);
void cli_interrupt_release(void);

/* The exit code of a command that returned `code`: 128 + number after a signal, as shells expect. */
int cli_interrupt_code(int code);

/* The following work is short and must not be lost: suspends the timer. */
void cli_signals_patience(void);

/* The following work may block, for example on the reader of a pipe: resumes the timer. */
void cli_signals_hurry(void);

/* A file to remove if the timer or a second signal ends the program; NULL: none. Owned by the caller. */
void cli_signals_discard(const char *path);

/* The same for the temporary name of a file that the library writes to PATH. */
void cli_signals_discard_part(const char *path);

/* mo_session_feed() and mo_session_discover(), cancelled by signals within a step. Main thread only. */
mo_status cli_feed(const mo_feed *feed, mo_error *err);
/* The same for mo_generation_step() of one generation. A generation that was cancelled before has ended. */
int cli_step(mo_generation *generation, mo_error *err);
mo_status cli_step_part(mo_generation_part *part, mo_error *err);
mo_status cli_discover(mo_session *session, const int32_t *tokens, int64_t count, mo_error *err);

#endif
