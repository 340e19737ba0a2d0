/* Nothing is computed twice: turns of conversations, common beginnings, prompts that come together, for attention, windowed and
 * recurrent families, also after a restart, after being killed, with damaged files and a full disk. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/model.h"
#include "check.h"
#include "device/sim/sim.h"
#include "folder.h"
#include "server/scheduler/cachedir.h"
#include "server/scheduler/engine.h"
#include "server/scheduler/kept.h"
#include "server/scheduler/prefix.h"
#include "server/scheduler/slot_file.h"
#include "server_case.h"

static const srv_caller admin = {.admin = true};

/* The conversation so far, and what the user says next. */
static int next_turn(int32_t *tokens, int count, const client *c, int64_t vocab, int number)
{
    memcpy(tokens + count, c->tokens[0], sizeof *tokens * (size_t)c->count[0]);
    prompt_of(vocab, 0, 0, number, 12, tokens + count + c->count[0]);
    return count + c->count[0] + 12;
}

static void a_second_turn_computes_what_is_new(void **state)
{
    (void)state;
    for (int f = 0; f < 3; f++) {
        for (int d = 0; d < 2; d++) {
            int32_t tokens[512], other[300], expected[64];
            mo_model *model = open_model(families[f], devices[d], 1);
            const int64_t vocab = vocab_of(model);
            srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 1});
            prompt_of(vocab, 3, 0, 3, 200, tokens);
            prompt_of(vocab, 9, 0, 9, 300, other);
            client *first = ask(e, tokens, 200, 10);
            assert_int_equal(first->usage.cached_tokens, 0);
            client *stranger = ask(e, other, 300, 3); /* takes the only sequence */
            assert_int_equal(stranger->usage.cached_tokens, 0);
            const int count = next_turn(tokens, 200, first, vocab, 77);
            client *second = ask(e, tokens, count, 10);
            assert_int_equal(second->usage.cached_tokens, 200 + first->count[0] - 1);
            const int made = alone(model, tokens, count, 10, expected);
            assert_int_equal(second->count[0], made);
            assert_memory_equal(second->tokens[0], expected, sizeof *expected * (size_t)made);
            srv_engine_close(e);
            free_client(first);
            free_client(stranger);
            free_client(second);
            mo_model_close(model);
        }
    }
}

enum { LONG = 8000, NOT_SO_LONG = SANITIZED_THREADS ? 300 : 1000 };

typedef struct conversation {
    int32_t *tokens;
    int count;
} conversation;

/* The next turn: asks, checks that all but what is new was found, and takes the answer into the conversation. */
static void take_turn(conversation *talk, srv_engine *e, int64_t vocab, int found, int number)
{
    srv_engine_report before, after;
    srv_engine_describe(e, &before);
    client *c = ask(e, talk->tokens, talk->count, 8);
    srv_engine_describe(e, &after);
    assert_int_equal(c->usage.cached_tokens, found);
    assert_int_equal(after.prompt_tokens - before.prompt_tokens, (uint64_t)(talk->count - found));
    talk->count = next_turn(talk->tokens, talk->count, c, vocab, number);
    free_client(c);
}

/* Many tokens, somebody else in between who takes the only sequence, then a restart of all: each turn computes what is new. */
static void turns_of_a_long_conversation(const char *path, const char *device, int length,
                                         const char *directory)
{
    enum { NEW = 12, OTHERS = 300 };
    int32_t other[OTHERS], expected[8];
    conversation talk = {malloc(sizeof(int32_t) * (size_t)(length + 200)), length};
    mo_model_options o = model_settings(device, 1);
    o.context = length + 200;
    o.batch = 256;
    mo_model *model = open_model_with(path, &o);
    const int64_t vocab = vocab_of(model);
    const srv_engine_options with = {.parallel = 1, .cache_dir = directory};
    srv_engine *e = open_engine(model, with);
    prompt_of(vocab, 3, 0, 3, length, talk.tokens);
    prompt_of(vocab, 9, 0, 9, OTHERS, other);
    take_turn(&talk, e, vocab, 0, 77);
    for (int turn = 1; turn < 4; turn++) {
        free_client(ask(e, other, OTHERS, 3));
        if (turn == 2) {
            srv_engine_close(e);
            mo_model_close(model);
            model = open_model_with(path, &o);
            e = open_engine(model, with);
        }
        if (turn < 3) { /* the last token that was sampled had not been fed */
            take_turn(&talk, e, vocab, talk.count - NEW - 1, 77 + turn);
        }
    }
    client *last = ask(e, talk.tokens, talk.count, 8);
    assert_int_equal(last->usage.cached_tokens, talk.count - NEW - 1);
    if (length < LONG) { /* it would be most of the time */
        const int made = alone(model, talk.tokens, talk.count, 8, expected);
        assert_int_equal(last->count[0], made);
        assert_memory_equal(last->tokens[0], expected, sizeof *expected * (size_t)made);
    }
    free_client(last);
    srv_engine_close(e);
    mo_model_close(model);
    free(talk.tokens);
}

