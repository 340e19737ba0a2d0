/* Models of hubs without a network: how they are named, what lists of files become, what the store holds, and files on their way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "folder.h"
#include "hub/encoder.h"
#include "hub/label.h"
#include "hub/listing.h"
#include "hub/naming.h"
#include "hub/partial.h"
#include "hub/reference.h"
#include "hub/store.h"

static mo_error err;

/* ---- Names ---- */

/* Names that a terminal would obey, or that look like others, are none. */
static void names_that_deceive_are_refused(void **state)
{
    (void)state;
    static const char *const good[] = {"a.gguf", "m\xC3\xB6\x64.gguf", "\xE6\xA8\xA1/x.gguf",
                                       "\xF0\x9F\xA6\x8A.gguf"};
    static const char *const bad[] = {"a\x1B[2J.gguf",
                                      "a\x7F.gguf",
                                      ("a\xC2\x9B"
                                       "2J.gguf"),
                                      "a\xC2\x80.gguf",
                                      ("a\xE2\x80\xAE"
                                       "fugg.gguf"),
                                      "a\xE2\x80\x8F.gguf",
                                      "a\xE2\x81\xA6.gguf",
                                      "a\xD8\x9C.gguf",
                                      "a\xE2\x80\xA8.gguf",
                                      "a\xFF.gguf",
                                      "a\x9B.gguf",
                                      "a\xC0\xAF.gguf",
                                      "a\xED\xA0\x80.gguf",
                                      "a\xE2\x80.gguf",
                                      "x/a\xE2\x80\xAE/b.gguf"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(hub_path_safe(good[i]));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (hub_path_safe(bad[i])) {
            fail_msg("number %zu", i);
        }
    }
}

static void names_become_references(void **state)
{
    static const struct {
        const char *text, *owner, *repo, *revision, *quant, *file, *url;
    } cases[] = {
        {"o/r", "o", "r", "main", "", "", ""},
        {"o/r:Q4_K_M", "o", "r", "main", "Q4_K_M", "", ""},
        {"hf.co/o/r:Q8_0", "o", "r", "main", "Q8_0", "", ""},
        {"https://huggingface.co/o/r", "o", "r", "main", "", "", ""},
        {"https://huggingface.co/o/r/tree/v2", "o", "r", "v2", "", "", ""},
        {"https://huggingface.co/o/r/tree/main/Q8_0", "o", "r", "main", "Q8_0", "", ""},
        {"https://hf.co/o/r/resolve/main/a/b%20c.gguf?download=true", "o", "r", "main", "", "a/b c.gguf", ""},
        {"http://hub.example:81/o/r", "o", "r", "main", "", "", ""},
        {"http://a.example:80/x/M-Q8_0.gguf?k=1", "a.example", "M-Q8_0", "main", "", "M-Q8_0.gguf",
         "http://a.example:80/x/M-Q8_0.gguf?k=1"},
        {"http://a.example/M-00002-of-00003.gguf", "a.example", "M", "main", "", "M-00002-of-00003.gguf",
         "http://a.example/M-00002-of-00003.gguf"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hub_reference r;
        assert_int_equal(hub_reference_parse(cases[i].text, "http://hub.example:81", &r, &err), MO_OK);
        assert_string_equal(r.owner, cases[i].owner);
        assert_string_equal(r.repo, cases[i].repo);
        assert_string_equal(r.revision, cases[i].revision);
        assert_string_equal(r.quant, cases[i].quant);
        assert_string_equal(r.file, cases[i].file);
        assert_string_equal(r.url, cases[i].url);
    }
}

static void what_names_nothing_is_refused(void **state)
{
    static const char *const texts[] = {
        "",
        "o",
        "o/",
        "/r",
        "o/r/x",
        "o/..",
        "../r",
        "o/r:",
        "o/r:a/b",
        "o r/x",
        "o/r\n",
        "~/models/x",
        "./models",
        "o/.hid",
        "-o/r",
        "https://",
        "https:///",
        "http://h/",
        "http://h/x",
        "http://h/.gguf",
        "http://h/%00.gguf",
        "http://h/a%2fb.gguf",
        "http://user:word@h/x.gguf",
        "https://hf.co/o/r/resolve/main/../x.gguf",
        "https://hf.co/o/r/raw/main/x.gguf",
    };
    char *long_one = malloc(10001);
    hub_reference r;
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (hub_reference_parse(texts[i], NULL, &r, &err) == MO_OK) {
            fail_msg("%s was taken", texts[i]);
        }
    }
    memset(long_one, 'a', 10000);
    long_one[10000] = '\0';
    long_one[5000] = '/';
    assert_int_equal(hub_reference_parse(long_one, NULL, &r, &err), MO_EINVAL);
    free(long_one);
    assert_false(hub_reference_like("models/x.gguf"));
    assert_false(hub_reference_like("x.gguf"));
    assert_true(hub_reference_like("o/r"));
    assert_true(hub_reference_like("https://a.example/x.gguf"));
}

