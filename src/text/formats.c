/* Chat formats: the table, and recognizing the format of a model. */
#include "text/formats.h"

#include <string.h>

#define BAR  "\xEF\xBD\x9C"                  /* U+FF5C, in tokens of DeepSeek and Hunyuan */
#define MARK "\xE2\x96\x81"                  /* U+2581 */
#define EOS  "\xE3\x80\x88|EOS|\xE3\x80\x89" /* Laguna's; also begins a conversation */

/* ---- Parts of templates ---- */

/* Strips ASCII white space. Escaped for Jinja, which reads a carriage return in a template as a newline. */
#define BARE ".strip(' \\t\\n\\v\\f\\r')"
/* The part of an answer after the last </think>, without its leading newlines. */
#define TEXT                                                                                                 \
    "{% set text = m.content %}{% if m.role == 'assistant' and '</think>' in text %}"                        \
    "{% set text = text.rpartition('</think>')[2].lstrip('\n') %}{% endif %}"

#define EACH      "{% for m in messages %}"
#define SYSTEM    "{% if m.role == 'system' %}"
#define USER      "{% elif m.role == 'user' %}"
#define ASSISTANT "{% else %}"
#define END       "{% endif %}{% endfor %}"
#define PROMPT(x) "{% if add_generation_prompt %}" x "{% endif %}"

/* Every message is only enclosed in marks. */
#define TURNS(system, system_end, user, user_end, assistant, assistant_end)                                  \
    EACH TEXT SYSTEM system "{{ text }}" system_end USER user "{{ text }}" user_end ASSISTANT assistant      \
                            "{{ text }}" assistant_end END
/* The same, with the role's name written before the message. */
#define NAMED(before, after, end) EACH TEXT before "{{ m.role }}" after "{{ text }}" end "{% endfor %}"
/* If the conversation does not begin with a system message. */
#define WITHOUT_SYSTEM(x) "{% if not messages or messages[0].role != 'system' %}" x "{% endif %}"

#define IM         "<|im_start|>{{ m.role }}\n"
#define IM_END     "<|im_end|>\n{% endfor %}"
#define NO_THOUGHT "<think>\n\n</think>\n\n"
#define LLAMA(before)                                                                                        \
    EACH "<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n" before "{{ m.content" BARE                   \
         " }}<|eot_id|>{% endfor %}" PROMPT("<|start_header_id|>assistant<|end_header_id|>\n\n")
#define DEEPSEEK                                                                                             \
    "<" BAR "begin" MARK "of" MARK "sentence" BAR                                                            \
    ">" TURNS("", "", "<" BAR "User" BAR ">", "", "<" BAR "Assistant" BAR ">",                               \
              "<" BAR "end" MARK "of" MARK "sentence" BAR ">")

#define TURN     "<|START_OF_TURN_TOKEN|>"
#define SAID     "<|START_TEXT|>"
#define SAID_END "<|END_TEXT|><|END_OF_TURN_TOKEN|>"

/* ---- The table ---- */