static const char *const long_names[] = {"long0", "long1", "long2", "long3", "long4", "long5"};

static void long_conversations(void **state)
{
    (void)state;
    for (int f = 0; f < 3; f++) {
        turns_of_a_long_conversation(families[f], "none", SANITIZED ? NOT_SO_LONG : LONG,
                                     in_folder(long_names[f]));
    }
}

static void long_conversations_on_a_device(void **state)
{
    (void)state;
    for (int f = 0; f < 3; f++) {
        turns_of_a_long_conversation(families[f], "sim", NOT_SO_LONG, in_folder(long_names[f + 3]));
    }
}

/* The answer comes back changed, as without its thoughts: what was before it is still there. */
static void a_changed_answer_costs_only_itself(void **state)
{
    (void)state;
    for (int f = 0; f < 3; f++) {
        int32_t tokens[512];
        mo_model *model = open_model(families[f], "none", 1);
        const int64_t vocab = vocab_of(model);
        srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 1});
        prompt_of(vocab, 3, 0, 3, 200, tokens);
        client *first = ask(e, tokens, 200, 20);
        const int count = next_turn(tokens, 200, first, vocab, 77);
        tokens[200] = (tokens[200] + 1) % (int32_t)vocab;
        client *second = ask(e, tokens, count, 4);
        assert_int_equal(second->usage.cached_tokens, 200);
        srv_engine_close(e);
        free_client(first);
        free_client(second);
        mo_model_close(model);
    }
}

static void prompts_that_come_together_are_computed_once(void **state)
{
    (void)state;
    for (int f = 0; f < 3; f++) {
        int32_t tokens[400];
        enum { TOGETHER = 4 };
        client *clients[TOGETHER];
        mo_model *model = open_model(families[f], "none", TOGETHER);
        srv_engine *e = open_engine(model, (srv_engine_options){.parallel = TOGETHER});
        prompt_of(vocab_of(model), 3, 0, 3, 400, tokens);
        for (int i = 0; i < TOGETHER; i++) {
            clients[i] = new_client();
            srv_job_options o = job_of(clients[i], tokens, 400, 5);
            submit(e, clients[i], &o);
        }
        for (int i = 0; i < TOGETHER; i++) {
            wait_last(clients[i]);
            assert_memory_equal(clients[i]->tokens[0], clients[0]->tokens[0], 5 * sizeof(int32_t));
        }
        srv_engine_report report;
        srv_engine_describe(e, &report);
        assert_true(report.prompt_tokens <= 400 + TOGETHER);
        srv_engine_close(e);
        for (int i = 0; i < TOGETHER; i++) {
            free_client(clients[i]);
        }
        mo_model_close(model);
    }
}

static void hold_here(client *c)
{
    srv_job_pause(c->engine, c->job);
}

static int64_t session_bytes(mo_model *model)
{
    mo_kept_report r;
    mo_model_kept(model, &r, sizeof r);
    return r.session_bytes;
}

/* Sixteen clients with the same long beginning: it is computed once and held once. As each writes on, it takes the block that it
 * writes into, of 128 positions in every layer, and nothing else. */
static void sixteen_hold_what_they_share_once(const char *device, int length)
{
    enum { SIXTEEN = 16, BLOCK = 128 };
    int32_t *tokens = malloc(sizeof *tokens * (size_t)(length + 1));
    client *clients[SIXTEEN];
    mo_model_options o = model_settings(device, SIXTEEN);
    o.context = length + BLOCK;
    o.batch = 256;
    o.positions = o.context; /* not sixteen times as much */
    mo_model *model = open_model_with(families[0], &o);
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = SIXTEEN});
    srv_engine_report report;
    int64_t one = 0;
    prompt_of(vocab_of(model), 3, 0, 3, length, tokens);
    for (int i = 0; i < SIXTEEN; i++) {
        clients[i] = new_client();
        clients[i]->act = hold_here; /* its first token is there */
        clients[i]->act_after = 2;
        tokens[length] = i + 1; /* what each says by itself */
        srv_job_options job = job_of(clients[i], tokens, length + 1, 40);
        job.generation.ignore_end = true;
        submit(e, clients[i], &job);
        wait_events(clients[i], 2);
        one = i ? one : session_bytes(model);
    }
    srv_engine_describe(e, &report);
    assert_int_equal(report.busy, SIXTEEN);
    assert_int_equal(report.prompt_tokens, (uint64_t)length + SIXTEEN);
    const int64_t blocks = (length + BLOCK - 1) / BLOCK;
    assert_true(session_bytes(model) <= one + (SIXTEEN - 1) * (one / blocks));
    srv_engine_close(e);
    for (int i = 0; i < SIXTEEN; i++) {
        assert_int_equal(clients[i]->status, MO_ECANCELLED);
        free_client(clients[i]);
    }
    mo_model_close(model);
    free(tokens);
}

