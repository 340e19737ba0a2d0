/* Pictures from files to answers: prompts with pictures give the tokens and the text of data/pictures, however they are asked for; and what is
 * refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "folder.h"
#include "moraine_server.h"
#include "picture_case.h"
#include "sanitized.h"

#define DATA MO_TEST_DATA "/pictures/"

static picture_case cases[PICTURE_CASES];
static bool reads_png;

static int begin(void **state)
{
    picture_cases_read(cases);
    reads_png = strstr(mo_image_formats(), "PNG") != NULL;
    return folder_make(state);
}

/* A file of the model, whose name ends so; four are kept. */
static const char *path_of(const char *model, const char *end)
{
    static char path[4][sizeof DATA + 80];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], DATA "%.40s%.30s", model, end);
    return path[next];
}

static mo_model_options options_of(const char *mmproj)
{
    mo_model_options o = mo_model_options_default();
    o.threads = 2;
    o.context = 512;
    o.batch = 256;
    o.device = "none";
    o.learning.profile = "off";
    o.mmproj = mmproj;
    return o;
}

static mo_model *open_model(const char *name, bool pictures)
{
    mo_error err;
    mo_model *model = NULL;
    const char *file = path_of(name, ".gguf");
    const mo_model_options o = options_of(pictures ? path_of(name, ".mmproj.gguf") : NULL);
    check_status(mo_model_open(file, &o, &model, &err), &err);
    assert_int_equal(mo_model_reads_pictures(model), pictures);
    return model;
}

static mo_image *open_image(mo_model *model, const char *name)
{
    mo_error err;
    mo_image *image = NULL;
    size_t size = 0;
    void *bytes = picture_file(name, 0, &size);
    assert_non_null(bytes);
    check_status(mo_image_open(model, bytes, size, &image, &err), &err);
    free(bytes);
    return image;
}

/* The case's prompt with its pictures; the caller frees the tokens. */
static int32_t *tokens_of(mo_model *model, const picture_case *c, mo_image **images, size_t *count)
{
    mo_error err;
    int32_t *ids = NULL, *placed = NULL;
    size_t n = 0;
    for (int i = 0; i < c->images; i++) {
        images[i] = open_image(model, c->file[i]);
    }
    check_status(mo_images_tokenize(model, c->prompt, strlen(c->prompt), MO_TOKEN_SPECIAL, &ids, &n, &err),
                 &err);
    check_status(mo_images_place(images, c->images, ids, n, &placed, count, &err), &err);
    mo_free(ids);
    return placed;
}

static mo_session *open_session(mo_model *model)
{
    mo_error err;
    mo_session *session = NULL;
    check_status(mo_session_open(model, NULL, &session, &err), &err);
    return session;
}

static mo_generation *open_generation(mo_model *model, int64_t max)
{
    mo_error err;
    mo_generation *g = NULL;
    mo_generation_options o = mo_generation_options_default();
    o.temperature = 0;
    o.max_tokens = max;
    o.ignore_end = true;
    o.raw = true;
    o.repeat_penalty = 1;
    check_status(mo_generation_open(model, &o, &g, &err), &err);
    return g;
}

static void run(mo_generation *g)
{
    mo_error err = {0};
    mo_generation_event e;
    int running = 1;
    while (running > 0) {
        running = mo_generation_step(&g, 1, &err);
        while (mo_generation_next(g, &e, sizeof e)) {
            assert_true(e.kind != MO_EVENT_END || e.end == MO_END_LENGTH);
        }
    }
    assert_int_equal(running, 0);
}

static void close_images(mo_image **images, int count)
{
    for (int i = 0; i < count; i++) {
        mo_image_close(images[i]);
    }
}

static void prompts_have_the_expected_tokens_and_answers(void **state)
{
    (void)state;
    if (!reads_png) {
        skip();
    }
    for (int i = 0; i < PICTURE_CASES; i++) {
        const picture_case *c = &cases[i];
        mo_error err;
        mo_image *images[PICTURE_IMAGES];
        size_t count = 0;
        mo_generation_info info;
        mo_model *model = open_model(c->model, true);
        mo_session *session = open_session(model);
        mo_generation *g = open_generation(model, PICTURE_GREEDY);
        int32_t *tokens = tokens_of(model, c, images, &count);
        assert_int_equal(count, c->count);
        for (size_t t = 0; t < count; t++) {
            assert_true(c->tokens[t] < 0 ? tokens[t] < 0 : tokens[t] == c->tokens[t]);
        }
        check_status(mo_generation_images(g, images, c->images, &err), &err);
        close_images(images, c->images); /* it keeps them */
        check_status(mo_generation_prompt(g, session, tokens, (int64_t)count, &err), &err);
        run(g);
        mo_generation_describe(g, &info, sizeof info);
        assert_int_equal(info.prompt_tokens, c->count);
        assert_memory_equal(info.tokens + c->count, c->greedy, sizeof c->greedy);
        mo_free(tokens);
        mo_generation_close(g);
        mo_session_close(session);
        mo_model_close(model);
    }
}

