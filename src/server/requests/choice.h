/* Choice: one answer as it is generated, in the order the model wrote it: texts, thoughts and calls, each an
 * item. */
#ifndef SRV_CHOICE_H
#define SRV_CHOICE_H

#include "server/common/writer.h"
#include "server/scheduler/job.h"

typedef enum srv_item_kind { SRV_ITEM_TEXT, SRV_ITEM_THOUGHT, SRV_ITEM_CALL } srv_item_kind;

typedef struct srv_item {
    srv_item_kind kind;
    srv_writer text; /* of a call: its arguments, JSON */
    char *name, *id; /* of a call */
    char key[40];    /* for dialects with item ids */
} srv_item;

typedef struct srv_choice {
    srv_item *items;
    size_t count, capacity;
    bool open;     /* the last item may still grow */
    size_t closed; /* for the dialect writer: items whose end it has written */
    srv_finish finish;
    int stop; /* index of the stop string; -1: none */
    int64_t completion_tokens;
    srv_writer probabilities; /* comma-separated list elements in the dialect's form */
    int64_t probability_count;
    srv_writer tokens;    /* comma-separated ids, if requested */
    srv_writer legacy[4]; /* for OpenAI's completions: the lists of the older format */
    int64_t characters;   /* offset of the next token there */
    bool failed;          /* out of memory */
} srv_choice;

void srv_choice_free(srv_choice *c);

/* Adds an event of this choice. Returns true if it started a new item, which is then the last. */
bool srv_choice_take(srv_choice *c, const srv_event *event);

static inline srv_item *srv_choice_last(const srv_choice *c)
{
    return c->count > 0 ? &c->items[c->count - 1] : NULL;
}
size_t srv_choice_calls(const srv_choice *c);
/* The arguments of a call as an object. If they were cut off, they become the member "_incomplete". */
void srv_item_arguments(const srv_item *item, srv_writer *w);
bool srv_choice_has(const srv_choice *c, srv_item_kind kind);
/* All texts, or all thoughts, as one JSON string. */
void srv_put_joined(srv_writer *w, const srv_choice *c, srv_item_kind kind);
/* The same without JSON encoding. */
void srv_choice_join(const srv_choice *c, srv_item_kind kind, srv_writer *out);

/* Report: parts of answers common to several dialects: usage, timings, log probabilities, warnings. */

/* {"prompt_tokens":...}: OpenAI's format. */
void srv_put_usage(srv_writer *w, const srv_usage *usage);
/* {"cache_n":...}: llama-server's format. */
void srv_put_timings(srv_writer *w, const srv_usage *usage, const srv_timings *timings);
/* {"total","cache","processed","time_ms"}. */
void srv_put_progress(srv_writer *w, const srv_usage *usage, const srv_timings *timings);
/* The probabilities of the event's tokens, comma-separated, with a leading comma if `more`. Tokens that end
 * answers are skipped. Returns their number. */
int64_t srv_put_probabilities(srv_writer *w, const mo_model *model, const srv_event *event, bool more);
/* The member "warnings" with a leading comma: a list of strings, one per line of the text. Nothing if the
 * text is empty. */
void srv_put_warnings(srv_writer *w, const char *lines);

#endif
