/* Model header: what a command's MODEL means when only its header is read: a file, a pulled model, a published shape by its name, or a
 * model of a hub, whose header is fetched. One thread. */
#ifndef MO_CLI_MODEL_HEADER_H
#define MO_CLI_MODEL_HEADER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct cli_model_header {
    char path[4096]; /* to be opened */
    char name[512];  /* for messages: as it was named, or the path */
    int fd;          /* of a shape's header in memory; -1 */
    bool fetched;    /* the path's folder is to be removed */
} cli_model_header;

/* CLI_OK, or the exit code after saying what is wrong; then there is nothing to close. given: NULL means the default model. */
int cli_model_header_open(const char *command, const char *given, bool quiet, cli_model_header *out);
void cli_model_header_close(cli_model_header *header);

/* Puts the name in place of the path. */
void cli_model_header_say(const cli_model_header *header, char *text, size_t size);

#endif