/* Its answer after some tokens: saved, and gone on with by another model; and once more with all of it computed anew. */
static void generations_are_saved_with_their_pictures(void **state)
{
    (void)state;
    for (int i = 0; i < PICTURE_CASES && reads_png; i++) {
        const picture_case *c = &cases[i];
        mo_error err;
        mo_image *images[PICTURE_IMAGES];
        size_t count = 0, size = 0;
        uint8_t *bytes = NULL;
        mo_generation_info info;
        mo_model *model = open_model(c->model, true);
        mo_session *session = open_session(model);
        mo_generation *g = open_generation(model, PICTURE_GREEDY);
        int32_t *tokens = tokens_of(model, c, images, &count);
        check_status(mo_generation_images(g, images, c->images, &err), &err);
        check_status(mo_generation_prompt(g, session, tokens, (int64_t)count, &err), &err);
        close_images(images, c->images);
        for (int k = 0; k < 4; k++) {
            mo_generation_event e;
            assert_int_equal(mo_generation_step(&g, 1, &err), 1);
            while (mo_generation_next(g, &e, sizeof e)) {
            }
        }
        check_status(mo_generation_save(g, &bytes, &size, &err), &err);
        mo_generation_close(g);
        mo_session_close(session);
        mo_model_close(model);
        for (int way = 0; way < 2; way++) {
            model = open_model(c->model, true);
            session = open_session(model);
            check_status(mo_generation_load(model, session, bytes, size, &g, &err), &err);
            if (way) { /* what was restored is lost: its pictures are encoded again */
                const mo_feed other = {
                    .size = sizeof other, .session = session, .tokens = c->greedy, .count = 1};
                check_status(mo_session_feed(&other, 1, &err), &err);
            }
            run(g);
            mo_generation_describe(g, &info, sizeof info);
            assert_int_equal(info.prompt_tokens, c->count);
            assert_memory_equal(info.tokens, tokens, count * sizeof *tokens);
            assert_memory_equal(info.tokens + c->count, c->greedy, sizeof c->greedy);
            mo_generation_close(g);
            mo_session_close(session);
            mo_model_close(model);
        }
        mo_free(tokens);
        mo_free(bytes);
    }
}

/* A file of the model's encoder in which one weight is another. */
static const char *other_encoder(const char *name)
{
    char mmproj[80];
    size_t size = 0;
    snprintf(mmproj, sizeof mmproj, "%.40s.mmproj.gguf", name);
    uint8_t *bytes = picture_file(mmproj, 0, &size);
    const char *path = in_folder("other.gguf");
    assert_non_null(bytes);
    bytes[size - 33] ^= 1;
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    fclose(f);
    free(bytes);
    return path;
}

/* With no encoder, with another one, and with fewer pixels than the file says. */
static void saved_pictures_that_do_not_fit_are_refused(void **state)
{
    const picture_case *c = &cases[0];
    mo_error err;
    mo_image *images[PICTURE_IMAGES];
    size_t count = 0, size = 0;
    uint8_t *bytes = NULL;
    (void)state;
    if (!reads_png) {
        skip();
    }
    mo_model *model = open_model(c->model, true);
    mo_session *session = open_session(model);
    mo_generation *g = open_generation(model, PICTURE_GREEDY), *none = NULL;
    int32_t *tokens = tokens_of(model, c, images, &count);
    check_status(mo_generation_images(g, images, c->images, &err), &err);
    check_status(mo_generation_prompt(g, session, tokens, (int64_t)count, &err), &err);
    check_status(mo_generation_save(g, &bytes, &size, &err), &err); /* nothing of it is computed */
    run(g);
    mo_generation_close(g);
    check_status(mo_generation_load(model, session, bytes, size, &g, &err), &err);
    run(g);
    mo_generation_close(g);
    for (size_t less = 1; less < size; less += size / 7) {
        assert_int_equal(mo_generation_load(model, session, bytes, size - less, &none, &err), MO_EFORMAT);
    }
    mo_session_close(session);
    close_images(images, c->images);
    mo_model_close(model);
    for (int other = 0; other < 2; other++) {
        const char *file = other ? other_encoder(c->model) : NULL;
        const mo_model_options o = options_of(file);
        check_status(mo_model_open(path_of(c->model, ".gguf"), &o, &model, &err), &err);
        session = open_session(model);
        assert_int_equal(mo_generation_load(model, session, bytes, size, &none, &err),
                         other ? MO_EINVAL : MO_EUNSUPPORTED);
        check_says(&err, other ? "another encoder" : "mmproj");
        assert_null(none);
        mo_session_close(session);
        mo_model_close(model);
        if (file) {
            remove(file);
        }
    }
    mo_free(tokens);
    mo_free(bytes);
}