static void sixteen_clients_hold_what_they_share_once(void **state)
{
    (void)state;
    sixteen_hold_what_they_share_once("none", SANITIZED ? NOT_SO_LONG : LONG);
    sixteen_hold_what_they_share_once("sim", NOT_SO_LONG);
}

static int64_t bytes_of_all(mo_model *model)
{
    mo_kept_report r;
    mo_model_kept(model, &r, sizeof r);
    return r.session_bytes + r.snapshot_bytes + r.spilled_bytes + r.row_bytes;
}

/* Sixteen conversations with the same long beginning, one after the other in the only sequence: what is kept of them takes little
 * more than one, and each goes on from where it was. */
static void sixteen_are_kept_beside_each_other(const char *path, const char *device, int length)
{
    enum { SIXTEEN = 16, SAID = 50 };
    int32_t *tokens[SIXTEEN];
    mo_model_options o = model_settings(device, 1);
    o.context = length + 256;
    o.batch = 256;
    o.kept_bytes = o.kept_device_bytes = 64 << 20;
    mo_model *model = open_model_with(path, &o);
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 1, .cache_bytes = 64 << 20});
    int64_t one = 0;
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < SIXTEEN; i++) {
            if (turn == 0) {
                tokens[i] = malloc(sizeof *tokens[i] * (size_t)(length + 2 + SAID));
                prompt_of(vocab_of(model), 3, 0, 3, length, tokens[i]);
                tokens[i][length] = i + 1; /* what each says by itself */
            }
            client *c = new_client();
            srv_job_options job = job_of(c, tokens[i], turn ? length + 2 + SAID : length + 1, SAID);
            job.generation.ignore_end = true;
            submit(e, c, &job);
            wait_last(c);
            assert_int_equal(c->status, MO_OK);
            /* The last token that was said had not been fed. */
            assert_int_equal(c->usage.cached_tokens, turn ? length + SAID : i ? length : 0);
            memcpy(tokens[i] + length + 1, c->tokens[0], SAID * sizeof(int32_t));
            tokens[i][length + 1 + SAID] = 1;
            free_client(c);
            one = turn || i ? one : bytes_of_all(model);
        }
        if (length >= LONG) { /* with 50 tokens of its own each, then 102 */
            assert_true((double)bytes_of_all(model) <= (turn ? 1.25 : 1.2) * (double)one);
        }
    }
    srv_engine_close(e);
    mo_model_close(model);
    for (int i = 0; i < SIXTEEN; i++) {
        free(tokens[i]);
    }
}

static void sixteen_conversations_are_kept_beside_each_other(void **state)
{
    (void)state;
    sixteen_are_kept_beside_each_other(families[0], "none", SANITIZED ? NOT_SO_LONG : LONG);
    sixteen_are_kept_beside_each_other(families[0], "sim", NOT_SO_LONG);
}

/* Conversations with the same beginning that take turns in the only sequence, each as long as the other: none is lost although the next
 * one's beginning is found elsewhere. */
static void conversations_that_take_turns_are_all_kept(void **state)
{
    (void)state;
    enum { TALKS = 3, LENGTH = 200, SAID = 50 };
    int32_t tokens[TALKS][LENGTH + 3 * SAID];
    int count[TALKS];
    mo_model *model = open_model(families[0], "none", 1);
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 1});
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < TALKS; i++) {
            if (turn == 0) {
                prompt_of(vocab_of(model), 3, 0, 3, LENGTH, tokens[i]);
                tokens[i][LENGTH] = i + 1; /* what each says by itself */
                count[i] = LENGTH + 1;
            }
            client *c = new_client();
            srv_job_options job = job_of(c, tokens[i], count[i], SAID);
            job.generation.ignore_end = true;
            submit(e, c, &job);
            wait_last(c);
            /* The last token that was said had not been fed. */
            assert_int_equal(c->usage.cached_tokens, turn ? LENGTH + SAID : i ? LENGTH : 0);
            memcpy(tokens[i] + count[i], c->tokens[0], SAID * sizeof(int32_t));
            tokens[i][count[i] + SAID] = 1;
            count[i] += SAID + 1;
            free_client(c);
        }
    }
    srv_engine_close(e);
    mo_model_close(model);
}

/* A common beginning, as a system prompt: the third client finds it whatever the family. */
static void a_common_beginning_is_kept(void **state)
{
    (void)state;
    for (int f = 0; f < 3; f++) {
        int32_t tokens[300];
        mo_model *model = open_model(families[f], "none", 1);
        const int64_t vocab = vocab_of(model);
        srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 1});
        for (int i = 0; i < 3; i++) {
            prompt_of(vocab, 3, 200, 50 + i, 260, tokens);
            client *c = ask(e, tokens, 260, 4);
            if (i == 2) {
                assert_int_equal(c->usage.cached_tokens, 200);
            }
            free_client(c);
        }
        srv_engine_close(e);
        mo_model_close(model);
    }
}

