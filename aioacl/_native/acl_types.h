/*
 * The types of the ACL C interface that the functions in acl_api.inc use: handles, enumerations, structures,
 * function types. The binding and the simulator share these types. This header and the headers that it includes
 * contain only plain declarations, because cffi reads them too.
 */
#ifndef AIOACL_ACL_TYPES_H
#define AIOACL_ACL_TYPES_H

#include "api/handles.h"

#include "api/enums_data.h"
#include "api/enums_device.h"
#include "api/enums_memory.h"
#include "api/enums_model.h"
#include "api/enums_task.h"
#include "api/flags.h"

#include "api/structs_memory.h"

#include "api/structs_model.h"
#include "api/structs_task.h"

#include "api/callbacks.h"

#endif