/* In the order of recognition. Templates write a newline as two characters. */
static const mo_chat_format table[] = {
    {.name = "harmony",
     .other_name = "gpt-oss",
     .marks = {"<|start|>", "<|channel|>"},
     .tokens = {"<|start|>", "<|channel|>", "<|message|>"},
     .architectures = "gpt-oss",
     .text = "{% set date = strftime_now('%Y-%m-%d') %}"
             "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
             "Knowledge cutoff: 2024-06\n"
             "{{ 'Current date: ' ~ date ~ '\n' if date }}"
             "\nReasoning: {{ reasoning_effort | default('medium') }}\n\n"
             "# Valid channels: analysis, commentary, final. Channel must be included for every "
             "message.<|end|>" EACH SYSTEM
             "<|start|>developer<|message|># Instructions\n\n{{ m.content }}\n\n<|end|>" USER
             "<|start|>user<|message|>{{ m.content }}<|end|>" ASSISTANT
             "<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>" END PROMPT(
                 "<|start|>assistant")},
    {.name = "qwen3.5",
     .marks = {"<|im_start|>"},
     .in_prompt = {"<think>\\n", "<think>\\n\\n</think>"},
     .tokens = {"<|im_start|>", "<think>"},
     .only = "qwen35*",
     .architectures = "qwen35 qwen35moe",
     .text = EACH TEXT IM
     "{{ text" BARE " }}" IM_END PROMPT("<|im_start|>assistant\n{% if enable_thinking is false %}" NO_THOUGHT
                                        "{% else %}<think>\n{% endif %}")},
    {.name = "qwen3",
     .marks = {"<|im_start|>"},
     .in_prompt = {"<think>\\n\\n</think>"},
     .tokens = {"<|im_start|>", "<think>"},
     .only = "qwen3 qwen3moe",
     .architectures = "qwen3 qwen3moe",
     .text = EACH TEXT IM "{{ text }}" IM_END PROMPT(
         "<|im_start|>assistant\n{% if enable_thinking is false %}" NO_THOUGHT "{% endif %}")},
    /* An answer without reasoning gets an empty <think></think> without newlines. */
    {.name = "nemotron3",
     .marks = {"<|im_start|>"},
     .in_prompt = {"<think>\\n", "<think></think>"},
     .tokens = {"<|im_start|>", "<think>"},
     .only = "nemotron_h_moe",
     .architectures = "nemotron_h_moe",
     .text = EACH TEXT IM "{{ '<think></think>' if m.role == 'assistant' }}{{ text }}" IM_END PROMPT(
         "<|im_start|>assistant\n<think>{{ '</think>' if enable_thinking is false else '\n' }}")},
    {.name = "qwen3-thinking",
     .marks = {"<|im_start|>"},
     .in_prompt = {"<think>\\n"},
     .tokens = {"<|im_start|>", "<think>"},
     .only = "step35",
     .architectures = "step35",
     .text = EACH TEXT IM "{{ text }}" IM_END PROMPT("<|im_start|>assistant\n<think>\n")},
    {.name = "chatml",
     .marks = {"<|im_start|>"},
     .tokens = {"<|im_start|>"},
     .architectures = "qwen2 qwen2moe qwen3next qwen3vlmoe lfm2 lfm2moe afmoe mimo2",
     .text = EACH IM "{{ m.content }}" IM_END PROMPT("<|im_start|>assistant\n")},
    {.name = "llama3.1",
     .marks = {"<|start_header_id|>", "Cutting Knowledge Date"},
     .text = "{% set today %}Cutting Knowledge Date: December 2023\n"
             "Today Date: {{ strftime_now('%d %b %Y') or '26 Jul 2024' }}\n\n{% endset %}"
             "<|begin_of_text|>" WITHOUT_SYSTEM(
                 "<|start_header_id|>system<|end_header_id|>\n\n{{ today }}<|eot_id|>")
                 LLAMA("{{ today if m.role == 'system' }}")},
    {.name = "llama3",
     .marks = {"<|start_header_id|>"},
     .tokens = {"<|start_header_id|>"},
     .text = "<|begin_of_text|>" LLAMA("")},
    {.name = "gemma4",
     .marks = {"<|turn>"},
     .tokens = {"<|turn>"},
     .architectures = "gemma4",
     .text =
         "<bos>{% set told = messages and messages[0].role == 'system' %}"
         "{% if told or enable_thinking is true %}"
         "<|turn>system\n{{ '<|think|>\n' if enable_thinking is true }}"
         "{{ messages[0].content" BARE " if told }}<turn|>\n{% endif %}"
         "{% for m in messages if m.role != 'system' %}"
         "{% if m.role == 'assistant' %}<|turn>model\n"
         "{% set answer %}{% for part in m.content.split('<|channel>') %}"
         "{{ part if loop.first else part.partition('<channel|>')[2] }}{% endfor %}{% endset %}"
         "{{ answer" BARE " }}"
         "{% else %}<|turn>user\n{{ m.content" BARE " }}{% endif %}<turn|>\n{% endfor %}" PROMPT(
             "<|turn>model\n{% if not enable_thinking is true %}<|channel>thought\n<channel|>{% endif %}")},
    {.name = "gemma",
     .marks = {"<start_of_turn>"},
     .tokens = {"<start_of_turn>"},
     .architectures = "gemma gemma2 gemma3",
     .text = "<bos>{% for m in messages if m.role != 'system' %}"
             "<start_of_turn>{{ 'model' if m.role == 'assistant' else 'user' }}\n"
             "{{ messages[0].content ~ '\n\n' if loop.first and messages[0].role == 'system' }}"
             "{{ m.content" BARE " }}<end_of_turn>\n{% endfor %}" PROMPT("<start_of_turn>model\n")},
    {.name = "glm4.7",
     .marks = {"[gMASK]", "think>"},
     .in_prompt = {"'</think>'"},
     .tokens = {"[gMASK]", "<|assistant|>"},
     .only = "deepseek2 glm-dsa",
     .architectures = "glm-dsa",
     .text = "[gMASK]<sop>" EACH TEXT SYSTEM "<|system|>{{ text }}" USER "<|user|>{{ text }}" ASSISTANT
             "<|assistant|></think>{{ text" BARE
             " }}" END PROMPT("<|assistant|>{{ '</think>' if enable_thinking is false else '<think>' }}")},
    {.name = "glm4.5",
     .marks = {"[gMASK]", "think>"},
     .tokens = {"[gMASK]", "<|assistant|>"},
     .never = "glm4",
     .architectures = "glm4moe",
     .text =
         "[gMASK]<sop>" EACH TEXT SYSTEM "<|system|>\n{{ text }}" USER
         "<|user|>\n{{ text }}{{ '/nothink' if enable_thinking is false }}" ASSISTANT
         "{% set text = text" BARE " %}<|assistant|>\n<think></think>{{ '\n' if text }}{{ text }}" END PROMPT(
             "<|assistant|>{{ '\n<think></think>' if enable_thinking is false }}")},
    {.name = "deepseek3.2",
     .marks = {"<" BAR "Assistant" BAR ">", "DSML"},
     .tokens = {"<" BAR "Assistant" BAR ">"},
     .only = "deepseek32 deepseek4",
     .architectures = "deepseek32 deepseek4",
     .text = DEEPSEEK PROMPT("<" BAR "Assistant" BAR
                             ">{{ '<think></think>' if enable_thinking is false else '<think>' }}")},
    {.name = "deepseek-r1",
     .marks = {"<" BAR "Assistant" BAR ">"},
     .in_prompt = {"<think>"},
     .text = DEEPSEEK PROMPT("<" BAR "Assistant" BAR "><think>\n")},
    {.name = "deepseek3",
     .marks = {"<" BAR "Assistant" BAR ">"},
     .tokens = {"<" BAR "Assistant" BAR ">"},
     .architectures = "deepseek2",
     .text = DEEPSEEK PROMPT("<" BAR "Assistant" BAR ">")},
    {.name = "kimi",
     .other_name = "kimi-k2",
     .marks = {"<|im_middle|>"},
     .tokens = {"<|im_middle|>"},
     .architectures = "kimi-linear",
     .text = WITHOUT_SYSTEM("<|im_system|>system<|im_middle|>"
                            "You are Kimi, an AI assistant created by Moonshot AI.<|im_end|>")
         NAMED("<|im_{{ m.role }}|>", "<|im_middle|>", "<|im_end|>")
             PROMPT("<|im_assistant|>assistant<|im_middle|>")},
    {.name = "minimax-m2",
     .marks = {"]~b]", "]~!b["},
     .tokens = {"]~b]", "]~!b["},
     .architectures = "minimax-m2",
     .text = "]~!b[" TURNS("]~b]system\n", "[e~[\n", "]~b]user\n", "[e~[\n", "]~b]ai\n", "[e~[\n")
         PROMPT("]~b]ai\n<think>\n")},
    {.name = "granite",
     .marks = {"<|start_of_role|>"},
     .tokens = {"<|start_of_role|>"},
     .architectures = "granite granitemoe granitehybrid",
     .text = NAMED("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>\n")
         PROMPT("<|start_of_role|>assistant<|end_of_role|>")},
    {.name = "dots1",
     .marks = {"<|endofuserprompt|>"},
     .tokens = {"<|endofuserprompt|>"},
     .architectures = "dots1",
     .text = TURNS("<|system|>", "<|endofsystem|>", "<|userprompt|>", "<|endofuserprompt|>", "<|response|>",
                   "<|endofresponse|>") PROMPT("<|response|>")},
    {.name = "laguna",
     .marks = {EOS, "<assistant>"},
     .tokens = {EOS, "</assistant>"},
     .architectures = "laguna",
     .text = EOS TURNS("<system>\n", "\n</system>\n", "<user>\n", "\n</user>\n", "<assistant>\n</think>\n",
                       "\n</assistant>\n")
         PROMPT("<assistant>\n{{ '</think>' if enable_thinking is false else '<think>' }}")},
    {.name = "ling",
     .other_name = "bailing2",
     .marks = {"<|role_end|>"},
     .tokens = {"<|role_end|>"},
     .architectures = "bailingmoe2 bailingmoe3",
     .text = WITHOUT_SYSTEM("<role>SYSTEM</role>detailed thinking off<|role_end|>")
         TURNS("<role>SYSTEM</role>", "<|role_end|>", "<role>HUMAN</role>", "<|role_end|>",
               "<role>ASSISTANT</role>", "<|role_end|>") PROMPT("<role>ASSISTANT</role>")},
    {.name = "hunyuan",
     .other_name = "hunyuan-moe",
     .marks = {"<|extra_0|>", "<|extra_4|>"},
     .tokens = {"<|extra_0|>", "<|extra_4|>"},
     .architectures = "hunyuan-moe",
     .text = TURNS("<|startoftext|>", "<|extra_4|>", "<|startoftext|>", "<|extra_0|>", "", "<|eos|>")},
    /* Reasoning only on request. */
    {.name = "hy3",
     .marks = {"<" BAR "hy_Assistant:opensource" BAR ">"},
     .tokens = {"<" BAR "hy_Assistant:opensource" BAR ">"},
     .architectures = "hy_v3",
     .text =
         "{% set effort = reasoning_effort | default('high' if enable_thinking is true else 'no_think') %}"
         "<" BAR "hy_begin_of_sentence:opensource" BAR ">" EACH SYSTEM "{{ m.content }}" END "<" BAR
         "reasoning_mode:opensource" BAR ">reasoning_effort:{{ effort }}"
         "{% for m in messages if m.role != 'system' %}{% if m.role == 'user' %}"
         "<" BAR "hy_User:opensource" BAR ">{{ m.content }}{% else %}"
         "<" BAR "hy_Assistant:opensource" BAR "><think:opensource></think:opensource>"
         "{{ m.content.rpartition('</think:opensource>')[2] }}<" BAR "hy_eos:opensource" BAR ">"
         "{% endif %}{% endfor %}" PROMPT("<" BAR "hy_Assistant:opensource" BAR "><think:opensource>"
                                          "{{ '</think:opensource>' if effort == 'no_think' }}")},
    {.name = "hunyuan-dense",
     .marks = {"<" BAR "hy_Assistant" BAR ">"},
     .tokens = {"<" BAR "hy_Assistant" BAR ">"},
     .architectures = "hunyuan-dense",
     .text = "<" BAR "hy_begin" MARK "of" MARK "sentence" BAR ">" TURNS(
         "", "<" BAR "hy_place" MARK "holder" MARK "no" MARK "3" BAR ">", "<" BAR "hy_User" BAR ">", "",
         "<" BAR "hy_Assistant" BAR ">", "<" BAR "hy_place" MARK "holder" MARK "no" MARK "2" BAR ">")
         PROMPT("<" BAR "hy_Assistant" BAR ">")},
    {.name = "cohere",
     .other_name = "north",
     .marks = {"<|START_OF_TURN_TOKEN|>", "<|START_TEXT|>"},
     .tokens = {"<|START_OF_TURN_TOKEN|>", "<|START_TEXT|>"},
     .architectures = "cohere2moe",
     .text = "<BOS_TOKEN>" TURNS(TURN "<|SYSTEM_TOKEN|>" SAID, SAID_END, TURN "<|USER_TOKEN|>" SAID, SAID_END,
                                 TURN "<|CHATBOT_TOKEN|>" SAID, SAID_END)
         PROMPT(TURN
                "<|CHATBOT_TOKEN|><|START_THINKING|>{{ '<|END_THINKING|>' if enable_thinking is false }}")},
    {.name = "jamba",
     .marks = {"<|bom|>", "<|eom|>"},
     .tokens = {"<|bom|>", "<|eom|>"},
     .architectures = "jamba",
     .text = "<|startoftext|>" NAMED("<|bom|><|", "|> ", "<|eom|>") PROMPT("<|bom|><|assistant|>")},
    {.name = "glm4",
     .other_name = "chatglm4",
     .marks = {"[gMASK]", "<|observation|>"},
     .tokens = {"[gMASK]", "<|observation|>"},
     .architectures = "glm4",
     .text = "[gMASK]<sop>" NAMED("<|", "|>\n", "") PROMPT("<|assistant|>\n")},
    {.name = "ernie",
     .marks = {"<|begin_of_sentence|>", "<|end_of_sentence|>"},
     .tokens = {"<|begin_of_sentence|>", "<|end_of_sentence|>"},
     .architectures = "ernie4_5 ernie4_5-moe",
     .text = "<|begin_of_sentence|>" TURNS("", "\n", "User: ", "\n", "Assistant: ", "<|end_of_sentence|>")
         PROMPT("Assistant: ")},
    {.name = "phi3",
     .marks = {"<|end|>", "<|assistant|>"},
     .tokens = {"<|end|>", "<|assistant|>"},
     .architectures = "phi3 phimoe",
     .text = NAMED("<|", "|>\n", "<|end|>\n") PROMPT("<|assistant|>\n")},
    {.name = "exaone-moe",
     .marks = {"<|endofturn|>", "<|assistant|>"},
     .tokens = {"<|endofturn|>", "<|assistant|>"},
     .architectures = "exaone-moe",
     .text = EACH TEXT "<|{{ m.role }}|>\n{{ text" BARE
                       " }}<|endofturn|>\n{% endfor %}" PROMPT("<|assistant|>\n")},
    {.name = "mistral-v7",
     .other_name = "mistral-v7-tekken",
     .marks = {"[SYSTEM_PROMPT]"},
     .tokens = {"[SYSTEM_PROMPT]", "[INST]"},
     .architectures = "mistral3 mistral4",
     .text = "<s>" TURNS("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[INST]", "[/INST]", "", "</s>")},
    {.name = "mixtral",
     .other_name = "mistral-v1",
     .marks = {"[INST]"},
     .tokens = {"[INST]"},
     .text =
         "<s>{% set first = namespace(system=none) %}" EACH SYSTEM "{% set first.system = m.content %}" USER
         " [INST] {{ first.system ~ '\n\n' if first.system is not none }}{{ m.content }} [/INST]"
         "{% set first.system = none %}" ASSISTANT " {{ m.content }}</s>" END},
};

