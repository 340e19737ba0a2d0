#include "cli/learning.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/messages.h"

void cli_learning_set(const cli_learning *l, mo_model_options *out)
{
    const char *mode = getenv("LLAMA_MOE_LAYER_PERF"); /* the hot cache's name for it */
    out->learning = l->options;
    out->learning.perf_mode = mode && mode[0] ? mode : NULL;
    out->cpu_moe = l->cpu_moe;
}

static bool failed; /* once, in the main thread */

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
