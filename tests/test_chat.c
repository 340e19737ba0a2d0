/* Chat: formats recognized, conversations written byte for byte, replies taken apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "text/chat.h"
#include "toyvocab.h"

#define BAR  "\xEF\xBD\x9C"
#define MARK "\xE2\x96\x81"

static const mo_chat_message talk[] = {
    {MO_CHAT_SYSTEM, "Be brief."},
    {MO_CHAT_USER, " Hi "},
    {MO_CHAT_ASSISTANT, "Hello!"},
    {MO_CHAT_USER, "2+2?"},
};

static const mo_chat_message thought[] = {
    {MO_CHAT_USER, "Hi"},
    {MO_CHAT_ASSISTANT, "<think>\nhm\n</think>\n\nHello!"},
    {MO_CHAT_USER, "2+2?"},
};

static void expect(mo_chat_format format, const mo_chat_message *messages, size_t count,
                   mo_chat_options options, const char *want)
{
    char *text;
    size_t length;
    mo_error err;
    if (mo_chat_render(format, messages, count, &options, &text, &length, NULL, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    assert_string_equal(text, want);
    assert_int_equal(length, strlen(want));
    free(text);
}

#define OFF  ((mo_chat_options){.size = sizeof(mo_chat_options), .thinking = MO_THINKING_OFF})
#define ON   ((mo_chat_options){.size = sizeof(mo_chat_options), .thinking = MO_THINKING_ON})
#define BARE ((mo_chat_options){.size = sizeof(mo_chat_options), .no_prompt = true})

static void chatml_is_written(void **state)
{
    (void)state;
#define CHATML                                                                                               \
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\n"     \
    "Hello!<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n"
    expect(MO_CHAT_CHATML, talk, 4, OFF, CHATML "<|im_start|>assistant\n");
    expect(MO_CHAT_CHATML, talk, 4, ON, CHATML "<|im_start|>assistant\n");
    expect(MO_CHAT_CHATML, talk, 4, BARE, CHATML);
    expect(MO_CHAT_QWEN3, talk, 4, ON, CHATML "<|im_start|>assistant\n");
    expect(MO_CHAT_QWEN3, talk, 4, OFF, CHATML "<|im_start|>assistant\n<think>\n\n</think>\n\n");
    expect(MO_CHAT_QWEN3_ON, talk, 4, OFF, CHATML "<|im_start|>assistant\n<think>\n");
#define THOUGHT                                                                                              \
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>user\n2+2?"        \
    "<|im_end|>\n<|im_start|>assistant\n"
    expect(MO_CHAT_QWEN3, thought, 3, ON, THOUGHT);
    expect(MO_CHAT_QWEN35, thought, 3, ON, THOUGHT "<think>\n");
    expect(MO_CHAT_QWEN35, thought, 3, OFF, THOUGHT "<think>\n\n</think>\n\n");
    expect(MO_CHAT_QWEN35, talk + 1, 1, ON,
           "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n");
    expect(MO_CHAT_CHATML, NULL, 0, OFF, "<|im_start|>assistant\n");
    expect(MO_CHAT_CHATML, NULL, 0, BARE, "");
}

static void llama_and_mixtral_are_written(void **state)
{
    (void)state;
#define LLAMA                                                                                                \
    "Be brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"                            \
    "<|start_header_id|>assistant<|end_header_id|>\n\nHello!<|eot_id|>"                                      \
    "<|start_header_id|>user<|end_header_id|>\n\n2+2?<|eot_id|>"                                             \
    "<|start_header_id|>assistant<|end_header_id|>\n\n"
#define LLAMA_SYSTEM "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
    expect(MO_CHAT_LLAMA3, talk, 4, OFF, LLAMA_SYSTEM LLAMA);
    expect(MO_CHAT_LLAMA31, talk, 4, OFF,
           LLAMA_SYSTEM "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n" LLAMA);
    expect(MO_CHAT_LLAMA31, talk, 4, (mo_chat_options){.size = sizeof(mo_chat_options), .date = "2025-03-09"},
           LLAMA_SYSTEM "Cutting Knowledge Date: December 2023\nToday Date: 09 Mar 2025\n\n" LLAMA);
    expect(MO_CHAT_LLAMA3, talk + 3, 1, BARE,
           "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n2+2?<|eot_id|>");
    expect(MO_CHAT_LLAMA31, talk + 3, 1, BARE,
           LLAMA_SYSTEM "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n<|eot_id|>"
                        "<|start_header_id|>user<|end_header_id|>\n\n2+2?<|eot_id|>");
    expect(MO_CHAT_MIXTRAL, talk, 4, OFF,
           "<s> [INST] Be brief.\n\n Hi  [/INST] Hello!</s> [INST] 2+2? [/INST]");
}

static void gemma_is_written(void **state)
{
    (void)state;
    expect(
        MO_CHAT_GEMMA, talk, 4, OFF,
        "<bos><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello!<end_of_turn>\n"
        "<start_of_turn>user\n2+2?<end_of_turn>\n<start_of_turn>model\n");
#define GEMMA4                                                                                               \
    "Be brief.<turn|>\n<|turn>user\nHi<turn|>\n<|turn>model\nHello!<turn|>\n<|turn>user\n2+2?<turn|>\n"      \
    "<|turn>model\n"
    expect(MO_CHAT_GEMMA4, talk, 4, ON, "<bos><|turn>system\n<|think|>\n" GEMMA4);
    expect(MO_CHAT_GEMMA4, talk, 4, OFF, "<bos><|turn>system\n" GEMMA4 "<|channel>thought\n<channel|>");
    const mo_chat_message past[] = {
        {MO_CHAT_USER, "Hi"},
        {MO_CHAT_ASSISTANT, "<|channel>thought\nhm<channel|>Hel<|channel>x<channel|>lo! "}};
    expect(MO_CHAT_GEMMA4, past, 2, BARE, "<bos><|turn>user\nHi<turn|>\n<|turn>model\nHello!<turn|>\n");
}

static void glm_and_deepseek_are_written(void **state)
{
    (void)state;
    expect(
        MO_CHAT_GLM45, talk, 4, ON,
        "[gMASK]<sop><|system|>\nBe brief.<|user|>\n Hi <|assistant|>\n<think></think>\nHello!<|user|>\n2+2?"
        "<|assistant|>");
    expect(MO_CHAT_GLM45, talk + 3, 1, OFF,
           "[gMASK]<sop><|user|>\n2+2?/nothink<|assistant|>\n<think></think>");
    expect(MO_CHAT_GLM47, talk, 4, ON,
           "[gMASK]<sop><|system|>Be brief.<|user|> Hi "
           "<|assistant|></think>Hello!<|user|>2+2?<|assistant|><think>");
    expect(MO_CHAT_GLM47, talk + 3, 1, OFF, "[gMASK]<sop><|user|>2+2?<|assistant|></think>");
#define DEEPSEEK                                                                                             \
    "<" BAR "begin" MARK "of" MARK "sentence" BAR ">Be brief.<" BAR "User" BAR "> Hi <" BAR "Assistant" BAR  \
    ">Hello!<" BAR "end" MARK "of" MARK "sentence" BAR "><" BAR "User" BAR ">2+2?<" BAR "Assistant" BAR ">"
    expect(MO_CHAT_DEEPSEEK3, talk, 4, OFF, DEEPSEEK);
    expect(MO_CHAT_DEEPSEEK_R1, talk, 4, OFF, DEEPSEEK "<think>\n");
    expect(MO_CHAT_KIMI, talk, 4, OFF,
           "<|im_system|>system<|im_middle|>Be brief.<|im_end|><|im_user|>user<|im_middle|> Hi "
           "<|im_end|><|im_assistant|>assistant<|im_middle|>Hello!<|im_end|><|im_user|>user<|im_middle|>2+2?<"
           "|im_end|>"
           "<|im_assistant|>assistant<|im_middle|>");
}

static void harmony_is_written(void **state)
{
    (void)state;
#define HARMONY                                                                                              \
    "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"                 \
    "Knowledge cutoff: 2024-06\n"
#define CHANNELS                                                                                             \
    "\n\n# Valid channels: analysis, commentary, final. Channel must be included for every message.<|end|>"
#define TURNS                                                                                                \
    "<|start|>developer<|message|># Instructions\n\nBe brief.\n\n<|end|><|start|>user<|message|> Hi <|end|>" \
    "<|start|>assistant<|channel|>final<|message|>Hello!<|end|><|start|>user<|message|>2+2?<|end|>"          \
    "<|start|>assistant"
    expect(MO_CHAT_HARMONY, talk, 4, (mo_chat_options){.size = sizeof(mo_chat_options), .date = "2026-01-31"},
           HARMONY "Current date: 2026-01-31\n\nReasoning: medium" CHANNELS TURNS);
    expect(MO_CHAT_HARMONY, talk, 4, (mo_chat_options){.size = sizeof(mo_chat_options), .effort = "high"},
           HARMONY "\nReasoning: high" CHANNELS TURNS);
}

/* Formats that are marks around every message. */
static void turns_are_written(void **state)
{
    (void)state;
    expect(MO_CHAT_MINIMAX, talk, 4, ON,
           "]~!b[]~b]system\nBe brief.[e~[\n]~b]user\n Hi [e~[\n]~b]ai\nHello![e~[\n]~b]user\n2+2?[e~[\n"
           "]~b]ai\n<think>\n");
    expect(MO_CHAT_GRANITE, talk, 4, ON,
           "<|start_of_role|>system<|end_of_role|>Be brief.<|end_of_text|>\n"
           "<|start_of_role|>user<|end_of_role|> Hi <|end_of_text|>\n"
           "<|start_of_role|>assistant<|end_of_role|>Hello!<|end_of_text|>\n"
           "<|start_of_role|>user<|end_of_role|>2+2?<|end_of_text|>\n"
           "<|start_of_role|>assistant<|end_of_role|>");
    expect(MO_CHAT_DOTS, talk, 4, ON,
           "<|system|>Be brief.<|endofsystem|><|userprompt|> Hi <|endofuserprompt|><|response|>Hello!"
           "<|endofresponse|><|userprompt|>2+2?<|endofuserprompt|><|response|>");
    expect(MO_CHAT_LING, talk + 3, 1, ON,
           "<role>SYSTEM</role>detailed thinking off<|role_end|><role>HUMAN</role>2+2?<|role_end|>"
           "<role>ASSISTANT</role>");
    expect(MO_CHAT_HUNYUAN, talk, 4, ON,
           "<|startoftext|>Be brief.<|extra_4|><|startoftext|> Hi <|extra_0|>Hello!<|eos|><|startoftext|>2+2?"
           "<|extra_0|>");
    expect(MO_CHAT_GLM4, talk + 3, 1, ON, "[gMASK]<sop><|user|>\n2+2?<|assistant|>\n");
    expect(MO_CHAT_ERNIE, talk, 4, ON,
           "<|begin_of_sentence|>Be brief.\nUser:  Hi \nAssistant: Hello!<|end_of_sentence|>User: 2+2?\n"
           "Assistant: ");
    expect(MO_CHAT_PHI3, talk + 3, 1, ON, "<|user|>\n2+2?<|end|>\n<|assistant|>\n");
    expect(MO_CHAT_JAMBA, talk, 4, ON,
           "<|startoftext|><|bom|><|system|> Be brief.<|eom|><|bom|><|user|>  Hi <|eom|><|bom|><|assistant|> "
           "Hello!"
           "<|eom|><|bom|><|user|> 2+2?<|eom|><|bom|><|assistant|>");
}

