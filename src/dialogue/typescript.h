/* Typescript: functions as gpt-oss was trained to read them: a namespace of types, with descriptions as comments. */
#ifndef MO_DIALOGUE_TYPESCRIPT_H
#define MO_DIALOGUE_TYPESCRIPT_H

#include "base/bytes.h"
#include "dialogue/tools.h"

void mo_typescript_tools(mo_bytes *to, const mo_tools *tools);

#endif