const mo_chat_format *mo_chat_format_at(size_t index)
{
    return index < sizeof table / sizeof *table ? &table[index] : NULL;
}

const mo_chat_format *mo_chat_format_find(const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i].name, name) == 0 ||
            (table[i].other_name && strcmp(table[i].other_name, name) == 0)) {
            return &table[i];
        }
    }
    return NULL;
}

/* ---- Recognizing ---- */

/* The part of a template that begins the answer: after its last condition on add_generation_prompt. */
static const char *prompt_part(const char *template)
{
    const char *part = "";
    for (const char *p = template; (p = strstr(p, "add_generation_prompt")) != NULL; p++) {
        part = p;
    }
    return part;
}

/* An opening mark of reasoning counts only if it is not closed immediately. */
static bool has(const char *text, const char *mark)
{
    const bool opening = strcmp(mark, "<think>\\n") == 0;
    const char *p = strstr(text, mark);
    while (p && opening && strncmp(p, "<think>\\n\\n</think>", 18) == 0) {
        p = strstr(p + 1, mark);
    }
    return p != NULL;
}

static bool writes(const char *template, const mo_chat_format *f)
{
    const char *part = prompt_part(template);
    bool all = f->marks[0] != NULL;
    for (int i = 0; i < 2 && all; i++) {
        all =
            (!f->marks[i] || has(template, f->marks[i])) && (!f->in_prompt[i] || has(part, f->in_prompt[i]));
    }
    return all;
}

