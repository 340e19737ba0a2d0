/* Choice: one answer as it grows, in the order the model wrote it: texts, thoughts and calls, each an item. */
#ifndef SRV_CHOICE_H
#define SRV_CHOICE_H

#include "server/common/writer.h"
#include "server/scheduler/job.h"

typedef enum srv_item_kind { SRV_ITEM_TEXT, SRV_ITEM_THOUGHT, SRV_ITEM_CALL } srv_item_kind;

typedef struct srv_item {
    srv_item_kind kind;
    srv_writer text; /* of a call: its arguments, JSON */
    char *name, *id; /* of a call */
    char key[40];    /* for a dialect that names items */
} srv_item;

typedef struct srv_choice {
    srv_item *items;
    size_t count, capacity;
    bool open;     /* the last item may still grow */
    size_t closed; /* of the dialect writer: items whose end it has written */
    srv_finish finish;
    int stop; /* index of the stop string; -1: none */
    int64_t completion_tokens;
    srv_writer probabilities; /* elements of a list, with commas between; a dialect's form */
    int64_t probability_count;
    srv_writer tokens;    /* ids with commas between, where they are asked for */
    srv_writer legacy[4]; /* of OpenAI's completions: the lists of its older form */
    int64_t characters;   /* and where the next token begins */
    bool failed;          /* memory ran out */
} srv_choice;

void srv_choice_free(srv_choice *c);

/* Takes an event of this choice. Returns true when it began a new item, which is then the last. */
bool srv_choice_take(srv_choice *c, const srv_event *event);

static inline srv_item *srv_choice_last(const srv_choice *c)
{
    return c->count > 0 ? &c->items[c->count - 1] : NULL;
}
size_t srv_choice_calls(const srv_choice *c);
/* The arguments of a call as an object. What was cut off in the middle is none: it becomes the member "_incomplete". */
void srv_item_arguments(const srv_item *item, srv_writer *w);
bool srv_choice_has(const srv_choice *c, srv_item_kind kind);
/* All texts, or all thoughts, as one JSON string. */
void srv_put_joined(srv_writer *w, const srv_choice *c, srv_item_kind kind);
/* The same as it is. */
void srv_choice_join(const srv_choice *c, srv_item_kind kind, srv_writer *out);

/* Report: what answers of several dialects contain besides their text: usage, timings, log probabilities, warnings. */

/* {"prompt_tokens":...}: OpenAI's. */
void srv_put_usage(srv_writer *w, const srv_usage *usage);
/* {"cache_n":...}: llama-server's. */
void srv_put_timings(srv_writer *w, const srv_usage *usage, const srv_timings *timings);
/* {"total","cache","processed","time_ms"}. */
void srv_put_progress(srv_writer *w, const srv_usage *usage, const srv_timings *timings);
/* The probabilities of the event's tokens, with commas before, between and, where `more`, in front; ends of answers are left
 * out. Returns how many. */
int64_t srv_put_probabilities(srv_writer *w, const mo_model *model, const srv_event *event, bool more);
/* The member "warnings" with a comma before it, a list of strings, one per line of the text; nothing where there is no text. */
void srv_put_warnings(srv_writer *w, const char *lines);

#endif
