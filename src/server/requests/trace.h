/* Trace: which experts the tokens of an answer used, layer by layer, for those who asked for it; and the last traces by the ids of
 * their answers. Bounded: of long answers the beginning is there.
 *
 * Any thread. */
#ifndef SRV_TRACE_H
#define SRV_TRACE_H

#include "moraine_server.h"
#include "server/common/writer.h"

/* One answer's; several hold it. */
typedef struct srv_trace srv_trace;
/* The last ones. */
typedef struct srv_traces srv_traces;

srv_traces *srv_traces_open(void);         /* NULL: out of memory */
void srv_traces_close(srv_traces *traces); /* NULL is allowed */

/* A new one for an answer of that id, which only this owner finds; the oldest is forgotten. Held by the caller too. NULL: out
 * of memory. */
srv_trace *srv_traces_begin(srv_traces *traces, const char *id, const char *owner, const char *model_id,
                            const mo_model *model);
/* Held by the caller; NULL: there is none. */
srv_trace *srv_traces_find(srv_traces *traces, const char *id, const char *owner);
void srv_trace_release(srv_trace *trace); /* NULL is allowed */

/* The experts of one layer for a token of the answer, as srv_routes_fn of job.h. */
void srv_trace_note(void *trace, int layer, int64_t position, int32_t token, const int32_t *ids, int used);
/* Nothing more comes. */
void srv_trace_end(srv_trace *trace);

const char *srv_trace_model(const srv_trace *trace); /* its id */
/* As JSON (docs/server.md). model: for the tokens' texts; NULL: they are left out. */
void srv_trace_write(srv_trace *trace, const mo_model *model, srv_writer *w);

#endif