/* The tokens that were found of a prompt of an owner's. */
static int64_t found_of(srv_engine *e, uint64_t owner, const int32_t *tokens, int count)
{
    client *c = new_client();
    srv_job_options o = job_of(c, tokens, count, 4);
    o.owner = owner;
    submit(e, c, &o);
    wait_last(c);
    assert_int_equal(c->last, SRV_DONE);
    const int64_t found = c->usage.cached_tokens;
    free_client(c);
    return found;
}

/* All of a prompt of 200 tokens, or none. */
static bool is_found(int64_t found, bool expected)
{
    return expected ? found >= 199 : found == 0;
}

/* One client's prompt is not found by another, in a sequence, in memory or on disk, also after a restart; what the server itself computed
 * (owner 0) is found by all, whoever used it first. */
static void clients_find_what_is_their_own(void **state)
{
    enum { ANNA = 0x1234567890abcdef, BERT = 0x1234567890abcd11 };
    (void)state;
    for (int f = 0; f < 3; f++) {
        for (int parallel = 1; parallel <= 3; parallel += 2) {
            int32_t warm[260], tokens[200];
            char directory[256];
            snprintf(directory, sizeof directory, "%s/own%d-%d", folder, f, parallel);
            mo_model *model = open_model(families[f], "none", parallel);
            const int64_t vocab = vocab_of(model);
            const srv_engine_options o = {.parallel = parallel, .cache_dir = directory};
            prompt_of(vocab, 3, 0, 3, 260, warm);
            prompt_of(vocab, 5, 0, 5, 200, tokens);
            srv_engine *e = open_engine(model, o);
            assert_int_equal(found_of(e, 0, warm, 200), 0);
            for (int restarts = 0; restarts < 2; restarts++) {
                assert_true(found_of(e, ANNA, warm, 220) >= 199);
                assert_true(found_of(e, BERT, warm, 240) >= 199);
                assert_true(found_of(e, BERT, warm, 260) >= (f < 2 ? 240 : 199));
                assert_true(is_found(found_of(e, ANNA, tokens, 200), restarts > 0));
                assert_true(is_found(found_of(e, BERT, tokens, 200), restarts > 0));
                assert_true(is_found(found_of(e, 77, tokens, 200), restarts > 0));
                assert_true(is_found(found_of(e, ANNA, tokens, 200), true));
                assert_true(is_found(found_of(e, BERT, tokens, 200), true));
                srv_engine_close(e);
                e = open_engine(model, o);
            }
            /* What is listed and dropped is the client's own. */
            srv_kept_report list[32];
            const srv_caller anna = {.owner = ANNA}, other = {.owner = 99};
            const int all = srv_engine_kept(e, &admin, list, 32), own = srv_engine_kept(e, &anna, list, 32),
                      shared = srv_engine_kept(e, &other, list, 32);
            assert_true(shared >= 1 && own > shared && all > own);
            assert_int_equal(srv_engine_drop_kept(e, NULL, &other), 0);
            assert_int_equal(srv_engine_drop_kept(e, list[0].id, &anna), 0); /* what is for all */
            assert_int_equal(srv_engine_drop_kept(e, NULL, &anna), own - shared);
            assert_int_equal(found_of(e, ANNA, tokens, 200), 0);
            assert_true(is_found(found_of(e, BERT, tokens, 200), true));
            srv_engine_close(e);
            mo_model_close(model);
        }
    }
}

static void kept_sessions_outlive_the_process(void **state)
{
    (void)state;
    for (int f = 0; f < 3; f++) {
        int32_t tokens[512], expected[64];
        char directory[256];
        snprintf(directory, sizeof directory, "%s/kept%d", folder, f);
        mo_model *model = open_model(families[f], "none", 2);
        const int64_t vocab = vocab_of(model);
        const srv_engine_options o = {.parallel = 2, .cache_dir = directory};
        srv_engine *e = open_engine(model, o);
        prompt_of(vocab, 3, 0, 3, 200, tokens);
        client *first = ask(e, tokens, 200, 10);
        srv_engine_close(e);
        e = open_engine(model, o);
        srv_engine_report report;
        srv_engine_describe(e, &report);
        assert_true(report.disk_kept >= 1);
        const int count = next_turn(tokens, 200, first, vocab, 77);
        client *second = ask(e, tokens, count, 10);
        assert_int_equal(second->usage.cached_tokens, 200 + first->count[0] - 1);
        const int made = alone(model, tokens, count, 10, expected);
        assert_memory_equal(second->tokens[0], expected, sizeof *expected * (size_t)made);
        srv_engine_close(e);
        free_client(first);
        free_client(second);
        mo_model_close(model);
    }
}