/* Is the name in the list? A word that ends with a star matches as a prefix. */
static bool listed(const char *name, const char *list)
{
    for (const char *p = list; p && *p; p += strspn(p, " ")) {
        const size_t n = strcspn(p, " ");
        if (p[n - 1] == '*' ? !strncmp(name, p, n - 1) : strlen(name) == n && !memcmp(name, p, n)) {
            return true;
        }
        p += n;
    }
    return false;
}

static bool speaks(const mo_tokenizer *t, const char *architecture, const mo_chat_format *f)
{
    bool all = f->tokens[0] && (!f->only || listed(architecture, f->only)) && !listed(architecture, f->never);
    for (int i = 0; i < 3 && all; i++) {
        all = !f->tokens[i] || mo_token_find(t, f->tokens[i]) >= 0;
    }
    return all;
}

/* A vocabulary without chat tokens is a base model's, so the architecture only counts without a
   vocabulary. */
const mo_chat_format *mo_chat_detect(const mo_gguf *g, const mo_tokenizer *t)
{
    const char *template = "", *architecture = "";
    (void)mo_gguf_string_or(g, "tokenizer.chat_template", "", &template, NULL);
    (void)mo_gguf_string_or(g, "general.architecture", "", &architecture, NULL);
    for (size_t i = 0; mo_chat_format_at(i); i++) {
        if (writes(template, &table[i])) {
            return &table[i];
        }
    }
    for (size_t i = 0; mo_chat_format_at(i); i++) {
        if (t ? speaks(t, architecture, &table[i]) : listed(architecture, table[i].architectures)) {
            return &table[i];
        }
    }
    return NULL;
}