static void nonsense_is_refused(void **state)
{
    const mo_chat_message late[] = {{MO_CHAT_USER, "a"}, {MO_CHAT_SYSTEM, "b"}};
    static const char *const dates[] = {"",           "2025",       "2025-13-01", "2025-00-01",
                                        "2025/01/01", "x025-01-01", "2025-01-01x"};
    mo_chat_options options = {.size = sizeof(mo_chat_options)};
    char *text;
    size_t length;
    mo_error err;
    (void)state;
    assert_int_equal(mo_chat_render(MO_CHAT_NONE, talk, 4, &options, &text, &length, NULL, &err),
                     MO_EUNSUPPORTED);
    assert_int_equal(mo_chat_render(MO_CHAT_CHATML, late, 2, &options, &text, &length, NULL, &err),
                     MO_EINVAL);
    options.effort = "heroic";
    assert_int_equal(mo_chat_render(MO_CHAT_HARMONY, talk, 4, &options, &text, &length, NULL, &err),
                     MO_EINVAL);
    assert_non_null(strstr(err.detail, "heroic"));
    options.effort = NULL;
    for (size_t i = 0; i < sizeof dates / sizeof *dates; i++) {
        options.date = dates[i];
        assert_int_equal(mo_chat_render(MO_CHAT_LLAMA31, talk, 4, &options, &text, &length, NULL, &err),
                         MO_EINVAL);
        assert_null(text);
    }
}

