/* Prometheus: the server's counters in the text format that it reads. */
#ifndef SRV_PROMETHEUS_H
#define SRV_PROMETHEUS_H

#include "server/common/writer.h"
#include "server/http/routes.h"

void srv_prometheus_write(srv_server *server, srv_writer *out);

#endif