/* Text gives the same bits with and without an encoder, and marks in it are text where nobody asks for pictures. */
static void texts_stay_as_they_are(void **state)
{
    static const char text[] = "one <__media__> two";
    (void)state;
    mo_model *with = open_model("qwen35moe", true), *without = open_model("qwen35moe", false);
    mo_session *a = open_session(with), *b = open_session(without);
    mo_error err;
    int32_t *ids = NULL, *same = NULL, *plain = NULL;
    size_t n = 0, m = 0;
    check_status(mo_tokenize(with, text, sizeof text - 1, MO_TOKEN_SPECIAL, &ids, &n, &err), &err);
    check_status(mo_tokenize(without, text, sizeof text - 1, MO_TOKEN_SPECIAL, &same, &m, &err), &err);
    check_status(mo_images_tokenize(without, text, sizeof text - 1, MO_TOKEN_SPECIAL, &plain, &m, &err),
                 &err);
    assert_int_equal(n, m);
    assert_memory_equal(ids, same, n * sizeof *ids);
    assert_memory_equal(ids, plain, n * sizeof *ids);
    const mo_feed feeds[] = {{.size = sizeof(mo_feed), .session = a, .tokens = ids, .count = (int64_t)n},
                             {.size = sizeof(mo_feed), .session = b, .tokens = ids, .count = (int64_t)n}};
    check_status(mo_session_feed(&feeds[0], 1, &err), &err);
    check_status(mo_session_feed(&feeds[1], 1, &err), &err);
    mo_model_info info;
    mo_model_describe(with, &info, sizeof info);
    assert_memory_equal(mo_session_logits(a), mo_session_logits(b), sizeof(float) * (size_t)info.vocab);
    mo_free(ids);
    mo_free(same);
    mo_free(plain);
    mo_session_close(a);
    mo_session_close(b);
    mo_model_close(with);
    mo_model_close(without);
}

/* Parts of messages become marks in the model's chat format; what a user writes does not. */
static void conversations_have_places_for_pictures(void **state)
{
    static const char chat[] =
        "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a <__media__> b\"}, "
        "{\"type\": \"image_url\", \"image_url\": {\"url\": \"data:\"}}, {\"type\": \"text\", \"text\": "
        "\"c\"}, "
        "{\"type\": \"image\"}]}]";
    static const char *const templates[] = {
        "chatml", "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else "
        "%}"
        "{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% else %}?{% endif %}{% endfor %}{% "
        "endif %}"
        "<|im_end|>\n{% endfor %}"};
    (void)state;
    mo_model *model = open_model("qwen3vlmoe", true), *blind = open_model("qwen3vlmoe", false);
    for (int i = 0; i < 3; i++) {
        mo_error err;
        mo_prompt *prompt = NULL;
        mo_chat_options o = mo_chat_options_default();
        o.chat_template = templates[i];
        o.no_prompt = true;
        check_status(mo_prompt_open(model, chat, strlen(chat), &o, &prompt, &err), &err);
        const char *text = mo_prompt_text(prompt).data;
        if (!strstr(text, "user\na <__media__> b<__media__>c<__media__><|im_end|>")) {
            fail_msg("template %d: %s", i, text);
        }
        size_t count = 0;
        const int32_t *tokens = mo_prompt_tokens(prompt, &count);
        int places = 0;
        for (size_t t = 0; t < count; t++) {
            if (tokens[t] < 0) {
                assert_int_equal(tokens[t - 1], 297);
                assert_int_equal(tokens[t + 1], 298);
                places++;
            }
        }
        assert_int_equal(places, 2);
        mo_prompt_close(prompt);
        if (i < 2) {
            assert_int_equal(mo_prompt_open(blind, chat, strlen(chat), &o, &prompt, &err), MO_EINVAL);
        }
    }
    mo_model_close(model);
    mo_model_close(blind);
}

