/* Settings: what a caller chooses, for opening a model and for planning one. One check serves both. */
#ifndef MO_OPEN_SETTINGS_H
#define MO_OPEN_SETTINGS_H

#include "moraine.h"

/* MO_EINVAL names the first that makes no sense. Any thread. */
mo_status mo_settings_check(const mo_model_options *options, mo_error *err);

#endif
