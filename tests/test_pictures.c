/* Rows of pictures in the place of tokens, against the values of data/pictures: positions in a grid, features behind the first layers, rows that
 * see each other; and the same bits whatever the steps, the threads and the company. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check.h"
#include "picture_rows.h"
#include "sanitized.h"

static double farthest(const float *got, const float *want, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = fabs((double)got[i] - (double)want[i]);
        most = d > most || isnan(d) ? d : most;
    }
    return most;
}

/* ---- Against the oracle ----------------------------------------------------------------------- */

static void logits_and_text_are_the_expected_ones(void **state)
{
    static const int64_t batches[] = {1024, 64, 7};
    int missing = 0;
    (void)state;
    for (int i = 0; i < CASES; i++) {
        example *e = &examples[i];
        char name[96];
        const size_t n = (size_t)(e->c.count * e->c.vocab);
        snprintf(name, sizeof name, "%s.logits.f32", e->c.name);
        float *want = picture_file(name, n * sizeof *want, NULL);
        missing += !want;
        for (int b = 0; b < 3 && (b == 0 || !SANITIZED); b++) {
            const bool together = strcmp(e->c.model, "gemma4") == 0; /* its rows go in one step */
            mo_model *model = open_picture_model(e->c.model, 2, together ? 256 : batches[b], "none");
            mo_session *session = open_session(model, MO_KV_F32);
            float *got = logits_of(e, session, batches[b]);
            const double off = want ? farthest(got, want, n) : 0;
            if (!(off <= 1e-3)) {
                fail_msg("%s in steps of %d: a logit is off by %g", e->c.name, (int)batches[b], off);
            }
            check_greedy(e, session);
            free(got);
            mo_session_close(session);
            mo_model_close(model);
        }
        free(want);
    }
    if (missing) {
        print_message("logits of %d cases are not in the tree; MO_TEST_ORACLE may name their folder\n",
                      missing);
    }
}

/* ---- Against itself --------------------------------------------------------------------------- */

static void same_bits_in_any_steps_with_any_threads(void **state)
{
    static const int64_t steps[] = {1, 5, 33, 0};
    static const mo_kv_type formats[] = {MO_KV_I16, MO_KV_Q8_0, MO_KV_F32};
    (void)state;
    for (int i = 0; i < CASES; i++) {
        example *e = &examples[i];
        if (SANITIZED && e->c.count > 100) {
            continue;
        }
        mo_model *one = open_picture_model(e->c.model, 1, 256, "none"),
                 *three = open_picture_model(e->c.model, 3, 256, "none");
        for (int k = 0; k < 3; k++) {
            mo_session *a = open_session(one, formats[k]);
            float *want = logits_of(e, a, 0);
            for (int s = 0; s < 4; s++) {
                mo_session *b = open_session(three, formats[k]);
                float *got = logits_of(e, b, steps[s]);
                if (memcmp(got, want, sizeof(float) * (size_t)(e->c.count * e->c.vocab)) != 0) {
                    fail_msg("%s: other bits in steps of %d", e->c.name, (int)steps[s]);
                }
                free(got);
                mo_session_close(b);
            }
            free(want);
            mo_session_close(a);
        }
        mo_model_close(one);
        mo_model_close(three);
    }
}

/* Two sessions of which each has its pictures, fed together, and one of text beside them. */
static void same_bits_in_company(void **state)
{
    (void)state;
    for (int i = 0; i + 2 < CASES; i++) {
        example *e = &examples[i], *other = &examples[i + 1];
        if (strcmp(e->c.model, other->c.model) != 0) {
            continue;
        }
        mo_model *model = open_picture_model(e->c.model, 2, 224, "none");
        mo_session *alone = open_session(model, MO_KV_I16);
        float *want = logits_of(e, alone, 0);
        check_company(e, other, model, want);
        mo_session_close(alone);
        free(want);
        mo_model_close(model);
    }
}

/* Snapshots hold them like text: what follows is the same in another session, also from bytes; a sequence with another picture keeps what is
 * before it, and no part of it. */
