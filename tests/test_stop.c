/* Stop strings: however a text is split, the same comes out and the same string is met, by a definition that looks at the
 * whole text; no more waits than must; characters stay whole; memory may end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "failing_memory.h"
#include "moraine_server.h"
#include "random.h"

enum { LONG = 512 };

typedef struct answer {
    char text[LONG];
    size_t length;
    int met;
} answer;

static size_t longest(const char *const *strings, size_t count)
{
    size_t most = 0;
    for (size_t i = 0; i < count; i++) {
        most = strlen(strings[i]) > most ? strlen(strings[i]) : most;
    }
    return most;
}

/* The definition: the string that is complete first, of several the longest. */
static answer define(const char *const *strings, size_t count, const char *text)
{
    answer a = {.length = strlen(text), .met = -1};
    size_t best = 0;
    for (size_t end = 1; end <= strlen(text) && a.met < 0; end++) {
        for (size_t i = 0; i < count; i++) {
            const size_t n = strlen(strings[i]);
            if (n <= end && n > best && memcmp(text + end - n, strings[i], n) == 0) {
                best = n;
                a.length = end - n;
                a.met = (int)i;
            }
        }
    }
    memcpy(a.text, text, a.length);
    return a;
}

static void add(answer *a, mo_text piece)
{
    assert_int_equal(piece.data[piece.length], 0);
    memcpy(a->text + a->length, piece.data, piece.length);
    a->length += piece.length;
}

/* Cuts: the ends of the pieces but the last, ascending. */
static void check_cut(mo_stop *stop, const char *const *strings, size_t count, const char *text,
                      const size_t *cuts, size_t cut_count)
{
    const answer want = define(strings, count, text);
    const size_t most = longest(strings, count);
    answer got = {.met = -1};
    mo_text out;
    size_t at = 0;
    for (size_t i = 0; i <= cut_count; i++) {
        const size_t end = i < cut_count ? cuts[i] : strlen(text);
        const bool before = got.met >= 0;
        assert_int_equal(mo_stop_put(stop, (mo_text){text + at, end - at}, &out, &got.met, NULL), MO_OK);
        assert_true(!before || out.length == 0);
        add(&got, out);
        at = end;
        assert_true(got.met >= 0 || at - got.length < (most ? most : 1));
    }
    mo_stop_flush(stop, &out);
    assert_true(got.met < 0 || out.length == 0);
    add(&got, out);
    assert_int_equal(got.met, want.met);
    assert_int_equal(got.length, want.length);
    assert_memory_equal(got.text, want.text, want.length);
}

static void check_all_cuts(const char *const *strings, size_t count, const char *text)
{
    mo_stop *stop = NULL;
    mo_error err;
    size_t cuts[LONG];
    const size_t length = strlen(text);
    check_status(mo_stop_open(strings, count, &stop, &err), &err);
    check_cut(stop, strings, count, text, NULL, 0);
    for (size_t i = 0; i <= length; i++) { /* at every byte, and at every two */
        cuts[0] = i;
        check_cut(stop, strings, count, text, cuts, 1);
        for (size_t k = i; k <= length; k++) {
            cuts[1] = k;
            check_cut(stop, strings, count, text, cuts, 2);
        }
    }
    for (size_t i = 0; i < length; i++) {
        cuts[i] = i;
    }
    check_cut(stop, strings, count, text, cuts, length);
    mo_stop_close(stop);
}

