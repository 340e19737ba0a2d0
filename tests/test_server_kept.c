/* What the server keeps of answers: responses in memory and on disk, sessions' files, traces of their experts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "folder.h"
#include "server/dialects/response_store.h"
#include "server/http/keys.h"
#include "server/requests/trace.h"
#include "server/scheduler/cachedir.h"

/* Jansson counts references by atomic operations, but looks before with a plain read whether they are counted at all, and the last
 * holder frees without an acquire. Both do no harm: the word changes only from one count to another, and what is freed depends on
 * the count that was read. The thread sanitizer takes them for races. */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:^json_incref$\nrace:^json_decref$\nrace:libjansson.so\n";
}

/* An answer whose output is one item, named after its number. */
static void add(srv_response_store *store, int number, const char *owner, size_t bytes)
{
    char id[64], item[64];
    snprintf(id, sizeof id, "resp_%d", number);
    snprintf(item, sizeof item, "msg_%d", number);
    const srv_kept_response kept = {.response = json_pack("{s:[{s:s}]}", "output", "id", item),
                                    .input = json_pack("[{s:s}]", "id", "in"),
                                    .bytes = bytes};
    assert_true(kept.response && kept.input);
    srv_response_store_add(store, id, owner, &kept);
}

static bool has(srv_response_store *store, int number, const char *owner)
{
    char id[64];
    srv_kept_response kept;
    snprintf(id, sizeof id, "resp_%d", number);
    const bool found = srv_response_store_get(store, id, owner, &kept);
    if (found) {
        json_decref(kept.response);
        json_decref(kept.input);
    }
    return found;
}

static void the_oldest_responses_go_first(void **state)
{
    (void)state;
    srv_response_store *store = srv_response_store_open(NULL);
    assert_non_null(store);
    for (int i = 0; i < 1024; i++) {
        add(store, i, "", 10);
    }
    assert_true(has(store, 0, "")); /* used now */
    add(store, 1024, "", 10);
    assert_true(has(store, 0, "") && !has(store, 1, "") && has(store, 2, ""));
    add(store, 1025, "", 15 << 20); /* four times as much in memory */
    assert_true(has(store, 1025, ""));
    add(store, 1026, "", 2 << 20);
    assert_true(!has(store, 1025, "") && has(store, 1026, ""));
    srv_response_store_close(store);
}

static void a_response_that_is_too_large_displaces_no_others(void **state)
{
    (void)state;
    srv_response_store *store = srv_response_store_open(NULL);
    add(store, 1, "anna", 10);
    add(store, 2, "bert", 1 << 30); /* more than all may have */
    assert_true(has(store, 1, "anna") && !has(store, 2, "bert"));
    srv_response_store_close(store);
    store = srv_response_store_open(folder);
    add(store, 1, "anna", 10);
    add(store, 2, "bert", 1 << 30);
    json_t *item = srv_response_store_item(store, "msg_1", "anna"); /* in memory, not read again */
    assert_non_null(item);
    json_decref(item);
    assert_true(has(store, 2, "bert") && has(store, 2, "bert"));
    srv_response_store_close(store);
    store = srv_response_store_open(folder);
    assert_true(has(store, 1, "anna") && has(store, 2, "bert"));
    srv_response_store_close(store);
}

static void responses_that_leave_memory_are_on_disk(void **state)
{
    enum { COUNT = 30 };
    (void)state;
    srv_response_store *store = srv_response_store_open(folder);
    for (int i = 0; i < COUNT; i++) { /* eight of them fill the memory */
        add(store, i, "anna", 2 << 20);
    }
    for (int i = 0; i < COUNT; i++) {
        assert_true(has(store, i, "anna"));
    }
    srv_response_store_close(store);
    store = srv_response_store_open(folder);
    for (int i = 0; i < COUNT; i++) {
        assert_true(has(store, i, "anna"));
    }
    srv_response_store_close(store);
}

static void responses_are_found_by_their_owner_alone(void **state)
{
    (void)state;
    srv_response_store *store = srv_response_store_open(NULL);
    add(store, 1, "anna", 10);
    assert_true(has(store, 1, "anna") && !has(store, 1, "bert") && !has(store, 1, ""));
    json_t *item = srv_response_store_item(store, "msg_1", "anna");
    assert_non_null(item);
    json_decref(item);
    assert_null(srv_response_store_item(store, "msg_1", "bert"));
    assert_null(srv_response_store_item(store, "msg_2", "anna"));
    assert_false(srv_response_store_remove(store, "resp_1", "bert"));
    assert_true(srv_response_store_remove(store, "resp_1", "anna"));
    assert_false(srv_response_store_remove(store, "resp_1", "anna"));
    assert_false(has(store, 1, "anna"));
    srv_response_store_close(store);
}