static void labels_are_found_in_names(void **state)
{
    static const char *const cases[][2] = {
        {"M-Q4_K_M.gguf", "Q4_K_M"},
        {"a/b/M.Q8_0.gguf", "Q8_0"},
        {"Q8_0/M-Q8_0-00001-of-00002.gguf", "Q8_0"},
        {"M-UD-IQ2_XXS.gguf", "UD-IQ2_XXS"},
        {"gpt-oss-20b-mxfp4.gguf", "mxfp4"},
        {"M-BF16-v2.gguf", "BF16"},
        {"M-Q4_K_M-imat.gguf", "Q4_K_M"},
        {"model.gguf", "model"},
        {"Q.gguf", "Q"},
        {"-.gguf", "-"},
    };
    int no, count;
    size_t prefix;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char label[32];
        hub_label_of(cases[i][0], label, sizeof label);
        assert_string_equal(label, cases[i][1]);
    }
    assert_true(hub_label_same("ud-q4_k_xl", "UD_Q4_K_XL"));
    assert_false(hub_label_same("Q4_K", "Q4_K_M"));
    assert_true(hub_label_split("x-00002-of-00010.gguf", &no, &count, &prefix) && no == 2 && count == 10 &&
                prefix == 1);
    assert_false(hub_label_split("x-00003-of-00002.gguf", &no, &count, &prefix));
    assert_false(hub_label_split("-00001-of-00002.gguf", &no, &count, &prefix));
}

static void models_are_chosen_by_file_name_or_label(void **state)
{
    static const char *const paths[] = {"a-Q4_K_M.gguf", "b-Q4_K_M.gguf", "c/M-mxfp4-00001-of-00002.gguf",
                                        "Q8_0.gguf", "M-Q8_0.gguf"};
    static const struct {
        int from, count;
        const char *file, *quant;
        int expected;
    } cases[] = {
        {0, 5, "b-Q4_K_M.gguf", "", 1},
        {0, 5, "c/M-mxfp4-00002-of-00002.gguf", "", 2},
        {0, 5, "c/M-mxfp4-00002-of-00003.gguf", "", HUB_NONE},
        {0, 5, "d-Q4_K_M.gguf", "", HUB_NONE},
        {0, 5, "", "Q4_K_M", HUB_SEVERAL},
        {0, 5, "", "A-q4-k-m", 0},
        {0, 5, "", "Q8_0", 3}, /* its whole name */
        {0, 5, "", "Q2_K", HUB_NONE},
        {0, 5, "", "", HUB_SEVERAL},
        {1, 4, "", "", 0},
        {2, 3, "", "", 0}, /* MXFP4 */
        {3, 2, "", "", HUB_SEVERAL},
        {4, 1, "", "", 0},
        {4, 0, "", "", HUB_NONE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(
            hub_label_choose(paths + cases[i].from, cases[i].count, cases[i].file, cases[i].quant),
            cases[i].expected);
    }
}

/* ---- Encoders ---- */

static void encoders_are_known_by_their_names(void **state)
{
    static const char *const good[] = {"mmproj-F16.gguf", "MMPROJ.gguf", "a/b/Qwen3-VL-mmproj-f16.gguf",
                                       "x.mmproj.GGUF"};
    static const char *const bad[] = {"model.gguf", "mmproj/model.gguf", "mmproj.bin", "mmproj", ""};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(hub_encoder_named(good[i]));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(hub_encoder_named(bad[i]));
    }
}