/* What a process that is killed had reported as kept is there, whole, and whatever else there is does no harm. */
static void a_killed_process_loses_no_kept_session(void **state)
{
    (void)state;
    char directory[256];
    snprintf(directory, sizeof directory, "%s/killed", folder);
    const srv_engine_options o = {.parallel = 1, .cache_dir = directory};
    for (int round = 0; round < 3; round++) {
        int pipes[2];
        assert_int_equal(pipe(pipes), 0);
        const pid_t child = fork();
        if (child == 0) {
            mo_model *model = open_model(families[round], "none", 1);
            srv_engine *e = open_engine(model, o);
            mo_model_info info;
            uint64_t files = 0;
            mo_model_describe(model, &info, sizeof info);
            for (int i = 0;; i++) {
                int32_t tokens[200];
                srv_engine_report report;
                prompt_of(vocab_of(model), i + 20, 200, 1, 200, tokens);
                client *c = ask(e, tokens, 200, 6);
                /* The prompt's end is kept too, where it is another one and the answer's end does not serve. */
                files += info.rewinds || c->count[0] == 1 ? 1 : 2;
                free_client(c);
                do {
                    usleep(1000);
                    srv_engine_describe(e, &report);
                } while (report.disk_kept < files);
                if (write(pipes[1], &i, sizeof i) != sizeof i) {
                    _exit(1);
                }
            }
        }
        close(pipes[1]);
        int last = -1;
        while (last < 2 && read(pipes[0], &last, sizeof last) == sizeof last) {
        }
        assert_int_equal(last, 2);
        usleep(700 * (useconds_t)round);
        kill(child, SIGKILL);
        while (read(pipes[0], &last, sizeof last) == sizeof last) { /* reported before it died */
        }
        close(pipes[0]);
        waitpid(child, NULL, 0);
        mo_model *model = open_model(families[round], "none", 1);
        srv_engine *e = open_engine(model, o);
        for (int i = 0; i <= last; i++) {
            int32_t tokens[200], expected[8];
            prompt_of(vocab_of(model), i + 20, 200, 1, 200, tokens);
            client *c = ask(e, tokens, 200, 6);
            assert_true(c->usage.cached_tokens >= 199);
            assert_int_equal(c->count[0], alone(model, tokens, 200, 6, expected));
            assert_memory_equal(c->tokens[0], expected, sizeof *expected * (size_t)c->count[0]);
            free_client(c);
        }
        srv_engine_close(e);
        mo_model_close(model);
    }
}

/* Every byte of a kept session counts: what is damaged is computed again. */
static void damaged_sessions_are_computed_again(void **state)
{
    (void)state;
    char directory[256], path[1024];
    snprintf(directory, sizeof directory, "%s/damaged", folder);
    mo_model *model = open_model(families[0], "none", 1);
    const srv_engine_options o = {.parallel = 1, .cache_dir = directory};
    int32_t tokens[200], expected[8];
    prompt_of(vocab_of(model), 3, 0, 3, 200, tokens);
    alone(model, tokens, 200, 6, expected);
    for (int damage = 0; damage < 6; damage++) {
        srv_engine *e = open_engine(model, o);
        client *c = ask(e, tokens, 200, 6);
        assert_int_equal(c->usage.cached_tokens, 0);
        assert_memory_equal(c->tokens[0], expected, sizeof *expected * (size_t)c->count[0]);
        free_client(c);
        srv_engine_close(e);
        DIR *d = opendir(directory);
        int files = 0;
        for (const struct dirent *f; (f = readdir(d));) {
            if (!strstr(f->d_name, ".session")) {
                continue;
            }
            struct stat info;
            files++;
            snprintf(path, sizeof path, "%s/%s", directory, f->d_name);
            assert_int_equal(stat(path, &info), 0);
            if (damage == 5) {
                assert_int_equal(truncate(path, info.st_size - 1), 0);
                continue;
            }
            FILE *file = fopen(path, "r+b");
            const long at[] = {0, 20, 60, 400, info.st_size - 1}; /* magic, sizes, key, tokens, state */
            fseek(file, at[damage], SEEK_SET);
            const int byte = fgetc(file);
            fseek(file, at[damage], SEEK_SET);
            fputc(byte ^ 0x11, file);
            fclose(file);
        }
        closedir(d);
        assert_true(files > 0);
    }
    mo_model_close(model);
}

/* What was kept on a device that is lost cannot be restored: it is computed again, in pieces like any prompt, and nobody is told
 * that it was found. */
