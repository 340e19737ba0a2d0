/* Signals: Ctrl-C, SIGTERM and the SIGHUP of a terminal that goes, for all commands in one place. The first one asks for an end: it cancels the feed that
 * runs, and callbacks and loops that look at cli_interrupted() give up. Whatever has not come to its end soon after is
 * ended by a timer, so that no setting makes the user wait. The exit code is 128 + the signal's number. A second signal
 * ends the program at once, and like the timer it removes what is half written. A signal that was ignored when the
 * program began stays ignored. */
#ifndef MO_CLI_SIGNALS_H
#define MO_CLI_SIGNALS_H

#include <moraine_server.h>

/* For main(): catches them from now on. `stays`: Ctrl-C ends what runs and not the command (chat). Signals that tell of
 * failed writes are ignored: the write says so itself. */
void cli_signals_catch(bool stays);

/* Was the command asked to end, or what it does now? */
bool cli_interrupted(void);

/* As if this signal had been caught: by who has a handler of its own for a while. */
void cli_interrupt_note(int number);

/* A Ctrl-C has had its effect: the command goes on. */
void cli_interrupt_forget(void);

/* Is the command to end, and not what it does alone? */
bool cli_interrupt_is_final(void);

/* Around every answer of a command that stays, and all the time where it talks to a terminal: Ctrl-C between them,
 * however often, ends the answer alone, unless that does not end within seconds. Earlier ones are forgotten, and those of the answer when it is released. */
void cli_interrupt_catch(void);
void cli_interrupt_release(void);

/* The exit code of a command that returned `code`: 128 and its number after a signal that was not forgotten, as shells count. */
int cli_interrupt_code(int code);

/* What follows is short and should not be lost: the timer lets it be. */
void cli_signals_patience(void);

/* What follows may wait for others, such as the reader of a pipe: the timer counts again. */
void cli_signals_hurry(void);

/* A file to be removed when the timer or a second signal ends the program; NULL: none any more. It stays the caller's. */
void cli_signals_discard(const char *path);

/* The same for what the library writes PATH as until it is complete. */
void cli_signals_discard_part(const char *path);

/* mo_session_feed() and mo_session_discover(), which a signal cancels within a step. Main thread only. */
mo_status cli_feed(const mo_feed *feed, mo_error *err);
/* The same for mo_generation_step() of one; a generation that was cancelled before has ended. */
int cli_step(mo_generation *generation, mo_error *err);
mo_status cli_step_part(mo_generation_part *part, mo_error *err);
mo_status cli_discover(mo_session *session, const int32_t *tokens, int64_t count, mo_error *err);

#endif