/* The same picture has the same tokens, also from another file; a changed pixel changes the first of them. */
static void pictures_are_told_apart(void **state)
{
    static uint8_t bmp[54 + 64 * 32 * 3] = {'B', 'M'};
    static const int32_t mark[] = {-1};
    const uint32_t head[] = {sizeof bmp, 0, 54, 40, 64, 32, 1 | 24 << 16, 0};
    (void)state;
    memcpy(bmp + 2, head, sizeof head);
    mo_model *model = open_model("qwen3vlmoe", true);
    mo_image *a = NULL, *b = NULL, *c = NULL;
    int32_t *tokens[3];
    size_t count[3];
    mo_error err;
    mo_image_info info;
    for (size_t i = 54; i < sizeof bmp; i++) {
        bmp[i] = (uint8_t)(i * i / 7);
    }
    check_status(mo_image_open(model, bmp, sizeof bmp, &a, &err), &err);
    check_status(mo_image_open(model, bmp, sizeof bmp, &b, &err), &err);
    bmp[sizeof bmp - 1] ^= 1;
    check_status(mo_image_open(model, bmp, sizeof bmp, &c, &err), &err);
    mo_image *const list[] = {a, b, c};
    for (int i = 0; i < 3; i++) {
        check_status(mo_images_place(&list[i], 1, mark, 1, &tokens[i], &count[i], &err), &err);
        assert_int_equal(count[i], 8);
    }
    assert_memory_equal(tokens[0], tokens[1], 8 * sizeof *tokens[0]);
    assert_true(tokens[0][0] != tokens[2][0] && tokens[0][0] < 0 && tokens[2][0] < 0);
    mo_image_describe(a, &info, sizeof info);
    assert_true(info.tokens == 8 && info.width == 64 && info.height == 32 && info.file_width == 64 &&
                !info.encoded);
    check_status(mo_image_encode(a, NULL, NULL, &err), &err);
    mo_image_describe(a, &info, sizeof info);
    assert_true(info.encoded);
    int32_t *none = NULL;
    assert_int_equal(mo_images_place(list, 2, mark, 1, &none, &count[0], &err), MO_EINVAL);
    check_says(&err, "places for 1 pictures, but 2");
    for (int i = 0; i < 3; i++) {
        mo_free(tokens[i]);
        mo_image_close(list[i]);
    }
    mo_model_close(model);
}

static bool stop(void *user, int64_t done, int64_t total)
{
    (void)user;
    (void)total;
    return done < 1;
}

static void bad_files_are_refused(void **state)
{
    static const struct {
        const char *name;
        mo_status status;
    } bad[] = {{"formats/bad-bomb.png", MO_ENOSPC},
               {"formats/bad-cut.png", MO_EFORMAT},
               {"formats/bad-empty.png", MO_EFORMAT},
               {"formats/bad-magic.png", MO_EFORMAT},
               {"formats/bad-zero.png", MO_EFORMAT}};
    (void)state;
    mo_model *model = open_model("gemma4", true), *blind = open_model("gemma4", false);
    mo_error err = {0};
    mo_image *image = NULL;
    for (size_t i = 0; reads_png && i < sizeof bad / sizeof *bad; i++) {
        size_t size = 0;
        void *bytes = picture_file(bad[i].name, 0, &size);
        const mo_status status = mo_image_open(model, bytes, size, &image, &err);
        if (status != bad[i].status) {
            fail_msg("%s: status %d: %s", bad[i].name, status, err.detail);
        }
        assert_null(image);
        free(bytes);
    }
    assert_int_equal(mo_image_open(blind, "GIF", 3, &image, &err), MO_EUNSUPPORTED);
    check_says(&err, "`mmproj`");
    if (reads_png) {
        image = open_image(model, "photo-20x9.png");
        assert_int_equal(mo_image_encode(image, stop, NULL, &err), MO_ECANCELLED);
        check_status(mo_image_encode(image, NULL, NULL, &err), &err);
        mo_image_close(image);
    }
    mo_model_close(model);
    mo_model_close(blind);
}