/* ---- Recognizing ---- */

/* What templates have that counts, newlines written as they write them. */
static void templates_are_recognized(void **state)
{
    static const struct {
        const char *text;
        mo_chat_format format;
    } table[] = {
        {"{{ '<|im_start|>' + role }}{% if add_generation_prompt %}<|im_start|>assistant\\n", MO_CHAT_CHATML},
        {"<|im_start|>{% if add_generation_prompt %}{% if enable_thinking is false "
         "%}'<think>\\n\\n</think>\\n\\n'",
         MO_CHAT_QWEN3},
        {"<|im_start|>'<think>\\n\\n</think>'{% if add_generation_prompt "
         "%}'<|im_start|>assistant\\n<think>\\n'",
         MO_CHAT_QWEN3_ON},
        {"<|im_start|>{% if add_generation_prompt %}'<think>\\n\\n</think>\\n\\n'{% else %}'<think>\\n'",
         MO_CHAT_QWEN35},
        {"<|start_header_id|>", MO_CHAT_LLAMA3},
        {"<|start_header_id|> Cutting Knowledge Date: December 2023", MO_CHAT_LLAMA31},
        {"{{ '[INST] ' + content + ' [/INST]' }}", MO_CHAT_MIXTRAL},
        {"<start_of_turn>", MO_CHAT_GEMMA},
        {"{{- '<|turn>system\\n' -}} <|channel>", MO_CHAT_GEMMA4},
        {"[gMASK]<sop>{% if add_generation_prompt %}<|assistant|>{{ '\\n<think></think>' }}", MO_CHAT_GLM45},
        {"[gMASK]<sop>{% if add_generation_prompt %}<|assistant|>{{- '</think>' if x else '<think>' -}}",
         MO_CHAT_GLM47},
        {"<" BAR "Assistant" BAR "> {% if add_generation_prompt %}", MO_CHAT_DEEPSEEK3},
        {"{% if add_generation_prompt %}<" BAR "Assistant" BAR "><think>\\n", MO_CHAT_DEEPSEEK_R1},
        {"<|start|>system<|message|> <|channel|>final", MO_CHAT_HARMONY},
        {"<|im_user|>user<|im_middle|>", MO_CHAT_KIMI},
        {"{{ ']~!b[' }} ]~b]ai", MO_CHAT_MINIMAX},
        {"<|start_of_role|>", MO_CHAT_GRANITE},
        {"<|userprompt|> <|endofuserprompt|>", MO_CHAT_DOTS},
        {"<role>HUMAN</role> <|role_end|>", MO_CHAT_LING},
        {"<|extra_0|> <|extra_4|>", MO_CHAT_HUNYUAN},
        {"[gMASK]<sop> <|observation|>", MO_CHAT_GLM4},
        {"<|user|> <|end|> <|assistant|>", MO_CHAT_PHI3},
        {"<|bom|><|user|> <|eom|>", MO_CHAT_JAMBA},
        {"{{ messages }}", MO_CHAT_NONE},
    };
    static toy v;
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        memset(&v, 0, sizeof v);
        v.chat_template = table[i].text;
        v.architecture = "unheard-of";
        toy_add(&v, "a", 1, 0);
        mo_gguf *g = toy_open(&v);
        assert_non_null(g);
        assert_string_equal(mo_chat_format_name(mo_chat_detect(g, NULL)),
                            mo_chat_format_name(table[i].format));
        mo_gguf_close(g);
    }
}