static void responses_survive_on_disk(void **state)
{
    (void)state;
    srv_response_store *store = srv_response_store_open(folder);
    for (int i = 0; i < 20; i++) {
        add(store, i, "anna", 10);
    }
    assert_true(srv_response_store_remove(store, "resp_7", "anna"));
    srv_response_store_close(store);
    store = srv_response_store_open(folder);
    assert_true(has(store, 0, "anna") && has(store, 19, "anna") && !has(store, 7, "anna") &&
                !has(store, 0, ""));
    srv_kept_response kept;
    static const char *const wrong[] = {"", ".", "../resp_0", "resp_0.json", "resp_0/", "resp_20"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_false(srv_response_store_get(store, wrong[i], "anna", &kept));
        assert_false(srv_response_store_remove(store, wrong[i], "anna"));
    }
    assert_true(srv_response_store_remove(store, "resp_0", "anna"));
    srv_response_store_close(store);
    store = srv_response_store_open(folder);
    assert_false(has(store, 0, "anna"));
    srv_response_store_close(store);
}

static void *use(void *user)
{
    srv_response_store *store = user;
    for (int i = 0; i < 300; i++) {
        char id[64];
        add(store, i % 40, "anna", 1 << 18);
        has(store, (i + 17) % 40, "anna");
        json_decref(srv_response_store_item(store, "msg_3", "anna"));
        snprintf(id, sizeof id, "resp_%d", (i + 5) % 40);
        srv_response_store_remove(store, id, "anna");
    }
    return NULL;
}

static void several_threads_keep_responses(void **state)
{
    pthread_t threads[3];
    (void)state;
    srv_response_store *store = srv_response_store_open(folder);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, use, store), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    srv_response_store_close(store);
}

static void *get_until_it_is_gone(void *user)
{
    for (int i = 0; i < 20;) {
        i += !has(user, i, "anna");
    }
    return NULL;
}

static void what_was_deleted_does_not_come_back(void **state)
{
    pthread_t reader;
    (void)state;
    srv_response_store *store = srv_response_store_open(folder);
    for (int i = 0; i < 20; i++) {
        add(store, i, "anna", 10);
    }
    srv_response_store_close(store);
    store = srv_response_store_open(folder); /* they are in files alone */
    assert_int_equal(pthread_create(&reader, NULL, get_until_it_is_gone, store), 0);
    for (int i = 0; i < 20; i++) {
        char id[64];
        snprintf(id, sizeof id, "resp_%d", i);
        assert_true(srv_response_store_remove(store, id, "anna"));
    }
    pthread_join(reader, NULL);
    for (int i = 0; i < 20; i++) {
        assert_false(has(store, i, "anna"));
    }
    srv_response_store_close(store);
}

/* ---- Owners ---- */