/* Each is better than the next. */
static void the_usual_encoder_comes_first(void **state)
{
    static const char *const model = "Q4/Big-30B-Q4_K_M.gguf";
    static const char *const order[] = {
        "Big-30B-mmproj-Q8_0.gguf", "mmproj-Big-7B-F16.gguf", "mmproj-F16.gguf", "mmproj-BF16.gguf",
        "mmproj-Bi-BF16.gguf",      "mmproj-Q8_0.gguf",       "mmproj-F32.gguf", "mmproj.gguf",
    };
    (void)state;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        for (size_t k = 0; k < sizeof order / sizeof *order; k++) {
            assert_int_equal(hub_encoder_better(order[i], order[k], model), i < k);
        }
    }
}

static void encoders_are_looked_for_beside_models(void **state)
{
    static const struct {
        const char *encoder, *model;
        bool beside;
    } cases[] = {
        {"mmproj-F16.gguf", "M-Q8_0.gguf", true},
        {"mmproj-F16.gguf", "Q8_0/M-Q8_0-00001-of-00002.gguf", true},
        {"Q8_0/mmproj-F16.gguf", "Q8_0/M-Q8_0.gguf", true},
        {"a/mmproj-F16.gguf", "a/BF16/M-bf16.gguf", true},
        {"mmproj-F16.gguf", "other/M-Q8_0.gguf", false},
        {"mmproj-F16.gguf", "M/M-Q8_0.gguf", false}, /* a letter says nothing */
        {"x/mmproj-F16.gguf", "Q8_0/M-Q8_0.gguf", false},
        {"mmproj/mmproj-F16.gguf", "M-Q8_0.gguf", false},
        {"b/mmproj-F16.gguf", "a/BF16/M-bf16.gguf", false},
    };
    size_t length;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(hub_encoder_beside(cases[i].encoder, cases[i].model), cases[i].beside);
    }
    assert_true(hub_encoder_above("/s/o/r/Q8_0/M-Q8_0.gguf", &length));
    assert_int_equal(length, strlen("/s/o/r/"));
    assert_false(hub_encoder_above("/M.gguf", &length));
}

/* ---- Lists ---- */

#ifdef MO_PULL

