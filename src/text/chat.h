/* Chat: conversations as the text a model was trained on. The format is recognized by marks in the model's
 * own template, else by its special tokens, else by its architecture; tools are not rendered. For models whose file has no
 * template; the others' are rendered by it (template/).
 *
 * Tokenize the text with MO_TOKENIZE_CHAT, the messages' bytes marked; the answer ends at mo_token_is_end(). */
#ifndef MO_TEXT_CHAT_H
#define MO_TEXT_CHAT_H

#include "text/tokenizer.h"

typedef enum mo_chat_format {
    MO_CHAT_NONE,     /* not a chat model, or one whose format is not known */
    MO_CHAT_CHATML,   /* Qwen2, SmolLM2, ... */
    MO_CHAT_QWEN3,    /* ChatML, thinking can be turned off */
    MO_CHAT_QWEN3_ON, /* ChatML, always thinking (Qwen3 2507, Qwen3-Next Thinking) */
    MO_CHAT_QWEN35,   /* ChatML, the thought is opened by the prompt */
    MO_CHAT_LLAMA3,
    MO_CHAT_LLAMA31, /* with dates in the system turn */
    MO_CHAT_MIXTRAL,
    MO_CHAT_GEMMA, /* 1 to 3 */
    MO_CHAT_GEMMA4,
    MO_CHAT_GLM45,       /* 4.5 and 4.6 */
    MO_CHAT_GLM47,       /* 4.7: no newlines between the parts */
    MO_CHAT_DEEPSEEK3,   /* V3 */
    MO_CHAT_DEEPSEEK_R1, /* V3's, always thinking */
    MO_CHAT_HARMONY,     /* gpt-oss */
    /* Marks around every message (turns.h): */
    MO_CHAT_MINIMAX, /* M2 */
    MO_CHAT_GRANITE, /* 3 and 4 */
    MO_CHAT_DOTS,
    MO_CHAT_LING,    /* Ling and Ring 2.0 */
    MO_CHAT_HUNYUAN, /* A13B */
    MO_CHAT_HUNYUAN_DENSE,
    MO_CHAT_GLM4, /* the dense ones */
    MO_CHAT_ERNIE,
    MO_CHAT_PHI3, /* 3, 3.5 and 4 mini */
} mo_chat_format;

typedef enum mo_chat_role { MO_CHAT_SYSTEM, MO_CHAT_USER, MO_CHAT_ASSISTANT } mo_chat_role;

typedef struct mo_chat_message {
    mo_chat_role role;
    const char *
        content; /* terminated, NULL for empty; an assistant's may have its reasoning in it, which is left out */
} mo_chat_message;

/* mo_chat_options are those of moraine.h, but for the date: NULL is none, harmony leaves it out then, Llama 3.1 says what
 * it always says. */

/* The format of a model. t may be NULL (then only template and architecture count). Cannot fail. */
mo_chat_format mo_chat_detect(const mo_gguf *g, const mo_tokenizer *t);

/* "chatml", "harmony", ...; "none". A constant. */
const char *mo_chat_format_name(mo_chat_format format);

/* The role of that name. False: there is none. */
bool mo_chat_role_find(const char *name, mo_chat_role *out);

/* Renders the conversation; *text is terminated and freed by the caller with free(), and so is *input, which has for each byte
 * whether it is a message's (input may be NULL). MO_EUNSUPPORTED for
 * MO_CHAT_NONE, MO_EINVAL for a conversation that makes no sense (a system message that is not the first,
 * an unknown effort or date). */
mo_status mo_chat_render(mo_chat_format format, const mo_chat_message *messages, size_t count,
                         const mo_chat_options *options, char **text, size_t *length, uint8_t **input,
                         mo_error *err);

#endif
