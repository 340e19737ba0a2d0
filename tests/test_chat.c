/* Chat: formats recognized, conversations written byte for byte, replies taken apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "template/chat_template.h"
#include "text/formats.h"
#include "toyvocab.h"

#define BAR      "\xEF\xBD\x9C"
#define MARK     "\xE2\x96\x81"
#define EOS_MARK "\xE3\x80\x88|EOS|\xE3\x80\x89"

static const mo_message talk[] = {
    {"system", "Be brief."},
    {"user", " Hi "},
    {"assistant", "Hello!"},
    {"user", "2+2?"},
};

static const mo_message thought[] = {
    {"user", "Hi"},
    {"assistant", "<think>\nhm\n</think>\n\nHello!"},
    {"user", "2+2?"},
};

static mo_status render(const char *format, const mo_message *messages, size_t count,
                        mo_chat_settings settings, mo_rendering *out, mo_error *err)
{
    const mo_chat_format *f = mo_chat_format_find(format);
    mo_template *t;
    assert_non_null(f);
    assert_int_equal(mo_template_open(f->text, strlen(f->text), &t, err), MO_OK);
    settings.clock = settings.clock ? settings.clock : "";
    const mo_status status = mo_chat_template_plain(t, messages, count, &settings, out, err);
    mo_template_close(t);
    return status;
}

static void expect(const char *format, const mo_message *messages, size_t count, mo_chat_settings settings,
                   const char *want)
{
    mo_rendering r;
    mo_error err;
    if (render(format, messages, count, settings, &r, &err) != MO_OK) {
        fail_msg("%s", err.detail);
    }
    assert_string_equal(r.text, want);
    assert_int_equal(r.length, strlen(want));
    mo_rendering_free(&r);
}

#define OFF  ((mo_chat_settings){.thinking = MO_THINKING_OFF})
#define ON   ((mo_chat_settings){.thinking = MO_THINKING_ON})
#define BARE ((mo_chat_settings){.no_prompt = true})

static void chatml_is_written(void **state)
{
    (void)state;
#define CHATML                                                                                               \
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\n"     \
    "Hello!<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n"
    expect("chatml", talk, 4, OFF, CHATML "<|im_start|>assistant\n");
    expect("chatml", talk, 4, ON, CHATML "<|im_start|>assistant\n");
    expect("chatml", talk, 4, BARE, CHATML);
    expect("qwen3", talk, 4, ON, CHATML "<|im_start|>assistant\n");
    expect("qwen3", talk, 4, OFF, CHATML "<|im_start|>assistant\n<think>\n\n</think>\n\n");
    expect("qwen3-thinking", talk, 4, OFF, CHATML "<|im_start|>assistant\n<think>\n");
#define THOUGHT                                                                                              \
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>user\n2+2?"        \
    "<|im_end|>\n<|im_start|>assistant\n"
    expect("qwen3", thought, 3, ON, THOUGHT);
    expect("qwen3.5", thought, 3, ON, THOUGHT "<think>\n");
    expect("qwen3.5", thought, 3, OFF, THOUGHT "<think>\n\n</think>\n\n");
    expect("qwen3.5", talk + 1, 1, ON, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n");
    expect("chatml", NULL, 0, OFF, "<|im_start|>assistant\n");
    expect("chatml", NULL, 0, BARE, "");
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
    expect("llama3", talk, 4, OFF, LLAMA_SYSTEM LLAMA);
    expect("llama3.1", talk, 4, OFF,
           LLAMA_SYSTEM "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n" LLAMA);
    expect("llama3.1", talk, 4, (mo_chat_settings){.clock = "2025-03-09"},
           LLAMA_SYSTEM "Cutting Knowledge Date: December 2023\nToday Date: 09 Mar 2025\n\n" LLAMA);
    expect("llama3", talk + 3, 1, BARE,
           "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n2+2?<|eot_id|>");
    expect("llama3.1", talk + 3, 1, BARE,
           LLAMA_SYSTEM "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n<|eot_id|>"
                        "<|start_header_id|>user<|end_header_id|>\n\n2+2?<|eot_id|>");
    expect("mixtral", talk, 4, OFF, "<s> [INST] Be brief.\n\n Hi  [/INST] Hello!</s> [INST] 2+2? [/INST]");
}

static void gemma_is_written(void **state)
{
    (void)state;
    expect(
        "gemma", talk, 4, OFF,
        "<bos><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello!<end_of_turn>\n"
        "<start_of_turn>user\n2+2?<end_of_turn>\n<start_of_turn>model\n");
#define GEMMA4                                                                                               \
    "Be brief.<turn|>\n<|turn>user\nHi<turn|>\n<|turn>model\nHello!<turn|>\n<|turn>user\n2+2?<turn|>\n"      \
    "<|turn>model\n"
    expect("gemma4", talk, 4, ON, "<bos><|turn>system\n<|think|>\n" GEMMA4);
    expect("gemma4", talk, 4, OFF, "<bos><|turn>system\n" GEMMA4 "<|channel>thought\n<channel|>");
    const mo_message past[] = {{"user", "Hi"},
                               {"assistant", "<|channel>thought\nhm<channel|>Hel<|channel>x<channel|>lo! "}};
    expect("gemma4", past, 2, BARE, "<bos><|turn>user\nHi<turn|>\n<|turn>model\nHello!<turn|>\n");
}

static void glm_and_deepseek_are_written(void **state)
{
    (void)state;
    expect(
        "glm4.5", talk, 4, ON,
        "[gMASK]<sop><|system|>\nBe brief.<|user|>\n Hi <|assistant|>\n<think></think>\nHello!<|user|>\n2+2?"
        "<|assistant|>");
    expect("glm4.5", talk + 3, 1, OFF, "[gMASK]<sop><|user|>\n2+2?/nothink<|assistant|>\n<think></think>");
    expect("glm4.7", talk, 4, ON,
           "[gMASK]<sop><|system|>Be brief.<|user|> Hi "
           "<|assistant|></think>Hello!<|user|>2+2?<|assistant|><think>");
    expect("glm4.7", talk + 3, 1, OFF, "[gMASK]<sop><|user|>2+2?<|assistant|></think>");
#define DEEPSEEK                                                                                             \
    "<" BAR "begin" MARK "of" MARK "sentence" BAR ">Be brief.<" BAR "User" BAR "> Hi <" BAR "Assistant" BAR  \
    ">Hello!<" BAR "end" MARK "of" MARK "sentence" BAR "><" BAR "User" BAR ">2+2?<" BAR "Assistant" BAR ">"
    expect("deepseek3", talk, 4, OFF, DEEPSEEK);
    expect("deepseek3.2", talk, 4, OFF, DEEPSEEK "<think></think>");
    expect("deepseek3.2", talk, 4, ON, DEEPSEEK "<think>");
    expect("deepseek-r1", talk, 4, OFF, DEEPSEEK "<think>\n");
    expect("kimi", talk, 4, OFF,
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
    expect("harmony", talk, 4, (mo_chat_settings){.clock = "2026-01-31"},
           HARMONY "Current date: 2026-01-31\n\nReasoning: medium" CHANNELS TURNS);
    expect("harmony", talk, 4, (mo_chat_settings){.effort = "high"},
           HARMONY "\nReasoning: high" CHANNELS TURNS);
}

/* Formats that are marks around every message. */
static void turns_are_written(void **state)
{
    (void)state;
    expect("minimax-m2", talk, 4, ON,
           "]~!b[]~b]system\nBe brief.[e~[\n]~b]user\n Hi [e~[\n]~b]ai\nHello![e~[\n]~b]user\n2+2?[e~[\n"
           "]~b]ai\n<think>\n");
    expect("granite", talk, 4, ON,
           "<|start_of_role|>system<|end_of_role|>Be brief.<|end_of_text|>\n"
           "<|start_of_role|>user<|end_of_role|> Hi <|end_of_text|>\n"
           "<|start_of_role|>assistant<|end_of_role|>Hello!<|end_of_text|>\n"
           "<|start_of_role|>user<|end_of_role|>2+2?<|end_of_text|>\n"
           "<|start_of_role|>assistant<|end_of_role|>");
    expect("dots1", talk, 4, ON,
           "<|system|>Be brief.<|endofsystem|><|userprompt|> Hi <|endofuserprompt|><|response|>Hello!"
           "<|endofresponse|><|userprompt|>2+2?<|endofuserprompt|><|response|>");
    expect("laguna", talk, 4, ON,
           EOS_MARK "<system>\nBe brief.\n</system>\n<user>\n Hi \n</user>\n<assistant>\n</think>\nHello!\n"
                    "</assistant>\n<user>\n2+2?\n</user>\n<assistant>\n<think>");
    expect("laguna", talk + 3, 1, OFF, EOS_MARK "<user>\n2+2?\n</user>\n<assistant>\n</think>");
    expect("ling", talk + 3, 1, ON,
           "<role>SYSTEM</role>detailed thinking off<|role_end|><role>HUMAN</role>2+2?<|role_end|>"
           "<role>ASSISTANT</role>");
    expect("hunyuan", talk, 4, ON,
           "<|startoftext|>Be brief.<|extra_4|><|startoftext|> Hi <|extra_0|>Hello!<|eos|><|startoftext|>2+2?"
           "<|extra_0|>");
    expect("glm4", talk + 3, 1, ON, "[gMASK]<sop><|user|>\n2+2?<|assistant|>\n");
    expect("ernie", talk, 4, ON,
           "<|begin_of_sentence|>Be brief.\nUser:  Hi \nAssistant: Hello!<|end_of_sentence|>User: 2+2?\n"
           "Assistant: ");
    expect(
        "exaone-moe", talk, 4, ON,
        "<|system|>\nBe brief.<|endofturn|>\n<|user|>\nHi<|endofturn|>\n<|assistant|>\nHello!<|endofturn|>\n"
        "<|user|>\n2+2?<|endofturn|>\n<|assistant|>\n");
    expect("mistral-v7", talk, 4, ON,
           "<s>[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST] Hi [/INST]Hello!</s>[INST]2+2?[/INST]");
    expect("hy3", talk, 4, ON,
           "<" BAR "hy_begin_of_sentence:opensource" BAR ">Be brief.<" BAR "reasoning_mode:opensource" BAR
           ">reasoning_effort:high<" BAR "hy_User:opensource" BAR "> Hi <" BAR "hy_Assistant:opensource" BAR
           "><think:opensource></think:opensource>Hello!<" BAR "hy_eos:opensource" BAR "><" BAR
           "hy_User:opensource" BAR ">2+2?<" BAR "hy_Assistant:opensource" BAR "><think:opensource>");
    expect("hy3", talk + 3, 1, OFF,
           "<" BAR "hy_begin_of_sentence:opensource" BAR "><" BAR "reasoning_mode:opensource" BAR
           ">reasoning_effort:no_think<" BAR "hy_User:opensource" BAR ">2+2?<" BAR
           "hy_Assistant:opensource" BAR "><think:opensource></think:opensource>");
    expect("phi3", talk + 3, 1, ON, "<|user|>\n2+2?<|end|>\n<|assistant|>\n");
    expect("nemotron3", talk, 4, ON,
           "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n"
           "<|im_start|>assistant\n<think></think>Hello!<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n"
           "<|im_start|>assistant\n<think>\n");
    expect("nemotron3", talk + 3, 1, OFF,
           "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n<think></think>");
#define SAYS(who, what)                                                                                      \
    "<|START_OF_TURN_TOKEN|><|" who "_TOKEN|><|START_TEXT|>" what "<|END_TEXT|><|END_OF_TURN_TOKEN|>"
#define NORTH "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_THINKING|>"
    expect("cohere", talk, 4, ON,
           "<BOS_TOKEN>" SAYS("SYSTEM", "Be brief.") SAYS("USER", " Hi ") SAYS("CHATBOT", "Hello!")
               SAYS("USER", "2+2?") NORTH);
    expect("cohere", talk + 3, 1, OFF, "<BOS_TOKEN>" SAYS("USER", "2+2?") NORTH "<|END_THINKING|>");
    expect("jamba", talk, 4, ON,
           "<|startoftext|><|bom|><|system|> Be brief.<|eom|><|bom|><|user|>  Hi <|eom|><|bom|><|assistant|> "
           "Hello!"
           "<|eom|><|bom|><|user|> 2+2?<|eom|><|bom|><|assistant|>");
}