static void lists_become_models(void **state)
{
    static const char page[] =
        "[{\"type\":\"file\",\"path\":\"M-Q8_0-00002-of-00002.gguf\",\"size\":135,\"lfs\":{\"oid\":\""
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\",\"size\":20}},"
        "{\"type\":\"file\",\"path\":\"M-Q8_0-00001-of-00002.gguf\",\"size\":10},"
        "{\"type\":\"file\",\"path\":\"M-Q2_K-00001-of-00002.gguf\",\"size\":10},"
        "{\"type\":\"file\",\"path\":\"M-F16.gguf\",\"size\":-5},{\"type\":\"file\",\"path\":\"../"
        "M-F16.gguf\",\"size\":5},"
        "{\"type\":\"directory\",\"path\":\"x.gguf\",\"size\":5},{\"type\":\"file\",\"path\":\"mmproj-F16."
        "gguf\",\"size\":5},"
        "{\"type\":\"file\",\"path\":\"M-Q8_0-00001-of-00002.gguf\",\"size\":99}, 7, null, {}]";
    hub_listing l = {0};
    hub_reference r;
    const hub_choice *c;
    (void)state;
    assert_int_equal(hub_listing_add(&l, page, sizeof page - 1, &err), MO_OK);
    assert_int_equal(hub_listing_finish(&l, &err), MO_OK);
    assert_int_equal(l.count, 1);
    assert_int_equal(l.encoder_count, 1);
    assert_string_equal(hub_listing_encoder(&l, "M-Q8_0-00001-of-00002.gguf", NULL)->path, "mmproj-F16.gguf");
    assert_int_equal(hub_reference_parse("o/r", NULL, &r, &err), MO_OK);
    assert_int_equal(hub_listing_choose(&l, &r, &c, &err), MO_OK);
    assert_string_equal(c->label, "Q8_0");
    assert_int_equal(c->count, 2);
    assert_int_equal(c->bytes, 30);
    assert_string_equal(c->files[0].path, "M-Q8_0-00001-of-00002.gguf");
    assert_string_equal(c->files[0].sha256, "");
    assert_string_equal(c->files[1].sha256,
                        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    hub_listing_free(&l);
}

static void damaged_lists_are_refused(void **state)
{
    static const char page[] = "[{\"type\":\"file\",\"path\":\"M-Q8_0.gguf\",\"size\":135}]";
    (void)state;
    for (size_t length = 0; length < sizeof page - 1; length++) {
        hub_listing l = {0};
        assert_int_equal(hub_listing_add(&l, page, length, &err), MO_EFORMAT);
        assert_int_equal(hub_listing_finish(&l, &err), MO_OK);
        assert_int_equal(l.count, 0);
        hub_listing_free(&l);
    }
}

static void a_list_that_is_too_long_is_marked_so(void **state)
{
    enum { COUNT = 50000, MOST = 4000 };
    char page[80];
    hub_listing l = {0};
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(l.cut, i > MOST);
        const int used =
            snprintf(page, sizeof page, "[{\"type\":\"file\",\"path\":\"M%d-Q8_0.gguf\",\"size\":9}]", i);
        assert_int_equal(hub_listing_add(&l, page, (size_t)used, &err), MO_OK);
    }
    assert_true(l.cut);
    assert_int_equal(l.file_count, MOST);
    hub_listing_free(&l);
}

/* ---- Files on their way ---- */

static const char zeros_sha256[] =
    "8a39d2abd3999ab73c34db2476849cddf303ce389b35826850f9a700589b4a90"; /* of 4 x 65536 zeros */

static hub_partial *partial_at(const char *path, const char *identity, const char *sha256, bool *anew)
{
    const hub_partial_spec spec = {path, 4 * 65536, identity, sha256, 65536};
    hub_partial *p = NULL;
    assert_int_equal(hub_partial_open(&spec, &p, anew, &err), MO_OK);
    return p;
}

static void pieces_are_remembered_by_identity(void **state)
{
    char path[1024];
    bool anew;
    (void)state;
    snprintf(path, sizeof path, "%s", in_folder("one.gguf"));
    hub_partial *p = partial_at(path, "sha256:a", "", &anew);
    assert_false(anew);
    assert_int_equal(hub_partial_missing(p, 0), 0);
    hub_partial_mark(p, 65536, 3 * 65536 - 1); /* the second of them is not wholly there */
    assert_int_equal(hub_partial_done(p), 65536);
    assert_int_equal(hub_partial_missing(p, 1), 2 * 65536);
    assert_int_equal(hub_partial_save(p, &err), MO_OK);
    const hub_partial_spec again = {path, 4 * 65536, "sha256:a", "", 65536};
    hub_partial *other = NULL;
    assert_int_equal(hub_partial_open(&again, &other, &anew, &err), MO_EINVAL); /* one at a time */
    hub_partial_close(p);
    p = partial_at(path, "sha256:a", "", &anew);
    assert_false(anew);
    assert_int_equal(hub_partial_done(p), 65536);
    hub_partial_close(p);
    p = partial_at(path, "sha256:b", "", &anew);
    assert_true(anew);
    assert_int_equal(hub_partial_done(p), 0);
    hub_partial_discard(p);
    hub_partial_close(p);
    assert_int_not_equal(access(in_folder("one.gguf.part"), F_OK), 0);
    assert_int_not_equal(access(in_folder("one.gguf.part.json"), F_OK), 0);
}

