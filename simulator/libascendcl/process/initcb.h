/* Callbacks of libraries above the runtime for aclInit and aclFinalize. */
#ifndef ACLSIM_INITCB_H
#define ACLSIM_INITCB_H

#include "sim.h"

/* Calls the callbacks of a type in the order of registration. Stops at the first code that is not 0, and
 * returns it. */
aclError initcb_start(uint32_t type, const char *config);
aclError initcb_end(uint32_t type);
/* The lock of initcb.c, which is held during aclInit, aclFinalize and registrations. The lock is recursive. */
void initcb_lock(void);
void initcb_unlock(void);
/* Whether aclInit has succeeded. Called with the lock above held. */
bool init_done(void);
/* Whether aclFinalize has succeeded after the last initialisation. The last aclFinalizeReference does not
 * count, because the runtime also serves libraries that did not initialise it. */
bool init_ended(void);
const char *init_config(void);

#endif
