/* Settings: checks a caller's options for opening and for planning a model. */
#ifndef MO_OPEN_SETTINGS_H
#define MO_OPEN_SETTINGS_H

#include "moraine.h"

/* MO_EINVAL names the first invalid option. Any thread. */
mo_status mo_settings_check(const mo_model_options *options, mo_error *err);

#endif
