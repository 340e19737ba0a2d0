#include "cli/signals.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "cli/print/terminal.h"

/* The program must end half a second after a signal. The kernel needs the rest of it to free gigabytes. */
#define DEADLINE_NS 250000000

/* If an answer takes longer to end, another Ctrl-C ends the conversation. */
enum { UNHEARD_S = 2 };

static pthread_t main_thread;
static timer_t deadline;
static bool has_deadline;
static bool stays;
static bool terminal;                /* stderr is one */
static volatile sig_atomic_t caught; /* number of the signal, or 0 */
static struct timespec caught_at;
static volatile sig_atomic_t asked;     /* it ends the program; the next one does so at once */
static volatile sig_atomic_t answering; /* the command stays after Ctrl-C */
static volatile sig_atomic_t patient;
/* Written only by the main thread, which also runs the handler. */
static mo_session *volatile feeding;
static mo_generation *volatile stepping; /* the generation being stepped; NULL: none */

static const char *volatile discarded;

static void set_deadline(long ns)
{
    if (has_deadline) {
        timer_settime(deadline, 0, &(struct itimerspec){.it_value.tv_nsec = ns}, NULL);
    }
}

/* For signal handlers: only async-signal-safe calls. */
static _Noreturn void end_now(int number)
{
    if (terminal) { /* a progress bar may be visible */
        const ssize_t written = write(STDERR_FILENO, "\r\033[K", 4);
        (void)written;
    }
    if (discarded) {
        unlink(discarded);
    }
    _exit(128 + number);
}

static void on_deadline(int number)
{
    (void)number;
    if (caught && !patient) {
        end_now(caught);
    }
}

/* Has the answer not ended for a long time after the request? Its output may have no reader. */
static bool unheard(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return caught && now.tv_sec - caught_at.tv_sec > UNHEARD_S;
}

/* Threads of the library or a driver may get the signal; only the main thread may use the session. */
static void on_signal(int number)
{
    if (!pthread_equal(pthread_self(), main_thread)) {
        pthread_kill(main_thread, number);
        return;
    }
    const bool answer_only = answering && number == SIGINT; /* repeated Ctrl-C does not end a conversation */
    if (answer_only ? unheard() : asked) {
        end_now(number);
    }
    if (!asked) {
        if (!caught) {
            clock_gettime(CLOCK_MONOTONIC, &caught_at);
        }
        caught = number;
        asked = !answer_only;
    }
    if (feeding) {
        mo_session_cancel(feeding);
    }
    if (stepping) {
        mo_generation_cancel(stepping);
    }
    if (!(stays && number == SIGINT)) {
        set_deadline(DEADLINE_NS);
    }
}

static void on_continue(int number)
{
    (void)number;
    cli_terminal_continue();
}

/* An ignored signal stays ignored, because the parent process wants it so. */
static void catch_one(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, before;
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
        sigaction(number, &action, NULL);
    }
}

void cli_signals_catch(bool staying)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    main_thread = pthread_self();
    terminal = cli_terminal_is(stderr);
    stays = staying;
    signal(SIGPIPE, SIG_IGN); /* closed pipes and file size limits are reported by the failed write */
    signal(SIGXFSZ, SIG_IGN);
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_deadline, .sa_flags = SA_RESTART}, NULL);
    has_deadline = timer_create(CLOCK_MONOTONIC, &event, &deadline) == 0;
    catch_one(SIGINT, on_signal);
    catch_one(SIGTERM, on_signal);
    catch_one(SIGHUP, on_signal);
    catch_one(SIGCONT, on_continue);
}

bool cli_interrupted(void)
{
    return caught != 0;
}

void cli_interrupt_note(int number)
{
    caught = number;
}

void cli_interrupt_forget(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before); /* keeps another signal that arrives now */
    if (caught == SIGINT) {
        caught = 0;
        asked = 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

bool cli_interrupt_is_final(void)
{
    const int number = caught;
    return number != 0 && (number != SIGINT || asked);
}

void cli_interrupt_catch(void)
{
    answering = 1;
    cli_interrupt_forget();
}

void cli_interrupt_release(void)
{
    cli_interrupt_forget();
    answering = 0;
}

int cli_interrupt_code(int code)
{
    return caught ? 128 + caught : code;
}

void cli_signals_patience(void)
{
    patient = 1;
    set_deadline(0);
}

void cli_signals_hurry(void)
{
    patient = 0;
    if (caught) {
        set_deadline(DEADLINE_NS);
    }
}

void cli_signals_discard(const char *path)
{
    discarded = path;
}

void cli_signals_discard_part(const char *path)
{
    static char part[PATH_MAX + sizeof ".moraine-part"];
    const int length = snprintf(part, sizeof part, "%s.moraine-part", path);
    cli_signals_discard(length < (int)sizeof part ? part : NULL);
}

static mo_status refuse(mo_error *err)
{
    *err = (mo_error){.status = MO_ECANCELLED, .detail = "cancelled"};
    return MO_ECANCELLED;
}

mo_status cli_feed(const mo_feed *feed, mo_error *err)
{
    feeding = feed->session;
    const mo_status status = caught ? refuse(err) : mo_session_feed(feed, 1, err);
    feeding = NULL;
    mo_session_clear_cancel(feed->session); /* a conversation continues after Ctrl-C */
    return status;
}

int cli_step(mo_generation *generation, mo_error *err)
{
    stepping = generation;
    if (caught) {
        mo_generation_cancel(generation);
    }
    const int running = mo_generation_step(&generation, 1, err);
    stepping = NULL;
    return running;
}

mo_status cli_step_part(mo_generation_part *part, mo_error *err)
{
    stepping = part->generation;
    mo_feed feed;
    mo_status status = caught ? refuse(err) : mo_generation_step_parts(part, &feed, 1, err);
    stepping = NULL;
    if (status == MO_OK && part->error.status != MO_OK) {
        *err = part->error;
        status = err->status;
    }
    return status;
}

mo_status cli_discover(mo_session *session, const int32_t *tokens, int64_t count, mo_error *err)
{
    int64_t read = 0;
    feeding = session;
    const mo_status status = caught ? refuse(err) : mo_session_discover(session, tokens, count, &read, err);
    feeding = NULL;
    mo_session_clear_cancel(session);
    return status;
}
