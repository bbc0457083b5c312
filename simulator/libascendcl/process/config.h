/* The configuration file of aclInit. */
#ifndef ACLSIM_CONFIG_H
#define ACLSIM_CONFIG_H

#include "sim.h"

enum { DUMP_PATH_BYTES = 4096 };

/* Reads the file and checks that it is JSON. *text is NULL if there is no file or the file is empty. Otherwise
 * the caller owns *text. */
aclError config_load(const char *path, char **text);
/* Checks and applies the setting that precedes all other sections: whether all threads share one error text. */
aclError config_check_first(const char *text);
/* Apply the other sections, in the order of the runtime. Each returns the code with which aclInit fails. */
aclError config_apply_dump(const char *text);
aclError config_apply_device(const char *text);
aclError config_check_profiler(const char *text);

/* dumping.c. */
/* Stores the dump path of a configuration. The path must be shorter than DUMP_PATH_BYTES; "" if the
 * configuration has none. */
void dump_set_path(const char *path);

#endif
