/* Required pointers of public functions that are NULL: MO_EINVAL that names the parameter, with and without an error to fill; and
 * nothing is touched, so that the objects here need not be any. Closing NULL does nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "moraine_server.h"

#define MODEL MO_TEST_DATA "/oracle/qwen3moe.gguf"

/* Not what they say: whoever looks at one has not checked the others. */
static char nothing[64];
#define OBJECT(type) ((type *)(void *)nothing)

static mo_text text;
static mo_piece piece;
static const mo_piece *pieces = &piece;
static char name[64];
static char *made;
static uint8_t *bytes;
static int32_t *ids;
static const int32_t *tokens;
static size_t count;
static int number;
static int64_t many;
static double rate;
static void *out;
static const int32_t one_token[1];
static const uint8_t bytes_given[1];
static const char *const one_string[] = {"x"};

#define OUT(type) ((type **)(void *)&out)
/* The parameter, or NULL where it is the one that is missing: by number, in the order of `names`. */
#define P(n, pointer) (missing == (n) ? NULL : (pointer))

typedef struct function {
    const char *name, *names;
    mo_status (*call)(int missing, mo_error *err);
} function;

#define CALL(f, ...)                                                                                         \
    static mo_status call_##f(int missing, mo_error *err)                                                    \
    {                                                                                                        \
        return f(__VA_ARGS__);                                                                               \
    }

CALL(mo_model_open, P(0, "x"), NULL, P(1, OUT(mo_model)), err)
CALL(mo_cluster_open, NULL, P(0, OUT(mo_cluster)), err)
CALL(mo_cluster_set_timeout, P(0, OBJECT(mo_cluster)), 1.0, err)
CALL(mo_cluster_follow, P(0, OBJECT(mo_cluster)), P(1, "x"), NULL, err)
CALL(mo_tokenize, P(0, OBJECT(mo_model)), P(1, "x"), 1, 0, P(2, &ids), P(3, &count), err)
CALL(mo_tokenize_first, P(0, OBJECT(mo_model)), P(1, "x"), 1, 0, 1, P(2, &ids), P(3, &count), err)
CALL(mo_stream_open, P(0, OBJECT(mo_model)), P(1, OUT(mo_stream)), err)
CALL(mo_stream_put, P(0, OBJECT(mo_stream)), 0, P(1, &text), err)
CALL(mo_stream_flush, P(0, OBJECT(mo_stream)), P(1, &text), err)
CALL(mo_stop_open, P(0, one_string), 1, P(1, OUT(mo_stop)), err)
CALL(mo_stop_put, P(0, OBJECT(mo_stop)), (mo_text){P(1, "x"), 1}, P(2, &text), P(3, &number), err)
CALL(mo_template_open, P(0, "x"), 1, P(1, OUT(mo_template)), err)
CALL(mo_template_render, P(0, OBJECT(mo_template)), P(1, "{}"), 2, NULL, P(2, &made), P(3, &count), err)
CALL(mo_prompt_open, P(0, OBJECT(mo_model)), P(1, "[]"), 2, NULL, P(2, OUT(mo_prompt)), err)
CALL(mo_generation_open, P(0, OBJECT(mo_model)), NULL, P(1, OUT(mo_generation)), err)
CALL(mo_generation_prompt, P(0, OBJECT(mo_generation)), P(1, OBJECT(mo_session)), P(2, one_token), 1, err)
CALL(mo_generation_save, P(0, OBJECT(mo_generation)), P(1, &bytes), P(2, &count), err)
CALL(mo_generation_load, P(0, OBJECT(mo_model)), P(1, OBJECT(mo_session)), P(2, bytes_given), 1,
     P(3, OUT(mo_generation)), err)