static void what_cannot_be_restored_is_not_reported_as_cached(void **state)
{
    (void)state;
    int32_t tokens[2][300], expected[8];
    mo_model *model = open_model(families[0], "sim", 1);
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 1});
    for (int i = 0; i < 2; i++) {
        prompt_of(vocab_of(model), 3 + i, 0, 3 + i, 300, tokens[i]);
        free_client(ask(e, tokens[i], 300, 3)); /* the second takes the only sequence */
    }
    mo_sim_arm(model->device, MO_SIM_LOST, 0);
    free_client(ask(e, tokens[1], 200, 3)); /* by the CPU, and known to be lost since */
    client *c = new_client();
    srv_job_options job = job_of(c, tokens[0], 300, 6);
    job.progress = true;
    submit(e, c, &job);
    wait_last(c);
    assert_int_equal(c->status, MO_OK);
    assert_int_equal(c->told_cached, 0);
    assert_int_equal(c->usage.cached_tokens, 0);
    assert_true(c->progress >= 300 / 64);
    srv_engine_close(e);
    mo_model_close(model);
    model = open_model(families[0], "none", 1);
    assert_int_equal(c->count[0], alone(model, tokens[0], 300, 6, expected));
    assert_memory_equal(c->tokens[0], expected, sizeof *expected * (size_t)c->count[0]);
    free_client(c);
    mo_model_close(model);
}

/* A kept session is longer than a sequence is after the restart: what a prompt has in common with it is found all the same. */
static void sessions_that_are_too_long_now_serve_their_beginnings(void **state)
{
    (void)state;
    int32_t tokens[400], expected[8];
    const srv_engine_options o = {.parallel = 1, .cache_dir = in_folder("longer")};
    mo_model_options settings = model_settings("none", 1);
    mo_model *model = open_model_with(families[0], &settings);
    srv_engine *e = open_engine(model, o);
    prompt_of(vocab_of(model), 3, 0, 3, 400, tokens);
    free_client(ask(e, tokens, 400, 3));
    srv_engine_close(e);
    mo_model_close(model);
    settings.context = 256;
    model = open_model_with(families[0], &settings);
    e = open_engine(model, o);
    prompt_of(vocab_of(model), 5, 0, 5, 12, tokens + 200);
    client *c = ask(e, tokens, 212, 6);
    assert_int_equal(c->told_cached, 200);
    assert_int_equal(c->usage.cached_tokens, 200);
    assert_int_equal(c->count[0], alone(model, tokens, 212, 6, expected));
    assert_memory_equal(c->tokens[0], expected, sizeof *expected * (size_t)c->count[0]);
    free_client(c);
    srv_engine_close(e);
    mo_model_close(model);
}

static void a_disk_that_is_full_costs_only_the_file(void **state)
{
    (void)state;
    char directory[256];
    struct rlimit before, small = {.rlim_cur = 8192};
    snprintf(directory, sizeof directory, "%s/full", folder);
    mo_model *model = open_model(families[0], "none", 1);
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 1, .cache_dir = directory});
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int32_t tokens[200];
    srv_engine_report report;
    prompt_of(vocab_of(model), 3, 0, 3, 200, tokens);
    client *c = ask(e, tokens, 200, 6);
    do {
        usleep(1000);
        srv_engine_describe(e, &report);
    } while (!report.disk_failures);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(report.disk_kept, 0);
    free_client(c);
    c = ask(e, tokens, 200, 6); /* it is kept in memory all the same */
    assert_true(c->usage.cached_tokens >= 199);
    free_client(c);
    srv_engine_close(e);
    mo_model_close(model);
}

static void without_the_cache_everything_is_computed(void **state)
{
    (void)state;
    int32_t tokens[200];
    mo_model *model = open_model(families[0], "none", 2);
    prompt_of(vocab_of(model), 3, 0, 3, 200, tokens);
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 2, .cache_bytes = -1});
    for (int i = 0; i < 2; i++) {
        client *c = ask(e, tokens, 200, 4);
        assert_int_equal(c->usage.cached_tokens, 0);
        free_client(c);
    }
    srv_engine_close(e);
    e = open_engine(model, (srv_engine_options){.parallel = 2});
    for (int i = 0; i < 2; i++) {
        client *c = new_client();
        srv_job_options o = job_of(c, tokens, 200, 4);
        o.no_cache = true;
        submit(e, c, &o);
        wait_last(c);
        assert_int_equal(c->usage.cached_tokens, 0);
        free_client(c);
    }
    srv_engine_close(e);
    mo_model_close(model);
}

static bool never_enough(void *user)
{
    (void)user;
    return false;
}

static int64_t snapshot_bytes(mo_model *model)
{
    mo_kept_report r;
    mo_model_kept(model, &r, sizeof r);
    return r.snapshot_bytes + r.spilled_bytes;
}

static mo_snapshot *snapshot_of(mo_session *session, const int32_t *tokens, int64_t count)
{
    mo_snapshot *snapshot = NULL;
    mo_error err = {0};
    const mo_feed f = {.size = sizeof f, .session = session, .tokens = tokens, .count = count};
    check_status(mo_session_feed(&f, 1, &err), &err);
    check_status(mo_snapshot_open(session, &snapshot, &err), &err);
    return snapshot;
}

