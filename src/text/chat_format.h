/* Chat formats: their numbers, and the roles of messages. */
#ifndef MO_TEXT_CHAT_FORMAT_H
#define MO_TEXT_CHAT_FORMAT_H

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
    MO_CHAT_KIMI,    /* K2 */
    MO_CHAT_MINIMAX, /* M2 */
    MO_CHAT_GRANITE, /* 3 and 4 */
    MO_CHAT_DOTS,
    MO_CHAT_LING,    /* Ling and Ring 2.0 */
    MO_CHAT_HUNYUAN, /* A13B */
    MO_CHAT_HUNYUAN_DENSE,
    MO_CHAT_GLM4, /* the dense ones */
    MO_CHAT_ERNIE,
    MO_CHAT_PHI3,  /* 3, 3.5 and 4 mini */
    MO_CHAT_JAMBA, /* 1.5 and later */
} mo_chat_format;

typedef enum mo_chat_role { MO_CHAT_SYSTEM, MO_CHAT_USER, MO_CHAT_ASSISTANT } mo_chat_role;

#endif
