/* Rows of pictures with ranks that have later layers: the bits of one rank, in any steps and company, also where features belong to layers of
 * several ranks, where ranks have devices, and after snapshots. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check.h"
#include "moraine_pictures.h"
#include "picture_rows.h"
#include "rank_case.h"
#include "sanitized.h"

enum { BATCH = 256 };

static mo_model_options options_on(const char *device)
{
    mo_model_options o = picture_options(1, BATCH, device);
    o.vram_bytes = strcmp(device, "none") == 0 ? 0 : (int64_t)24 << 20;
    o.sessions = 3;
    o.kept_bytes = o.kept_device_bytes = 1 << 20;
    o.divide = MO_DIVIDE_LAYERS;
    return o;
}

static mo_model *start(run *r, int ranks, const char *name, const char *device)
{
    static char path[512];
    mo_model_options o = options_on(device);
    model_path(name, path, sizeof path);
    start_ranks(r, ranks, path, &o, PATIENT, NONE, NULL, NULL);
    o.cluster = r->leader;
    return open_with(name, &o);
}

static void finish(run *r, mo_model *model)
{
    mo_model_close(model);
    finish_ranks(r, NONE);
    for (int i = 1; i < r->ranks; i++) {
        check_status(r->rank[i].status, &r->rank[i].err);
    }
}

static int layers_of(const char *name)
{
    return strcmp(name, "qwen3vlmoe") == 0 ? 3 : 2;
}

static float *wanted(example *e)
{
    const mo_model_options o = options_on("none");
    mo_model *model = open_with(e->c.model, &o);
    mo_session *session = open_session(model, MO_KV_I16);
    float *want = logits_of(e, session, 0);
    mo_session_close(session);
    mo_model_close(model);
    return want;
}

static void expect(example *e, mo_model *model, int64_t step, const float *want, int ranks)
{
    mo_session *session = open_session(model, MO_KV_I16);
    float *got = logits_of(e, session, step);
    if (memcmp(got, want, sizeof(float) * (size_t)(e->c.count * e->c.vocab)) != 0) {
        fail_msg("%s: other bits with %d ranks in steps of %d", e->c.name, ranks, (int)step);
    }
    free(got);
    mo_session_close(session);
}

/* Steps of which nobody waits for any but the last; the answer follows. */
static void expect_answer(example *e, mo_model *model, const float *want)
{
    mo_session *session = open_session(model, MO_KV_I16);
    mo_image *list[IMAGES];
    mo_error err;
    const mo_feed f = feed_of(e, session, list, 4);
    check_status(mo_session_feed(&f, 1, &err), &err);
    assert_memory_equal(mo_session_logits(session), want + (e->c.count - 1) * e->c.vocab,
                        sizeof(float) * (size_t)e->c.vocab);
    check_greedy(e, session);
    mo_session_close(session);
}

static void check_on(const char *device)
{
    for (int i = 0; i < CASES; i++) {
        example *e = &examples[i];
        if (SANITIZED && e->c.count > 100) {
            continue;
        }
        float *want = wanted(e);
        for (int ranks = 1; ranks <= layers_of(e->c.model); ranks++) {
            run r;
            mo_model *model = start(&r, ranks, e->c.model, device);
            expect(e, model, 0, want, ranks);
            expect(e, model, 5, want, ranks);
            expect_answer(e, model, want);
            finish(&r, model);
        }
        free(want);
    }
}

static void same_bits_with_ranks(void **state)
{
    (void)state;
    check_on("none");
}

static void same_bits_with_ranks_that_have_devices(void **state)
{
    (void)state;
    check_on("sim");
}

/* Two sessions of which each has its pictures, and one of text, in steps that they share. */
static void same_bits_in_company(void **state)
{
    (void)state;
    for (int i = 0; i + 2 < CASES; i++) {
        example *e = &examples[i], *other = &examples[i + 1];
        if (strcmp(e->c.model, other->c.model) != 0 || (SANITIZED && e->c.count + other->c.count > 100)) {
            continue;
        }
        float *want = wanted(e);
        run r;
        mo_model *model = start(&r, layers_of(e->c.model), e->c.model, "none");
        check_company(e, other, model, want);
        finish(&r, model);
        free(want);
    }
}

