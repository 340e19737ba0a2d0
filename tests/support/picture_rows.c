#include "picture_rows.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check.h"
#include "moraine_server.h"

#define DATA MO_TEST_DATA "/pictures/"

example examples[CASES];

/* ---- The cases -------------------------------------------------------------------------------- */

mo_status make_nothing(mo_image *image, mo_progress_fn progress, void *user, mo_error *err)
{
    (void)image;
    (void)progress;
    (void)user;
    return mo_fail(err, MO_EINVAL, "it is made already");
}

static void drop(mo_image *image)
{
    (void)image;
}

/* The second picture of every case c is the first of case a. */
static void add_image(example *e, int number)
{
    static const struct {
        const char *model;
        int64_t width;
        int features;
    } models[] = {{"qwen3vlmoe", 40, 2}, {"qwen35moe", 36, 0}, {"gemma4", 48, 0}};
    char name[96];
    int m = 0;
    while (strcmp(models[m].model, e->c.model) != 0) {
        m++;
    }
    snprintf(name, sizeof name, "%.40s%s.0.embd.f32", number == 1 ? e->c.model : e->c.name,
             number == 1 ? ".a" : "");
    const int64_t rows = e->c.columns[number] * e->c.lines[number];
    float *values =
        picture_file(name, sizeof(float) * (size_t)(rows * models[m].width * (1 + models[m].features)), NULL);
    assert_non_null(values);
    for (int64_t i = 0, row = 0; i < e->c.count; i++) {
        if (e->c.tokens[i] == -1 - number) {
            e->rows[number][row] = e->c.tokens[i] = INT32_MIN + (int32_t)(1000 * number + 17 * row + rows);
            row++;
        }
    }
    e->image[number] = (mo_image){.holders = 1,
                                  .columns = e->c.columns[number],
                                  .lines = e->c.lines[number],
                                  .width = models[m].width,
                                  .features = models[m].features,
                                  .tokens = e->rows[number],
                                  .values = values,
                                  .make = make_nothing,
                                  .drop = drop};
}

int read_examples(void **state)
{
    static picture_case cases[CASES];
    (void)state;
    picture_cases_read(cases);
    for (int i = 0; i < CASES; i++) {
        examples[i].c = cases[i];
        for (int k = 0; k < cases[i].images; k++) {
            add_image(&examples[i], k);
        }
    }
    return 0;
}

int free_examples(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        for (int k = 0; k < examples[i].c.images; k++) {
            assert_int_equal(examples[i].image[k].holders, 1);
            free((void *)examples[i].image[k].values);
        }
    }
    return 0;
}

example *find_example(const char *name)
{
    for (int i = 0; i < CASES; i++) {
        if (strcmp(examples[i].c.name, name) == 0) {
            return &examples[i];
        }
    }
    return NULL;
}

/* ---- Running a model -------------------------------------------------------------------------- */

mo_model_options picture_options(int threads, int64_t batch, const char *device)
{
    mo_model_options options = mo_model_options_default();
    options.threads = threads;
    options.context = 512;
    options.batch = batch;
    options.device = device;
    options.learning.profile = "off";
    return options;
}

void picture_path(const char *file, char *out, size_t size)
{
    snprintf(out, size, DATA "%s", file);
}

void model_path(const char *name, char *out, size_t size)
{
    snprintf(out, size, DATA "%s.gguf", name);
}

mo_model *open_with(const char *name, const mo_model_options *options)
{
    char path[512];
    mo_error err;
    mo_model *model = NULL;
    model_path(name, path, sizeof path);
    check_status(mo_model_open(path, options, &model, &err), &err);
    return model;
}

mo_model *open_picture_model(const char *name, int threads, int64_t batch, const char *device)
{
    const mo_model_options options = picture_options(threads, batch, device);
    return open_with(name, &options);
}

mo_session *open_session(mo_model *model, mo_kv_type kv)
{
    mo_error err;
    mo_session *session = NULL;
    mo_session_options options = mo_session_options_default();
    options.kv = kv;
    check_status(mo_session_open(model, &options, &session, &err), &err);
    return session;
}

typedef struct rows {
    float *all;
    int64_t vocab;
} rows;

static void keep(void *user, int64_t position, const float *row)
{
    rows *r = user;
    memcpy(r->all + position * r->vocab, row, sizeof(float) * (size_t)r->vocab);
}

mo_feed feed_of(example *e, mo_session *session, mo_image **list, int64_t step)
{
    for (int i = 0; i < e->c.images; i++) {
        list[i] = &e->image[i];
    }
    return (mo_feed){.size = sizeof(mo_feed),
                     .session = session,
                     .tokens = e->c.tokens,
                     .count = e->c.count,
                     .step = step,
                     .images = list,
                     .image_count = e->c.images};
}

float *logits_of(example *e, mo_session *session, int64_t step)
{
    mo_image *list[IMAGES];
    mo_error err;
    rows r = {calloc((size_t)(e->c.count * e->c.vocab), sizeof(float)), e->c.vocab};
    mo_feed f = feed_of(e, session, list, step);
    f.logits = keep;
    f.user = &r;
    check_status(mo_session_feed(&f, 1, &err), &err);
    return r.all;
}

static int32_t likeliest(const float *row, int64_t vocab)
{
    int32_t best = 0;
    for (int32_t i = 1; i < vocab; i++) {
        best = row[i] > row[best] ? i : best;
    }
    return best;
}

void check_greedy(example *e, mo_session *session)
{
    mo_image *list[IMAGES];
    mo_error err;
    mo_feed f = feed_of(e, session, list, 0);
    for (int i = 0; i < GREEDY; i++) {
        const int32_t token = likeliest(mo_session_logits(session), e->c.vocab);
        if (token != e->c.greedy[i]) {
            fail_msg("%s: token %d is %d, not %d", e->c.name, i, token, e->c.greedy[i]);
        }
        e->c.tokens[f.count++] = token;
        check_status(mo_session_feed(&f, 1, &err), &err);
    }
}

void check_company(example *e, example *other, mo_model *model, const float *want)
{
    mo_session *s[3];
    mo_image *list[2][IMAGES];
    mo_error err;
    for (int k = 0; k < 3; k++) {
        s[k] = open_session(model, MO_KV_I16);
    }
    const mo_feed feeds[] = {
        feed_of(other, s[0], list[0], 0),
        feed_of(e, s[1], list[1], 0),
        {.size = sizeof(mo_feed), .session = s[2], .tokens = e->c.greedy, .count = GREEDY}};
    check_status(mo_session_feed(feeds, 3, &err), &err);
    assert_memory_equal(mo_session_logits(s[1]), want + (e->c.count - 1) * e->c.vocab,
                        sizeof(float) * (size_t)e->c.vocab);
    check_greedy(e, s[1]);
    for (int k = 0; k < 3; k++) {
        mo_session_close(s[k]);
    }
}