static void splits_do_not_matter(void **state)
{
    (void)state;
    static const struct {
        const char *strings[4];
        size_t count;
        const char *text;
    } cases[] = {
        {{"END"}, 1, "Here it ENds, and here ENEND it is"},
        {{"abcd", "bc"}, 2, "xxabcabcd"},     /* the inner one is complete first */
        {{"bc", "abc"}, 2, "xxababcd"},       /* they end together: the longer */
        {{"abac", "abab"}, 2, "abaabacabab"}, /* a shared beginning */
        {{"aab", "aaab"}, 2, "aaaaaaab"},     /* the text repeats */
        {{"</s>", "\n\nUser:"}, 2, "one\n\ntwo\n\nUse\n\nUser: three"},
        {{"\xC3\xA9t\xC3\xA9"}, 1, "\xC3\xA8t\xC3\xA9 \xC3\xA9t\xC3\xA8 \xC3\xA9t\xC3\xA9!"},
        {{"never"}, 1, "nothing here neve"},
        {{"x"}, 1, ""},
        {{""}, 0, "without any string everything comes at once"},
        {{"all of it"}, 1, "all of it"},
        {{"same", "same"}, 2, "the same"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_all_cuts(cases[i].strings, cases[i].count, cases[i].text);
    }
}

static void random_texts(void **state)
{
    (void)state;
    uint64_t seed = 13;
    for (int round = 0; round < 3000; round++) {
        char strings[4][8], text[64];
        const char *list[4];
        size_t cuts[16], cut_count = 0;
        const size_t count = 1 + (size_t)random_below(&seed, 4);
        mo_stop *stop = NULL;
        for (size_t i = 0; i < count; i++) {
            const size_t n = 1 + (size_t)random_below(&seed, 6);
            for (size_t k = 0; k < n; k++) {
                strings[i][k] = (char)('a' + random_below(&seed, 2 + round % 2));
            }
            strings[i][n] = 0;
            list[i] = strings[i];
        }
        for (size_t k = 0; k < sizeof text - 1; k++) {
            text[k] = (char)('a' + random_below(&seed, 3));
        }
        text[random_below(&seed, sizeof text)] = 0;
        text[sizeof text - 1] = 0;
        for (size_t at = 0; cut_count < 16; cut_count++) {
            at += (size_t)random_below(&seed, 8);
            if (at > strlen(text)) {
                break;
            }
            cuts[cut_count] = at;
        }
        assert_int_equal(mo_stop_open(list, count, &stop, NULL), MO_OK);
        check_cut(stop, list, count, text, cuts, cut_count);
        check_cut(stop, list, count, text, NULL, 0); /* a flush begins a new answer */
        mo_stop_close(stop);
    }
}

static void characters_stay_whole(void **state)
{
    (void)state;
    /* Its first bytes are those of other characters. */
    static const char *const strings[] = {"\xE2\x80\x94\xE2\x80\x94", "\xF0\x9F\x98\x80"};
    static const char *const pieces[] = {"\xE2\x80\x94", "\xE2\x80\x93", "\xF0\x9F\x98\x81", "\xE2\x80\x94",
                                         "a"};
    mo_stop *stop = NULL;
    mo_text out;
    int met;
    assert_int_equal(mo_stop_open(strings, 2, &stop, NULL), MO_OK);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        assert_int_equal(mo_stop_put(stop, (mo_text){pieces[i], strlen(pieces[i])}, &out, &met, NULL), MO_OK);
        assert_true(out.length == 0 || ((uint8_t)out.data[0] & 0xC0) != 0x80);
        assert_int_equal(met, -1);
    }
    assert_string_equal(out.data, "\xE2\x80\x94"
                                  "a");
    mo_stop_close(stop);
    mo_stop_close(NULL);
}

static void refused(void **state)
{
    (void)state;
    mo_stop *stop = (mo_stop *)&stop;
    mo_error err;
    static const char *many[257];
    assert_int_equal(mo_stop_open((const char *const[]){"a", ""}, 2, &stop, &err), MO_EINVAL);
    check_says(&err, "string 2 of `stop` is empty");
    assert_null(stop);
    assert_int_equal(mo_stop_open((const char *const[]){"a", "b\xFF"}, 2, &stop, &err), MO_EINVAL);
    check_says(&err, "string 2 of `stop` is not UTF-8 at byte 2");
    assert_int_equal(mo_stop_open((const char *const[]){NULL}, 1, &stop, NULL), MO_EINVAL);
    for (size_t i = 0; i < 257; i++) {
        many[i] = "a";
    }
    assert_int_equal(mo_stop_open(many, 257, &stop, NULL), MO_EINVAL);
    char *huge = malloc(65538);
    memset(huge, 'a', 65537);
    huge[65537] = 0;
    assert_int_equal(mo_stop_open((const char *const[]){huge}, 1, &stop, NULL), MO_EINVAL);
    free(huge);
}

static void memory_ends(void **state)
{
    (void)state;
    static const char *const strings[] = {"abc", "bd"};
    char text[300];
    memset(text, 'a', sizeof text);
    text[1] = 'b';
    for (long after = 0;; after++) {
        mo_stop *stop = NULL;
        mo_text out = {0};
        int met = 0;
        fail_after = after;
        const mo_status opened = mo_stop_open(strings, 2, &stop, NULL);
        const mo_status put =
            opened == MO_OK ? mo_stop_put(stop, (mo_text){text, sizeof text}, &out, &met, NULL) : opened;
        fail_after = -1;
        if (put == MO_OK) {
            assert_int_equal(out.length, sizeof text - 1);
            mo_stop_close(stop);
            break;
        }
        assert_int_equal(put, MO_ENOMEM);
        if (opened == MO_OK) { /* the piece was not taken, and can be put again */
            assert_int_equal(mo_stop_put(stop, (mo_text){text, 3}, &out, &met, NULL), MO_OK);
            assert_string_equal(out.data, "ab");
        } else {
            assert_null(stop);
        }
        mo_stop_close(stop);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_do_not_matter),  cmocka_unit_test(random_texts),
        cmocka_unit_test(characters_stay_whole), cmocka_unit_test(refused),
        cmocka_unit_test(memory_ends),
    };
    return cmocka_run_group_tests_name("stop", tests, NULL, NULL);
}
