/* Trace: the experts used by an answer's tokens, layer by layer, if requested. The latest traces are stored
 * by the ids of their answers. Size-limited: of long answers only the start is recorded.
 *
 * Any thread. */
#ifndef SRV_TRACE_H
#define SRV_TRACE_H

#include "moraine_server.h"
#include "server/common/writer.h"

/* Of one answer; reference-counted. */
typedef struct srv_trace srv_trace;
/* The latest traces. */
typedef struct srv_traces srv_traces;

srv_traces *srv_traces_open(void);         /* NULL: out of memory */
void srv_traces_close(srv_traces *traces); /* accepts NULL */

/* Starts a trace for the answer with this id, visible only to this owner; the oldest is dropped. The caller
 * gets a reference. NULL: out of memory. */
srv_trace *srv_traces_begin(srv_traces *traces, const char *id, const char *owner, const char *model_id,
                            const mo_model *model);
/* The caller gets a reference; NULL: none. */
srv_trace *srv_traces_find(srv_traces *traces, const char *id, const char *owner);
void srv_trace_release(srv_trace *trace); /* accepts NULL */

/* Records the experts of one layer for a token of the answer, as srv_routes_fn of job.h. */
void srv_trace_note(void *trace, int layer, int64_t position, int32_t token, const int32_t *ids, int used);
/* The trace is complete. */
void srv_trace_end(srv_trace *trace);

const char *srv_trace_model(const srv_trace *trace); /* its id */
/* As JSON (docs/server.md). model: for the tokens' texts; NULL: no texts. */
void srv_trace_write(srv_trace *trace, const mo_model *model, srv_writer *w);

#endif