static void days_that_are_none_are_refused(void **state)
{
    static const char *const dates[] = {"2025",       "2025-13-01", "2025-00-01",
                                        "2025/01/01", "x025-01-01", "2025-01-01x"};
    mo_rendering r;
    mo_error err;
    (void)state;
    for (size_t i = 0; i < sizeof dates / sizeof *dates; i++) {
        assert_int_equal(render("llama3.1", talk, 4, (mo_chat_settings){.clock = dates[i]}, &r, &err),
                         MO_EINVAL);
        assert_null(r.text);
    }
}

/* ---- Recognizing ---- */

static const char *name_of(const mo_chat_format *f)
{
    return f ? f->name : "none";
}

/* What templates have that counts, newlines written as they write them. */
static void templates_are_recognized(void **state)
{
    static const struct {
        const char *text;
        const char *format;
    } table[] = {
        {"{{ '<|im_start|>' + role }}{% if add_generation_prompt %}<|im_start|>assistant\\n", "chatml"},
        {"<|im_start|>{% if add_generation_prompt %}{% if enable_thinking is false "
         "%}'<think>\\n\\n</think>\\n\\n'",
         "qwen3"},
        {"<|im_start|>'<think>\\n\\n</think>'{% if add_generation_prompt "
         "%}'<|im_start|>assistant\\n<think>\\n'",
         "qwen3-thinking"},
        {"<|im_start|>{% if add_generation_prompt %}'<think>\\n\\n</think>\\n\\n'{% else %}'<think>\\n'",
         "qwen3.5"},
        {"<|start_header_id|>", "llama3"},
        {"<|start_header_id|> Cutting Knowledge Date: December 2023", "llama3.1"},
        {"{{ '[INST] ' + content + ' [/INST]' }}", "mixtral"},
        {"<start_of_turn>", "gemma"},
        {"{{- '<|turn>system\\n' -}} <|channel>", "gemma4"},
        {"[gMASK]<sop>{% if add_generation_prompt %}<|assistant|>{{ '\\n<think></think>' }}", "glm4.5"},
        {"[gMASK]<sop>{% if add_generation_prompt %}<|assistant|>{{- '</think>' if x else '<think>' -}}",
         "glm4.7"},
        {"<" BAR "Assistant" BAR "> {% if add_generation_prompt %}", "deepseek3"},
        {"{% if add_generation_prompt %}<" BAR "Assistant" BAR "><think>\\n", "deepseek-r1"},
        {"<|start|>system<|message|> <|channel|>final", "harmony"},
        {"<|im_user|>user<|im_middle|>", "kimi"},
        {"{{ ']~!b[' }} ]~b]ai", "minimax-m2"},
        {"<|start_of_role|>", "granite"},
        {"<|userprompt|> <|endofuserprompt|>", "dots1"},
        {EOS_MARK "<system>\n </system> {{ '<assistant>\\n' }}", "laguna"},
        {"<role>HUMAN</role> <|role_end|>", "ling"},
        {"<|extra_0|> <|extra_4|>", "hunyuan"},
        {"<" BAR "hy_User:opensource" BAR "> <" BAR "hy_Assistant:opensource" BAR ">", "hy3"},
        {"[SYSTEM_PROMPT] [/SYSTEM_PROMPT] [INST]", "mistral-v7"},
        {"<|user|>\n <|endofturn|> <|assistant|>", "exaone-moe"},
        {"<|START_OF_TURN_TOKEN|> <|START_TEXT|>", "cohere"},
        {"<|im_start|>{% if add_generation_prompt %}{{ '<think>\\n' if x else '<think></think>' }}",
         "nemotron3"},
        {"[gMASK]<sop> <|observation|>", "glm4"},
        {"<|user|> <|end|> <|assistant|>", "phi3"},
        {"<|bom|><|user|> <|eom|>", "jamba"},
        {"{{ messages }}", "none"},
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
        assert_string_equal(name_of(mo_chat_detect(g, NULL)), table[i].format);
        mo_gguf_close(g);
    }
}

