#include "cli/welcome.h"

#include <stdio.h>

#include "cli/pulled.h"

void cli_welcome_print(void)
{
    cli_pulled pulled[1];
    const char *name = cli_pulled_all(pulled, 1) > 0 ? pulled[0].name : NULL;
    fprintf(stderr,
            "moraine runs mixture-of-experts language models that are larger than the GPU's memory, and\n"
            "larger than RAM. What to do next:\n\n");
    if (name) {
        fprintf(stderr, "  moraine chat %s\n", name);
        fprintf(stderr, "      talk to a model that you have pulled; moraine list names all of them\n");
    } else {
        fprintf(stderr, "  moraine chat\n"
                        "      talk to the small model that is built in\n");
#ifdef MO_PULL
        fprintf(stderr, "  moraine pull ggml-org/gpt-oss-20b-GGUF\n"
                        "      fetch a real one, after saying what it takes and how fast it will be here\n");
#endif
    }
#ifdef MO_SERVER
    fprintf(stderr, "  moraine serve\n"
                    "      answer browsers and programs at http://127.0.0.1:8080\n");
#endif
    fprintf(stderr, "  moraine doctor\n"
                    "      find what on this machine keeps models slow\n\n"
                    "moraine --help lists all commands.\n");
}
