#include "cli/feed.h"

#include "cli/messages.h"
#include "cli/print/terminal.h"
#include "cli/signals.h"

/* A prompt shorter than this is done before a bar could be read. */
enum { BAR_TOKENS = 256 };

typedef struct feeding {
    cli_progress progress;
    bool bar;
} feeding;

static bool on_feed(void *user, int64_t done, int64_t total)
{
    feeding *f = user;
    (void)total;
    if (f->bar) {
        cli_progress_update(&f->progress, (uint64_t)done);
    }
    return !cli_interrupted();
}

bool cli_feed_tokens(const char *command, mo_session *session, const int32_t *tokens, int64_t count, bool bar,
                     mo_sampler *sampler, int32_t *next)
{
    mo_error err;
    mo_feed_report report = {.token = -1};
    feeding f = {.bar = bar && count - mo_session_length(session) >= BAR_TOKENS};
    if (f.bar) {
        cli_progress_begin(&f.progress, "prompt", (uint64_t)count);
        f.progress.tokens = true;
    }
    const mo_feed feed = {.size = sizeof(mo_feed),
                          .session = session,
                          .tokens = tokens,
                          .count = count,
                          .progress = on_feed,
                          .user = &f,
                          .report = &report,
                          .report_size = sizeof report,
                          .sampler = sampler};
    const mo_status status = cli_feed(&feed, &err);
    if (f.bar) {
        cli_progress_end(&f.progress);
    }
    if (status != MO_OK && status != MO_ECANCELLED) {
        cli_say_error(command, &err);
    }
    *next = report.token;
    return status == MO_OK;
}

bool cli_feed_discover(const char *command, mo_session *session, const int32_t *tokens, int64_t count)
{
    mo_error err;
    if (count < 1 || mo_session_length(session) > 0) {
        return true;
    }
    const mo_status status = cli_discover(session, tokens, count, &err);
    if (status != MO_OK && status != MO_ECANCELLED) {
        cli_say_error(command, &err);
    }
    return status == MO_OK;
}
