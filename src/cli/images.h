/* Images: a model's encoder, and the pictures of a prompt given by the user. */
#ifndef MO_CLI_IMAGES_H
#define MO_CLI_IMAGES_H

#include "cli/loading.h"

/* Adds --mmproj and the limits of pictures to a command's table; l must outlive it. */
void cli_image_options(cli_options *to, cli_loading *l);

/* When "auto" uses the encoder next to a model: */
typedef enum cli_encoder_need {
    CLI_ENCODER_NAMED,    /* never: only a named one is used */
    CLI_ENCODER_IF_THERE, /* if there is one that fits */
    CLI_ENCODER_NEEDED,   /* always: the prompt has pictures */
} cli_encoder_need;

/* Finds the encoder's file for l->mmproj: a file; NULL or "auto": the one next to the model; "none": none.
   Sets l->model.mmproj, a text that is never freed. model may be NULL: then only a named file is used. False
   after printing the error. */
bool cli_images_find_encoder(const char *command, const char *model, cli_encoder_need need, cli_loading *l);

typedef struct cli_images {
    const char *command;
    mo_image **item;
    int count;
    size_t space;
} cli_images;

/* Opens a file and computes its rows, with a progress bar if slow. False after printing the error. */
bool cli_images_add(cli_images *images, const char *command, mo_model *model, const char *path);

/* The same for the files of --image. False after printing the error; close them in this case too. */
bool cli_images_open(cli_images *images, const char *command, mo_model *model, const cli_texts *files);
void cli_images_close(cli_images *images); /* a zeroed one is allowed */

/* Closes `count` pictures from `first` on. */
void cli_images_remove(cli_images *images, int first, int count);

/* Moves the pictures from `first` on to the end of `to`. False, with nothing changed, when out of memory. */
bool cli_images_move(cli_images *images, int first, cli_images *to);

/* Can these files be read? False after printing an error. */
bool cli_images_check(const char *command, const cli_texts *files);

/* The text with a mark for each picture: unchanged if it has them, otherwise with all marks before it; free()
   it. NULL after printing that their numbers differ. */
char *cli_images_mark(const cli_images *images, const char *text, size_t *length);

/* The ids with the pictures in place of negative numbers; free() them. NULL after printing the error. */
int32_t *cli_images_place(const cli_images *images, const int32_t *ids, size_t *count);

#endif
