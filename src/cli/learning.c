#include "cli/learning.h"

#include "cli/messages.h"
#include "cli/print/exit_code.h"

static bool failed; /* used only by the main thread */

void cli_learning_done(const char *command, mo_model *model)
{
    mo_error err;
    if (mo_model_request_done(model, &err) != MO_OK && !failed) {
        cli_say_error(command, &err);
        failed = true;
    }
}

int cli_learning_code(int code)
{
    return code == CLI_OK && failed ? CLI_FAILED : code;
}