static void tokens_and_architectures_are_recognized(void **state)
{
    static const struct {
        const char *architecture, *tokens[4];
        mo_chat_format format;
    } table[] = {
        {"gpt-oss", {"<|start|>", "<|channel|>", "<|message|>"}, MO_CHAT_HARMONY},
        {"qwen3moe", {"<|im_start|>", "<think>"}, MO_CHAT_QWEN3},
        {"qwen35moe", {"<|im_start|>", "<think>"}, MO_CHAT_QWEN35},
        {"qwen3next", {"<|im_start|>", "<think>"}, MO_CHAT_CHATML},
        {"llama", {"<|im_start|>"}, MO_CHAT_CHATML},
        {"llama", {"<|start_header_id|>"}, MO_CHAT_LLAMA3},
        {"llama", {"[INST]"}, MO_CHAT_MIXTRAL},
        {"gemma4", {"<|turn>"}, MO_CHAT_GEMMA4},
        {"gemma3", {"<start_of_turn>"}, MO_CHAT_GEMMA},
        {"glm4moe", {"[gMASK]", "<|assistant|>"}, MO_CHAT_GLM45},
        {"deepseek2", {"[gMASK]", "<|assistant|>"}, MO_CHAT_GLM47},
        {"deepseek2", {"<" BAR "Assistant" BAR ">"}, MO_CHAT_DEEPSEEK3},
        {"deepseek2", {"<|im_middle|>", "<|im_user|>"}, MO_CHAT_KIMI},
        {"glm4", {"[gMASK]", "<|assistant|>", "<|observation|>"}, MO_CHAT_GLM4},
        {"phimoe", {"<|assistant|>", "<|end|>"}, MO_CHAT_PHI3},
        {"granitemoe", {"<|start_of_role|>"}, MO_CHAT_GRANITE},
        {"llama", {"<s>"}, MO_CHAT_NONE},
    };
    static toy v;
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        memset(&v, 0, sizeof v);
        v.architecture = table[i].architecture;
        v.model = "gpt2";
        v.pre = "gpt-2";
        v.no_scores = true;
        toy_add(&v, "a", 1, 0);
        for (int k = 0; k < 4 && table[i].tokens[k]; k++) {
            toy_add(&v, table[i].tokens[k], 3, 0);
        }
        mo_gguf *g = toy_open(&v);
        mo_tokenizer *t;
        mo_error err;
        assert_non_null(g);
        assert_int_equal(mo_tokenizer_create(g, &t, &err), MO_OK);
        assert_string_equal(mo_chat_format_name(mo_chat_detect(g, t)), mo_chat_format_name(table[i].format));
        mo_tokenizer_destroy(t);
        mo_gguf_close(g);
    }
    memset(&v, 0, sizeof v);
    v.architecture = "gpt-oss";
    toy_add(&v, "a", 1, 0);
    mo_gguf *g = toy_open(&v);
    assert_int_equal(mo_chat_detect(g, NULL), MO_CHAT_HARMONY);
    mo_gguf_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chatml_is_written),
        cmocka_unit_test(llama_and_mixtral_are_written),
        cmocka_unit_test(gemma_is_written),
        cmocka_unit_test(glm_and_deepseek_are_written),
        cmocka_unit_test(turns_are_written),
        cmocka_unit_test(harmony_is_written),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(templates_are_recognized),
        cmocka_unit_test(tokens_and_architectures_are_recognized),
    };
    return cmocka_run_group_tests_name("chat", tests, NULL, NULL);
}