static void what_is_forgotten_is_neither_there_nor_hashed(void **state)
{
    char path[1024];
    bool anew;
    (void)state;
    snprintf(path, sizeof path, "%s", in_folder("three.gguf"));
    hub_partial *p = partial_at(path, "x", zeros_sha256, &anew);
    hub_partial_mark(p, 0, 2 * 65536);
    assert_int_equal(hub_partial_hash(p, 1 << 20), 2 * 65536);
    assert_int_equal(hub_partial_save(p, &err), MO_OK);
    assert_int_equal(hub_partial_forget(p, &err), MO_OK);
    assert_int_equal(hub_partial_done(p), 0);
    assert_int_equal(hub_partial_hash(p, 1 << 20), 0);
    hub_partial_close(p);
    p = partial_at(path, "x", zeros_sha256, &anew);
    assert_int_equal(hub_partial_done(p), 0); /* nor for the next run */
    assert_int_equal(hub_partial_write(p, 77, "x", 1, &err), MO_OK);
    hub_partial_mark(p, 0, 4 * 65536);
    hub_partial_hash(p, 1 << 20);
    assert_int_equal(hub_partial_check(p, &err), MO_EFORMAT);
    hub_partial_discard(p);
    hub_partial_close(p);
    p = partial_at(path, "", "", &anew);
    hub_partial_mark(p, 0, 65536);
    assert_int_equal(hub_partial_save(p, &err), MO_OK);
    hub_partial_close(p);
    p = partial_at(path, "", "", &anew);
    assert_true(anew); /* nobody knows what it is of */
    assert_int_equal(hub_partial_done(p), 0);
    hub_partial_discard(p);
    hub_partial_close(p);
}

static void a_checksum_decides(void **state)
{
    char path[1024];
    bool anew;
    (void)state;
    snprintf(path, sizeof path, "%s", in_folder("two.gguf"));
    hub_partial *p = partial_at(path, "x", zeros_sha256, &anew);
    assert_int_equal(hub_partial_hash(p, 1 << 20), 0); /* nothing is there */
    hub_partial_mark(p, 2 * 65536, 4 * 65536);
    assert_int_equal(hub_partial_hash(p, 1 << 20), 0);
    hub_partial_mark(p, 0, 65536);
    assert_int_equal(hub_partial_hash(p, 1 << 20), 65536);
    hub_partial_mark(p, 65536, 2 * 65536);
    assert_true(hub_partial_complete(p));
    assert_int_equal(hub_partial_hash(p, 1 << 20), 4 * 65536);
    const mo_status s = hub_partial_check(p, &err);
    if (s != MO_OK) {
        fail_msg("%s", err.detail);
    }
    const hub_named named = {path, p, false};
    assert_int_equal(hub_names_give(&named, 1, &err), MO_OK);
    hub_partial_close(p);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_not_equal(access(in_folder("two.gguf.part.json"), F_OK), 0);
    p = partial_at(path, "x", zeros_sha256, &anew);
    assert_int_equal(hub_partial_write(p, 77, "x", 1, &err), MO_OK);
    hub_partial_mark(p, 0, 4 * 65536);
    hub_partial_hash(p, 1 << 20);
    assert_int_equal(hub_partial_check(p, &err), MO_EFORMAT);
    hub_partial_discard(p);
    hub_partial_close(p);
}

/* ---- Names for all files, or for none ---- */

static int renames_left = -1; /* until one fails; -1: none does */

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    if (renames_left >= 0 && renames_left-- == 0) {
        errno = EIO;
        return -1;
    }
    return __real_rename(from, to);
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0 && fclose(f) == 0);
}

static void assert_begins(const char *path, const char *text)
{
    char got[16] = {0};
    FILE *f = fopen(path, "r");
    if (!f) {
        fail_msg("%s is not there", path);
    }
    assert_true(fread(got, 1, strlen(text), f) == strlen(text));
    fclose(f);
    assert_string_equal(got, text);
}

enum { PARTS = 3 };

/* An old version of three parts, of which the new one has those of `same`; whichever renaming fails, all of the old one is there, and
 * the next run has nothing to fetch. */
