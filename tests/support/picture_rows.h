/* Rows of the pictures of data/pictures in the place of tokens: the cases, and sessions that are fed with them. */
#ifndef MO_TESTS_PICTURE_ROWS_H
#define MO_TESTS_PICTURE_ROWS_H

#include "api/model.h"
#include "engine/session.h"
#include "picture_case.h"

enum { CASES = PICTURE_CASES, IMAGES = PICTURE_IMAGES, GREEDY = PICTURE_GREEDY };

/* A case with its pictures. */
typedef struct example {
    picture_case c;
    mo_image image[IMAGES];
    int32_t rows[IMAGES][PICTURE_TOKENS];
} example;

extern example examples[CASES];

/* For cmocka. */
int read_examples(void **state);
int free_examples(void **state);
example *find_example(const char *name);
mo_status make_nothing(mo_image *image, mo_progress_fn progress, void *user, mo_error *err);

void picture_path(const char *file, char *out, size_t size); /* in data/pictures */
void model_path(const char *name, char *out, size_t size);
mo_model_options picture_options(int threads, int64_t batch, const char *device);
mo_model *open_with(const char *name, const mo_model_options *options);
mo_model *open_picture_model(const char *name, int threads, int64_t batch, const char *device);
mo_session *open_session(mo_model *model, mo_kv_type kv);

/* list: space for the case's pictures. */
mo_feed feed_of(example *e, mo_session *session, mo_image **list, int64_t step);
/* Logits of every position, to be freed. */
float *logits_of(example *e, mo_session *session, int64_t step);
/* The session has the case's sequence; the greedy text follows it. */
void check_greedy(example *e, mo_session *session);
/* Feeds e together with other and a session of text: its last logits are those of `want`. */
void check_company(example *e, example *other, mo_model *model, const float *want);

#endif
