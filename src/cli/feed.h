/* Feed: a prompt goes into a session, with a progress bar, until it is done or Ctrl-C. */
#ifndef MO_CLI_FEED_H
#define MO_CLI_FEED_H

#include <moraine_server.h>

/* Feeds tokens with a progress bar when there are many, until done or Ctrl-C; says what went wrong and
 * returns false. sampler: picks *next, the token that follows, where the logits are (a device hands over no row for the likeliest
 * one); NULL: none, and *next is negative. */
bool cli_feed_tokens(const char *command, mo_session *session, const int32_t *tokens, int64_t count, bool bar,
                     mo_sampler *sampler, int32_t *next);

/* Lets the first tokens of a text find its experts, when the session holds nothing yet. */
bool cli_feed_discover(const char *command, mo_session *session, const int32_t *tokens, int64_t count);

#endif
