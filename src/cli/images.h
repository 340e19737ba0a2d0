/* Images: the encoder of a model and the pictures of a prompt, as people name them. */
#ifndef MO_CLI_IMAGES_H
#define MO_CLI_IMAGES_H

#include "cli/loading.h"

/* Adds --mmproj and the limits of pictures to a command's table; l outlives it. */
void cli_image_options(cli_options *to, cli_loading *l);

/* When "auto" takes the encoder beside a model: */
typedef enum cli_encoder_need {
    CLI_ENCODER_NAMED,    /* never: one that is named is taken */
    CLI_ENCODER_IF_THERE, /* where there is one that fits */
    CLI_ENCODER_NEEDED,   /* always: there are pictures */
} cli_encoder_need;

/* Finds the encoder's file for l->mmproj: a file; NULL or "auto": the one beside the model; "none": none. Sets l->model.mmproj, a text that is the
 * process's. model may be NULL: only a file that is named is taken then. False after saying what is wrong. */
bool cli_images_find_encoder(const char *command, const char *model, cli_encoder_need need, cli_loading *l);

typedef struct cli_images {
    const char *command;
    mo_image **item;
    int count;
    size_t space;
} cli_images;

/* Opens a file and computes its rows, with a bar where that takes more than a second. False after saying what is wrong with it. */
bool cli_images_add(cli_images *images, const char *command, mo_model *model, const char *path);

/* The same of the files of --image. False after saying which file is wrong, and why; close them then too. */
bool cli_images_open(cli_images *images, const char *command, mo_model *model, const cli_texts *files);
void cli_images_close(cli_images *images); /* a zeroed one is allowed */

/* Closes `count` of them from the one at `first` on. */
void cli_images_remove(cli_images *images, int first, int count);

/* Moves those from the one at `first` on behind the others of `to`. False when memory is out; then nothing has moved. */
bool cli_images_move(cli_images *images, int first, cli_images *to);

/* Are these files that can be read? False after saying which is not. */
bool cli_images_check(const char *command, const cli_texts *files);

/* The text with a mark for each picture: as it is where it has them, else with all of them before it; free() it. NULL after saying that it has
 * more or fewer. */
char *cli_images_mark(const cli_images *images, const char *text, size_t *length);

/* The ids with the pictures in the places of the numbers below 0; free() them. NULL after saying what is wrong. */
int32_t *cli_images_place(const cli_images *images, const int32_t *ids, size_t *count);

#endif