/* What was found stays until it is returned, though the writer or a client drops it from the cache. */
static void what_is_lent_is_not_closed(void **state)
{
    (void)state;
    int32_t tokens[200];
    mo_error err = {0};
    mo_session *session = NULL;
    srv_prefix *p = NULL;
    mo_model *model = open_model(families[0], "none", 2);
    check_status(mo_session_open(model, NULL, &session, &err), &err);
    check_status(srv_prefix_open(&(srv_prefix_options){.rewinds = true}, &p, &err), &err);
    prompt_of(vocab_of(model), 5, 0, 5, 200, tokens);
    const srv_prefix_key key = {0, tokens, 100, 0}, longer = {0, tokens, 200, 0};
    int64_t usable;
    srv_prefix_keep(p, &key, snapshot_of(session, tokens, 100));
    const mo_snapshot *found = srv_prefix_find(p, &longer, &usable);
    assert_true(found && usable == 100);
    srv_prefix_keep(p, &longer, snapshot_of(session, tokens, 200)); /* serves the shorter one as well */
    srv_prefix_drop(p, 0, &admin);
    srv_prefix_make_room(p, never_enough, NULL);
    assert_true(snapshot_bytes(model) > 0);
    check_status(mo_session_restore(session, found, -1, &err), &err);
    assert_int_equal(mo_session_length(session), 100);
    srv_prefix_return(p);
    srv_prefix_return(p);
    assert_int_equal(snapshot_bytes(model), 0);
    srv_prefix_close(p);
    mo_session_close(session);
    mo_model_close(model);
}

/* ---- Reading from disk ---- */

/* Reads of a thread that has said so stand still until the gate opens, for ten seconds at most. */
static _Thread_local bool reads_are_held;
static atomic_bool gate_open, read_is_held, gate_gave_up;

ssize_t __real_read(int fd, void *to, size_t size);
ssize_t __wrap_read(int fd, void *to, size_t size);
ssize_t __wrap_read(int fd, void *to, size_t size)
{
    for (int i = 0; reads_are_held && !atomic_load(&gate_open); i++) {
        atomic_store(&read_is_held, true);
        if (i == 10000) {
            atomic_store(&gate_gave_up, true);
            break;
        }
        usleep(1000);
    }
    return __real_read(fd, to, size);
}

typedef struct search {
    srv_prefix *prefix;
    srv_prefix_key key;
    int64_t usable;
    bool found;
} search;

static void *search_held(void *arg)
{
    search *s = arg;
    reads_are_held = true;
    s->found = srv_prefix_find(s->prefix, &s->key, &s->usable) != NULL;
    return NULL;
}

/* Others use the cache while a session is read from disk, and may drop it meanwhile. */
static void the_cache_is_usable_while_a_session_is_read(void **state)
{
    (void)state;
    int32_t tokens[100];
    mo_error err = {0};
    mo_session *session = NULL;
    srv_prefix_options options = {
        .rewinds = true, .directory = in_folder("held"), .directory_bytes = (int64_t)1 << 30, .key = "one"};
    mo_model *model = open_model(families[0], "none", 2);
    options.model = model;
    check_status(mo_session_open(model, NULL, &session, &err), &err);
    prompt_of(vocab_of(model), 5, 0, 5, 100, tokens);
    search s = {.key = {0, tokens, 100}};
    for (int dropped = 0; dropped < 2; dropped++) {
        srv_prefix_entry entry;
        pthread_t thread;
        if (!dropped) { /* written when it is closed */
            check_status(srv_prefix_open(&options, &s.prefix, &err), &err);
            srv_prefix_keep(s.prefix, &s.key, snapshot_of(session, tokens, 100));
            srv_prefix_close(s.prefix);
        }
        check_status(srv_prefix_open(&options, &s.prefix, &err), &err);
        atomic_store(&gate_open, false);
        atomic_store(&read_is_held, false);
        assert_int_equal(pthread_create(&thread, NULL, search_held, &s), 0);
        while (!atomic_load(&read_is_held)) {
            usleep(1000);
        }
        const int listed = srv_prefix_list(s.prefix, &admin, &entry, 1);
        const int gone = dropped ? srv_prefix_drop(s.prefix, 0, &admin) : 0;
        atomic_store(&gate_open, true);
        pthread_join(thread, NULL);
        assert_false(atomic_load(&gate_gave_up));
        assert_int_equal(listed, 1);
        assert_int_equal(gone, dropped);
        assert_int_equal(s.found, !dropped);
        assert_int_equal(s.usable, dropped ? 0 : 100);
        assert_int_equal(srv_prefix_list(s.prefix, &admin, &entry, 1), !dropped);
        srv_prefix_return(s.prefix);
        srv_prefix_close(s.prefix);
    }
    mo_session_close(session);
    mo_model_close(model);
}

static bool after_the_first(void *user)
{
    return (*(int *)user)++ > 0;
}