static void tokens_and_architectures_are_recognized(void **state)
{
    static const struct {
        const char *architecture, *tokens[4];
        const char *format;
    } table[] = {
        {"gpt-oss", {"<|start|>", "<|channel|>", "<|message|>"}, "harmony"},
        {"qwen3moe", {"<|im_start|>", "<think>"}, "qwen3"},
        {"qwen35moe", {"<|im_start|>", "<think>"}, "qwen3.5"},
        {"qwen3next", {"<|im_start|>", "<think>"}, "chatml"},
        {"llama", {"<|im_start|>"}, "chatml"},
        {"llama", {"<|start_header_id|>"}, "llama3"},
        {"llama", {"[INST]"}, "mixtral"},
        {"gemma4", {"<|turn>"}, "gemma4"},
        {"gemma3", {"<start_of_turn>"}, "gemma"},
        {"glm4moe", {"[gMASK]", "<|assistant|>"}, "glm4.5"},
        {"deepseek2", {"[gMASK]", "<|assistant|>"}, "glm4.7"},
        {"deepseek2", {"<" BAR "Assistant" BAR ">"}, "deepseek3"},
        {"deepseek32", {"<" BAR "Assistant" BAR ">"}, "deepseek3.2"},
        {"deepseek4", {"<" BAR "Assistant" BAR ">"}, "deepseek3.2"},
        {"glm-dsa", {"[gMASK]", "<|assistant|>"}, "glm4.7"},
        {"deepseek2", {"<|im_middle|>", "<|im_user|>"}, "kimi"},
        {"glm4", {"[gMASK]", "<|assistant|>", "<|observation|>"}, "glm4"},
        {"phimoe", {"<|assistant|>", "<|end|>"}, "phi3"},
        {"granitemoe", {"<|start_of_role|>"}, "granite"},
        {"step35", {"<|im_start|>", "<think>"}, "qwen3-thinking"},
        {"mimo2", {"<|im_start|>", "<think>"}, "chatml"},
        {"afmoe", {"<|im_start|>", "<think>"}, "chatml"},
        {"laguna", {EOS_MARK, "</assistant>", "<think>"}, "laguna"},
        {"qwen3vlmoe", {"<|im_start|>"}, "chatml"},
        {"mistral3", {"[SYSTEM_PROMPT]", "[INST]"}, "mistral-v7"},
        {"exaone-moe", {"<|endofturn|>", "<|assistant|>"}, "exaone-moe"},
        {"hy_v3", {"<" BAR "hy_Assistant:opensource" BAR ">"}, "hy3"},
        {"cohere2moe", {"<|START_OF_TURN_TOKEN|>", "<|START_TEXT|>"}, "cohere"},
        {"nemotron_h_moe", {"<|im_start|>", "<think>"}, "nemotron3"},
        {"nemotron_h", {"<|im_start|>"}, "chatml"},
        {"kimi-linear", {"<|im_middle|>", "<|im_user|>"}, "kimi"},
        {"bailingmoe3", {"<|role_end|>"}, "ling"},
        {"llama", {"<s>"}, "none"},
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
        assert_string_equal(name_of(mo_chat_detect(g, t)), table[i].format);
        mo_tokenizer_destroy(t);
        mo_gguf_close(g);
    }
    memset(&v, 0, sizeof v);
    v.architecture = "gpt-oss";
    toy_add(&v, "a", 1, 0);
    mo_gguf *g = toy_open(&v);
    assert_string_equal(name_of(mo_chat_detect(g, NULL)), "harmony");
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
        cmocka_unit_test(days_that_are_none_are_refused),
        cmocka_unit_test(templates_are_recognized),
        cmocka_unit_test(tokens_and_architectures_are_recognized),
    };
    return cmocka_run_group_tests_name("chat", tests, NULL, NULL);
}