CALL(mo_chat_template_check, P(0, "x"), err)
CALL(mo_model_chat, P(0, OBJECT(mo_model)), P(1, OBJECT(mo_message)), 1, NULL, P(2, &made), err)
CALL(mo_model_chat_json, P(0, OBJECT(mo_model)), P(1, "[]"), 2, NULL, P(2, &made), err)
CALL(mo_reply_open, P(0, OBJECT(mo_model)), NULL, P(1, OUT(mo_reply)), err)
CALL(mo_reply_put, P(0, OBJECT(mo_reply)), 0, P(1, &pieces), P(2, &count), err)
CALL(mo_reply_put_text, P(0, OBJECT(mo_reply)), P(1, "x"), 1, P(2, &pieces), P(3, &count), err)
CALL(mo_reply_flush, P(0, OBJECT(mo_reply)), P(1, &pieces), P(2, &count), err)
CALL(mo_reply_cut, P(0, OBJECT(mo_reply)), P(1, &pieces), P(2, &count), err)
CALL(mo_reply_thought_end, P(0, OBJECT(mo_reply)), P(1, &tokens), P(2, &count), err)
CALL(mo_tools_text, P(0, OBJECT(mo_model)), P(1, "[]"), 2, false, P(2, &made), err)
CALL(mo_sampler_open, NULL, 1, P(0, OUT(mo_sampler)), err)
CALL(mo_grammar_open, P(0, OBJECT(mo_model)), P(1, "x"), 1, NULL, P(2, OUT(mo_grammar)), err)
CALL(mo_grammar_open_schema, P(0, OBJECT(mo_model)), P(1, "{}"), 2, NULL, P(2, OUT(mo_grammar)), err)
CALL(mo_schema_gbnf, P(0, "{}"), 2, P(1, "root"), NULL, P(2, &made), NULL, err)
CALL(mo_until_gbnf, P(0, one_string), 1, P(1, "root"), P(2, &made), err)
CALL(mo_constraint_open, P(0, OBJECT(mo_grammar)), P(1, OUT(mo_constraint)), err)
CALL(mo_constraint_copy, P(0, OBJECT(mo_constraint)), P(1, OUT(mo_constraint)), err)
CALL(mo_constraint_accept, P(0, OBJECT(mo_constraint)), 0, err)
CALL(mo_tools_grammar, P(0, OBJECT(mo_model)), NULL, P(1, OUT(mo_grammar)), err)
CALL(mo_answer_grammar, P(0, OBJECT(mo_model)), P(1, "x"), 1, false, P(2, &made), err)
CALL(mo_adapter_open, P(0, OBJECT(mo_model)), P(1, "x"), P(2, OUT(mo_adapter)), err)
CALL(mo_session_adapt, P(0, OBJECT(mo_session)), P(1, OBJECT(mo_adapter_use)), 1, err)
CALL(mo_session_open, P(0, OBJECT(mo_model)), NULL, P(1, OUT(mo_session)), err)
CALL(mo_session_feed, P(0, OBJECT(mo_feed)), 1, err)
CALL(mo_session_discover, P(0, OBJECT(mo_session)), P(1, one_token), 1, P(2, &many), err)
CALL(mo_snapshot_open, P(0, OBJECT(mo_session)), P(1, OUT(mo_snapshot)), err)
CALL(mo_session_restore, P(0, OBJECT(mo_session)), P(1, OBJECT(mo_snapshot)), -1, err)
CALL(mo_snapshot_lean, P(0, OBJECT(mo_snapshot)), P(1, OBJECT(mo_snapshot)), err)
CALL(mo_snapshot_spill, P(0, OBJECT(mo_snapshot)), err)
CALL(mo_snapshot_write, P(0, OBJECT(mo_snapshot)), P(1, &bytes), P(2, &count), err)
CALL(mo_snapshot_read, P(0, OBJECT(mo_model)), P(1, (const uint8_t *)"x"), 1, P(2, OUT(mo_snapshot)), err)
CALL(mo_model_request_done, P(0, OBJECT(mo_model)), err)
CALL(mo_model_profile, P(0, OBJECT(mo_model)), P(1, &made), err)
CALL(mo_model_profile_reset, P(0, OBJECT(mo_model)), NULL, err)
CALL(mo_model_profile_apply, P(0, OBJECT(mo_model)), P(1, "{}"), 2, P(2, OBJECT(mo_profile_report)), 1, err)

