/* Style: how a kind of models writes thoughts and tool calls: its marks, and what stands between them. Which one a model is
 * of is decided here, from its template and its vocabulary, and nowhere else. */
#ifndef MO_DIALOGUE_STYLE_H
#define MO_DIALOGUE_STYLE_H

#include "text/tokenizer.h"

/* What a mark means. A text may have several roles: which one counts depends on what is being read. */
typedef enum mo_role {
    MO_ROLE_THOUGHT_OPEN = 1 << 0,
    MO_ROLE_THOUGHT_CLOSE = 1 << 1,
    MO_ROLE_AROUND_ANSWER = 1 << 2, /* stands around the answer of a model that has thought */
    MO_ROLE_SECTION_OPEN = 1 << 3,  /* around one or several calls */
    MO_ROLE_SECTION_CLOSE = 1 << 4,
    MO_ROLE_CALL_OPEN = 1 << 5, /* the function's name follows */
    MO_ROLE_NAME_CLOSE = 1 << 6,
    MO_ROLE_ID_OPEN = 1 << 7, /* after the name: the call's id follows */
    MO_ROLE_CALL_CLOSE = 1 << 8,
    MO_ROLE_KEY_OPEN = 1 << 9,
    MO_ROLE_KEY_CLOSE = 1 << 10,
    MO_ROLE_KEY_CLOSE_TEXT = 1 << 11, /* the value is a string */
    MO_ROLE_KEY_CLOSE_JSON = 1 << 12, /* it is none */
    MO_ROLE_VALUE_OPEN = 1 << 13,     /* where the key has a closing mark of its own */
    MO_ROLE_VALUE_CLOSE = 1 << 14,
    MO_ROLE_QUOTE = 1 << 15,  /* gemma4: around strings */
    MO_ROLE_PYTHON = 1 << 16, /* llama3: a call of a built-in tool, as Python or JSON */
    MO_ROLE_FENCE = 1 << 17,  /* of Markdown, around a call without other marks */
    MO_ROLE_START = 1 << 18,  /* harmony: a message's header begins */
    MO_ROLE_CHANNEL = 1 << 19,
    MO_ROLE_CONSTRAIN = 1 << 20,
    MO_ROLE_MESSAGE = 1 << 21, /* the header is over */
    MO_ROLE_END = 1 << 22,     /* the message is over */
} mo_role;

typedef struct mo_mark {
    mo_role role;
    const char *text;
} mo_mark;

typedef enum mo_style_id {
    MO_STYLE_HERMES,
    MO_STYLE_CODER,
    MO_STYLE_SEED,
    MO_STYLE_HARMONY,
    MO_STYLE_GLM,
    MO_STYLE_DEEPSEEK3,
    MO_STYLE_DEEPSEEK31,
    MO_STYLE_DSML,  /* DeepSeek V3.2 */
    MO_STYLE_DSML4, /* DeepSeek V4: the section has another name */
    MO_STYLE_LLAMA3,
    MO_STYLE_GEMMA4,
    MO_STYLE_MINIMAX,
    MO_STYLE_HY,
    MO_STYLE_COHERE,
    MO_STYLE_KIMI,
    MO_STYLE_MISTRAL,  /* a list of objects */
    MO_STYLE_MISTRAL3, /* name and arguments between marks */
    MO_STYLE_GRANITE,
    MO_STYLE_JAMBA,
    MO_STYLE_LFM2, /* a list of calls as Python writes them */
    MO_STYLE_PHI4,
    MO_STYLE_GENERIC,
    MO_STYLES
} mo_style_id;

typedef enum mo_call_id_form {
    MO_CALL_ID_USUAL,
    MO_CALL_ID_NINE, /* nine letters and digits */
    MO_CALL_ID_KIMI, /* functions.NAME:INDEX */
} mo_call_id_form;

typedef struct mo_style {
    const char *name;
    const mo_mark *marks; /* of calls; ends with a text of NULL */
    bool objects;         /* within a section a call may be an object {"name", "arguments"} */
    bool bare;            /* such an object may also begin a line, or stand in a fence */
    bool bare_name;       /* within a section the name follows at once */
    bool python;          /* within a section a call may be NAME(KEY=VALUE, ...), and calls a list */
    bool trims_values;    /* one newline at either end of a value is not part of it */
    mo_call_id_form ids;
} mo_style;

/* Marks of thoughts. */
typedef struct mo_thought {
    const char *open, *close; /* NULL: none */
    bool named;               /* a line with the channel's name follows the opening mark */
    const char *around[2];    /* of the answer; NULL: none */
} mo_thought;

/* How one model writes. */
typedef struct mo_dialogue {
    mo_style_id id;
    const mo_style *style;
    const mo_thought *thought; /* NULL: the model does not think, or by channels (harmony) */
    bool shows_tools;          /* its template does */
} mo_dialogue;

/* Cannot fail: what is not known is the generic way. template: "" where there is none; shows_tools: as rendering it has shown; t may be
 * NULL. */
mo_dialogue mo_dialogue_detect(const char *template_text, bool shows_tools, const mo_tokenizer *t);

const mo_style *mo_style_get(mo_style_id id);

/* The style of calls: the model's own, or the generic one where its template shows no tools. DeepSeek's templates write calls and
 * leave it to the system text to show tools. */
static inline mo_style_id mo_dialogue_calls(const mo_dialogue *d)
{
    return d->shows_tools || d->id == MO_STYLE_HARMONY || d->id == MO_STYLE_DEEPSEEK3 ||
                   d->id == MO_STYLE_DEEPSEEK31
               ? d->id
               : MO_STYLE_GENERIC;
}

/* May a JSON object be a call although no mark says so? Also where tools were shown in the generic way. */
static inline bool mo_dialogue_bare(const mo_dialogue *d)
{
    return d->style->bare || (!d->shows_tools && d->id != MO_STYLE_HARMONY);
}

/* Does a prompt end inside an open thought? */
bool mo_dialogue_in_thought(const mo_dialogue *d, const char *prompt, size_t length);

/* The text of the style's first mark with this role; NULL: none. */
const char *mo_style_mark(const mo_style *f, mo_role role);

#endif
