/* Reading: where the reading of an answer stands. answer.c and call.c are the machine that moves it. Private to the module. */
#ifndef MO_DIALOGUE_READING_H
#define MO_DIALOGUE_READING_H

#include "dialogue/calls.h"
#include "dialogue/gemma.h"
#include "dialogue/header.h"
#include "dialogue/object.h"
#include "dialogue/python.h"

typedef enum mo_reading_state {
    MO_READING_TEXT,
    MO_READING_THOUGHT,
    MO_READING_THOUGHT_NAME, /* the line after gemma4's opening mark */
    MO_READING_SECTION,      /* between the marks around calls, outside of a call */
    MO_READING_FENCE,        /* after a fence that may hold a call */
    MO_READING_PYTHON,
    MO_READING_NAME,
    MO_READING_ID,
    MO_READING_ARGUMENTS, /* before, between and after parameters */
    MO_READING_KEY,
    MO_READING_BEFORE_VALUE,
    MO_READING_VALUE,
    MO_READING_JSON,    /* arguments that are a JSON object */
    MO_READING_LOOSE,   /* arguments that are something else: seen whole */
    MO_READING_GEMMA,   /* arguments in gemma4's notation */
    MO_READING_OBJECT,  /* a call that is a JSON object */
    MO_READING_HEADER,  /* harmony: before a message */
    MO_READING_DROPPED, /* harmony: text that was not requested, and text after a call */
} mo_reading_state;

typedef struct mo_reading {
    mo_dialogue dialogue;
    mo_calls calls;
    bool keep_thought, single;
    mo_reading_state state;

    bool fresh;      /* no text since the beginning or the last mark */
    bool drops;      /* newlines at a fresh place are left out */
    bool after_call; /* fresh after a call: its closing marks may still come */
    bool has_thought;
    bool in_section, in_fence;
    bool name_line;                  /* the name ends with its line */
    bool text_value;                 /* the value is a string and goes out as it comes */
    bool value_begun, value_newline; /* of it: something came; a newline waits, which may be its end */
    int section_calls, keys;
    unsigned types; /* of the value */

    mo_bytes held; /* newlines that are left out when a mark follows */
    mo_bytes raw;  /* what becomes text when it turns out to be no call */
    mo_bytes name, id, key, value, json;
    mo_json_scan scan;
    mo_object object;
    mo_gemma gemma;
    mo_python_scan python;
    mo_header header;
    mo_piece_list *out;
} mo_reading;

/* tools and out must outlive the reading. */
void mo_reading_init(mo_reading *r, mo_dialogue dialogue, const mo_tools *tools, bool in_thought,
                     mo_piece_list *out);
void mo_reading_free(mo_reading *r);
bool mo_reading_failed(const mo_reading *r); /* memory was out */

/* Puts text out, with the newlines that were held before it. */
void mo_reading_put(mo_reading *r, mo_piece_kind kind, mo_text text);
/* What was kept because it might become a call becomes text. */
void mo_reading_give_up(mo_reading *r);
/* Text follows a mark. */
void mo_reading_enter_text(mo_reading *r);

#endif