static void encoders_that_do_not_fit_are_refused(void **state)
{
    static const struct {
        const char *model, *mmproj;
        int64_t min, max;
        mo_status status;
        const char *words;
    } wrong[] = {
        {DATA "qwen3vlmoe.gguf", DATA "qwen35moe.mmproj.gguf", 0, 0, MO_EINVAL, "DeepStack in 0 layers"},
        {DATA "qwen3vlmoe.gguf", DATA "gemma4.mmproj.gguf", 0, 0, MO_EINVAL, "another family"},
        {DATA "gemma4.gguf", DATA "qwen35moe.mmproj.gguf", 0, 0, MO_EINVAL, "another family"},
        {MO_TEST_DATA "/oracle/olmoe.gguf", DATA "qwen35moe.mmproj.gguf", 0, 0, MO_EUNSUPPORTED,
         "reads no pictures"},
        {DATA "gemma4.gguf", DATA "gemma4.gguf", 0, 0, MO_EFORMAT, "gemma4.gguf"},
        {DATA "gemma4.gguf", DATA "nothing.gguf", 0, 0, MO_ENOENT, "nothing.gguf"},
        {DATA "gemma4.gguf", DATA "gemma4.mmproj.gguf", 300, 290, MO_EINVAL, "at least 300"},
        {DATA "gemma4.gguf", DATA "gemma4.mmproj.gguf", 0, -1, MO_EINVAL, "image_max_tokens"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        for (int map = 0; map < 2; map++) {
            mo_error err = {0};
            mo_model *model = NULL;
            mo_model_options o = options_of(wrong[i].mmproj);
            o.image_min_tokens = wrong[i].min;
            o.image_max_tokens = wrong[i].max;
            o.map = map;
            const mo_status status = mo_model_open(wrong[i].model, &o, &model, &err);
            if (status != wrong[i].status) {
                fail_msg("%s: status %d: %s", wrong[i].mmproj, status, err.detail);
            }
            assert_null(model);
            check_says(&err, wrong[i].words);
        }
    }
}

/* Whether it is named or found: pictures are no reason to leave a device out. */
static void devices_read_pictures(void **state)
{
    static const char *const models[] = {"gemma4", "qwen3vlmoe", "qwen35moe"};
    (void)state;
    setenv("MORAINE_SIM", "memory=1G", 1);
    setenv("MORAINE_SIM_COUNT", "1", 1); /* what "auto" finds */
    for (int i = 0; i < 6 && reads_png; i++) {
        const char *name = models[i / 2];
        mo_error err = {0};
        mo_model *model = NULL, *plain = NULL;
        mo_model_options o = options_of(path_of(name, ".mmproj.gguf"));
        o.device = i % 2 ? "sim" : "auto";
        check_status(mo_model_open(path_of(name, ".gguf"), &o, &model, &err), &err);
        o.mmproj = NULL;
        check_status(mo_model_open(path_of(name, ".gguf"), &o, &plain, &err), &err);
        const char *device = mo_model_text(model, "device"), *without = mo_model_text(plain, "device");
        assert_true(device && without && strcmp(device, without) == 0);
        assert_true(i % 2 == 0 || device[0]);
        mo_image_close(open_image(model, "photo-20x9.png"));
        mo_model_close(plain);
        mo_model_close(model);
    }
    unsetenv("MORAINE_SIM");
    unsetenv("MORAINE_SIM_COUNT");
}

/* What limits do to a picture. */
static void limits_change_the_number_of_tokens(void **state)
{
    (void)state;
    if (!reads_png) {
        skip();
    }
    for (int i = 0; i < 2; i++) {
        mo_error err;
        mo_model *model = NULL;
        mo_model_options o = options_of(DATA "qwen35moe.mmproj.gguf");
        mo_image_info info;
        o.image_min_tokens = i ? 1 : 40;
        o.image_max_tokens = i ? 4 : 50;
        check_status(mo_model_open(DATA "qwen35moe.gguf", &o, &model, &err), &err);
        mo_image *image = open_image(model, "photo-61x37.png");
        mo_image_describe(image, &info, sizeof info);
        assert_true(info.tokens >= o.image_min_tokens && info.tokens <= o.image_max_tokens);
        mo_image_close(image);
        mo_model_close(model);
    }
}

/* Guesses go around pictures, and change nothing, on the CPU and on a device. */
static void speculation_changes_nothing(void **state)
{
    (void)state;
    if (!reads_png) {
        skip();
    }
    for (int n = 0; n < 2 * PICTURE_CASES; n += SANITIZED ? 5 : 1) {
        const int i = n / 2;
        const picture_case *c = &cases[i];
        mo_error err;
        mo_image *images[PICTURE_IMAGES];
        size_t count = 0;
        mo_model *model = NULL;
        mo_generation_info info;
        mo_model_options o = options_of(path_of(c->model, ".mmproj.gguf"));
        o.device = n % 2 ? "sim" : "none";
        const bool draft =
            i % 2 == 0 && strcmp(c->model, "qwen35moe") != 0; /* recurrent models are no draft models */
        o.speculate = draft ? MO_SPECULATE_DRAFT : MO_SPECULATE_NGRAM;
        o.draft_model = draft ? path_of(c->model, ".gguf") : NULL;
        check_status(mo_model_open(path_of(c->model, ".gguf"), &o, &model, &err), &err);
        mo_session *session = open_session(model);
        mo_generation *g = open_generation(model, PICTURE_GREEDY);
        int32_t *tokens = tokens_of(model, c, images, &count);
        check_status(mo_generation_images(g, images, c->images, &err), &err);
        check_status(mo_generation_prompt(g, session, tokens, (int64_t)count, &err), &err);
        run(g);
        mo_generation_describe(g, &info, sizeof info);
        assert_memory_equal(info.tokens + c->count, c->greedy, sizeof c->greedy);
        close_images(images, c->images);
        mo_free(tokens);
        mo_generation_close(g);
        mo_session_close(session);
        mo_model_close(model);
    }
}

/* Rows of pictures are no tokens: penalties see the text around them as if they were not there. */
static void samplers_see_no_rows(void **state)
{
    int32_t text[80], mixed[400];
    int n = 0, m = 0;
    mo_error err;
    float logits[64];
    (void)state;
    for (int i = 0; i < 80; i++) {
        text[n++] = mixed[m++] = (i * 7) % 64;
        for (int k = 0; i % 20 == 10 && k < 60; k++) {
            mixed[m++] = INT32_MIN + k;
        }
    }
    for (int i = 0; i < 64; i++) {
        logits[i] = (float)(i % 5) * 0.01f + 1.0f;
    }
    for (int i = 0; i < 4; i++) {
        mo_sampler_options o = mo_sampler_options_default();
        mo_sampler *a = NULL, *b = NULL;
        o.temperature = i % 2 ? 1.0f : 0.0f;
        o.seed = 7;
        o.repeat_penalty = 1.3f;
        o.frequency_penalty = 0.2f;
        o.penalty_last = i < 2 ? 30 : -1;
        check_status(mo_sampler_open(&o, 64, &a, &err), &err);
        check_status(mo_sampler_open(&o, 64, &b, &err), &err);
        for (int k = 0; k < 20; k++) {
            assert_int_equal(mo_sampler_pick(a, logits, NULL, text, (size_t)n),
                             mo_sampler_pick(b, logits, NULL, mixed, (size_t)m));
        }
        mo_sampler_close(a);
        mo_sampler_close(b);
    }
    mo_sampler_options o = mo_sampler_options_default();
    mo_sampler *dry = NULL;
    uint32_t breakers[2] = {0};
    o.dry_multiplier = 1.0f;
    o.dry_penalty_last = -1;
    o.dry_breakers = breakers;
    check_status(mo_sampler_open(&o, 64, &dry, &err), &err);
    assert_true(mo_sampler_pick(dry, logits, NULL, mixed, (size_t)m) >= 0);
    assert_true(mo_sampler_pick(dry, logits, NULL, mixed, 40) >= 0); /* the end is within a picture */
    mo_sampler_close(dry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_have_the_expected_tokens_and_answers),
        cmocka_unit_test(generations_are_saved_with_their_pictures),
        cmocka_unit_test(saved_pictures_that_do_not_fit_are_refused),
        cmocka_unit_test(texts_stay_as_they_are),
        cmocka_unit_test(conversations_have_places_for_pictures),
        cmocka_unit_test(pictures_are_told_apart),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(encoders_that_do_not_fit_are_refused),
        cmocka_unit_test(devices_read_pictures),
        cmocka_unit_test(limits_change_the_number_of_tokens),
        cmocka_unit_test(speculation_changes_nothing),
        cmocka_unit_test(samplers_see_no_rows),
    };
    return cmocka_run_group_tests(tests, begin, folder_remove_empty);
}