static srv_key_owner owner_of(const srv_keys_options *o, const char *key)
{
    srv_keys *keys;
    srv_key_owner owner;
    mo_error err;
    check_status(srv_keys_open(o, &keys, &err), &err);
    assert_true(srv_keys_check(keys, key, &owner));
    srv_keys_close(keys);
    return owner;
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* Who owns what is kept: a key's name where it has one, else the key, whatever its place; with a salt that stays in the directory. */
static void owners_are_names_or_keys(void **state)
{
    char path[300], salted[300], other[300];
    (void)state;
    mkdir(folder, 0700);
    snprintf(path, sizeof path, "%s/keys", folder);
    snprintf(salted, sizeof salted, "%s/salted", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    write_text(path, "for-carl\nfor-anna name=team\nfor-bert name=team priority=3 admin\nteam\n");
    const srv_keys_options file = {.path = path, .salt_directory = salted},
                           list = {.list = "for-bert,for-carl", .salt_directory = salted},
                           elsewhere = {.path = path, .salt_directory = other}, nowhere = {.path = path},
                           shared = {.path = path, .share_prefixes = true};
    const srv_key_owner anna = owner_of(&file, "for-anna"), bert = owner_of(&file, "for-bert"),
                        carl = owner_of(&file, "for-carl"), team = owner_of(&file, "team");
    assert_string_equal(anna.owner, bert.owner);
    assert_true(anna.caller.owner == bert.caller.owner && anna.caller.owner != carl.caller.owner);
    assert_string_not_equal(team.owner, anna.owner); /* a key is no name */
    assert_string_not_equal(carl.owner, team.owner);
    assert_true(!anna.caller.admin && bert.caller.admin && bert.priority == 3 && !carl.caller.admin);
    assert_true(strlen(carl.owner) == 64 && !strstr(carl.owner, "carl"));
    assert_string_equal(owner_of(&file, "for-carl").owner, carl.owner); /* another process */
    assert_string_equal(owner_of(&list, "for-carl").owner, carl.owner); /* another place */
    assert_true(owner_of(&list, "for-carl").caller.admin);
    assert_string_not_equal(owner_of(&elsewhere, "for-carl").owner, carl.owner);
    assert_string_not_equal(owner_of(&nowhere, "for-carl").owner, owner_of(&nowhere, "for-carl").owner);
    assert_int_equal(owner_of(&shared, "for-anna").caller.owner, 0);
    assert_int_equal(owner_of(&shared, "for-carl").caller.owner, 0);
    assert_string_not_equal(owner_of(&shared, "for-carl").owner, "");
    const srv_key_owner nobody = owner_of(&(srv_keys_options){.list = NULL}, NULL);
    assert_string_equal(nobody.owner, "");
    assert_true(nobody.caller.owner == 0 && nobody.caller.admin);
}

/* What a file of keys says twice would change rights without a word; a byte order mark is no part of the first key. */
static void files_of_keys_say_things_once(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {{"of-anna\n# one more\ndup name=a\ndup admin\n", "line 4: this key was given before"},
               {"k name=x name=y\n", "line 1: name is given twice"},
               {"a\nk priority=1 admin priority=2\n", "line 2: priority is given twice"},
               {"a\n\nk bogus\n", "line 3: a key can only be followed by"}};
    char path[300];
    mo_error err;
    srv_keys *keys;
    (void)state;
    mkdir(folder, 0700);
    snprintf(path, sizeof path, "%s/keys", folder);
    const srv_keys_options o = {.path = path};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_text(path, bad[i].text);
        assert_int_equal(srv_keys_open(&o, &keys, &err), MO_EINVAL);
        check_says(&err, bad[i].says);
        assert_null(strstr(err.detail, "dup"));
    }
    write_text(path, "\xef\xbb\xbfof-anna admin\nof-bert\n");
    assert_true(owner_of(&o, "of-anna").caller.admin);
    write_text(path, "\xef\xbb\xbf# a comment\nof-bert\n");
    assert_false(owner_of(&o, "of-bert").caller.admin);
}

/* ---- Traces ---- */

static json_t *read_trace(srv_traces *traces, const char *id)
{
    srv_writer w = {0};
    srv_trace *t = srv_traces_find(traces, id, "");
    assert_non_null(t);
    srv_trace_write(t, NULL, &w);
    srv_trace_release(t);
    assert_false(w.failed);
    json_t *root = json_loadb(w.data, w.length, 0, NULL);
    srv_writer_free(&w);
    assert_non_null(root);
    return root;
}

static void traces_are_bounded(void **state)
{
    mo_model *model;
    mo_error err;
    mo_model_options o = mo_model_options_default();
    (void)state;
    o.context = 64;
    o.device = "none";
    o.learning.profile = "off";
    check_status(mo_model_open(MO_TEST_MODEL, &o, &model, &err), &err);
    srv_traces *traces = srv_traces_open();
    srv_trace *t = srv_traces_begin(traces, "a", "", "pebble", model);
    assert_non_null(t);
    const int32_t ids[] = {63, 0, 5, 6, 7, 8};
    for (int position = 100; position < 100 + 2100; position++) {
        srv_trace_note(t, 0, position, position, ids, 6);
        srv_trace_note(t, 6, position, position, ids, 6);
    }
    json_t *root = read_trace(traces, "a");
    assert_int_equal(json_array_size(json_object_get(root, "routes")), 2048);
    assert_true(json_is_true(json_object_get(root, "truncated")));
    assert_false(json_is_true(json_object_get(root, "ended")));
    assert_int_equal(json_integer_value(json_object_get(root, "position")), 100);
    const json_t *token = json_array_get(json_object_get(root, "routes"), 7);
    assert_int_equal(json_array_size(token), 7);
    assert_int_equal(json_integer_value(json_array_get(json_array_get(token, 6), 0)), 63);
    assert_int_equal(json_array_size(json_array_get(token, 3)), 0); /* nobody told */
    json_decref(root);
    srv_trace_note(t, 99, 101, 1, ids, 6);
    srv_trace_note(t, 0, 99, 1, ids, 6);
    srv_trace_note(t, 0, 101, 1, ids, 7);
    for (int i = 0; i < 32; i++) {
        char id[16];
        snprintf(id, sizeof id, "b%d", i);
        srv_trace_release(srv_traces_begin(traces, id, "", "pebble", model));
    }
    assert_null(srv_traces_find(traces, "a", ""));
    assert_null(srv_traces_find(traces, "b3", "anna"));
    json_decref(read_trace(traces, "b31"));
    srv_trace_end(t);
    srv_trace_release(t);
    srv_traces_close(traces);
    mo_model_close(model);
}

/* ---- Drafts of kept sessions ---- */

static int interrupted,
    tidied; /* so many of the next locks that are waited for; so many drafts then go before the lock */
static bool unlocked_went; /* a draft was removed while a writer could have locked it */

int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);
int __wrap_flock(int fd, int operation)
{
    char link[64], path[1024];
    if (operation & LOCK_NB) {
        return __real_flock(fd, operation);
    }
    if (interrupted > 0) {
        interrupted--;
        errno = EINTR;
        return -1;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = tidied > 0 ? readlink(link, path, sizeof path - 1) : -1;
    if (length > 0) {
        tidied--;
        path[length] = 0;
        assert_int_equal(unlink(path), 0);
    }
    return __real_flock(fd, operation);
}

int __real_unlinkat(int directory, const char *name, int flags);
int __wrap_unlinkat(int directory, const char *name, int flags);
int __wrap_unlinkat(int directory, const char *name, int flags)
{
    const int fd = strstr(name, ".unfinished") ? openat(directory, name, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        unlocked_went = unlocked_went || __real_flock(fd, LOCK_EX | LOCK_NB) == 0;
        close(fd);
    }
    return __real_unlinkat(directory, name, flags);
}

static void write_and_read(srv_cachedir *dir)
{
    static const int32_t tokens[] = {1, 2, 3};
    static const uint8_t state[] = "what was kept";
    char name[SRV_CACHEDIR_NAME];
    int64_t bytes;
    uint8_t *read = NULL;
    size_t size = 0;
    mo_error err;
    assert_int_equal(srv_cachedir_write(dir, tokens, 3, state, sizeof state, name, &bytes, &err), MO_OK);
    assert_int_equal(srv_cachedir_read(dir, name, tokens, 3, &read, &size, &err), MO_OK);
    assert_int_equal(size, sizeof state);
    assert_memory_equal(read, state, sizeof state);
    free(read);
    srv_cachedir_remove(dir, name);
}

/* Another server that starts tidies up; a file that has just been made and is not locked yet goes as well. */
static void a_session_is_kept_though_its_draft_was_tidied_away(void **state)
{
    srv_cachedir *dir;
    mo_error err;
    (void)state;
    assert_int_equal(srv_cachedir_open(folder, "key", 1 << 20, &dir, &err), MO_OK);
    interrupted = 2;
    tidied = 3;
    write_and_read(dir);
    assert_int_equal(interrupted, 0);
    assert_int_equal(tidied, 0);
    srv_cachedir_close(dir);
}

static void drafts_go_while_no_writer_can_lock_them(void **state)
{
    srv_cachedir *dir;
    mo_error err;
    char left[1024], held[1024];
    (void)state;
    snprintf(left, sizeof left, "%s", in_folder("0123456789abcdef-1-0.unfinished"));
    snprintf(held, sizeof held, "%s", in_folder("0123456789abcdef-1-1.unfinished"));
    close(open(left, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    const int fd = open(held, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(__real_flock(fd, LOCK_EX), 0);
    unlocked_went = false;
    assert_int_equal(srv_cachedir_open(folder, "key", 1 << 20, &dir, &err), MO_OK);
    assert_false(unlocked_went);
    assert_int_not_equal(access(left, F_OK), 0);
    assert_int_equal(access(held, F_OK), 0);
    write_and_read(dir);
    srv_cachedir_close(dir);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_oldest_responses_go_first),
        cmocka_unit_test_setup_teardown(a_response_that_is_too_large_displaces_no_others, folder_make,
                                        folder_remove),
        cmocka_unit_test_setup_teardown(responses_that_leave_memory_are_on_disk, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(what_was_deleted_does_not_come_back, folder_make, folder_remove),
        cmocka_unit_test(owners_are_names_or_keys),
        cmocka_unit_test(files_of_keys_say_things_once),
        cmocka_unit_test(responses_are_found_by_their_owner_alone),
        cmocka_unit_test_setup_teardown(responses_survive_on_disk, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(several_threads_keep_responses, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(a_session_is_kept_though_its_draft_was_tidied_away, folder_make,
                                        folder_remove),
        cmocka_unit_test_setup_teardown(drafts_go_while_no_writer_can_lock_them, folder_make, folder_remove),
        cmocka_unit_test(traces_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
