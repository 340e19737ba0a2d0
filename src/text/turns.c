#include "text/turns.h"

#include <stddef.h>

#define BAR  "\xEF\xBD\x9C" /* U+FF5C */
#define MARK "\xE2\x96\x81" /* U+2581 */

/* In the order in which they are looked for: the marks of the first are the rarest. Templates that spell "[gMASK]" are told apart
 * before these are asked. */
static const mo_turns table[] = {
    {.format = MO_CHAT_KIMI,
     .mark = {"<|im_middle|>", NULL},
     .begin = "",
     .open = {"<|im_system|>system<|im_middle|>", "<|im_user|>user<|im_middle|>",
              "<|im_assistant|>assistant<|im_middle|>"},
     .close = {"<|im_end|>", "<|im_end|>", "<|im_end|>"},
     .prompt = "<|im_assistant|>assistant<|im_middle|>",
     .default_system = "You are Kimi, an AI assistant created by Moonshot AI."},
    {.format = MO_CHAT_MINIMAX,
     .mark = {"]~b]", "]~!b["},
     .begin = "]~!b[",
     .open = {"]~b]system\n", "]~b]user\n", "]~b]ai\n"},
     .close = {"[e~[\n", "[e~[\n", "[e~[\n"},
     .prompt = "]~b]ai\n<think>\n"},
    {.format = MO_CHAT_GRANITE,
     .mark = {"<|start_of_role|>", NULL},
     .begin = "",
     .open = {"<|start_of_role|>system<|end_of_role|>", "<|start_of_role|>user<|end_of_role|>",
              "<|start_of_role|>assistant<|end_of_role|>"},
     .close = {"<|end_of_text|>\n", "<|end_of_text|>\n", "<|end_of_text|>\n"},
     .prompt = "<|start_of_role|>assistant<|end_of_role|>"},
    {.format = MO_CHAT_DOTS,
     .mark = {"<|endofuserprompt|>", NULL},
     .begin = "",
     .open = {"<|system|>", "<|userprompt|>", "<|response|>"},
     .close = {"<|endofsystem|>", "<|endofuserprompt|>", "<|endofresponse|>"},
     .prompt = "<|response|>"},
    {.format = MO_CHAT_LING,
     .mark = {"<|role_end|>", NULL},
     .begin = "",
     .open = {"<role>SYSTEM</role>", "<role>HUMAN</role>", "<role>ASSISTANT</role>"},
     .close = {"<|role_end|>", "<|role_end|>", "<|role_end|>"},
     .prompt = "<role>ASSISTANT</role>",
     .default_system = "detailed thinking off"},
    {.format = MO_CHAT_HUNYUAN,
     .mark = {"<|extra_0|>", "<|extra_4|>"},
     .begin = "",
     .open = {"<|startoftext|>", "<|startoftext|>", ""},
     .close = {"<|extra_4|>", "<|extra_0|>", "<|eos|>"},
     .prompt = ""},
    {.format = MO_CHAT_HUNYUAN_DENSE,
     .mark = {"<" BAR "hy_Assistant" BAR ">", NULL},
     .begin = "<" BAR "hy_begin" MARK "of" MARK "sentence" BAR ">",
     .open = {"", "<" BAR "hy_User" BAR ">", "<" BAR "hy_Assistant" BAR ">"},
     .close = {"<" BAR "hy_place" MARK "holder" MARK "no" MARK "3" BAR ">", "",
               "<" BAR "hy_place" MARK "holder" MARK "no" MARK "2" BAR ">"},
     .prompt = "<" BAR "hy_Assistant" BAR ">"},
    {.format = MO_CHAT_JAMBA,
     .mark = {"<|bom|>", "<|eom|>"},
     .begin = "<|startoftext|>",
     .open = {"<|bom|><|system|> ", "<|bom|><|user|> ", "<|bom|><|assistant|> "},
     .close = {"<|eom|>", "<|eom|>", "<|eom|>"},
     .prompt = "<|bom|><|assistant|>"},
    {.format = MO_CHAT_GLM4,
     .mark = {"[gMASK]", "<|observation|>"},
     .begin = "[gMASK]<sop>",
     .open = {"<|system|>\n", "<|user|>\n", "<|assistant|>\n"},
     .close = {"", "", ""},
     .prompt = "<|assistant|>\n"},
    {.format = MO_CHAT_ERNIE,
     .mark = {"<|begin_of_sentence|>", "<|end_of_sentence|>"},
     .begin = "<|begin_of_sentence|>",
     .open = {"", "User: ", "Assistant: "},
     .close = {"\n", "\n", "<|end_of_sentence|>"},
     .prompt = "Assistant: "},
    {.format = MO_CHAT_PHI3,
     .mark = {"<|end|>", "<|assistant|>"},
     .begin = "",
     .open = {"<|system|>\n", "<|user|>\n", "<|assistant|>\n"},
     .close = {"<|end|>\n", "<|end|>\n", "<|end|>\n"},
     .prompt = "<|assistant|>\n"},
};

enum { TURNS = sizeof table / sizeof *table };

const mo_turns *mo_turns_at(int index)
{
    return index >= 0 && index < TURNS ? &table[index] : NULL;
}

const mo_turns *mo_turns_of(mo_chat_format format)
{
    for (int i = 0; i < TURNS; i++) {
        if (table[i].format == format) {
            return &table[i];
        }
    }
    return NULL;
}
