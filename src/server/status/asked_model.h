/* The model that a request asks about by ?model=, or the first. */
#ifndef SRV_ASKED_MODEL_H
#define SRV_ASKED_MODEL_H

#include "server/models/models.h"

/* Its index; negative after answering that there is none. */
int srv_asked_index(srv_models *models, srv_request *q);

/* The model itself if it is loaded, held, and its index (or NULL); NULL after answering. */
srv_model *srv_asked_model(srv_models *models, srv_request *q, int *index);

#endif
