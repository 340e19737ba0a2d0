/* moraine tokenize: the token ids of a text. */
#include <moraine_tools.h>

#include <stdio.h>
#include <stdlib.h>

#include "cli/commands/commands.h"
#include "cli/default_model.h"
#include "cli/infile.h"
#include "cli/messages.h"
#include "cli/options.h"

int cli_tokenize(int argc, char **argv)
{
    bool special = false;
    const cli_option options[] = {
        {"special", 's', CLI_FLAG, NULL,
         "parse special tokens in the text, and add begin and end tokens as the vocabulary specifies",
         &special, 0, 0},
    };
    const cli_usage usage = {
        .command = "tokenize",
        .arguments = "[MODEL] FILE",
        .description = "Prints the token ids of the text in FILE (- for stdin), "
                       "separated by spaces. Reads only the model's header." CLI_DEFAULT_MODEL_HELP,
        .examples = "  moraine tokenize model.gguf prompt.txt\n"
                    "  echo -n 'Hello' | moraine tokenize model.gguf - --special\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .min_arguments = 1,
        .max_arguments = 2,
    };
    int first;
    int code = cli_options_parse(&usage, argc, argv, &first);
    if (code >= 0) {
        return code;
    }
    size_t length, count;
    int32_t *ids;
    mo_error err;
    const char *file = argv[argc - 1];
    /* If the only argument looks like a model, the text is missing. */
    if (argc - first == 1 && cli_model_name(file)) {
        fprintf(stderr, "moraine tokenize: missing text file after %s; - reads stdin\n", file);
        return CLI_USAGE;
    }
    const char *path = cli_model_path("tokenize", argc - first == 2 ? argv[first] : NULL, false, &code);
    char *text = path ? cli_read_file("tokenize", file, &length) : NULL;
    if (!text) {
        return path ? CLI_FAILED : code;
    }
    const mo_status status =
        mo_tokenize_file(path, text, length, special ? MO_TOKEN_SPECIAL : 0, &ids, &count, &err);
    free(text);
    if (status != MO_OK) {
        cli_say_error("tokenize", &err);
        return CLI_FAILED;
    }
    for (size_t i = 0; i < count; i++) {
        printf("%s%d", i ? " " : "", ids[i]);
    }
    printf("\n");
    free(ids);
    return CLI_OK;
}
