/* moraine tokenize: the token ids of a text. */
#include <moraine.h>

#include <stdio.h>
#include <stdlib.h>

#include "commands.h"
#include "loading.h"

int cli_tokenize(int argc, char **argv)
{
    bool special = false;
    const cli_option options[] = {
        {"special", 's', CLI_FLAG, NULL,
         "recognise special tokens written in the text, and add begin and end tokens as the vocabulary asks",
         &special, 0, 0},
    };
    const cli_usage usage = {
        .command = "tokenize",
        .arguments = "MODEL FILE",
        .description =
            "Prints the token ids of the text in FILE (- for stdin), separated by spaces. Only the "
            "model's header is read.",
        .examples = "  moraine tokenize model.gguf prompt.txt\n"
                    "  echo -n 'Hello' | moraine tokenize model.gguf - --special\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .min_arguments = 2,
        .max_arguments = 2,
    };
    int first;
    const int code = cli_options_parse(&usage, argc, argv, &first);
    if (code >= 0) {
        return code;
    }
    size_t length, count;
    int32_t *ids;
    mo_error err;
    char *text = cli_read_file("tokenize", argv[first + 1], &length);
    if (!text) {
        return CLI_FAILED;
    }
    const mo_status status =
        mo_tokenise_file(argv[first], text, length, special ? MO_TOKEN_SPECIAL : 0, &ids, &count, &err);
    free(text);
    if (status != MO_OK) {
        fprintf(stderr, "moraine tokenize: %s\n", err.detail);
        return CLI_FAILED;
    }
    for (size_t i = 0; i < count; i++) {
        printf("%s%d", i ? " " : "", ids[i]);
    }
    printf("\n");
    free(ids);
    return CLI_OK;
}
