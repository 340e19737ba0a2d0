/* Adapters of requests: answers are those of a session alone with the same adapters, in company and from the cache, of which requests
 * with other adapters or scales see nothing, also after a restart; what a request may say. */
#include "check.h"
#include "folder.h"
#include "lora_file.h"
#include "server/requests/parameters.h"
#include "server_case.h"

enum { PROMPT = 200, ANSWER = 12 };

static const lora_recipe first_recipe = {.parts = lora_attention, .rank = 4, .alpha = 8, .seed = 5},
                         second_recipe = {.parts = lora_experts, .rank = 2, .alpha = 4, .seed = 6};

/* A model with two adapters, which no request has unless it says so. */
static mo_model *open_adapted(const char *path, int sessions)
{
    const char *files[2] = {in_folder("first.gguf"), in_folder("second.gguf")};
    assert_true(lora_file_make(path, files[0], &first_recipe));
    assert_true(lora_file_make(path, files[1], &second_recipe));
    mo_model_options o = model_settings("none", sessions);
    o.adapters = files;
    o.adapter_count = 2;
    return open_model_with(path, &o);
}

static client *ask_with(srv_engine *e, mo_model *model, const float scale[2], const int32_t *tokens,
                        int count, int n)
{
    client *c = new_client();
    srv_job_options o = job_of(c, tokens, count, ANSWER);
    for (int i = 0; i < 2; i++) {
        o.adapters[i] = (mo_adapter_use){mo_model_adapter(model, i), scale[i]};
    }
    o.adapter_count = 2;
    o.n = n;
    submit(e, c, &o);
    return c;
}

/* What a session with them answers alone. */
static void expect(mo_model *model, const float scale[2], const client *c, const int32_t *tokens, int count)
{
    const mo_adapter_use uses[2] = {{mo_model_adapter(model, 0), scale[0]},
                                    {mo_model_adapter(model, 1), scale[1]}};
    int32_t all[PROMPT + ANSWER];
    mo_session *session = NULL;
    assert_int_equal(c->status, MO_OK);
    assert_int_equal(mo_session_open(model, NULL, &session, NULL), MO_OK);
    assert_int_equal(mo_session_adapt(session, uses, 2, NULL), MO_OK);
    memcpy(all, tokens, sizeof *tokens * (size_t)count);
    for (int i = 0; i < c->count[0]; i++) {
        const mo_feed f = {.size = sizeof f, .session = session, .tokens = all, .count = count + i};
        assert_int_equal(mo_session_feed(&f, 1, NULL), MO_OK);
        const float *logits = mo_session_logits(session);
        int32_t best = 0;
        for (int32_t t = 1; t < vocab_of(model); t++) {
            best = logits[t] > logits[best] ? t : best;
        }
        assert_int_equal(c->tokens[0][i], best);
        all[count + i] = best;
    }
    mo_session_close(session);
}

static const float settings[][2] = {{0, 0}, {1, 0}, {0, 1}, {0.5f, 1}, {1, 1}};
enum { SETTINGS = sizeof settings / sizeof *settings };

static void requests_have_their_own_adapters(void **state)
{
    (void)state;
    for (int f = 0; f < (SANITIZED ? 1 : 3); f++) {
        int32_t tokens[PROMPT];
        mo_model *model = open_adapted(families[f], 3);
        srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 3});
        prompt_of(vocab_of(model), 3, 0, 3, PROMPT, tokens);
        for (int again = 0; again < 2; again++) { /* the second time their prompts are in the cache */
            client *c[SETTINGS];
            for (int i = 0; i < SETTINGS; i++) {
                c[i] = ask_with(e, model, settings[i], tokens, PROMPT, 1);
            }
            for (int i = 0; i < SETTINGS; i++) {
                wait_last(c[i]);
                assert_int_equal(c[i]->usage.cached_tokens > 0, again);
                expect(model, settings[i], c[i], tokens, PROMPT);
                free_client(c[i]);
            }
        }
        srv_engine_close(e);
        mo_model_close(model);
    }
}

static void choices_share_a_prompt_with_adapters(void **state)
{
    (void)state;
    int32_t tokens[PROMPT];
    mo_model *model = open_adapted(families[0], 3);
    srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 3});
    prompt_of(vocab_of(model), 3, 0, 3, PROMPT, tokens);
    free_client(ask(e, tokens, PROMPT, 3)); /* the sequences had others before */
    client *c = ask_with(e, model, settings[3], tokens, PROMPT, 3);
    wait_last(c);
    expect(model, settings[3], c, tokens, PROMPT);
    for (int i = 1; i < 3; i++) {
        assert_memory_equal(c->tokens[i], c->tokens[0], sizeof *c->tokens[0] * (size_t)c->count[0]);
    }
    free_client(c);
    srv_engine_close(e);
    mo_model_close(model);
}

static void the_directory_knows_adapters(void **state)
{
    (void)state;
    int32_t tokens[PROMPT];
    const char *directory = in_folder("cache");
    for (int restart = 0; restart < 2; restart++) {
        mo_model *model = open_adapted(families[0], 1);
        srv_engine *e = open_engine(model, (srv_engine_options){.parallel = 1, .cache_dir = directory});
        prompt_of(vocab_of(model), 3, 0, 3, PROMPT, tokens);
        for (int i = 0; i < 3; i++) {
            client *c = ask_with(e, model, settings[i], tokens, PROMPT, 1);
            wait_last(c);
            assert_int_equal(c->usage.cached_tokens > 0, restart);
            expect(model, settings[i], c, tokens, PROMPT);
            free_client(c);
        }
        srv_engine_close(e);
        mo_model_close(model);
    }
}

static bool reads(const char *text, mo_adapter_use *adapters, int count, srv_fault *fault)
{
    json_t *root = json_loads(text, JSON_DECODE_ANY, NULL);
    *fault = (srv_fault){0};
    srv_field list = srv_field_root(root, fault);
    list.value = json_is_null(root) ? NULL : list.value; /* as a member's */
    const bool good = srv_adapters_read(&list, adapters, count);
    json_decref(root);
    return good;
}

static void a_list_sets_scales(void **state)
{
    (void)state;
    static const char *const wrong[] = {"{}",
                                        "[1]",
                                        "[{\"scale\": 1}]",
                                        "[{\"id\": 2, \"scale\": 1}]",
                                        "[{\"id\": -1}]",
                                        "[{\"id\": 0, \"scale\": \"a\"}]"};
    mo_adapter_use a[SRV_ADAPTERS] = {{NULL, 0.25f}, {NULL, 0.5f}};
    srv_fault fault;
    assert_true(reads("null", a, 2, &fault));
    assert_true(a[0].scale == 0.25f && a[1].scale == 0.5f);
    assert_true(reads("[{\"id\": 1, \"scale\": 0.75}]", a, 2, &fault));
    assert_true(a[0].scale == 0.0f && a[1].scale == 0.75f);
    assert_true(reads("[]", a, 2, &fault));
    assert_true(a[0].scale == 0.0f && a[1].scale == 0.0f);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_false(reads(wrong[i], a, 2, &fault));
    }
    assert_false(reads("[{\"id\": 0}]", a, 0, &fault));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_have_their_own_adapters),
        cmocka_unit_test(choices_share_a_prompt_with_adapters),
        cmocka_unit_test(the_directory_knows_adapters),
        cmocka_unit_test(a_list_sets_scales),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
