/* Report: what answers of several dialects say beside their text: usage, timings, log probabilities, warnings. */
#ifndef SRV_REPORT_H
#define SRV_REPORT_H

#include "server/common/writer.h"
#include "server/scheduler/job.h"

/* {"prompt_tokens":...}: OpenAI's. */
void srv_put_usage(srv_writer *w, const srv_usage *usage);
/* {"cache_n":...}: llama-server's. */
void srv_put_timings(srv_writer *w, const srv_usage *usage, const srv_timings *timings);
/* {"total","cache","processed","time_ms"}. */
void srv_put_progress(srv_writer *w, const srv_usage *usage, const srv_timings *timings);
/* The probabilities of the event's tokens, with commas before, between and, where `more`, in front; ends of answers are left
 * out. Returns how many. */
int64_t srv_put_probabilities(srv_writer *w, const mo_model *model, const srv_event *event, bool more);
/* A list of strings, one per line of the text. */
void srv_put_lines(srv_writer *w, const char *lines);

#endif
