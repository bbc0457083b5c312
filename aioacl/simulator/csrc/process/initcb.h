/* What libraries above the runtime register to be told of aclInit and aclFinalize. */
#ifndef ACLSIM_INITCB_H
#define ACLSIM_INITCB_H

#include "sim.h"

/* Calls those of a type in the order of their registration; the first code that is not 0 ends it. */
aclError initcb_start(uint32_t type, const char *config);
aclError initcb_end(uint32_t type);
/* Held around aclInit, aclFinalize and registrations; the same thread may take it again. */
void initcb_lock(void);
void initcb_unlock(void);
/* Whether aclInit has succeeded; with the lock above held. */
bool init_done(void);
/* Whether aclFinalize has succeeded since. The last aclFinalizeReference does not count: it speaks for those
 * who have initialised, and the runtime serves others, too. */
bool init_ended(void);
const char *init_config(void);

#endif