static void a_lost_device_takes_no_session_that_is_in_ram(void **state)
{
    (void)state;
    int32_t tokens[2][100];
    mo_error err = {0};
    mo_session *session = NULL;
    srv_prefix *p = NULL;
    mo_model *model = open_model(families[0], "sim", 2);
    check_status(mo_session_open(model, NULL, &session, &err), &err);
    check_status(srv_prefix_open(&(srv_prefix_options){.rewinds = true}, &p, &err), &err);
    srv_prefix_key keys[2];
    for (int i = 0; i < 2; i++) { /* the first, on the device, is the oldest */
        prompt_of(vocab_of(model), 5 + i, 0, 5 + i, 100, tokens[i]);
        keys[i] = (srv_prefix_key){0, tokens[i], 100, 0};
        mo_snapshot *s = snapshot_of(session, tokens[i], 100);
        if (i == 1) {
            check_status(mo_snapshot_spill(s, &err), &err);
        }
        srv_prefix_keep(p, &keys[i], s);
    }
    mo_sim_arm(model->device, MO_SIM_LOST, 0);
    const mo_feed f = {.size = sizeof f, .session = session, .tokens = tokens[0], .count = 50};
    check_status(mo_session_feed(&f, 1, &err), &err); /* by the CPU */
    int asked = 0;
    assert_true(srv_prefix_make_room(p, after_the_first, &asked));
    assert_true(srv_prefix_has(p, &keys[1]) && !srv_prefix_has(p, &keys[0]));
    srv_prefix_close(p);
    mo_session_close(session);
    mo_model_close(model);
}

/* A slot's file whose tokens and saved state are not of one text, as a file that somebody put together. */
static void slot_files_that_contradict_themselves_are_refused(void **state)
{
    (void)state;
    char key[256];
    int32_t tokens[200];
    mo_error err = {0};
    mo_model *model = open_model(families[0], "none", 2);
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 1});
    prompt_of(vocab_of(model), 5, 0, 5, 60, tokens);
    free_client(ask(e, tokens, 60, 4));
    srv_slot_file_report report;
    check_status(srv_slot_save(e, 0, &admin, folder, "good", &report, &err), &err);
    srv_engine_key(e, true, key, sizeof key);
    srv_cachedir *dir;
    check_status(srv_cachedir_open(folder, key, INT64_MAX, &dir, &err), &err);
    int32_t *saved = NULL;
    int64_t count = 0, bytes;
    uint8_t *snapshot = NULL;
    size_t size = 0;
    check_status(srv_cachedir_read_as(dir, "good", &saved, &count, &snapshot, &size, &bytes, &err), &err);
    assert_int_equal(count, report.tokens);
    check_status(srv_cachedir_write_as(dir, "short", saved, count - 1, snapshot, size, &bytes, &err), &err);
    saved[count / 2] ^= 1;
    check_status(srv_cachedir_write_as(dir, "other", saved, count, snapshot, size, &bytes, &err), &err);
    assert_int_equal(srv_slot_restore(e, 0, &admin, folder, "short", &report, &err), MO_EFORMAT);
    assert_int_equal(srv_slot_restore(e, 0, &admin, folder, "other", &report, &err), MO_EFORMAT);
    check_status(srv_slot_restore(e, 0, &admin, folder, "good", &report, &err), &err);
    free(saved);
    free(snapshot);
    srv_cachedir_close(dir);
    srv_engine_close(e);
    mo_model_close(model);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_turn_computes_what_is_new),
        cmocka_unit_test(long_conversations),
        cmocka_unit_test(long_conversations_on_a_device),
        cmocka_unit_test(a_changed_answer_costs_only_itself),
        cmocka_unit_test(prompts_that_come_together_are_computed_once),
        cmocka_unit_test(sixteen_clients_hold_what_they_share_once),
        cmocka_unit_test(conversations_that_take_turns_are_all_kept),
        cmocka_unit_test(sixteen_conversations_are_kept_beside_each_other),
        cmocka_unit_test(a_common_beginning_is_kept),
        cmocka_unit_test(clients_find_what_is_their_own),
        cmocka_unit_test(kept_sessions_outlive_the_process),
        cmocka_unit_test(a_killed_process_loses_no_kept_session),
        cmocka_unit_test(damaged_sessions_are_computed_again),
        cmocka_unit_test(what_cannot_be_restored_is_not_reported_as_cached),
        cmocka_unit_test(sessions_that_are_too_long_now_serve_their_beginnings),
        cmocka_unit_test(a_disk_that_is_full_costs_only_the_file),
        cmocka_unit_test(without_the_cache_everything_is_computed),
        cmocka_unit_test(what_is_lent_is_not_closed),
        cmocka_unit_test(the_cache_is_usable_while_a_session_is_read),
        cmocka_unit_test(a_lost_device_takes_no_session_that_is_in_ram),
        cmocka_unit_test(slot_files_that_contradict_themselves_are_refused),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
