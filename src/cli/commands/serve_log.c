#include "cli/commands/serve_log.h"

#include <stdio.h>
#include <string.h>

#include "cli/messages.h"
#include "server/common/log.h"

static mo_log_level level = MO_LOG_INFO;

bool cli_serve_log(const char *format, const char *level_name)
{
    static const char *const levels[] = {"error", "warning", "info", "debug"};
    bool known = !level_name;
    for (int i = 0; i < 4 && level_name; i++) {
        if (strcmp(levels[i], level_name) == 0) {
            level = (mo_log_level)i;
            known = true;
        }
    }
    if (!known) {
        fprintf(stderr, "moraine serve: --log-level must be error, warning, info or debug, not %s\n",
                level_name);
        return false;
    }
    if (strcmp(format, "text") != 0 && strcmp(format, "json") != 0) {
        fprintf(stderr, "moraine serve: --log-format must be text or json, not %s\n", format);
        return false;
    }
    srv_log_set(strcmp(format, "json") == 0 ? SRV_LOG_JSON : SRV_LOG_TEXT, level);
    return true;
}

static void on_log(void *user, mo_log_level at, const char *subsystem, const char *text)
{
    char said[2048];
    (void)user;
    snprintf(said, sizeof said, "%s", text);
    cli_name_options(said, sizeof said);
    srv_log(at, subsystem, (srv_log_field[]){SRV_TEXT_FIELD("message", said), {0}});
}

void cli_serve_log_library(void)
{
    mo_log_set(on_log, NULL, level);
}