static void all_files_get_their_names_or_none_does(void **state)
{
    char paths[PARTS][1024];
    bool anew;
    (void)state;
    for (int i = 0; i < PARTS; i++) {
        char name[64];
        snprintf(name, sizeof name, "Big-0000%d-of-00003.gguf", i + 1);
        snprintf(paths[i], sizeof paths[i], "%s", in_folder(name));
    }
    for (int same = 0; same < (1 << PARTS) - 1; same++) {
        for (int i = 0; i < PARTS; i++) {
            write_text(paths[i], "old");
        }
        mo_status s = MO_EIO;
        for (int fails = 0; s != MO_OK && fails < 20; fails++) {
            hub_named files[PARTS];
            for (int i = 0; i < PARTS; i++) {
                files[i] = (hub_named){paths[i], NULL, false};
                if (!(same >> i & 1)) {
                    files[i].partial = partial_at(paths[i], "x", "", &anew);
                    assert_false(anew);
                    assert_int_equal(hub_partial_done(files[i].partial), fails ? 4 * 65536 : 0);
                    assert_int_equal(hub_partial_write(files[i].partial, 0, "new", 3, &err), MO_OK);
                    hub_partial_mark(files[i].partial, 0, 4 * 65536);
                    assert_int_equal(hub_partial_save(files[i].partial, &err), MO_OK);
                }
            }
            renames_left = fails;
            s = hub_names_give(files, PARTS, &err);
            renames_left = -1;
            for (int i = 0; i < PARTS; i++) {
                assert_begins(paths[i], s == MO_OK && files[i].partial ? "new" : "old");
                hub_partial_close(files[i].partial);
            }
            assert_true(s == MO_OK || strstr(err.detail, "cannot rename"));
        }
        assert_int_equal(s, MO_OK);
        for (int i = 0; i < PARTS; i++) {
            char left[4096];
            snprintf(left, sizeof left, "%.1000s" HUB_ASIDE, paths[i]);
            assert_int_not_equal(access(left, F_OK), 0);
            snprintf(left, sizeof left, "%.1000s.part.json", paths[i]);
            assert_int_not_equal(access(left, F_OK), 0);
        }
    }
}

/* A run that was killed left the old version aside, and the hub has some of its parts (`same`) in the new one as well; whichever
 * renaming fails, they are still there. */
static void parts_that_are_only_aside_get_their_names_back(void **state)
{
    char paths[PARTS][1024], asides[PARTS][1024 + 8];
    bool anew;
    (void)state;
    for (int i = 0; i < PARTS; i++) {
        char name[64];
        snprintf(name, sizeof name, "Aside-0000%d-of-00003.gguf", i + 1);
        snprintf(paths[i], sizeof paths[i], "%s", in_folder(name));
        snprintf(asides[i], sizeof asides[i], "%.1000s" HUB_ASIDE, paths[i]);
    }
    for (int same = 1; same < 1 << PARTS; same++) {
        mo_status s = MO_EIO;
        for (int i = 0; i < PARTS; i++) {
            unlink(paths[i]);
            write_text(asides[i], "old");
        }
        for (int fails = 0; s != MO_OK && fails < 20; fails++) {
            hub_named files[PARTS];
            for (int i = 0; i < PARTS; i++) {
                files[i] = (hub_named){paths[i], NULL, true};
                if (!(same >> i & 1)) {
                    files[i].partial = partial_at(paths[i], "x", "", &anew);
                    assert_int_equal(hub_partial_write(files[i].partial, 0, "new", 3, &err), MO_OK);
                    hub_partial_mark(files[i].partial, 0, 4 * 65536);
                    assert_int_equal(hub_partial_save(files[i].partial, &err), MO_OK);
                }
            }
            renames_left = fails;
            s = hub_names_give(files, PARTS, &err);
            renames_left = -1;
            for (int i = 0; i < PARTS; i++) {
                if (s == MO_OK) {
                    assert_begins(paths[i], files[i].partial ? "new" : "old");
                    assert_int_not_equal(access(asides[i], F_OK), 0);
                } else if (!files[i].partial) {
                    assert_begins(asides[i], "old");
                }
                hub_partial_close(files[i].partial);
            }
        }
        assert_int_equal(s, MO_OK);
    }
}

#endif

/* ---- The store ---- */