CALL(mo_model_stat, P(0, OBJECT(mo_model)), P(1, "engine.steps"), 0, P(2, &rate), err)
CALL(mo_model_stats, P(0, OBJECT(mo_model)), P(1, one_string), 1, P(2, &rate), err)
CALL(mo_model_stats_json, P(0, OBJECT(mo_model)), P(1, &made), err)
CALL(mo_doctor_open, NULL, P(0, OUT(mo_doctor)), err)
CALL(mo_file_open, P(0, "x"), P(1, OUT(mo_file)), err)
CALL(mo_file_summarize, P(0, OBJECT(mo_file)), P(1, OBJECT(mo_file_info)), 1, err)
CALL(mo_file_check_type, P(0, OBJECT(mo_file)), err)
CALL(mo_file_encoder, P(0, OBJECT(mo_file)), P(1, OBJECT(mo_encoder_info)), 1, err)
CALL(mo_tokenize_file, P(0, "x"), P(1, "x"), 1, 0, P(2, &ids), P(3, &count), err)
CALL(mo_synth_measure, P(0, "x"), NULL, P(1, OBJECT(mo_synth_info)), 1, err)
CALL(mo_synth, P(0, "x"), P(1, "x"), NULL, NULL, NULL, err)
CALL(mo_quantize, P(0, "x"), P(1, "x"), NULL, NULL, NULL, err)
CALL(mo_plan_file, P(0, "x"), NULL, NULL, P(1, OBJECT(mo_plan_report)), 1, err)
CALL(mo_plan_report_json, P(0, OBJECT(mo_plan_report)), 1, P(1, &made), err)
CALL(mo_plan_open, P(0, "x"), NULL, NULL, P(1, OUT(mo_plan)), err)
CALL(mo_plan_stat, P(0, OBJECT(mo_plan)), P(1, "device.slots"), 0, P(2, &rate), err)
CALL(mo_plan_json, P(0, OBJECT(mo_plan)), P(1, &made), err)
CALL(mo_plan_server, P(0, "x"), P(1, OBJECT(mo_model_options)), P(2, OBJECT(mo_server_request)),
     P(3, OBJECT(mo_server_plan)), err)
CALL(mo_plan_hosts, P(0, "x"), P(1, "x"), NULL, NULL, P(2, OBJECT(mo_plan_hosts_report)), 1, err)
CALL(mo_probe, NULL, P(0, OBJECT(mo_probe_report)), 1, err)
CALL(mo_probe_machine, NULL, NULL, P(0, name), sizeof name, err)
CALL(mo_probe_save, P(0, OBJECT(mo_probe_report)), 1, NULL, P(1, name), sizeof name, err)
CALL(mo_probe_ranks, P(0, OBJECT(mo_cluster)), NULL, 0, P(1, OBJECT(mo_probe_ranks_report)), 1, err)
CALL(mo_probe_ranks_save, P(0, OBJECT(mo_probe_ranks_report)), 1, NULL, P(1, name), sizeof name, err)
CALL(mo_model_read_rate, P(0, OBJECT(mo_model)), 1, P(1, &rate), err)
CALL(mo_tracer_open, P(0, OBJECT(mo_model)), P(1, OUT(mo_tracer)), err)
CALL(mo_tracer_step, P(0, OBJECT(mo_tracer)), 1, 0, MO_TRACE_PROMPT, err)
CALL(mo_tracer_save, P(0, OBJECT(mo_tracer)), P(1, "x"), err)
CALL(mo_trace_open, P(0, "x"), P(1, OUT(mo_trace)), err)
CALL(mo_replay, P(0, OBJECT(mo_trace)), NULL, P(1, OBJECT(mo_replay_report)), 1, err)
CALL(mo_replay_chart, P(0, OBJECT(mo_replay_point)), 1, P(1, "x"), P(2, "x"), err)
CALL(mo_trace_chart, P(0, OBJECT(mo_trace)), P(1, "x"), P(2, "x"), err)
CALL(mo_bar_chart, P(0, OBJECT(mo_bar)), 1, P(1, "x"), P(2, "x"), err)

