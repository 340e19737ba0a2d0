#include "cli/welcome.h"

#include <stdio.h>

#include "cli/pulled.h"

void cli_welcome_print(void)
{
    cli_pulled pulled[1];
    const char *name = cli_pulled_all(pulled, 1) > 0 ? pulled[0].name : NULL;
    fprintf(stderr, "moraine runs mixture-of-experts language models that are larger than GPU memory, and\n"
                    "larger than RAM. Next steps:\n\n");
    if (name) {
        fprintf(stderr, "  moraine chat %s\n", name);
        fprintf(stderr, "      chat with a model you have pulled; moraine list shows all of them\n");
    } else {
        fprintf(stderr, "  moraine chat\n"
                        "      chat with the small built-in model\n");
#ifdef MO_PULL
        fprintf(stderr, "  moraine pull gpt-oss-20b\n"
                        "      download a larger one; shows the disk space and expected speed first\n");
#endif
    }
#ifdef MO_SERVER
    fprintf(stderr, "  moraine serve\n"
                    "      serve a web page and APIs at http://127.0.0.1:8080\n");
#endif
    fprintf(stderr, "  moraine doctor\n"
                    "      find what slows models down on this machine\n\n"
                    "moraine --help lists all commands.\n");
}