static void sessions_go_back_and_are_saved(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        example *e = &examples[i];
        if (e->c.images < 2) {
            continue;
        }
        mo_model *model = open_picture_model(e->c.model, 2, 256, "none");
        mo_session *a = open_session(model, MO_KV_F32), *b = open_session(model, MO_KV_F32);
        mo_snapshot *first = NULL, *second = NULL;
        mo_image *list[IMAGES];
        uint8_t *bytes = NULL;
        size_t size = 0;
        mo_error err;
        free(logits_of(e, a, 0));
        check_status(mo_snapshot_open(a, &first, &err), &err);
        check_status(mo_snapshot_write(first, &bytes, &size, &err), &err);
        check_status(mo_snapshot_read(model, bytes, size, &second, &err), &err);
        check_status(mo_session_restore(b, second, -1, &err), &err);
        check_greedy(e, b);
        mo_feed f = feed_of(e, b, list, 0);
        f.count += GREEDY;
        check_status(mo_session_feed(&f, 1, &err), &err);
        f.image_count = 0; /* what it holds has no positions without its pictures */
        assert_int_equal(mo_session_feed(&f, 1, &err), MO_EINVAL);
        check_says(&err, "must be given");
        example *other = calloc(1, sizeof *other);
        *other = *e;
        const mo_image second_image = other->image[1];
        for (int64_t r = 1; r < second_image.columns * second_image.lines;
             r++) { /* its first row looks alike */
            other->rows[1][r] ^= 1;
        }
        other->image[0].tokens = other->rows[0];
        other->image[1].tokens = other->rows[1];
        int64_t at = 0;
        while (e->c.tokens[at] != e->rows[1][0]) {
            at++;
        }
        memcpy(other->c.tokens + at, other->rows[1],
               sizeof(int32_t) * (size_t)(second_image.columns * second_image.lines));
        f = feed_of(other, b, list, 0);
        check_status(mo_session_feed(&f, 1, &err), &err);
        const int64_t kept = other->c.count - mo_session_computed(b);
        assert_true(kept == at || kept == 0); /* recurrent layers, and windows, cannot go back */
        assert_true(kept == at || strcmp(e->c.model, "qwen3vlmoe") != 0);
        free(other);
        mo_snapshot_close(first);
        mo_snapshot_close(second);
        mo_free(bytes);
        mo_session_close(a);
        mo_session_close(b);
        mo_model_close(model);
    }
}

/* ---- What is refused -------------------------------------------------------------------------- */

static void refuse(const mo_feed *f, mo_status status, const char *words)
{
    mo_error err = {0};
    const mo_status got = mo_session_feed(f, 1, &err);
    if (got != status) {
        fail_msg("status %d instead of %d: %s", got, status, err.detail);
    }
    check_says(&err, words);
}

static void sequences_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    example *e = find_example("qwen3vlmoe.c"), *gemma = find_example("gemma4.b");
    mo_model *model = open_picture_model(e->c.model, 2, 64, "none");
    mo_session *s = open_session(model, MO_KV_I16);
    mo_image *list[IMAGES], *swapped[IMAGES] = {&e->image[1], &e->image[0]};
    mo_feed f = feed_of(e, s, list, 0);
    f.images = swapped;
    refuse(&f, MO_EINVAL, "picture 1 of the sequence is another one");
    f = feed_of(e, s, list, 0);
    f.image_count = 1;
    refuse(&f, MO_EINVAL, "more pictures than the 1");
    f.image_count = 0;
    refuse(&f, MO_EINVAL, "not in the vocabulary");
    f = feed_of(e, s, list, 0);
    f.images = NULL;
    refuse(&f, MO_EINVAL, "NULL");
    f = feed_of(e, s, list, 0);
    f.count = 8; /* within the first */
    refuse(&f, MO_EINVAL, "ends within it");
    f.count = 6;
    refuse(&f, MO_EINVAL, "fewer pictures than the 2");
    mo_image other = e->image[0];
    other.width++;
    list[0] = &other;
    f = feed_of(e, s, list, 0);
    list[0] = &other;
    refuse(&f, MO_EINVAL, "another model");
    assert_int_equal(mo_session_length(s), 0);
    mo_session_close(s);
    mo_model_close(model);
    model = open_picture_model(gemma->c.model, 2, 32, "none");
    s = open_session(model, MO_KV_I16);
    f = feed_of(gemma, s, list, 0);
    refuse(&f, MO_EINVAL, "larger `batch`");
    mo_session_close(s);
    mo_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_and_text_are_the_expected_ones),
        cmocka_unit_test(same_bits_in_any_steps_with_any_threads),
        cmocka_unit_test(same_bits_in_company),
        cmocka_unit_test(sessions_go_back_and_are_saved),
        cmocka_unit_test(sequences_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, read_examples, free_examples);
}