#define F(f, names)                                                                                          \
    {                                                                                                        \
#f, names, call_##f                                                                                  \
    }

static const function functions[] = {
    F(mo_model_open, "path out"),
    F(mo_cluster_open, "out"),
    F(mo_cluster_set_timeout, "cluster"),
    F(mo_cluster_follow, "cluster path"),
    F(mo_tokenize, "model text ids count"),
    F(mo_tokenize_first, "model text ids count"),
    F(mo_stream_open, "model out"),
    F(mo_stream_put, "stream out"),
    F(mo_stream_flush, "stream out"),
    F(mo_stop_open, "strings out"),
    F(mo_stop_put, "stop text out met"),
    F(mo_template_open, "text out"),
    F(mo_template_render, "t context text length"),
    F(mo_prompt_open, "model json out"),
    F(mo_generation_open, "model out"),
    F(mo_generation_prompt, "generation session tokens"),
    F(mo_generation_save, "generation bytes size"),
    F(mo_generation_load, "model session bytes out"),
    F(mo_chat_template_check, "text"),
    F(mo_model_chat, "model messages text"),
    F(mo_model_chat_json, "model json text"),
    F(mo_reply_open, "model out"),
    F(mo_reply_put, "reply pieces count"),
    F(mo_reply_put_text, "reply text pieces count"),
    F(mo_reply_flush, "reply pieces count"),
    F(mo_reply_cut, "reply pieces count"),
    F(mo_reply_thought_end, "reply tokens count"),
    F(mo_tools_text, "model tools text"),
    F(mo_sampler_open, "out"),
    F(mo_grammar_open, "model gbnf out"),
    F(mo_grammar_open_schema, "model json out"),
    F(mo_schema_gbnf, "json prefix gbnf"),
    F(mo_until_gbnf, "strings prefix gbnf"),
    F(mo_constraint_open, "grammar out"),
    F(mo_constraint_copy, "constraint out"),
    F(mo_constraint_accept, "constraint"),
    F(mo_tools_grammar, "model out"),
    F(mo_answer_grammar, "model gbnf out"),
    F(mo_adapter_open, "model path out"),
    F(mo_session_adapt, "session uses"),
    F(mo_session_open, "model out"),
    F(mo_session_feed, "feeds"),
    F(mo_session_discover, "session tokens experts"),
    F(mo_snapshot_open, "session out"),
    F(mo_session_restore, "session snapshot"),
    F(mo_snapshot_lean, "snapshot on"),
    F(mo_snapshot_spill, "snapshot"),
    F(mo_snapshot_write, "snapshot bytes size"),
    F(mo_snapshot_read, "model bytes out"),
    F(mo_model_request_done, "model"),
    F(mo_model_profile, "model json"),
    F(mo_model_profile_reset, "model"),
    F(mo_model_profile_apply, "model json out"),
    F(mo_model_stat, "model name value"),
    F(mo_model_stats, "model names values"),
    F(mo_model_stats_json, "model json"),
    F(mo_doctor_open, "out"),
    F(mo_file_open, "path out"),
    F(mo_file_summarize, "file out"),
    F(mo_file_check_type, "file"),
    F(mo_file_encoder, "file out"),
    F(mo_tokenize_file, "path text ids count"),
    F(mo_synth_measure, "name out"),
    F(mo_synth, "name path"),
    F(mo_quantize, "source path"),
    F(mo_plan_file, "path out"),
    F(mo_plan_report_json, "report json"),
    F(mo_plan_open, "path out"),
    F(mo_plan_stat, "plan name value"),
    F(mo_plan_json, "plan json"),
    F(mo_plan_server, "path loading asked out"),
    F(mo_plan_hosts, "path hosts out"),
    F(mo_probe, "out"),
    F(mo_probe_machine, "saved"),
    F(mo_probe_save, "report saved"),
    F(mo_probe_ranks, "cluster out"),
    F(mo_probe_ranks_save, "report saved"),
    F(mo_model_read_rate, "model gb_per_s"),
    F(mo_tracer_open, "model out"),
    F(mo_tracer_step, "tracer"),
    F(mo_tracer_save, "tracer path"),
    F(mo_trace_open, "path out"),
    F(mo_replay, "trace out"),
    F(mo_replay_chart, "points title path"),
    F(mo_trace_chart, "trace title path"),
    F(mo_bar_chart, "bars title path"),
};