static void touch(const char *path)
{
    assert_int_equal(hub_store_make_folders(path, &err), MO_OK);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("GGUF", f);
    fclose(f);
}

static void the_store_is_what_its_names_say(void **state)
{
    static const char *const names[] = {
        "o/r/M-Q4_K_M.gguf",
        "o/r/M-Q8_0-00001-of-00002.gguf",
        "o/r/M-Q8_0-00002-of-00002.gguf",
        "o/r/Q6/M-Q6_K.gguf.part",
        "o/r/Q6/M-Q6_K.gguf.part.json",
        "o/s/M-F16-00002-of-00002.gguf",
        "o/s/M-F16-00001-of-00002.gguf.part",
        "o/r/notes.txt",
        "o/r/mmproj-F16.gguf",
        "o/s/mmproj-BF16.gguf.part",
        "o/s/mmproj-BF16.gguf.part.json",
        "loose.gguf",
        "o/loose.gguf",
        ".hidden/r/x.gguf",
    };
    char directory[1024];
    hub_models models;
    hub_reference r;
    bool several;
    (void)state;
    snprintf(directory, sizeof directory, "%s", in_folder("store"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[2048];
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        touch(path);
    }
    assert_int_equal(symlink("..", in_folder("store/o/loop")), 0);
    assert_int_equal(hub_models_scan(directory, &models, &err), MO_OK);
    assert_int_equal(models.count, 4);
    static const char *const expected[] = {"o/r:Q4_K_M", "o/r:Q6_K", "o/r:Q8_0", "o/s:F16"};
    static const bool whole[] = {true, false, true, false};
    for (int i = 0; i < 4; i++) {
        assert_string_equal(models.items[i].name, expected[i]);
        assert_int_equal(models.items[i].whole, whole[i]);
    }
    assert_int_equal(hub_reference_parse("o/r:q8_0", NULL, &r, &err), MO_OK);
    assert_ptr_equal(hub_models_find(&models, &r, &several), &models.items[2]);
    assert_int_equal(hub_reference_parse("o/r:q6_k", NULL, &r, &err), MO_OK);
    assert_null(hub_models_find(&models, &r, &several));
    assert_int_equal(hub_reference_parse("o/s", NULL, &r, &err), MO_OK);
    assert_null(hub_models_find(&models, &r, &several));
    assert_false(several);
    for (int i = 0; i < 4; i++) { /* the encoder goes with the last model */
        assert_int_equal(access(in_folder("store/o/r/mmproj-F16.gguf"), F_OK) == 0, i < 3);
        assert_int_equal(hub_model_remove(directory, &models.items[i], &err), MO_OK);
    }
    hub_models_free(&models);
    assert_int_not_equal(access(in_folder("store/o/s"), F_OK), 0);
    assert_int_equal(access(in_folder("store/o/r/notes.txt"), F_OK), 0); /* not ours */
    assert_int_equal(hub_models_scan(in_folder("absent"), &models, &err), MO_OK);
    assert_int_equal(models.count, 0);
    hub_models_free(&models);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_that_deceive_are_refused),
        cmocka_unit_test(names_become_references),
        cmocka_unit_test(what_names_nothing_is_refused),
        cmocka_unit_test(labels_are_found_in_names),
        cmocka_unit_test(models_are_chosen_by_file_name_or_label),
        cmocka_unit_test(encoders_are_known_by_their_names),
        cmocka_unit_test(the_usual_encoder_comes_first),
        cmocka_unit_test(encoders_are_looked_for_beside_models),
#ifdef MO_PULL
        cmocka_unit_test(lists_become_models),
        cmocka_unit_test(damaged_lists_are_refused),
        cmocka_unit_test(a_list_that_is_too_long_is_marked_so),
        cmocka_unit_test(pieces_are_remembered_by_identity),
        cmocka_unit_test(what_is_forgotten_is_neither_there_nor_hashed),
        cmocka_unit_test(a_checksum_decides),
        cmocka_unit_test(all_files_get_their_names_or_none_does),
        cmocka_unit_test(parts_that_are_only_aside_get_their_names_back),
#endif
        cmocka_unit_test(the_store_is_what_its_names_say),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