/* What other ranks hold of a snapshot, in memory and as bytes. */
static void snapshots_hold_pictures(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        example *e = &examples[i];
        if (SANITIZED && e->c.count > 100) {
            continue;
        }
        run r;
        mo_model *model = start(&r, layers_of(e->c.model), e->c.model, "none");
        mo_session *a = open_session(model, MO_KV_I16), *b = open_session(model, MO_KV_I16);
        mo_snapshot *first = NULL, *second = NULL;
        uint8_t *bytes = NULL;
        size_t size = 0;
        mo_error err;
        free(logits_of(e, a, 0));
        check_status(mo_snapshot_open(a, &first, &err), &err);
        check_status(mo_snapshot_write(first, &bytes, &size, &err), &err);
        check_status(mo_snapshot_read(model, bytes, size, &second, &err), &err);
        check_status(mo_session_restore(b, second, -1, &err), &err);
        check_greedy(e, b);
        check_greedy(e, a);
        mo_free(bytes);
        mo_snapshot_close(first);
        mo_snapshot_close(second);
        mo_session_close(a);
        mo_session_close(b);
        finish(&r, model);
    }
}

/* From a file, by the encoder that rank 0 has. */
static void rank_0_encodes(void **state)
{
    static char mmproj[512];
    example *e = find_example("qwen3vlmoe.a");
    const bool reads_png = strstr(mo_image_formats(), "PNG") != NULL;
    float *want = NULL;
    (void)state;
    if (!reads_png) {
        skip();
    }
    picture_path("qwen3vlmoe.mmproj.gguf", mmproj, sizeof mmproj);
    for (int ranks = 1; ranks <= 3; ranks++) {
        static char path[512];
        mo_model_options o = options_on("none");
        mo_image *image = NULL;
        size_t size = 0, count = 0;
        int32_t *ids = NULL, *tokens = NULL;
        mo_error err;
        run r;
        o.mmproj = mmproj;
        model_path(e->c.model, path, sizeof path);
        start_ranks(&r, ranks, path, &o, PATIENT, NONE, NULL, NULL);
        o.cluster = r.leader;
        mo_model *model = open_with(e->c.model, &o);
        mo_session *session = open_session(model, MO_KV_I16);
        void *bytes = picture_file(e->c.file[0], 0, &size);
        check_status(mo_image_open(model, bytes, size, &image, &err), &err);
        check_status(
            mo_images_tokenize(model, e->c.prompt, strlen(e->c.prompt), MO_TOKEN_SPECIAL, &ids, &count, &err),
            &err);
        check_status(mo_images_place(&image, 1, ids, count, &tokens, &count, &err), &err);
        const mo_feed f = {.size = sizeof f,
                           .session = session,
                           .tokens = tokens,
                           .count = (int64_t)count,
                           .images = &image,
                           .image_count = 1};
        check_status(mo_session_feed(&f, 1, &err), &err);
        const size_t row = sizeof(float) * (size_t)e->c.vocab;
        if (ranks == 1) {
            want = malloc(row);
            memcpy(want, mo_session_logits(session), row);
        }
        assert_memory_equal(mo_session_logits(session), want, row);
        mo_free(ids);
        mo_free(tokens);
        free(bytes);
        mo_session_close(session);
        mo_image_close(image);
        finish(&r, model);
    }
    free(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_with_ranks), cmocka_unit_test(same_bits_with_ranks_that_have_devices),
        cmocka_unit_test(same_bits_in_company), cmocka_unit_test(snapshots_hold_pictures),
        cmocka_unit_test(rank_0_encodes),
    };
    return cmocka_run_group_tests(tests, read_examples, free_examples);
}
