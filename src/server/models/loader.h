/* Loader: brings a model into memory with its engine, and takes it out again. One at a time: the caller holds the models' mutex,
 * which is given up meanwhile, and has set `changing`. */
#ifndef SRV_LOADER_H
#define SRV_LOADER_H

#include "server/models/model_list.h"

/* Others are unloaded where its memory is needed and nobody uses them. Says in the log how it went. */
mo_status srv_loader_load(srv_models *models, srv_model *model, mo_error *err);
/* Nobody holds it. why: for the log. */
void srv_loader_unload(srv_models *models, srv_model *model, const char *why);

#endif
