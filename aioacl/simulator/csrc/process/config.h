/* The configuration file that aclInit is given. */
#ifndef ACLSIM_CONFIG_H
#define ACLSIM_CONFIG_H

#include "sim.h"

enum { DUMP_PATH_BYTES = 4096 };

/* Reads and checks the file as JSON. *text is NULL without a file or with an empty one; else it is owned. */
aclError config_load(const char *path, char **text);
/* Checks what is told before anything is started: how error texts are kept. */
aclError config_check_first(const char *text);
/* The rest, in the order of the runtime; each answers the code with which aclInit fails. */
aclError config_apply_dump(const char *text);
aclError config_apply_device(const char *text);
aclError config_check_profiler(const char *text);

/* dumping.c. */
/* Keeps the path of dumps that a configuration has, shorter than DUMP_PATH_BYTES; "" if it has none. */
void dump_set_path(const char *path);

#endif