static void what_is_required_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        const function *f = &functions[i];
        const char *at = f->names;
        for (int missing = 0; *at; missing++) {
            mo_error err = {.detail = ""};
            char words[64];
            const int length = (int)strcspn(at, " ");
            snprintf(words, sizeof words, "`%.*s`", length, at);
            if (f->call(missing, &err) != MO_EINVAL || err.status != MO_EINVAL ||
                !strstr(err.detail, words) || !strstr(err.detail, "NULL") ||
                f->call(missing, NULL) != MO_EINVAL) {
                fail_msg("%s without %s: %s", f->name, words, err.detail);
            }
            at += length + (at[length] == ' ');
        }
    }
    mo_error err = {.detail = ""};
    assert_null(mo_constraint_mask(NULL, &err));
    assert_int_equal(err.status, MO_EINVAL);
    assert_null(out);
}

/* Pointers in structs. */
static void members_are_required_too(void **state)
{
    (void)state;
    mo_error err = {.detail = ""};
    mo_model_options options = mo_model_options_default();
    mo_model *model = NULL;
    mo_session *session = NULL;
    mo_sampler *sampler = NULL;
    mo_sampler_options sampling = mo_sampler_options_default();
    sampling.bias_count = 1;
    assert_int_equal(mo_sampler_open(&sampling, 1, &sampler, &err), MO_EINVAL);
    assert_non_null(strstr(err.detail, "`bias` is NULL"));
    options.adapter_count = 1;
    assert_int_equal(mo_model_open(MODEL, &options, &model, &err), MO_EINVAL);
    assert_non_null(strstr(err.detail, "`adapters` is NULL"));
    options.adapter_count = 0;
    options.context = 16;
    options.device = "none";
    options.learning.profile = "off";
    assert_int_equal(mo_model_open(MODEL, &options, &model, &err), MO_OK);
    assert_int_equal(mo_session_open(model, NULL, &session, &err), MO_OK);
    mo_feed feed = {.size = sizeof feed, .session = session, .count = 1};
    assert_int_equal(mo_session_feed(&feed, 1, &err), MO_EINVAL);
    assert_non_null(strstr(err.detail, "`tokens` of mo_feed is NULL"));
    feed.tokens = one_token;
    assert_int_equal(mo_session_feed(&feed, 1, &err), MO_OK);
    mo_session_close(session);
    mo_model_close(model);
}

static void nothing_is_closed(void **state)
{
    (void)state;
    mo_model_close(NULL);
    mo_cluster_close(NULL);
    mo_stream_close(NULL);
    mo_stop_close(NULL);
    mo_template_close(NULL);
    mo_prompt_close(NULL);
    mo_generation_close(NULL);
    mo_reply_close(NULL);
    mo_sampler_close(NULL);
    mo_grammar_close(NULL);
    mo_constraint_close(NULL);
    mo_adapter_close(NULL);
    mo_session_close(NULL);
    mo_snapshot_close(NULL);
    mo_doctor_close(NULL);
    mo_file_close(NULL);
    mo_plan_close(NULL);
    mo_tracer_close(NULL);
    mo_trace_close(NULL);
    mo_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_required_is_named),
        cmocka_unit_test(members_are_required_too),
        cmocka_unit_test(nothing_is_closed),
    };
    return cmocka_run_group_tests_name("null", tests, NULL, NULL);
}
